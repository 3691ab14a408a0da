//! The places that tokens have in a queue: taken again by a later request, and kept without a connection (QUEUE).
//!
//! A kept place stands in its queue like any other request. What is special about it:
//! - It is replicated and saved, so every step that makes, changes or removes one is a change, and only the server that
//!   decides takes it. A GRANT to its token removes it everywhere.
//! - It runs out by the lease clock, which stands still while the server could not serve: nobody loses a place whose
//!   request waits in the socket. While a client waits on it, it does not run out.
//! - Its turn may come while nobody waits on it. The hold is then granted all the same, and announced; until its token
//!   is heard from, its lease is short, see [`Change::Unheard`].
//!
//! Rejected: to write a moment into the change, so that a replica knows when a place runs out. Each request that asks
//! again would have to be replicated.

use crate::answer::{Answer, Refusal};
use crate::calls::acquire::{Decided, Queued};
use crate::calls::tasks::Task;
use crate::change::{Change, KeptPlace};
use crate::effect::Announcement;
use crate::hold::Grant;
use crate::queue::entry::{
    Departed, FormerKeep, FormerPlace, Keep, Place, Request, Vacancy, Waiter,
};
use crate::types::{Db, Fence, LeaseUs, MonoUs, Now, QueueId, UnixMs, WaiterId};
use crate::{Engine, Family, Key};

/// How many kept places one call drops.
const SLICE: u32 = 128;

impl Engine {
    /// Gives the place, waiting, kept or vacant, to the same request sent again. With QUEUE it is a kept place from then
    /// on; with BLOCK a kept place stays one.
    pub(super) fn resume(
        &mut self,
        key: &mut Key<'_>,
        queue: QueueId,
        place: Place,
        mut request: Request,
        now: Now,
    ) -> Decided {
        let standing = self.queues.get(queue).and_then(|q| q.waiter(place));
        let before = standing.and_then(|waiter| waiter.kept_place(place));
        let keep_ms = request.keep_ms.take();
        if keep_ms.is_some()
            && before.is_none()
            && let Err(full) = (self.queues).check_room_for_kept(Some(queue), self.queue_bounds())
        {
            return Decided::Answer(Answer::Refused(Refusal::QueueFull(full)));
        }
        // The limit took force when the request first entered the queue.
        request.limit = None;
        let (since, keep) = match self.queues.leave(queue, place) {
            Some(Departed::Waiter(old)) => {
                if let Some(id) = old.id {
                    self.effects.wake(id, Answer::Superseded);
                }
                (old.since, old.keep)
            }
            Some(Departed::Vacancy(vacancy)) => (vacancy.since, None),
            Some(Departed::Watcher(watcher)) => (watcher.since, None),
            None => return Decided::Answer(Answer::NotGranted),
        };
        let keep = match keep_ms {
            Some(ms) => Some(Keep {
                ms,
                since: keep.map_or_else(|| wall_moment(since, now), |keep| keep.since),
                until: LeaseUs(0),
            }),
            None => keep,
        };
        let waiter = Waiter {
            id: Some(self.queues.next_waiter()),
            request,
            since,
            keep,
        };
        self.enter(key, queue, place, waiter, before.as_ref())
    }

    /// Puts a request into the queue at this place, and replicates the place if it is kept and differs from what the
    /// others know of it.
    pub(super) fn enter(
        &mut self,
        key: &mut Key<'_>,
        queue: QueueId,
        place: Place,
        waiter: Waiter,
        known: Option<&KeptPlace>,
    ) -> Decided {
        let Some(id) = waiter.id else {
            return Decided::Answer(Answer::NotGranted);
        };
        let kept = waiter.kept_place(place);
        self.queues.join(queue, place, waiter);
        if let Some(kept) = kept
            && known != Some(&kept)
            && !self.decide_place(key, kept)
        {
            self.queues.leave(queue, place);
            return Decided::Answer(Answer::NotGranted);
        }
        Decided::Queued(Queued { id, queue, place })
    }

