//! In a cluster: keys that this server may not decide about for a while, keys that leave, and fences that
//! other nodes tell of. A key that is elsewhere is one whose tasks are performed without the right to write.

use crate::crowds::{Crowd, KEY};
use crate::model::TICK_US;
use crate::server::spelled;
use crate::stories::word;
use dsync_engine::answer::Answer;
use dsync_engine::calls::tasks::Task;
use dsync_engine::change::{Change, End};
use dsync_engine::types::{Claim, ClientId, Db, Fence, LeaseMs, Token};
use dsync_engine::{Family, Reply, Request, Wait};

const MS: u64 = 1_000;
const YEAR_US: u64 = 366 * 86_400 * 1_000_000;

impl Crowd {
    fn pass(&mut self, ms: u64) {
        self.now.mono.0 += ms * MS;
        self.now.unix_us += ms * MS;
        self.now.lease.0 += (ms * MS).next_multiple_of(TICK_US);
    }

    /// Everything that is due, while the key is elsewhere.
    fn tasks_elsewhere(&mut self) -> Vec<Task> {
        let mut seen = Vec::new();
        let mut budget = 100;
        while let Some((task, ..)) = self.server.engine.next_task(self.now, &mut budget) {
            seen.push(task);
            let mut now = self.now;
            now.may_write = false;
            let (_, done) = self.server.call(KEY, Family::Lock, |engine, key| {
                engine.perform(task, key, now);
            });
            assert!(
                done.changes.is_empty(),
                "{task:?} changes {:?}",
                done.changes
            );
            self.take(done.wakes);
            self.server.engine.check_invariants(self.now);
        }
        seen
    }

    fn tasks_here(&mut self) {
        while self.one_task() {
            self.server.engine.check_invariants(self.now);
        }
    }

    fn words(&self) -> Vec<&'static str> {
        self.told.iter().map(|(_, answer)| word(answer)).collect()
    }

    fn ephemeral(&mut self, client: u64) -> Reply {
        let request = Request {
            claim: Claim::Exclusive,
            limit: None,
            max_attempts: None,
            lease: LeaseMs(30_000),
            wait: None,
            token: Token::parse(b"the same").expect("legal"),
            may_return: true,
            client: ClientId(client),
            ephemeral: true,
            owner: None,
        };
        let now = self.now;
        let (reply, _) = self.server.call(KEY, Family::Lock, |engine, key| {
            engine.acquire(key, request, now)
        });
        reply
    }
}

/// The slot was moved while a waiter queued; the holder's lease ran out, and the node that no longer had
/// the slot granted the lock to the waiter, as the new one had done for somebody else.
#[test]
fn what_is_due_for_a_key_that_is_elsewhere_stays_due() {
    let mut crowd = Crowd::new();
    crowd.acquire(Claim::Exclusive, None, None, 0);
    crowd.acquire(Claim::Exclusive, None, Some(Wait::Forever), 1);
    let short = Wait::Until(crowd.now.mono.after_ms(60_000));
    crowd.acquire(Claim::Exclusive, None, Some(short), 2);
    crowd.pass(30_001);
    let mut looked = 0;
    for _ in 0..100 {
        looked += crowd.tasks_elsewhere().len();
        let wake = crowd.server.engine.next_wake(crowd.now);
        assert!(
            wake.is_some_and(|us| (1..=50 * MS).contains(&us)),
            "looked at again, and not all the time: {wake:?}"
        );
        crowd.pass(10);
    }
    assert!((20..=60).contains(&looked), "{looked} looks in a second");
    assert_eq!(crowd.words(), [""; 0], "nobody is told anything");

    crowd.pass(30_000);
    crowd.tasks_elsewhere();
    assert_eq!(
        crowd.words(),
        ["not granted"],
        "a wait runs out all the same"
    );

    crowd.pass(50);
    crowd.tasks_here();
    assert_eq!(crowd.words(), ["not granted", "granted"], "ours again");
}

/// As above, for a queue that wants a visit: its head has left, or the key was removed.
#[test]
fn a_queue_that_is_elsewhere_is_visited_once_it_is_ours() {
    let mut crowd = Crowd::new();
    crowd.acquire(Claim::Exclusive, None, None, 0);
    crowd.acquire(Claim::Exclusive, None, Some(Wait::Forever), 1);
    crowd.server.delete(KEY);
    assert!(!crowd.tasks_elsewhere().is_empty());
    assert!(crowd.tasks_elsewhere().is_empty(), "put off");
    crowd.pass(50);
    crowd.tasks_here();
    assert_eq!(crowd.words(), ["granted"]);
}

