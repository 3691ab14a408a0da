//! The place of a queued request: withdrawn by RELEASE, vacant after its connection closed, taken again by its token.

use crate::fixture::{KEY, exclusive, member, permits, word, world};
use crate::steps::{Step, ask};
use crate::world::World;
use dsync_engine::Family;
use dsync_engine::types::Claim;

fn release(world: &mut World, family: Family, token: u8) {
    world.step(&Step::Release(KEY, family, token));
}

fn disconnect(world: &mut World, conn: usize) {
    world.step(&Step::Disconnect(conn));
}

/// A client library gave up on the reply after half a second, but kept the connection. Its request was then granted
/// without its knowledge, and held up all others for a lease.
#[test]
fn release_of_queued_token_withdraws_request() {
    for withdrawn in [1, 2] {
        let mut world = world();
        world.ask(exclusive(0));
        world.ask(exclusive(1).block());
        world.ask(exclusive(2).block());
        release(&mut world, Family::Lock, withdrawn);
        assert_eq!(world.heard(), [(usize::from(withdrawn), "withdrawn")]);
        release(&mut world, Family::Lock, 0);
        let next = 3 - withdrawn;
        assert_eq!(world.heard(), [(usize::from(next), "granted")]);
    }
}

/// Requests for few permits waited only because of a request for many, which is withdrawn.
#[test]
fn release_of_queued_head_serves_next_at_once() {
    let mut world = world();
    world.ask(permits(0, 2).limit(3));
    world.ask(permits(1, 3).block());
    world.ask(permits(2, 1).block());
    release(&mut world, Family::Semaphore, 1);
    assert_eq!(world.heard(), [(1, "withdrawn"), (2, "granted")]);
}

/// The last queued ADD is withdrawn, and the group's round must not wait for it.
#[test]
fn release_of_queued_member_finishes_round() {
    let mut world = world();
    world.ask(member(0).limit(1));
    world.ask(member(1).block());
    world.step(&Step::Wait(KEY, Some(crate::steps::Block::Forever), 9));
    world.step(&Step::Disconnect(1));
    world.step(&Step::Done(KEY, vec![0]));
    world.ask(member(2));
    world.ask(member(3).block());
    release(&mut world, Family::Group, 3);
    assert_eq!(world.heard(), [(3, "withdrawn")]);
    assert_eq!(world.holders(KEY), 1);
}

#[test]
fn release_of_vacant_place_gives_it_up() {
    let mut world = world();
    world.ask(exclusive(0));
    world.ask(exclusive(1).block());
    world.ask(exclusive(2).block());
    disconnect(&mut world, 1);
    release(&mut world, Family::Lock, 1);
    world.ask(exclusive(1).block());
    release(&mut world, Family::Lock, 0);
    assert_eq!(
        world.heard(),
        [(2, "granted")],
        "token 1 queues at the back"
    );
}

/// RELEASE names a family, so it must not withdraw a request of another family.
#[test]
fn release_in_other_family_leaves_queued_request() {
    let mut world = world();
    world.ask(permits(0, 1).limit(1));
    world.ask(permits(1, 1).block());
    release(&mut world, Family::Lock, 1);
    assert!(world.heard().is_empty());
    world.step(&Step::Delete(KEY));
    release(&mut world, Family::Lock, 1);
    assert!(world.heard().is_empty());
    assert_eq!(world.tick(), [(1, "granted")]);
}

/// While its place was kept, a worker that came back with a try was refused a free key.
#[test]
fn try_by_token_of_vacant_place_is_treated_like_any_other() {
    let mut world = world();
    world.ask(exclusive(0));
    world.ask(exclusive(1).block());
    disconnect(&mut world, 1);
    let refused = world.ask(exclusive(1)).expect("a try");
    assert_eq!(word(&refused), "not granted", "it is held");
    let shared = ask(KEY, Claim::Shared, 1);
    assert_eq!(word(&world.ask(shared).expect("a try")), "mismatch");
    release(&mut world, Family::Lock, 0);
    assert_eq!(word(&world.ask(exclusive(1)).expect("a try")), "granted");
    // The grant used up the place: next time the token queues at the back.
    release(&mut world, Family::Lock, 1);
    world.ask(exclusive(2));
    world.ask(exclusive(3).block());
    world.ask(exclusive(1).block());
    release(&mut world, Family::Lock, 2);
    assert_eq!(world.heard(), [(3, "granted")]);
}

