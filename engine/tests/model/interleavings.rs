//! All that three clients can bring about: every order of their steps, up to a depth, compared with the model after each.
//!
//! `exhaustive` takes every sequence of a few steps. Here a sequence ends where it comes to a world that another one has
//! come to before, so far longer ones can be taken. Worlds are the same if the model's portraits are, and what the last
//! step has granted.
//!
//! Each run prints how many worlds it has found. `DSYNC_DEPTH=n` sets how many steps deep it goes.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::fixture::KEY;
use crate::history::number_from_env;
use crate::model::Name;
use crate::steps::{Ask, Step, ask};
use crate::world::World;
use dsync_engine::types::Claim;
use dsync_engine::{Family, Settings};

const DEPTH: u64 = 5;

/// A whole number of ticks and of milliseconds, so that time passes in few ways.
const SPAN_MS: u32 = 128;

/// The first step after the world of this number, and the last of a path to a new one.
struct Found {
    before: usize,
    letter: usize,
}

struct Walk<'a> {
    settings: Settings,
    alphabet: &'a [Step],
    /// How each world was reached first; the first one is the beginning.
    found: Vec<Found>,
    seen: BTreeSet<u64>,
    steps: u64,
}

fn settings() -> Settings {
    Settings {
        rejoin_ms: u64::from(SPAN_MS),
        takeover_grace_ms: u64::from(SPAN_MS),
        ..Settings::default()
    }
}

impl Walk<'_> {
    /// Returns the steps that lead to this world.
    fn path(&self, mut world: usize) -> Vec<usize> {
        let mut path = Vec::new();
        while world > 0 {
            path.push(self.found[world].letter);
            world = self.found[world].before;
        }
        path.reverse();
        path
    }

    /// Takes these steps in a new world. Returns what is seen of it; `None` if the contract leaves open what they do.
    fn take(&mut self, path: &[usize]) -> Option<u64> {
        let mut world = World::new(self.settings);
        world.skew_ms = 0;
        for letter in path {
            let step = &self.alphabet[*letter];
            let is_open = match step {
                Step::Disconnect(_) | Step::FindGone { .. } => world.a_waiter_holds_already(),
                // Whether it ends as that or lapses first.
                Step::Pass { .. } => world.a_hold_is_ending(),
                _ => false,
            };
            if is_open {
                return None;
            }
            world.step(step);
        }
        self.steps += path.len() as u64;
        let mut hasher = DefaultHasher::new();
        world.portrait(KEY).hash(&mut hasher);
        // Everything runs out, and every waiter must have been answered.
        let long = Step::Pass { us: 1_000_000_000 };
        world.steps(&[Step::Tick, long, Step::Tick]);
        Some(hasher.finish())
    }

    /// Takes every step in every world that is `from` or later. Returns false if that has led to no new one.
    fn go_on(&mut self, from: usize) -> bool {
        let until = self.found.len();
        for before in from..until {
            let mut path = self.path(before);
            for letter in 0..self.alphabet.len() {
                path.push(letter);
                let taken = catch_unwind(AssertUnwindSafe(|| self.take(&path)));
                let portrait = taken.unwrap_or_else(|panic| {
                    eprintln!("the steps that fail:");
                    path.iter()
                        .for_each(|letter| eprintln!("    {:?}", self.alphabet[*letter]));
                    resume_unwind(panic)
                });
                path.pop();
                if portrait.is_some_and(|portrait| self.seen.insert(portrait)) {
                    self.found.push(Found { before, letter });
                }
            }
        }
        self.found.len() > until
    }
}

/// Takes every step of the alphabet in every world that it leads to, `DSYNC_DEPTH` steps deep.
fn all_worlds(what: &str, alphabet: &[Step]) {
    let depth = number_from_env("DSYNC_DEPTH").unwrap_or(DEPTH);
    let mut walk = Walk {
        settings: settings(),
        alphabet,
        found: vec![Found {
            before: 0,
            letter: 0,
        }],
        seen: BTreeSet::new(),
        steps: 0,
    };
    let first = walk.take(&[]);
    walk.seen.extend(first);
    let mut from = 0;
    let mut deep = 0;
    while deep < depth {
        let next = walk.found.len();
        if !walk.go_on(from) {
            break;
        }
        (from, deep) = (next, deep + 1);
    }
    println!(
        "{what}: {} worlds, {deep} steps deep, {} steps taken",
        walk.found.len(),
        walk.steps
    );
}

fn key(claim: Claim, token: u8) -> Ask {
    ask(KEY, claim, token).lease(2 * SPAN_MS)
}

fn pass() -> Step {
    Step::Pass {
        us: u64::from(SPAN_MS) * 1_000,
    }
}

/// What can happen to each client: it leaves, its connection is found closed behind a grant, and servers change.
fn mishaps(name: Name, family: Family) -> Vec<Step> {
    vec![
        Step::Disconnect(0),
        Step::Disconnect(1),
        Step::Disconnect(2),
        Step::FindGone {
            reported_first: true,
        },
        Step::Pause(name, family, u64::from(SPAN_MS)),
        Step::Failover { ms: 0 },
        pass(),
        Step::Tick,
    ]
}

#[test]
fn three_clients_of_a_semaphore_in_two_lanes() {
    let permits = |token, n, lane| key(Claim::Permits(n), token).lane(lane).limit(2);
    let mut alphabet = vec![
        Step::Acquire(permits(0, 1, 1).block()),
        Step::Acquire(permits(1, 1, 1).block()),
        Step::Acquire(permits(1, 1, 1).conn(3).block()),
        Step::Acquire(permits(2, 2, 2).block()),
        Step::Acquire(permits(2, 2, 2).keep(SPAN_MS)),
        Step::Release(KEY, Family::Semaphore, 0),
        Step::Release(KEY, Family::Semaphore, 1),
        Step::Release(KEY, Family::Semaphore, 2),
    ];
    alphabet.extend(mishaps(KEY, Family::Semaphore));
    all_worlds("a semaphore of two lanes", &alphabet);
}

#[test]
fn three_clients_of_a_lock_that_two_share() {
    let mut alphabet = vec![
        Step::Acquire(key(Claim::Exclusive, 0).block()),
        Step::Acquire(key(Claim::Shared, 1).block()),
        Step::Acquire(key(Claim::Shared, 1).conn(3).keep(SPAN_MS)),
        Step::Acquire(key(Claim::Shared, 2).min_hold(SPAN_MS).block()),
        Step::Release(KEY, Family::Lock, 0),
        Step::Release(KEY, Family::Lock, 1),
        Step::Release(KEY, Family::Lock, 2),
        Step::Renew(KEY, Family::Lock, 0, None),
    ];
    alphabet.extend(mishaps(KEY, Family::Lock));
    all_worlds("a lock that two share", &alphabet);
}