/// Touched again and again while it is elsewhere, it is still looked at once in a while.
#[test]
fn what_is_put_off_is_put_off_once() {
    let mut crowd = Crowd::new();
    crowd.acquire(Claim::Exclusive, None, None, 0);
    for client in 1..=100 {
        crowd.acquire(Claim::Exclusive, None, Some(Wait::Forever), client);
    }
    for client in 1..=99 {
        crowd
            .server
            .engine
            .disconnected(ClientId(client), crowd.now);
        crowd.tasks_elsewhere();
        crowd.pass(1);
    }
    crowd.pass(50);
    let looks = crowd.tasks_elsewhere().len();
    assert!(looks <= 50, "{looks} looks for what is put off, in one go");
    crowd.pass(50);
    let looks = crowd.tasks_elsewhere().len();
    assert!(looks <= 2, "and {looks} from then on");
}

/// Its connection closed while the key was elsewhere, and the token came back on another one.
#[test]
fn an_end_that_was_put_off_spares_the_hold_that_was_asked_for_again() {
    let mut crowd = Crowd::new();
    crowd.ephemeral(1);
    crowd.server.engine.disconnected(ClientId(1), crowd.now);
    assert_eq!(crowd.tasks_elsewhere().len(), 1);
    crowd.ephemeral(2);
    crowd.pass(50);
    crowd.tasks_here();
    let held = |crowd: &Crowd| crowd.server.state(KEY).is_some();
    assert!(held(&crowd), "it is the other connection's");
    crowd.server.engine.disconnected(ClientId(2), crowd.now);
    crowd.tasks_elsewhere();
    crowd.pass(50);
    crowd.tasks_here();
    assert!(!held(&crowd));
}

#[test]
fn a_group_that_is_elsewhere_is_kept_until_it_is_ours() {
    let mut crowd = Crowd::new();
    crowd.acquire(Claim::Member, None, None, 0);
    let (token, now) = (Token::parse(b"client 0").expect("legal"), crowd.now);
    let (done, _) = crowd.server.call(KEY, Family::Group, |engine, key| {
        engine.done(key, [&token], now)
    });
    assert_eq!(done, Ok(1));
    crowd.pass(60_001);
    assert_eq!(crowd.tasks_elsewhere().len(), 1);
    assert!(crowd.tasks_elsewhere().is_empty(), "put off");
    crowd.pass(50);
    crowd.tasks_here();
    assert!(crowd.server.state(KEY).is_none());
}

/// MIGRATE took the key away, and those who waited for it here would have waited for ever.
#[test]
fn those_who_wait_for_a_key_that_has_left_are_told_in_slices() {
    let mut crowd = Crowd::new();
    crowd.acquire(Claim::Member, Some(1), None, 0);
    crowd.line_up(Claim::Member, 500, Wait::Forever);
    let now = crowd.now;
    for client in 1_001..=1_500 {
        crowd.server.call(KEY, Family::Group, |engine, key| {
            engine.wait(key, Some(Wait::Forever), ClientId(client), now)
        });
    }
    crowd.server.delete(KEY);
    let mut slices = 0;
    let mut budget = 1_000;
    while crowd.server.engine.next_task(now, &mut budget).is_some() {
        crowd
            .server
            .engine
            .turn_away(Db(KEY.0), &spelled(KEY), &Answer::KeyLeft);
        let wakes = std::mem::take(&mut crowd.server.engine.effects.wakes);
        assert!(wakes.len() <= 300, "{} answers in one slice", wakes.len());
        crowd.take(wakes);
        slices += 1;
    }
    assert!(slices >= 4);
    assert_eq!(crowd.told.len(), 1_000);
    assert!(
        crowd
            .told
            .iter()
            .all(|(_, answer)| *answer == Answer::KeyLeft)
    );
    crowd.server.engine.check_invariants(now);
}

/// A slot was on its way, hold by hold, to a node that serves others already. What the holder renewed
/// meanwhile arrived there too, and did not count: the hold lapsed by the lease it had been granted with.
#[test]
fn a_renewal_that_is_followed_by_a_server_that_decides_moves_the_lease() {
    let mut crowd = Crowd::new();
    let mut source = Crowd::new();
    source.acquire(Claim::Exclusive, None, None, 0);
    let changes: Vec<Change> = match source.server.state(KEY) {
        Some(state) => state.body.as_changes().collect(),
        None => panic!("it is held"),
    };
    let [Change::Grant(grant)] = &changes[..] else {
        panic!("one hold: {changes:?}");
    };
    let (fence, lease) = (grant.fence, grant.lease);
    let follow = |crowd: &mut Crowd, change: Change| {
        let now = crowd.now;
        let (followed, _) = crowd.server.call(KEY, Family::Lock, |engine, key| {
            engine.follow(key, Family::Lock, std::slice::from_ref(&change), now)
        });
        assert_eq!(followed, Ok(()), "{change:?}");
    };
    follow(&mut crowd, changes[0].clone());
    crowd.pass(25_000);
    let deadline = crowd.now.unix().after_ms(30_000);
    follow(
        &mut crowd,
        Change::Renew {
            fence,
            lease,
            deadline,
        },
    );
    crowd.pass(29_999);
    crowd.tasks_here();
    assert!(crowd.server.state(KEY).is_some(), "its renewed lease runs");
    crowd.pass(5_001);
    crowd.tasks_here();
    assert!(crowd.server.state(KEY).is_none(), "and runs out");
}

