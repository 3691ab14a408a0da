//! The kept places of all queues: how many there may be, when they run out, and who saves them.
//!
//! A kept place stands in line like any other. What is special about it:
//! - It is replicated and saved, so only the server that decides makes, changes or removes one, and each such step is a
//!   change. A GRANT to its token removes it everywhere.
//! - It runs out by the lease clock, which stands still while the server could not serve. While a client waits on it, it
//!   does not run out.
//! - Its turn may come while nobody waits on it. The hold is then granted and announced, and its lease is short until its
//!   token is heard from.
//!
//! Rejected: to write the moment into the change, so that a replica knows it. Each request that asks again would have
//! to be replicated.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use crate::heap;
use crate::queue::place::{Parked, Place, Presence};
use crate::queue::queues::Queues;
use crate::queue::wait_queue::WaitQueue;
use crate::short_bytes::KeyName;
use crate::types::{Db, Fence, LeaseUs, MonoUs, QueueId, Rank, WaiterId};

impl Queues {
    /// Whether this place is kept until this moment and nobody waits on it.
    pub fn is_kept_until(&self, until: LeaseUs, id: QueueId, rank: Rank) -> bool {
        let place = self.get(id).and_then(|queue| queue.place(rank));
        let kept = place.and_then(Place::kept_until);
        kept.is_some_and(|(_, kept)| kept == until)
    }

    /// Notes that nobody waits on a kept place any more, and that it is kept until then; 0 gives it no moment. Returns
    /// the client that waited. Does nothing to a place that is not kept.
    pub fn detach(&mut self, id: QueueId, rank: Rank, until: LeaseUs) -> Option<Parked> {
        let before = self.queues.get_mut(&id)?.detach(rank, until)?;
        self.unlist(id, rank, &before);
        self.list(id, rank, &Presence::Kept { until });
        match before {
            Presence::Parked(parked) => Some(parked),
            Presence::Kept { .. } | Presence::Vacant { .. } => None,
        }
    }

    /// Makes a kept place one that lasts only as long as its client waits. Removes it if none waits.
    pub fn unkeep(&mut self, id: QueueId, rank: Rank) {
        if self.get_mut(id).is_some_and(|queue| queue.unkeep(rank)) {
            self.kept -= 1;
        } else {
            self.leave(id, rank);
        }
    }

    /// Returns the kept place that runs out next, and when.
    pub fn first_keep(&self) -> Option<(LeaseUs, QueueId, Rank)> {
        self.keeps.first().copied()
    }

    /// Removes and returns the list of moments at which kept places run out, for a server that no longer decides. The
    /// places stay.
    pub fn take_keeps(&mut self) -> BTreeSet<(LeaseUs, QueueId, Rank)> {
        std::mem::take(&mut self.keeps)
    }

    /// Returns the number of kept places.
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// Removes these requests and all vacant places, and keeps kept places, without moments.
    pub fn dismiss(&mut self, waiters: &[WaiterId]) {
        for waiter in waiters {
            if let Some((id, rank)) = self.place_of(*waiter)
                && self.detach(id, rank, LeaseUs(0)).is_none()
            {
                self.leave(id, rank);
                self.drop_if_empty(id);
            }
        }
        while let Some((_, rank, id)) = self.vacant.first().copied() {
            self.leave(id, rank);
            self.drop_if_empty(id);
        }
    }

    /// Returns the next step of a walk over all places in line, in the order of the queues: the next place of this
    /// queue or, with the rank 0, the next queue.
    pub fn step_after(&self, (id, rank): (QueueId, Rank)) -> Option<(QueueId, Rank)> {
        let next = self.get(id).and_then(|queue| queue.place_after(rank));
        if let Some(place) = next {
            return Some((id, place.rank()));
        }
        let next = self.queues.range((Excluded(id), Unbounded)).next();
        next.map(|(id, _)| (*id, Rank(Fence(0))))
    }

    /// Returns the queues that have kept places.
    pub fn with_kept(&self) -> impl Iterator<Item = (QueueId, &WaitQueue)> {
        let queues = self.queues.iter().map(|(id, queue)| (*id, queue));
        queues.filter(|(_, queue)| self.has_kept(queue))
    }

    /// Returns the queue of a name if it has kept places that no flush has dropped.
    pub fn find_kept(&self, db: Db, name: &[u8]) -> Option<&WaitQueue> {
        let queue = self.queues.get(&self.find(db, name)?);
        queue.filter(|queue| self.has_kept(queue))
    }

    /// Whether the queue has kept places that no flush has dropped.
    fn has_kept(&self, queue: &WaitQueue) -> bool {
        queue.kept() > 0 && !self.is_flushed(queue)
    }

    /// Returns the bytes that the kept places of a name take.
    pub fn kept_bytes(&self, db: Db, name: &[u8]) -> usize {
        self.find_kept(db, name).map_or(0, |queue| {
            let moments = queue.kept() * heap::tree_share(size_of::<(LeaseUs, QueueId, Rank)>());
            let entries = [
                size_of::<(QueueId, WaitQueue)>(),
                size_of::<(KeyName, QueueId)>(),
                size_of::<(MonoUs, QueueId)>(),
            ];
            let entries: usize = entries.map(heap::tree_share).iter().sum();
            let names = 2 * KeyName::from(name).heap_bytes();
            queue.kept_heap_bytes() + moments + entries + names
        })
    }
}
