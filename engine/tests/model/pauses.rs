//! PAUSE: nobody is granted until its end, and everything else goes on. The tables give the expected results,
//! independently of the model.

use crate::bounds::around;
use crate::exhaustive;
use crate::fixture::{KEY, MS, OTHER, exclusive, member, permits, shared, word, world};
use crate::restored::{DAY, NOW, expect_bound};
use crate::steps::{Ask, Block, Step, ask};
use crate::world::World;
use dsync_engine::Task;
use dsync_engine::change::Change;
use dsync_engine::types::{Claim, UnixMs};
use dsync_engine::{Family, Settings, Visit};

/// For each family: a claim, and the limit that its requests give.
const CLAIMS: [(Claim, Option<u32>); 5] = [
    (Claim::Exclusive, None),
    (Claim::Shared, None),
    (Claim::Permits(1), Some(9)),
    (Claim::Member, None),
    (Claim::Run, None),
];

fn request(claim: Claim, limit: Option<u32>, token: u8) -> Ask {
    Ask {
        limit,
        ..ask(KEY, claim, token)
    }
}

fn pause(family: Family, ms: u64) -> Step {
    Step::Pause(KEY, family, ms)
}

fn run(token: u8) -> Ask {
    ask(KEY, Claim::Run, token)
}

impl World {
    fn is_there(&self) -> bool {
        self.primary.state(KEY).is_some()
    }

    fn is_paused(&self) -> bool {
        let state = self.primary.state(KEY);
        state.is_some_and(|state| state.body.paused_until().is_some())
    }

    /// Returns the answer to a try.
    fn attempt(&mut self, ask: Ask) -> &'static str {
        word(&self.ask(ask).expect("a try"))
    }
}

#[test]
fn pause_ends_at_its_millisecond_for_tries_and_for_the_timer() {
    for (claim, limit) in CLAIMS {
        for (at_us, when) in around(6 * MS) {
            let case = format!("{claim:?}, {when}");
            let is_over = at_us >= 6 * MS;
            let mut world = world();
            world.step(&pause(claim.family(), 6));
            world.step(&Step::Stall { us: at_us });
            let answer = world.attempt(request(claim, limit, 1));
            assert_eq!(answer != "not granted", is_over, "{case}: a try");

            let mut world = self::world();
            world.step(&pause(claim.family(), 6));
            world.ask(request(claim, limit, 1).block());
            world.steps(&[Step::Stall { us: at_us }, Step::Tick]);
            assert_eq!(world.told.len() == 1, is_over, "{case}: a waiter");
        }
    }
}

#[test]
fn requests_queue_in_a_pause_and_are_served_in_order() {
    for how in ["its end", "PAUSE 0", "DEL"] {
        let mut world = world();
        world.step(&pause(Family::Semaphore, 50));
        for token in 1..=3 {
            let asked = permits(token, 1).limit(2).block();
            assert_eq!(world.ask(asked), None, "{how}");
        }
        assert_eq!(world.attempt(permits(4, 1).limit(9)), "not granted");
        assert_eq!(world.after_ms(49), [], "{how}");
        match how {
            "its end" => drop(world.after_ms(1)),
            "PAUSE 0" => drop(world.step(&pause(Family::Semaphore, 0))),
            _ => world.steps(&[Step::Delete(KEY), Step::Tick]),
        }
        assert_eq!(world.heard(), [(1, "granted"), (2, "granted")], "{how}");
    }
}

#[test]
fn holds_go_on_in_a_pause() {
    let mut world = world();
    for token in 0..4 {
        world.ask(shared(token).lease(10));
    }
    world.step(&pause(Family::Lock, 1_000));
    assert_eq!(world.attempt(shared(0).lease(10)), "granted", "a repeat");
    assert_eq!(world.attempt(shared(9)), "not granted", "a stranger");
    assert_eq!(world.holders(KEY), 4);
    world.step(&Step::Renew(KEY, Family::Lock, 0, Some(500)));
    world.step(&Step::Release(KEY, Family::Lock, 1));
    world.step(&Step::Revoke(KEY, Family::Lock, 1));
    assert_eq!(world.holders(KEY), 2);
    world.after_ms(11);
    assert_eq!(world.holders(KEY), 1, "the others have lapsed");
    world.step(&Step::Release(KEY, Family::Lock, 0));
    assert!(world.is_there(), "a pause keeps the key");
}

