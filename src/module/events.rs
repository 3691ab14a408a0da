//! Handles the server's events: turns of the event loop, disconnects, flushes, changes of role, loading, and the
//! keyspace notifications of renamed and moved keys.

use super::cluster::node;
use super::lease_clock::LeaseClock;
use super::out::journal;
use super::redis::clock;
use super::redis::context::{Ctx, Level};
use super::redis::events::{self, CLASS_GENERIC, Listener, ServerEvent};
use super::redis::key::{KeyContent, OpenKey};
use super::redis::name::KeyString;
use super::{Load, SHELL, arm, freed, listeners, tick, waiters};
use dsync_engine::types::{ClientId, Db};
use dsync_engine::{Beginning, StateId};

pub(crate) fn register(ctx: Ctx<'_>) -> Result<(), String> {
    events::subscribe::<Events>(ctx)?;
    // Last, because this subscription cannot be taken back if the server refuses the module afterwards.
    events::subscribe_keyspace::<Events>(ctx, CLASS_GENERIC)
}

/// Unsubscribes when the server refuses the module.
pub(crate) fn take_back(ctx: Ctx<'_>) {
    events::unsubscribe(ctx);
}

struct Events;

impl Listener for Events {
    fn on_event(ctx: Ctx<'_>, event: ServerEvent) {
        match event {
            ServerEvent::BeforeSleep => before_sleep(ctx),
            ServerEvent::AfterSleep => after_sleep(ctx),
            ServerEvent::Cron => {
                freed::collect();
                listeners::ask(ctx);
                tick::cron(ctx);
                journal::cron(ctx);
            }
            ServerEvent::Disconnected { client_id } => waiters::disconnected(ClientId(client_id)),
            ServerEvent::FlushEnded { db } => {
                SHELL.with(|shell| shell.engine.flushed(db.map(Db)));
                arm::arm(ctx);
            }
            ServerEvent::SwapDb { first, second } => {
                SHELL.with(|shell| shell.engine.swapped(Db(first), Db(second)));
                arm::arm(ctx);
            }
            ServerEvent::NowPrimary => take_over(ctx, Some(Beginning::Promotion)),
            ServerEvent::NowReplica => stand_down(ctx),
            ServerEvent::LoadingStarted(_) => SHELL.with(|shell| {
                shell.load = Load::default();
                shell.engine.stand_down();
            }),
            ServerEvent::LoadingEnded | ServerEvent::LoadingFailed => {
                journal::loaded(ctx);
                // A replica that has synchronised still decides nothing. A load while the event loop is already turning
                // is no start but DEBUG RELOAD.
                if ctx.facts().is_primary() {
                    let starting = SHELL.with(|shell| !shell.turning);
                    take_over(ctx, starting.then_some(Beginning::Start));
                }
            }
            ServerEvent::ConfigChanged { loglevel, hz } => {
                if hz {
                    set_longest_sleep(ctx);
                }
                // Ask only if the level may have changed, because SLOWLOG and commandstats show the question.
                if loglevel {
                    journal::read_log_level(ctx);
                }
            }
            ServerEvent::ChildBorn | ServerEvent::ReplicaOnline => listeners::may_have_come(),
            ServerEvent::Shutdown => journal::flush(ctx),
            ServerEvent::FlushStarted { .. } => {}
        }
    }

    /// Tells the engine the new name of a renamed or moved value. Must not write, because replicas would get the write
    /// before the command that caused it.
    fn on_keyspace(ctx: Ctx<'_>, event: &[u8], db: i32, key: &[u8]) {
        if !matches!(event, b"rename_to" | b"move_to") {
            return;
        }
        let opened = OpenKey::open_read(ctx, &KeyString::new(key));
        let content = opened.content();
        drop(opened);
        SHELL.with(|shell| match content {
            KeyContent::Ours { id, .. } => {
                if let Some(id) = StateId::from_raw(id.get()) {
                    shell.engine.moved(id, Db(db), key);
                }
            }
            KeyContent::Other | KeyContent::Absent => {
                shell.engine.name_changed_hands(Db(db), key);
            }
        });
        arm::arm(ctx);
    }
}

/// Sets the longest sleep of the server in a turn of its event loop: the period of its cron.
pub(crate) fn set_longest_sleep(ctx: Ctx<'_>) {
    let sleep_us = 1_000_000 / ctx.hz().max(1);
    SHELL.with(|shell| shell.clock.set_sleep(sleep_us));
}

fn before_sleep(ctx: Ctx<'_>) {
    turn(ctx, LeaseClock::before_sleep);
}

fn after_sleep(ctx: Ctx<'_>) {
    if turn(ctx, LeaseClock::after_sleep) {
        arm::arm(ctx);
    }
    waiters::turn_is_over();
}

/// Called before and after each sleep of the event loop: notes whether writes are paused, and advances the lease clock.
/// Returns whether a pause has ended.
fn turn(ctx: Ctx<'_>, account: fn(&mut LeaseClock, u64, bool)) -> bool {
    let paused = ctx.avoid_replica_traffic();
    let (resumes, is_first) = SHELL.with(|shell| {
        let was_paused = std::mem::replace(&mut shell.paused, paused);
        let held_up = shell.is_held_up();
        account(&mut shell.clock, clock::monotonic_us(), held_up);
        let was_turning = std::mem::replace(&mut shell.turning, true);
        (was_paused && !paused, !was_turning)
    });
    if is_first {
        node::listen(ctx);
    }
    resumes
}

/// Begins to decide. `beginning` is a start or a promotion: then the next fences must exceed those that others may have
/// given meanwhile. It is None after DEBUG RELOAD, because this server has decided all the time.
pub(crate) fn take_over(ctx: Ctx<'_>, beginning: Option<Beginning>) {
    listeners::may_have_come();
    SHELL.with(|shell| {
        if !shell.engine.is_serving() {
            let latest = shell.engine.latest_due();
            shell.clock.go_past(clock::monotonic_us(), latest.0);
        }
        let now = shell.now();
        if let Some(beginning) = beginning {
            shell.engine.leap_fences(beginning, now);
        }
        shell.engine.take_over(now);
    });
    node::took_over(ctx);
    ctx.log(Level::Debug, "this server decides");
    arm::arm(ctx);
}

/// Stops deciding, because another server decides from now on, and tells the waiters so. In a cluster the server
/// itself redirects them to the other node.
fn stand_down(ctx: Ctx<'_>) {
    listeners::may_have_come();
    let in_cluster = ctx.facts().cluster();
    let wakes = SHELL.with(|shell| {
        shell.engine.stand_down();
        if !in_cluster {
            shell.engine.dismiss_all();
        }
        std::mem::take(&mut shell.engine.effects.wakes)
    });
    journal::flush(ctx);
    ctx.log(Level::Debug, "another server decides");
    wakes.into_iter().for_each(waiters::deliver);
    arm::arm(ctx);
}
