//! Turns that stay short however much there is: what concerns all holds, all queues or a very large key is
//! only noted in the turn in which it happens, and done in slices. Counted here are the steps that are left to
//! do after a call: a call that did them itself leaves none.

use crate::model::{Name, TICK_US};
use crate::server::{Server, Stored, spelled};
use crate::stories::word;
use crate::teller::Random;
use crate::world::World;
use dsync_engine::answer::Answer;
use dsync_engine::calls::tasks::Task;
use dsync_engine::types::{Claim, ClientId, Db, LeaseMs, LeaseUs, Now, Token};
use dsync_engine::{Family, Reply, Request, Settings, Wait};

const MS: u64 = 1_000;
const LEASE_MS: u32 = 30_000;
const GRACE_MS: u64 = 5_000;

/// A server with more keys, holds and waiters than one turn could walk over.
struct Turns {
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

impl Turns {
    fn new() -> Turns {
        let now = World::new(Settings::default()).now;
        let mut server = Server::new(Settings::default());
        server.engine.take_over(now);
        server.finish_background();
        Turns {
            server,
            now,
            told: Vec::new(),
        }
    }

    fn ask(&mut self, name: Name, claim: Claim, client: u64, change: impl FnOnce(&mut Request)) {
        let mut request = Request {
            claim,
            limit: matches!(claim, Claim::Permits(_)).then_some(1_000_000),
            max_attempts: None,
            lease: LeaseMs(LEASE_MS),
            wait: None,
            token: token(client),
            may_return: true,
            client: ClientId(client),
            ephemeral: false,
            owner: None,
        };
        change(&mut request);
        let now = self.now;
        let (reply, done) = self.server.call(name, claim.family(), |engine, key| {
            engine.acquire(key, request, now)
        });
        self.told
            .extend(done.wakes.into_iter().map(|wake| wake.answer));
        if let Reply::Now(answer) = reply {
            self.told.push(answer);
        }
    }

    /// What was told since this was last asked, without repetitions.
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

    /// One slice of the engine's own work; how much it did.
    fn slice(&mut self, budget: u32) -> u32 {
        let mut left = budget;
        self.server.engine.background(&mut left);
        budget - left
    }

    /// All of the engine's own work; how many steps it took.
    fn work_off(&mut self) -> u32 {
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
        let stats = self.server.engine.stats();
        Family::ALL.map(|family| stats.holds(family)).iter().sum()
    }

    fn check(&mut self, name: Name, family: Family, client: u64) -> u64 {
        let now = self.now;
        let (left, _) = self.server.call(name, family, |engine, key| {
            engine.check(key, family, &token(client), now)
        });
        left.expect("its family")
    }

