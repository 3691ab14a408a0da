//! The lock: one exclusive hold, or any number of shared ones.
//!
//! Nothing but its holds: a lock without any is no lock, and its key goes with the last of them.

use crate::hold_set::HoldSet;
use crate::types::Claim;

#[derive(Clone, Default)]
pub struct Lock {
    pub holds: HoldSet,
}

impl Lock {
    /// Whether one more hold may join those there are. All holds of a lock have the same claim, so
    /// the oldest speaks for all.
    #[must_use]
    pub fn admits(&self, claim: Claim) -> bool {
        match self.holds.first() {
            None => true,
            Some(first) => claim == Claim::Shared && first.claim == Claim::Shared,
        }
    }
}
