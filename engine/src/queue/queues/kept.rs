//! The kept places of all queues: how many there may be, and when they run out.

use super::{Queue, QueueBounds, Queues};
use crate::answer::FullQueue;
use crate::heap;
use crate::index::slab::StateId;
use crate::queue::entry::{Place, Waiter};
use crate::queue::wait_queue::{Detached, WaitQueue};
use crate::short_bytes::KeyName;
use crate::types::{Db, Fence, LeaseUs, MonoUs, QueueId, WaiterId};
use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

/// A queue that has kept places.
pub struct KeptQueue<'q> {
    pub db: Db,
    pub name: &'q KeyName,
    pub queue: &'q WaitQueue,
    /// The state with which the places were saved last. It may have left its key since.
    pub holder: Option<StateId>,
}

impl Queues {
    /// Checks that there is room for one more kept place: kept places take at most half of each bound, because one
    /// connection can make many.
    ///
    /// # Errors
    /// If kept places have reached the half of a bound: that half.
    pub fn check_room_for_kept(
        &self,
        queue: Option<QueueId>,
        bounds: QueueBounds,
    ) -> Result<(), FullQueue> {
        self.check_halves(queue, 1, bounds)
    }

    /// Checks that there is room for so many more kept places, if vacant places are given up for them.
    ///
    /// # Errors
    /// If kept places, or all who wait, would go beyond a bound.
    pub fn check_room_for_loaded(
        &self,
        queue: Option<QueueId>,
        more: u64,
        bounds: QueueBounds,
    ) -> Result<(), FullQueue> {
        if more == 0 {
            return Ok(());
        }
        self.check_halves(queue, more, bounds)?;
        let QueueBounds { per_key, server } = bounds;
        let waiters_here = queue
            .and_then(|id| self.get(id))
            .map_or(0, WaitQueue::waiters);
        if (waiters_here as u64).saturating_add(more) > per_key {
            return Err(FullQueue::Key { bound: per_key });
        }
        let waiters = self.places - self.vacant.len() as u64;
        if waiters.saturating_add(more) > server {
            return Err(FullQueue::Server { bound: server });
        }
        Ok(())
    }

    fn check_halves(
        &self,
        queue: Option<QueueId>,
        more: u64,
        bounds: QueueBounds,
    ) -> Result<(), FullQueue> {
        let kept_here = queue.and_then(|id| self.get(id)).map_or(0, WaitQueue::kept);
        let (per_key, server) = (bounds.per_key / 2, bounds.server / 2);
        if (kept_here as u64).saturating_add(more) > per_key {
            return Err(FullQueue::HalfOfKey { bound: per_key });
        }
        if self.kept.saturating_add(more) > server {
            return Err(FullQueue::HalfOfServer { bound: server });
        }
        Ok(())
    }

    /// Lists the moment at which a kept place runs out, if it has one.
    pub(super) fn schedule(&mut self, id: QueueId, place: Place, waiter: &Waiter) {
        let until = waiter.keep.map(|keep| keep.until);
        if let Some(until) = until.filter(|until| *until > LeaseUs(0)) {
            self.keeps.insert((until, id, place));
        }
    }

    /// Sets the moment at which a kept place runs out on which nobody waits.
    pub fn set_until(&mut self, id: QueueId, place: Place, until: LeaseUs) {
        let queue = self.queues.get_mut(&id);
        let Some(keep) = queue.and_then(|queue| queue.queue.keep_mut(place)) else {
            return;
        };
        let before = std::mem::replace(&mut keep.until, until);
        self.keeps.remove(&(before, id, place));
        self.keeps.insert((until, id, place));
    }

    /// Notes that nobody waits on a kept place any more, and that it is kept until then; 0 gives it no moment. Returns
    /// the request that waited.
    pub fn detach(&mut self, id: QueueId, place: Place, until: LeaseUs) -> Option<WaiterId> {
        let queue = &mut self.queues.get_mut(&id)?.queue;
        let Detached {
            id: asked,
            client,
            wait,
        } = queue.detach(place, until)?;
        if let (Some(asked), Some(wait)) = (asked, wait) {
            self.unpark(id, place, asked, client, wait.deadline());
        }
        if until > LeaseUs(0) {
            self.keeps.insert((until, id, place));
        }
        asked
    }

