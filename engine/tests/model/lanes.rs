//! Fair shares: lanes of a semaphore, with every way in which a request waits or a hold ends.

use crate::ask::{ask, token};
use crate::fixture::{KEY, OTHER, permits, word, world};
use crate::kept::client_token;
use crate::long_queues::OneKey;
use crate::server::Server;
use crate::steps::{Ask, Step};
use crate::world::World;
use dsync_engine::effect::Wake;
use dsync_engine::types::{Claim, ClientId, LeaseMs, MonoUs};
use dsync_engine::{Family, LaneName, Request, Settings, Visit};

const SEM: Family = Family::Semaphore;

/// Returns a request for one permit in this lane that waits.
fn waits(token: u8, lane: u8) -> Ask {
    permits(token, 1).lane(lane).block()
}

/// Asks, and says what the request is told at once.
fn told(world: &mut World, ask: Ask) -> &'static str {
    world.ask(ask).as_ref().map_or("waits", word)
}

fn release(world: &mut World, token: u8) -> Vec<(usize, &'static str)> {
    world.step(&Step::Release(KEY, SEM, token));
    world.heard()
}

impl OneKey {
    /// Has a client wait for the one permit, in the same lane as all others.
    fn wait_in_lane(&mut self, client: u64) {
        let request = Request {
            claim: Claim::Permits(1),
            limit: Some(1),
            bound: None,
            lease: LeaseMs(30_000),
            min_hold: None,
            wait: Some(MonoUs::NEVER),
            keep_ms: None,
            token: client_token(client),
            may_return: true,
            client: ClientId(client),
            ephemeral: false,
            owner: None,
            lane: LaneName::from(b"tenant".as_slice()),
            may_grow: true,
        };
        let acquire = |visit: &mut Visit<'_>| drop(visit.acquire(request));
        self.server.call(KEY, SEM, self.now, acquire);
    }

    /// Releases the hold or the place of a client. Returns whether it had one, and who is answered.
    fn release(&mut self, client: u64) -> (bool, Vec<Wake>) {
        let release = |visit: &mut Visit<'_>| visit.release(SEM, &client_token(client));
        let (released, done) = self.server.call(KEY, SEM, self.now, release);
        (released.expect("a semaphore"), done.wakes)
    }
}

#[test]
fn free_permit_goes_to_lane_with_fewest_in_use() {
    let mut world = world();
    for token in 0..3 {
        assert_eq!(told(&mut world, waits(token, 1).limit(3)), "granted");
    }
    for token in 3..6 {
        assert_eq!(told(&mut world, waits(token, 1)), "waits");
    }
    assert_eq!(told(&mut world, waits(6, 2)), "waits");
    assert_eq!(told(&mut world, permits(7, 1).block()), "waits", "nameless");
    assert_eq!(release(&mut world, 0), [(6, "granted")]);
    assert_eq!(release(&mut world, 1), [(7, "granted")]);
    assert_eq!(release(&mut world, 6), [(3, "granted")]);
}

#[test]
fn request_and_hold_in_another_lane_are_a_mismatch() {
    let mut world = world();
    assert_eq!(told(&mut world, waits(0, 1).limit(1)), "granted");
    for lane in [0, 2] {
        assert_eq!(told(&mut world, waits(0, lane)), "mismatch");
    }
    let again = waits(0, 1).lane_limit(1);
    assert_eq!(
        told(&mut world, again),
        "granted",
        "of a hold it does not count"
    );
    for kept in [false, true] {
        let token = 1 + u8::from(kept);
        let request = |lane| match kept {
            true => permits(token, 1).lane(lane).keep(5_000),
            false => waits(token, lane),
        };
        let first = told(&mut world, request(1));
        assert_eq!(first, if kept { "waiting" } else { "waits" });
        for lane in [0, 2] {
            assert_eq!(told(&mut world, request(lane).conn(9)), "mismatch");
        }
    }
}

