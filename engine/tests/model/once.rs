//! Work-once at its bounds: how many attempts a request allows, whose DONE is accepted, what is kept and for how long.
//! The tables give the expected results, independently of the model.

use crate::bounds::around;
use crate::exhaustive::{KEY, MS};
use crate::fixture::{word, world};
use crate::kept::KEEP_MS;
use crate::steps::{Ask, Step, ask};
use crate::world::World;
use dsync_engine::answer::Answer;
use dsync_engine::families::once::Keep;
use dsync_engine::types::Claim;
use dsync_engine::{Family, Settings};

const OTHER: (i32, u8) = (0, 1);

fn run(token: u8) -> Ask {
    ask(KEY, Claim::Run, token)
}

fn fail(token: u8) -> Step {
    Step::Fail(KEY, token, "broken", 0)
}

fn done(token: u8) -> Step {
    Step::Complete(KEY, token, Some("result"), None)
}

/// Lets the token's run lapse. The key must stay.
fn lapse(world: &mut World, token: u8) {
    world.ask(run(token).lease(5));
    assert_eq!(world.after_ms(5), []);
}

fn is_done(world: &World) -> bool {
    let content = world.model.content(KEY);
    content.is_some_and(|content| content.work.done.is_some())
}

fn attempt(answer: Option<&Answer>) -> u64 {
    match answer {
        Some(Answer::Run { attempt, .. }) => *attempt,
        other => panic!("no run: {other:?}"),
    }
}

#[test]
fn request_allows_as_many_attempts_as_its_max() {
    for made in 0..4 {
        for max_attempts in [None, Some(1), Some(2), Some(3), Some(4)] {
            for queued in [false, true] {
                if queued && made == 0 {
                    continue;
                }
                let case = format!("{made} made, MAX {max_attempts:?}, queued: {queued}");
                let mut world = world();
                let asked = Ask {
                    max_attempts,
                    ..run(9)
                };
                let mut answer = None;
                for number in 1..=made {
                    world.ask(run(number));
                    // A request with BLOCK queues behind the current run.
                    if queued && number == made {
                        assert_eq!(world.ask(asked.clone().block()), None, "{case}");
                    }
                    world.step(&fail(number));
                    answer = world.told.first().map(|(_, answer)| answer.clone());
                }
                if !queued {
                    answer = world.ask(asked);
                }
                if max_attempts.is_none_or(|max_attempts| u64::from(made) < u64::from(max_attempts))
                {
                    assert_eq!(attempt(answer.as_ref()), u64::from(made) + 1, "{case}");
                } else {
                    let reason = b"broken".as_slice().into();
                    let attempts = u64::from(made);
                    assert_eq!(answer, Some(Answer::GivenUp { reason, attempts }), "{case}");
                }
            }
        }
    }
}

/// Each waiter has its own MAX: one that gets FAILED makes room for the next.
#[test]
fn exhausted_waiters_get_failed_until_one_may_run() {
    let mut world = world();
    world.ask(run(0));
    world.ask(run(1).max_attempts(1).block());
    world.ask(run(2).max_attempts(1).block());
    world.ask(run(3).max_attempts(2).block());
    world.ask(run(4).max_attempts(1).block());
    world.step(&fail(0));
    assert_eq!(
        world.heard(),
        [(1, "given up"), (2, "given up"), (3, "run")]
    );
    world.step(&Step::Complete(KEY, 3, None, None));
    assert_eq!(world.heard(), [(4, "done")]);
}

