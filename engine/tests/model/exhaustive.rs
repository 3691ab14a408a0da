//! Every small case: all sequences of a few steps, compared with the model after each step. Random histories can miss a
//! combination; here every combination of four or five of these steps is tried.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::model::Name;
use crate::steps::{Ask, Step, ask};
use crate::world::World;
use dsync_engine::families::once::Keep;
use dsync_engine::types::Claim;
use dsync_engine::{Family, Settings};

pub const KEY: Name = (0, 0);
pub const MS: u64 = 1_000;

/// Takes every sequence of `length` steps from `alphabet`, each in a new world after the steps of `before`.
pub fn all_sequences(settings: Settings, before: &[Step], alphabet: &[Step], length: u32) {
    let letters = alphabet.len();
    let mut taken = 0;
    for number in 0..letters.pow(length) {
        // The digits of the number are the indexes of the steps.
        let digits = (0..length).map(|place| number / letters.pow(place) % letters);
        let sequence: Vec<&Step> = digits.map(|digit| &alphabet[digit]).collect();
        let steps = || before.iter().chain(sequence.iter().copied());
        let take = || {
            let mut world = World::new(settings);
            steps().for_each(|step| {
                world.step(step);
            });
            // Let everything that is left run out.
            world.steps(&[Step::Pass { us: 100_000 * MS }, Step::Tick]);
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(take)) {
            eprintln!("the sequence that fails:");
            steps().for_each(|step| eprintln!("    {step:?}"));
            resume_unwind(panic);
        }
        taken += 1;
    }
    assert_eq!(taken, letters.pow(length), "all of them");
}

pub fn settings() -> Settings {
    Settings {
        rejoin_ms: 4,
        group_keep_ms: 6,
        group_idle_ms: 40,
        ..Settings::default()
    }
}

fn lock(token: u8, claim: Claim) -> Ask {
    ask(KEY, claim, token).lease(3)
}

#[test]
fn locks_in_every_short_history() {
    let (exclusive, shared) = (Claim::Exclusive, Claim::Shared);
    let alphabet = [
        Step::Acquire(lock(0, exclusive)),
        Step::Acquire(lock(1, exclusive).block()),
        Step::Acquire(lock(2, exclusive).block_ms(2)),
        Step::Acquire(lock(1, shared).block_ms(5)),
        Step::Acquire(lock(2, shared).block()),
        Step::Release(KEY, Family::Lock, 0),
        Step::Release(KEY, Family::Lock, 1),
        Step::Disconnect(1),
        Step::Pass { us: 3 * MS },
        Step::Tick,
    ];
    let held = [Step::Acquire(lock(0, exclusive))];
    all_sequences(settings(), &held, &alphabet, 5);
}

#[test]
fn shared_and_ephemeral_locks_in_every_short_history() {
    let (exclusive, shared) = (Claim::Exclusive, Claim::Shared);
    let alphabet = [
        Step::Acquire(lock(0, shared).ephemeral()),
        Step::Acquire(lock(0, shared).conn(3)),
        Step::Acquire(lock(1, exclusive).block().ephemeral()),
        Step::Acquire(lock(2, shared).block()),
        Step::Acquire(lock(2, shared)),
        Step::Disconnect(0),
        Step::Disconnect(1),
        Step::FindGone {
            reported_first: false,
        },
        Step::Revoke(KEY, Family::Lock, 0),
        Step::Renew(KEY, Family::Lock, 0, None),
        Step::Unblock(1),
        Step::Pass { us: 2 * MS },
        Step::Tick,
    ];
    all_sequences(settings(), &[], &alphabet, 4);
}

