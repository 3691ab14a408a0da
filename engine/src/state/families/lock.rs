//! The lock: one exclusive hold, or any number of shared ones.
//!
//! It keeps only its holds, and its key is removed with the last of them. Only a PAUSE keeps the key without holds.

use crate::heap;
use crate::settings::Settings;
use crate::state::families::policy::Policy;
use crate::state::hold_set::HoldSet;
use crate::types::{Claim, Family, UnixMs};

#[derive(Clone)]
pub struct Lock(Content);

/// A paused lock is boxed as a whole: pauses are rare, and the moment has no room beside a hold.
#[derive(Clone)]
enum Content {
    Open(HoldSet),
    Paused(Box<Paused>),
}

#[derive(Clone)]
struct Paused {
    holds: HoldSet,
    until: UnixMs,
}

impl Default for Lock {
    fn default() -> Lock {
        Lock(Content::Open(HoldSet::Empty))
    }
}

impl Policy for Lock {
    const FAMILY: Family = Family::Lock;

    fn holds(&self) -> &HoldSet {
        match &self.0 {
            Content::Open(holds) => holds,
            Content::Paused(paused) => &paused.holds,
        }
    }

    fn holds_mut(&mut self) -> Option<&mut HoldSet> {
        Some(match &mut self.0 {
            Content::Open(holds) => holds,
            Content::Paused(paused) => &mut paused.holds,
        })
    }

    fn paused_until(&self) -> Option<UnixMs> {
        match &self.0 {
            Content::Open(_) => None,
            Content::Paused(paused) => Some(paused.until),
        }
    }

    fn pause(&mut self, until: Option<UnixMs>) {
        let holds = self.holds_mut().map(std::mem::take).unwrap_or_default();
        self.0 = match until {
            Some(until) => Content::Paused(Box::new(Paused { holds, until })),
            None => Content::Open(holds),
        };
    }

    /// All holds of a lock have the same claim, so the first is compared.
    fn admits(&self, claim: Claim, _limit: Option<u32>) -> bool {
        match self.holds().first() {
            None => true,
            Some(first) => claim == Claim::Shared && first.claim() == Claim::Shared,
        }
    }

    fn has_room_for(&self, claim: Claim) -> bool {
        self.admits(claim, None)
    }

    fn free_capacity(&self) -> u64 {
        let claims = [Claim::Shared, Claim::Exclusive].into_iter();
        claims.filter(|claim| self.has_room_for(*claim)).count() as u64
    }

    /// Requests that wait for a lock need no value: the first of them makes a new one.
    fn outlives_use(&self, _settings: &Settings, _waited: bool, _now: UnixMs) -> bool {
        false
    }

    fn heap_bytes(&self) -> usize {
        match &self.0 {
            Content::Open(_) => 0,
            Content::Paused(_) => heap::allocated(size_of::<Paused>()),
        }
    }

    #[cfg(debug_assertions)]
    fn check_invariants(&self) {
        let holds = self.holds();
        let has_exclusive = holds.iter().any(|hold| hold.claim() == Claim::Exclusive);
        assert!(
            !has_exclusive || holds.len() == 1,
            "an exclusive hold is alone"
        );
    }
}