#[test]
fn lane_limit_of_a_place_is_that_of_its_newest_request() {
    let mut world = world();
    for token in 0..2 {
        assert_eq!(told(&mut world, waits(token, 1).limit(4)), "granted");
    }
    let limited = |limit| permits(2, 1).lane(1).lane_limit(limit);
    assert_eq!(told(&mut world, limited(2).keep(5_000)), "waiting");
    assert_eq!(
        told(&mut world, waits(3, 2)),
        "granted",
        "the first stands aside"
    );
    assert_eq!(told(&mut world, limited(0).keep(5_000)), "too many");
    assert_eq!(told(&mut world, limited(3).keep(5_000)), "granted");
    // One that waits, too.
    let limited = |limit| permits(4, 1).lane(1).lane_limit(limit);
    world.step(&Step::Pin(KEY, Some(9)));
    assert_eq!(told(&mut world, limited(3).block()), "waits");
    let again = limited(4).keep(5_000).conn(9);
    assert_eq!(told(&mut world, again), "granted");
    assert_eq!(told(&mut world, permits(5, 1).lane(1)), "granted");
}

#[test]
fn try_passes_those_who_stand_aside_in_other_lanes() {
    let mut world = world();
    assert_eq!(told(&mut world, waits(0, 1).limit(3)), "granted");
    assert_eq!(told(&mut world, waits(1, 1).lane_limit(1)), "waits");
    assert_eq!(
        told(&mut world, permits(2, 1).lane(1)),
        "not granted",
        "its lane"
    );
    assert_eq!(told(&mut world, permits(3, 1).lane(2)), "granted");
    assert_eq!(
        told(&mut world, permits(4, 1)),
        "granted",
        "the nameless lane"
    );
    assert_eq!(
        told(&mut world, permits(5, 1)),
        "not granted",
        "it does not fit"
    );
    assert_eq!(told(&mut world, waits(6, 2)), "waits");
    assert_eq!(release(&mut world, 3), [(6, "granted")]);
}

/// Who waits in a queue in which nobody named a lane may stand aside too.
#[test]
fn lane_passes_those_without_one_who_never_fit_beside_their_own_holds() {
    let mut world = world();
    assert_eq!(told(&mut world, permits(0, 6).limit(10)), "granted");
    assert_eq!(told(&mut world, permits(1, 8).block()), "waits");
    assert_eq!(told(&mut world, permits(2, 1)), "not granted");
    assert_eq!(told(&mut world, permits(3, 1).lane(1)), "granted");
    assert_eq!(release(&mut world, 0), [(1, "granted")]);
}

#[test]
fn limits_of_operators_and_pauses_hold_back_all_lanes() {
    let mut world = world();
    assert_eq!(told(&mut world, waits(0, 1).limit(2)), "granted");
    world.step(&Step::Pin(KEY, Some(0)));
    assert_eq!(told(&mut world, waits(1, 1)), "waits");
    assert_eq!(told(&mut world, waits(2, 2)), "waits");
    assert_eq!(told(&mut world, permits(3, 1).lane(3)), "not granted");
    world.step(&Step::Pin(KEY, Some(1)));
    assert_eq!(world.heard(), []);
    world.step(&Step::Pause(KEY, SEM, 1_000));
    world.step(&Step::Pin(KEY, None));
    assert_eq!(world.heard(), []);
    world.step(&Step::Pause(KEY, SEM, 0));
    assert_eq!(world.heard(), [(2, "granted")]);
}

#[test]
fn request_of_a_lane_is_told_when_the_limit_falls_below_it() {
    let mut world = world();
    assert_eq!(told(&mut world, waits(0, 1).limit(3)), "granted");
    let large = permits(1, 3).lane(2).block();
    assert_eq!(told(&mut world, large), "waits");
    world.step(&Step::Pin(KEY, Some(2)));
    assert_eq!(world.heard(), [(1, "too many")]);
}

/// Half of what is still free under the bound, again and again: nobody else gets QUEUEFULL.
#[test]
fn flood_of_one_lane_leaves_places_to_the_others() {
    for (per_key, server, kept) in [(16, 100, false), (100, 16, false), (32, 100, true)] {
        let mut world = World::new(Settings {
            max_waiters_per_key: per_key,
            max_waiters: server,
            ..Settings::default()
        });
        assert_eq!(told(&mut world, permits(0, 1).limit(1)), "granted");
        let mut token = 1;
        let mut queued = |world: &mut World, lane: u8| {
            let mut places = 0;
            loop {
                let ask = match kept {
                    true => permits(token, 1).lane(lane).keep(5_000),
                    false => waits(token, lane),
                };
                token += 1;
                match told(world, ask) {
                    "full" => return places,
                    _ => places += 1,
                }
            }
        };
        let places = [1, 2, 3, 4].map(|lane| queued(&mut world, lane));
        assert_eq!(places, [8, 4, 2, 1], "{per_key}, {server}, {kept}");
    }
}

