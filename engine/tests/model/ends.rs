//! How holds end: late releases, crashes, grants that cannot be delivered.

use crate::fixture::{KEY, MS, exclusive, fence, member, permits, world};
use crate::steps::{Block, Step};
use dsync_engine::Family;
use dsync_engine::answer::Answer;
use dsync_engine::effect::HandedOver;
use dsync_engine::types::ClientId;

/// A holder whose lease had run out released the lock of the next holder.
#[test]
fn release_by_stale_token_leaves_next_holder() {
    let mut world = world();
    let late = fence(world.ask(exclusive(0).lease(5)));
    world.ask(exclusive(1).block());
    assert_eq!(world.after_ms(6), [(1, "granted")]);
    world.step(&Step::Release(KEY, Family::Lock, 0));
    world.step(&Step::Renew(KEY, Family::Lock, 0, None));
    world.step(&Step::Revoke(KEY, Family::Lock, 7));
    assert_eq!(world.holders(KEY), 1, "the next one's");
    let held = world
        .primary
        .state(KEY)
        .expect("held")
        .body
        .holds()
        .first()
        .expect("held")
        .fence();
    assert!(held.0 > late);
    assert!(world.heard().is_empty());
}

/// All workers were killed at once, and their permits stayed taken until the key was deleted by hand.
#[test]
fn permits_of_crashed_holders_go_to_waiters() {
    for how in ["their leases run out", "their connections close"] {
        let mut world = world();
        for holder in 0..5 {
            let mut slot = permits(holder, 1).limit(5).lease(20);
            slot.ephemeral = how != "their leases run out";
            world.ask(slot);
        }
        for waiter in 5..15 {
            world.ask(permits(waiter, 1).block());
        }
        if how == "their leases run out" {
            world.step(&Step::Pass { us: 20 * MS });
        } else {
            (0..5).for_each(|holder| {
                world.step(&Step::Disconnect(holder));
            });
        }
        let granted: Vec<_> = (5..10).map(|conn| (conn, "granted")).collect();
        assert_eq!(world.tick(), granted, "{how}");
    }
}

/// A grant was written to a connection that had closed, and the lock was unused for the whole lease.
#[test]
fn undelivered_grant_goes_to_next_waiter() {
    for reported_first in [false, true] {
        for ephemeral in [false, true] {
            let case = format!("reported first: {reported_first}, ephemeral: {ephemeral}");
            let mut world = world();
            world.ask(member(0).limit(1));
            for waiter in 1..=2 {
                let mut waits = member(waiter).block();
                waits.ephemeral = ephemeral;
                world.ask(waits);
            }
            world.step(&Step::Wait(KEY, Some(Block::Forever), 9));
            world.step(&Step::Done(KEY, vec![0]));
            assert_eq!(world.heard(), [(1, "granted")], "{case}");
            world.step(&Step::FindGone { reported_first });
            assert_eq!(world.tick(), [(2, "granted")], "{case}");
            // No client knew of that membership, so it does not count as lost.
            world.step(&Step::Done(KEY, vec![2]));
            assert_eq!(
                world.told,
                [(9, Answer::Finished { done: 2, lapsed: 0 })],
                "{case}"
            );
        }
    }
}

/// The token retried on a second connection before the first was found closed. The second one has the hold.
#[test]
fn undelivered_grant_retried_elsewhere_is_kept() {
    let mut world = world();
    world.ask(exclusive(0));
    world.ask(exclusive(1).block());
    world.step(&Step::Release(KEY, Family::Lock, 0));
    let (Some(state), granted) = (world.primary.keys.get(&KEY).copied(), world.told.clone()) else {
        panic!("it is held");
    };
    let crate::server::Stored::State(state) = state else {
        panic!("a state")
    };
    let [(1, Answer::Granted { fence, .. })] = granted[..] else {
        panic!("{granted:?}")
    };
    let client = world.client(1);
    world.ask(exclusive(1).conn(5));
    let grant = HandedOver {
        state,
        fence,
        standing: None,
    };
    world
        .primary
        .engine
        .undelivered(grant, ClientId(client), true, world.now);
    assert!(world.tick().is_empty());
    assert_eq!(world.holders(KEY), 1);
}
