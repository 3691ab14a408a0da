//! Handles the server's events: its cron, turns of the event loop, disconnects, flushes, changes of role and loading.

use super::cluster::node;
use super::out::{ends, journal};
use super::redis::clock;
use super::redis::context::{Ctx, Level};
use super::redis::events::{self, Listener, ServerEvent};
use super::redis::gil::GilFlag;
use super::redis::hash_slot::slot;
use super::shell::SHELL;
use super::{beside_keys, followed, freed, identity, listeners, loading, parking, tick, waiters};
use dsync_engine::Fences;
use dsync_engine::types::{ClientId, Db};

pub(crate) fn register(ctx: Ctx<'_>) -> Result<(), String> {
    events::subscribe::<Events>(ctx)
}

/// Unsubscribes when the server refuses the module.
pub(crate) fn take_back(ctx: Ctx<'_>) {
    events::unsubscribe(ctx);
}

/// Whether the server's cron has run, so the event loop turns: the server has loaded the module for good, and its data.
static HAS_TURNED: GilFlag = GilFlag::new();

/// Whether the server has turned its event loop with the module in it.
pub(crate) fn is_at_work() -> bool {
    HAS_TURNED.is_set()
}

/// Whether the start of the server is over: it has begun to decide, or it has turned its event loop as a replica.
static START_IS_OVER: GilFlag = GilFlag::new();

/// Why this server decides from now on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beginning {
    /// It was started, or has loaded the module.
    Start,
    Promotion,
    /// DEBUG RELOAD: it has decided all the time.
    Reload,
}

/// Begins to decide after a start, if this server is a primary and has not begun yet. Called when the module is loaded,
/// and again when the server has loaded its data: a start from data is no second one, see [`loading_started`].
///
/// In a cluster the server calls itself a primary until its first cron, so its own entry in the list of nodes must say so
/// too. As long as it does not, the start is not over: the server tells of no promotion before it calls itself a replica.
pub(crate) fn start_if_due(ctx: Ctx<'_>) {
    if START_IS_OVER.is_set() {
        return;
    }
    let is_primary = ctx.facts().is_primary();
    if is_primary && node::is_replica_by_its_entry(ctx) {
        return;
    }
    START_IS_OVER.set(true);
    if is_primary {
        take_over(ctx, Beginning::Start);
    }
}

struct Events;

impl Listener for Events {
    fn on_event(ctx: Ctx<'_>, event: ServerEvent) {
        match event {
            ServerEvent::Cron => cron(ctx),
            ServerEvent::AfterSleep => node::turn_is_over(ctx),
            ServerEvent::TurnEnds => waiters::release(),
            ServerEvent::Disconnected { client_id } => {
                parking::disconnected(ctx, ClientId(client_id));
            }
            ServerEvent::FlushStarted { .. } => freed::flush_started(),
            ServerEvent::FlushEnded { db } => {
                SHELL.with(|shell| shell.engine.flushed(db.map(Db)));
                freed::flush_ended();
                tick::arm(ctx);
            }
            ServerEvent::SwapDb { first, second } => {
                SHELL.with(|shell| shell.engine.swapped(Db(first), Db(second)));
                tick::arm(ctx);
            }
            ServerEvent::SlotsTrimmed(slots) => {
                let is_gone = move |name: &[u8]| {
                    let slot = slot(name);
                    slots.iter().any(|range| range.contains(&slot))
                };
                // A cluster's keys are in database 0.
                SHELL.with(|shell| shell.engine.trimmed(Db(0), is_gone));
                tick::arm(ctx);
            }
            ServerEvent::NowPrimary => {
                START_IS_OVER.set(true);
                take_over(ctx, Beginning::Promotion);
            }
            ServerEvent::NowReplica => stand_down(ctx),
            ServerEvent::LoadingStarted(_) => loading_started(),
            ServerEvent::LoadingEnded | ServerEvent::LoadingFailed => {
                loading::ended();
                followed::loaded(ctx);
                beside_keys::loaded(ctx);
                SHELL.with(|shell| shell.engine.fences_mut().loading_ended());
                // A replica that has synchronised still decides nothing.
                if !START_IS_OVER.is_set() {
                    start_if_due(ctx);
                } else if ctx.facts().is_primary() {
                    take_over(ctx, Beginning::Reload);
                }
            }
            ServerEvent::ConfigChanged {
                loglevel,
                hz,
                maxmemory_policy,
                port,
            } => {
                if hz {
                    set_cron_period(ctx);
                }
                if port {
                    identity::read_address(ctx);
                }
                // Ask only for what may have changed, because SLOWLOG and commandstats show the question.
                if loglevel {
                    journal::read_log_level(ctx);
                }
                if maxmemory_policy {
                    journal::warn_of_eviction(ctx);
                }
            }
            ServerEvent::ChildBorn | ServerEvent::ReplicaOnline => listeners::may_have_come(),
            ServerEvent::Shutdown => journal::flush(ctx),
        }
    }
}

