//! Arms the one timer of the module for the earliest of all deadlines. The server's timers cannot be trusted for
//! longer than half an hour, so the timer for a later deadline fires every half an hour and is armed again.
//!
//! `tick` does the work. Code that may have made a deadline earlier calls [`arm`] or one of its variants.

use super::redis::context::Ctx;
use super::redis::detached;
use super::redis::one_shot::{self, OneShot};
use super::redis::timer::{self, MAX_PERIOD_MS, Timer, TimerSlot};
use super::{SHELL, Shell, search};
use dsync_engine::types::Now;

/// The time between two questions to a server that does not accept writes, in microseconds.
const HELD_UP_US: u64 = 50_000;

/// The timer.
struct Alarm;

impl Timer for Alarm {
    const SLOT: &'static TimerSlot = {
        static SLOT: TimerSlot = TimerSlot::new();
        &SLOT
    };

    fn fire(ctx: Ctx<'_>) {
        let tick = SHELL.with(|shell| {
            shell.armed_us = None;
            shell.timer_ticks += 1;
            shell.tick
        });
        let has_more = tick(ctx);
        let goes_on = SHELL.with(|shell| {
            let now = shell.now();
            shell.pace.tick_is_over(now.mono, has_more)
        });
        if goes_on {
            one_shot::call_in_next_turn::<NextTick>();
        } else {
            arm(ctx);
        }
    }
}

/// Arms the timer for the next tick of a burst, see [`super::pace`].
struct NextTick;

impl OneShot for NextTick {
    fn run() {
        arm_soon();
    }
}

/// Sets the function that is called when the timer fires, which returns whether it left work behind. A parameter,
/// because `tick` uses this file, not the other way round.
pub(crate) fn register(tick: fn(Ctx<'_>) -> bool) {
    SHELL.with(|shell| shell.tick = tick);
}

/// Makes sure that the timer fires when the engine next has something to do.
pub(super) fn arm(ctx: Ctx<'_>) {
    let now = SHELL.with(Shell::now);
    arm_from(ctx, now);
}

/// [`arm`] for callbacks without a context, which may come in the middle of a command or a script.
pub(super) fn arm_soon() {
    detached::with(arm);
}

/// Stops the timer when the server refuses the module.
pub(crate) fn disarm(ctx: Ctx<'_>) {
    timer::stop::<Alarm>(ctx);
}

/// [`arm`] for a caller that knows the time.
pub(super) fn arm_from(ctx: Ctx<'_>, now: Now) {
    let period_us = SHELL.with(|shell| {
        let held_up = shell.engine.is_held_up(now).then_some(HELD_UP_US);
        let wake = shell
            .engine
            .next_wake(now)
            .into_iter()
            .chain(held_up)
            .chain(search::next_wake(shell, now.mono))
            .min()?;
        // Note the moment for which the timer is really armed, not that of the deadline, which may be further away than
        // the longest period.
        let rest_us = shell.pace.rest_us(now.mono);
        let period_us = wake.max(rest_us).min(MAX_PERIOD_MS * 1_000);
        let at = now.mono.0.saturating_add(period_us);
        // Leave a timer that fires too early: it finds nothing to do and arms itself again, which is cheaper than
        // moving it whenever the earliest hold is released.
        if shell.armed_us.is_some_and(|armed| armed <= at) {
            return None;
        }
        shell.armed_us = Some(at);
        Some(period_us)
    });
    if let Some(period_us) = period_us {
        timer::start::<Alarm>(ctx, period_us.div_ceil(1_000));
    }
}
