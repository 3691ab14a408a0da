//! Who is served. Every visit that changes a key or its queue serves in the end, so a first request of a queue that
//! could be granted is never left waiting with no later call to look at it.
//!
//! A visit answers a bounded number of requests. A queue with more to answer stays due; until then new requests queue
//! behind its waiters.

use std::sync::Arc;

use crate::answer::Answer;
use crate::calls::grant::{NewHold, Told};
use crate::calls::next::Next;
use crate::change::Change;
use crate::effect::{HandedOver, Wake};
use crate::hold::Hold;
use crate::queue::place::Place;
use crate::queue::wait_queue::Left;
use crate::state::Body;
use crate::state::families::once::Reason;
use crate::types::{Family, Fence, QueueId, Rank};
use crate::visit::Visit;

/// How many waiters one visit answers.
const SLICE: u32 = 128;

impl Visit<'_> {
    /// Answers waiters while the first of them can be answered, up to `SLICE`.
    pub(crate) fn serve(&mut self) {
        let queue = self.find_queue();
        if !self.now.may_write {
            return queue
                .into_iter()
                .for_each(|queue| self.engine.queues.set_due(queue));
        }
        let Some(queue) = queue else {
            let group = self.body().and_then(Body::group);
            if group.is_some_and(|group| group.is_over(false)) {
                self.finish_round();
            }
            return;
        };
        self.remember_limit(queue);
        for _ in 0..SLICE {
            let next = self.queue().map(|queue| Next::of(self.body(), queue));
            match next.unwrap_or(Next::Nothing) {
                Next::Nothing => return self.engine.queues.finish_visit(queue),
                Next::Tell(rank, answer) => self.tell(rank, answer),
                Next::Grant(rank) => self.grant_next(queue, rank),
                Next::Repeat(rank) => self.grant_repeat(queue, rank),
                Next::GiveUp(rank) => {
                    let answer = self.give_up();
                    self.tell(rank, answer);
                }
                Next::Finish => {
                    self.finish_round();
                    self.engine.queues.answer_watchers(queue, self.finished());
                }
                Next::Finished => self.engine.queues.answer_watchers(queue, self.finished()),
                Next::Dismiss(answer) => self.engine.queues.answer_watchers(queue, answer),
            }
        }
        self.engine.queues.set_due(queue);
    }

    /// Stores the limit in the queue, so that its waiters keep it if the key is removed.
    pub(super) fn remember_limit(&mut self, queue: QueueId) {
        if let Some(body) = self.body()
            && let Some(limit) = body.limit_to_remember()
        {
            let family = body.family();
            if let Some(queue) = self.engine.queues.get_mut(queue) {
                queue.remember_limit(family, limit);
            }
        }
    }

    fn grant_next(&mut self, queue: QueueId, rank: Rank) {
        let Some(Left::Place(mut place)) = self.engine.queues.leave(queue, rank) else {
            return;
        };
        let family = place.claim.family();
        let remembered = self.queue().and_then(|queue| queue.limit(family));
        let hold = NewHold {
            token: place.token.clone(),
            claim: place.claim,
            lease: place.lease,
            owner: place.owner.take(),
            limit: remembered.filter(|_| self.state.is_none()),
        };
        let told = self.told(&place);
        let Some(fence) = self.grant(hold, told) else {
            return self.part(&Left::Place(place), Answer::NotGranted);
        };
        let waited_ms = self.now.mono.ms_since(place.standing.since);
        self.engine.stats.granted_after(family, waited_ms);
        match told {
            Told::Nobody { .. } => self.announce(rank, Some(fence)),
            Told::Client { .. } => {
                let answer = self.granted(place.token.clone(), fence);
                self.hand_over(&place, Some(fence), answer);
            }
        }
    }

    fn grant_repeat(&mut self, queue: QueueId, rank: Rank) {
        let Some(Left::Place(place)) = self.engine.queues.leave(queue, rank) else {
            return;
        };
        let hold = self
            .body()
            .and_then(|body| body.holds().by_token(&place.token));
        let its_own = hold.filter(|hold| hold.claim() == place.claim);
        let fence = its_own.map(Hold::fence);
        if place.is_kept() {
            self.left(rank);
        }
        match self.told(&place) {
            // The token has not asked, so its lease is not renewed.
            Told::Nobody { .. } => self.announce(rank, fence),
            Told::Client { client, ephemeral } => {
                let to = (client, ephemeral);
                let answer = self.repeat_grant(&place.token, place.claim, place.lease, to);
                if let Some(answer) = answer {
                    self.hand_over(&place, fence, answer);
                }
            }
        }
    }

    /// Returns who is told of a grant to this place.
    fn told(&self, place: &Place) -> Told {
        if let Some(parked) = place.parked() {
            return Told::Client {
                client: parked.client,
                ephemeral: parked.ephemeral,
            };
        }
        match self.asking.filter(|asking| asking.rank == place.rank()) {
            Some(asking) => Told::Client {
                client: asking.client,
                ephemeral: false,
            },
            None => Told::Nobody {
                keep_ms: place.standing.keep.map_or(0, |keep| keep.ms),
            },
        }
    }

    /// Answers the client of a place that was granted a hold. If the client is parked, the grant may turn out to be
    /// undelivered.
    fn hand_over(&mut self, place: &Place, fence: Option<Fence>, answer: Answer) {
        if self.is_asking(place.rank()) {
            self.answer = Some(answer);
            return;
        }
        let Some(parked) = place.parked() else { return };
        let grant = fence.zip(self.state).map(|(fence, state)| HandedOver {
            state,
            fence,
            standing: place.may_return.then_some(place.standing),
        });
        self.engine.effects.wakes.push(Wake {
            waiter: parked.waiter,
            answer,
            grant,
        });
    }

    fn finish_round(&mut self) {
        let keep_until = self.now.unix().after_ms(self.engine.settings.group_keep_ms);
        let _ = self.decide(Family::Group, Change::Finish { keep_until });
    }

    /// Returns the answer to those that wait for the round, which has finished.
    pub(crate) fn finished(&self) -> Answer {
        match self.body().and_then(Body::group) {
            Some(group) => group.answer_finished(),
            None => Answer::Finished { done: 0, lapsed: 0 },
        }
    }

    /// Returns FAILED. From then on a DONE by the run that lapsed last is refused, because a client was told that the
    /// work has failed.
    pub(crate) fn give_up(&mut self) -> Answer {
        let once = self.body().and_then(Body::once);
        if once.is_some_and(|once| once.late().is_some()) {
            let _ = self.decide(Family::Once, Change::GiveUp);
        }
        let (reason, attempts) = match self.body().and_then(Body::once) {
            Some(once) => (once.reason.as_ref().map(Reason::text), once.attempts),
            None => (None, 0),
        };
        Answer::GivenUp {
            reason: reason.unwrap_or_else(|| Arc::from([])),
            attempts,
        }
    }
}
