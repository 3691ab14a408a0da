//! The one timer of the module: when it fires, and what it does then: the tasks that are due, and the engine's background
//! work.
//!
//! It is armed for the earliest of all deadlines, by everything that may have made one earlier ([`arm`]). The server's
//! timers cannot be trusted for longer than half an hour, so the timer for a later deadline fires every half an hour and
//! is armed again.
//!
//! The server sorts its timers by the wall clock, so a timer that was armed before the clock stepped back may fire
//! hours late. The server's cron runs on the monotonic clock; it finds such a timer within one period and arms it
//! again. A tick lasts 0.6 ms at most, and the next tick continues where it stopped, so that clients are served in
//! between (see [`super::pace`]).
//!
//! A tick alternates between tasks and background work, so that neither holds up the other. A replica has background
//! work only.

use super::cluster::node;
use super::cluster::ownership::{self, Ownership, Ownerships};
use super::engine_call::{run_for_queue, run_task};
use super::pace::Pace;
use super::redis::clock;
use super::redis::context::{Ctx, with_detached};
use super::redis::gil::GilCell;
use super::redis::name::KeyString;
use super::redis::timer::{self, MAX_PERIOD_MS, OneShot, Timer, TimerSlot};
use super::shell::{SHELL, Shell};
use super::{beside_keys, freed, listeners, search};
use dsync_engine::answer::Answer;
use dsync_engine::types::Now;

/// How long a tick may take, in microseconds.
const TICK_US: u64 = 600;

/// The same for a tick whose changes are replicated. The server writes them out when the tick is over, which takes more
/// than half as long again.
const REPLICATED_TICK_US: u64 = 400;

/// How often the engine may look into its lease index during a tick.
const TICK_LOOKS: u32 = 4_096;

/// How many steps of background work the engine does between two tasks: they take about as long as one task.
const BACKGROUND: u32 = 32;

/// The time between two questions to a server that does not accept writes, in microseconds.
const HELD_UP_US: u64 = 50_000;

static ALARM: GilCell<Alarm> = GilCell::new(Alarm::default);

/// The timer.
#[derive(Default)]
struct Alarm {
    /// The monotonic moment for which the timer is armed.
    armed_us: Option<u64>,
    pace: Pace,
    /// How often the timer has fired.
    ticks: u64,
}

impl Timer for Alarm {
    const SLOT: &'static TimerSlot = {
        static SLOT: TimerSlot = TimerSlot::new();
        &SLOT
    };

    fn fire(ctx: Ctx<'_>) {
        let armed_us = ALARM.with(|alarm| {
            alarm.ticks += 1;
            alarm.armed_us.take()
        });
        let is_early = armed_us.is_some_and(|armed| armed > clock::monotonic_us());
        let has_more = tick(ctx);
        let now = SHELL.with(Shell::now);
        if ALARM.with(|alarm| alarm.pace.tick_is_over(now.mono, has_more)) || is_early {
            timer::call_in_next_turn::<NextTick>();
        } else {
            arm(ctx);
        }
    }
}

/// Arms the timer for the next tick of a burst, see [`super::pace`], and after a timer that fired early: then the wall
/// clock was set. If it was set back while the server fires its timers, a timer that is armed meanwhile fires at once,
/// early too, and so would the next one, because the server compares them all with one reading of the clock.
struct NextTick;

impl OneShot for NextTick {
    fn run() {
        arm_soon();
    }
}

/// Makes sure that the timer fires when the engine next has something to do.
pub(super) fn arm(ctx: Ctx<'_>) {
    let now = SHELL.with(Shell::now);
    arm_from(ctx, now);
}

/// [`arm`] for callbacks without a context, which may come in the middle of a command or a script.
pub(super) fn arm_soon() {
    with_detached(arm);
}

/// [`arm`] for a caller that knows the time, and that nothing but what comes due in so many microseconds is new.
pub(super) fn arm_within(ctx: Ctx<'_>, now: Now, us: u64) {
    let by_us = now.mono.0.saturating_add(us);
    if !ALARM.with(|alarm| alarm.fires_by(by_us)) {
        arm_from(ctx, now);
    }
}

/// [`arm`] for a caller that knows the time.
pub(super) fn arm_from(ctx: Ctx<'_>, now: Now) {
    let wake = SHELL.with(|shell| {
        let held_up = shell.engine.is_held_up(now).then_some(HELD_UP_US);
        let engine = shell.engine.next_wake(now).into_iter();
        let all = engine
            .chain(held_up)
            .chain(search::next_wake(&shell.engine, now.mono));
        all.min()
    });
    let Some(wake) = wake else { return };
    if let Some(period_us) = ALARM.with(|alarm| alarm.period_us(wake, now)) {
        timer::start::<Alarm>(ctx, period_us.div_ceil(1_000));
    }
}

