//! FAIL with DELAY: who is answered during a delay, to the millisecond when it ends, and what keeps it. Also results
//! that are kept for ever. The tables give the expected results, independently of the model.

use crate::bounds::around;
use crate::exhaustive::{self, KEY, MS};
use crate::fixture::{OTHER, word, world};
use crate::restored::{DAY, NOW, expect_bound, record};
use crate::steps::{Ask, Step, ask};
use crate::world::World;
use dsync_engine::Family;
use dsync_engine::Settings;
use dsync_engine::answer::Answer;
use dsync_engine::change::Change;
use dsync_engine::families::once::Keep;
use dsync_engine::types::{Claim, UnixMs};

fn run(token: u8) -> Ask {
    ask(KEY, Claim::Run, token)
}

fn fail(token: u8, delay_ms: u64) -> Step {
    Step::Fail(KEY, token, "broken", delay_ms)
}

/// Returns a world in which the run of token 0 has failed and asked for this delay.
fn delayed(settings: Settings, delay_ms: u64) -> World {
    let mut world = World::new(settings);
    world.ask(run(0));
    world.step(&fail(0, delay_ms));
    world
}

fn attempt(answer: Option<&Answer>) -> u64 {
    match answer {
        Some(Answer::Run { attempt, .. }) => *attempt,
        other => panic!("no run: {other:?}"),
    }
}

fn is_delayed(world: &World) -> bool {
    let state = world.primary.state(KEY).expect("the key");
    state.body.opens_at().is_some()
}

#[test]
fn delay_ends_to_its_millisecond() {
    for (at_us, when) in around(6 * MS) {
        let over = at_us >= 6 * MS;
        for ticked in [false, true] {
            let mut world = delayed(Settings::default(), 6);
            world.step(&Step::Stall { us: at_us });
            if ticked {
                world.step(&Step::Tick);
                assert_eq!(is_delayed(&world), !over, "{when}");
            }
            // A BEGIN that comes before the timer begins too.
            let answer = world.ask(run(1)).expect("a try");
            let expected = if over { "run" } else { "not granted" };
            assert_eq!(word(&answer), expected, "{when}, ticked: {ticked}");
        }
        let mut world = delayed(Settings::default(), 6);
        assert_eq!(world.ask(run(1).block()), None, "{when}");
        assert_eq!(world.ask(run(2).block()), None, "{when}");
        world.steps(&[Step::Stall { us: at_us }, Step::Tick]);
        let expected = if over { vec![(1, "run")] } else { vec![] };
        assert_eq!(world.heard(), expected, "{when}: the first waiter");
    }
}

#[test]
fn delay_of_zero_lets_next_run_begin_at_once() {
    let mut world = delayed(Settings::default(), 0);
    assert_eq!(attempt(world.ask(run(1)).as_ref()), 2);
    let mut world = world_with_waiter();
    world.step(&fail(0, 0));
    assert_eq!(world.heard(), [(1, "run")]);
}

fn world_with_waiter() -> World {
    let mut world = world();
    world.ask(run(0));
    world.ask(run(1).block());
    world
}

/// The wait of a request may run out during a delay. If both end together, the grant wins.
#[test]
fn wait_that_ends_with_the_delay_is_granted() {
    for (wait_ms, expected) in [(5, "not granted"), (6, "run"), (7, "run")] {
        let mut world = delayed(Settings::default(), 6);
        assert_eq!(world.ask(run(1).block_ms(wait_ms)), None);
        let mut heard = Vec::new();
        for _ in 0..7 {
            heard.extend(world.after_ms(1));
        }
        assert_eq!(heard, [(1, expected)], "BLOCK {wait_ms}");
    }
}

#[test]
fn exhausted_requests_get_failed_during_delay_wherever_they_stand() {
    let mut world = world();
    world.ask(run(0));
    world.ask(run(1).block());
    world.ask(run(2).max_attempts(1).block());
    world.ask(run(3).max_attempts(2).block());
    world.ask(run(4).max_attempts(1).block());
    world.step(&fail(0, 9));
    assert_eq!(world.heard(), [(2, "given up"), (4, "given up")]);
    // New requests too, whether they wait or not.
    for asked in [run(5).max_attempts(1), run(6).max_attempts(1).block()] {
        let answer = world.ask(asked).expect("an answer at once");
        assert_eq!(word(&answer), "given up");
    }
    assert_eq!(world.ask(run(7).max_attempts(2).block()), None);
    assert_eq!(world.after_ms(9), [(1, "run")], "the first in line");
    world.step(&fail(1, 9));
    assert_eq!(world.heard(), [(3, "given up"), (7, "given up")]);
}

