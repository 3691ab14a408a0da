//! Calls that concern all holds, all queues or a very large key stay short: the call only notes what is to be done, and
//! background slices do it.
//!
//! The tests count the steps that are left after a call. A call that did the work itself would leave none.

use crate::chooser::Random;
use crate::fixture::word;
use crate::model::{Name, TICK_US};
use crate::server::{Server, Stored, key_bytes};
use crate::world::World;
use dsync_engine::LaneName;
use dsync_engine::Task;
use dsync_engine::answer::Answer;
use dsync_engine::saved::Loaded;
use dsync_engine::types::{Claim, ClientId, Db, LeaseMs, LeaseUs, MonoUs, Now, Token};
use dsync_engine::{Family, Reply, Request, Settings, Visit};

const MS: u64 = 1_000;
const LEASE_MS: u32 = 30_000;
const GRACE_MS: u64 = 5_000;

/// A server with more keys, holds and waiters than one turn of the event loop may walk over.
struct LargeServer {
    server: Server,
    now: Now,
    told: Vec<Answer>,
}

fn name(number: u32) -> Name {
    ((number / 250) as i32, (number % 250) as u8)
}

fn token(client: u64) -> Token {
    Token::parse(format!("client {client}").as_bytes()).expect("legal")
}

impl LargeServer {
    fn new() -> LargeServer {
        let now = World::new(Settings::default()).now;
        let mut server = Server::new(Settings::default());
        server.engine.take_over(now);
        server.finish_background();
        LargeServer {
            server,
            now,
            told: Vec::new(),
        }
    }

    fn ask(&mut self, name: Name, claim: Claim, client: u64, change: impl FnOnce(&mut Request)) {
        let mut request = Request {
            claim,
            limit: matches!(claim, Claim::Permits(_)).then_some(1_000_000),
            bound: None,
            lease: LeaseMs(LEASE_MS),
            wait: None,
            min_hold: None,
            keep_ms: None,
            token: token(client),
            may_return: true,
            client: ClientId(client),
            ephemeral: false,
            owner: None,
            lane: LaneName::default(),
            may_grow: true,
        };
        change(&mut request);
        let now = self.now;
        let (reply, done) = self
            .server
            .call(name, claim.family(), now, |visit| visit.acquire(request));
        self.told
            .extend(done.wakes.into_iter().map(|wake| wake.answer));
        if let Reply::Now(answer) = reply {
            self.told.push(answer);
        }
    }

    /// Returns the answers since the last call, as words; equal words in a row are one.
    fn words(&mut self) -> Vec<&'static str> {
        let mut words: Vec<_> = self.told.drain(..).map(|answer| word(&answer)).collect();
        words.dedup();
        words
    }

    fn locks(&mut self, count: u32) {
        for number in 0..count {
            self.ask(name(number), Claim::Exclusive, u64::from(number), |_| {});
        }
        assert_eq!(self.words(), ["granted"]);
    }

    fn holders(&mut self, key: Name, clients: std::ops::Range<u64>, ephemeral: bool) {
        for client in clients {
            self.ask(key, Claim::Permits(1), client, |request| {
                request.ephemeral = ephemeral;
            });
        }
        assert_eq!(self.words(), ["granted"]);
    }

    fn pass(&mut self, ms: u64) {
        self.now.mono.0 += ms * MS;
        self.now.unix_us += ms * MS;
        if self.server.engine.is_serving() {
            self.now.lease.0 += (ms * MS).next_multiple_of(TICK_US);
        }
    }

    fn take_over(&mut self) {
        let latest = self.server.engine.latest_due();
        self.now.lease = self.now.lease.max(LeaseUs(latest.0 + 1));
        self.server.engine.take_over(self.now);
    }

    /// Does one slice of background work. Returns how many steps it took.
    fn slice(&mut self, budget: u32) -> u32 {
        let mut left = budget;
        self.server.engine.background(&mut left);
        budget - left
    }

    /// Does all background work. Returns how many steps it took.
    fn finish_background(&mut self) -> u32 {
        let mut steps = 0;
        while self.server.engine.has_background() {
            let wake = self.server.engine.next_wake(self.now);
            assert!(wake.is_some_and(|us| us <= MS), "{wake:?}: goes on soon");
            steps += self.slice(100);
        }
        self.server.engine.check_invariants(self.now);
        steps
    }

    fn tick(&mut self) {
        for done in self.server.run_tasks(self.now) {
            self.told
                .extend(done.wakes.into_iter().map(|wake| wake.answer));
        }
        self.server.engine.check_invariants(self.now);
    }

    fn holds(&self) -> u64 {
        let engine = &self.server.engine;
        Family::ALL.map(|family| engine.holds(family)).iter().sum()
    }

    fn check(&mut self, name: Name, family: Family, client: u64) -> u64 {
        let token = token(client);
        let left = (self.server).look(name, self.now, |look| look.check(family, &token));
        left.expect("its family")
    }

    fn disconnect(&mut self, client: u64) {
        let now = self.now;
        self.server.engine.disconnected(ClientId(client), now);
    }
}