    /// Records that the name has this kept place, and gives the name a value if it has none, because the place is saved
    /// with it. The value begins under the limit that its family waited for last. Returns false if there is no room for
    /// the value.
    fn decide_place(&mut self, key: &mut Key<'_>, place: KeptPlace) -> bool {
        if key.state.is_none() {
            let queue = self.queues.find(key.db, key.name);
            let queue = queue.and_then(|id| self.queues.get(id));
            let limit = queue.and_then(|queue| queue.limit(place.claim.family()));
            self.put_limit_in_force(key, place.claim, limit);
        }
        if key.state.is_none() && self.create(key, place.claim.family()).is_none() {
            return false;
        }
        self.effects.changes.push(Change::Place(place));
        true
    }

    /// Returns the answer to a request with QUEUE that was not granted in its call. Its place is kept from now on.
    pub(super) fn keep_waiting(&mut self, queued: &Queued, now: Now) -> Answer {
        let Queued { queue, place, .. } = *queued;
        self.detach(queue, place, now);
        let most = Answer::MOST_PLACES;
        let queue = self.queues.get(queue);
        let position = queue.map_or(0, |queue| queue.position(place, most as usize));
        Answer::Waiting {
            place: u32::try_from(position).unwrap_or(most),
            number: place.0,
        }
    }

    /// Notes that the client on a kept place does not wait any more; the place is kept from now on. Returns the request
    /// that waited, and its family; `None` if the place is not kept.
    pub(super) fn detach(
        &mut self,
        queue: QueueId,
        place: Place,
        now: Now,
    ) -> Option<(WaiterId, Family)> {
        let waiter = self.queues.get(queue)?.waiter(place)?;
        let (ms, family) = (waiter.keep?.ms, waiter.request.claim.family());
        let until = self.keep_until(ms, now);
        let id = self.queues.detach(queue, place, until)?;
        Some((id, family))
    }

    /// Records that a request has left its place without a grant, and answers it. If nobody waits on the place, a
    /// decision is announced, so that its token asks again and learns of it.
    pub(super) fn part(
        &mut self,
        place: Place,
        waiter: Option<WaiterId>,
        was_kept: bool,
        answer: Answer,
    ) {
        if was_kept {
            self.effects.changes.push(Change::Leave { number: place.0 });
        }
        let is_decision = !matches!(answer, Answer::Withdrawn | Answer::KeyLeft);
        match waiter {
            Some(waiter) => self.effects.wake(waiter, answer),
            None if was_kept && is_decision => self.announce(place, None),
            None => {}
        }
    }

    /// Returns the place that tells this decision when its token asks again, for what was left of its time: only if the
    /// place was kept and nobody waits on it, so that nobody is told now. DONE and WRONGTYPE leave none, because
    /// the key itself tells them.
    pub(super) fn with_verdict(
        &self,
        left: &Departed,
        answer: &Answer,
        now: Now,
    ) -> Option<Vacancy> {
        let Departed::Waiter(Waiter {
            id: None,
            keep: Some(keep),
            ..
        }) = left
        else {
            return None;
        };
        let left_ms = self.keep_left_ms(*keep, now);
        let is_kept = left_ms > 0 && matches!(answer, Answer::GivenUp { .. } | Answer::Refused(_));
        let until = now.mono.after_ms(left_ms);
        is_kept.then(|| left.vacancy(Some(answer.clone()), until))?
    }

    pub(super) fn announce(&mut self, place: Place, fence: Option<Fence>) {
        let number = place.0;
        self.effects
            .announcements
            .push(Announcement { number, fence });
    }

    /// Withdraws the kept place with this number, for an operator. Returns whether there was one of this family. Its token
    /// may ask again, at the end of the queue.
    pub(super) fn withdraw_place(
        &mut self,
        key: &Key<'_>,
        family: Family,
        place: Place,
        now: Now,
    ) -> bool {
        let Some(queue) = self.queues.find(key.db, key.name) else {
            return false;
        };
        let waiter = self.queues.get(queue).and_then(|q| q.waiter(place));
        let Some(waiter) = waiter
            .filter(|waiter| waiter.keep.is_some() && waiter.request.claim.family() == family)
        else {
            return false;
        };
        let is_parked = waiter.is_parked();
        self.tell(queue, place, Answer::Withdrawn, now);
        if !is_parked {
            self.announce(place, None);
        }
        // New requests may have had to queue behind this one only.
        self.effects.may_free_capacity = true;
        true
    }