#[test]
fn pause_of_zero_on_absent_key_makes_none() {
    for family in Family::ALL {
        let mut world = world();
        world.step(&pause(family, 0));
        assert!(!world.is_there(), "{family:?}");
    }
}

#[test]
fn key_goes_with_a_pause_that_alone_kept_it() {
    for family in Family::ALL {
        for how in ["its end", "PAUSE 0"] {
            let mut world = world();
            world.step(&pause(family, 5));
            world.after_ms(4);
            assert!(world.is_there(), "{family:?}");
            match how {
                "its end" => drop(world.after_ms(1)),
                _ => drop(world.step(&pause(family, 0))),
            }
            assert!(!world.is_there(), "{family:?}, {how}");
        }
    }
}

#[test]
fn later_pause_replaces_the_one_before() {
    for (second, ends_after) in [(3, 3), (30, 30)] {
        let mut world = world();
        world.step(&pause(Family::Lock, 10));
        world.ask(exclusive(1).block());
        world.step(&pause(Family::Lock, second));
        assert_eq!(world.after_ms(ends_after - 1), []);
        assert_eq!(world.after_ms(1), [(1, "granted")], "{second} ms");
        assert!(!world.is_paused());
        assert_eq!(world.after_ms(100), [], "no second end");
    }
}

/// A pause that has ended does not begin again, and a pause that has not lasts longer.
#[test]
fn pause_follows_the_wall_clock() {
    let hour_us = 3_600_000 * MS;
    let mut world = world();
    world.step(&pause(Family::Lock, 1_000));
    world.ask(exclusive(1).block());
    world.now.unix_us -= hour_us;
    assert_eq!(world.after_ms(1_000), [], "set back");
    world.now.unix_us += hour_us;
    assert_eq!(world.tick(), [(1, "granted")], "set right");

    let mut world = self::world();
    world.step(&pause(Family::Lock, 1_000));
    world.after_ms(1_000);
    world.now.unix_us -= hour_us;
    assert_eq!(world.attempt(exclusive(1)), "granted");

    let mut world = self::world();
    world.step(&pause(Family::Lock, 3_600_000));
    world.ask(exclusive(1).block());
    world.now.unix_us += hour_us;
    assert_eq!(world.tick(), [(1, "granted")], "set forward");
}

/// The command that finds a pause over may be the renewal of an overdue hold.
#[test]
fn end_of_pause_lapses_no_hold_before_its_renewal() {
    let mut world = world();
    world.ask(exclusive(0).lease(5));
    world.step(&pause(Family::Lock, 5));
    world.steps(&[
        Step::Pass { us: 5 * MS },
        Step::Renew(KEY, Family::Lock, 0, Some(50)),
    ]);
    assert!(!world.is_paused());
    assert_eq!(world.holders(KEY), 1);
}

/// The end of the pause grants the request before the RELEASE is carried out, however late the timer is. So the RELEASE
/// ends a hold, and marks no token.
#[test]
fn release_after_a_pause_ends_the_hold() {
    let mut world = world();
    world.step(&pause(Family::Lock, 20));
    world.ask(exclusive(1).block());
    world.step(&Step::Pass { us: 20 * MS });
    world.step(&Step::Release(KEY, Family::Lock, 1));
    assert_eq!(world.heard(), [(1, "granted")]);
    assert_eq!(world.attempt(exclusive(1)), "granted");
}

#[test]
fn grant_wins_over_wait_that_ends_with_the_pause() {
    let mut world = world();
    world.step(&pause(Family::Lock, 5));
    world.ask(exclusive(1).block_ms(5));
    assert_eq!(world.after_ms(5), [(1, "granted")]);
}

/// A result is told and kept. FAILED is told to the first in line; behind another request it would come too early,
/// because that one may still do the work.
#[test]
fn paused_work_tells_results_and_failures() {
    let mut world = world();
    world.ask(run(0));
    world.ask(run(1).max_attempts(1).block());
    world.ask(run(2).block());
    world.step(&pause(Family::Once, 100));
    world.step(&Step::Fail(KEY, 0, "broken", 0));
    assert_eq!(world.heard(), [(1, "given up")]);
    assert_eq!(world.attempt(run(3).max_attempts(1)), "not granted");
    assert_eq!(world.after_ms(100), [(2, "run")]);

    let settings = Settings {
        once_keep_ms: 10,
        ..Settings::default()
    };
    let mut world = World::new(settings);
    world.ask(run(0));
    world.step(&pause(Family::Once, 100));
    world.step(&Step::Complete(KEY, 0, Some("r"), None));
    assert_eq!(world.attempt(run(1)), "done");
    world.after_ms(99);
    assert_eq!(world.attempt(run(1)), "done", "kept by the pause");
    world.after_ms(1);
    assert_eq!(world.attempt(run(1)), "run", "forgotten with its end");
}