#[test]
fn semaphores_in_every_short_history() {
    let permits = |token: u8, n: u32| ask(KEY, Claim::Permits(n), token).lease(3);
    let alphabet = [
        Step::Acquire(permits(0, 1).limit(2)),
        Step::Acquire(permits(1, 2).limit(2).block()),
        Step::Acquire(permits(2, 1).limit(1).block_ms(2)),
        Step::Acquire(permits(3, 1).block()),
        Step::Acquire(permits(4, 3).limit(3)),
        Step::Release(KEY, Family::Semaphore, 0),
        Step::Pin(KEY, Some(0)),
        Step::Pin(KEY, Some(3)),
        Step::Pin(KEY, None),
        Step::Disconnect(1),
        Step::Delete(KEY),
        Step::Pass { us: 3 * MS },
        Step::Tick,
    ];
    all_sequences(
        settings(),
        &[Step::Acquire(permits(0, 1).limit(2))],
        &alphabet,
        4,
    );
}

/// Holds with an index beside holds without, over limits that fall, grants that are not delivered, kept places and servers
/// that change.
#[test]
fn indexes_in_every_short_history() {
    let indexed = |token: u8| ask(KEY, Claim::Indexed, token).lease(3);
    let plain = |token: u8| ask(KEY, Claim::Permits(1), token).lease(3);
    let before = [
        Step::Acquire(indexed(0).limit(3)),
        Step::Acquire(plain(1).limit(3)),
        Step::Acquire(indexed(2).limit(3)),
    ];
    let alphabet = [
        Step::Acquire(indexed(0)),
        Step::Acquire(indexed(1).block()),
        Step::Acquire(plain(2).limit(2)),
        Step::Acquire(indexed(3).limit(2).keep(2)),
        Step::Acquire(plain(3).block()),
        Step::Release(KEY, Family::Semaphore, 0),
        Step::Release(KEY, Family::Semaphore, 1),
        Step::FindGone {
            reported_first: true,
        },
        Step::Pin(KEY, Some(1)),
        Step::Restart {
            as_changes: true,
            ms: 1,
        },
        Step::Failover { ms: 1 },
        Step::Pass { us: 2 * MS },
        Step::Tick,
    ];
    all_sequences(settings(), &before, &alphabet, 4);
}

/// Holds that rest beside holds that do not, in each way in which they can end, over kept places and servers that change.
#[test]
fn rests_in_every_short_history() {
    let paced = |token: u8| ask(KEY, Claim::Permits(1), token).lease(3).min_hold(5);
    let before = [
        Step::Acquire(paced(0).limit(2)),
        Step::Acquire(paced(1).ephemeral()),
    ];
    let alphabet = [
        Step::Acquire(paced(0).block()),
        Step::Acquire(paced(2).min_hold(1).keep(2)),
        Step::Acquire(ask(KEY, Claim::Indexed, 3).min_hold(9).block()),
        Step::Release(KEY, Family::Semaphore, 0),
        Step::Release(KEY, Family::Semaphore, 2),
        Step::Renew(KEY, Family::Semaphore, 0, Some(20)),
        Step::Disconnect(1),
        Step::FindGone {
            reported_first: true,
        },
        Step::Revoke(KEY, Family::Semaphore, 0),
        Step::Restart {
            as_changes: true,
            ms: 1,
        },
        Step::Failover { ms: 2 },
        Step::Pass { us: 3 * MS },
        Step::Tick,
    ];
    all_sequences(settings(), &before, &alphabet, 4);
}

#[test]
fn resting_locks_in_every_short_history() {
    let paced = |token: u8, claim| lock(token, claim).min_hold(4);
    let (exclusive, shared) = (Claim::Exclusive, Claim::Shared);
    let alphabet = [
        Step::Acquire(paced(0, exclusive)),
        Step::Acquire(paced(1, shared)),
        Step::Acquire(paced(2, shared).min_hold(9).block()),
        Step::Acquire(paced(1, exclusive).block_ms(5)),
        Step::Acquire(lock(3, shared)),
        Step::Release(KEY, Family::Lock, 0),
        Step::Release(KEY, Family::Lock, 1),
        Step::Delete(KEY),
        Step::Pass { us: 3 * MS },
        Step::Tick,
    ];
    all_sequences(settings(), &[], &alphabet, 5);
}

