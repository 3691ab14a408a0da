//! What tests and debug builds ask of one queue.

use std::collections::BTreeSet;

use super::WaitQueue;
use crate::queue::place::{Place, Presence, Watcher};
use crate::types::Rank;

impl WaitQueue {
    /// Returns all places, in line and vacant.
    pub fn places(&self) -> impl Iterator<Item = &Place> {
        self.line.values().chain(self.vacant.values())
    }

    /// Returns all watchers, also those whose answer is decided.
    pub fn watchers(&self) -> impl Iterator<Item = (&Rank, &Watcher)> {
        let answered = self.answered.iter();
        let answered = answered.flat_map(|(_, watchers)| watchers);
        self.watching.iter().chain(answered)
    }

    /// Panics unless the queue is as this one, to which its places were added one by one.
    pub fn check_invariants(&self, again: &WaitQueue) {
        assert_eq!(self.index, again.index);
        assert!(self.line.keys().eq(again.line.keys()), "in line");
        assert!(self.vacant.keys().eq(again.vacant.keys()), "vacant");
        let (ours, theirs) = (self.lanes(), again.lanes());
        if let Some((ours, theirs)) = ours.zip(theirs) {
            ours.check_places(theirs);
        }
        assert!(ours.is_some() || theirs.is_none(), "lanes");
        for place in self.places() {
            let is_right = match &place.presence {
                Presence::Parked(_) => true,
                Presence::Kept { .. } => place.is_kept(),
                Presence::Vacant { .. } => !place.is_kept(),
            };
            assert!(is_right, "{place:?}");
        }
        let mut answered = self.answered.iter();
        assert!(answered.all(|(_, watchers)| !watchers.is_empty()));
        let ranks = self.places().map(Place::rank);
        let ranks = ranks.chain(self.watchers().map(|(rank, _)| *rank));
        let ranks: BTreeSet<_> = ranks.collect();
        assert_eq!(ranks.len(), self.len(), "a rank is in one map");
    }
}
