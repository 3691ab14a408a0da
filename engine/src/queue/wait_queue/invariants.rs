//! What tests and debug builds ask of one queue.

use std::collections::BTreeSet;

use super::WaitQueue;
use crate::queue::place::{Place, Presence};
use crate::types::Family;

impl WaitQueue {
    /// Panics unless the indexes and numbers agree with the places.
    #[expect(clippy::expect_used, reason = "tests call it")]
    pub fn check_invariants(&self) {
        for (token, rank) in &self.by_token {
            let place = self.find(token).expect("a token with a place");
            assert_eq!(place.rank(), *rank);
        }
        let returning = self.line().filter(|place| place.may_return).count();
        let tokens = returning + self.vacant.len();
        assert_eq!(self.by_token.len(), tokens, "tokens that may return");
        let heavy = self.line().filter(|place| place.claim.permits() > 1);
        let heavy = heavy.map(|place| (place.claim.permits(), place.rank()));
        let heavy: BTreeSet<_> = heavy.collect();
        assert_eq!(self.heavy, heavy, "requests for several permits");
        let capped = self.line();
        let capped = capped.filter_map(|place| Some((place.standing.max_attempts?, place.rank())));
        let capped: BTreeSet<_> = capped.collect();
        assert_eq!(self.capped, capped, "requests with a number of attempts");
        let kept = || self.line().filter(|place| place.is_kept());
        assert_eq!(self.kept, kept().count(), "kept places");
        let kept_bytes: usize = kept().map(Place::heap_bytes).sum();
        assert_eq!(self.kept_bytes, kept_bytes, "the bytes of kept places");
        let parked = self.line().filter(|place| place.parked().is_some());
        assert_eq!(self.parked, parked.count(), "clients that wait");
        let of = |family| {
            self.line()
                .filter(move |place| place.claim.family() == family)
        };
        let by_family = Family::ALL.map(|family| of(family).count());
        assert_eq!(self.by_family, by_family, "places in line by family");
        for (rank, place) in self.line.iter().chain(&self.vacant) {
            assert_eq!(place.rank(), *rank);
            let is_right = match &place.presence {
                Presence::Parked(_) => true,
                Presence::Kept { .. } => place.is_kept() && place.may_return,
                Presence::Vacant { .. } => !place.is_kept() && place.may_return,
            };
            assert!(is_right, "{rank:?}: {:?}", place.presence);
        }
        assert!(self.line().all(Place::is_in_line));
        assert!(self.vacant.values().all(|place| !place.is_in_line()));
        let mut answered = self.answered.iter();
        assert!(answered.all(|(_, watchers)| !watchers.is_empty()));
        let ranks = self.line.keys().chain(self.vacant.keys());
        let ranks: BTreeSet<_> = ranks.chain(self.watching.keys()).collect();
        let places = self.line.len() + self.vacant.len() + self.watching.len();
        assert_eq!(ranks.len(), places, "a rank is in one map");
    }
}
