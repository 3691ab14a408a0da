//! Keys that are removed, overwritten, renamed, swapped or flushed while requests wait for them.

use crate::fixture::{KEY, MS, OTHER, exclusive, fence, member, permits, shared, word, world};
use crate::steps::{Block, Step, ask};
use crate::world::World;
use dsync_engine::answer::Answer;
use dsync_engine::families::once::Keep;
use dsync_engine::types::Claim;
use dsync_engine::{Family, Settings};

/// DEL and all other ways in which a key can disappear: waiters are granted afresh, under the limit that was in force;
/// a WAIT is answered that its group was removed.
#[test]
fn waiters_of_removed_key_are_granted_afresh() {
    let ways = [
        Step::Delete(KEY),
        Step::Flush(None),
        Step::Flush(Some(0)),
        Step::Rename(KEY, (1, 1)),
        Step::Swap(0, 1),
    ];
    for way in ways {
        let case = format!("{way:?}");
        let mut world = world();
        world.ask(permits(0, 2).limit(2));
        (1..=3).for_each(|waiter| drop(world.ask(permits(waiter, 1).block())));
        world.step(&way);
        assert_eq!(
            world.tick(),
            [(1, "granted"), (2, "granted")],
            "{case}: two of two"
        );
        world.step(&Step::Release(KEY, Family::Semaphore, 0));
        assert!(
            world.heard().is_empty(),
            "{case}: the old hold has no effect"
        );

        let mut world = World::new(Settings::default());
        world.ask(member(0).limit(1));
        (1..=2).for_each(|waiter| drop(world.ask(member(waiter).block())));
        world.step(&Step::Wait(KEY, Some(Block::Forever), 5));
        world.step(&way);
        world.step(&Step::Free);
        assert_eq!(world.tick(), [(1, "granted"), (5, "removed")], "{case}");
    }
}

/// MULTI, DEL g, EXPECT g, EXEC: the WAITs of the old group waited for the new one instead. The queue had also
/// forgotten the limit, so all queued members were added at once.
#[test]
fn key_removed_and_made_again_in_one_turn_is_new() {
    let again = |next: Step| {
        let mut world = world();
        world.ask(member(0).limit(1));
        (1..=3).for_each(|waiter| drop(world.ask(member(waiter).block())));
        world.step(&Step::Wait(KEY, Some(Block::Forever), 5));
        world.step(&Step::Delete(KEY));
        let answer = world.step(&next);
        (world, answer)
    };
    let (world, _) = again(Step::Expect(KEY, 4));
    assert_eq!(world.heard(), [(1, "granted"), (5, "removed")]);
    let (world, answer) = again(Step::Wait(KEY, None, 6));
    assert_eq!(world.heard(), [(1, "granted"), (5, "removed")]);
    assert_eq!(
        answer,
        Some(Answer::NotGranted),
        "it is not over: one was granted, two are queued"
    );
    let (world, answer) = again(Step::Acquire(member(7)));
    assert_eq!(world.heard(), [(1, "granted"), (5, "removed")]);
    assert_eq!(answer, Some(Answer::NotGranted));
}

/// After DEL and, in the same turn, a request of another family, the waiter was granted the lock, and the other request
/// put a limit into it.
#[test]
fn removed_key_goes_to_waiters_before_another_family() {
    let others = [
        Step::Acquire(permits(7, 1).limit(1).block()),
        Step::Acquire(permits(7, 1).limit(1)),
        Step::Acquire(member(7).limit(2).block()),
        Step::Expect(KEY, 1),
        Step::Pin(KEY, Some(3)),
        Step::Wait(KEY, Some(Block::Forever), 7),
    ];
    for other in others {
        let mut world = world();
        world.ask(exclusive(0));
        world.ask(exclusive(1).block());
        world.step(&Step::Delete(KEY));
        let answer = world.step(&other);
        assert_eq!(world.heard(), [(1, "granted")], "{other:?}");
        assert_eq!(answer.as_ref().map(word), Some("wrong type"), "{other:?}");
    }
}

#[test]
fn waiters_of_overwritten_key_get_wrong_type() {
    for wrong in ["a string", "a lock"] {
        let mut world = world();
        world.ask(member(0).limit(1));
        world.ask(member(1).block());
        world.step(&Step::Wait(KEY, Some(Block::Forever), 5));
        if wrong == "a string" {
            world.step(&Step::Overwrite(KEY));
            assert_eq!(world.tick(), [(1, "wrong type"), (5, "wrong type")]);
        } else {
            world.ask(ask(OTHER, Claim::Exclusive, 0));
            world.step(&Step::Rename(OTHER, KEY));
            assert_eq!(world.tick(), [(1, "wrong type"), (5, "wrong type")]);
        }
    }
    // Waiters of a semaphore are not refused by a group's limit, but get WRONGTYPE.
    let mut world = world();
    world.ask(permits(0, 2).limit(2));
    world.ask(permits(1, 2).block());
    world.ask(ask(OTHER, Claim::Member, 0).limit(1));
    world.step(&Step::Rename(OTHER, KEY));
    assert_eq!(world.tick(), [(1, "wrong type")]);
}