/// Stops deciding. Frees the states of the data that the server has just dropped, whose memory the new data can use then:
/// no client is served while the server loads, so slices would be of no use.
fn loading_started() {
    loading::started();
    followed::loading_started();
    // A server that loads its data before its first turn has given no fence yet. It starts from them, so it forgets that
    // it has leapt as one without data.
    let starts = !is_at_work() && START_IS_OVER.set(false);
    SHELL.with(|shell| {
        shell.engine.stand_down();
        let fences = shell.engine.fences_mut();
        if starts {
            *fences = Fences::default();
        }
        fences.loading_started();
    });
    freed::finish();
}

/// Tells the lease clock the period of the server's cron.
pub(crate) fn set_cron_period(ctx: Ctx<'_>) {
    let period_us = 1_000_000 / ctx.hz().max(1);
    SHELL.with(|shell| shell.clock.set_period(period_us));
}

fn cron(ctx: Ctx<'_>) {
    start_if_due(ctx);
    // Ask first, because all others read the lease clock, and it must not count the time of a pause.
    let paused = ctx.avoid_replica_traffic();
    let stood_still_us = SHELL.with(|shell| {
        shell.paused = paused;
        let held_up = shell.is_held_up();
        let stood_still_us = shell.clock.begin_period(clock::monotonic_us(), held_up);
        stood_still_us.filter(|_| shell.engine.is_serving())
    });
    if !HAS_TURNED.set(true) {
        node::listen(ctx);
    } else if let Some(us) = stood_still_us {
        ends::stalled(us);
    }
    waiters::cron(ctx);
    freed::collect();
    listeners::ask(ctx);
    tick::cron(ctx);
    journal::cron(ctx);
}

/// Begins to decide. After a start or a promotion the next fences must exceed those that others may have given meanwhile,
/// or this server itself.
fn take_over(ctx: Ctx<'_>, beginning: Beginning) {
    listeners::may_have_come();
    let paused = ctx.avoid_replica_traffic();
    SHELL.with(|shell| {
        shell.paused = paused;
        if !shell.engine.is_serving() {
            let latest = shell.engine.latest_due();
            shell.clock.go_past(clock::monotonic_us(), latest.0);
        }
        let now = shell.now();
        let fences = shell.engine.fences_mut();
        match beginning {
            Beginning::Start => fences.start(identity::read(), now),
            Beginning::Promotion => fences.promote(now),
            Beginning::Reload => {}
        }
        shell.engine.take_over(now);
    });
    if beginning != Beginning::Reload {
        node::took_over(ctx);
    }
    ctx.log(Level::Debug, "this server decides");
    tick::arm(ctx);
}

/// Stops deciding, because another server decides from now on, and tells the waiters so. In a cluster the server
/// itself redirects them to the other node.
fn stand_down(ctx: Ctx<'_>) {
    listeners::may_have_come();
    let in_cluster = ctx.facts().cluster();
    let mut wakes = SHELL.with(|shell| {
        shell.engine.stand_down();
        if !in_cluster {
            shell.engine.dismiss_all();
        }
        std::mem::take(&mut shell.engine.effects.wakes)
    });
    journal::flush(ctx);
    ctx.log(Level::Debug, "another server decides");
    waiters::decided(&mut wakes);
    waiters::release();
    tick::arm(ctx);
}
