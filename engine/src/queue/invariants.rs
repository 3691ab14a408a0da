//! What tests and debug builds ask of the queues.

use crate::queue::place::{Place, Presence};
use crate::queue::queues::{Queue, Queues};
use crate::types::{LeaseUs, QueueId};

impl Queues {
    /// Returns all places in line.
    pub fn all_in_line(&self) -> impl Iterator<Item = (QueueId, &Place)> {
        let queues = self.queues.iter();
        queues.flat_map(|(id, queue)| queue.queue.line().map(|place| (*id, place)))
    }

    /// Whether the queue is due, or will be when it is swept.
    pub fn will_be_due(&self, id: QueueId) -> bool {
        let swept = |db| {
            [None, Some(db)]
                .iter()
                .any(|db| self.sweeps.contains_key(db))
        };
        self.is_due(id) || self.key(id).is_some_and(|(db, _)| swept(db))
    }

    /// Whether the moment at which a kept place runs out is listed.
    pub fn is_listed(&self, until: LeaseUs, id: QueueId, place: &Place) -> bool {
        self.keeps.contains(&(until, id, place.rank()))
    }

    /// Panics unless the indexes agree with the queues.
    pub fn check_invariants(&self) {
        let (mut places, mut kept, mut waiters) = (0, 0, 0);
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
            kept += queue.kept();
            waiters += queue.waiters();
            let found = self.find(*db, name.as_bytes());
            assert_eq!(found, Some(*id), "{id:?} is found by its key");
            let is_empty = queue.is_empty();
            assert!(!is_empty || self.is_due(*id), "{id:?} is empty but not due");
        }
        let mut parked = 0;
        for (id, place) in self.all_in_line() {
            if let Presence::Parked(client) = &place.presence {
                parked += 1;
                assert_eq!(self.place_of(client.waiter), Some((id, place.rank())));
                assert_eq!(self.waiter_of(client.client), Some(client.waiter));
            }
        }
        for (until, id, rank) in &self.keeps {
            assert!(
                self.is_kept_until(*until, *id, *rank) || self.flushes.has_dropped_of(*id),
                "{rank:?} is kept until {until:?}"
            );
        }
        assert_eq!(self.kept, kept as u64, "kept places in all");
        assert_eq!(self.places, places as u64, "places in all");
        let waiting: u64 = self.waiting.iter().sum();
        assert_eq!(waiting, waiters as u64, "waiters by family");
        let in_line = self.all_in_line().count();
        let seats = parked + waiters - in_line;
        assert_eq!(self.by_waiter.len(), seats, "a place a client that waits");
        assert_eq!(self.by_client.len(), seats, "a connection a client");
        assert_eq!(
            self.vacant.len(),
            places - waiters,
            "a moment a vacant place"
        );
        self.due.check_invariants();
        let waited = self.queues.values().filter(|queue| queue.since.is_some());
        assert_eq!(self.by_since.len(), waited.count(), "a wait a queue");
        for (_, id, rank) in &self.waits {
            let taken = self.by_waiter.values().any(|place| *place == (*id, *rank));
            assert!(taken, "a moment for a wait that does not exist");
        }
    }
}
