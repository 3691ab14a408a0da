//! Long random histories, each repeatable from its seed.
//!
//! There are only a few keys, tokens, limits and milliseconds, so that requests collide: the same token on two
//! connections, a lease that ends together with a wait, a limit that falls while a request asks for more. A failure
//! prints the seed and the fewest steps that still fail. `DSYNC_SEED=n` runs that history alone, `DSYNC_HISTORIES=n`
//! runs that many of each kind.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::chooser::{Chooser, HistoryKind, Random, kinds};
use crate::steps::Step;
use crate::world::World;

/// Returns a world for this kind of history. The seed decides how far the replica's clock is ahead, and how much
/// background work the engines do after each step.
fn world(kind: HistoryKind, seed: u64) -> World {
    let mut world = World::new(kind.settings);
    world.skew_ms = seed % 20;
    world.background = [u32::MAX, 1, 0][(seed % 3) as usize];
    world
}

/// Runs one history, and records its steps in `trail`.
fn run(kind: HistoryKind, seed: u64, trail: &mut Vec<Step>) {
    let mut world = world(kind, seed);
    let mut chooser = Chooser {
        random: Random::new(seed),
        kind,
    };
    let mut take = |world: &mut World, step: Step| {
        trail.push(step);
        world.step(trail.last().expect("just pushed"));
    };
    for _ in 0..kind.steps {
        let step = chooser.step(&mut world);
        if is_unspecified(&world, &step) {
            take(&mut world, Step::Tick);
        }
        if is_unspecified(&world, &step) {
            // The server cannot write, so the tick has ended nothing. Skip the step.
            continue;
        }
        take(&mut world, step);
        // Sometimes the replies cannot be delivered, which is found out at once.
        if !world.a_waiter_holds_already()
            && !world.told.is_empty()
            && chooser.random.one_in(6)
            && world.now.may_write
        {
            take(
                &mut world,
                Step::FindGone {
                    reported_first: chooser.random.one_in(2),
                },
            );
            take(&mut world, Step::Tick);
        }
    }
    // At the end everything runs out, and every waiter must have been answered.
    take(&mut world, Step::MayWrite(true));
    take(&mut world, Step::Pass { us: 1_000_000_000 });
    take(&mut world, Step::Tick);
}

/// Whether the contract leaves open what happens first: the end of a hold, or the answer to a request of its token.
fn is_unspecified(world: &World, step: &Step) -> bool {
    match step {
        Step::Disconnect(_) | Step::FindGone { .. } => world.a_waiter_holds_already(),
        Step::Rename(..) | Step::Swap(..) => world.a_hold_is_ending(),
        _ => false,
    }
}

/// Whether all steps that write come while the server takes writes.
fn are_possible(steps: &[Step]) -> bool {
    let mut may_write = true;
    steps.iter().all(|step| match step {
        Step::MayWrite(now) => {
            may_write = *now;
            true
        }
        Step::Disconnect(_)
        | Step::Unblock(_)
        | Step::Check(..)
        | Step::Wait(..)
        | Step::Pass { .. }
        | Step::Tick => true,
        _ => may_write,
    })
}

/// Returns the failing history without the steps that it does not need to fail.
fn shortened(kind: HistoryKind, seed: u64, mut steps: Vec<Step>) -> Vec<Step> {
    let fails = |steps: &[Step]| {
        let mut world = world(kind, seed);
        let mut take = |step: &Step| {
            let specified = !is_unspecified(&world, step);
            if specified {
                world.step(step);
            }
            specified
        };
        are_possible(steps)
            && catch_unwind(AssertUnwindSafe(|| steps.iter().all(&mut take))).is_err()
    };
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut at_once = steps.len().div_ceil(2);
    while at_once > 0 {
        let mut from = 0;
        while from < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(from..(from + at_once).min(fewer.len()));
            if fails(&fewer) {
                steps = fewer;
            } else {
                from += at_once;
            }
        }
        at_once /= 2;
    }
    std::panic::set_hook(loud);
    steps
}

#[expect(
    clippy::disallowed_methods,
    reason = "a tester may ask for other seeds"
)]
pub fn number_from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn histories_of(label: &str) {
    let kind = kinds()
        .into_iter()
        .find(|kind| kind.label == label)
        .expect("a kind");
    let seeds = match number_from_env("DSYNC_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..number_from_env("DSYNC_HISTORIES").unwrap_or(300) + 1,
    };
    for seed in seeds {
        let mut trail = Vec::new();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(kind, seed, &mut trail))) {
            let steps = shortened(kind, seed, trail);
            eprintln!(
                "{label}: run again with DSYNC_SEED={seed}; it fails with {} steps:",
                steps.len()
            );
            steps.iter().for_each(|step| eprintln!("    {step:?}"));
            world(kind, seed).steps(&steps);
            resume_unwind(panic);
        }
    }
}

#[test]
fn requests() {
    histories_of("requests");
}

#[test]
fn keys_that_move() {
    histories_of("keys that move");
}

#[test]
fn servers_that_change() {
    histories_of("servers that change");
}

#[test]
fn full_queues() {
    histories_of("full queues");
}

#[test]
fn idle_keys() {
    histories_of("idle keys");
}

#[test]
fn keys_that_change_family() {
    histories_of("keys that change family");
}

#[test]
fn indexed_permits() {
    histories_of("indexed permits");
}

#[test]
fn places_that_rest() {
    histories_of("places that rest");
}

#[test]
fn lanes() {
    histories_of("lanes");
}

#[test]
fn full_lanes() {
    histories_of("full lanes");
}
