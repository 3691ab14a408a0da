//! MINHOLD: whose place stays taken, until when, and what ends it.

use crate::fixture::{KEY, MS, exclusive, fence, permits, shared, word, world};
use crate::steps::Step;
use crate::world::World;
use dsync_engine::Family;
use dsync_engine::answer::Answer;

const MIN_MS: u32 = 1_000;

/// Returns a semaphore with the limit 1, which token 0 holds with MINHOLD.
fn held() -> World {
    let mut world = world();
    world.ask(permits(0, 1).limit(1).min_hold(MIN_MS));
    world
}

fn release(world: &mut World, token: u8) {
    world.step(&Step::Release(KEY, Family::Semaphore, token));
}

/// The next in line is granted in this millisecond, and not in the one before.
#[track_caller]
fn served_after_ms(world: &mut World, ms: u64) {
    world.ask(permits(9, 1).block());
    assert_eq!(world.after_ms(ms - 2), []);
    assert_eq!(world.after_ms(4), [(9, "granted")]);
}

/// Each end that the token or its connection brings, and the lapse of a lease that is shorter.
#[test]
fn place_stays_taken_however_the_hold_ends() {
    let mut world = held();
    release(&mut world, 0);
    served_after_ms(&mut world, 1_000);

    let mut world = world_with(permits(0, 1).limit(1).min_hold(MIN_MS).lease(10));
    served_after_ms(&mut world, 1_000);

    let mut world = world_with(permits(0, 1).limit(1).min_hold(MIN_MS).ephemeral());
    world.after_ms(10);
    world.step(&Step::Disconnect(0));
    world.tick();
    served_after_ms(&mut world, 990);
}

fn world_with(ask: crate::steps::Ask) -> World {
    let mut world = world();
    world.ask(ask);
    world
}

#[test]
fn hold_that_ends_late_frees_its_place_at_once() {
    let mut world = held();
    world.after_ms(1_000);
    world.ask(permits(1, 1).block());
    release(&mut world, 0);
    assert_eq!(world.heard(), [(1, "granted")]);
}

#[test]
fn revocation_and_removal_end_a_rest() {
    for end in [Step::Revoke(KEY, Family::Semaphore, 0), Step::Delete(KEY)] {
        let mut world = held();
        release(&mut world, 0);
        world.ask(permits(1, 1).block());
        world.step(&end);
        world.tick();
        assert_eq!(world.holders(KEY), 1, "{end:?}");
        assert!(
            !world.told.is_empty() || end_is_heard(&mut world),
            "{end:?}"
        );
    }
    // A revocation of a hold leaves nothing either.
    let mut world = held();
    world.ask(permits(1, 1).block());
    world.step(&Step::Revoke(KEY, Family::Semaphore, 0));
    assert_eq!(world.heard(), [(1, "granted")]);
}

/// Token 1 holds already: the same request is answered its hold.
fn end_is_heard(world: &mut World) -> bool {
    world.ask(permits(1, 1)).as_ref().map(word) == Some("granted")
}

#[test]
fn token_of_a_rest_is_dead_and_its_next_request_is_a_new_one() {
    let mut world = held();
    release(&mut world, 0);
    for step in [
        Step::Renew(KEY, Family::Semaphore, 0, None),
        Step::Check(KEY, Family::Semaphore, 0),
        Step::Release(KEY, Family::Semaphore, 0),
    ] {
        // The model has answered 0 too.
        world.step(&step);
    }
    assert_eq!(world.ask(permits(0, 1)), Some(Answer::NotGranted));
    world.ask(permits(0, 1).block());
    assert_eq!(world.after_ms(1_002), [(0, "granted")]);
}

/// The moment stays, whatever the lease, and so does the MINHOLD of a hold. A place follows its newest request.
#[test]
fn repeat_moves_no_rest_of_a_hold_and_changes_that_of_a_place() {
    let mut world = held();
    world.after_ms(500);
    let first = fence(world.ask(permits(0, 1).min_hold(60_000)));
    assert_eq!(fence(world.ask(permits(0, 1))), first, "without it");
    world.step(&Step::Renew(KEY, Family::Semaphore, 0, Some(60_000)));
    world.ask(permits(1, 1).keep(5_000));
    world.ask(permits(1, 1).keep(5_000).min_hold(3_000));
    release(&mut world, 0);
    world.after_ms(502);
    world.ask(permits(1, 1));
    release(&mut world, 1);
    served_after_ms(&mut world, 3_000);
}

