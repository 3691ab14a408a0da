//! When capacity that nobody is queued for is reported as free: for those who try again when it is.

use crate::fixture::MS;
use crate::kept::client_token;
use crate::long_queues::{KEY, OneKey};
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
        max_attempts: None,
        lease: LeaseMs(30_000),
        wait: None,
        keep_ms: None,
        token: client_token(client),
        may_return: true,
        client: ClientId(client),
        ephemeral: false,
        owner: None,
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
