//! What tests and debug builds ask of one queue.

use std::collections::BTreeSet;

use super::{Index, WaitQueue};
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

    /// Panics unless the index agrees with the places.
    pub fn check_invariants(&self) {
        let mut index = Index::default();
        for (rank, place) in self.line.iter().chain(&self.vacant) {
            assert_eq!(place.rank(), *rank);
            let is_right = match &place.presence {
                Presence::Parked(_) => true,
                Presence::Kept { .. } => place.is_kept() && place.may_return,
                Presence::Vacant { .. } => !place.is_kept() && place.may_return,
            };
            assert!(is_right, "{rank:?}: {:?}", place.presence);
            index.note(place, true);
        }
        assert_eq!(self.index, index);
        assert!(self.line().all(Place::is_in_line));
        assert!(!self.vacant.values().any(Place::is_in_line));
        let mut answered = self.answered.iter();
        assert!(answered.all(|(_, watchers)| !watchers.is_empty()));
        let ranks = self.places().map(Place::rank);
        let ranks = ranks.chain(self.watchers().map(|(rank, _)| *rank));
        let ranks: BTreeSet<_> = ranks.collect();
        assert_eq!(ranks.len(), self.len(), "a rank is in one map");
    }
}