/// RENAME brings a result to waiters that is forgotten before they are told. That is a step of its own: replicas would
/// refuse a grant behind VANISH.
#[test]
fn result_is_forgotten_before_waiters_of_its_key_are_served() {
    let mut world = world();
    world.ask(ask(KEY, Claim::Run, 0));
    world.ask(ask(KEY, Claim::Run, 1).block());
    world.ask(ask(OTHER, Claim::Run, 2));
    let keep = Some(Keep::ForMs(100));
    world.step(&Step::Complete(OTHER, 2, Some("done"), keep));
    world.step(&Step::Rename(OTHER, KEY));
    assert_eq!(world.after_ms(200), [(1, "run")]);
}

/// A key with a vacant place was overwritten. When the place ran out, the timer fired again and again, as long as the
/// string was there.
#[test]
fn vacant_place_of_overwritten_key_is_dropped() {
    for overwritten_first in [false, true] {
        let mut world = world();
        world.ask(exclusive(0));
        world.ask(exclusive(1).block());
        if overwritten_first {
            world.steps(&[Step::Overwrite(KEY), Step::Disconnect(1)]);
        } else {
            world.steps(&[Step::Disconnect(1), Step::Tick, Step::Overwrite(KEY)]);
        }
        assert!(
            world.after_ms(3_000).is_empty(),
            "overwritten first: {overwritten_first}"
        );
        let wake = world.primary.engine.next_wake(world.now);
        assert_eq!(wake, None, "overwritten first: {overwritten_first}");
    }
}

#[test]
fn moved_key_keeps_holds_and_leaves_waiters() {
    for way in [
        Step::Rename(KEY, OTHER),
        Step::Rename(KEY, (1, 0)),
        Step::Swap(0, 1),
    ] {
        let mut world = world();
        world.ask(exclusive(0).lease(50).ephemeral());
        world.ask(exclusive(1).block());
        // A request waits at the destination as well.
        let there = match way {
            Step::Rename(_, to) => to,
            _ => (1, 0),
        };
        world.ask(ask(there, Claim::Exclusive, 2));
        world.ask(ask(there, Claim::Exclusive, 3).block());
        world.step(&way);
        world.step(&Step::Free);
        let swapped = matches!(way, Step::Swap(..));
        let here: &[_] = if swapped { &[] } else { &[(1, "granted")] };
        assert_eq!(world.tick(), here, "{way:?}: waiters stay with the name");
        world.step(&Step::Check(there, Family::Lock, 0));
        let answer = world.ask(ask(there, Claim::Exclusive, 4));
        assert_eq!(answer, Some(Answer::NotGranted), "{way:?}: held there");
        // The lease runs on, the close of the connection ends the hold, and the waiters at the destination are served.
        if swapped {
            world.step(&Step::Disconnect(0));
            assert_eq!(world.tick(), [(3, "granted")], "{way:?}");
        } else {
            assert_eq!(world.after_ms(50), [(3, "granted")], "{way:?}");
        }
    }
}

/// A held key was renamed away, and its client asked again and queued behind the next holder. When the key came back,
/// the client was granted what it held already: a second hold with the same token, which no replica and no AOF could
/// apply.
#[test]
fn waiter_whose_hold_comes_back_gets_same_fence() {
    for way in [Step::Rename(OTHER, KEY), Step::Swap(0, 1)] {
        let away = if matches!(way, Step::Swap(..)) {
            way.clone()
        } else {
            Step::Rename(KEY, OTHER)
        };
        let mut world = world();
        let first = fence(world.ask(shared(0)));
        world.step(&away);
        world.ask(exclusive(1));
        world.ask(shared(0).conn(5).block());
        world.ask(shared(2).block());
        world.step(&way);
        assert_eq!(world.tick(), [(2, "granted"), (5, "granted")], "{way:?}");
        let again = world
            .told
            .iter()
            .find(|(conn, _)| *conn == 5)
            .map(|(_, answer)| answer.clone());
        assert_eq!(fence(again), first, "{way:?}: its own");
        assert_eq!(world.holders(KEY), 2, "{way:?}");
    }
    // A waiter in another mode gets MISMATCH.
    let mut world = world();
    world.ask(shared(0));
    world.step(&Step::Rename(KEY, OTHER));
    world.ask(exclusive(1));
    world.ask(exclusive(0).conn(5).block());
    world.step(&Step::Rename(OTHER, KEY));
    assert_eq!(world.tick(), [(5, "mismatch")]);
}

