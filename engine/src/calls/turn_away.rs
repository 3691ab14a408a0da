//! Names whose requests cannot be served here. Nothing is served then, so these visits are not closed like the others.

use crate::answer::Answer;
use crate::engine::Engine;
use crate::queue::place::Place;
use crate::queue::wait_queue::WaitQueue;
use crate::types::{Now, Rank};
use crate::visit::{Key, Visit};

/// How many places one call looks after.
const SLICE: u32 = 128;

impl Engine {
    /// Answers the waiters of a name that cannot be served: its value is not this module's, or the key has gone to
    /// another node. Its kept places are dropped. Answers at most `SLICE` of them; the queue stays due while more are
    /// left.
    ///
    /// While the server takes no writes, no kept place can be dropped. Then only clients are answered whose wait runs
    /// out.
    pub fn turn_away(&mut self, key: Key<'_>, why: &Answer, now: Now) {
        let mut visit = Visit::new(self, key, now);
        let Some(id) = visit.queue else { return };
        let keeps = visit.queue().is_some_and(|queue| queue.kept() > 0);
        if keeps && !now.may_write {
            visit.turn_away_overdue(why);
            return self.queues.set_due(id);
        }
        for _ in 0..SLICE {
            visit.engine.queues.answer_watchers(id, why.clone());
            let Some(queue) = visit.queue() else { return };
            // Remove vacant places too, because what their tokens waited for is gone.
            let next = queue.head().map(Place::rank);
            let next = next.or_else(|| queue.oldest_vacant());
            let next = next.map(|rank| (rank, why.clone()));
            let Some((rank, answer)) = queue.next_answered().or(next) else {
                return self.queues.finish_visit(id);
            };
            visit.tell(rank, answer);
        }
        self.queues.set_due(id);
    }

    /// Drops the kept places of a name whose slot another node has: they went there with the value. Requests whose
    /// client waits stay, for the server to redirect. Drops at most `SLICE` of them; the queue stays due while more are
    /// left.
    pub fn forget_places(&mut self, key: Key<'_>, now: Now) {
        let mut visit = Visit::new(self, key, now);
        let Some(id) = visit.queue.filter(|_| now.may_write) else {
            return;
        };
        let line = visit.queue().into_iter().flat_map(WaitQueue::line);
        let kept = line.filter(|place| place.is_kept()).take(SLICE as usize);
        let kept: Vec<Rank> = kept.map(Place::rank).collect();
        for rank in kept {
            visit.engine.queues.unkeep(id, rank);
            visit.left(rank);
        }
        match visit.queue().is_some_and(|queue| queue.kept() > 0) {
            true => self.queues.set_due(id),
            false => self.queues.finish_visit(id),
        }
    }
}

impl Visit<'_> {
    /// Answers the clients of this queue whose wait has run out.
    fn turn_away_overdue(&mut self, why: &Answer) {
        while let Some((moment, queue, rank)) = self.engine.queues.first_moment()
            && moment <= self.now.mono
            && Some(queue) == self.queue
        {
            match self.detach(rank) {
                Some(waiter) => self.engine.effects.wake(waiter, why.clone()),
                None => self.tell(rank, why.clone()),
            }
        }
    }
}
