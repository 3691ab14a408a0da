//! The lock: one exclusive hold, or any number of shared ones.
//!
//! It keeps only its holds, and its key is removed with the last of them. Only a PAUSE keeps the key without holds.

use crate::heap;
use crate::hold_set::HoldSet;
use crate::types::{Claim, UnixMs};

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

impl Lock {
    #[must_use]
    pub fn holds(&self) -> &HoldSet {
        match &self.0 {
            Content::Open(holds) => holds,
            Content::Paused(paused) => &paused.holds,
        }
    }

    pub fn holds_mut(&mut self) -> &mut HoldSet {
        match &mut self.0 {
            Content::Open(holds) => holds,
            Content::Paused(paused) => &mut paused.holds,
        }
    }

    #[must_use]
    pub fn into_holds(self) -> HoldSet {
        match self.0 {
            Content::Open(holds) => holds,
            Content::Paused(paused) => paused.holds,
        }
    }

    /// Whether one more hold fits beside the present ones. All holds of a lock have the same claim, so the first is
    /// compared.
    #[must_use]
    pub fn admits(&self, claim: Claim) -> bool {
        match self.holds().first() {
            None => true,
            Some(first) => claim == Claim::Shared && first.claim() == Claim::Shared,
        }
    }

    #[must_use]
    pub fn paused_until(&self) -> Option<UnixMs> {
        match &self.0 {
            Content::Open(_) => None,
            Content::Paused(paused) => Some(paused.until),
        }
    }

    pub fn pause(&mut self, until: Option<UnixMs>) {
        let holds = std::mem::take(self.holds_mut());
        self.0 = match until {
            Some(until) => Content::Paused(Box::new(Paused { holds, until })),
            None => Content::Open(holds),
        };
    }

    /// Returns the bytes on the heap, without those of the holds.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Content::Open(_) => 0,
            Content::Paused(_) => heap::allocated(size_of::<Paused>()),
        }
    }
}