#[test]
fn groups_in_every_short_history() {
    let member = |token: u8| ask(KEY, Claim::Member, token).lease(3);
    let no_places = Settings {
        rejoin_ms: 0,
        ..settings()
    };
    let alphabet = [
        Step::Acquire(member(0)),
        Step::Acquire(member(1).limit(1).block()),
        Step::Acquire(member(2).limit(2).block_ms(2).ephemeral()),
        Step::Wait(KEY, Some(crate::steps::Block::Forever), 5),
        Step::Wait(KEY, None, 6),
        Step::Expect(KEY, 1),
        Step::Expect(KEY, 2),
        Step::Done(KEY, vec![0, 1, 0]),
        Step::Release(KEY, Family::Group, 1),
        Step::Disconnect(2),
        Step::Delete(KEY),
        Step::Pass { us: 6 * MS },
        Step::Tick,
    ];
    all_sequences(no_places, &[Step::Acquire(member(0))], &alphabet, 4);
}

fn run(token: u8) -> Ask {
    ask(KEY, Claim::Run, token).lease(3)
}

#[test]
fn work_once_in_every_short_history() {
    let alphabet = [
        Step::Acquire(run(0).max_attempts(1)),
        Step::Acquire(run(1).block()),
        Step::Acquire(run(2).max_attempts(2).block_ms(2)),
        Step::Complete(KEY, 0, Some("r"), Some(Keep::ForMs(2))),
        Step::Complete(KEY, 1, None, None),
        Step::Fail(KEY, 0, "broken", 0),
        Step::Fail(KEY, 1, "", 0),
        Step::Release(KEY, Family::Once, 0),
        Step::Revoke(KEY, Family::Once, 0),
        Step::Disconnect(1),
        Step::Delete(KEY),
        Step::Pass { us: 3 * MS },
        Step::Tick,
    ];
    all_sequences(settings(), &[Step::Acquire(run(0))], &alphabet, 4);
}

/// Runs that end with their connection or are not delivered, and records that are kept for a short time.
#[test]
fn ephemeral_runs_in_every_short_history() {
    let forgets = Settings {
        rejoin_ms: 0,
        once_keep_ms: 4,
        ..settings()
    };
    let alphabet = [
        Step::Acquire(run(0).ephemeral()),
        Step::Acquire(run(0).conn(3)),
        Step::Acquire(run(1).block().ephemeral()),
        Step::Acquire(run(2).max_attempts(1).block()),
        Step::FindGone {
            reported_first: false,
        },
        Step::Complete(KEY, 0, Some("r"), None),
        Step::Complete(KEY, 1, None, Some(Keep::ForMs(1))),
        Step::Fail(KEY, 1, "broken", 0),
        Step::Renew(KEY, Family::Once, 0, None),
        Step::Release(KEY, Family::Once, 1),
        Step::Disconnect(0),
        Step::Disconnect(1),
        Step::Pass { us: 2 * MS },
        Step::Tick,
    ];
    all_sequences(forgets, &[], &alphabet, 4);
}

/// Kept places: asked for again, waited on, converted, withdrawn and run out, and holds that nobody has heard of.
#[test]
fn kept_places_in_every_short_history() {
    let (exclusive, shared) = (Claim::Exclusive, Claim::Shared);
    let alphabet = [
        Step::Acquire(lock(1, exclusive).keep(2)),
        Step::Acquire(lock(1, exclusive).conn(3).block_ms(2)),
        Step::Acquire(lock(1, exclusive).conn(4)),
        Step::Acquire(lock(2, shared).keep(5)),
        Step::Acquire(lock(2, shared).block()),
        Step::Release(KEY, Family::Lock, 0),
        Step::Release(KEY, Family::Lock, 1),
        Step::Renew(KEY, Family::Lock, 1, None),
        Step::RevokePlace(KEY, Family::Lock, 0),
        Step::FindGone {
            reported_first: true,
        },
        Step::Disconnect(2),
        Step::Delete(KEY),
        Step::Pass { us: 2 * MS },
        Step::Tick,
    ];
    let held = [Step::Acquire(lock(0, exclusive))];
    all_sequences(settings(), &held, &alphabet, 4);
}

