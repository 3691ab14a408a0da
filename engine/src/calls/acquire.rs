//! ACQUIRE, ADD and BEGIN: grant now, queue, or refuse.
//!
//! A request never passes an earlier one. While any request waits, a new one queues behind it, or fails if it may not
//! wait, even if it could be granted. If the token of a request already has a hold or a place in the queue, the request
//! is a retry, and gets what the token has.

use crate::answer::{Answer, Refusal};
use crate::change::Change;
use crate::hold::Grant;
use crate::queue::entry::{Keep, Place, Request, Seat, Vacancy, Waiter};
use crate::types::{Claim, Fence, LeaseMs, LeaseUs, Now, QueueId, Token, WaiterId};
use crate::{Body, Engine, Key, Reply};

/// What became of a request before the queue was served once more.
pub(super) enum Decided {
    Answer(Answer),
    Queued(Queued),
}

/// A request that has entered the queue.
pub(super) struct Queued {
    pub(super) id: WaiterId,
    pub(super) queue: QueueId,
    pub(super) place: Place,
}

impl Engine {
    pub fn acquire(&mut self, key: &mut Key<'_>, request: Request, now: Now) -> Reply {
        let family = request.claim.family();
        if self.body(key, family).is_err() {
            return Reply::Now(Answer::WrongType);
        }
        // Do this before any hold lapses, because its token may still renew an overdue hold.
        if let Some(answer) = self.repeat_grant(key, &request, now) {
            self.settle(key, now);
            return Reply::Now(answer);
        }
        self.catch_up(key, now);
        self.serve(key, now);
        // If the key was removed a moment ago, `serve` may have granted it to a waiter of another family.
        if self.body(key, family).is_err() {
            self.settle(key, now);
            return Reply::Now(Answer::WrongType);
        }
        // `serve` may just have granted an earlier sending of this request, which was queued.
        if let Some(answer) = self.repeat_grant(key, &request, now) {
            self.settle(key, now);
            return Reply::Now(answer);
        }
        let keeps = request.keep_ms.is_some();
        let decided = self.grant_or_queue(key, request, now);
        self.settle(key, now);
        let queued = match decided {
            Decided::Answer(answer) => return Reply::Now(answer),
            Decided::Queued(queued) => queued,
        };
        // `settle` may have granted this request: answer now instead of parking the client.
        match self.effects.answer_to(queued.id) {
            Some(answer) => Reply::Now(answer),
            None if keeps => Reply::Now(self.keep_waiting(&queued, now)),
            None => Reply::Queued(queued.id),
        }
    }

    /// Returns the grant that the token already has, if any: the same fence, a new lease from now, bound to the
    /// connection that asks. The counters do not count it again.
    pub(crate) fn repeat_grant(
        &mut self,
        key: &mut Key<'_>,
        request: &Request,
        now: Now,
    ) -> Option<Answer> {
        let holds = self.body_mut(key)?.holds();
        let hold = holds.by_token(&request.token)?;
        if hold.claim() != request.claim {
            return Some(Answer::Refused(Refusal::Mismatch));
        }
        let fence = hold.fence();
        self.renew_hold(key, fence, request.lease, now);
        self.bind(key, fence, request);
        Some(self.granted(key, request.token.clone(), fence))
    }

