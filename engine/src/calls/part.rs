//! How a place or a watcher leaves the queue without a grant, and who is told what.

use crate::answer::Answer;
use crate::change::Change;
use crate::effect::Announcement;
use crate::queue::place::{Place, Presence};
use crate::queue::wait_queue::Left;
use crate::types::{Family, Fence, Rank, WaiterId};
use crate::visit::Visit;

impl Visit<'_> {
    /// Removes the place or watcher with this rank, and gives it this answer. If nobody waits on a kept place, a decision
    /// is left there for its token.
    pub(crate) fn tell(&mut self, rank: Rank, answer: Answer) {
        if let Some(queue) = self.queue
            && let Some(left) = self.engine.queues.leave(queue, rank)
        {
            if let Left::Place(place) = &left
                && let Some(place) = self.with_verdict(place, &answer)
            {
                self.engine.queues.join(queue, place);
            }
            self.part(&left, answer);
        }
    }

    /// Records that a place or watcher has left without a grant, and answers it. If nobody waits on a kept place, a
    /// decision is announced, so that its token asks again and learns of it.
    pub(crate) fn part(&mut self, left: &Left, answer: Answer) {
        let place = match left {
            Left::Watcher(watcher) => {
                return self.engine.effects.wake(watcher.parked.waiter, answer);
            }
            Left::Place(place) => place,
        };
        let rank = place.rank();
        if place.is_kept() {
            self.left(rank);
        }
        let is_decision = !matches!(answer, Answer::Withdrawn | Answer::KeyLeft);
        if self.is_asking(rank) {
            self.answer = Some(answer);
        } else if let Some(parked) = place.parked() {
            self.engine.effects.wake(parked.waiter, answer);
        } else if place.is_kept() && is_decision {
            self.announce(rank, None);
        }
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
        let keep = place.standing.keep?;
        let Presence::Kept { until } = place.presence else {
            return None;
        };
        let is_told = matches!(answer, Answer::GivenUp { .. } | Answer::Refused(_));
        let left_ms = self.engine.term.keep_left_ms(keep.ms, until, self.now);
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
    /// that waited, and its family; `None` if the place is not kept.
    pub(crate) fn detach(&mut self, rank: Rank) -> Option<(WaiterId, Family)> {
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
