//! Replicas, demotions, and servers that cannot write for a while.

use crate::fixture::{KEY, exclusive, member, world};
use crate::steps::{Step, token};
use crate::world::World;
use dsync_engine::Family;
use dsync_engine::change::Change;

/// A replica that lagged behind, or whose clock did, set the moment of a new group by its own clock. From then on the
/// digests differed.
#[test]
fn replica_takes_moments_from_primary() {
    for skew_ms in [0, 1, 3_600_000] {
        for opening in [Step::Acquire(member(0).limit(2)), Step::Expect(KEY, 3)] {
            let mut world = world();
            world.skew_ms = skew_ms;
            world.step(&opening);
            let saved = world.primary.saved(KEY);
            assert_eq!(
                world.replica.saved(KEY),
                saved,
                "{opening:?}, {skew_ms} ms behind"
            );
        }
    }
}

#[test]
fn demoted_server_answers_all_waiters_and_keeps_holds() {
    let mut world = world();
    world.ask(exclusive(0).lease(100));
    world.ask(exclusive(1).block());
    world.step(&Step::Demote { ms: 10 });
    assert_eq!(world.holders(KEY), 1);
    assert!(world.model.seats(KEY).is_empty());
    world.ask(exclusive(1).block());
    assert_eq!(
        world.after_ms(101),
        [(1, "granted")],
        "90 ms and some grace, at most the lease"
    );
}

#[test]
fn unwritable_server_only_lets_waits_run_out() {
    let mut world = world();
    world.ask(exclusive(0).lease(5).ephemeral());
    world.ask(exclusive(1).block_ms(10));
    world.ask(exclusive(2).block());
    let is_held_up = |world: &World| world.primary.engine.is_held_up(world.now);
    world.step(&Step::MayWrite(false));
    assert!(!is_held_up(&world), "nothing is left to do");
    world.step(&Step::Disconnect(0));
    assert!(is_held_up(&world));
    assert_eq!(world.after_ms(9), []);
    assert_eq!(world.after_ms(1), [(1, "not granted")]);
    assert_eq!(world.after_ms(100_000), []);
    assert_eq!(world.holders(KEY), 1, "no lease runs");
    world.step(&Step::MayWrite(true));
    assert_eq!(world.primary.engine.next_wake(world.now), Some(0));
    assert!(!is_held_up(&world), "it can write");
    assert_eq!(world.tick(), [(2, "granted")]);
}

#[test]
fn renewal_does_not_signal_key_as_modified() {
    let mut world = world();
    world.ask(exclusive(0));
    let now = world.now;
    let (_, done) = world.primary.call(KEY, Family::Lock, now, |visit| {
        visit.renew(Family::Lock, &token(0), None)
    });
    assert!(
        matches!(done.changes[..], [Change::Renew { .. }]),
        "and Server::call has checked that the key is not signalled"
    );
}