#[test]
fn round_of_paused_group_finishes() {
    let mut world = world();
    world.ask(member(0));
    world.step(&pause(Family::Group, 100));
    world.step(&Step::Wait(KEY, Some(Block::Forever), 5));
    assert_eq!(world.ask(member(1).block_ms(10)), None);
    world.step(&Step::Done(KEY, vec![0]));
    assert_eq!(world.heard(), [], "a request waits to be added");
    assert_eq!(world.after_ms(10), [(1, "not granted"), (5, "finished")]);
}

/// A group that only a PAUSE has made has no round. To finish one would send an event for a round that was told before.
#[test]
fn pause_alone_finishes_no_round() {
    let mut world = world();
    world.step(&pause(Family::Group, 10));
    let content = world.model.content(KEY).expect("paused");
    assert_eq!(content.finished_ms, None, "and the engine is the same");
    let answer = world.step(&Step::Wait(KEY, Some(Block::Forever), 5));
    assert_eq!(word(&answer.expect("at once")), "finished");
    // With a request that waits to be added, WAIT waits for it.
    world.ask(member(1).block_ms(5));
    assert_eq!(world.step(&Step::Wait(KEY, Some(Block::Forever), 5)), None);
    assert_eq!(world.after_ms(5), [(1, "not granted"), (5, "finished")]);
    world.after_ms(5);
    assert!(!world.is_there());
}