    fn grant_or_queue(&mut self, key: &mut Key<'_>, request: Request, now: Now) -> Decided {
        let queues = request.wait.is_some() || request.keep_ms.is_some();
        let queue = self.queues.find(key.db, key.name);
        let mut vacant = None;
        if let Some(id) = queue
            && let Some((place, seat)) = self
                .queues
                .get(id)
                .and_then(|queue| queue.find(&request.token))
        {
            let is_others = seat.claim().family() != request.claim.family();
            match seat {
                // What the token asked for is gone, and another family uses the name now.
                Seat::Vacant(_) if is_others => drop(self.queues.leave(id, place)),
                // The request was decided or withdrawn, in whatever mode it comes now.
                Seat::Vacant(Vacancy {
                    verdict: Some(verdict),
                    ..
                }) => return Decided::Answer(verdict.clone()),
                _ if seat.claim() != request.claim => {
                    return Decided::Answer(Answer::Refused(Refusal::Mismatch));
                }
                _ if queues => return self.resume(key, id, place, request, now),
                Seat::Waiting(_) => return Decided::Answer(Answer::NotGranted),
                // A vacant place delays nobody, so a try with its token is decided like any other try.
                Seat::Vacant(_) => vacant = Some((id, place)),
            }
        }
        if let Some(answer) = self.concluded(key, request.max_attempts) {
            return Decided::Answer(answer);
        }
        let limit = match self.limit_for(key, &request) {
            Ok(limit) => limit,
            Err(refusal) => return Decided::Answer(Answer::Refused(refusal)),
        };
        let waiting = queue
            .and_then(|id| self.queues.get(id))
            .is_some_and(super::super::queue::wait_queue::WaitQueue::has_waiting);
        let body = key
            .state
            .and_then(|id| self.states.get(id))
            .map(|state| &state.body);
        let fits = match body {
            Some(body) => body.admits(request.claim, limit),
            None => limit != Some(0),
        };
        let is_granted = fits && !waiting;
        if !is_granted && !queues {
            return Decided::Answer(Answer::NotGranted);
        }
        // From here on there is a new hold or a new place.
        if !request.may_grow {
            return Decided::Answer(Answer::Refused(Refusal::OutOfMemory));
        }
        if is_granted {
            let (token, family) = (request.token.clone(), request.claim.family());
            let Some(fence) = self.grant(key, request, None, now) else {
                return Decided::Answer(Answer::NotGranted);
            };
            self.stats.counters_mut(family).granted_at_once += 1;
            if let Some((queue, place)) = vacant {
                self.queues.leave(queue, place);
            }
            return Decided::Answer(self.granted(key, token, fence));
        }
        let bounds = self.queue_bounds();
        let room = match request.keep_ms {
            Some(_) => self.queues.check_room_for_kept(queue, bounds),
            None => Ok(()),
        };
        if let Err(full) = room.and_then(|()| self.queues.make_room(queue, bounds)) {
            return Decided::Answer(Answer::Refused(Refusal::QueueFull(full)));
        }
        self.queue_up(key, request, now)
    }

    /// Returns the limit under which this request is decided.
    fn limit_for(&self, key: &Key<'_>, request: &Request) -> Result<Option<u32>, Refusal> {
        let body = key
            .state
            .and_then(|id| self.states.get(id))
            .map(|state| &state.body);
        let in_force = body.and_then(Body::limit_in_force);
        match request.claim {
            Claim::Exclusive | Claim::Shared | Claim::Run => Ok(None),
            Claim::Member => Ok(request.limit.or(in_force)),
            Claim::Permits(permits) => {
                let pinned = body.and_then(|body| body.limits().pinned);
                let limit = pinned
                    .or(request.limit)
                    .or(in_force)
                    .ok_or(Refusal::NoLimit)?;
                // A limit of 0 pauses the semaphore, and no number of permits is too many for a pause.
                if limit >= 1 && permits > limit {
                    return Err(Refusal::TooMany { permits, limit });
                }
                Ok(Some(limit))
            }
        }
    }

