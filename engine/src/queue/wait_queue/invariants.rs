//! What tests and debug builds ask of one queue.

use std::collections::BTreeSet;

use super::{Index, WaitQueue};
use crate::queue::place::{Place, Presence};

impl WaitQueue {
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
        let ranks = self.line.keys().chain(self.vacant.keys());
        let ranks: BTreeSet<_> = ranks.chain(self.watching.keys()).collect();
        let places = self.line.len() + self.vacant.len() + self.watching.len();
        assert_eq!(ranks.len(), places, "a rank is in one map");
    }
}