#[test]
fn pause_moves_with_its_key_and_survives_servers() {
    let ways = [
        Step::Rename(KEY, OTHER),
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
    for (claim, limit) in CLAIMS {
        for way in &ways {
            let case = format!("{claim:?}, {way:?}");
            let (there, passed_ms) = match way {
                Step::Rename(_, to) => (*to, 0),
                Step::Swap(..) => ((1, KEY.1), 0),
                _ => (KEY, 3),
            };
            let mut world = world();
            world.step(&pause(claim.family(), 10));
            world.step(way);
            let asked = Ask {
                name: there,
                ..request(claim, limit, 1)
            };
            assert_eq!(world.ask(asked.block()), None, "{case}");
            assert_eq!(world.after_ms(9 - passed_ms), [], "{case}");
            assert_eq!(world.after_ms(1).len(), 1, "{case}");
        }
    }
}

/// A pause that ended while no server decided ends when one takes over.
#[test]
fn pause_that_ended_meanwhile_ends_at_take_over() {
    for way in [
        Step::Restart {
            as_changes: false,
            ms: 30,
        },
        Step::Failover { ms: 30 },
        Step::Demote { ms: 30 },
    ] {
        let mut world = world();
        world.ask(exclusive(0));
        world.step(&pause(Family::Lock, 10));
        world.step(&way);
        world.step(&Step::Tick);
        assert!(!world.is_paused(), "{way:?}");

        let mut world = self::world();
        world.step(&pause(Family::Lock, 10));
        world.step(&way);
        let answer = world.attempt(exclusive(1));
        assert_eq!(answer, "granted", "{way:?}: before the timer");
    }
}

#[test]
fn unwritable_server_ends_no_pause() {
    let mut world = world();
    world.step(&pause(Family::Lock, 5));
    world.ask(exclusive(1).block());
    world.step(&Step::MayWrite(false));
    assert_eq!(world.after_ms(10), []);
    assert!(world.is_paused());
    assert!(world.primary.engine.is_held_up(world.now));
    world.step(&Step::MayWrite(true));
    assert_eq!(world.tick(), [(1, "granted")]);
}

/// In a cluster the slot may be another node's. A task that stayed first would keep all others of its kind waiting.
#[test]
fn end_of_pause_of_unwritable_key_is_put_off() {
    let mut world = world();
    world.step(&pause(Family::Lock, 5));
    world.now.unix_us += 5 * MS;
    let now = world.now;
    let engine = &mut world.primary.engine;
    let (task, ..) = engine.next_task(now, &mut 100).expect("its end is due");
    assert!(matches!(task, Task::Open(_)), "{task:?}");
    let mut elsewhere = now;
    elsewhere.may_write = false;
    let perform = |visit: &mut Visit<'_>| visit.perform(task);
    let (_, done) = world.primary.call(KEY, Family::Lock, elsewhere, perform);
    assert!(done.changes.is_empty());
    let engine = &mut world.primary.engine;
    engine.check_invariants(now);
    assert_eq!(engine.next_task(now, &mut 100), None);
    assert_eq!(engine.next_wake(now), Some(50 * MS));
    world.after_ms(50);
    assert!(!world.is_there());
}

/// The end of a pause announces that capacity was gained, if there is any and nobody is queued.
#[test]
fn capacity_is_free_again_after_a_pause() {
    for (family, held, freed) in [
        (Family::Lock, None, true),
        (Family::Lock, Some(exclusive(0)), false),
        (Family::Lock, Some(shared(0)), true),
        (Family::Semaphore, Some(permits(0, 2).limit(2)), false),
        (Family::Semaphore, Some(permits(0, 1).limit(2)), true),
        (Family::Group, Some(member(0)), true),
        (Family::Once, Some(run(0)), false),
    ] {
        let case = format!("{family:?}, {held:?}");
        let mut world = world();
        if let Some(held) = held {
            world.ask(held);
        }
        world.step(&pause(family, 5));
        let mut later = world.now;
        later.unix_us += 5 * MS;
        let done = world.primary.do_overdue(KEY, later).expect("its end");
        assert_eq!(done.is_freed, freed, "{case}");
    }
}

/// A pause outlasted the tally of a finished round, and an ADD waited for its end. The round was forgotten then, and
/// nothing may follow VANISH in one command, so the ADD is served right after it.
#[test]
fn add_that_waits_for_the_end_of_a_pause_outlives_the_finished_round() {
    let mut world = World::new(Settings {
        group_keep_ms: 20,
        ..Settings::default()
    });
    world.ask(member(0));
    world.step(&Step::Done(KEY, vec![0]));
    world.step(&pause(Family::Group, 50));
    assert_eq!(world.ask(member(1).block()), None);
    assert_eq!(world.after_ms(50), [(1, "granted")]);
}

/// A payload paused a lock for 8,800 years.
#[test]
fn restored_pause_beyond_thirty_days_is_refused() {
    let lasting = |more| {
        let until = Some(UnixMs(NOW + 31 * DAY + more));
        vec![Change::Pause { until }]
    };
    expect_bound(
        "pause",
        Family::Lock,
        lasting,
        "its pause lasts 2678400001 ms more, and PAUSE allows 2592000000, and a day more for the clock of another server",
    );
}

/// Pauses of every family, with waiters, leases and tallies that end before, with and after them.
#[test]
fn pauses_in_every_short_history() {
    let forgets = Settings {
        rejoin_ms: 0,
        once_keep_ms: 4,
        ..exhaustive::settings()
    };
    for (claim, limit) in [
        (Claim::Exclusive, None),
        (Claim::Permits(1), Some(1)),
        (Claim::Member, Some(1)),
        (Claim::Run, None),
    ] {
        let family = claim.family();
        let request = |token: u8| Ask {
            limit,
            ..ask(KEY, claim, token).lease(3)
        };
        let own = match family {
            Family::Lock => Step::Acquire(ask(KEY, Claim::Shared, 2).block()),
            Family::Semaphore => Step::Pin(KEY, Some(2)),
            Family::Group => Step::Wait(KEY, Some(Block::Forever), 5),
            Family::Once => Step::Fail(KEY, 0, "broken", 0),
        };
        let max_attempts = |ask: Ask| match family {
            Family::Once => ask.max_attempts(1),
            _ => ask,
        };
        let alphabet = [
            Step::Pause(KEY, family, 0),
            Step::Pause(KEY, family, 3),
            Step::Pause(KEY, family, 5),
            Step::Acquire(max_attempts(request(0))),
            Step::Acquire(request(1).block_ms(3)),
            own,
            Step::Release(KEY, family, 0),
            Step::Disconnect(1),
            Step::Delete(KEY),
            Step::Pass { us: 3 * MS },
            Step::Tick,
        ];
        exhaustive::all_sequences(forgets, &[], &alphabet, 4);
    }
}

#[test]
fn end_of_a_pause_that_there_is_not_changes_nothing() {
    let mut world = world();
    world.ask(exclusive(1));
    let now = world.now;
    let end = |visit: &mut Visit<'_>| visit.pause(Family::Lock, 0);
    let (before, done) = world.primary.call(KEY, Family::Lock, now, end);
    assert_eq!((before, done.changes), (Ok(0), vec![]));
}
