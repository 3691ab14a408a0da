//! Which flushes there were, the kept places that they have dropped, and the walks over all queues.
//!
//! A flush drops all kept places of its databases at once, however many there are, because it only takes a number. A
//! queue whose own number is older has kept places that count for nothing. When the sweep after the flush comes to the
//! queue, or a request for its name before that, they leave the queue and all numbers in one step, and are taken apart
//! in slices later.
//!
//! Rejected: to remove the places from their queue in slices. A request that comes meanwhile would have to step over
//! them.

use std::collections::{BTreeMap, VecDeque};

use crate::queue::wait_queue::Piece;
use crate::types::{Db, QueueId};

type Pieces = Box<dyn Iterator<Item = Piece> + Send>;

/// A walk over all queues in the order of their numbers: see [`super::sweep`].
#[derive(Default)]
pub(super) struct Sweep {
    /// The queue that was looked at last.
    pub(super) after: Option<QueueId>,
    /// A sweep was asked for during this one: begin again from the start at the end.
    pub(super) again: bool,
}

#[derive(Default)]
pub struct Flushes {
    /// The number of flushes, and the last one of each database; `None` is a flush of all databases.
    pub(super) count: u64,
    last: BTreeMap<Option<Db>, u64>,
    /// The places that flushes have dropped, with the queue that each of them was in. The oldest come first.
    pub(super) dropped: VecDeque<(QueueId, Pieces)>,
}

impl Flushes {
    /// Notes a flush of this database, or of all.
    pub fn add(&mut self, db: Option<Db>) {
        self.count += 1;
        self.last.insert(db, self.count);
    }

    /// Whether a flush of this database came after the one with this number.
    pub fn came_after(&self, number: u64, db: Db) -> bool {
        let last = [None, Some(db)].map(|db| self.last.get(&db));
        last.iter().flatten().any(|flush| number < **flush)
    }

    /// Adds places of this queue, to be taken apart.
    pub fn drop_later(
        &mut self,
        id: QueueId,
        places: impl Iterator<Item = Piece> + Send + 'static,
    ) {
        self.dropped.push_back((id, Box::new(places)));
    }

    /// Takes the next piece of a dropped place. Returns the queue that it was in.
    pub fn next_piece(&mut self) -> Option<(QueueId, Piece)> {
        while let Some((id, pieces)) = self.dropped.front_mut() {
            match pieces.next() {
                Some(piece) => return Some((*id, piece)),
                None => drop(self.dropped.pop_front()),
            }
        }
        None
    }

    /// Takes the dropped places apart, one entry at a step.
    pub fn into_pieces(self) -> impl Iterator<Item = ()> + Send {
        let dropped = self.dropped.into_iter();
        dropped.flat_map(|(_, pieces)| pieces).map(drop)
    }

    /// Whether places of this queue were dropped that have still to be taken apart.
    #[cfg(debug_assertions)]
    pub fn has_dropped_of(&self, id: QueueId) -> bool {
        self.dropped.iter().any(|(queue, _)| *queue == id)
    }
}
