//! Long queues of one key, answered in slices. Without the model, which would be too slow.

use crate::fixture::word;
use crate::model::{Name, TICK_US};
use crate::server::Server;
use crate::world::World;
use dsync_engine::LaneName;
use dsync_engine::answer::Answer;
use dsync_engine::effect::Wake;
use dsync_engine::types::{Claim, ClientId, Fence, LeaseMs, LeaseUs, MonoUs, Now, Token, WaiterId};
use dsync_engine::{Family, Reply, Request, Settings, Visit};

pub const KEY: Name = (0, 0);
const MS: u64 = 1_000;

/// A primary with requests for [`KEY`] only.
pub struct OneKey {
    pub server: Server,
    pub now: Now,
    /// The answers to waiting requests, in order.
    pub told: Vec<(WaiterId, Answer)>,
}

impl OneKey {
    pub fn new() -> OneKey {
        let now = World::new(Settings::default()).now;
        let mut server = Server::new(Settings::default());
        server.engine.take_over(now);
        OneKey {
            server,
            now,
            told: Vec::new(),
        }
    }

    /// Makes the server a primary. Moves its lease clock past all earlier moments first, as the module does.
    pub fn take_over(&mut self) {
        let latest = self.server.engine.latest_due();
        self.now.lease = self.now.lease.max(LeaseUs(latest.0 + 1));
        self.server.engine.take_over(self.now);
    }

    pub fn take(&mut self, wakes: Vec<Wake>) {
        self.told
            .extend(wakes.into_iter().map(|wake| (wake.waiter, wake.answer)));
    }

    pub fn acquire(
        &mut self,
        claim: Claim,
        limit: Option<u32>,
        wait: Option<MonoUs>,
        client: u64,
    ) -> Reply {
        let text = format!("client {client}");
        let request = Request {
            claim,
            limit,
            bound: None,
            lease: LeaseMs(30_000),
            wait,
            min_hold: None,
            keep_ms: None,
            token: Token::parse(text.as_bytes()).expect("legal"),
            may_return: true,
            client: ClientId(client),
            ephemeral: false,
            owner: None,
            lane: LaneName::default(),
            may_grow: true,
        };
        let now = self.now;
        let (reply, done) = self
            .server
            .call(KEY, claim.family(), now, |visit| visit.acquire(request));
        self.take(done.wakes);
        reply
    }

    /// Queues `count` requests, one after the other.
    pub fn queue_requests(&mut self, claim: Claim, count: u64, wait: MonoUs) -> Vec<WaiterId> {
        let queue_up = |client| match self.acquire(claim, None, Some(wait), client) {
            Reply::Queued(id) => id,
            Reply::Now(answer) => panic!("client {client} is told {answer:?}"),
        };
        (1..=count).map(queue_up).collect()
    }

    /// Performs one task. Returns whether there was one.
    pub fn one_task(&mut self) -> bool {
        let mut budget = 100;
        let Some((task, ..)) = self.server.engine.next_task(self.now, &mut budget) else {
            return false;
        };
        let now = self.now;
        let (_, done) = self.server.call(KEY, Family::Lock, now, |visit| {
            visit.perform(task);
        });
        assert!(
            done.wakes.len() <= 300,
            "{} answers in one slice",
            done.wakes.len()
        );
        self.take(done.wakes);
        true
    }
}