    fn disconnect(&mut self, client: u64) {
        let now = self.now;
        self.server.engine.disconnected(ClientId(client), now);
    }
}

const KEY: Name = (0, 0);

/// A replica with a million holds was promoted, and nobody was answered while it walked over them.
#[test]
fn take_over_leaves_ten_thousand_locks_to_be_walked_in_slices() {
    let mut turns = Turns::new();
    turns.locks(10_000);
    turns.pass(10_000);
    turns.server.engine.stand_down();
    turns.pass(10_000);
    turns.take_over();
    for (number, slices) in [(0, 0), (9_999, 0), (5_000, 1), (9_999, 99)] {
        for _ in 0..slices {
            assert_eq!(turns.slice(100), 100, "a slice of its budget");
        }
        let left = turns.check(name(number), Family::Lock, u64::from(number));
        let moment = 10_000 + GRACE_MS;
        assert_eq!(left, moment, "{number}: as of the take-over");
    }
    assert_eq!(
        turns.work_off(),
        20_000 - 10_000,
        "a lock and its hold each"
    );
    turns.pass(10_000 + GRACE_MS - 1);
    turns.tick();
    assert_eq!(turns.holds(), 10_000, "none is early");
    turns.pass(2);
    turns.tick();
    assert_eq!(turns.holds(), 0);
}

/// The time that the walk takes is nobody's loss and nobody's gain.
#[test]
fn hold_has_what_it_had_at_take_over_whenever_the_walk_comes_to_it() {
    for waited_ms in [0, 1, 700, 10_000] {
        let mut turns = Turns::new();
        turns.locks(300);
        turns.pass(5_000);
        turns.server.engine.stand_down();
        turns.pass(10_000);
        turns.take_over();
        turns.pass(waited_ms);
        turns.work_off();
        for number in [0, 299] {
            let left = turns.check(name(number), Family::Lock, u64::from(number));
            let expected = LEASE_MS as u64 - 15_000 + GRACE_MS - waited_ms;
            let case = format!("{number} after {waited_ms} ms");
            assert!((expected - 1..=expected).contains(&left), "{case}: {left}");
        }
    }
}

#[test]
fn key_is_given_its_moments_by_the_first_request_before_the_walk_comes_to_it() {
    let mut turns = Turns::new();
    turns.locks(1_000);
    turns.server.engine.stand_down();
    turns.pass(60_000);
    turns.take_over();
    let last = name(999);
    turns.ask(last, Claim::Exclusive, 5_000, |_| {});
    assert_eq!(turns.words(), ["not granted"], "it has its grace");
    turns.pass(GRACE_MS);
    turns.ask(last, Claim::Exclusive, 5_000, |_| {});
    assert_eq!(turns.words(), ["granted"], "and no more, walked or not");
    // One that is overdue and not walked yet is still its token's.
    turns.ask(name(998), Claim::Exclusive, 998, |_| {});
    assert_eq!(turns.words(), ["granted"]);
    let left = turns.check(name(998), Family::Lock, 998);
    assert_eq!(left, u64::from(LEASE_MS), "renewed");
    turns.pass(2);
    turns.tick();
    assert_eq!(turns.holds(), 2, "the others lapse with the walk");
}

/// A lease of an earlier term ran out by the clock of a later one.
#[test]
fn moments_of_an_earlier_term_count_for_nothing_in_the_next() {
    let mut turns = Turns::new();
    turns.locks(200);
    turns.holders((9, 0), 0..200, false);
    for term in 1..=4_u32 {
        turns.server.engine.stand_down();
        assert_eq!(turns.work_off(), 0, "there is not much to drop");
        turns.take_over();
        // Half of the terms are over before the walk is.
        if term % 2 == 0 {
            turns.work_off();
        } else {
            turns.slice(150);
        }
        turns.server.engine.check_invariants(turns.now);
        turns.pass(GRACE_MS);
        turns.tick();
        assert_eq!(turns.holds(), 400, "term {term}");
        let left = turns.check(name(7), Family::Lock, 7);
        let expected = u64::from(LEASE_MS) - u64::from(term) * GRACE_MS;
        assert!(
            (expected..=expected + GRACE_MS).contains(&left),
            "term {term}: {left}"
        );
    }
    turns.pass(30_000);
    turns.tick();
    assert_eq!(turns.holds(), 0);
}

#[test]
fn take_over_walks_a_semaphore_of_ten_thousand_holders_in_slices() {
    let mut turns = Turns::new();
    turns.holders(KEY, 0..10_000, false);
    turns.server.engine.stand_down();
    turns.pass(60_000);
    turns.take_over();
    assert_eq!(turns.slice(100), 100);
    turns.server.engine.check_invariants(turns.now);
    assert_eq!(turns.check(KEY, Family::Semaphore, 9_999), GRACE_MS);
    // A request gives moments to as many as it may end, and no more.
    turns.ask(KEY, Claim::Permits(1), 20_000, |_| {});
    assert_eq!(turns.words(), ["granted"]);
    let steps = turns.work_off();
    assert!((8_900..9_000).contains(&steps), "{steps} steps are left");
    turns.pass(GRACE_MS - 1);
    turns.tick();
    assert_eq!(turns.holds(), 10_001);
    turns.pass(2);
    turns.tick();
    assert_eq!(turns.holds(), 1, "but for the one that was granted here");
}

/// A primary with a million holds was demoted, and nobody was answered while it cleared its indexes.
#[test]
fn stand_down_leaves_the_indexes_to_be_dropped_in_slices() {
    let mut turns = Turns::new();
    turns.holders(KEY, 0..5_000, true);
    for number in 0..5_000 {
        turns.ask(name(number), Claim::Member, u64::from(number), |request| {
            request.limit = None;
        });
    }
    turns.work_off();
    turns.server.engine.stand_down();
    let steps = turns.work_off();
    assert!(
        steps >= 5_000,
        "{steps} steps: the EPHEMERAL holds at least"
    );
    turns.take_over();
    turns.tick();
    turns.server.engine.check_invariants(turns.now);
}

/// DEL of a semaphore with many holders kept everybody waiting; on its replicas too.
#[test]
fn del_of_a_semaphore_leaves_its_holds_to_be_dropped_in_slices() {
    for follows in [false, true] {
        let mut turns = Turns::new();
        turns.holders(KEY, 0..10_000, true);
        if follows {
            turns.server.engine.stand_down();
            turns.work_off();
        }
        turns.server.delete(KEY);
        let Some(id) = turns.server.let_go.pop() else {
            panic!("it was held");
        };
        turns.server.engine.freed(id);
        assert_eq!(turns.holds(), 0, "they leave the gauges at once");
        // Meanwhile the number of the state is another's, and the connections close.
        turns.ask((0, 1), Claim::Permits(1), 7, |request| {
            request.ephemeral = true;
        });
        (0..5_000).for_each(|client| turns.disconnect(client));
        turns.server.engine.check_invariants(turns.now);
        assert_eq!(turns.work_off(), 30_000, "a hold, its token, its deadline");
        if !follows {
            turns.tick();
            assert_eq!(turns.holds(), 0, "the one of the connection that closed");
        }
    }
}

#[test]
fn values_freed_elsewhere_are_given_back_in_slices() {
    let mut turns = Turns::new();
    turns.locks(10_000);
    turns.holders((50, 0), 0..1_000, false);
    turns.server.flush(None);
    turns.server.free_what_was_let_go();
    assert_eq!(turns.holds(), 11_000, "they are counted until then");
    assert_eq!(turns.slice(100), 100);
    assert_eq!(turns.holds(), 10_900);
    turns.locks(500);
    assert_eq!(turns.work_off(), 9_901 + 3_000);
    assert_eq!(turns.holds(), 500);
    turns.tick();
}

/// So many keys were waited for that to make their queues due took longer than to flush the database.
#[test]
fn flush_makes_a_thousand_queues_due_in_slices() {
    for (db, waiters) in [(None, 1_000), (Some(0), 250), (Some(3), 250), (Some(9), 0)] {
        let mut turns = Turns::new();
        turns.locks(1_000);
        for number in 0..1_000 {
            let client = 10_000 + u64::from(number);
            turns.ask(name(number), Claim::Exclusive, client, |request| {
                request.wait = Some(Wait::Forever);
            });
        }
        turns.server.flush(db);
        assert_eq!(turns.server.engine.next_wake(turns.now), Some(MS));
        assert_eq!(turns.slice(100), 100);
        turns.server.engine.check_invariants(turns.now);
        // Flushed again on the way: from the start once more, and that is all.
        (0..1_000).for_each(|_| turns.server.flush(db));
        // Somebody who asks meanwhile is behind those who wait.
        let last = if db == Some(0) { 249 } else { 999 };
        turns.ask(name(last), Claim::Exclusive, 77, |_| {});
        let before = turns.words();
        assert!(before.last() == Some(&"not granted"), "{db:?}: {before:?}");
        // The queue that was asked about may be gone by then.
        let steps = turns.work_off();
        assert!((1_900..=1_902).contains(&steps), "{db:?}: {steps} steps");
        turns.tick();
        let granted = turns.told.len() + before.len() - 1;
        assert_eq!(granted, waiters, "{db:?}");
        assert!(turns.told.iter().all(|answer| word(answer) == "granted"));
    }
}

#[test]
fn demoted_server_drops_a_thousand_queues_in_slices() {
    let mut turns = Turns::new();
    turns.locks(1_000);
    for number in 0..1_000 {
        let client = 10_000 + u64::from(number);
        turns.ask(name(number), Claim::Exclusive, client, |request| {
            request.wait = Some(Wait::Forever);
        });
    }
    turns.server.engine.stand_down();
    turns.work_off();
    turns.server.engine.dismiss_all();
    assert_eq!(turns.server.engine.effects.wakes.len(), 1_000);
    turns.server.engine.effects.clear();
    let steps = turns.work_off();
    assert!(steps >= 3_000, "{steps} steps");
}

/// A connection with a million EPHEMERAL holds closed, and to list them all took longer than a turn may.
#[test]
fn holds_of_a_closed_connection_end_one_task_each_and_spare_those_bound_anew() {
    let mut turns = Turns::new();
    for number in 0..2_000 {
        turns.ask(
            name(number),
            Claim::Exclusive,
            u64::from(number),
            |request| {
                (request.client, request.ephemeral) = (ClientId(1), true);
            },
        );
    }
    turns.disconnect(1);
    // The connection of one token comes back at once, that of another in the middle of it all.
    let again = |turns: &mut Turns, number: u32| {
        turns.ask(
            name(number),
            Claim::Exclusive,
            u64::from(number),
            |request| {
                (request.client, request.ephemeral) = (ClientId(2), true);
            },
        );
    };
    again(&mut turns, 1_999);
    for ended in 1..=1_000 {
        let Some((task, db, spelling)) = turns.server.engine.next_task(turns.now, &mut 9) else {
            panic!("{ended}: there is more to end");
        };
        let number = (0..250).find(|n| spelled((db.0, *n)) == spelling.as_bytes());
        let (now, name) = (turns.now, (db.0, number.expect("a key")));
        turns.server.call(name, Family::Lock, |engine, key| {
            engine.perform(task, key, now)
        });
        assert!(matches!(task, Task::End { .. }), "{task:?}");
        assert_eq!(turns.holds(), 2_000 - ended);
    }
    again(&mut turns, 1_998);
    turns.server.engine.check_invariants(turns.now);
    turns.tick();
    assert_eq!(turns.holds(), 2, "those that were bound anew");
    turns.disconnect(2);
    turns.tick();
    assert_eq!(turns.holds(), 0);
}

/// Everything at once: large keys that come and go while their remains are dropped, connections that close,
/// changes of role in the middle of the walk.
#[test]
fn large_keys_survive_random_turns() {
    for seed in 1..=30 {
        let mut random = Random::new(seed);
        let mut turns = Turns::new();
        let mut clients = 0;
        for _ in 0..120 {
            let key = (0, random.below(3) as u8);
            match random.below(14) {
                0..=4 => {
                    let count = random.below(150);
                    let conn = random.below(4);
                    for client in clients..clients + count {
                        turns.ask(key, Claim::Permits(1), client, |request| {
                            request.client = ClientId(conn);
                            request.ephemeral = client % 3 > 0;
                            request.lease = LeaseMs(1 + (client % 50) as u32 * 100);
                        });
                    }
                    clients += count;
                }
                5 => turns.server.delete(key),
                6 => turns.server.flush(None),
                7 => turns.server.free_what_was_let_go(),
                8 => turns.disconnect(random.below(4)),
                9 => turns.server.rename(key, (1, key.1)),
                10 => turns.pass(random.below(1_000)),
                11 => {
                    turns.server.engine.stand_down();
                    turns.pass(random.below(1_000));
                    turns.take_over();
                }
                12 => turns.tick(),
                _ => {
                    let budget = random.below(300) as u32;
                    turns.slice(budget);
                }
            }
            turns.server.engine.check_invariants(turns.now);
        }
        turns.tick();
        turns.pass(60_000);
        turns.tick();
        turns.server.free_what_was_let_go();
        turns.tick();
        assert_eq!(turns.holds(), 0, "seed {seed}");
        assert!(turns.server.keys.is_empty(), "seed {seed}");
    }
}

/// A RESTORE brings a large state to a server that decides, in the middle of its walk.
#[test]
fn state_restored_during_the_walk_has_its_moments_at_once() {
    let mut turns = Turns::new();
    turns.holders(KEY, 0..300, false);
    let body = turns.server.state(KEY).expect("it is held").body.clone();
    turns.server.engine.stand_down();
    turns.pass(60_000);
    turns.take_over();
    turns.slice(10);
    turns.pass(1_000);
    let (other, now) = ((3, 3), turns.now);
    let engine = &mut turns.server.engine;
    let id = engine
        .adopt(body, Db(other.0), &spelled(other), now)
        .expect("fits");
    turns.server.keys.insert(other, Stored::State(id));
    turns.server.engine.check_invariants(turns.now);
    let left = turns.check(other, Family::Semaphore, 299);
    assert_eq!(left, GRACE_MS, "as of the moment in which it came");
    assert_eq!(turns.check(KEY, Family::Semaphore, 299), GRACE_MS - 1_000);
}
