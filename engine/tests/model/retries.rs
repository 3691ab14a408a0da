//! Requests that are sent again, and clients that die while they wait.
//!
//! Each test begins with the loss that it guards against, in dsync or in another lock service. The tests run in a
//! [`World`](crate::world::World), so the model checks every step as well.

use crate::fixture::{KEY, MS, exclusive, fence, permits, shared, word, world};
use crate::steps::Step;
use dsync_engine::Family;

/// etcd #11456, found by Jepsen: a client died while it was queued for a lock. When the holder left, the dead client
/// was granted the lock, and then two clients held it.
#[test]
fn waiter_that_died_in_queue_is_never_granted() {
    for ephemeral in [false, true] {
        for away_ms in [0, 1_999, 2_000, 2_001, 60_000] {
            let case = format!("ephemeral: {ephemeral}, away for {away_ms} ms");
            let mut world = world();
            world.ask(exclusive(0).lease(1_000_000));
            let mut dying = exclusive(1).block();
            dying.ephemeral = ephemeral;
            world.ask(dying);
            world.ask(exclusive(2).block());
            world.step(&Step::Disconnect(1));
            world.after_ms(away_ms);
            world.step(&Step::Release(KEY, Family::Lock, 0));
            assert_eq!(world.heard(), [(2, "granted")], "{case}");
            assert_eq!(world.holders(KEY), 1, "{case}");
            // It is not granted later either, when its turn would have come.
            world.step(&Step::Release(KEY, Family::Lock, 2));
            assert_eq!((world.heard(), world.holders(KEY)), (vec![], 0), "{case}");
            assert!(world.after_ms(100_000).is_empty(), "{case}");
        }
    }
}

/// Redisson's fair lock waits five seconds for each waiter that died. Here a dead waiter must cost nothing.
#[test]
fn dead_waiters_cost_nothing() {
    let mut world = world();
    world.ask(exclusive(0));
    for dead in 1..=9 {
        world.ask(exclusive(dead).block());
    }
    world.ask(exclusive(10).block());
    (1..=9).for_each(|dead| {
        world.step(&Step::Disconnect(dead));
    });
    world.step(&Step::Release(KEY, Family::Lock, 0));
    assert_eq!(world.heard(), [(10, "granted")]);
}

/// A client library timed out and sent its request again, and both were counted: one client held two permits, and the
/// second was never released.
#[test]
fn request_sent_again_gets_same_hold() {
    let mut world = world();
    let first = fence(world.ask(permits(0, 2).limit(3).lease(10)));
    world.step(&Step::Pass { us: 9 * MS });
    let again = fence(world.ask(permits(0, 2).limit(3).lease(10).conn(7)));
    assert_eq!(first, again, "the same fence");
    assert_eq!(
        word(&world.ask(permits(1, 2)).expect("a try")),
        "not granted",
        "2 of 3 are taken"
    );
    assert_eq!(word(&world.ask(permits(0, 1)).expect("a try")), "mismatch");
    assert!(world.after_ms(9).is_empty());
    assert_eq!(world.holders(KEY), 1, "its lease began anew");
    world.after_ms(2);
    assert_eq!(world.holders(KEY), 0);
}

/// The old connection of a retried request closed late, and its close ended the hold of the new connection.
#[test]
fn close_of_old_connection_leaves_retried_hold() {
    let mut world = world();
    world.ask(exclusive(0).ephemeral());
    world.ask(exclusive(0).ephemeral().conn(5));
    world.step(&Step::Disconnect(0));
    assert_eq!(
        (world.tick(), world.holders(KEY)),
        (vec![], 1),
        "the new connection has it"
    );
    world.step(&Step::Disconnect(5));
    world.tick();
    assert_eq!(world.holders(KEY), 0);
    // The same if the close of the old connection was noticed before the retry.
    world.ask(exclusive(1).ephemeral());
    world.step(&Step::Disconnect(1));
    world.ask(exclusive(1).ephemeral().conn(6));
    world.tick();
    assert_eq!(world.holders(KEY), 1, "taken up before it was carried out");
    // If the retry is not EPHEMERAL, no connection ends the hold any more.
    world.ask(exclusive(1).conn(8));
    world.step(&Step::Disconnect(6));
    world.tick();
    assert_eq!(world.holders(KEY), 1, "no longer ephemeral");
}

/// A queued request was sent again on a new connection and went to the end of the queue. The old connection, which
/// nobody read any more, was granted the lock.
#[test]
fn queued_request_sent_again_takes_over_its_place() {
    let mut world = world();
    world.ask(exclusive(0));
    world.ask(exclusive(1).block());
    world.ask(exclusive(2).block());
    assert_eq!(
        word(&world.ask(exclusive(1).conn(5)).expect("a try")),
        "not granted"
    );
    assert!(world.heard().is_empty(), "a try changes nothing");
    assert_eq!(
        word(&world.ask(shared(1).conn(5).block()).expect("at once")),
        "mismatch"
    );
    let mut again = exclusive(1).conn(6).block_ms(50).lease(7);
    again.owner = Some("again");
    world.ask(again);
    assert_eq!(world.heard(), [(1, "superseded")]);
    world.step(&Step::Release(KEY, Family::Lock, 0));
    assert_eq!(world.heard(), [(6, "granted")], "ahead of the other");
    assert_eq!(world.after_ms(8), [(2, "granted")], "under its new lease");
}