#[test]
fn released_run_is_no_attempt() {
    for how in ["released", "undelivered"] {
        let mut world = world();
        world.ask(run(0));
        world.ask(run(1).block());
        world.ask(run(2).block());
        world.step(&fail(0));
        assert_eq!(world.heard(), [(1, "run")], "{how}");
        if how == "released" {
            world.step(&Step::Release(KEY, Family::Once, 1));
        } else {
            world.step(&Step::FindGone {
                reported_first: true,
            });
            world.step(&Step::Tick);
        }
        let answer = world.told.iter().find(|(conn, _)| *conn == 2);
        assert_eq!(attempt(answer.map(|(_, answer)| answer)), 2, "{how}");
        // A first attempt that is handed back leaves nothing behind.
        let mut world = World::new(Settings::default());
        world.ask(run(0));
        world.step(&Step::Release(KEY, Family::Once, 0));
        assert!(world.primary.state(KEY).is_none());
    }
}

/// Events after a run lapsed, and whether its DONE is still accepted after each.
#[test]
fn done_after_lapse_is_accepted_until_next_run_or_failed() {
    let newer = [Step::Acquire(run(1))];
    let newer_failed = [Step::Acquire(run(1)), fail(1)];
    let newer_released = [Step::Acquire(run(1)), Step::Release(KEY, Family::Once, 1)];
    let newer_lapsed = [
        Step::Acquire(run(1).lease(5)),
        Step::Pass { us: 5 * MS },
        Step::Tick,
    ];
    let given_up = [Step::Acquire(run(1).max_attempts(1))];
    let looked_at = [
        Step::Renew(KEY, Family::Once, 0, None),
        Step::Check(KEY, Family::Once, 0),
        fail(0),
        Step::Release(KEY, Family::Once, 0),
        done(1),
    ];
    let deleted = [Step::Delete(KEY)];
    let and_back = [Step::Rename(KEY, OTHER), Step::Rename(OTHER, KEY)];
    let overwritten = [Step::Overwrite(KEY), Step::Delete(KEY)];
    let restarted = |as_changes| [Step::Restart { as_changes, ms: 3 }];
    let failed_over = [Step::Failover { ms: 3 }];
    let demoted = [Step::Demote { ms: 3 }];
    let cases: [(&[Step], bool); 14] = [
        (&[], true),
        (&looked_at, true),
        (&newer, false),
        (&newer_failed, false),
        (&newer_released, false),
        (&newer_lapsed, false),
        (&given_up, false),
        (&deleted, false),
        (&overwritten, false),
        (&and_back, true),
        (&restarted(false), true),
        (&restarted(true), true),
        (&failed_over, true),
        (&demoted, true),
    ];
    for (since, accepted) in cases {
        for end in ["lapsed", "disconnected"] {
            let mut world = world();
            if end == "lapsed" {
                lapse(&mut world, 0);
            } else {
                world.ask(run(0).ephemeral());
                world.steps(&[Step::Disconnect(0), Step::Tick]);
            }
            world.steps(since);
            world.step(&done(0));
            assert_eq!(is_done(&world), accepted, "{end}, then {since:?}");
        }
    }
}

