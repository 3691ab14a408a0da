//! What tests and debug builds ask of the queues.

use std::collections::BTreeSet;

use crate::queue::place::Place;
use crate::queue::queues::Queues;
use crate::types::{LeaseUs, QueueId};

impl Queues {
    /// Returns all places in line.
    pub fn all_in_line(&self) -> impl Iterator<Item = (QueueId, &Place)> {
        let queues = self.queues.iter();
        queues.flat_map(|(id, queue)| queue.line().map(|place| (*id, place)))
    }

    /// Whether the queue is due, or will be when it is swept.
    pub fn will_be_due(&self, id: QueueId) -> bool {
        let swept = |db| {
            [None, Some(db)]
                .iter()
                .any(|db| self.sweeps.contains_key(db))
        };
        self.is_due(id) || self.get(id).is_some_and(|queue| swept(queue.db))
    }

    /// Whether the moment at which a kept place runs out is listed.
    pub fn is_listed(&self, until: LeaseUs, id: QueueId, place: &Place) -> bool {
        self.keeps.contains(&(until, id, place.rank()))
    }

    /// Panics unless the indexes are those of the places in the queues.
    pub fn check_invariants(&self) {
        let (mut again, mut by_since) = (Queues::default(), BTreeSet::new());
        for (id, queue) in &self.queues {
            queue.check_invariants();
            let is_empty = queue.is_empty();
            assert!(!is_empty || self.is_due(*id), "{id:?} is empty but not due");
            assert_eq!(
                queue.since,
                queue.waiting_since(),
                "{id:?}: the longest wait"
            );
            by_since.extend(queue.since.map(|since| (since, *id)));
            again.last_number = id.0 - 1;
            again.find_or_make(queue.db, queue.name.as_bytes());
            for place in queue.places() {
                again.join(*id, place.clone());
            }
            for (rank, watcher) in queue.watchers() {
                again.watch(*id, *rank, *watcher);
            }
        }
        assert_eq!(self.by_key, again.by_key);
        assert_eq!(self.by_waiter, again.by_waiter);
        assert_eq!(self.by_client, again.by_client);
        assert_eq!(self.waits, again.waits);
        assert_eq!(self.vacant, again.vacant);
        let gauges = |queues: &Queues| (queues.places, queues.kept, queues.waiting);
        assert_eq!(gauges(self), gauges(&again));
        let mut unkept = self.keeps.difference(&again.keeps);
        assert!(self.has_dropped() || unkept.next().is_none(), "unkept");
        assert_eq!(self.by_since, by_since);
    }
}