/// Once lanes are kept, the nameless one would be chosen after one with fewer permits in use.
#[test]
fn request_that_waits_for_free_permits_stays_chosen_when_lanes_begin() {
    let mut world = world();
    assert_eq!(told(&mut world, permits(0, 1).limit(4)), "granted");
    assert_eq!(told(&mut world, permits(1, 2).lane(1)), "granted");
    assert_eq!(told(&mut world, permits(2, 2).block()), "waits");
    assert_eq!(told(&mut world, waits(3, 2)), "waits", "one is free");
    assert_eq!(release(&mut world, 1), [(2, "granted"), (3, "granted")]);
}

/// Only who asks for more than the limit beside the holds of its own lane stands aside.
#[test]
fn first_lane_passes_those_before_it_only_if_they_stand_aside() {
    for (lane, in_use, passes) in [(0, 1, true), (1, 1, false), (0, 2, true)] {
        let mut world = world();
        let holds = permits(0, in_use).lane(lane).limit(4);
        assert_eq!(told(&mut world, holds), "granted");
        assert_eq!(told(&mut world, permits(1, 4).block()), "waits");
        let first = if passes { "granted" } else { "not granted" };
        let tries = permits(2, 1).lane(2);
        assert_eq!(told(&mut world, tries), first, "{lane} {in_use}");
    }
}

/// Another key had lanes, and a small request without one passed a large one that came before it.
#[test]
fn request_without_lane_passes_nobody_in_a_queue_without_lanes() {
    let mut world = world();
    let other = |token| ask(OTHER, Claim::Permits(1), token).lane(1).limit(1);
    assert_eq!(told(&mut world, other(10)), "granted");
    assert_eq!(told(&mut world, other(11).block()), "waits");
    assert_eq!(told(&mut world, permits(0, 2).limit(3)), "granted");
    assert_eq!(told(&mut world, permits(1, 3).block()), "waits");
    assert_eq!(told(&mut world, permits(2, 1).block()), "waits");
}

/// Who has a place needs no room for another one.
#[test]
fn place_in_a_lane_of_a_full_queue_can_be_kept() {
    let mut world = World::new(Settings {
        max_waiters_per_key: 2,
        ..Settings::default()
    });
    assert_eq!(told(&mut world, permits(0, 1).limit(1)), "granted");
    for lane in [1, 2] {
        assert_eq!(told(&mut world, waits(lane, lane)), "waits");
    }
    let kept = permits(1, 1).lane(1).keep(5_000);
    assert_eq!(told(&mut world, kept), "waiting");
}

/// A grant was not delivered while others of its lane took all the places that a lane may have.
#[test]
fn undelivered_grant_has_no_place_in_a_full_lane() {
    for (others, has_place) in [(7, true), (8, false)] {
        let mut one_key = OneKey::new();
        one_key.server = Server::new(Settings {
            max_waiters_per_key: 16,
            ..Settings::default()
        });
        one_key.take_over();
        one_key.wait_in_lane(0);
        one_key.wait_in_lane(1);
        let (released, wakes) = one_key.release(0);
        assert!(released);
        let grant = wakes[0].grant.expect("a grant");
        for client in 2..2 + others {
            one_key.wait_in_lane(client);
        }
        let (engine, now) = (&mut one_key.server.engine, one_key.now);
        engine.undelivered(grant, ClientId(1), true, now);
        one_key.server.run_tasks(now);
        assert_eq!(one_key.release(1).0, has_place, "{others} others");
    }
}