/// A run lapsed, and a dead client's kept place had its turn before the DONE came. The DONE was refused, and the work
/// was done again.
#[test]
fn done_after_lapse_is_accepted_while_next_run_is_unheard_and_after_it() {
    let nobody_asks = [Step::Pass { us: 30_000 * MS }, Step::Tick];
    let [asked, renewed] = [
        [Step::Acquire(run(1).keep(KEEP_MS))],
        [Step::Renew(KEY, Family::Once, 1, None)],
    ];
    let looked_at = [
        Step::Check(KEY, Family::Once, 1),
        Step::Acquire(run(5)),
        Step::Renew(KEY, Family::Once, 0, None),
        Step::Release(KEY, Family::Once, 0),
        fail(0),
        done(5),
    ];
    let released = [Step::Release(KEY, Family::Once, 1)];
    let revoked = [Step::Revoke(KEY, Family::Once, 0)];
    let failed = [fail(1)];
    let paused = [Step::Pause(KEY, Family::Once, 60_000)];
    let another = [
        Step::Acquire(run(2).keep(KEEP_MS)),
        Step::Pass { us: 9_000 * MS },
        Step::Tick,
    ];
    let another_heard = [&another[..], &[Step::Acquire(run(2).keep(KEEP_MS))]].concat();
    let another_gone = [
        Step::Acquire(run(2).block()),
        Step::Pass { us: 9_000 * MS },
        Step::Tick,
        Step::FindGone {
            reported_first: true,
        },
        Step::Tick,
    ];
    let another_lives = &another_gone[..3];
    let given_up = [&nobody_asks[..], &[Step::Acquire(run(2).max_attempts(1))]].concat();
    let and_back = [Step::Rename(KEY, OTHER), Step::Rename(OTHER, KEY)];
    let restarted = |as_changes| [Step::Restart { as_changes, ms: 3 }];
    let failed_over = [Step::Failover { ms: 3 }];
    let demoted = [Step::Demote { ms: 3 }];
    let cases: [(&[Step], bool); 18] = [
        (&[], true),
        (&nobody_asks, true),
        (&looked_at, true),
        (&asked, false),
        (&renewed, false),
        (&released, false),
        (&revoked, false),
        (&failed, false),
        (&paused, true),
        (&another, true),
        (&another_heard, false),
        (&another_gone, true),
        (another_lives, false),
        (&given_up, false),
        (&and_back, true),
        (&restarted(false), true),
        (&restarted(true), true),
        (&failed_over, true),
    ];
    let cases = cases.into_iter().chain([(&demoted[..], true)]);
    for (since, accepted) in cases {
        for later in [&[][..], &nobody_asks[..]] {
            let mut world = world();
            world.ask(run(0).lease(5));
            world.ask(run(1).keep(KEEP_MS));
            assert_eq!(world.after_ms(5), []);
            assert_eq!(world.holders(KEY), 1, "the place has its turn");
            world.steps(since);
            world.steps(later);
            world.step(&done(0));
            let case = format!("{since:?}, then {later:?}");
            assert_eq!(is_done(&world), accepted, "{case}");
            if accepted {
                // The run that nobody heard of counts as no attempt, and its client is told the result.
                let result = Some(b"result".as_slice().into());
                let told = world.ask(run(1).keep(KEEP_MS));
                assert_eq!(told, Some(Answer::Done { result, attempt: 1 }), "{case}");
            }
        }
    }
}

/// Who waits behind an unheard run gets the result of the late DONE, and the run leaves the gauges.
#[test]
fn late_done_ends_unheard_run_and_goes_to_waiters() {
    let mut world = world();
    world.ask(run(0).lease(5));
    world.ask(run(1).keep(KEEP_MS));
    world.ask(run(2).block());
    assert_eq!(world.after_ms(5), []);
    world.step(&done(0));
    assert_eq!(world.heard(), [(2, "done")]);
    assert_eq!(world.primary.engine.holds(Family::Once), 0);
    let stats = world.primary.engine.stats();
    assert_eq!(stats.counters(Family::Once).undelivered, 1);
    assert_eq!(
        world.primary.engine.stats().counters(Family::Once).released,
        0
    );
}

/// The attempts and the reason are those of before, for whoever gives up after the turn of a dead client.
#[test]
fn undelivered_run_leaves_attempts_and_reason_as_before() {
    let mut world = world();
    world.ask(run(0).lease(5));
    world.ask(run(1).keep(KEEP_MS));
    world.after_ms(5);
    world.after_ms(u64::from(KEEP_MS) + 1);
    let answer = world.ask(run(2).max_attempts(1));
    let reason = b"lapsed".as_slice().into();
    assert_eq!(
        answer,
        Some(Answer::GivenUp {
            reason,
            attempts: 1
        })
    );
}

