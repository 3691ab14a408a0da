//! Who is served next. Every call that changes a key or its queue ends in [`Engine::settle`]. So a first request of a
//! queue that could be granted is never left waiting with no later call to look at it.
//!
//! `settle` answers a bounded number of requests. A queue with more to answer stays due; until then new requests queue
//! behind its waiters.

use crate::answer::{Answer, Refusal};
use crate::change::Change;
use crate::effect::{HandedOver, Wake};
use crate::hold::Hold;
use crate::queue::entry::{Departed, Place};
use crate::types::{Claim, Now, QueueId};
use crate::{Body, Engine, Family, Key};

/// How many waiters one call answers.
const SLICE: u32 = 128;

/// What the queue of a key needs next.
enum Next {
    /// Nothing: the first request must wait.
    Nothing,
    /// Give this request this answer.
    Tell(Place, Answer),
    Grant(Place),
    /// The token of the request has a hold already, because RENAME or SWAPDB brought a key here in which it holds.
    Repeat(Place),
    /// The round had finished before this visit: answer the watchers.
    Finished,
    /// All attempts that this request allows have failed: answer FAILED.
    GiveUp(Place),
    /// The round is over now: record that, and answer the watchers.
    Finish,
    /// The group is gone, or the key has a value of another family: give the watchers this answer.
    Dismiss(Answer),
}

impl Engine {
    /// Serves the requests that can be served. Then removes the key if nothing keeps it; otherwise updates its entries
    /// in the deadline indexes.
    pub(crate) fn settle(&mut self, key: &mut Key<'_>, now: Now) {
        // An empty queue counts too: its last request has just left, and the queue goes with this visit.
        let queue = self.queues.find(key.db, key.name);
        self.serve_queue(key, queue, now);
        let queued = queue.and_then(|id| self.queues.get(id));
        let waited = queued.is_some_and(|queue| queue.waiters() > 0);
        // Kept places are saved with the value of their name, so they keep it.
        let keeps = queued.is_some_and(|queue| queue.kept() > 0);
        if let Some(queue) = queue.filter(|_| keeps) {
            self.queues.set_holder(queue, key.state);
        }
        let Some(id) = key.state else { return };
        if queue.is_some()
            && let Some(body) = self.body_mut(key)
        {
            body.local().watched(now.unix());
        }
        if let Some(queue) = queue {
            self.queues.drop_if_empty(queue);
        }
        if now.may_write && !keeps && self.is_at_its_end(key, waited, now) {
            self.vanish(key);
        } else {
            self.index(id);
        }
    }

    /// Serves the queue of an absent key. The key was removed a moment ago, so its waiters came before the request
    /// that is made now.
    pub(crate) fn settle_if_absent(&mut self, key: &mut Key<'_>, now: Now) {
        if key.state.is_none() {
            self.settle(key, now);
        }
    }

    /// Returns how much could be granted now to a request that does not wait: 0 if it would be refused, and a larger
    /// number for more capacity. If a call has raised this number, it has freed capacity that no waiter takes.
    ///
    /// Ask before and after a call, and compare if [`crate::effect::Effects::may_free_capacity`] is set.
    pub fn free_capacity(&mut self, key: &Key<'_>) -> u64 {
        let queue = self.queues.find(key.db, key.name);
        if let Some(queue) = queue.and_then(|id| self.queues.get_mut(id)) {
            if std::mem::take(&mut queue.left_unserved) {
                // Until a waiter left, a moment ago, new requests had to queue behind it.
                self.effects.may_free_capacity = true;
                return 0;
            }
            if queue.has_waiting() {
                return 0;
            }
        }
        let body = key
            .state
            .and_then(|id| self.states.get(id))
            .map(|state| &state.body);
        body.map_or(u64::MAX, Body::free_capacity)
    }

    /// Answers waiters while the first of them can be answered, up to `SLICE`.
    pub(crate) fn serve(&mut self, key: &mut Key<'_>, now: Now) {
        let queue = self.queues.find(key.db, key.name);
        self.serve_queue(key, queue, now);
    }