    /// Makes a kept place one that lasts only as long as its client waits. Removes it if none waits.
    pub fn unkeep(&mut self, id: QueueId, place: Place) {
        let queue = self.queues.get_mut(&id).map(|queue| &mut queue.queue);
        let Some(queue) = queue else { return };
        if queue.unkeep(place) {
            self.kept -= 1;
        } else {
            self.leave(id, place);
        }
    }

    /// Returns the kept place that runs out next, and when.
    #[must_use]
    pub fn first_keep(&self) -> Option<(LeaseUs, QueueId, Place)> {
        self.keeps.first().copied()
    }

    /// Removes a moment from the list of those at which kept places run out. The place stays.
    pub fn unlist_keep(&mut self, until: LeaseUs, id: QueueId, place: Place) {
        self.keeps.remove(&(until, id, place));
    }

    /// Whether this place is kept until this moment and nobody waits on it.
    #[must_use]
    pub fn is_kept_until(&self, until: LeaseUs, id: QueueId, place: Place) -> bool {
        let waiter = self.get(id).and_then(|queue| queue.waiter(place));
        waiter.is_some_and(|waiter| {
            !waiter.is_parked() && waiter.keep.is_some_and(|keep| keep.until == until)
        })
    }

    /// Removes and returns the list of moments at which kept places run out, for a server that no longer decides. The
    /// places stay.
    pub fn take_keeps(&mut self) -> BTreeSet<(LeaseUs, QueueId, Place)> {
        std::mem::take(&mut self.keeps)
    }

    /// Returns the number of kept places.
    #[must_use]
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// Returns the next step of a walk over all waiting places, in the order of the queues: the next place of this
    /// queue or, with the rank 0, the next queue.
    #[must_use]
    pub fn step_after(&self, (id, place): (QueueId, Place)) -> Option<(QueueId, Place)> {
        let next = self.get(id).and_then(|queue| queue.waiter_after(place));
        if let Some((place, _)) = next {
            return Some((id, place));
        }
        let next = self.queues.range((Excluded(id), Unbounded)).next();
        next.map(|(id, _)| (*id, Place(Fence(0))))
    }

    /// Notes the state with which the kept places of the queue are saved, because it is the value of their name.
    pub fn set_holder(&mut self, id: QueueId, holder: Option<StateId>) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.holder = holder;
        }
    }

    /// Returns the queues that have kept places.
    pub fn with_kept(&self) -> impl Iterator<Item = KeptQueue<'_>> {
        let kept = self.queues.values();
        let kept = kept.filter(|queue| queue.queue.kept() > 0 && !self.is_flushed(queue));
        kept.map(|queue| KeptQueue {
            db: queue.db,
            name: &queue.name,
            queue: &queue.queue,
            holder: queue.holder,
        })
    }

    /// Returns the queue of a name if it has kept places that no flush has dropped.
    #[must_use]
    pub fn find_kept(&self, db: Db, name: &[u8]) -> Option<&WaitQueue> {
        let queue = self.queues.get(&self.find(db, name)?)?;
        let has_kept = queue.queue.kept() > 0 && !self.is_flushed(queue);
        has_kept.then_some(&queue.queue)
    }

    /// Returns the bytes that the kept places of a name take.
    #[must_use]
    pub fn kept_bytes(&self, db: Db, name: &[u8]) -> usize {
        self.find_kept(db, name).map_or(0, |queue| {
            let moments = queue.kept() * heap::tree_share(size_of::<(LeaseUs, QueueId, Place)>());
            let entries = [
                size_of::<(QueueId, Queue)>(),
                size_of::<(KeyName, QueueId)>(),
                size_of::<(MonoUs, QueueId)>(),
            ];
            let entries: usize = entries.map(heap::tree_share).iter().sum();
            let names = 2 * KeyName::from(name).heap_bytes();
            queue.kept_heap_bytes() + moments + entries + names
        })
    }

    /// Whether the moment at which a kept place runs out is listed.
    #[cfg(debug_assertions)]
    pub fn is_listed(&self, until: LeaseUs, id: QueueId, place: Place) -> bool {
        self.keeps.contains(&(until, id, place))
    }
}