/// A run that failed, was released or was revoked did not lapse, so its DONE comes too late.
#[test]
fn done_after_fail_release_or_revocation_is_refused() {
    let ends = [
        fail(0),
        Step::Release(KEY, Family::Once, 0),
        Step::Revoke(KEY, Family::Once, 0),
    ];
    for end in ends {
        let mut world = world();
        // Use the second attempt, so that the key stays.
        lapse(&mut world, 5);
        world.ask(run(0));
        world.steps(&[end.clone(), done(0), done(5)]);
        assert!(!is_done(&world), "{end:?}");
    }
}

#[test]
fn reason_is_of_last_attempt_that_counts() {
    let run_ephemeral = || Step::Acquire(run(0).ephemeral());
    let ends: [(&[Step], &str); 4] = [
        (&[run_ephemeral(), fail(0)], "broken"),
        (
            &[run_ephemeral(), Step::Pass { us: 10_000 * MS }, Step::Tick],
            "lapsed",
        ),
        (
            &[run_ephemeral(), Step::Disconnect(0), Step::Tick],
            "lapsed",
        ),
        (
            &[run_ephemeral(), Step::Revoke(KEY, Family::Once, 0)],
            "revoked",
        ),
    ];
    for (first, _) in &ends {
        for (last, reason) in &ends {
            let mut world = world();
            world.steps(first);
            world.steps(last);
            // A run that is handed back leaves no reason.
            world.ask(run(1));
            world.step(&Step::Release(KEY, Family::Once, 1));
            let reason = reason.as_bytes().into();
            let answer = world.ask(run(2).max_attempts(2));
            let attempts = 2;
            assert_eq!(
                answer,
                Some(Answer::GivenUp { reason, attempts }),
                "{first:?}, {last:?}"
            );
        }
    }
}

#[test]
fn repeated_done_by_same_token_changes_nothing() {
    let mut world = world();
    world.ask(run(0));
    world.step(&done(0));
    let saved = world.primary.saved(KEY);
    world.steps(&[
        Step::Pass { us: MS },
        Step::Complete(KEY, 0, Some("another"), Some(Keep::ForMs(1))),
        Step::Complete(KEY, 1, Some("a stranger's"), Some(Keep::ForMs(1))),
        fail(0),
        Step::Release(KEY, Family::Once, 0),
        Step::Renew(KEY, Family::Once, 0, None),
    ]);
    assert_eq!(world.primary.saved(KEY), saved);
    let result = Some(b"result".as_slice().into());
    let answer = world.ask(run(0).block());
    assert_eq!(answer, Some(Answer::Done { result, attempt: 1 }));
}

#[test]
fn result_is_kept_to_its_millisecond() {
    for (at_us, when) in around(6 * MS) {
        for asked in [false, true] {
            let mut world = world();
            lapse(&mut world, 0);
            world.ask(run(1));
            world.step(&Step::Complete(KEY, 1, Some("r"), Some(Keep::ForMs(6))));
            world.step(&Step::Stall { us: at_us });
            if !asked {
                world.step(&Step::Tick);
            }
            // A BEGIN that comes before the timer must find the key gone too.
            let answer = world.ask(run(2)).expect("a try");
            let expected = if at_us < 6 * MS { "done" } else { "run" };
            assert_eq!(word(&answer), expected, "{when}, asked: {asked}");
            if at_us >= 6 * MS {
                assert_eq!(attempt(Some(&answer)), 1, "{when}: forgotten");
            }
        }
    }
}