const KEY: Name = (0, 0);

/// A replica with a million holds was promoted, and no client was answered while it walked over them.
#[test]
fn take_over_walks_ten_thousand_locks_in_slices() {
    let mut large = LargeServer::new();
    large.locks(10_000);
    large.pass(10_000);
    large.server.engine.stand_down();
    large.pass(10_000);
    // What was left of the index of leases.
    large.finish_background();
    large.take_over();
    for (number, slices) in [(0, 0), (9_999, 0), (5_000, 1), (9_999, 99)] {
        for _ in 0..slices {
            assert_eq!(large.slice(100), 100, "a slice of its budget");
        }
        let left = large.check(name(number), Family::Lock, u64::from(number));
        let moment = 10_000 + GRACE_MS;
        assert_eq!(left, moment, "{number}: as of the take-over");
    }
    assert_eq!(
        large.finish_background(),
        20_000 - 10_000,
        "a lock and its hold each"
    );
    large.pass(10_000 + GRACE_MS - 1);
    large.tick();
    assert_eq!(large.holds(), 10_000, "none is early");
    large.pass(2);
    large.tick();
    assert_eq!(large.holds(), 0);
}

/// A hold must neither lose nor gain time by the moment at which the walk reaches it.
#[test]
fn lease_left_after_take_over_does_not_depend_on_walk() {
    for waited_ms in [0, 1, 700, 10_000] {
        let mut large = LargeServer::new();
        large.locks(300);
        large.pass(5_000);
        large.server.engine.stand_down();
        large.pass(10_000);
        large.take_over();
        large.pass(waited_ms);
        for is_walked in [false, true] {
            if is_walked {
                large.finish_background();
            }
            for number in [0, 299] {
                let left = large.check(name(number), Family::Lock, u64::from(number));
                let expected = LEASE_MS as u64 - 15_000 + GRACE_MS - waited_ms;
                let case = format!("{number} after {waited_ms} ms, walked: {is_walked}");
                assert!((expected - 1..=expected).contains(&left), "{case}: {left}");
            }
        }
    }
}

#[test]
fn request_before_walk_gives_its_key_moments() {
    let mut large = LargeServer::new();
    large.locks(1_000);
    large.server.engine.stand_down();
    large.pass(60_000);
    large.take_over();
    let last = name(999);
    large.ask(last, Claim::Exclusive, 5_000, |_| {});
    assert_eq!(large.words(), ["not granted"], "it has its grace");
    large.pass(GRACE_MS);
    large.ask(last, Claim::Exclusive, 5_000, |_| {});
    assert_eq!(large.words(), ["granted"], "and no more, walked or not");
    // An overdue hold that the walk has not reached can still be renewed by its token.
    large.ask(name(998), Claim::Exclusive, 998, |_| {});
    assert_eq!(large.words(), ["granted"]);
    let left = large.check(name(998), Family::Lock, 998);
    assert_eq!(left, u64::from(LEASE_MS), "renewed");
    large.pass(2);
    large.tick();
    assert_eq!(large.holds(), 2, "the others lapse with the walk");
}