    fn queue_up(&mut self, key: &mut Key<'_>, mut request: Request, now: Now) -> Decided {
        let Some(place) = self.next_place(now) else {
            return Decided::Answer(Answer::NotGranted);
        };
        let queue = self.queues.find_or_make(key.db, key.name);
        // The limit takes force when the request enters the queue, and not again when it is granted.
        let asked = request.limit.take();
        self.put_limit_in_force(key, request.claim, asked);
        let body = key
            .state
            .and_then(|id| self.states.get(id))
            .map(|state| &state.body);
        let limit = asked.or_else(|| body.and_then(Body::limit_to_remember));
        if let Some(limit) = limit
            && let Some(queue) = self.queues.get_mut(queue)
        {
            queue.remember_limit(request.claim.family(), limit);
        }
        let keep = request.keep_ms.take().map(|ms| Keep {
            ms,
            since: now.unix(),
            until: LeaseUs(0),
        });
        let waiter = Waiter {
            id: Some(self.queues.next_waiter()),
            request,
            since: now.mono,
            keep,
        };
        self.enter(key, queue, place, waiter, None)
    }

    /// Draws the rank of a new place. Returns `None` when there are no more numbers.
    pub(super) fn next_place(&mut self, now: Now) -> Option<Place> {
        let number = self.fences.next(now);
        (number < Fence::MAX).then_some(Place(number))
    }

    pub(super) fn put_limit_in_force(
        &mut self,
        key: &mut Key<'_>,
        claim: Claim,
        asked: Option<u32>,
    ) {
        let Some(limit) = asked else { return };
        let body = key
            .state
            .and_then(|id| self.states.get(id))
            .map(|state| &state.body);
        if body.and_then(|body| body.limits().limit) != Some(limit) {
            // If the state refuses the limit, `decide` logs it and the limit in force stays.
            let _ = self.decide(key, claim.family(), Change::Limit(limit));
        }
    }

    /// Grants the request, and returns the fence of the new hold; `None` if the state has refused it. `unheard_ms` says
    /// that nobody waits on its place, and how long that was kept: the first deadline is as short then.
    pub(crate) fn grant(
        &mut self,
        key: &mut Key<'_>,
        mut request: Request,
        unheard_ms: Option<u32>,
        now: Now,
    ) -> Option<Fence> {
        let first = unheard_ms.map_or(request.lease, |ms| LeaseMs(ms).min(request.lease));
        let fence = self.fences.next(now);
        let family = request.claim.family();
        self.put_limit_in_force(key, request.claim, request.limit);
        let token = std::mem::replace(&mut request.token, Token::Uuid([0; 16]));
        let grant = Grant {
            fence,
            token,
            claim: request.claim,
            lease: request.lease,
            deadline: now.unix().after_ms(u64::from(first.0)),
            granted: now.unix(),
            renewed: false,
            owner: request.owner.take(),
        };
        self.decide(key, family, Change::Grant(grant)).ok()?;
        if let Some(keep_ms) = unheard_ms {
            let _ = self.decide(key, family, Change::Unheard { fence, keep_ms });
        }
        if let Some(id) = key.state {
            self.set_due(id, fence, now.lease.after(first));
        }
        self.bind(key, fence, &request);
        Some(fence)
    }

    /// Returns the answer that tells a request that it holds.
    pub(crate) fn granted(&self, key: &Key<'_>, token: Token, fence: Fence) -> Answer {
        match key
            .state
            .and_then(|id| self.states.get(id))
            .map(|state| &state.body)
        {
            Some(Body::Once(once)) => Answer::Run {
                token,
                fence,
                attempt: once.attempts(),
            },
            _ => Answer::Granted { token, fence },
        }
    }

    /// Notes which connection the hold was given to: INFO shows it, and the end of an EPHEMERAL hold depends on it.
    fn bind(&mut self, key: &Key<'_>, fence: Fence, request: &Request) {
        let Some(id) = key.state else { return };
        let Some(state) = self.states.get_mut(id) else {
            return;
        };
        let mut local = state.body.local();
        if let Some(client) = local.bind(fence, request.client, request.ephemeral) {
            self.ephemeral.remove(&(client, fence));
        }
        if request.ephemeral {
            self.ephemeral.insert((request.client, fence), id);
        }
        // A new connection has the hold, so the end of the old one no longer matters.
        if !self.ending.is_empty() {
            self.ending.remove(&fence);
        }
        self.put_off.forget_end(fence);
    }
}