#[test]
fn attempts_are_kept_to_the_millisecond_after_last_event() {
    let settings = Settings {
        once_keep_ms: 40,
        rejoin_ms: 0,
        ..Settings::default()
    };
    let failed: &[Step] = &[Step::Acquire(run(0)), fail(0)];
    let lapsed: &[Step] = &[
        Step::Acquire(run(0).lease(5)),
        Step::Pass { us: 5 * MS },
        Step::Tick,
    ];
    let revoked: &[Step] = &[
        Step::Acquire(run(0)),
        Step::Pass { us: 7 * MS },
        Step::Revoke(KEY, Family::Once, 0),
    ];
    let handed_back: &[Step] = &[
        Step::Acquire(run(0)),
        fail(0),
        Step::Pass { us: 30 * MS },
        Step::Acquire(run(1)),
        Step::Pass { us: 9 * MS },
        Step::Release(KEY, Family::Once, 1),
    ];
    // While a run lives, the attempts before it are not forgotten.
    let ran_for_long: &[Step] = &[
        Step::Acquire(run(0)),
        fail(0),
        Step::Acquire(run(1)),
        Step::Pass { us: 400 * MS },
        Step::Tick,
        fail(1),
    ];
    for (before, attempts) in [
        (failed, 1),
        (lapsed, 1),
        (revoked, 1),
        (handed_back, 1),
        (ran_for_long, 2),
    ] {
        for (at_us, when) in around(40 * MS) {
            for asked in [false, true] {
                let mut world = World::new(settings);
                world.steps(before);
                world.step(&Step::Stall { us: at_us });
                if !asked {
                    world.step(&Step::Tick);
                }
                let answer = world.ask(run(2));
                let expected = if at_us < 40 * MS { attempts + 1 } else { 1 };
                let found = attempt(answer.as_ref());
                assert_eq!(found, expected, "{before:?}, {when}, asked: {asked}");
            }
        }
    }
}

/// Attempts, the run and the result move with the key, and survive a restart, a failover and a demotion.
#[test]
fn work_record_survives_restart_and_moves_with_key() {
    let ways = [
        Step::Rename(KEY, OTHER),
        Step::Rename(KEY, (1, 0)),
        Step::Swap(0, 1),
        Step::Restart {
            as_changes: false,
            ms: 3,
        },
        Step::Restart {
            as_changes: true,
            ms: 3,
        },
        Step::Failover { ms: 3 },
        Step::Demote { ms: 3 },
    ];
    for way in ways {
        let there = match way {
            Step::Rename(_, to) => to,
            Step::Swap(..) => (1, 0),
            _ => KEY,
        };
        let again = |token: u8| ask(there, Claim::Run, token);
        let mut world = world();
        world.ask(run(0));
        world.step(&fail(0));
        world.ask(run(1));
        world.step(&way);
        let answer = world.ask(again(1));
        assert_eq!(attempt(answer.as_ref()), 2, "{way:?}: the same run");
        world.step(&Step::Complete(there, 1, Some("r"), None));
        let answer = world.ask(again(2)).expect("a try");
        assert_eq!(word(&answer), "done", "{way:?}");
    }
}

/// DEL forgets the record, so the first waiter runs as attempt 1.
#[test]
fn waiter_of_removed_work_key_runs_as_attempt_one() {
    let ways = [
        Step::Delete(KEY),
        Step::Flush(None),
        Step::Rename(KEY, OTHER),
        Step::Swap(0, 1),
    ];
    for way in ways {
        let mut world = world();
        lapse(&mut world, 0);
        world.ask(run(1));
        world.ask(run(2).max_attempts(1).block());
        world.step(&way);
        world.step(&Step::Tick);
        let [(2, answer)] = &world.told[..] else {
            panic!("{way:?}: {:?}", world.told);
        };
        assert_eq!(attempt(Some(answer)), 1, "{way:?}");
        world.step(&done(0));
        world.step(&done(1));
        assert!(
            !is_done(&world),
            "{way:?}: DONE of the removed key is not accepted"
        );
    }
}

/// A request that bounds its attempts is told before its turn during a delay only.
#[test]
fn result_is_told_in_the_order_of_arrival() {
    let mut world = world();
    world.ask(run(0));
    world.ask(run(1).block());
    world.ask(run(2).max_attempts(5).block());
    world.step(&done(0));
    let told: Vec<usize> = world.told.iter().map(|(conn, _)| *conn).collect();
    assert_eq!(told, [1, 2]);
}
