//! INDEX: which is the lowest free, whose it is, and how long.

use crate::fixture::{KEY, index, indexed, permits, word, world};
use crate::steps::Step;
use crate::world::World;
use dsync_engine::Family;

/// Returns a semaphore of which the tokens 0, 1 and 2 hold that index each.
fn three_of(limit: u32) -> World {
    let mut world = world();
    for n in 0..3 {
        let granted = world.ask(indexed(n).limit(limit));
        assert_eq!(index(granted), Some(u32::from(n)));
    }
    world
}

fn release(world: &mut World, token: u8) {
    world.step(&Step::Release(KEY, Family::Semaphore, token));
}

#[test]
fn released_index_in_the_middle_is_given_next() {
    let mut world = three_of(9);
    release(&mut world, 1);
    assert_eq!(index(world.ask(indexed(3))), Some(1));
    assert_eq!(index(world.ask(indexed(4))), Some(3));
    release(&mut world, 0);
    release(&mut world, 1);
    assert_eq!(
        index(world.ask(permits(5, 1))),
        None,
        "it has asked for none"
    );
    assert_eq!(index(world.ask(indexed(6))), Some(0));
}

#[test]
fn holds_without_index_leave_the_lowest_free() {
    let mut world = world();
    world.ask(permits(0, 3).limit(4));
    assert_eq!(index(world.ask(indexed(1))), Some(0));
    release(&mut world, 0);
    assert_eq!(index(world.ask(indexed(2))), Some(1));
}

/// A lower limit changes no index, and a new grant under it has an index below it.
#[test]
fn falling_limit_changes_no_index() {
    let mut world = three_of(3);
    world.step(&Step::Pin(KEY, Some(2)));
    assert_eq!(index(world.ask(indexed(2))), Some(2), "asked again");
    release(&mut world, 0);
    release(&mut world, 1);
    assert_eq!(
        index(world.ask(indexed(3))),
        Some(0),
        "one is left beside it"
    );
    assert_eq!(world.holders(KEY), 2);
}

#[test]
fn token_with_index_and_without_is_a_mismatch() {
    let mut world = world();
    world.ask(indexed(0).limit(2));
    world.ask(permits(1, 1));
    world.ask(indexed(2).block());
    world.ask(permits(3, 1).keep(1_000));
    for (other, again) in [
        (permits(0, 1), indexed(0)),
        (indexed(1), permits(1, 1)),
        (permits(2, 1).block(), indexed(2).keep(1_000)),
        (indexed(3).keep(1_000), permits(3, 1).block()),
    ] {
        let told = world.ask(other.clone().conn(8));
        assert_eq!(told.as_ref().map(word), Some("mismatch"), "{other:?}");
        let told = world.ask(again.clone().conn(9));
        assert_ne!(told.as_ref().map(word), Some("mismatch"), "{again:?}");
    }
}

/// The grant of a waiter whose connection had closed ends, and its index goes to the next.
#[test]
fn undelivered_index_goes_to_the_next_in_line() {
    let mut world = three_of(3);
    world.ask(indexed(3).block());
    world.ask(indexed(4).block());
    release(&mut world, 1);
    assert_eq!(world.heard(), [(3, "granted")]);
    world.step(&Step::FindGone {
        reported_first: true,
    });
    world.step(&Step::Tick);
    assert_eq!(world.heard(), [(4, "granted")]);
    assert_eq!(index(world.ask(indexed(4).conn(9))), Some(1));
}

/// Also that of a hold that nobody has heard of yet.
#[test]
fn index_is_the_same_after_failover_and_restart() {
    let changes = [
        Step::Failover { ms: 1 },
        Step::Restart {
            as_changes: true,
            ms: 1,
        },
        Step::Restart {
            as_changes: false,
            ms: 1,
        },
    ];
    for change in changes {
        let mut world = three_of(3);
        world.ask(indexed(3).keep(30_000));
        world.ask(indexed(4).keep(30_000));
        release(&mut world, 1);
        world.step(&change);
        release(&mut world, 0);
        for (token, expected) in [(2, 2), (3, 1), (4, 0)] {
            let again = world.ask(indexed(token).conn(9));
            assert_eq!(index(again), Some(expected), "{token} after {change:?}");
        }
    }
}
