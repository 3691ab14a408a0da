//! First come, first served: large requests, readers and writers, waiters that leave, vacant places.

use crate::fixture::{KEY, MS, exclusive, permits, shared, word, world};
use crate::steps::Step;
use crate::world::World;
use dsync_engine::types::Claim;
use dsync_engine::{Family, Settings, Visit};

/// A semaphore granted any request that fitted, so a request for all permits was never granted.
#[test]
fn large_request_is_not_starved_by_small_ones() {
    let mut world = world();
    world.ask(permits(0, 1).limit(3));
    world.ask(permits(1, 1));
    world.ask(permits(2, 3).block());
    for small in 3..8 {
        world.ask(permits(small, 1).block());
        assert_eq!(
            word(&world.ask(permits(20, 1)).expect("a try")),
            "not granted",
            "no barging"
        );
    }
    world.step(&Step::Release(KEY, Family::Semaphore, 0));
    assert!(world.heard().is_empty(), "permits pile up for the head");
    world.step(&Step::Release(KEY, Family::Semaphore, 1));
    assert_eq!(world.heard(), [(2, "granted")]);
    world.step(&Step::Release(KEY, Family::Semaphore, 2));
    assert_eq!(
        world.heard(),
        [(3, "granted"), (4, "granted"), (5, "granted")]
    );
}

/// The first waiter left, and the next one was not looked at, although it could have been granted.
#[test]
fn next_waiter_is_served_when_head_leaves() {
    for how in [
        "its wait runs out",
        "its connection closes",
        "the server answers it",
        "it is too many",
    ] {
        let mut world = world();
        world.ask(permits(0, 1).limit(3));
        world.ask(permits(1, 3).block_ms(50));
        world.ask(permits(2, 2).block());
        match how {
            "its wait runs out" => {
                assert_eq!(world.after_ms(50), [(1, "not granted"), (2, "granted")]);
            }
            "its connection closes" => {
                world.step(&Step::Disconnect(1));
                assert_eq!(world.tick(), [(2, "granted")], "{how}");
            }
            "the server answers it" => {
                world.step(&Step::Unblock(1));
                assert_eq!(world.tick(), [(2, "granted")], "{how}");
            }
            _ => {
                // With a limit of 2 the head can never be granted, and the next waiter not yet.
                world.ask(permits(3, 1).limit(2).block());
                assert_eq!(world.heard(), [(1, "too many")], "{how}");
                world.step(&Step::Release(KEY, Family::Semaphore, 0));
                assert_eq!(world.heard(), [(2, "granted")], "{how}");
            }
        }
    }
}

/// Shared requests came one by one while an exclusive one waited, which then waited for ever.
#[test]
fn shared_requests_behind_exclusive_enter_together() {
    let mut world = world();
    world.ask(shared(0));
    world.ask(exclusive(1).block());
    world.ask(shared(2).block());
    world.ask(shared(3).block());
    world.ask(exclusive(4).block());
    world.ask(shared(5).block());
    world.step(&Step::Release(KEY, Family::Lock, 0));
    assert_eq!(world.heard(), [(1, "granted")]);
    world.step(&Step::Release(KEY, Family::Lock, 1));
    assert_eq!(
        world.heard(),
        [(2, "granted"), (3, "granted")],
        "but not the one behind the writer"
    );
    world.step(&Step::Release(KEY, Family::Lock, 3));
    assert!(world.heard().is_empty());
    world.step(&Step::Release(KEY, Family::Lock, 2));
    assert_eq!(world.heard(), [(4, "granted")]);
}