/// One event let ten thousand waiters in, and to answer them all at once stopped the server for all other clients.
#[test]
fn ten_thousand_waiters_are_granted_in_slices_in_order() {
    let kinds = [
        (Claim::Shared, None, Claim::Exclusive),
        (Claim::Permits(1), Some(20_000), Claim::Permits(20_000)),
    ];
    for (claim, limit, first) in kinds {
        let mut one_key = OneKey::new();
        one_key.acquire(first, limit, None, 0);
        let all = one_key.queue_requests(claim, 10_000, MonoUs::NEVER);
        let token = Token::parse(b"client 0").expect("legal");
        let now = one_key.now;
        let family = claim.family();
        let (released, done) = one_key
            .server
            .call(KEY, family, now, |visit| visit.release(family, &token));
        assert_eq!(released, Ok(true));
        assert!(
            done.wakes.len() < 300,
            "{claim:?}: {} answers in one slice",
            done.wakes.len()
        );
        one_key.take(done.wakes);
        let mut tries = 0;
        while one_key.told.len() < all.len() {
            assert_eq!(
                one_key.server.engine.next_wake(one_key.now),
                Some(0),
                "{claim:?}: more to do"
            );
            if tries < 9 {
                tries += 1;
                let reply = one_key.acquire(claim, None, None, 50_000 + tries);
                assert_eq!(
                    reply,
                    Reply::Now(Answer::NotGranted),
                    "{claim:?}: tries fail in between"
                );
            }
            assert!(
                one_key.one_task(),
                "{claim:?}: {} of {} told",
                one_key.told.len(),
                all.len()
            );
        }
        let order: Vec<_> = one_key.told.iter().map(|(id, _)| *id).collect();
        assert_eq!(order, all, "{claim:?}: all waiters, in order, once");
        assert!(
            one_key
                .told
                .iter()
                .all(|(_, answer)| matches!(answer, Answer::Granted { .. }))
        );
        one_key.server.engine.check_invariants(one_key.now);
        let reply = one_key.acquire(claim, None, None, 60_000);
        assert!(
            matches!(reply, Reply::Now(Answer::Granted { .. })),
            "{claim:?}: the queue is empty"
        );
    }
}

#[test]
fn ten_thousand_watchers_are_answered_in_slices() {
    for how in ["finished", "removed", "overwritten"] {
        let mut one_key = OneKey::new();
        one_key.acquire(Claim::Member, None, None, 0);
        let now = one_key.now;
        let mut all: Vec<WaiterId> = Vec::new();
        for client in 1..=10_000 {
            let (reply, _) = one_key.server.call(KEY, Family::Group, now, |visit| {
                visit.wait(Some(MonoUs::NEVER), ClientId(client))
            });
            let Reply::Queued(id) = reply else {
                panic!("client {client}: {reply:?}")
            };
            all.push(id);
        }
        // One of them leaves while the others are being answered.
        let leaver = 9_000;
        match how {
            "finished" => {
                let token = Token::parse(b"client 0").expect("legal");
                let (done, effects) = one_key
                    .server
                    .call(KEY, Family::Group, now, |visit| visit.done([&token]));
                assert_eq!(done, Ok(1));
                one_key.take(effects.wakes);
                // A WAIT that comes meanwhile is answered at once, and a new round does not change the answers that are
                // decided.
                let (reply, effects) = one_key.server.call(KEY, Family::Group, now, |visit| {
                    visit.wait(None, ClientId(99_999))
                });
                one_key.take(effects.wakes);
                assert_eq!(reply, Reply::Now(Answer::Finished { done: 1, lapsed: 0 }));
                one_key.acquire(Claim::Member, None, None, 70_000);
            }
            "removed" => one_key.server.delete(KEY),
            _ => one_key.server.overwrite(KEY),
        }
        one_key
            .server
            .engine
            .disconnected(ClientId(leaver + 1), one_key.now);
        if how == "overwritten" {
            let told = one_key.server.run_tasks(one_key.now);
            assert!(told.iter().all(|done| done.wakes.len() < 300), "in slices");
            told.into_iter().for_each(|done| one_key.take(done.wakes));
        } else {
            while one_key.one_task() {}
        }
        let answer = match how {
            "finished" => Answer::Finished { done: 1, lapsed: 0 },
            "removed" => Answer::Removed,
            _ => Answer::WrongType,
        };
        all.remove(leaver as usize);
        let expected: Vec<_> = all.into_iter().map(|id| (id, answer.clone())).collect();
        assert!(
            one_key.told == expected,
            "{how}: {} told of {}",
            one_key.told.len(),
            expected.len()
        );
        one_key.server.engine.check_invariants(one_key.now);
    }
}