    /// [`Engine::serve`] for a caller that has found the key's queue.
    fn serve_queue(&mut self, key: &mut Key<'_>, queue: Option<QueueId>, now: Now) {
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
                Next::Nothing => return self.queues.finish_visit(queue),
                Next::Tell(place, answer) => self.tell(queue, place, answer, now),
                Next::Grant(place) => self.grant_next(key, queue, place, now),
                Next::Repeat(place) => self.grant_repeat(key, queue, place, now),
                Next::Finished => {
                    let answer = self.finished(key);
                    self.queues.answer_watchers(queue, answer);
                }
                Next::GiveUp(place) => {
                    let answer = self.give_up(key);
                    self.tell(queue, place, answer, now);
                }
                Next::Finish => {
                    let answer = self.finish_round(key, now);
                    self.queues.answer_watchers(queue, answer);
                }
                Next::Dismiss(answer) => self.queues.answer_watchers(queue, answer),
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
        // Without a state the first request makes a new one, under the limit that its family last waited for.
        let waits_for = queue.head().map(|(_, head)| head.request.claim.family());
        let remembered = waits_for.and_then(|family| queue.limit(family));
        let limit = body.map_or(remembered, Body::limit_in_force);
        let semaphore = waits_for == Some(Family::Semaphore)
            && body.is_none_or(|body| body.family() == Family::Semaphore);
        if let Some(limit) = limit.filter(|limit| *limit >= 1 && semaphore)
            && let Some((place, permits)) = queue.above(limit)
        {
            return Next::Tell(place, Answer::Refused(Refusal::TooMany { permits, limit }));
        }
        if let Some(Body::Once(once)) = body
            && once.is_delayed()
            && let Some(place) = queue.exhausted(once.attempts())
        {
            return Next::GiveUp(place);
        }
        let Some((place, head)) = queue.head() else {
            return match body {
                Some(Body::Group(group)) if group.is_over(false) => Next::Finish,
                // RENAME or SWAPDB has replaced the group that they waited for with one that had finished already, or
                // they waited for requests that have left a group without being added.
                Some(Body::Group(group))
                    if queue.has_watching() && group.has_nothing_to_wait_for(false) =>
                {
                    Next::Finished
                }
                _ => Next::Nothing,
            };
        };
        let claim = head.request.claim;
        let fits = match body {
            Some(body) if body.family() != claim.family() => {
                return Next::Tell(place, Answer::WrongType);
            }
            Some(body) if body.holds().by_token(&head.request.token).is_some() => {
                return Next::Repeat(place);
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
            // A pause holds back runs, but FAILED is told.
            if once.may_begin() && once.is_exhausted(head.request.max_attempts) {
                return Next::GiveUp(place);
            }
        }
        if fits {
            Next::Grant(place)
        } else {
            Next::Nothing
        }
    }

    /// Stores the limit in the queue, so that its waiters keep it if the key is removed.
    pub(super) fn remember_limit(&mut self, key: &Key<'_>, queue: QueueId) {
        let body = key
            .state
            .and_then(|id| self.states.get(id))
            .map(|state| &state.body);
        if let Some(body) = body
            && let Some(limit) = body.limit_to_remember()
            && let Some(queue) = self.queues.get_mut(queue)
        {
            queue.remember_limit(body.family(), limit);
        }
    }

    /// Removes the entry at this place, and gives it this answer. If nobody waits on a kept place, a decision is left
    /// there for its token.
    pub(crate) fn tell(&mut self, queue: QueueId, place: Place, answer: Answer, now: Now) {
        if let Some(left) = self.queues.leave(queue, place) {
            if let Some(vacancy) = self.with_verdict(&left, &answer, now) {
                self.queues.vacate(queue, place, vacancy);
            }
            self.part(place, left.waiter(), left.was_kept(), answer);
        }
    }

    fn grant_next(&mut self, key: &mut Key<'_>, queue: QueueId, place: Place, now: Now) {
        let Some(Departed::Waiter(mut waiter)) = self.queues.leave(queue, place) else {
            return;
        };
        if key.state.is_none() {
            let family = waiter.request.claim.family();
            let queue = self.queues.get(queue);
            waiter.request.limit = queue.and_then(|queue| queue.limit(family));
        }
        let former_place = waiter.former_place(place);
        let (token, family) = (waiter.request.token.clone(), waiter.request.claim.family());
        let unheard_ms = waiter.keep.filter(|_| waiter.id.is_none());
        let unheard_ms = unheard_ms.map(|keep| keep.ms);
        let Some(fence) = self.grant(key, waiter.request, unheard_ms, now) else {
            return self.part(place, waiter.id, waiter.keep.is_some(), Answer::NotGranted);
        };
        let waited_ms = now.mono.ms_since(waiter.since);
        self.stats.granted_after(family, waited_ms);
        let Some(id) = waiter.id else {
            return self.announce(place, Some(fence));
        };
        let answer = self.granted(key, token, fence);
        self.effects.wakes.push(Wake {
            waiter: id,
            answer,
            grant: key.state.map(|state| HandedOver {
                state,
                fence,
                former_place,
            }),
        });
    }

    fn grant_repeat(&mut self, key: &mut Key<'_>, queue: QueueId, place: Place, now: Now) {
        let Some(Departed::Waiter(waiter)) = self.queues.leave(queue, place) else {
            return;
        };
        let request = &waiter.request;
        let hold = self
            .body_mut(key)
            .and_then(|body| body.holds().by_token(&request.token));
        let its_own = hold.filter(|hold| hold.claim() == request.claim);
        let fence = its_own.map(Hold::fence);
        if waiter.keep.is_some() {
            self.effects.changes.push(Change::Leave { number: place.0 });
        }
        let Some(id) = waiter.id else {
            // Nobody was heard from, so the lease stays as it is.
            return self.announce(place, fence);
        };
        let grant = fence.and_then(|fence| {
            Some(HandedOver {
                state: key.state?,
                fence,
                former_place: waiter.former_place(place),
            })
        });
        if let Some(answer) = self.repeat_grant(key, &waiter.request, now) {
            self.effects.wakes.push(Wake {
                waiter: id,
                answer,
                grant,
            });
        }
    }

    fn finish_round(&mut self, key: &mut Key<'_>, now: Now) -> Answer {
        let keep_until = now.unix().after_ms(self.settings.group_keep_ms);
        let _ = self.decide(key, Family::Group, Change::Finish { keep_until });
        self.finished(key)
    }

    fn finished(&mut self, key: &Key<'_>) -> Answer {
        match self.body_mut(key) {
            Some(Body::Group(group)) => {
                let tally = group.tally();
                Answer::Finished {
                    done: tally.done,
                    lapsed: tally.lapsed,
                }
            }
            _ => Answer::Finished { done: 0, lapsed: 0 },
        }
    }
}
