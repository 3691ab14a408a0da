//! What a visit reports: capacity that nobody is queued for, for those who try again when it is free, and the next moment.

use crate::fixture::MS;
use crate::kept::client_token;
use crate::long_queues::{KEY, OneKey};
use dsync_engine::LaneName;
use dsync_engine::types::{Claim, ClientId, Fence, LeaseMs, MonoUs};
use dsync_engine::{Family, Request, Visit};

const WAIT_MS: u64 = 5_000;

/// How the only request of a queue leaves it.
#[derive(Clone, Copy, Debug)]
enum Leaves {
    Withdrawn,
    Revoked,
    InTime,
    Closed,
}

fn request(client: u64, permits: u32) -> Request {
    Request {
        claim: Claim::Permits(permits),
        limit: Some(2),
        bound: None,
        lease: LeaseMs(30_000),
        wait: None,
        min_hold: None,
        keep_ms: None,
        token: client_token(client),
        may_return: true,
        client: ClientId(client),
        ephemeral: false,
        owner: None,
        lane: LaneName::default(),
        may_grow: true,
    }
}

impl OneKey {
    /// Makes a call on the key. Returns whether it freed capacity.
    fn frees(&mut self, call: impl FnOnce(&mut Visit<'_>)) -> bool {
        let (family, now) = (Family::Semaphore, self.now);
        self.server.call(KEY, family, now, call).1.is_freed
    }

    fn task_frees(&mut self) -> bool {
        let task = self.server.engine.next_task(self.now, &mut 100);
        let (task, ..) = task.expect("it is due");
        self.frees(|visit| visit.perform(task))
    }
}

/// One permit is left, and a request for two waits. While it does, the permit is for nobody else.
#[test]
fn permit_is_free_when_the_only_request_that_waits_has_left() {
    use Leaves::{Closed, InTime, Revoked, Withdrawn};
    for (keeps, leaves) in [
        (false, Withdrawn),
        (false, InTime),
        (false, Closed),
        (true, Withdrawn),
        (true, Revoked),
        (true, InTime),
    ] {
        let case = format!("kept {keeps}, {leaves:?}");
        let mut one_key = OneKey::new();
        one_key.frees(|visit| drop(visit.acquire(request(0, 1))));
        let until = MonoUs(one_key.now.mono.0 + WAIT_MS * MS);
        let waits = Request {
            wait: (!keeps).then_some(until),
            keep_ms: keeps.then_some(WAIT_MS as u32),
            ..request(1, 2)
        };
        let queued = one_key.frees(|visit| drop(visit.acquire(waits)));
        assert!(!queued, "{case}: it waits");
        let frees = match leaves {
            Withdrawn => one_key.frees(|visit| {
                let released = visit.release(Family::Semaphore, &client_token(1));
                assert_eq!(released, Ok(true));
            }),
            Revoked => {
                let rank = one_key.places()[0].rank;
                one_key.frees(|visit| {
                    assert_eq!(visit.revoke(Family::Semaphore, Fence(rank.0.0)), Ok(true));
                })
            }
            InTime => {
                one_key.later(WAIT_MS + 2);
                one_key.task_frees()
            }
            Closed => {
                let now = one_key.now;
                one_key.server.engine.disconnected(ClientId(1), now);
                one_key.task_frees()
            }
        };
        assert!(frees, "{case}: it has left");
    }
}

/// A new key frees nothing: whoever tried it before would have got it.
#[test]
fn first_limit_of_a_semaphore_frees_nothing() {
    let mut one_key = OneKey::new();
    let frees = one_key.frees(|visit| drop(visit.acquire(request(0, 1))));
    assert!(!frees);
}

/// The caller is told when to come back, and not to come back at once.
#[test]
fn grant_comes_due_when_its_lease_runs_out() {
    let mut one_key = OneKey::new();
    let (key, now) = (one_key.server.key(KEY, b"k"), one_key.now);
    let call = |visit: &mut Visit<'_>| drop(visit.acquire(request(0, 1)));
    let visited = one_key.server.engine.visit(key, now, call);
    assert!(visited.comes_due.is_some_and(|us| us > 0));
}

#[test]
fn member_and_run_that_have_ended_free_what_they_held() {
    for claim in [Claim::Member, Claim::Run] {
        let mut one_key = OneKey::new();
        let takes = Request {
            claim,
            limit: (claim == Claim::Member).then_some(1),
            ..request(0, 1)
        };
        let taken = one_key.frees(|visit| drop(visit.acquire(takes)));
        assert!(!taken, "{claim:?}");
        let frees = one_key.frees(|visit| match claim {
            Claim::Run => assert_eq!(visit.fail(&client_token(0), [].into(), 0), Ok(true)),
            _ => assert_eq!(visit.done([&client_token(0)]), Ok(1)),
        });
        assert!(frees, "{claim:?}");
    }
}