/// Moments given before a demotion were compared with the lease clock after the next promotion, and holds lapsed early.
#[test]
fn moments_before_take_over_lapse_no_hold() {
    let mut large = LargeServer::new();
    large.locks(200);
    large.holders((9, 0), 0..200, false);
    for term in 1..=4_u32 {
        large.server.engine.stand_down();
        assert_eq!(large.finish_background(), 0, "there is not much to drop");
        large.take_over();
        // In half of the rounds the server is demoted before the walk has ended.
        if term % 2 == 0 {
            large.finish_background();
        } else {
            large.slice(150);
        }
        large.server.engine.check_invariants(large.now);
        large.pass(GRACE_MS);
        large.tick();
        assert_eq!(large.holds(), 400, "term {term}");
        let left = large.check(name(7), Family::Lock, 7);
        let expected = u64::from(LEASE_MS) - u64::from(term) * GRACE_MS;
        assert!(
            (expected..=expected + GRACE_MS).contains(&left),
            "term {term}: {left}"
        );
    }
    large.pass(30_000);
    large.tick();
    assert_eq!(large.holds(), 0);
}

#[test]
fn take_over_walks_one_large_semaphore_in_slices() {
    let mut large = LargeServer::new();
    large.holders(KEY, 0..10_000, false);
    large.server.engine.stand_down();
    large.pass(60_000);
    large.take_over();
    assert_eq!(large.slice(100), 100);
    large.server.engine.check_invariants(large.now);
    assert_eq!(large.check(KEY, Family::Semaphore, 9_999), GRACE_MS);
    // A request gives moments to as many holds as it may end, and no more.
    large.ask(KEY, Claim::Permits(1), 20_000, |_| {});
    assert_eq!(large.words(), ["granted"]);
    let steps = large.finish_background();
    assert!((8_900..9_000).contains(&steps), "{steps} steps are left");
    large.pass(GRACE_MS - 1);
    large.tick();
    assert_eq!(large.holds(), 10_001);
    large.pass(2);
    large.tick();
    assert_eq!(large.holds(), 1, "but for the one that was granted here");
}

/// A primary with a million holds was demoted, and no client was answered while it cleared its indexes.
#[test]
fn stand_down_drops_indexes_in_slices() {
    let mut large = LargeServer::new();
    large.holders(KEY, 0..5_000, true);
    for number in 0..5_000 {
        large.ask(name(number), Claim::Member, u64::from(number), |request| {
            request.limit = None;
        });
    }
    large.finish_background();
    large.server.engine.stand_down();
    let steps = large.finish_background();
    assert!(
        steps >= 5_000,
        "{steps} steps: the EPHEMERAL holds at least"
    );
    large.take_over();
    large.tick();
    large.server.engine.check_invariants(large.now);
}

/// DEL of a semaphore with many holders kept all clients waiting, on its replicas too.
#[test]
fn del_of_large_semaphore_drops_holds_in_slices() {
    for follows in [false, true] {
        let mut large = LargeServer::new();
        large.holders(KEY, 0..10_000, true);
        if follows {
            large.server.engine.stand_down();
            large.finish_background();
        }
        large.server.delete(KEY);
        let Some(id) = large.server.let_go.pop() else {
            panic!("it was held");
        };
        large.server.engine.freed(id);
        assert_eq!(large.holds(), 0, "they leave the gauges at once");
        // Meanwhile another state gets the id, and the connections close.
        large.ask((0, 1), Claim::Permits(1), 7, |request| {
            request.ephemeral = true;
        });
        (0..5_000).for_each(|client| large.disconnect(client));
        large.server.engine.check_invariants(large.now);
        assert_eq!(
            large.finish_background(),
            30_000,
            "a hold, its token, its deadline"
        );
        if !follows {
            large.tick();
            assert_eq!(large.holds(), 0, "the one of the connection that closed");
        }
    }
}

