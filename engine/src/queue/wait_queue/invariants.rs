//! What tests and debug builds ask of one queue.

use std::collections::BTreeSet;

use super::WaitQueue;
use crate::Family;
use crate::queue::entry::Waiter;

impl WaitQueue {
    /// Panics unless the indexes and numbers agree with the places.
    #[expect(clippy::expect_used, reason = "tests call it")]
    pub fn check_invariants(&self) {
        for (token, place) in &self.by_token {
            let (at, _) = self.find(token).expect("a token with a place");
            assert_eq!(at, *place);
        }
        let returning = self
            .waiting
            .values()
            .filter(|waiter| waiter.request.may_return)
            .count();
        assert_eq!(
            self.by_token.len(),
            returning + self.vacant.len(),
            "tokens that may return"
        );
        let heavy = self
            .waiting
            .iter()
            .filter(|(_, w)| w.request.claim.permits() > 1);
        let heavy: BTreeSet<_> = heavy
            .map(|(place, waiter)| (waiter.request.claim.permits(), *place))
            .collect();
        assert_eq!(self.heavy, heavy, "requests for several permits");
        let kept = self.waiting.values().filter(|waiter| waiter.keep.is_some());
        assert_eq!(self.kept, kept.clone().count(), "kept places");
        let kept_bytes: usize = kept.map(Waiter::heap_bytes).sum();
        assert_eq!(self.kept_bytes, kept_bytes, "the bytes of kept places");
        let parked = self.waiting.values().filter(|waiter| waiter.is_parked());
        assert_eq!(self.parked, parked.count(), "clients that wait");
        let of = |family| {
            let waiters = self.waiting.values();
            waiters.filter(move |waiter| waiter.request.claim.family() == family)
        };
        let by_family = Family::ALL.map(|family| of(family).count());
        assert_eq!(self.by_family, by_family, "waiting places by family");
        for waiter in self.waiting.values() {
            let (request, is_kept) = (&waiter.request, waiter.keep.is_some());
            assert!(is_kept || waiter.is_parked(), "somebody waits");
            assert_eq!(waiter.id.is_some(), waiter.is_parked(), "whom to answer");
            assert!(!is_kept || request.may_return, "a kept place has a token");
            assert!(waiter.is_parked() || !request.ephemeral);
        }
        let capped = self
            .waiting
            .iter()
            .filter_map(|(place, waiter)| Some((waiter.request.max_attempts?, *place)));
        let capped: BTreeSet<_> = capped.collect();
        assert_eq!(self.capped, capped, "requests with a number of attempts");
        assert!(
            self.answered
                .iter()
                .all(|(_, watchers)| !watchers.is_empty())
        );
        let places = self
            .waiting
            .keys()
            .chain(self.vacant.keys())
            .chain(self.watching.keys());
        let places: BTreeSet<_> = places.collect();
        assert_eq!(
            places.len(),
            self.waiting.len() + self.vacant.len() + self.watching.len(),
            "a place is in one map"
        );
    }
}