/// A finished group replaced a group that a WAIT waited for, and the WAIT was never answered.
#[test]
fn finished_group_renamed_over_a_group_answers_its_wait() {
    for way in [Step::Rename(OTHER, KEY), Step::Swap(0, 1)] {
        let mut world = world();
        let elsewhere = if matches!(way, Step::Swap(..)) {
            (1, 0)
        } else {
            OTHER
        };
        world.ask(ask(elsewhere, Claim::Member, 0));
        world.step(&Step::Done(elsewhere, vec![0]));
        world.step(&Step::Expect(KEY, 2));
        world.step(&Step::Wait(KEY, Some(Block::Forever), 5));
        world.step(&way);
        world.tick();
        assert_eq!(
            world.told,
            [(5, Answer::Finished { done: 1, lapsed: 0 })],
            "{way:?}"
        );
        assert!(world.after_ms(100_000).is_empty(), "{way:?}");
    }
}

/// SWAPDB moved a group away from its WAITs. No request came for it in the other database, and it was never forgotten.
#[test]
fn idle_group_swapped_away_from_waiters_is_forgotten() {
    let mut world = World::new(Settings {
        group_idle_ms: 40,
        ..Settings::default()
    });
    world.step(&Step::Expect(KEY, 1));
    world.step(&Step::Wait(KEY, Some(Block::Forever), 5));
    world.step(&Step::Swap(0, 1));
    assert_eq!(world.tick(), [(5, "removed")]);
    assert!(world.primary.state((1, 0)).is_some());
    let wake = world.primary.engine.next_wake(world.now);
    assert!(
        wake.is_some_and(|us| us <= 40 * MS),
        "the group is visited: {wake:?}"
    );
    world.after_ms(80);
    assert!(world.primary.state((1, 0)).is_none());
}

/// SWAPDB brings a lock to a name on which its holder waits for another mode. Both the lease and a pause are over, and the
/// pause ends first.
#[test]
fn token_that_waits_meets_its_own_hold_after_a_pause() {
    let mut world = world();
    let elsewhere = (1, 0);
    world.ask(ask(elsewhere, Claim::Shared, 0).lease(8));
    world.step(&Step::Pause(elsewhere, Family::Lock, 2));
    world.ask(exclusive(1));
    world.ask(exclusive(0).conn(5).block());
    world.steps(&[Step::Pass { us: 8 * MS }, Step::Swap(0, 1)]);
    assert_eq!(world.tick(), [(5, "mismatch")]);
}

/// The client whose wait runs out is told what has become of the key, even while its place cannot be dropped.
#[test]
fn kept_place_of_overwritten_key_goes_when_it_can_be_written() {
    let mut world = world();
    world.ask(exclusive(0));
    world.ask(exclusive(1).keep(1));
    world.ask(exclusive(1).block_ms(5));
    world.steps(&[Step::Overwrite(KEY), Step::MayWrite(false)]);
    assert_eq!(world.after_ms(5), [(1, "wrong type")]);
    assert_eq!(world.primary.places(KEY).len(), 1);
    world.step(&Step::MayWrite(true));
    world.tick();
    assert!(world.primary.places(KEY).is_empty());
}

/// After a failover, the moment at which a client began to wait is known by the clocks of two servers. A flush drops its
/// kept place, and the client asks for one again.
#[test]
fn place_kept_again_after_failover_and_flush_is_replicated() {
    let mut world = world();
    world.ask(exclusive(0));
    for token in [1, 2] {
        world.ask(exclusive(token).keep(5_000));
    }
    world.step(&Step::Failover { ms: 10 });
    for token in [1, 2] {
        world.ask(exclusive(token).block());
    }
    world.step(&Step::Flush(None));
    let answer = world.ask(exclusive(2).keep(5_000));
    assert_eq!(answer.as_ref().map(word), Some("waiting"));
    let places = world.primary.places(KEY);
    assert_eq!(places.len(), 1);
    assert_eq!(world.replica.places(KEY), places);
}

/// FLUSHALL with queues on many keys: each queue is served afresh, and the old holds have no effect.
#[test]
fn flushall_serves_every_queue() {
    let mut world = world();
    for number in 0..20 {
        let name = (i32::from(number % 2), number);
        let holder = usize::from(number) * 3;
        world.ask(ask(name, Claim::Exclusive, number).conn(holder).lease(40));
        world.ask(
            ask(name, Claim::Exclusive, 100 + number)
                .conn(holder + 1)
                .block(),
        );
        world.ask(
            ask(name, Claim::Exclusive, 200 + number)
                .conn(holder + 2)
                .block(),
        );
    }
    world.step(&Step::Flush(None));
    let expected: Vec<_> = (0..20).map(|number| (number * 3 + 1, "granted")).collect();
    assert_eq!(world.tick(), expected);
    world.step(&Step::Free);
    assert!(world.after_ms(41).is_empty(), "the old leases mean nothing");
    assert_eq!(world.model.values.len(), 20);
}