#[test]
fn removed_key_takes_its_holds_and_rests_out_of_the_gauges() {
    let mut large = LargeServer::new();
    for client in 0..3 {
        large.ask(KEY, Claim::Permits(1), client, |request| {
            request.min_hold = Some(LeaseMs(1_000));
        });
    }
    let release = |visit: &mut Visit<'_>| visit.release(Family::Semaphore, &token(0));
    let (released, _) = (large.server).call(KEY, Family::Semaphore, large.now, release);
    assert_eq!(released, Ok(true));
    assert_eq!((large.holds(), large.server.engine.resting()), (2, 1));
    large.server.delete(KEY);
    let id = large.server.let_go.pop().expect("it was held");
    large.server.engine.freed(id);
    assert_eq!((large.holds(), large.server.engine.resting()), (0, 0));
}

/// Holds that rest take no more memory than they did before, and end like leases, some at a time.
#[test]
fn ten_thousand_rests_end_in_slices() {
    let mut large = LargeServer::new();
    for client in 0..10_000 {
        large.ask(KEY, Claim::Permits(1), client, |request| {
            request.min_hold = Some(LeaseMs(1_000));
        });
    }
    let Some(Stored::State(id)) = large.server.keys.get(&KEY).copied() else {
        panic!("it is held");
    };
    let held = large.server.engine.memory(id);
    for client in 0..10_000 {
        let release = |visit: &mut Visit<'_>| visit.release(Family::Semaphore, &token(client));
        let (released, _) = (large.server).call(KEY, Family::Semaphore, large.now, release);
        assert_eq!(released, Ok(true));
    }
    assert_eq!((large.holds(), large.server.engine.resting()), (0, 10_000));
    let resting = large.server.engine.memory(id);
    assert!(resting <= held, "{resting} bytes after {held}");
    large.pass(1_000);
    for left in [8_976, 7_952, 6_928] {
        let task = large.server.engine.next_task(large.now, &mut 99);
        let (task, ..) = task.expect("more to end");
        let perform = |visit: &mut Visit<'_>| visit.perform(task);
        (large.server).call(KEY, Family::Semaphore, large.now, perform);
        assert_eq!(large.server.engine.resting(), left);
    }
    large.tick();
    assert!(large.server.state(KEY).is_none(), "nothing keeps the key");
}

#[test]
fn values_freed_on_other_thread_are_returned_in_slices() {
    let mut large = LargeServer::new();
    large.locks(10_000);
    large.holders((50, 0), 0..1_000, false);
    large.server.flush(None);
    large.server.free_let_go();
    assert_eq!(large.holds(), 11_000, "they are counted until then");
    assert_eq!(large.slice(100), 100);
    assert_eq!(large.holds(), 10_900);
    large.locks(500);
    assert_eq!(large.finish_background(), 9_901 + 3_000);
    assert_eq!(large.holds(), 500);
    large.tick();
}

#[test]
fn lanes_and_indexes_of_holders_are_dropped_in_slices() {
    let mut large = LargeServer::new();
    for client in 0..1_000 {
        large.ask((0, 0), Claim::Indexed, client, |request| {
            request.limit = Some(1_000);
            request.lane = format!("lane {client}").as_bytes().into();
        });
    }
    assert_eq!(large.words(), ["granted"]);
    large.server.flush(None);
    large.server.free_let_go();
    // The value; the hold, the token, the deadline and the lane of each; and the one run of indexes.
    assert_eq!(large.finish_background(), 1 + 4 * 1_000 + 1);
}

