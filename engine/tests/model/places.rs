//! The place of a queued request: withdrawn by RELEASE, vacant after its connection closed, taken again by its token.

use crate::fixture::{KEY, OTHER, exclusive, member, permits, word, world};
use crate::long_queues::OneKey;
use crate::steps::{Step, ask};
use crate::world::World;
use dsync_engine::answer::Answer;
use dsync_engine::types::{Claim, MonoUs};
use dsync_engine::{Family, Visit};

/// How long a vacant place is kept: the default.
const REJOIN_MS: u64 = 2_000;

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

/// Only kept places have numbers that clients are told. The number of a wait with BLOCK is met by chance, or by guessing.
#[test]
fn revoke_of_a_number_that_nobody_was_told_ends_no_wait() {
    let mut one_key = OneKey::new();
    one_key.acquire(Claim::Exclusive, None, None, 0);
    one_key.queue_requests(Claim::Exclusive, 1, MonoUs::NEVER);
    let (number, now) = (one_key.server.engine.fences().last(), one_key.now);
    let revoke = |visit: &mut Visit<'_>| visit.revoke(Family::Lock, number);
    let (revoked, done) = one_key.server.call(KEY, Family::Lock, now, revoke);
    assert_eq!(revoked, Ok(false));
    assert!(done.wakes.is_empty(), "it waits on");
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
    release(&mut world, Family::Lock, 0);
    assert_eq!(world.heard(), [(2, "granted")]);
    world.after_ms(REJOIN_MS);
    world.ask(exclusive(3).block());
    world.ask(exclusive(1).block());
    release(&mut world, Family::Lock, 2);
    assert_eq!(
        world.heard(),
        [(3, "granted")],
        "token 1 queues at the back"
    );
}

/// A client gave up and sent RELEASE on another connection, while a packet with its request was lost and sent again.
/// The request came last, found the lock free, and was granted to a connection that nobody read: a whole lease.
#[test]
fn request_that_comes_after_its_withdrawal_is_answered_so() {
    // What stood in the queue when it was withdrawn: a waiting, a kept and a vacant place.
    for stood in 0..3 {
        let mut world = world();
        world.ask(exclusive(0));
        match stood {
            0 => drop(world.ask(exclusive(1).block())),
            1 => drop(world.ask(exclusive(1).keep(1_000))),
            _ => {
                world.ask(exclusive(1).block());
                disconnect(&mut world, 1);
            }
        }
        release(&mut world, Family::Lock, 1);
        release(&mut world, Family::Lock, 0);
        let shared = ask(KEY, Claim::Shared, 1);
        for late in [
            exclusive(1),
            exclusive(1).conn(5).block(),
            exclusive(1).keep(1_000),
            shared,
        ] {
            let answer = world.ask(late);
            assert_eq!(answer.as_ref().map(word), Some("withdrawn"), "{stood}");
        }
        assert_eq!(world.holders(KEY), 0);
        world.after_ms(REJOIN_MS - 1);
        let late = world.ask(exclusive(1).block());
        assert_eq!(late.as_ref().map(word), Some("withdrawn"), "to the last ms");
        world.after_ms(1);
        let new = world.ask(exclusive(1).block());
        assert_eq!(new.as_ref().map(word), Some("granted"), "{stood}");
    }
}

/// A client releases its hold and asks again with the same token at once. That is no withdrawal.
#[test]
fn release_that_ended_a_hold_or_nothing_marks_no_token() {
    let mut world = world();
    release(&mut world, Family::Lock, 1);
    for _ in 0..2 {
        let again = world.ask(exclusive(1).block());
        assert_eq!(again.as_ref().map(word), Some("granted"));
        release(&mut world, Family::Lock, 1);
    }
    // RENAME has brought a hold to a name where its token waits: RELEASE ends the one and withdraws the other.
    world.ask(ask(OTHER, Claim::Exclusive, 1));
    world.ask(exclusive(0));
    world.ask(exclusive(1).block());
    world.step(&Step::Rename(OTHER, KEY));
    release(&mut world, Family::Lock, 1);
    assert_eq!(world.heard(), [(1, "withdrawn")]);
    let again = world.ask(exclusive(1).block());
    assert_eq!(again.as_ref().map(word), Some("granted"));
}

/// With no time to come back, nothing is kept for a token, not even that it was withdrawn.
#[test]
fn withdrawal_without_rejoin_time_marks_no_token() {
    let mut world = World::new(dsync_engine::Settings {
        rejoin_ms: 0,
        ..dsync_engine::Settings::default()
    });
    world.ask(exclusive(0));
    world.ask(exclusive(1).block());
    release(&mut world, Family::Lock, 1);
    release(&mut world, Family::Lock, 0);
    let new = world.ask(exclusive(1).block());
    assert_eq!(new.as_ref().map(word), Some("granted"));
}

/// Withdrawn tokens count as vacant places: they keep nobody out of a full queue, and the oldest is forgotten first.
#[test]
fn full_queue_forgets_oldest_withdrawn_token() {
    let mut world = World::new(dsync_engine::Settings {
        max_waiters_per_key: 2,
        ..dsync_engine::Settings::default()
    });
    world.ask(exclusive(0));
    for token in [1, 2] {
        world.ask(exclusive(token).block());
        release(&mut world, Family::Lock, token);
    }
    assert_eq!(world.ask(exclusive(3).block()), None, "there is room");
    let newer = world.ask(exclusive(2).block());
    assert_eq!(newer.as_ref().map(word), Some("withdrawn"));
    assert_eq!(world.ask(exclusive(1).block()), None, "it was forgotten");
}