#[test]
fn undelivered_grant_rests_nothing_and_its_place_keeps_the_option() {
    let mut world = held();
    world.ask(permits(1, 1).min_hold(5_000).block());
    world.ask(permits(2, 1).block());
    world.after_ms(1_000);
    release(&mut world, 0);
    assert_eq!(world.heard(), [(1, "granted")]);
    world.step(&Step::FindGone {
        reported_first: true,
    });
    world.step(&Step::Tick);
    assert_eq!(world.heard(), [(2, "granted")], "at once");
    // Nor does one to a kept place whose token is not heard from.
    let mut world = held();
    world.ask(permits(1, 1).min_hold(60_000).keep(1_000));
    world.ask(permits(2, 1).block());
    release(&mut world, 0);
    assert_eq!(world.after_ms(1_002), []);
    assert_eq!(world.after_ms(1_002), [(2, "granted")]);
}

/// A client that gives up closes its connection, and withdraws on another one. If its turn comes just then, the server finds
/// the grant undelivered, and reads the RELEASE before it has ended the hold.
#[test]
fn grant_that_was_found_undelivered_rests_nothing_when_it_is_withdrawn() {
    let mut world = held();
    world.ask(permits(1, 1).min_hold(60_000).block());
    world.ask(permits(2, 1).block());
    world.after_ms(1_000);
    release(&mut world, 0);
    world.step(&Step::FindGone {
        reported_first: true,
    });
    release(&mut world, 1);
    assert_eq!(world.heard(), [(2, "granted")], "at once");
}

/// A client that gives up on its place does not know yet that its turn has come.
#[test]
fn grant_that_nobody_has_heard_of_rests_nothing_when_it_is_withdrawn() {
    let mut world = held();
    world.ask(permits(1, 1).min_hold(60_000).keep(5_000));
    world.ask(permits(2, 1).block());
    world.after_ms(1_000);
    release(&mut world, 0);
    release(&mut world, 1);
    assert_eq!(world.heard(), [(2, "granted")], "at once");
    // One that has asked for it has heard.
    let mut world = held();
    world.ask(permits(1, 1).min_hold(5_000).keep(5_000));
    world.after_ms(1_000);
    release(&mut world, 0);
    world.ask(permits(1, 1).min_hold(5_000).keep(5_000));
    release(&mut world, 1);
    served_after_ms(&mut world, 5_000);
}

/// A shared hold that rests lets shared ones in, and no exclusive one.
#[test]
fn resting_shared_hold_holds_up_exclusive_ones_alone() {
    let mut world = world();
    world.ask(shared(0).min_hold(MIN_MS));
    world.step(&Step::Release(KEY, Family::Lock, 0));
    assert_eq!(world.ask(exclusive(1)), Some(Answer::NotGranted));
    fence(world.ask(shared(2)));
    world.step(&Step::Release(KEY, Family::Lock, 2));
    world.ask(exclusive(1).block());
    assert_eq!(world.after_ms(1_002), [(1, "granted")]);
}

/// A stall of the lease clock lengthens a rest too, by the wall clock.
#[test]
fn rest_stands_still_with_the_lease_clock() {
    let mut world = held();
    release(&mut world, 0);
    world.ask(permits(1, 1).block());
    world.step(&Step::Stall { us: 5_000 * MS });
    assert_eq!(world.after_ms(990), []);
    assert_eq!(world.after_ms(12), [(1, "granted")]);
}

/// What is left by the wall clock, and the grace, and never more than the MINHOLD. Of a rest, and of a hold that rests
/// later.
#[test]
fn rest_after_a_take_over_is_what_is_left_plus_the_grace() {
    for ends_before in [true, false] {
        for change in [
            Step::Failover { ms: 8_000 },
            Step::Demote { ms: 8_000 },
            Step::Restart {
                as_changes: true,
                ms: 8_000,
            },
        ] {
            let mut world = world();
            world.ask(permits(0, 1).limit(1).lease(90_000).min_hold(20_000));
            world.ask(permits(1, 1).keep(60_000));
            if ends_before {
                release(&mut world, 0);
            }
            world.step(&change);
            if !ends_before {
                release(&mut world, 0);
            }
            // 12,000 of 20,000 ms are left, and the grace is 5,000 ms.
            let case = format!("{ends_before}, {change:?}");
            world.after_ms(16_990);
            assert_eq!(world.announced, [], "{case}");
            world.after_ms(20);
            assert_eq!(world.announced.len(), 1, "{case}");
        }
    }
}