/// There were so many queues that to make all of them due took longer than to flush the database.
#[test]
fn flush_makes_thousand_queues_due_in_slices() {
    for (db, waiters) in [(None, 1_000), (Some(0), 250), (Some(3), 250), (Some(9), 0)] {
        let mut large = LargeServer::new();
        large.locks(1_000);
        for number in 0..1_000 {
            let client = 10_000 + u64::from(number);
            large.ask(name(number), Claim::Exclusive, client, |request| {
                request.wait = Some(MonoUs::NEVER);
            });
        }
        large.server.flush(db);
        assert_eq!(large.server.engine.next_wake(large.now), Some(MS));
        assert_eq!(large.slice(100), 100);
        large.server.engine.check_invariants(large.now);
        // A second flush during the sweep only makes it begin again once.
        (0..1_000).for_each(|_| large.server.flush(db));
        // A request that comes meanwhile is behind the waiters.
        let last = if db == Some(0) { 249 } else { 999 };
        large.ask(name(last), Claim::Exclusive, 77, |_| {});
        let before = large.words();
        assert!(before.last() == Some(&"not granted"), "{db:?}: {before:?}");
        // The queue of that request may be gone by now, so the number of steps is not exact.
        let steps = large.finish_background();
        assert!((1_900..=1_902).contains(&steps), "{db:?}: {steps} steps");
        large.tick();
        let granted = large.told.len() + before.len() - 1;
        assert_eq!(granted, waiters, "{db:?}");
        assert!(large.told.iter().all(|answer| word(answer) == "granted"));
    }
}

/// The kept places of a name whose database was flushed stand before nobody, also while the sweep has not come to it.
#[test]
fn flushed_places_stand_before_no_request_during_the_sweep() {
    let mut large = LargeServer::new();
    large.locks(100);
    for number in 0..100 {
        let client = 10_000 + u64::from(number);
        large.ask(name(number), Claim::Exclusive, client, |request| {
            request.keep_ms = Some(60_000);
        });
    }
    assert_eq!(large.words(), ["waiting"]);
    large.server.flush(None);
    assert!(
        large.server.engine.has_background(),
        "too many for one step"
    );
    large.ask(name(99), Claim::Exclusive, 77, |_| {});
    assert_eq!(large.words(), ["granted"]);
}

/// A lock whose lease was over came to a name with more kept places of a semaphore than one visit tells of it. They are
/// saved with the value of their name, so it stays until the last of them is told.
#[test]
fn value_stays_until_all_kept_places_of_another_family_are_told() {
    const OTHER: Name = (0, 1);
    let mut large = LargeServer::new();
    large.ask(KEY, Claim::Permits(1), 0, |request| request.limit = Some(1));
    for client in 1..=200 {
        large.ask(KEY, Claim::Permits(1), client, |request| {
            (request.limit, request.keep_ms) = (Some(1), Some(60_000));
        });
    }
    large.ask(OTHER, Claim::Exclusive, 300, |request| {
        request.lease = LeaseMs(1_000);
    });
    large.server.rename(OTHER, KEY);
    large.pass(1_001);
    let task = large.server.engine.next_task(large.now, &mut 9);
    let (task, ..) = task.expect("the name has another value");
    let perform = |visit: &mut Visit<'_>| visit.perform(task);
    (large.server).call(KEY, Family::Lock, large.now, perform);
    let state = large.server.state(KEY).expect("the lock");
    assert!(state.body.holds().is_empty(), "its lease is over");
    assert!(!large.server.places(KEY).is_empty(), "more are to be told");
    large.tick();
    assert!(large.server.state(KEY).is_none(), "nobody was granted");
}

/// A wave of waits that ran out would have kept all leases from ending.
#[test]
fn tasks_of_each_kind_have_their_turn() {
    let mut large = LargeServer::new();
    large.locks(2);
    large.pass(u64::from(LEASE_MS) - 1_000);
    large.ask(name(0), Claim::Exclusive, 0, |_| {});
    let until = large.now.mono.after_ms(1_000);
    for client in 100..200 {
        large.ask(name(0), Claim::Exclusive, client, |request| {
            request.wait = Some(until);
        });
    }
    large.pass(1_001);
    let mut next = || {
        let found = large.server.engine.next_task(large.now, &mut 9);
        let (task, db, spelling) = found.expect("it is due");
        let number = (0..250).find(|n| key_bytes((db.0, *n)) == spelling.as_bytes());
        let (now, name) = (large.now, (db.0, number.expect("a key")));
        let perform = |visit: &mut Visit<'_>| visit.perform(task);
        large.server.call(name, Family::Lock, now, perform);
        matches!(task, Task::Lapse(_))
    };
    let lapsed = (0..8).filter(|_| next()).count();
    assert_eq!(lapsed, 1, "among a hundred waits that run out");
}