/// A node was promoted, with fences an hour ahead; a lock was taken and released there, its slot moved on
/// with nothing in it, and the next node gave a fence from its own clock: lower, and the store refused it.
#[test]
fn who_is_given_a_slot_goes_past_the_fences_that_it_has_heard_of() {
    let mut crowd = Crowd::new();
    let now = crowd.now;
    let engine = &mut crowd.server.engine;
    let before = engine.last_fence();
    engine.leap_past_heard(7);
    assert_eq!(engine.last_fence(), before, "nothing was heard of");
    let ahead = Fence(now.unix_us + 3_600 * 1_000_000);
    engine.hear_fence(ahead, now);
    engine.hear_fence(Fence(7), now);
    assert_eq!(engine.heard_fence(), ahead, "the highest counts");
    let own = engine.last_fence();
    assert!(own < ahead, "hearing alone drives nobody ahead");
    let distance = 1_000_000;
    engine.leap_past_heard(distance);
    engine.leap_past_heard(7);
    assert_eq!(engine.last_fence(), Fence(ahead.0 + distance), "never back");
    let Reply::Now(Answer::Granted { fence, .. }) = crowd.acquire(Claim::Exclusive, None, None, 0)
    else {
        panic!("it is free");
    };
    assert_eq!(fence.0, ahead.0 + distance + 1);
}

#[test]
fn a_fence_that_is_told_of_and_is_more_than_a_year_ahead_is_not_believed() {
    let mut crowd = Crowd::new();
    let now = crowd.now;
    let engine = &mut crowd.server.engine;
    engine.hear_fence(Fence(now.unix_us + YEAR_US + 1), now);
    assert_eq!(engine.heard_fence(), Fence(0));
    engine.hear_fence(Fence(now.unix_us + YEAR_US), now);
    assert_eq!(engine.heard_fence(), Fence(now.unix_us + YEAR_US));
    engine.hear_fence(Fence::MAX, now);
    engine.leap_past_heard(u64::MAX);
    assert_eq!(engine.last_fence(), Fence::MAX);
}

/// In a cluster the waiters of a server that is demoted are sent on by the server itself, a moment later. It
/// was promoted again before that, the lock had been released meanwhile, and nobody looked at its queue.
#[test]
fn those_who_stayed_while_another_decided_are_served_when_it_is_ours_again() {
    let mut crowd = Crowd::new();
    crowd.acquire(Claim::Exclusive, None, None, 0);
    crowd.acquire(Claim::Exclusive, None, Some(Wait::Forever), 1);
    let held = crowd.server.state(KEY).expect("it is held");
    let fence = held.body.holds().iter().next().expect("one hold").fence;
    crowd.server.engine.stand_down();
    let (how, at, now) = (End::Released, crowd.now.unix(), crowd.now);
    let (followed, _) = crowd.server.call(KEY, Family::Lock, |engine, key| {
        let changes = [Change::End { fence, how, at }, Change::Vanish];
        engine.follow(key, Family::Lock, &changes, now)
    });
    assert_eq!(followed, Ok(()));
    crowd.take_over();
    crowd.tasks_here();
    assert_eq!(crowd.words(), ["granted"]);
}

/// What had been put off was looked at by a server that no longer decided anything.
#[test]
fn nothing_that_was_put_off_outlasts_a_demotion() {
    let mut crowd = Crowd::new();
    crowd.ephemeral(1);
    crowd.server.engine.disconnected(ClientId(1), crowd.now);
    assert_eq!(crowd.tasks_elsewhere().len(), 1);
    crowd.server.engine.stand_down();
    assert_eq!(crowd.server.engine.next_wake(crowd.now), None);
    crowd.pass(50);
    let mut budget = 100;
    let task = crowd.server.engine.next_task(crowd.now, &mut budget);
    assert!(task.is_none(), "{:?}", task.map(|(task, ..)| task));
}