#[test]
fn try_by_token_of_vacant_place_passes_no_waiter() {
    let mut world = world();
    world.ask(permits(0, 1).limit(2));
    world.ask(permits(1, 2).block());
    world.ask(permits(2, 2).block());
    disconnect(&mut world, 1);
    let mut small = permits(1, 2);
    small.token = Some(1);
    assert_eq!(word(&world.ask(small).expect("a try")), "not granted");
    assert_eq!(
        word(&world.ask(permits(3, 1)).expect("a try")),
        "not granted"
    );
}

/// The holder's RELEASE and the close of the waiter's connection arrived in one turn of the event loop, RELEASE first.
/// The grant could not be delivered, and the place was lost; had the close come one turn earlier, the place would have
/// been kept.
#[test]
fn undelivered_grant_leaves_place_vacant_at_its_rank() {
    for reported_first in [false, true] {
        let mut world = world();
        world.ask(exclusive(0));
        world.ask(exclusive(1).block());
        world.ask(exclusive(2).block());
        world.ask(exclusive(3).block());
        release(&mut world, Family::Lock, 0);
        assert_eq!(world.heard(), [(1, "granted")]);
        world.step(&Step::FindGone { reported_first });
        assert_eq!(world.tick(), [(2, "granted")], "the grant passes on");
        world.ask(exclusive(1).block());
        release(&mut world, Family::Lock, 2);
        assert_eq!(world.heard(), [(1, "granted")], "its retry is first again");
    }
}

/// The same if the key was removed meanwhile: the limit of the request still counts.
#[test]
fn undelivered_grant_keeps_limit_for_retry() {
    let mut world = world();
    world.ask(permits(0, 1).limit(1));
    world.ask(permits(1, 1).limit(1).block());
    release(&mut world, Family::Semaphore, 0);
    world.step(&Step::FindGone {
        reported_first: false,
    });
    assert!(world.tick().is_empty());
    assert_eq!(world.holders(KEY), 0, "nobody else waits");
    assert_eq!(
        word(&world.ask(permits(1, 1).block()).expect("at once")),
        "granted"
    );
}

/// The retry came before the undelivered grant was ended. It keeps the hold, and must not get a place as well.
#[test]
fn retry_before_undelivered_grant_ends_keeps_hold_only() {
    let mut world = world();
    world.ask(exclusive(0));
    world.ask(exclusive(1).block());
    release(&mut world, Family::Lock, 0);
    world.step(&Step::FindGone {
        reported_first: false,
    });
    let again = world.ask(exclusive(1).conn(5).block()).expect("at once");
    assert_eq!(word(&again), "granted");
    assert!(world.tick().is_empty());
    assert_eq!(world.holders(KEY), 1);
}

#[test]
fn undelivered_grant_without_rejoin_time_leaves_no_place() {
    let mut world = World::new(dsync_engine::Settings {
        rejoin_ms: 0,
        ..dsync_engine::Settings::default()
    });
    world.ask(exclusive(0));
    world.ask(exclusive(1).block());
    world.ask(exclusive(2).block());
    world.ask(exclusive(3).block());
    release(&mut world, Family::Lock, 0);
    world.step(&Step::FindGone {
        reported_first: true,
    });
    assert_eq!(world.tick(), [(2, "granted")]);
    world.ask(exclusive(1).block());
    release(&mut world, Family::Lock, 2);
    assert_eq!(world.heard(), [(3, "granted")]);
}

/// CLIENT UNBLOCK … ERROR answered a waiter in the same turn as its grant. Its connection lives and got the error, so
/// no retry will come for the place.
#[test]
fn grant_undelivered_to_open_connection_leaves_no_place() {
    let mut world = world();
    world.ask(exclusive(0));
    world.ask(exclusive(1).block());
    let now = world.now;
    let (_, done) = world.primary.call(KEY, Family::Lock, |engine, key| {
        engine.release(key, Family::Lock, &crate::steps::token(0), now)
    });
    let grant = done.wakes[0].grant.expect("a grant");
    let client = world.client(1);
    let client = dsync_engine::types::ClientId(client);
    world.primary.engine.undelivered(grant, client, false, now);
    world.primary.run_tasks(now);
    assert!(world.primary.state(KEY).is_none());
    let ours = crate::steps::token(1);
    let (again, _) = world.primary.call(KEY, Family::Lock, |engine, key| {
        engine.release(key, Family::Lock, &ours, now)
    });
    assert_eq!(again, Ok(false), "the token has no place");
}