    /// Gives the token of an undelivered grant its kept place back, at its old rank.
    pub(super) fn keep_again(
        &mut self,
        key: &mut Key<'_>,
        former: FormerPlace,
        hold: Grant,
        now: Now,
    ) {
        let Some(FormerKeep {
            ms,
            since,
            max_attempts,
        }) = former.keep
        else {
            return;
        };
        let queue = self.queues.find(key.db, key.name);
        let bounds = self.queue_bounds();
        let stands = queue
            .and_then(|id| self.queues.get(id))
            .is_some_and(|queue| queue.find(&hold.token).is_some());
        if stands
            || self.queues.check_room_for_kept(queue, bounds).is_err()
            || self.queues.make_room(queue, bounds).is_err()
        {
            return;
        }
        let kept = KeptPlace {
            number: former.place.0,
            token: hold.token,
            claim: hold.claim,
            lease: hold.lease,
            keep_ms: ms,
            max_attempts,
            owner: hold.owner,
            since,
        };
        let until = self.keep_until(ms, now);
        if self.decide_place(key, kept.clone()) {
            let (place, waiter) = kept.into_waiter(former.since, until);
            let queue = self.queues.find_or_make(key.db, key.name);
            self.queues.join(queue, place, waiter);
        }
    }

    /// Returns the next kept place whose time is over.
    pub(super) fn next_keep_over(&self, now: Now) -> Option<Task> {
        let (until, queue, place) = self.queues.first_keep()?;
        (until <= now.lease).then_some(Task::KeepOver {
            until,
            queue,
            place,
        })
    }

    /// Drops a kept place that was not asked for in time.
    pub(super) fn keep_is_over(&mut self, queue: QueueId, place: Place) {
        let Some(left) = self.queues.leave(queue, place) else {
            return;
        };
        if let Some(family) = left.family() {
            self.stats.counters_mut(family).wait_timeouts += 1;
        }
        self.effects.changes.push(Change::Leave { number: place.0 });
        // New requests may have had to queue behind this one only.
        self.effects.may_free_capacity = true;
    }

    /// Drops the kept places of a name whose slot another node has: they went there with the value. Requests whose
    /// client waits stay, for the server to redirect. Drops at most `SLICE` of them; the queue stays due while more are
    /// left.
    pub fn forget_places(&mut self, db: Db, name: &[u8], now: Now) {
        let Some(id) = self.queues.find(db, name).filter(|_| now.may_write) else {
            return;
        };
        let Some(queue) = self.queues.get(id) else {
            return;
        };
        let is_kept = |(_, waiter): &(Place, &Waiter)| waiter.keep.is_some();
        let kept = queue.waiting().filter(is_kept).take(SLICE as usize);
        let kept: Vec<_> = kept.map(|(place, _)| place).collect();
        for place in kept {
            self.queues.unkeep(id, place);
            self.effects.changes.push(Change::Leave { number: place.0 });
        }
        match self.queues.get(id).is_some_and(|queue| queue.kept() > 0) {
            true => self.queues.set_due(id),
            false => self.queues.finish_visit(id),
        }
    }

    /// Continues the walk that gives each kept place its moment after a take-over. Each place and each queue costs one
    /// of the budget.
    pub(super) fn walk_places(&mut self, budget: &mut u32) {
        while *budget > 0
            && let Some(at) = self.role.places_walk()
        {
            *budget -= 1;
            let next = self.queues.step_after(at);
            if let Some((queue, place)) = next {
                self.give_moment(queue, place);
            }
            self.role.set_places_walk(next);
        }
    }

    /// Gives a kept place its moment after a take-over, if it has none yet.
    fn give_moment(&mut self, queue: QueueId, place: Place) {
        let waiter = self.queues.get(queue).and_then(|q| q.waiter(place));
        let keep = waiter.filter(|waiter| !waiter.is_parked());
        let keep = keep.and_then(|waiter| waiter.keep);
        if let Some(keep) = keep.filter(|keep| keep.until < self.role.since()) {
            let until = self.taken_over_until(keep.ms);
            self.queues.set_until(queue, place, until);
        }
    }
}

/// Returns the wall-clock moment of a moment on the monotonic clock.
fn wall_moment(moment: MonoUs, now: Now) -> UnixMs {
    UnixMs(now.unix().0.saturating_sub(now.mono.ms_since(moment)))
}
