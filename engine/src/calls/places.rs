//! How a place joins the queue of the key, how a place or a watcher leaves it without a grant, and who is told what.

use crate::answer::{Answer, FullQueue};
use crate::change::{Change, KeptPlace};
use crate::effect::{Announcement, HandedOver, Wake};
use crate::queue::place::Place;
use crate::queue::wait_queue::Left;
use crate::short_bytes::LaneName;
use crate::types::{Family, Fence, Rank, WaiterId};
use crate::visit::Visit;

impl Visit<'_> {
    /// Makes room for one more place in the queue of this key, kept or not, in this lane of a semaphore.
    pub(crate) fn make_room(
        &mut self,
        lane: Option<&LaneName>,
        is_kept: bool,
    ) -> Result<(), FullQueue> {
        self.check_room_in_lane(lane, false)?;
        if is_kept {
            self.check_room_for_kept(lane)?;
        }
        let (queues, settings) = (&mut self.engine.queues, &self.engine.settings);
        queues.check_room(self.queue, 1, false, settings)?;
        queues.give_up_vacant(self.queue, 1, settings);
        Ok(())
    }

    /// Makes sure that there is room for one more kept place.
    pub(crate) fn check_room_for_kept(&self, lane: Option<&LaneName>) -> Result<(), FullQueue> {
        self.check_room_in_lane(lane, true)?;
        let (queues, settings) = (&self.engine.queues, &self.engine.settings);
        queues.check_room(self.queue, 1, true, settings)
    }

    /// Draws the rank of a new place. The answer is that there are no more numbers.
    pub(crate) fn next_rank(&mut self) -> Result<Rank, Answer> {
        let number = self.engine.term.fences.next(self.now);
        let rank = (number < Fence::MAX).then_some(Rank(number));
        rank.ok_or(Answer::NotGranted)
    }

    /// Puts a place into the queue. If it is kept and differs from what others know of it, that is recorded, and a name
    /// without a value gets one, because the place is saved with it. The value begins under the limit that its family
    /// waited for last. Returns false, and puts nothing, if there is no room for the value.
    pub(crate) fn put(&mut self, place: Place, known: Option<&KeptPlace>) -> bool {
        let (rank, kept) = (place.rank(), place.kept_place());
        self.begin_lanes(&place.lane);
        let queue = self.make_queue();
        self.engine.queues.join(queue, place);
        self.comes_due_in(0);
        self.is_stale = true;
        if let Some(kept) = kept.filter(|kept| known != Some(kept)) {
            let family = kept.claim.family();
            self.put_remembered_limit_in_force(family);
            if self.make_state(family).is_none() {
                self.leave(rank);
                return false;
            }
            self.engine.effects.changes.push(Change::Place(kept));
        }
        true
    }

    /// Removes the place or watcher with this rank, and gives it this answer. If nobody waits on a kept place, a decision
    /// is left there for its token.
    pub(crate) fn tell(&mut self, rank: Rank, answer: Answer) {
        match self.leave(rank) {
            Some(Left::Place(place)) => {
                if let Some(vacant) = self.with_verdict(&place, &answer) {
                    self.put(vacant, None);
                }
                self.part(&place, answer);
            }
            Some(Left::Watcher(watcher)) => {
                self.engine.effects.wake(watcher.parked.waiter, answer);
            }
            None => {}
        }
    }

    /// Records that a place has left without a grant, and answers it. If nobody waits on a kept place, a decision is
    /// announced, so that its token asks again and learns of it.
    pub(crate) fn part(&mut self, place: &Place, answer: Answer) {
        let is_decision = !matches!(answer, Answer::Withdrawn | Answer::KeyLeft);
        if place.is_kept() {
            self.left(place.rank());
        }
        if !self.answer(place, answer, None) && place.is_kept() && is_decision {
            self.announce(place.rank(), None);
        }
    }

    /// Answers the client of a place that has left the queue, with this hold if it was granted one. If the client is
    /// parked, the grant may turn out to be undelivered. Returns whether there is a client.
    pub(crate) fn answer(&mut self, place: &Place, answer: Answer, fence: Option<Fence>) -> bool {
        if self.is_asking(place.rank()) {
            self.answer = Some(answer);
        } else if let Some(parked) = place.parked() {
            let grant = fence.zip(self.state).map(|(fence, state)| HandedOver {
                state,
                fence,
                standing: place.may_return().then_some(place.standing),
            });
            self.engine.effects.wakes.push(Wake {
                waiter: parked.waiter,
                answer,
                grant,
            });
        } else {
            return false;
        }
        true
    }

    /// Records that a kept place has left the queue.
    pub(crate) fn left(&mut self, rank: Rank) {
        let leave = Change::Leave { rank };
        self.engine.effects.changes.push(leave);
    }

    /// Whether this is the place of the request that the visit is for.
    pub(crate) fn is_asking(&self, rank: Rank) -> bool {
        self.asking.is_some_and(|asking| asking.rank == rank)
    }

    /// Returns a vacant place that has this answer for its token, for the rest of the time for which the place was kept.
    /// `None` if the place was not kept, if a client is told now, and unless the answer is FAILED or a refusal: DONE and
    /// WRONGTYPE are told by the key itself.
    fn with_verdict(&self, place: &Place, answer: &Answer) -> Option<Place> {
        let (keep_ms, until) = place.kept_until()?;
        let is_told = matches!(answer, Answer::GivenUp { .. } | Answer::Refused(_));
        let left_ms = self.engine.term.keep_left_ms(keep_ms, until, self.now);
        if !is_told || left_ms == 0 || self.is_asking(place.rank()) {
            return None;
        }
        let until = self.now.mono.after_ms(left_ms);
        place.clone().vacated(until, Some(answer.clone()))
    }

    pub(crate) fn announce(&mut self, rank: Rank, fence: Option<Fence>) {
        let announcements = &mut self.engine.effects.announcements;
        announcements.push(Announcement { rank, fence });
    }

    /// Notes that the client on a kept place does not wait any more; the place is kept from now on. Returns the request
    /// that waited; `None` if the place is not kept.
    pub(crate) fn detach(&mut self, rank: Rank) -> Option<WaiterId> {
        self.engine.detach(self.queue?, rank, self.now)
    }

    /// Withdraws the kept place with this rank, for an operator. Returns whether there was one of this family. Its token
    /// may ask again, at the end of the queue.
    pub(crate) fn withdraw_place(&mut self, family: Family, rank: Rank) -> bool {
        let place = self.queue().and_then(|queue| queue.place(rank));
        let place = place.filter(|place| place.is_kept() && place.claim.family() == family);
        let Some(is_parked) = place.map(|place| place.parked().is_some()) else {
            return false;
        };
        self.tell(rank, Answer::Withdrawn);
        if !is_parked {
            self.announce(rank, None);
        }
        // New requests may have had to queue behind this one only.
        self.engine.effects.may_free_capacity = true;
        true
    }
}