/// A vacant place of a lock was left when the name became a semaphore. The token's request for permits got MISMATCH for
/// as long as the place was kept.
#[test]
fn vacant_place_of_another_family_is_dropped() {
    let mut world = world();
    world.ask(exclusive(0));
    world.ask(exclusive(1).block());
    disconnect(&mut world, 1);
    world.step(&Step::Delete(KEY));
    let new = world.ask(permits(1, 1).limit(1));
    assert_eq!(new.as_ref().map(word), Some("granted"));
    release(&mut world, Family::Semaphore, 1);
    world.ask(exclusive(0));
    world.ask(exclusive(2).block());
    world.ask(exclusive(1).block());
    release(&mut world, Family::Lock, 0);
    assert_eq!(world.heard(), [(2, "granted")], "the place is gone");
}

/// What a token has left in another family gives it no rank: it comes last.
#[test]
fn token_of_another_family_comes_last() {
    let mut world = world();
    world.ask(permits(0, 1).limit(1));
    world.ask(permits(1, 1).block());
    disconnect(&mut world, 1);
    world.step(&Step::Delete(KEY));
    world.ask(exclusive(2));
    for token in [3, 1] {
        world.ask(exclusive(token).keep(5_000));
    }
    release(&mut world, Family::Lock, 2);
    let first = world.ask(exclusive(3).keep(5_000));
    assert_eq!(first.as_ref().map(word), Some("granted"));
}

/// The server was out of memory, and refused requests that need none: a repeat, and the place that the token had.
#[test]
fn without_memory_only_new_holds_and_places_are_refused() {
    let mut world = world();
    world.ask(exclusive(0));
    world.ask(exclusive(1).keep(1_000));
    world.ask(exclusive(2).block());
    disconnect(&mut world, 2);
    world.step(&Step::MayGrow(false));
    let told = |world: &mut World, ask| {
        let answer = world.ask(ask);
        answer.as_ref().map_or("waits", word)
    };
    assert_eq!(told(&mut world, exclusive(0)), "granted", "a repeat");
    let again = world.ask(exclusive(1).keep(1_000));
    assert!(matches!(again, Some(Answer::Waiting { position: 1, .. })));
    assert_eq!(told(&mut world, exclusive(2).block()), "waits", "its place");
    assert_eq!(told(&mut world, exclusive(3)), "not granted", "a try");
    for new in [exclusive(3).block(), exclusive(3).keep(1_000)] {
        assert_eq!(told(&mut world, new), "no memory");
    }
    release(&mut world, Family::Lock, 0);
    assert_eq!(world.announced.len(), 1, "a kept place is granted");
    assert_eq!(told(&mut world, exclusive(1)), "granted", "and asked for");
    release(&mut world, Family::Lock, 1);
    assert_eq!(world.heard(), [(2, "granted")]);
    release(&mut world, Family::Lock, 2);
    for new in [exclusive(3), exclusive(3).block()] {
        assert_eq!(told(&mut world, new), "no memory", "a free lock");
    }
    world.step(&Step::MayGrow(true));
    assert_eq!(told(&mut world, exclusive(3)), "granted");
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

/// The token's RENEW came before the undelivered grant was ended, and was answered 1. The hold ended all the same, and
/// was granted to the next in line while its client worked.
#[test]
fn renewal_before_undelivered_grant_ends_keeps_hold() {
    let mut world = world();
    world.ask(exclusive(0));
    world.ask(exclusive(1).block());
    world.ask(exclusive(2).block());
    release(&mut world, Family::Lock, 0);
    world.step(&Step::FindGone {
        reported_first: false,
    });
    world.step(&Step::Renew(KEY, Family::Lock, 1, None));
    assert!(world.tick().is_empty(), "it holds, as RENEW said");
    release(&mut world, Family::Lock, 1);
    assert_eq!(world.heard(), [(2, "granted")]);
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
    let (_, done) = world.primary.call(KEY, Family::Lock, now, |visit| {
        visit.release(Family::Lock, &crate::steps::token(0))
    });
    let grant = done.wakes[0].grant.expect("a grant");
    let client = world.client(1);
    let client = dsync_engine::types::ClientId(client);
    world.primary.engine.undelivered(grant, client, false, now);
    world.primary.run_tasks(now);
    assert!(world.primary.state(KEY).is_none());
    let ours = crate::steps::token(1);
    let (again, _) = world.primary.call(KEY, Family::Lock, now, |visit| {
        visit.release(Family::Lock, &ours)
    });
    assert_eq!(again, Ok(false), "the token has no place");
}

/// A grant was not delivered, and RENAME brought its hold to a name where its token waits already.
#[test]
fn token_that_waits_again_gets_no_second_place_back() {
    let mut world = world();
    world.ask(exclusive(0));
    world.ask(exclusive(1).block());
    world.ask(ask(OTHER, Claim::Exclusive, 2));
    world.ask(ask(OTHER, Claim::Exclusive, 1).conn(5).block());
    release(&mut world, Family::Lock, 0);
    world.step(&Step::FindGone {
        reported_first: true,
    });
    world.step(&Step::Rename(KEY, OTHER));
    assert_eq!(world.tick(), [(5, "granted")]);
}