/// A place kept for a client that had lost its connection held up all requests behind it.
#[test]
fn vacant_place_delays_nobody_and_keeps_its_rank() {
    let mut world = world();
    world.ask(exclusive(0));
    for waiter in 1..=4 {
        world.ask(exclusive(waiter).block());
    }
    world.step(&Step::Disconnect(1));
    world.step(&Step::Disconnect(3));
    world.step(&Step::Release(KEY, Family::Lock, 0));
    assert_eq!(world.heard(), [(2, "granted")], "1 has no connection");
    // Tokens that come back in time have their old ranks: 1 is first, and 3 is third.
    world.ask(exclusive(3).conn(9).block());
    world.ask(exclusive(1).conn(8).block());
    world.step(&Step::Release(KEY, Family::Lock, 2));
    assert_eq!(world.heard(), [(8, "granted")]);
    world.step(&Step::Release(KEY, Family::Lock, 1));
    assert_eq!(world.heard(), [(9, "granted")]);
    world.step(&Step::Release(KEY, Family::Lock, 3));
    assert_eq!(world.heard(), [(4, "granted")]);
}

#[test]
fn no_place_is_kept_without_token_or_after_answer() {
    let mut world = world();
    world.ask(exclusive(0));
    world.ask(exclusive(1).without_token().block());
    world.step(&Step::Disconnect(1));
    assert!(world.model.seats(KEY).is_empty());
    world.ask(exclusive(2).block());
    world.step(&Step::Unblock(2));
    world.ask(exclusive(3).block());
    world.ask(exclusive(2).block());
    world.step(&Step::Release(KEY, Family::Lock, 0));
    assert_eq!(world.heard(), [(3, "granted")], "the second came anew");
}

/// Places of crashed clients filled the queue, and requests of living clients were refused.
#[test]
fn full_queue_gives_up_oldest_vacant_place() {
    let settings = Settings {
        max_waiters_per_key: 3,
        max_waiters: 4,
        ..Settings::default()
    };
    let mut world = World::new(settings);
    world.ask(exclusive(0));
    (1..=3).for_each(|waiter| drop(world.ask(exclusive(waiter).block())));
    assert_eq!(
        word(&world.ask(exclusive(4).block()).expect("at once")),
        "full"
    );
    world.step(&Step::Disconnect(2));
    world.step(&Step::Disconnect(1));
    assert_eq!(
        world.ask(exclusive(4).block()),
        None,
        "the oldest vacant place goes"
    );
    // Token 1 has lost its place, token 2 still has one.
    world.ask(exclusive(2).block());
    assert_eq!(
        word(&world.ask(exclusive(1).block()).expect("at once")),
        "full"
    );
    world.step(&Step::Release(KEY, Family::Lock, 0));
    assert_eq!(world.heard(), [(2, "granted")]);
}

/// Such a try is told so without a look at anything else. Whatever is overdue, paused or queued is seen to first.
#[test]
fn only_a_held_lock_refuses_a_try_at_once() {
    const EXCLUSIVE: Claim = Claim::Exclusive;
    const PERMIT: Claim = Claim::Permits(1);
    let refuses = |world: &mut World, claims: &[Claim]| -> Vec<bool> {
        let now = world.now;
        let ask = |claim: &Claim| {
            let ask = |visit: &mut Visit<'_>| visit.refuses(*claim);
            world.primary.call(KEY, claim.family(), now, ask).0
        };
        claims.iter().map(ask).collect()
    };
    let all = [EXCLUSIVE, Claim::Shared, PERMIT];
    let mut free = world();
    assert_eq!(refuses(&mut free, &all), [false; 3]);
    let mut read = world();
    read.ask(shared(0));
    assert_eq!(refuses(&mut read, &all), [true, false, false]);
    let mut full = world();
    full.ask(permits(0, 1).limit(1));
    assert_eq!(refuses(&mut full, &all), [false; 3]);

    let held = || {
        let mut held = world();
        held.ask(exclusive(0).lease(10));
        held
    };
    assert_eq!(refuses(&mut held(), &all), [true, true, false]);
    let mut overdue = held();
    overdue.step(&Step::Pass { us: 20 * MS });
    assert_eq!(refuses(&mut overdue, &all), [false; 3]);
    let mut paused = held();
    paused.step(&Step::Pause(KEY, Family::Lock, 1_000));
    assert_eq!(refuses(&mut paused, &all), [false; 3]);
    let mut queued = held();
    queued.ask(exclusive(1).block());
    assert_eq!(refuses(&mut queued, &all), [false; 3]);
}
