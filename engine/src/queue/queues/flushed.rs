//! How a flush drops the kept places of its databases.
//!
//! A flush drops them at once, however many there are, because it only takes a number. A queue whose own number is older
//! has kept places that count for nothing. When the sweep after the flush comes to the queue, or a request for its name
//! before that, they leave the queue and all numbers in one step, and are taken apart in slices later.
//!
//! Rejected: to remove the places from their queue in slices. A request that comes meanwhile would have to step over
//! them.

use std::collections::{BTreeMap, VecDeque};

use super::{Queue, Queues};
use crate::queue::entry::Place;
use crate::queue::wait_queue::{Piece, WaitQueue};
use crate::types::{Db, QueueId};

type Pieces = Box<dyn Iterator<Item = Piece> + Send>;

#[derive(Default)]
pub(super) struct Flushes {
    /// The number of flushes, and the last one of each database; `None` is a flush of all databases.
    count: u64,
    last: BTreeMap<Option<Db>, u64>,
    /// The places that flushes have dropped, with the queue that each of them was in. The oldest come first.
    dropped: VecDeque<(QueueId, Pieces)>,
}

impl Flushes {
    /// Returns the number of flushes so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Takes the dropped places apart, one entry at a step.
    pub(super) fn into_pieces(self) -> impl Iterator<Item = ()> + Send {
        let dropped = self.dropped.into_iter();
        dropped.flat_map(|(_, pieces)| pieces).map(drop)
    }

    /// Whether places of this queue were dropped that have still to be taken apart.
    #[cfg(debug_assertions)]
    pub(super) fn has_dropped_of(&self, id: QueueId) -> bool {
        self.dropped.iter().any(|(queue, _)| *queue == id)
    }
}

impl Queues {
    /// Notes that the database is empty now, or all databases if `None`. Its queues lose their kept places and become
    /// due: when they are swept or, before that, when [`Queues::note_flush`] is called for their key.
    pub fn flush(&mut self, db: Option<Db>) {
        if self.kept > 0 {
            self.flushes.count += 1;
            self.flushes.last.insert(db, self.flushes.count);
        }
        self.set_all_due(db);
    }

    /// Drops the kept places of this name if they came before the last flush of its database.
    pub fn note_flush(&mut self, db: Db, name: &[u8]) {
        if self.is_sweeping()
            && let Some(id) = self.find(db, name)
        {
            self.drop_flushed(id);
        }
    }

    pub(super) fn is_flushed(&self, queue: &Queue) -> bool {
        let last = [None, Some(queue.db)].map(|db| self.flushes.last.get(&db));
        last.iter().flatten().any(|flush| queue.flush < **flush)
    }

    /// Drops the kept places of the queue if they came before the last flush of its database. Requests whose client
    /// waits on such a place go on waiting. Drops the queue if nothing else is in it. The places are taken apart later,
    /// see [`Queues::take_apart`].
    pub fn drop_flushed(&mut self, id: QueueId) {
        let flushes = self.flushes.count;
        let queue = self.queues.get(&id);
        if !queue.is_some_and(|queue| self.is_flushed(queue)) {
            return;
        }
        let Some(queue) = self.queues.get_mut(&id) else {
            return;
        };
        queue.flush = flushes;
        let (kept, before) = (queue.queue.kept(), queue.queue.by_family());
        if kept == 0 {
            return;
        }
        let parked = self.parked_in(id);
        let Some((pieces, after)) = self.change(id, |queue| {
            let pieces = WaitQueue::drop_kept(queue, &parked);
            (pieces, queue.by_family())
        }) else {
            return;
        };
        self.kept -= kept as u64;
        for (waiting, (before, after)) in self.waiting.iter_mut().zip(before.iter().zip(after)) {
            let gone = (before - after) as u64;
            *waiting -= gone;
            self.places -= gone;
        }
        self.flushes.dropped.push_back((id, Box::new(pieces)));
        self.drop_if_empty(id);
    }

    /// Returns the places of this queue on which clients wait. Looks for them where less is to look at: among the places
    /// of the queue, or among all requests whose clients wait.
    fn parked_in(&self, id: QueueId) -> Vec<Place> {
        let Some(queue) = self.get(id).filter(|queue| queue.parked() > 0) else {
            return Vec::new();
        };
        if self.by_waiter.len() < queue.waiters() {
            let seats = self.by_waiter.values();
            let seats = seats.filter(|(queue, _)| *queue == id);
            return seats.map(|(_, place)| *place).collect();
        }
        let parked = queue.waiting().filter(|(_, waiter)| waiter.is_parked());
        parked.map(|(place, _)| place).collect()
    }

    /// Whether places were dropped that have still to be taken apart.
    #[must_use]
    pub fn has_dropped(&self) -> bool {
        !self.flushes.dropped.is_empty()
    }

    /// Takes places apart that flushes have dropped. Each entry of a map costs one of the budget.
    pub fn take_apart(&mut self, budget: &mut u32) {
        while *budget > 0
            && let Some((id, pieces)) = self.flushes.dropped.front_mut()
        {
            let id = *id;
            match pieces.next() {
                Some(piece) => {
                    *budget -= 1;
                    // RESTORE may have brought the same place to the same queue again.
                    if let Some((until, place)) = piece
                        && !self.is_kept_until(until, id, place)
                    {
                        self.unlist_keep(until, id, place);
                    }
                }
                None => drop(self.flushes.dropped.pop_front()),
            }
        }
    }
}
