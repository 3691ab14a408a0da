//! Who is next. Every call that changes a key or its queue ends in [`Engine::settle`], so that after any
//! event there is never a grantable waiter at the head of a queue that nobody will look at again.
//!
//! Answers go out a bounded slice at a time; a queue with more to do stays due, and while anybody
//! still waits in it new requests line up behind.

use super::answer::{Answer, Refusal};
use super::change::Change;
use super::effect::Wake;
use super::queues::QueueId;
use super::types::{Claim, LeaseUs, Now};
use super::wait_queue::{Left, Place};
use super::{Body, End, Engine, Family, Key, StateId};

/// How many waiters one call answers.
const SLICE: u32 = 128;

/// How many overdue holds one call ends.
const LAPSES: u32 = 1_024;

/// What the queue of a key needs next.
enum Next {
    /// Nothing: whoever is first must wait.
    Nothing,
    Tell(Place, Answer),
    Grant(Place),
    /// As many attempts as this request allows have come to nothing.
    GiveUp(Place),
    /// The round is over: all its watchers are to be told.
    Finish,
    /// What the watchers watched is gone, or has become something else.
    Dismiss(Answer),
}

impl Engine {
    /// Serves whoever can be served, and leaves the key as it should be found: gone if it is at its
    /// end, in the deadline index otherwise.
    pub(super) fn settle(&mut self, key: &mut Key<'_>, now: Now) {
        self.serve(key, now);
        let queue = self.queues.find(key.db, key.name);
        let waited = queue
            .and_then(|id| self.queues.get(id))
            .is_some_and(|q| q.waiters() > 0);
        let Some(id) = key.state else { return };
        if let Some(body) = self.body_mut(key)
            && queue.is_some()
        {
            body.watched(now.unix());
        }
        if let Some(queue) = queue {
            self.queues.drop_if_empty(queue);
        }
        self.effects.free = !waited && self.has_gained_capacity(key);
        if now.may_write && self.is_at_its_end(key, waited, now) {
            let family = self
                .body_mut(key)
                .map_or(Family::Lock, |body| body.family());
            self.decide(key, family, Change::Vanish, now);
            self.discard(key);
        } else {
            self.index(id, waited);
        }
    }

    /// Whether what this call has done lets somebody in who had to stay outside before.
    fn has_gained_capacity(&self, key: &Key<'_>) -> bool {
        let gained = self.effects.changes.iter().any(|change| {
            matches!(
                change,
                Change::End { .. } | Change::Fail { .. } | Change::Limit(_) | Change::Pin(_)
            )
        });
        let body = key
            .state
            .and_then(|id| self.states.get(id))
            .map(|state| &state.body);
        gained
            && match body {
                Some(Body::Lock(lock)) => lock.holds.is_empty(),
                Some(Body::Semaphore(semaphore)) => semaphore
                    .limit_in_force()
                    .is_some_and(|limit| semaphore.admits(1, limit)),
                // Without a gate nobody ever stays outside.
                Some(Body::Group(group)) => {
                    let limit = group.tally().limit;
                    limit.is_some() && group.admits(limit)
                }
                Some(Body::Once(once)) => once.admits(),
                None => false,
            }
    }

    fn is_at_its_end(&self, key: &Key<'_>, waited: bool, now: Now) -> bool {
        let Some(state) = key.state.and_then(|id| self.states.get(id)) else {
            return false;
        };
        if !state.body.holds().is_empty() {
            return false;
        }
        match &state.body {
            Body::Lock(_) => true,
            Body::Semaphore(semaphore) => !semaphore.outlives_use() && !waited,
            Body::Group(_) | Body::Once(_) => {
                let until = state.body.retained_until(&self.settings);
                !waited && until.is_none_or(|until| until <= now.unix())
            }
        }
    }

    /// Answers waiters as long as the first of them can be answered.
    pub(super) fn serve(&mut self, key: &mut Key<'_>, now: Now) {
        let queue = self.queues.find(key.db, key.name);
        if !now.may_write {
            if let Some(queue) = queue {
                self.queues.set_due(queue);
            }
            return;
        }
        let Some(queue) = queue else {
            if let Some(Body::Group(group)) = self.body_mut(key)
                && group.is_over(false)
            {
                self.finish_round(key, now);
            }
            return;
        };
        self.remember_limit(key, queue);
        for _ in 0..SLICE {
            match self.next_in(key, queue) {
                Next::Nothing => return self.queues.settle_or_drop(queue),
                Next::Tell(place, answer) => self.tell(queue, place, answer),
                Next::Grant(place) => self.grant_next(key, queue, place, now),
                Next::GiveUp(place) => {
                    let answer = self.give_up(key, now);
                    self.tell(queue, place, answer);
                }
                Next::Finish => {
                    let answer = self.finish_round(key, now);
                    if let Some(queue) = self.queues.get_mut(queue) {
                        queue.answer_watchers(answer);
                    }
                }
                Next::Dismiss(answer) => {
                    if let Some(queue) = self.queues.get_mut(queue) {
                        queue.answer_watchers(answer);
                    }
                }
            }
        }
        self.queues.set_due(queue);
    }