/// What the holds have in use is known after a failover, and lanes come in the order of their first places.
#[test]
fn kept_places_of_lanes_survive_restart_failover_and_demotion() {
    let changes: [fn() -> Step; 4] = [
        || Step::Failover { ms: 1 },
        || Step::Demote { ms: 1 },
        || Step::Restart {
            as_changes: false,
            ms: 1,
        },
        || Step::Restart {
            as_changes: true,
            ms: 1,
        },
    ];
    for change in changes {
        let mut world = world();
        for token in 0..2 {
            assert_eq!(told(&mut world, waits(token, 1).limit(2)), "granted");
        }
        for (token, lane) in [(2, 1), (3, 3), (4, 2), (5, 3)] {
            let kept = permits(token, 1).lane(lane).keep(5_000);
            assert_eq!(told(&mut world, kept.lane_limit(1)), "waiting");
        }
        world.step(&change());
        world.step(&Step::Pin(KEY, Some(4)));
        let case = format!("{:?}", change());
        assert_eq!(world.holders(KEY), 4, "{case}");
        world.steps(&[Step::Release(KEY, SEM, 0), Step::Release(KEY, SEM, 3)]);
        assert_eq!(world.holders(KEY), 3, "{case}: 2 stands aside");
        world.step(&Step::Release(KEY, SEM, 1));
        assert_eq!(world.holders(KEY), 3, "{case}");
    }
}

/// The places stay with their name, and what is in use is that of the value which the name has.
#[test]
fn lanes_are_sorted_anew_when_the_name_has_another_value() {
    let mut world = world();
    for token in 0..2 {
        let other = waits(token, 2).limit(3);
        assert_eq!(
            told(
                &mut world,
                Ask {
                    name: OTHER,
                    ..other
                }
            ),
            "granted"
        );
    }
    for token in 2..4 {
        assert_eq!(told(&mut world, waits(token, 1).limit(2)), "granted");
    }
    for (token, lane) in [(4, 2), (5, 1)] {
        assert_eq!(told(&mut world, waits(token, lane)), "waits");
    }
    world.step(&Step::Rename(OTHER, KEY));
    assert_eq!(world.tick(), [(5, "granted")], "lane 2 has two in use now");
}

#[test]
fn place_that_rests_is_in_use_by_its_lane() {
    let mut world = world();
    let rests = permits(0, 1).lane(1).limit(2).min_hold(50);
    assert_eq!(told(&mut world, rests), "granted");
    assert_eq!(told(&mut world, permits(1, 1).lane(2)), "granted");
    assert_eq!(told(&mut world, waits(2, 1)), "waits");
    assert_eq!(told(&mut world, waits(3, 2)), "waits");
    assert_eq!(release(&mut world, 0), []);
    // Lane 2 has nothing in use now, and its turn is later than that of lane 1.
    assert_eq!(release(&mut world, 1), [(3, "granted")]);
    world.step(&Step::Pass { us: 50_000 });
    world.step(&Step::Tick);
    assert_eq!(world.heard(), [(2, "granted")]);
}

/// Vacant places run out while nobody waits, and nothing else makes the server look at the lanes.
#[test]
fn lane_loses_its_turn_with_its_last_vacant_place() {
    let mut world = world();
    let held = waits(0, 3).limit(1).lease(100_000);
    assert_eq!(told(&mut world, held), "granted");
    for lane in [1, 2] {
        assert_eq!(told(&mut world, waits(lane, lane)), "waits");
        world.step(&Step::Disconnect(usize::from(lane)));
        world.after_ms(10);
    }
    // Only lane 2 has one left.
    world.after_ms(Settings::default().rejoin_ms - 15);
    assert_eq!(told(&mut world, waits(5, 1)), "waits");
    assert_eq!(told(&mut world, waits(4, 2)), "waits");
    assert_eq!(release(&mut world, 0), [(4, "granted")]);
}

/// A flush drops the value and the kept places. Who goes on waiting does so with the turns that the lanes had.
#[test]
fn lanes_keep_their_turns_when_a_flush_drops_most_places() {
    let mut world = world();
    let waits = |token, lane| waits(token, lane).limit(1);
    assert_eq!(told(&mut world, waits(0, 1)), "granted");
    for (token, lane) in [(1, 2), (2, 2), (3, 1)] {
        assert_eq!(told(&mut world, waits(token, lane)), "waits");
    }
    for token in 10..16 {
        let kept = permits(token, 1).limit(1).lane(3).keep(60_000);
        assert_eq!(told(&mut world, kept), "waiting");
    }
    assert_eq!(release(&mut world, 0), [(1, "granted")]);
    world.step(&Step::Flush(None));
    assert_eq!(world.tick(), [(3, "granted")], "lane 2 had its turn last");
    assert_eq!(release(&mut world, 3), [(2, "granted")]);
}

