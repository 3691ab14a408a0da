//! What tests and debug builds ask of the queues.

use crate::queue::queues::Queues;
use crate::queue::wait_queue::WaitQueue;
use crate::types::{LeaseUs, QueueId, Rank};

impl Queues {
    /// Whether the queue is due, or will be when it is swept.
    pub fn will_be_due(&self, id: QueueId) -> bool {
        let swept = |db| self.sweeps.contains_key(&db);
        let queue = self.get(id);
        self.is_due(id) || queue.is_some_and(|queue| swept(None) || swept(Some(queue.db)))
    }

    /// Whether the moment at which a kept place runs out is listed.
    pub fn is_listed(&self, until: LeaseUs, id: QueueId, rank: Rank) -> bool {
        self.keeps.contains(&(until, id, rank))
    }

    /// Panics unless the indexes are those of the places in the queues, and the visits of queues without places are due
    /// or put off.
    pub fn check_invariants(&self, is_put_off: impl Fn(QueueId) -> bool) {
        let mut again = Queues::default();
        for (id, queue) in &self.queues {
            let is_visited = self.is_due(*id) || is_put_off(*id);
            assert!(
                !queue.is_empty() || is_visited,
                "{id:?} stays without places"
            );
            again.last_number = id.0 - 1;
            again.find_or_make(queue.db, queue.name.as_bytes());
            for place in queue.places() {
                again.join(*id, place.clone());
            }
            for (rank, watcher) in queue.watchers() {
                again.watch(*id, *rank, *watcher, None);
            }
            queue.check_invariants(&again.queues[id]);
        }
        assert_eq!(self.by_key, again.by_key);
        assert_eq!(self.by_waiter, again.by_waiter);
        assert_eq!(self.by_client, again.by_client);
        assert_eq!(self.waits, again.waits);
        assert_eq!(self.vacant, again.vacant);
        let lanes = self.queues.values().filter_map(WaitQueue::lanes);
        assert_eq!(self.with_lanes, lanes.clone().count() as u64);
        let lanes: usize = lanes.map(|lanes| lanes.waiting().len()).sum();
        assert_eq!(self.lanes, lanes as u64, "the lanes");
        let gauges = |queues: &Queues| (queues.places, queues.kept, queues.waiting);
        assert_eq!(gauges(self), gauges(&again));
        let mut unkept = self.keeps.difference(&again.keeps);
        assert!(self.has_dropped() || unkept.next().is_none(), "unkept");
        let since = self.queues.iter();
        let since = since.filter_map(|(id, queue)| Some((queue.waiting_since()?, *id)));
        assert_eq!(self.by_since, since.collect());
    }
}
