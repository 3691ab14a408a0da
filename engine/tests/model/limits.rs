//! Limits of a semaphore: raised, refused, pinned, paused.

use crate::fixture::{KEY, OTHER, permits, word, world};
use crate::steps::{Step, ask};
use dsync_engine::Family;
use dsync_engine::types::Claim;

/// A rolling deploy raised the limit, but no waiter was granted before the next release.
#[test]
fn raised_limit_serves_at_once() {
    for how in ["a request", "an operator", "unpinning"] {
        let mut world = world();
        world.ask(permits(0, 2).limit(if how == "unpinning" { 5 } else { 2 }));
        if how == "unpinning" {
            world.step(&Step::Pin(KEY, Some(2)));
        }
        world.ask(permits(1, 1).block());
        world.ask(permits(2, 2).block());
        assert!(world.heard().is_empty(), "{how}");
        match how {
            "a request" => drop(world.ask(permits(3, 1).limit(5).block())),
            "an operator" => drop(world.step(&Step::Pin(KEY, Some(5)))),
            _ => drop(world.step(&Step::Pin(KEY, None))),
        }
        assert_eq!(world.heard(), [(1, "granted"), (2, "granted")], "{how}");
    }
}

#[test]
fn refused_try_changes_no_limit() {
    let mut world = world();
    world.ask(permits(0, 2).limit(2));
    assert_eq!(
        word(&world.ask(permits(1, 3).limit(4)).expect("a try")),
        "not granted"
    );
    assert_eq!(
        word(&world.ask(permits(1, 3).limit(1)).expect("a try")),
        "too many"
    );
    // A try is decided by its own limit. If it is granted, that limit is in force.
    assert_eq!(
        word(&world.ask(permits(1, 1).limit(3)).expect("a try")),
        "granted"
    );
    assert_eq!(world.model.content(KEY).and_then(|c| c.in_force()), Some(3));
    assert_eq!(
        word(&world.ask(ask(OTHER, Claim::Permits(1), 1)).expect("a try")),
        "no limit"
    );
    assert_eq!(
        world
            .ask(ask(OTHER, Claim::Permits(1), 1).block())
            .as_ref()
            .map(word),
        Some("no limit")
    );
}

/// The limit of a queued request took force again each time its client reconnected.
#[test]
fn request_limit_takes_force_once() {
    let mut world = world();
    world.ask(permits(0, 1).limit(1));
    world.ask(permits(1, 1).limit(1).block());
    world.ask(permits(2, 1).limit(2).block());
    assert_eq!(world.heard(), [(1, "granted")], "raised to 2");
    world.step(&Step::Disconnect(2));
    world.ask(permits(3, 1).limit(3).block());
    assert!(
        world
            .model
            .content(KEY)
            .is_some_and(|c| c.in_force() == Some(3))
    );
    world.ask(permits(2, 1).limit(2).conn(8).block());
    assert!(
        world
            .model
            .content(KEY)
            .is_some_and(|c| c.in_force() == Some(3)),
        "not on its return"
    );
    world.step(&Step::Release(KEY, Family::Semaphore, 0));
    world.step(&Step::Release(KEY, Family::Semaphore, 1));
    assert_eq!(world.holders(KEY), 2, "granted, both");
    assert!(
        world
            .model
            .content(KEY)
            .is_some_and(|c| c.in_force() == Some(3)),
        "nor then"
    );
}

#[test]
fn pinned_limit_of_zero_pauses_semaphore() {
    let mut world = world();
    world.ask(permits(0, 1).limit(2));
    world.step(&Step::Pin(KEY, Some(0)));
    world.ask(permits(1, 2).block());
    world.ask(permits(2, 9).block());
    world.step(&Step::Release(KEY, Family::Semaphore, 0));
    assert_eq!(
        world.after_ms(10_000),
        [],
        "paused, and kept with nobody in it"
    );
    world.step(&Step::Pin(KEY, None));
    assert_eq!(world.heard(), [(1, "granted"), (2, "too many")]);
    world.step(&Step::Release(KEY, Family::Semaphore, 1));
    assert!(
        world.primary.state(KEY).is_none(),
        "nothing is pinned, so it goes"
    );
}

/// An operator had paused a semaphore for which no request had given a limit, and deleted it while a request waited.
/// The waiter stayed for ever, for a key that did not exist.
#[test]
fn deleted_paused_semaphore_answers_its_waiters() {
    for leaves in [false, true] {
        let mut world = world();
        world.step(&Step::Pin(KEY, Some(0)));
        world.ask(permits(1, 1).block());
        if leaves {
            world.step(&Step::Disconnect(1));
        }
        world.step(&Step::Delete(KEY));
        if leaves {
            let answer = world.ask(permits(1, 1).limit(5).conn(8).block());
            assert_eq!(
                answer.as_ref().map(word),
                Some("no limit"),
                "its limit would not count"
            );
        } else {
            assert_eq!(world.tick(), [(1, "no limit")]);
        }
    }
}