#[test]
fn each_look_for_a_task_costs_one_of_the_budget() {
    let mut large = LargeServer::new();
    large.locks(1);
    let until = large.now.mono.after_ms(1);
    large.ask(name(0), Claim::Exclusive, 7, |request| {
        request.wait = Some(until);
    });
    large.pass(2);
    let mut look = |mut budget| {
        let task = large.server.engine.next_task(large.now, &mut budget);
        (task.is_some(), budget)
    };
    assert_eq!(look(0), (false, 0));
    assert_eq!(look(3), (true, 2));
}

/// Each connection that closed with EPHEMERAL holds is remembered until somebody looks whether it has any left.
#[test]
fn each_closed_connection_that_is_forgotten_costs_one_of_the_budget() {
    let mut large = LargeServer::new();
    large.holders(KEY, 0..10, true);
    (0..10).for_each(|client| large.disconnect(client));
    large.server.delete(KEY);
    let id = large.server.let_go.pop().expect("it was held");
    large.server.engine.freed(id);
    let mut look = |mut budget| {
        let task = large.server.engine.next_task(large.now, &mut budget);
        (task.is_some(), budget)
    };
    assert_eq!(look(3), (false, 0), "two are forgotten");
    assert_eq!(look(20), (false, 11), "eight");
    assert_eq!(look(20), (false, 19), "none");
}

#[test]
fn demoted_server_drops_thousand_queues_in_slices() {
    let mut large = LargeServer::new();
    large.locks(1_000);
    for number in 0..1_000 {
        let client = 10_000 + u64::from(number);
        large.ask(name(number), Claim::Exclusive, client, |request| {
            request.wait = Some(MonoUs::NEVER);
        });
    }
    large.server.engine.stand_down();
    large.finish_background();
    large.server.engine.dismiss_all();
    assert_eq!(large.server.engine.effects.wakes.len(), 1_000);
    large.server.engine.effects.clear();
    let steps = large.finish_background();
    assert!(steps >= 3_000, "{steps} steps");
}

/// A connection with a million EPHEMERAL holds closed, and to list them all took longer than a turn of the event loop
/// may.
#[test]
fn ephemeral_holds_of_closed_connection_end_one_per_task() {
    let mut large = LargeServer::new();
    for number in 0..2_000 {
        large.ask(
            name(number),
            Claim::Exclusive,
            u64::from(number),
            |request| {
                (request.client, request.ephemeral) = (ClientId(1), true);
            },
        );
    }
    large.disconnect(1);
    // One token retries at once, another after half of the holds have ended. Both keep their holds.
    let again = |large: &mut LargeServer, number: u32| {
        large.ask(
            name(number),
            Claim::Exclusive,
            u64::from(number),
            |request| {
                (request.client, request.ephemeral) = (ClientId(2), true);
            },
        );
    };
    again(&mut large, 1_999);
    for ended in 1..=1_000 {
        let Some((task, db, spelling)) = large.server.engine.next_task(large.now, &mut 9) else {
            panic!("{ended}: there is more to end");
        };
        let number = (0..250).find(|n| key_bytes((db.0, *n)) == spelling.as_bytes());
        let (now, name) = (large.now, (db.0, number.expect("a key")));
        large.server.call(name, Family::Lock, now, |visit| {
            visit.perform(task);
        });
        assert!(matches!(task, Task::End { .. }), "{task:?}");
        assert_eq!(large.holds(), 2_000 - ended);
    }
    again(&mut large, 1_998);
    large.server.engine.check_invariants(large.now);
    large.tick();
    assert_eq!(large.holds(), 2, "those that were bound anew");
    large.disconnect(2);
    large.tick();
    assert_eq!(large.holds(), 0);
}