/// The token of the failed run has nothing left to end, and an earlier run that lapsed cannot complete the work.
#[test]
fn no_token_ends_a_delay() {
    let mut world = world();
    world.ask(run(5).lease(5));
    world.after_ms(5);
    world.ask(run(0));
    world.step(&fail(0, 9));
    let saved = world.primary.saved(KEY);
    for token in [0, 5] {
        world.steps(&[
            Step::Complete(KEY, token, Some("late"), None),
            Step::Release(KEY, Family::Once, token),
            Step::Renew(KEY, Family::Once, token, None),
            Step::Revoke(KEY, Family::Once, 0),
            fail(token, 1),
        ]);
        let answer = world.ask(run(token)).expect("a try");
        assert_eq!(word(&answer), "not granted");
    }
    assert_eq!(world.primary.saved(KEY), saved, "nothing has changed");
    world.after_ms(9);
    assert_eq!(attempt(world.ask(run(1)).as_ref()), 3);
}

/// The next attempt must find the attempts before it, however short they are kept.
#[test]
fn attempts_are_kept_after_the_delay_as_after_any_change() {
    for keep_ms in [1, 40] {
        let settings = Settings {
            once_keep_ms: keep_ms,
            rejoin_ms: 0,
            ..Settings::default()
        };
        for (at_us, when) in around((100 + keep_ms) * MS) {
            for ticked in [false, true] {
                let mut world = delayed(settings, 100);
                world.step(&Step::Stall { us: at_us });
                if ticked {
                    world.step(&Step::Tick);
                }
                let answer = world.ask(run(1));
                let expected = if at_us < (100 + keep_ms) * MS { 2 } else { 1 };
                assert_eq!(
                    attempt(answer.as_ref()),
                    expected,
                    "kept for {keep_ms} ms, {when}, ticked: {ticked}"
                );
            }
        }
    }
}

#[test]
fn delay_survives_restart_and_moves_with_key() {
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
        for passed_ms in [0, 20] {
            let mut world = delayed(Settings::default(), 9);
            world.step(&Step::Pass { us: passed_ms * MS });
            world.step(&way);
            let waits = ask(there, Claim::Run, 1).block();
            let mut answer = world.ask(waits);
            assert_eq!(answer.is_some(), passed_ms > 9, "{way:?}");
            if answer.is_none() {
                world.after_ms(9);
                answer = world.told.first().map(|(_, answer)| answer.clone());
            }
            assert_eq!(attempt(answer.as_ref()), 2, "{way:?}");
        }
    }
}

/// A delay that ends while nobody waits is carried out too: on a promoted or restarted server by its timer.
#[test]
fn delay_ends_by_timer_after_restart_and_failover() {
    for way in [
        Step::Restart {
            as_changes: false,
            ms: 30,
        },
        Step::Restart {
            as_changes: true,
            ms: 30,
        },
        Step::Failover { ms: 30 },
        Step::Demote { ms: 30 },
    ] {
        let mut world = delayed(Settings::default(), 9);
        world.step(&way);
        assert!(is_delayed(&world), "{way:?}: nothing is decided before");
        world.step(&Step::Tick);
        assert!(!is_delayed(&world), "{way:?}");
    }
}

#[test]
fn removal_of_delayed_key_grants_its_waiter_at_once() {
    for way in [
        Step::Delete(KEY),
        Step::Flush(None),
        Step::Rename(KEY, OTHER),
        Step::Swap(0, 1),
    ] {
        let mut world = delayed(Settings::default(), 1_000);
        world.ask(run(1).block());
        world.steps(&[way.clone(), Step::Tick]);
        let [(1, answer)] = &world.told[..] else {
            panic!("{way:?}: {:?}", world.told);
        };
        assert_eq!(attempt(Some(answer)), 1, "{way:?}");
    }
}