/// Kept places whose key or server changes under them.
#[test]
fn kept_places_that_move_in_every_short_history() {
    let permits = |token: u8, n: u32| ask(KEY, Claim::Permits(n), token).lease(3);
    let other = (0, 1);
    let short = Settings {
        takeover_grace_ms: 3,
        ..settings()
    };
    let before = [
        Step::Acquire(permits(0, 1).limit(1)),
        Step::Acquire(permits(1, 1).limit(2).keep(2)),
        Step::Acquire(permits(2, 2).keep(5)),
    ];
    let alphabet = [
        Step::Acquire(permits(2, 2).block_ms(3)),
        Step::Acquire(permits(3, 1).keep(1)),
        Step::Acquire(ask(KEY, Claim::Exclusive, 4).keep(1)),
        Step::Release(KEY, Family::Semaphore, 0),
        Step::Pin(KEY, Some(1)),
        Step::Delete(KEY),
        Step::Overwrite(KEY),
        Step::Rename(KEY, other),
        Step::Flush(None),
        Step::Restart {
            as_changes: false,
            ms: 1,
        },
        Step::Failover { ms: 1 },
        Step::Demote { ms: 1 },
        Step::Pass { us: 3 * MS },
        Step::Tick,
    ];
    all_sequences(short, &before, &alphabet, 4);
}

/// A vacant place, and the limit that its queue remembers, outlive the semaphore. Then other families use the key.
#[test]
fn keys_that_change_family_in_every_short_history() {
    let permits = |token: u8| ask(KEY, Claim::Permits(1), token).lease(3);
    let before = [
        Step::Acquire(permits(0).limit(1)),
        Step::Acquire(permits(1).limit(1).block()),
        Step::Disconnect(1),
        Step::Release(KEY, Family::Semaphore, 0),
    ];
    let alphabet = [
        Step::Acquire(ask(KEY, Claim::Exclusive, 2).lease(3)),
        Step::Acquire(ask(KEY, Claim::Exclusive, 3).block()),
        Step::Acquire(ask(KEY, Claim::Member, 2).limit(1).lease(3)),
        Step::Acquire(ask(KEY, Claim::Member, 3).block()),
        Step::Acquire(run(2)),
        Step::Acquire(run(3).block()),
        Step::Acquire(permits(1).block()),
        Step::Acquire(permits(2)),
        Step::Complete(KEY, 2, None, Some(Keep::ForMs(2))),
        Step::Disconnect(3),
        Step::Delete(KEY),
        Step::Overwrite(KEY),
        Step::Pass { us: 3 * MS },
        Step::Tick,
    ];
    all_sequences(settings(), &before, &alphabet, 4);
}

/// Lanes: shares, those who stand aside, a try, vacant and kept places, and limits that change.
#[test]
fn lanes_in_every_short_history() {
    let permits =
        |token: u8, n: u32, lane: u8| ask(KEY, Claim::Permits(n), token).lease(3).lane(lane);
    let before = [
        Step::Acquire(permits(0, 1, 1).limit(2)),
        Step::Acquire(permits(1, 1, 1).limit(2)),
        Step::Acquire(permits(2, 1, 1).block()),
    ];
    let alphabet = [
        Step::Acquire(permits(3, 1, 2).min_hold(4).block()),
        Step::Acquire(permits(4, 2, 3).lane_limit(2).keep(5)),
        Step::Acquire(permits(4, 2, 3).lane_limit(3).block_ms(2)),
        Step::Acquire(permits(5, 1, 0).block()),
        Step::Acquire(permits(6, 1, 2)),
        Step::Release(KEY, Family::Semaphore, 0),
        Step::Release(KEY, Family::Semaphore, 3),
        Step::Pin(KEY, Some(3)),
        Step::Disconnect(2),
        Step::Delete(KEY),
        Step::Failover { ms: 1 },
        Step::Pass { us: 3 * MS },
        Step::Tick,
    ];
    all_sequences(settings(), &before, &alphabet, 4);
}
