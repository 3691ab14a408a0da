//! Who is served. Every visit that changes a key or its queue serves in the end, so a first request of a queue that
//! could be granted is never left waiting with no later call to look at it.
//!
//! A visit answers a bounded number of requests. A queue with more to answer stays due; until then new requests queue
//! behind its waiters.

use crate::answer::Answer;
use crate::calls::grant::Told;
use crate::calls::next::Next;
use crate::change::Change;
use crate::engine::Engine;
use crate::hold::Hold;
use crate::queue::place::Place;
use crate::state::{Body, State};
use crate::store::slab::StateId;
use crate::types::{QueueId, Rank};
use crate::visit::Visit;

/// How many waiters one visit answers.
const SLICE: u32 = 128;

impl Engine {
    /// Stores the limit of the value, if there is one, in the queue, so that its waiters keep it if the key is removed.
    pub(super) fn remember_limit(&mut self, queue: QueueId, value: Option<StateId>) {
        if let Some(State { body, .. }) = value.and_then(|id| self.store.get(id))
            && let Some(limit) = body.limit_to_remember()
            && let Some(queue) = self.queues.get_mut(queue)
        {
            queue.remember_limit(body.family(), limit);
        }
    }
}

impl Visit<'_> {
    /// Answers waiters while the first of them can be answered, up to `SLICE`. Also finishes a round that is over, which
    /// is all that there may be to do for a key without a queue, as most keys are.
    #[inline(always)]
    pub(crate) fn serve(&mut self) {
        match self.queue {
            Some(queue) => self.serve_queue(queue),
            None if self.now.may_write => {
                if let Next::Finish = Next::of(self.body(), None) {
                    self.finish_round();
                }
            }
            None => {}
        }
    }

    fn serve_queue(&mut self, queue: QueueId) {
        if !self.now.may_write {
            return self.set_queue_due();
        }
        self.engine.remember_limit(queue, self.state);
        for _ in 0..SLICE {
            let next = match Next::of(self.body(), self.queue()) {
                Next::InLanes => self.next_in_lanes(),
                next => next,
            };
            match next {
                // The next visit sorts more of them.
                Next::InLanes => break,
                Next::Nothing => return self.engine.queues.finish_visit(queue),
                Next::Tell(rank, answer) => self.tell(rank, answer),
                Next::Grant(rank) => self.grant_next(rank),
                Next::Repeat(rank) => self.grant_repeat(rank),
                Next::GiveUp(rank) => {
                    let answer = self.give_up();
                    self.tell(rank, answer);
                }
                Next::Finish => self.finish_round(),
                Next::TellWatchers(answer) => self.engine.queues.answer_watchers(queue, answer),
            }
        }
        self.set_queue_due();
    }

    fn grant_next(&mut self, rank: Rank) {
        let Some(mut place) = self.take_place(rank) else {
            return;
        };
        let (claim, family) = (place.claim, place.claim.family());
        self.put_remembered_limit_in_force(family);
        let told = self.told(&place);
        let (token, owner) = (place.token.clone(), place.owner.take());
        let (lease, lane) = ((place.lease, place.min_hold.get()), place.lane.clone());
        let Some(fence) = self.grant(token, claim, lease, owner, lane, told) else {
            return self.part(&place, Answer::NotGranted);
        };
        let waited_ms = self.now.mono.ms_since(place.standing.since);
        self.engine.stats.granted_after(family, waited_ms);
        match told {
            Told::Nobody { .. } => self.announce(rank, Some(fence)),
            Told::Client { .. } => {
                let answer = self.granted(place.token.clone(), claim, fence);
                self.answer(&place, answer, Some(fence));
            }
        }
    }

    fn grant_repeat(&mut self, rank: Rank) {
        let Some(place) = self.take_place(rank) else {
            return;
        };
        let holds = self.body().map(Body::holds);
        let hold = holds.and_then(|holds| holds.by_token(&place.token));
        let its_own = hold.filter(|hold| hold.what() == place.what());
        let fence = its_own.map(Hold::fence);
        if place.is_kept() {
            self.left(rank);
        }
        match self.told(&place) {
            // The token has not asked, so its lease is not renewed.
            Told::Nobody { .. } => self.announce(rank, fence),
            Told::Client { client, ephemeral } => {
                let to = (client, ephemeral);
                let answer = self.repeat_grant(&place.token, place.what(), place.lease, to);
                if let Some(answer) = answer {
                    self.answer(&place, answer, fence);
                }
            }
        }
    }

    /// Returns who is told of a grant to this place.
    fn told(&self, place: &Place) -> Told {
        let asking = self.asking.filter(|asking| asking.rank == place.rank());
        let parked = place.parked();
        let ephemeral = parked.is_some_and(|parked| parked.ephemeral);
        let client = parked.map(|parked| parked.client);
        match client.or(asking.map(|asking| asking.client)) {
            Some(client) => Told::Client { client, ephemeral },
            None => Told::Nobody {
                keep_ms: place.standing.keep().map_or(0, |keep| keep.ms),
            },
        }
    }

    fn finish_round(&mut self) {
        let keep_until = self.now.unix().after_ms(self.engine.settings.group_keep_ms);
        let _ = self.decide(Change::Finish { keep_until });
    }

    /// Returns FAILED. From then on a DONE by the run that lapsed last is refused, because a client was told that the
    /// work has failed.
    pub(crate) fn give_up(&mut self) -> Answer {
        let once = self.body().and_then(Body::once);
        if once.is_some_and(|once| once.late().is_some()) {
            let _ = self.decide(Change::GiveUp);
        }
        match self.body().and_then(Body::once) {
            Some(once) => once.answer_given_up(),
            None => Answer::NotGranted,
        }
    }
}