/// A delay runs by the wall clock. What has ended stays so when the clock steps back.
#[test]
fn wall_clock_that_steps_moves_the_end_of_a_delay() {
    let mut world = delayed(Settings::default(), 10);
    world.ask(run(1).block());
    world.now.unix_us -= 5 * MS;
    assert_eq!(world.after_ms(14), []);
    assert_eq!(world.after_ms(1), [(1, "run")]);

    let mut world = delayed(Settings::default(), 10_000);
    world.ask(run(1).block());
    world.now.unix_us += 10_000 * MS;
    assert_eq!(world.tick(), [(1, "run")]);

    let mut world = delayed(Settings::default(), 10);
    world.after_ms(10);
    world.now.unix_us -= 5_000 * MS;
    world.step(&Step::Tick);
    let answer = world.ask(run(1)).expect("a try");
    assert_eq!(word(&answer), "run", "the delay has ended already");
}

/// While the server takes no writes, a delay does not end; it ends when writes are taken again.
#[test]
fn delay_that_is_over_waits_for_writes() {
    let mut world = delayed(Settings::default(), 5);
    world.ask(run(1).block());
    world.step(&Step::MayWrite(false));
    assert_eq!(world.after_ms(50), []);
    world.step(&Step::MayWrite(true));
    assert_eq!(world.tick(), [(1, "run")]);
}

#[test]
fn result_kept_for_ever_outlives_any_clock() {
    let mut world = world();
    world.ask(run(0));
    world.step(&Step::Complete(KEY, 0, Some("r"), Some(Keep::Forever)));
    let saved = world.primary.saved(KEY);
    // DONE again changes nothing, also if it asks for another time.
    world.step(&Step::Complete(KEY, 0, Some("r"), Some(Keep::ForMs(1))));
    for unix_ms in [UnixMs::MAX.0 - 1, UnixMs::MAX.0, UnixMs::MAX.0 + 1] {
        world.now.unix_us = unix_ms * MS;
        world.step(&Step::Tick);
        let answer = world.ask(run(1)).expect("a try");
        assert_eq!(word(&answer), "done", "in the year 10889");
        assert_eq!(world.primary.saved(KEY), saved);
    }
    assert_eq!(
        world.primary.engine.next_wake(world.now),
        None,
        "no deadline is left"
    );
    world.steps(&[Step::Delete(KEY), Step::Tick]);
    assert!(world.primary.state(KEY).is_none(), "DEL forgets");
}

#[test]
fn keep_time_ends_to_its_millisecond_and_never_for_ever() {
    let now = UnixMs(7);
    for (keep, at, has_come) in [
        (Keep::ForMs(2), 8, false),
        (Keep::ForMs(2), 9, true),
        (Keep::ForMs(2), 10, true),
        (Keep::Forever, UnixMs::MAX.0, false),
    ] {
        let until = keep.until(now);
        assert_eq!(until.has_come(UnixMs(at)), has_come, "{keep:?} at {at}");
    }
}

/// Runs that fail and ask for a delay, and records that are kept for as long as the delay.
#[test]
fn delayed_work_in_every_short_history() {
    let short = |token: u8| run(token).lease(3);
    let forgets = Settings {
        rejoin_ms: 0,
        once_keep_ms: 4,
        ..exhaustive::settings()
    };
    let alphabet = [
        Step::Acquire(short(0)),
        Step::Acquire(short(1).block()),
        Step::Acquire(short(2).max_attempts(1).block()),
        Step::Acquire(short(3).max_attempts(2)),
        fail(0, 3),
        fail(1, 5),
        Step::Complete(KEY, 0, None, Some(Keep::Forever)),
        Step::Release(KEY, Family::Once, 1),
        Step::Disconnect(1),
        Step::Delete(KEY),
        Step::Pass { us: 3 * MS },
        Step::Tick,
    ];
    let failed = [Step::Acquire(short(0)), fail(0, 3)];
    exhaustive::all_sequences(forgets, &failed, &alphabet, 4);
}

#[test]
fn restored_delay_beyond_the_longest_lease_is_refused() {
    let lasting = |more| {
        let until = Some(UnixMs(NOW + 2 * DAY + more));
        vec![Change::Record(record()), Change::Delay { until }]
    };
    expect_bound(
        "delay",
        Family::Once,
        lasting,
        "its delay lasts 172800001 ms more, and dsync.max-lease-ms is 86400000, and a day more for the clock of another \
         server",
    );
}
