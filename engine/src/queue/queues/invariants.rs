//! What tests and debug builds ask of the queues.

use super::{Queue, Queues};
use crate::queue::entry::{Place, Waiter};
use crate::types::QueueId;

impl Queues {
    /// Returns all waiting requests and kept places.
    pub fn all_waiting(&self) -> impl Iterator<Item = (QueueId, Place, &Waiter)> {
        let queues = self.queues.iter();
        queues.flat_map(|(id, queue)| {
            let waiting = queue.queue.waiting();
            waiting.map(|(place, waiter)| (*id, place, waiter))
        })
    }

    /// Whether the queue is due, or will be when it is swept.
    pub fn will_be_due(&self, id: QueueId) -> bool {
        let db = self.queues.get(&id).map(|queue| queue.db);
        self.is_due(id) || db.is_some_and(|db| self.due.will_sweep(db))
    }

    /// Panics unless the indexes agree with the queues.
    #[expect(clippy::expect_used, reason = "tests call it")]
    pub fn check_invariants(&self) {
        let (mut places, mut kept) = (0, 0);
        for (id, queue) in &self.queues {
            let Queue {
                db,
                name,
                queue,
                since,
                ..
            } = queue;
            assert_eq!(*since, queue.waiting_since(), "{id:?}: the longest wait");
            assert!(since.is_none_or(|since| self.by_since.contains(&(since, *id))));
            queue.check_invariants();
            places += queue.len();
            assert_eq!(
                self.find(*db, name.as_bytes()),
                Some(*id),
                "{id:?} is found by its key"
            );
            assert!(
                !queue.is_empty() || self.is_due(*id),
                "{id:?} is empty but not due"
            );
            kept += queue.kept();
            for (place, waiter) in queue.waiting() {
                let Some(asked) = waiter.id else { continue };
                let seat = self.seat_of(asked).expect("a waiter's seat");
                assert_eq!(seat, (*id, place));
                assert_eq!(self.waiter_of(waiter.request.client), waiter.id);
            }
        }
        assert_eq!(self.kept, kept as u64, "kept places in all");
        for (until, id, place) in &self.keeps {
            assert!(
                self.is_kept_until(*until, *id, *place) || self.flushes.has_dropped_of(*id),
                "{place:?} is kept until {until:?}"
            );
        }
        assert_eq!(self.places, places as u64, "places in all");
        let waiters: usize = self
            .queues
            .values()
            .map(|queue| queue.queue.waiters())
            .sum();
        let waiting: u64 = self.waiting.iter().sum();
        assert_eq!(waiting, waiters as u64, "waiters by family");
        let all = self.queues.values().flat_map(|queue| queue.queue.waiting());
        let parked = waiters - all.filter(|(_, waiter)| !waiter.is_parked()).count();
        assert_eq!(self.by_waiter.len(), parked, "a seat a client that waits");
        assert_eq!(self.by_client.len(), parked, "a connection a client");
        self.due.check_invariants();
        let waited = self.queues.values().filter(|queue| queue.since.is_some());
        assert_eq!(self.by_since.len(), waited.count(), "a wait a queue");
        assert!(self.moments.is_superset(&self.vacant));
        for (_, id, place) in &self.moments {
            let taken = self.by_waiter.values().any(|seat| *seat == (*id, *place));
            let vacant = self
                .vacant
                .iter()
                .any(|(_, queue, at)| (queue, at) == (id, place));
            assert!(taken || vacant, "a moment for a place that does not exist");
        }
    }
}