/// Large keys are removed and made again while their holds are still being dropped, connections close, and the role
/// changes during the walk.
#[test]
fn large_keys_survive_random_slices() {
    for seed in 1..=30 {
        let mut random = Random::new(seed);
        let mut large = LargeServer::new();
        let mut clients = 0;
        for _ in 0..120 {
            let key = (0, random.below(3) as u8);
            match random.below(16) {
                14..=15 => {
                    let count = random.below(150);
                    for client in clients..clients + count {
                        large.ask(key, Claim::Permits(1), client, |request| {
                            request.limit = Some(40);
                            match client % 5 {
                                0 => request.wait = Some(MonoUs::NEVER),
                                _ => request.keep_ms = Some(1_000 + (client % 7) as u32 * 500),
                            }
                        });
                    }
                    clients += count;
                }
                0..=4 => {
                    let count = random.below(150);
                    let conn = random.below(4);
                    for client in clients..clients + count {
                        large.ask(key, Claim::Permits(1), client, |request| {
                            request.client = ClientId(conn);
                            request.ephemeral = client % 3 > 0;
                            request.lease = LeaseMs(1 + (client % 50) as u32 * 100);
                        });
                    }
                    clients += count;
                }
                5 => large.server.delete(key),
                6 => large.server.flush(None),
                7 => large.server.free_let_go(),
                8 => large.disconnect(random.below(4)),
                9 => large.server.rename(key, (1, key.1)),
                10 => large.pass(random.below(1_000)),
                11 => {
                    large.server.engine.stand_down();
                    large.pass(random.below(1_000));
                    large.take_over();
                }
                12 => large.tick(),
                _ => {
                    let budget = random.below(300) as u32;
                    large.slice(budget);
                }
            }
            large.server.engine.check_invariants(large.now);
        }
        // What waits is granted in turn, and lapses in turn.
        for _ in 0..clients {
            large.tick();
            large.pass(60_000);
            if large.holds() == 0 {
                break;
            }
        }
        large.server.free_let_go();
        large.tick();
        assert_eq!(large.holds(), 0, "seed {seed}");
        assert!(large.server.keys.is_empty(), "seed {seed}");
    }
}

/// A FAIL with DELAY answers FAILED to every waiter whose attempts are used up, but only some of them in the call
/// itself.
#[test]
fn delay_answers_exhausted_waiters_in_slices() {
    let mut large = LargeServer::new();
    large.ask(KEY, Claim::Run, 0, |_| {});
    for client in 1..=300 {
        large.ask(KEY, Claim::Run, client, |request| {
            request.bound = (client != 7).then_some(1);
            request.wait = Some(MonoUs::NEVER);
        });
    }
    assert_eq!(large.words(), ["run"]);
    let now = large.now;
    let fail = |visit: &mut Visit<'_>| visit.fail(&token(0), b"broken".as_slice().into(), 1_000);
    let (_, done) = large.server.call(KEY, Family::Once, now, fail);
    let at_once = done.wakes.len();
    assert!((1..299).contains(&at_once), "{at_once} at once");
    large.tick();
    assert_eq!(at_once + large.told.len(), 299, "the others by the timer");
    assert_eq!(large.words(), ["given up"]);
    large.pass(1_000);
    large.tick();
    assert_eq!(large.words(), ["run"], "the one that may still begin");
}

/// RESTORE brings a large state to a primary in the middle of its walk.
#[test]
fn state_restored_during_walk_has_its_moments_at_once() {
    let mut large = LargeServer::new();
    large.holders(KEY, 0..300, false);
    let body = large.server.state(KEY).expect("it is held").body.clone();
    large.server.engine.stand_down();
    large.pass(60_000);
    large.take_over();
    large.slice(10);
    large.pass(1_000);
    let (other, now) = ((3, 3), large.now);
    let engine = &mut large.server.engine;
    let places = Vec::new();
    let loaded = Loaded { body, places };
    let id = engine
        .adopt(loaded, Db(other.0), &key_bytes(other), now)
        .expect("fits");
    large.server.keys.insert(other, Stored::State(id));
    large.server.engine.check_invariants(large.now);
    let left = large.check(other, Family::Semaphore, 299);
    assert_eq!(left, GRACE_MS, "as of the moment in which it came");
    assert_eq!(large.check(KEY, Family::Semaphore, 299), GRACE_MS - 1_000);
}
