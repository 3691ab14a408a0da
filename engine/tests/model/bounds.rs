//! Moments and numbers at their bounds: one microsecond (or one unit) before, at and after each. The tables give the
//! expected results, independently of the model.

use crate::exhaustive::{KEY, MS, settings};
use crate::model::TICK_US;
use crate::steps::{Step, ask};
use crate::world::World;
use dsync_engine::answer::{Answer, FullQueue, Refusal};
use dsync_engine::types::{Claim, MAX_PERMITS};
use dsync_engine::{Family, Settings};

/// Returns the steps that do everything which is due after this many milliseconds.
pub fn later(ms: u64) -> [Step; 2] {
    [Step::Pass { us: ms * MS }, Step::Tick]
}

/// Returns the microsecond before a moment, the moment, and the microsecond after it.
pub fn around(moment_us: u64) -> [(u64, &'static str); 3] {
    [
        (moment_us - 1, "a microsecond before"),
        (moment_us, "at the moment"),
        (moment_us + 1, "after it"),
    ]
}

fn granted(answer: &Option<Answer>) -> bool {
    matches!(answer, Some(Answer::Granted { .. }))
}

#[test]
fn lease_ends_at_its_microsecond_for_any_request() {
    for lease_ms in [1, 7, 10_000] {
        for (at_us, when) in around(u64::from(lease_ms) * MS) {
            let over = at_us >= u64::from(lease_ms) * MS;
            let case = format!("a lease of {lease_ms} ms, {when}");
            let held = |renewed_at: Option<u64>| {
                let mut world = World::new(settings());
                world.step(&Step::Acquire(
                    ask(KEY, Claim::Exclusive, 0).lease(lease_ms),
                ));
                if let Some(us) = renewed_at {
                    world.step(&Step::Pass { us });
                    world.step(&Step::Renew(KEY, Family::Lock, 0, None));
                }
                world.step(&Step::Pass { us: at_us });
                world
            };
            // From that microsecond on a try finds the lock free, and CHECK answers 0; before it CHECK answers 1.
            let mut world = held(None);
            let left_ms = world
                .model
                .check(KEY, Family::Lock, &crate::steps::token(0), world.now);
            assert_eq!(left_ms, Some(u64::from(!over)), "{case}");
            world.step(&Step::Check(KEY, Family::Lock, 0));
            let answer = world.step(&Step::Acquire(ask(KEY, Claim::Exclusive, 1)));
            assert_eq!(granted(&answer), over, "{case}: a try");
            let renewed: Vec<bool> = world.ended.iter().map(|(_, end)| end.is_renewed).collect();
            let expected: &[bool] = if over { &[false] } else { &[] };
            assert_eq!(renewed, expected, "{case}: it had never been renewed");
            // The token can still renew the hold, or retry its request, as long as no call has ended the hold.
            let mut world = held(None);
            world.step(&Step::Renew(KEY, Family::Lock, 0, Some(5)));
            let answer = world.step(&Step::Acquire(ask(KEY, Claim::Exclusive, 1)));
            assert!(!granted(&answer), "{case}: renewed");
            let mut world = held(None);
            assert!(
                granted(&world.step(&Step::Acquire(ask(KEY, Claim::Exclusive, 0)))),
                "{case}"
            );
            let answer = world.step(&Step::Acquire(ask(KEY, Claim::Exclusive, 1)));
            assert!(!granted(&answer), "{case}: had again");
            // A renewal moves the moment, and its duration is used by the next renewal.
            let mut world = held(Some(300));
            let answer = world.step(&Step::Acquire(ask(KEY, Claim::Exclusive, 1)));
            assert_eq!(granted(&answer), over, "{case}: after a renewal");
            let renewed: Vec<bool> = world.ended.iter().map(|(_, end)| end.is_renewed).collect();
            let expected: &[bool] = if over { &[true] } else { &[] };
            assert_eq!(renewed, expected, "{case}: it had been renewed");
        }
    }
}

#[test]
fn timer_lapses_never_early_and_at_most_a_tick_late() {
    for lease_ms in [1_u32, 2, 64, 65, 5_000] {
        let due_us = u64::from(lease_ms) * MS;
        let mut world = World::new(settings());
        world.step(&Step::Acquire(
            ask(KEY, Claim::Exclusive, 0).lease(lease_ms),
        ));
        world.step(&Step::Acquire(ask(KEY, Claim::Exclusive, 1).block()));
        // Ask the engine directly, because a step of the world waits for a whole tick.
        world.now.lease.0 = due_us - 1;
        assert!(
            world.primary.run_tasks(world.now).is_empty(),
            "{lease_ms} ms: early"
        );
        world.now.lease.0 = due_us.next_multiple_of(TICK_US);
        world.step(&Step::Tick);
        assert!(
            matches!(world.told[..], [(1, Answer::Granted { .. })]),
            "{lease_ms} ms: late"
        );
    }
}

#[test]
fn wait_runs_out_at_its_microsecond() {
    for claim in [Claim::Exclusive, Claim::Shared] {
        for (at_us, when) in around(5 * MS) {
            let mut world = World::new(settings());
            world.step(&Step::Acquire(ask(KEY, Claim::Exclusive, 0)));
            world.step(&Step::Acquire(ask(KEY, claim, 1).block_ms(5)));
            world.steps(&[Step::Stall { us: at_us }, Step::Tick]);
            let expected: &[_] = if at_us < 5 * MS {
                &[]
            } else {
                &[(1, Answer::NotGranted)]
            };
            assert_eq!(world.told, expected, "{claim:?}, {when}");
        }
    }
    for (at_us, when) in around(5 * MS) {
        let mut world = World::new(settings());
        world.step(&Step::Expect(KEY, 1));
        world.step(&Step::Wait(KEY, Some(crate::steps::Block::Ms(5)), 1));
        world.steps(&[Step::Stall { us: at_us }, Step::Tick]);
        let expected: &[_] = if at_us < 5 * MS {
            &[]
        } else {
            &[(1, Answer::NotGranted)]
        };
        assert_eq!(world.told, expected, "WAIT, {when}");
    }
}

#[test]
fn grant_due_with_timeout_wins() {
    for by in ["its lease", "the end of its connection"] {
        for stall_us in [5 * MS, 5 * MS + 1, 50 * MS] {
            let mut world = World::new(settings());
            world.step(&Step::Acquire(
                ask(KEY, Claim::Exclusive, 0).lease(5).ephemeral(),
            ));
            world.step(&Step::Acquire(ask(KEY, Claim::Exclusive, 1).block_ms(5)));
            if by == "its lease" {
                world.step(&Step::Pass { us: stall_us });
            } else {
                world.steps(&[Step::Disconnect(0), Step::Stall { us: stall_us }]);
            }
            world.step(&Step::Tick);
            let won = matches!(world.told[..], [(1, Answer::Granted { .. })]);
            assert!(
                won,
                "the holder ends by {by}, {stall_us} µs on: {:?}",
                world.told
            );
        }
    }
}

#[test]
fn vacant_place_is_kept_to_its_microsecond() {
    for (at_us, when) in around(4 * MS) {
        let mut world = World::new(settings());
        world.step(&Step::Acquire(ask(KEY, Claim::Exclusive, 0)));
        world.step(&Step::Acquire(ask(KEY, Claim::Exclusive, 1).block()));
        world.step(&Step::Acquire(ask(KEY, Claim::Exclusive, 2).block()));
        world.steps(&[Step::Disconnect(1), Step::Stall { us: at_us }, Step::Tick]);
        world.step(&Step::Acquire(ask(KEY, Claim::Exclusive, 1).block()));
        world.step(&Step::Release(KEY, Family::Lock, 0));
        let first = if at_us < 4 * MS { 1 } else { 2 };
        let won = matches!(world.told[..], [(conn, Answer::Granted { .. })] if conn == first);
        assert!(
            won,
            "back {when}: {first} should be first, {:?}",
            world.told
        );
    }
}

#[test]
fn limits_and_permits_hold_at_their_bounds() {
    let too_many = |permits, limit| Some(Answer::Refused(Refusal::TooMany { permits, limit }));
    for limit in [1, 2, MAX_PERMITS] {
        for used in [0, 1, limit - 1, limit] {
            for permits in [1, limit - 1, limit, limit + 1] {
                if permits == 0 || permits > MAX_PERMITS {
                    continue;
                }
                let case = format!("{permits} of {limit}, {used} used");
                let mut world = World::new(settings());
                if used > 0 {
                    world.step(&Step::Acquire(
                        ask(KEY, Claim::Permits(used), 0).limit(limit),
                    ));
                }
                let asked = ask(KEY, Claim::Permits(permits), 1).limit(limit);
                let answer = world.step(&Step::Acquire(asked.clone()));
                if permits > limit {
                    assert_eq!(answer, too_many(permits, limit), "{case}");
                } else {
                    assert_eq!(granted(&answer), used + permits <= limit, "{case}");
                }
                // A request that queues instead is served when there is room.
                let mut world = World::new(settings());
                if used > 0 {
                    world.step(&Step::Acquire(
                        ask(KEY, Claim::Permits(used), 0).limit(limit),
                    ));
                }
                let answer = world.step(&Step::Acquire(asked.block()));
                assert_eq!(
                    answer.is_none(),
                    permits <= limit && used + permits > limit,
                    "{case}"
                );
            }
        }
    }
}

#[test]
fn pinned_limits_hold_at_their_bounds() {
    for pinned in [0, 1, 3] {
        for permits in [1, 3, 4] {
            let case = format!("{permits} of a pinned {pinned}");
            let mut world = World::new(settings());
            world.step(&Step::Pin(KEY, Some(pinned)));
            // A pinned limit overrules the limit of the request.
            let asked = ask(KEY, Claim::Permits(permits), 1).limit(MAX_PERMITS);
            let answer = world.step(&Step::Acquire(asked));
            match pinned {
                0 => assert_eq!(answer, Some(Answer::NotGranted), "{case}"),
                _ if permits <= pinned => assert!(granted(&answer), "{case}"),
                _ => {
                    let refusal = Refusal::TooMany {
                        permits,
                        limit: pinned,
                    };
                    assert_eq!(answer, Some(Answer::Refused(refusal)), "{case}");
                }
            }
        }
    }
}

#[test]
fn queues_hold_at_their_bounds() {
    for per_key in 1..4_u8 {
        for server in 1..6_u8 {
            let bounds = Settings {
                max_waiters_per_key: u64::from(per_key),
                max_waiters: u64::from(server),
                ..settings()
            };
            let mut world = World::new(bounds);
            let other = (0, 2);
            world.step(&Step::Acquire(ask(KEY, Claim::Exclusive, 0)));
            world.step(&Step::Acquire(ask(other, Claim::Exclusive, 0)));
            world.step(&Step::Acquire(ask(other, Claim::Exclusive, 1).block()));
            for token in 2..9 {
                let case = format!("{per_key} a key, {server} in all, token {token}");
                let before = (token - 2).min(per_key).min(server - 1);
                let answer = world.step(&Step::Acquire(ask(KEY, Claim::Exclusive, token).block()));
                let full = if before >= per_key {
                    Some(FullQueue::Key(u64::from(per_key)))
                } else if before + 1 >= server {
                    Some(FullQueue::Server(u64::from(server)))
                } else {
                    None
                };
                let expected = full.map(|full| Answer::Refused(Refusal::QueueFull(full)));
                assert_eq!(answer, expected, "{case}");
            }
        }
    }
}

/// The contract says that the oldest vacant place goes first. Of two that became vacant in the same microsecond this is
/// the one that was taken first, whatever their keys.
#[test]
fn of_places_vacated_together_the_first_taken_goes_first() {
    let mut world = World::new(Settings {
        max_waiters: 3,
        ..settings()
    });
    let other = (0, 1);
    world.step(&Step::Acquire(ask(KEY, Claim::Exclusive, 0)));
    world.step(&Step::Acquire(ask(other, Claim::Exclusive, 0)));
    for (name, token) in [(KEY, 1), (other, 2), (KEY, 3)] {
        world.step(&Step::Acquire(ask(name, Claim::Exclusive, token).block()));
    }
    world.step(&Step::Release(KEY, Family::Lock, 3));
    world.step(&Step::Release(other, Family::Lock, 2));
    world.step(&Step::Acquire(ask(KEY, Claim::Exclusive, 4).block()));
    for (name, token, told) in [(KEY, 3, Answer::Withdrawn), (other, 2, Answer::NotGranted)] {
        let answer = world.step(&Step::Acquire(ask(name, Claim::Exclusive, token)));
        assert_eq!(answer, Some(told), "token {token}");
    }
}

#[test]
fn lease_after_restart_has_rest_plus_grace() {
    let grace = Settings {
        takeover_grace_ms: 5,
        ..settings()
    };
    for lease_ms in [1_u32, 4, 5, 6, 20] {
        for away_ms in [0, 1, 4, 5, 6, 14, 15, 16, 19, 20, 21, 1_000] {
            for step in [
                Step::Restart {
                    as_changes: false,
                    ms: away_ms,
                },
                Step::Restart {
                    as_changes: true,
                    ms: away_ms,
                },
                Step::Failover { ms: away_ms },
                Step::Demote { ms: away_ms },
            ] {
                let case = format!("a lease of {lease_ms} ms, {step:?}");
                let mut world = World::new(grace);
                world.step(&Step::Acquire(
                    ask(KEY, Claim::Exclusive, 0).lease(lease_ms),
                ));
                world.step(&step);
                let left_ms =
                    u64::from(lease_ms).min(u64::from(lease_ms).saturating_sub(away_ms) + 5);
                for (at_us, when) in around(left_ms * MS) {
                    let over = at_us >= left_ms * MS;
                    let mut now = world.now;
                    now.lease.0 += at_us;
                    let expected = if over { 0 } else { 1 };
                    let token = crate::steps::token(0);
                    let check = world
                        .primary
                        .look(KEY, now, |look| look.check(Family::Lock, &token));
                    assert_eq!(check, Ok(expected), "{case}, {when}");
                }
                world.steps(&[Step::Pass { us: left_ms * MS }, Step::Tick]);
                assert!(world.primary.state(KEY).is_none(), "{case}");
            }
        }
    }
}
