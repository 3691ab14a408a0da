//! In a cluster: keys that this server may not write for a while, keys that have left it, and fences that other nodes
//! announce. The tasks of a key that is on another node are performed with `may_write` false.

use crate::fixture::word;
use crate::long_queues::{KEY, OneKey};
use crate::model::TICK_US;
use crate::server::key_bytes;
use dsync_engine::LaneName;
use dsync_engine::Task;
use dsync_engine::answer::Answer;
use dsync_engine::change::{Change, End};
use dsync_engine::types::{Claim, ClientId, Fence, LeaseMs, MonoUs, Now, Token};
use dsync_engine::{Announcement, Engine, Family, Reply, Request, Visit};

const MS: u64 = 1_000;
const YEAR_US: u64 = 366 * 86_400 * 1_000_000;

impl OneKey {
    pub fn pass(&mut self, ms: u64) {
        self.now.mono.0 += ms * MS;
        self.now.unix_us += ms * MS;
        self.now.lease.0 += (ms * MS).next_multiple_of(TICK_US);
    }

    /// Performs all due tasks while the key cannot be written. Returns them.
    fn tasks_unwritable(&mut self) -> Vec<Task> {
        let mut seen = Vec::new();
        let mut budget = 100;
        while let Some((task, ..)) = self.server.engine.next_task(self.now, &mut budget) {
            seen.push(task);
            let mut now = self.now;
            now.may_write = false;
            let (_, done) = self.server.call(KEY, Family::Lock, now, |visit| {
                visit.perform(task);
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

    fn tasks_writable(&mut self) {
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
            bound: None,
            lease: LeaseMs(30_000),
            wait: None,
            min_hold: None,
            keep_ms: None,
            token: Token::parse(b"the same").expect("legal"),
            may_return: true,
            client: ClientId(client),
            ephemeral: true,
            owner: None,
            lane: LaneName::default(),
            may_grow: true,
        };
        let now = self.now;
        let (reply, _) = self
            .server
            .call(KEY, Family::Lock, now, |visit| visit.acquire(request));
        reply
    }
}

/// A slot moved away while a request waited. When the holder's lease ran out, the node that no longer had the slot
/// granted the lock to the waiter, although the new node had granted it to another client.
#[test]
fn tasks_of_unwritable_key_stay_due() {
    let mut one_key = OneKey::new();
    one_key.acquire(Claim::Exclusive, None, None, 0);
    one_key.acquire(Claim::Exclusive, None, Some(MonoUs::NEVER), 1);
    let short = one_key.now.mono.after_ms(60_000);
    one_key.acquire(Claim::Exclusive, None, Some(short), 2);
    one_key.pass(30_001);
    let mut looked = 0;
    for _ in 0..100 {
        looked += one_key.tasks_unwritable().len();
        let wake = one_key.server.engine.next_wake(one_key.now);
        assert!(
            wake.is_some_and(|us| (1..=50 * MS).contains(&us)),
            "looked at again, and not all the time: {wake:?}"
        );
        one_key.pass(10);
    }
    assert!((20..=60).contains(&looked), "{looked} looks in a second");
    assert_eq!(one_key.words(), [""; 0], "no waiter is answered");

    one_key.pass(30_000);
    one_key.tasks_unwritable();
    assert_eq!(
        one_key.words(),
        ["not granted"],
        "a wait runs out all the same"
    );

    one_key.pass(50);
    one_key.tasks_writable();
    assert_eq!(one_key.words(), ["not granted", "granted"], "ours again");
}

/// The same for a queue that is due because the key was removed.
#[test]
fn due_queue_is_visited_when_its_key_is_writable_again() {
    let mut one_key = OneKey::new();
    one_key.acquire(Claim::Exclusive, None, None, 0);
    one_key.acquire(Claim::Exclusive, None, Some(MonoUs::NEVER), 1);
    one_key.server.delete(KEY);
    assert!(!one_key.tasks_unwritable().is_empty());
    assert!(one_key.tasks_unwritable().is_empty(), "put off");
    one_key.pass(50);
    one_key.tasks_writable();
    assert_eq!(one_key.words(), ["granted"]);
}

/// A round was over, not all who waited for it were told yet, and the slot moved away. Those whose waits ran out were
/// told that it was not over.
#[test]
fn decided_answer_is_told_in_place_of_a_timeout() {
    let mut one_key = OneKey::new();
    one_key.acquire(Claim::Member, None, None, 0);
    let (now, until) = (one_key.now, one_key.now.mono.after_ms(5));
    for client in 1..=200 {
        let wait = |visit: &mut Visit<'_>| visit.wait(Some(until), ClientId(client));
        let (reply, _) = one_key.server.call(KEY, Family::Group, now, wait);
        assert!(matches!(reply, Reply::Queued(_)));
    }
    let token = Token::parse(b"client 0").expect("legal");
    let done = |visit: &mut Visit<'_>| visit.done([&token]);
    let (_, done) = one_key.server.call(KEY, Family::Group, now, done);
    one_key.take(done.wakes);
    assert!(one_key.told.len() < 200, "more than a slice");
    one_key.pass(6);
    one_key.tasks_unwritable();
    assert_eq!(one_key.words(), ["finished"; 200]);
}

/// A queue that becomes due many times while its key cannot be written must not be put off many times.
#[test]
fn task_is_put_off_only_once() {
    let mut one_key = OneKey::new();
    one_key.acquire(Claim::Exclusive, None, None, 0);
    for client in 1..=100 {
        one_key.acquire(Claim::Exclusive, None, Some(MonoUs::NEVER), client);
    }
    for client in 1..=99 {
        one_key
            .server
            .engine
            .disconnected(ClientId(client), one_key.now);
        one_key.tasks_unwritable();
        one_key.pass(1);
    }
    one_key.pass(50);
    let looks = one_key.tasks_unwritable().len();
    assert!(looks <= 50, "{looks} looks for what is put off, in one go");
    one_key.pass(50);
    let looks = one_key.tasks_unwritable().len();
    assert!(looks <= 2, "and {looks} from then on");
}

/// The connection of an EPHEMERAL hold closed while the key could not be written, and the token retried on another
/// connection.
#[test]
fn end_put_off_spares_hold_retried_by_its_token() {
    let mut one_key = OneKey::new();
    one_key.ephemeral(1);
    one_key.server.engine.disconnected(ClientId(1), one_key.now);
    assert_eq!(one_key.tasks_unwritable().len(), 1);
    one_key.ephemeral(2);
    one_key.pass(50);
    one_key.tasks_writable();
    let held = |one_key: &OneKey| one_key.server.state(KEY).is_some();
    assert!(held(&one_key), "it is the other connection's");
    one_key.server.engine.disconnected(ClientId(2), one_key.now);
    one_key.tasks_unwritable();
    one_key.pass(50);
    one_key.tasks_writable();
    assert!(!held(&one_key));
}

#[test]
fn finished_group_is_kept_until_its_key_is_writable() {
    let mut one_key = OneKey::new();
    one_key.acquire(Claim::Member, None, None, 0);
    let (token, now) = (Token::parse(b"client 0").expect("legal"), one_key.now);
    let (done, _) = one_key
        .server
        .call(KEY, Family::Group, now, |visit| visit.done([&token]));
    assert_eq!(done, Ok(1));
    one_key.pass(60_001);
    assert_eq!(one_key.tasks_unwritable().len(), 1);
    assert!(one_key.tasks_unwritable().is_empty(), "put off");
    one_key.pass(50);
    one_key.tasks_writable();
    assert!(one_key.server.state(KEY).is_none());
}

#[test]
fn delay_of_unwritable_key_ends_when_it_is_writable() {
    let mut one_key = OneKey::new();
    one_key.acquire(Claim::Run, None, None, 0);
    let (token, now) = (Token::parse(b"client 0").expect("legal"), one_key.now);
    let (failed, _) = one_key.server.call(KEY, Family::Once, now, |visit| {
        visit.fail(&token, b"broken".as_slice().into(), 5)
    });
    assert_eq!(failed, Ok(true));
    one_key.queue_requests(Claim::Run, 1, MonoUs::NEVER);
    one_key.pass(5);
    assert_eq!(one_key.tasks_unwritable().len(), 1);
    assert!(one_key.tasks_unwritable().is_empty(), "put off");
    one_key.pass(50);
    one_key.tasks_writable();
    assert_eq!(one_key.words(), ["run"]);
}

/// A client that gives up knows of no hold, also while the end of its undelivered grant waits for the key to be writable.
#[test]
fn release_of_undelivered_grant_that_cannot_end_yet_ends_it_as_undelivered() {
    let mut one_key = OneKey::new();
    one_key.acquire(Claim::Exclusive, None, None, 0);
    one_key.queue_requests(Claim::Exclusive, 1, MonoUs::NEVER);
    let now = one_key.now;
    let release = |one_key: &mut OneKey, token: &str| {
        let token = Token::parse(token.as_bytes()).expect("legal");
        let release = |visit: &mut Visit<'_>| visit.release(Family::Lock, &token);
        one_key.server.call(KEY, Family::Lock, now, release).1
    };
    let mut done = release(&mut one_key, "client 0");
    let grant = done.wakes.pop().and_then(|wake| wake.grant);
    let grant = grant.expect("the lock is handed over");
    (one_key.server.engine).undelivered(grant, ClientId(1), true, now);
    assert_eq!(one_key.tasks_unwritable().len(), 1);
    let done = release(&mut one_key, "client 1");
    let [Change::End { how, .. }, Change::Vanish] = done.changes[..] else {
        panic!("{:?}", done.changes);
    };
    assert_eq!(how, End::Undelivered);
}

/// MIGRATE moved a key away, and its waiters on the old node would have waited for ever.
#[test]
fn waiters_of_migrated_key_are_answered_in_slices() {
    let mut one_key = OneKey::new();
    one_key.acquire(Claim::Member, Some(1), None, 0);
    one_key.queue_requests(Claim::Member, 500, MonoUs::NEVER);
    let now = one_key.now;
    for client in 1_001..=1_500 {
        one_key.server.call(KEY, Family::Group, now, |visit| {
            visit.wait(Some(MonoUs::NEVER), ClientId(client))
        });
    }
    one_key.server.delete(KEY);
    let name = key_bytes(KEY);
    let mut slices = 0;
    let mut budget = 1_000;
    while one_key.server.engine.next_task(now, &mut budget).is_some() {
        let key = one_key.server.key(KEY, &name);
        one_key.server.engine.turn_away(key, &Answer::KeyLeft, now);
        let wakes = std::mem::take(&mut one_key.server.engine.effects.wakes);
        assert!(wakes.len() <= 300, "{} answers in one slice", wakes.len());
        one_key.take(wakes);
        slices += 1;
    }
    assert!(slices >= 4);
    assert_eq!(one_key.told.len(), 1_000);
    assert!(
        one_key
            .told
            .iter()
            .all(|(_, answer)| *answer == Answer::KeyLeft)
    );
    one_key.server.engine.check_invariants(now);
}

/// To answer clients writes nothing, so it waits for nothing.
#[test]
fn waiters_of_key_that_left_are_answered_while_nothing_can_be_written() {
    let mut one_key = OneKey::new();
    one_key.acquire(Claim::Exclusive, None, None, 0);
    one_key.queue_requests(Claim::Exclusive, 2, MonoUs::NEVER);
    one_key.server.delete(KEY);
    let name = key_bytes(KEY);
    let key = one_key.server.key(KEY, &name);
    let closed = Now {
        may_write: false,
        ..one_key.now
    };
    let engine = &mut one_key.server.engine;
    engine.turn_away(key, &Answer::KeyLeft, closed);
    assert_eq!(engine.effects.wakes.len(), 2);
}

/// A slot was streamed to a node that is a primary already. A renewal arrived there too, but had no effect: the hold
/// lapsed by the lease it had been granted with.
#[test]
fn renewal_streamed_to_primary_moves_lease() {
    let mut one_key = OneKey::new();
    let mut source = OneKey::new();
    source.acquire(Claim::Exclusive, None, None, 0);
    let changes: Vec<Change> = match source.server.state(KEY) {
        Some(state) => state.body.as_changes().collect(),
        None => panic!("it is held"),
    };
    let [Change::Grant(grant)] = &changes[..] else {
        panic!("one hold: {changes:?}");
    };
    let (fence, lease) = (grant.fence, grant.lease);
    let follow = |one_key: &mut OneKey, change: Change| {
        let now = one_key.now;
        let (followed, _) = one_key.server.call(KEY, Family::Lock, now, |visit| {
            visit.follow(Family::Lock, std::slice::from_ref(&change))
        });
        assert_eq!(followed, Ok(()), "{change:?}");
    };
    follow(&mut one_key, changes[0].clone());
    one_key.pass(25_000);
    let deadline = one_key.now.unix().after_ms(30_000);
    follow(
        &mut one_key,
        Change::Renew {
            fence,
            lease,
            deadline,
        },
    );
    one_key.pass(29_999);
    one_key.tasks_writable();
    assert!(
        one_key.server.state(KEY).is_some(),
        "its renewed lease runs"
    );
    one_key.pass(5_001);
    one_key.tasks_writable();
    assert!(one_key.server.state(KEY).is_none(), "and runs out");
}

/// What a node tells whose last fence is this one, and who has heard nothing.
fn told(last: Fence) -> Announcement {
    Announcement {
        last,
        ..Announcement::default()
    }
}

/// A node was promoted, so its fences were an hour ahead. A lock was taken and released there, and its slot moved on
/// without the key. The next node gave a fence from its own clock: a lower one, which the protected resource refused.
#[test]
fn new_slot_owner_leaps_past_announced_fences() {
    for by_base in [false, true] {
        let mut one_key = OneKey::new();
        let now = one_key.now;
        let engine = &mut one_key.server.engine;
        let leap = |engine: &mut Engine, distance| match by_base {
            true => engine.fences_mut().leap_past_base(distance, now),
            false => engine.fences_mut().leap_past_heard(distance, now),
        };
        let hear = |engine: &mut Engine, fence| match by_base {
            true => engine.fences_mut().hear_base(fence, now),
            false => engine.fences_mut().hear(told(fence), now),
        };
        let before = engine.fences().last();
        leap(engine, 7);
        assert_eq!(engine.fences().last(), before, "nothing was heard of");
        let ahead = Fence(now.unix_us + 3_600 * 1_000_000);
        hear(engine, ahead);
        hear(engine, Fence(7));
        assert_eq!(engine.fences().highest_heard(), ahead, "the highest counts");
        let own = engine.fences().last();
        assert!(
            own < ahead,
            "an announced fence alone does not move the last fence"
        );
        let distance = 1_000_000;
        leap(engine, distance);
        leap(engine, 7);
        assert_eq!(
            engine.fences().last(),
            Fence(ahead.0 + distance),
            "never back"
        );
        let Reply::Now(Answer::Granted { fence, .. }) =
            one_key.acquire(Claim::Exclusive, None, None, 0)
        else {
            panic!("it is free");
        };
        assert_eq!(fence.0, ahead.0 + distance + 1);
    }
}

#[test]
fn announced_fence_over_a_year_ahead_is_ignored() {
    let mut one_key = OneKey::new();
    let now = one_key.now;
    let engine = &mut one_key.server.engine;
    let (year, more) = (
        Fence(now.unix_us + YEAR_US),
        Fence(now.unix_us + YEAR_US + 1),
    );
    for announced in [
        told(more),
        Announcement {
            heard: more,
            ..told(Fence(0))
        },
        Announcement {
            base: more,
            ..told(Fence(0))
        },
    ] {
        engine.fences_mut().hear(announced, now);
        assert_eq!(engine.fences().highest_heard(), Fence(0), "{announced:?}");
    }
    engine.fences_mut().hear(told(year), now);
    assert_eq!(engine.fences().highest_heard(), year);
    engine.fences_mut().hear(told(Fence::MAX), now);
    assert_eq!(engine.fences().highest_heard(), year);
}

/// A node of the cluster had an epoch near 2^53. The node that got a slot went as far ahead, and all its fences were
/// equal from then on.
#[test]
fn no_distance_takes_fences_past_a_year() {
    let mut one_key = OneKey::new();
    let now = one_key.now;
    let engine = &mut one_key.server.engine;
    engine.fences_mut().hear(told(Fence(now.unix_us)), now);
    engine.fences_mut().hear_base(Fence(now.unix_us), now);
    engine.fences_mut().leap_past_base(u64::MAX, now);
    engine.fences_mut().leap_past_heard(u64::MAX, now);
    engine.fences_mut().leap_past_own(u64::MAX, now);
    assert_eq!(engine.fences().last(), Fence(now.unix_us + YEAR_US));
    let announced = engine.fences_mut().announce(u64::MAX);
    assert_eq!(announced.base, Fence(now.unix_us), "no less than was heard");
    let Reply::Now(Answer::Granted { fence, .. }) =
        one_key.acquire(Claim::Exclusive, None, None, 0)
    else {
        panic!("it is free");
    };
    assert_eq!(fence.0, now.unix_us + YEAR_US + 1);
}

/// A node that restarted had forgotten what it had heard, so its fences went back by an hour when it got a slot whose
/// owner had died. Now the others repeat what they have heard, which must not drive the fences ahead.
#[test]
fn repeated_fences_are_heard_but_not_ones_own() {
    let now = OneKey::new().now;
    let ahead = Fence(now.unix_us + 7_200 * 1_000_000);
    let [mut dead, mut witness, mut node] = [(); 3].map(|()| Engine::default());
    dead.fences_mut().adopt(ahead, now);
    witness
        .fences_mut()
        .hear(dead.fences_mut().announce(10), now);
    node.fences_mut()
        .hear(witness.fences_mut().announce(20), now);
    assert_eq!(node.fences().highest_heard(), ahead);
    assert_eq!(node.fences().to_save(), ahead);
    node.fences_mut().leap_past_heard(2, now);
    assert_eq!(node.fences().last(), Fence(ahead.0 + 2));
    for _ in 0..9 {
        witness
            .fences_mut()
            .hear(node.fences_mut().announce(30), now);
        node.fences_mut()
            .hear(witness.fences_mut().announce(20), now);
        node.fences_mut().leap_past_heard(2, now);
        node.fences_mut().leap_past_base(12, now);
    }
    assert_eq!(
        node.fences().last(),
        Fence(ahead.0 + 2),
        "it has gone past all others"
    );
    // A node that has lost its own data hears from the witness how far it was.
    let mut again = Engine::default();
    again
        .fences_mut()
        .hear(witness.fences_mut().announce(20), now);
    assert_eq!(again.fences().highest_heard(), Fence(ahead.0 + 2));
}

/// In a cluster the server itself redirects the waiters of a demoted node, a moment after the demotion. A node was
/// promoted again before that; the lock had been released meanwhile, and its queue was not visited.
#[test]
fn waiters_left_after_demotion_are_served_after_promotion() {
    let mut one_key = OneKey::new();
    one_key.acquire(Claim::Exclusive, None, None, 0);
    one_key.acquire(Claim::Exclusive, None, Some(MonoUs::NEVER), 1);
    let held = one_key.server.state(KEY).expect("it is held");
    let fence = held.body.holds().iter().next().expect("one hold").fence();
    one_key.server.engine.stand_down();
    let (how, at, now) = (End::Released, one_key.now.unix(), one_key.now);
    let (followed, _) = one_key.server.call(KEY, Family::Lock, now, |visit| {
        let changes = [Change::End { fence, how, at }, Change::Vanish];
        visit.follow(Family::Lock, &changes)
    });
    assert_eq!(followed, Ok(()));
    one_key.take_over();
    one_key.tasks_writable();
    assert_eq!(one_key.words(), ["granted"]);
}

/// Tasks that had been put off were performed by a server after its demotion.
#[test]
fn demotion_drops_tasks_put_off() {
    let mut one_key = OneKey::new();
    one_key.ephemeral(1);
    one_key.server.engine.disconnected(ClientId(1), one_key.now);
    assert_eq!(one_key.tasks_unwritable().len(), 1);
    one_key.server.engine.stand_down();
    assert_eq!(one_key.server.engine.next_wake(one_key.now), None);
    one_key.pass(50);
    let mut budget = 100;
    let task = one_key.server.engine.next_task(one_key.now, &mut budget);
    assert!(task.is_none(), "{:?}", task.map(|(task, ..)| task));
}