impl Alarm {
    /// Returns the period of a timer that fires after `wake` microseconds, or earlier; `None` if it is armed for that.
    fn period_us(&mut self, wake: u64, now: Now) -> Option<u64> {
        // Note the moment for which the timer is really armed, not that of the deadline, which may be further away than
        // the longest period.
        let rest_us = self.pace.rest_us(now.mono);
        let period_us = wake.max(rest_us).min(MAX_PERIOD_MS * 1_000);
        let at = now.mono.0.saturating_add(period_us);
        // Leave a timer that fires too early: it finds nothing to do and arms itself again, which is cheaper than
        // moving it whenever the earliest hold is released.
        if self.fires_by(at) {
            return None;
        }
        self.armed_us = Some(at);
        Some(period_us)
    }

    /// Whether the timer is armed for this monotonic moment or an earlier one.
    fn fires_by(&self, at_us: u64) -> bool {
        self.armed_us.is_some_and(|armed| armed <= at_us)
    }
}

/// Stops the timer when the server refuses the module.
pub(crate) fn disarm(ctx: Ctx<'_>) {
    timer::stop::<Alarm>(ctx);
}

/// How often the timer has fired since the server started.
pub(super) fn times_fired() -> u64 {
    ALARM.with(|alarm| alarm.ticks)
}

/// Called by the server's cron: asks whether the server accepts writes, and arms the timer again if it is late.
pub(super) fn cron(ctx: Ctx<'_>) {
    if SHELL.with(|shell| shell.engine.is_serving()) {
        node::cron(ctx);
        // Ask only if a deadline is coming, or writes were refused before.
        let is_idle = SHELL.with(|shell| {
            let now = shell.now();
            now.may_write && shell.engine.next_wake(now).is_none()
        });
        if !is_idle {
            ownership::ask_about_writes(ctx);
        }
    }
    ALARM.with(|alarm| {
        let now_us = clock::monotonic_us();
        // Its moment has passed by the monotonic clock, which nobody can set: arm the timer again.
        alarm.armed_us = alarm.armed_us.filter(|armed| *armed >= now_us);
    });
    arm(ctx);
}

/// Does the tasks that are due. Returns whether its time was over before the work was.
fn tick(ctx: Ctx<'_>) -> bool {
    let started_us = clock::monotonic_us();
    freed::collect();
    let facts = ctx.facts();
    let decides = facts.is_primary() && !facts.loading();
    if decides {
        listeners::ask_again(ctx);
        let paused = ctx.avoid_replica_traffic();
        SHELL.with(|shell| shell.paused = paused);
        if !paused {
            ownership::ask_about_writes(ctx);
        }
        search::search(ctx);
    }
    let tick_us = match decides && !listeners::is_silent() {
        true => REPLICATED_TICK_US,
        false => TICK_US,
    };
    let mut budget = TICK_LOOKS;
    let mut ownerships = Ownerships::default();
    let mut now = SHELL.with(Shell::now);
    loop {
        let has_done = decides && do_task(ctx, now, &mut ownerships, &mut budget);
        let has_more = background();
        if !has_more && !has_done {
            return budget == 0;
        }
        now = SHELL.with(Shell::now);
        if now.mono.0.saturating_sub(started_us) >= tick_us {
            return true;
        }
    }
}

/// Does some of the engine's background work, if there is any. Returns whether there is more.
fn background() -> bool {
    SHELL.with(|shell| {
        if shell.engine.has_background() {
            shell.engine.background(&mut { BACKGROUND });
        }
        shell.engine.has_background()
    })
}

/// Does one task. Returns whether there was one.
fn do_task(ctx: Ctx<'_>, now: Now, ownerships: &mut Ownerships, budget: &mut u32) -> bool {
    let task = SHELL.with(|shell| shell.engine.next_task(now, budget));
    let Some((task, db, name)) = task else {
        return false;
    };
    if !ctx.select_db(db.0) {
        // The engine's tasks for this database end with it.
        beside_keys::drop_places_of_missing(ctx, &[db]);
        return true;
    }
    let name = KeyString::new(name.as_bytes());
    match ownerships.of(ctx, &name) {
        Ownership::KeyLeft => turn_away(ctx, &name, &Answer::KeyLeft, now),
        ownership => {
            // The kept places of the name went to the other node with its value.
            if ownership == Ownership::Theirs && ownership::is_absent(ctx, &name) {
                run_for_queue(ctx, &name, |engine, key| engine.forget_places(key, now));
            }
            let may_write = now.may_write && ownership == Ownership::Ours;
            if may_write {
                node::make_slot_known(ctx, name.bytes());
            }
            let now = Now { may_write, ..now };
            let done = run_task(ctx, &name, now, |visit| visit.perform(task));
            if done.is_err() {
                // The name has a value of another type now, so its waiters get WRONGTYPE.
                turn_away(ctx, &name, &Answer::WrongType, now);
            }
        }
    }
    true
}

/// Tells the waiters of this name why they cannot be served any more.
fn turn_away(ctx: Ctx<'_>, name: &KeyString<'_>, why: &Answer, now: Now) {
    run_for_queue(ctx, name, |engine, key| engine.turn_away(key, why, now));
}