    fn next_in(&self, key: &Key<'_>, id: QueueId) -> Next {
        let Some(queue) = self.queues.get(id) else {
            return Next::Nothing;
        };
        if let Some((place, answer)) = queue.next_answered() {
            return Next::Tell(place, answer);
        }
        let body = key
            .state
            .and_then(|id| self.states.get(id))
            .map(|state| &state.body);
        if queue.has_watching() {
            match body {
                Some(Body::Group(_)) => {}
                Some(Body::Lock(_) | Body::Semaphore(_) | Body::Once(_)) => {
                    return Next::Dismiss(Answer::WrongType);
                }
                None => return Next::Dismiss(Answer::Removed),
            }
        }
        // Without a state the queue begins afresh, under the limit it was waiting for.
        let limit = body.map_or(queue.limit, Body::limit_in_force);
        let semaphore = queue
            .head()
            .is_some_and(|(_, w)| w.request.claim.family() == Family::Semaphore);
        if let Some(limit) = limit.filter(|limit| *limit >= 1 && semaphore)
            && let Some((place, permits)) = queue.above(limit)
        {
            return Next::Tell(place, Answer::Refused(Refusal::TooMany { permits, limit }));
        }
        let Some((place, head)) = queue.head() else {
            return match body {
                Some(Body::Group(group)) if group.is_over(false) => Next::Finish,
                _ => Next::Nothing,
            };
        };
        let claim = head.request.claim;
        let fits = match body {
            Some(body) if body.family() != claim.family() => {
                return Next::Tell(place, Answer::WrongType);
            }
            Some(Body::Semaphore(_)) | None
                if matches!(claim, Claim::Permits(_)) && limit.is_none() =>
            {
                return Next::Tell(place, Answer::Refused(Refusal::NoLimit));
            }
            Some(body) => body.admits(claim, limit),
            None => limit != Some(0),
        };
        if let Some(Body::Once(once)) = body {
            if let Some(answer) = once.answer_done() {
                return Next::Tell(place, answer);
            }
            if fits && once.is_exhausted(head.request.most) {
                return Next::GiveUp(place);
            }
        }
        if fits {
            Next::Grant(place)
        } else {
            Next::Nothing
        }
    }

    /// Keeps in mind what the queue goes by should the key be removed.
    fn remember_limit(&mut self, key: &Key<'_>, queue: QueueId) {
        let body = key
            .state
            .and_then(|id| self.states.get(id))
            .map(|state| &state.body);
        if let Some(limit) = body.and_then(Body::limit_to_remember)
            && let Some(queue) = self.queues.get_mut(queue)
        {
            queue.limit = Some(limit);
        }
    }

    pub(super) fn tell(&mut self, queue: QueueId, place: Place, answer: Answer) {
        let left = self.queues.leave(queue, place);
        if let Some(waiter) = left.as_ref().and_then(Left::waiter) {
            self.effects.wake(waiter, answer);
        }
    }

    fn grant_next(&mut self, key: &mut Key<'_>, queue: QueueId, place: Place, now: Now) {
        let afresh = self.queues.get(queue).and_then(|queue| queue.limit);
        let Some(Left::Waiter(mut waiter)) = self.queues.leave(queue, place) else {
            return;
        };
        if key.state.is_none() && !matches!(waiter.request.claim.family(), Family::Lock) {
            waiter.request.limit = afresh;
        }
        let token = waiter.request.token.clone();
        let waited_ms = now.mono.ms_since(waiter.since);
        self.stats
            .granted_after(waiter.request.claim.family(), waited_ms);
        let fence = self.grant(key, waiter.request, now);
        let answer = self.granted(key, token, fence);
        self.effects.wakes.push(Wake {
            waiter: waiter.id,
            answer,
            grant: key.state.map(|id| (id, fence)),
        });
    }

    fn finish_round(&mut self, key: &mut Key<'_>, now: Now) -> Answer {
        let keep_until = now.unix().after_ms(self.settings.group_keep_ms);
        self.decide(key, Family::Group, Change::Finish { keep_until }, now);
        match self.body_mut(key) {
            Some(Body::Group(group)) => {
                let tally = group.tally();
                Answer::Finished {
                    done: tally.done,
                    lost: tally.lost,
                }
            }
            _ => Answer::Finished { done: 0, lost: 0 },
        }
    }

    /// Ends the holds of this key whose lease has run out.
    pub(super) fn lapse_due(&mut self, key: &mut Key<'_>, now: Now) {
        if !now.may_write {
            return;
        }
        for _ in 0..LAPSES {
            let Some(body) = self.body_mut(key) else {
                return;
            };
            let family = body.family();
            let due = body.holds().earliest().filter(|(due, _)| *due <= now.lease);
            let Some((_, fence)) = due else { return };
            self.end(key, family, fence, End::Lapsed, now);
        }
    }

    /// Puts the state under its next moments, if it is this server's to watch them.
    pub(super) fn index(&mut self, id: StateId, waited: bool) {
        let Some(state) = self.states.get_mut(id) else {
            return;
        };
        if !self.serving || self.spaces.db(state.space).is_none() {
            return;
        }
        match state.body.holds().earliest() {
            Some((LeaseUs(due), _)) => self.leases.schedule(id, due),
            None => self.leases.cancel(id),
        }
        let idle = state.body.holds().is_empty() && !waited;
        let until = state.body.retained_until(&self.settings).filter(|_| idle);
        if let Some(noted) = state.body.retention_mut() {
            if let Some(before) = std::mem::replace(noted, until) {
                self.retention.remove(&(before, id));
            }
            if let Some(until) = until {
                self.retention.insert((until, id));
            }
        }
    }

    pub(super) fn unindex(&mut self, id: StateId) {
        self.leases.cancel(id);
        if let Some(state) = self.states.get_mut(id)
            && let Some(until) = state.body.retention_mut().and_then(Option::take)
        {
            self.retention.remove(&(until, id));
        }
    }
}