/// After a stall the lock was free, and the wait of the last of 300 waiters had run out. It got a timeout, although it
/// was about to be granted.
#[test]
fn grant_wins_over_timeout_behind_299_waiters() {
    let mut one_key = OneKey::new();
    one_key.acquire(Claim::Exclusive, None, None, 0);
    one_key.queue_requests(Claim::Shared, 299, MonoUs::NEVER);
    let short = one_key.now.mono.after_ms(5);
    let Reply::Queued(last) = one_key.acquire(Claim::Shared, None, Some(short), 300) else {
        panic!("it queues");
    };
    one_key.now.mono.0 += 60_000 * MS;
    one_key.now.lease.0 += (60_000 * MS).next_multiple_of(TICK_US);
    while one_key.one_task() {}
    let told = one_key
        .told
        .iter()
        .find(|(id, _)| *id == last)
        .map(|(_, answer)| word(answer));
    assert_eq!((one_key.told.len(), told), (300, Some("granted")));
}

/// So many leases had run out that they were ended in two slices. Between the two a waiter timed out that could have
/// been granted after the second.
#[test]
fn grant_wins_over_timeout_when_leases_end_in_two_slices() {
    let mut one_key = OneKey::new();
    for client in 1_000..3_500 {
        one_key.acquire(Claim::Permits(1), Some(2_500), None, client);
    }
    let short = one_key.now.mono.after_ms(5);
    let Reply::Queued(all) = one_key.acquire(Claim::Permits(2_500), None, Some(short), 1) else {
        panic!("it queues");
    };
    one_key.now.mono.0 += 60_000 * MS;
    one_key.now.lease.0 += (60_000 * MS).next_multiple_of(TICK_US);
    while one_key.one_task() {}
    let told: Vec<_> = one_key
        .told
        .iter()
        .map(|(id, answer)| (*id, word(answer)))
        .collect();
    assert_eq!(told, [(all, "granted")]);
}

/// The answers of a finished round are given in slices. Between two of them the waits ran out.
#[test]
fn finished_round_wins_over_timeouts_of_its_watchers() {
    let mut one_key = OneKey::new();
    one_key.acquire(Claim::Member, None, None, 0);
    let now = one_key.now;
    let short = now.mono.after_ms(5);
    for client in 1..=500 {
        let wait = |visit: &mut Visit<'_>| visit.wait(Some(short), ClientId(client));
        let (reply, _) = one_key.server.call(KEY, Family::Group, now, wait);
        assert!(matches!(reply, Reply::Queued(_)));
    }
    let token = Token::parse(b"client 0").expect("legal");
    let done = |visit: &mut Visit<'_>| visit.done([&token]);
    let (ended, done) = one_key.server.call(KEY, Family::Group, now, done);
    assert_eq!(ended, Ok(1));
    one_key.take(done.wakes);
    assert!(one_key.told.len() < 500, "more than a slice");
    one_key.now.mono.0 += 60 * MS;
    while one_key.one_task() {}
    let is_told = |(_, answer): &(WaiterId, Answer)| word(answer) == "finished";
    assert_eq!(
        one_key.told.iter().filter(|told| is_told(told)).count(),
        500
    );
}

/// A rank is a fence, and each must be higher than all before it.
#[test]
fn nobody_waits_when_there_are_no_more_ranks() {
    let mut one_key = OneKey::new();
    one_key.acquire(Claim::Exclusive, None, None, 0);
    let fences = one_key.server.engine.fences_mut();
    fences.adopt(Fence(Fence::MAX.0 - 2), one_key.now);
    let mut ask = |client| one_key.acquire(Claim::Exclusive, None, Some(MonoUs::NEVER), client);
    assert!(matches!(ask(1), Reply::Queued(_)));
    assert_eq!(ask(2), Reply::Now(Answer::NotGranted));
}
