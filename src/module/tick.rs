//! What the timer does when it fires: the tasks that are due, and the engine's background work.
//!
//! The server sorts its timers by the wall clock, so a timer that was armed before the clock stepped back may fire
//! hours late. The server's cron runs on the monotonic clock; it finds such a timer within one period and arms it
//! again. A tick lasts 0.6 ms at most, and the next tick continues where it stopped, so that clients are served in
//! between (see [`super::pace`]).
//!
//! A tick alternates between tasks and background work, so that neither holds up the other. A replica has background
//! work only.

use super::arm::arm;
use super::cluster::node;
use super::cluster::ownership::{self, Ownership, Ownerships};
use super::redis::clock;
use super::redis::context::Ctx;
use super::redis::name::KeyString;
use super::{SHELL, Shell, beside_keys, freed, listeners, run, search};
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
    SHELL.with(|shell| {
        let late = shell
            .armed_us
            .is_some_and(|armed| armed < clock::monotonic_us());
        if late {
            // Its moment has passed by the monotonic clock, which nobody can set: arm the timer again.
            shell.armed_us = None;
        }
    });
    arm(ctx);
}

/// Does the tasks that are due. Returns whether its time was over before the work was.
pub(crate) fn tick(ctx: Ctx<'_>) -> bool {
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
    let tick_us = match decides && !listeners::is_silent(ctx) {
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
        Ownership::KeyLeft => run::turn_away(ctx, &name, &Answer::KeyLeft, now),
        ownership => {
            // The kept places of the name went to the other node with its value.
            if ownership == Ownership::Theirs && ownership::is_absent(ctx, &name) {
                run::forget_places(ctx, &name, now);
            }
            let may_write = now.may_write && ownership == Ownership::Ours;
            let now = Now { may_write, ..now };
            let done = run::run_task(ctx, &name, now, |engine, key| {
                engine.perform(task, key, now);
            });
            if done.is_err() {
                // The name has a value of another type now, so its waiters get WRONGTYPE.
                run::turn_away(ctx, &name, &Answer::WrongType, now);
            }
        }
    }
    true
}