/// The value leaves its name with holds of lane 1, or of lanes 1 and 3, while lane 2 waits, which came after their
/// grants and has had nothing, and lane 1 waits behind it. Lane 1 was served first: its turn was that of its grant.
#[test]
fn lane_that_had_holds_is_behind_one_that_had_none_after_removal() {
    let removals = [
        Step::Delete(KEY),
        Step::Overwrite(KEY),
        Step::Rename(KEY, OTHER),
        Step::Flush(None),
        Step::Swap(KEY.0, 1),
    ];
    for (limit, holders) in [(1, 1), (2, 2)] {
        for removal in &removals {
            let mut world = world();
            let waits = |token, lane| waits(token, lane).limit(limit);
            for (token, lane) in [(0, 1), (1, 3)].into_iter().take(holders) {
                assert_eq!(told(&mut world, waits(token, lane)), "granted");
            }
            for (token, lane) in [(2, 2), (3, 1), (4, 2), (5, 1)] {
                assert_eq!(told(&mut world, waits(token, lane)), "waits");
            }
            world.step(removal);
            if matches!(removal, Step::Overwrite(_)) {
                world.step(&Step::Delete(KEY));
            }
            let mut served = vec![(2, "granted"), (3, "granted")];
            served.truncate(holders);
            assert_eq!(world.tick(), served, "{removal:?}");
        }
    }
}

/// A large request that was chosen to wait for its permits is still the one to be served.
#[test]
fn chosen_place_stays_chosen_when_a_flush_drops_most_places() {
    let mut world = world();
    let asks = |token, permits_of, lane| permits(token, permits_of).limit(2).lane(lane);
    assert_eq!(told(&mut world, asks(0, 1, 1)), "granted");
    assert_eq!(told(&mut world, asks(1, 2, 2).block()), "waits");
    assert_eq!(told(&mut world, asks(2, 1, 1).block()), "waits");
    for token in 10..16 {
        assert_eq!(told(&mut world, asks(token, 1, 3).keep(60_000)), "waiting");
    }
    world.step(&Step::Flush(None));
    assert_eq!(world.tick(), [(1, "granted")], "lane 1 is not before it");
    assert_eq!(release(&mut world, 1), [(2, "granted")]);
}

/// Whether a release frees something for others, as `free` announces it.
fn frees(world: &mut World, number: u8) -> bool {
    let (now, token) = (world.now, token(number));
    let release = |visit: &mut Visit<'_>| visit.release(SEM, &token);
    world.primary.call(KEY, SEM, now, release).1.is_freed
}

#[test]
fn permit_is_free_if_all_who_wait_stand_aside() {
    let mut world = world();
    let of_lane = |token, lane| waits(token, lane).limit(2).lane_limit(1);
    assert_eq!(told(&mut world, of_lane(0, 1)), "granted");
    assert_eq!(told(&mut world, of_lane(1, 1)), "waits");
    assert_eq!(told(&mut world, of_lane(2, 2)), "granted");
    assert!(frees(&mut world, 2));
}

#[test]
fn lanes_of_another_key_free_nothing_for_those_who_wait_here() {
    let mut world = world();
    let other = |token| {
        let permit = ask(OTHER, Claim::Permits(1), token);
        permit.limit(1).lane(1).block()
    };
    assert_eq!(told(&mut world, other(10)), "granted");
    assert_eq!(told(&mut world, other(11)), "waits");
    let permits = |token, count| permits(token, count).limit(3).block();
    assert_eq!(told(&mut world, permits(0, 3)), "granted");
    assert_eq!(told(&mut world, permits(1, 1)), "waits");
    assert_eq!(told(&mut world, permits(2, 3)), "waits");
    assert!(!frees(&mut world, 0), "the next needs all three");
}
