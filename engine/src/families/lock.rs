//! The lock: one exclusive hold, or any number of shared ones.
//!
//! It keeps only its holds, and its key is removed with the last of them.

use crate::hold_set::HoldSet;
use crate::types::Claim;

#[derive(Clone, Default)]
pub struct Lock {
    pub holds: HoldSet,
}

impl Lock {
    /// Whether one more hold fits beside the present ones. All holds of a lock have the same claim, so the first is
    /// compared.
    #[must_use]
    pub fn admits(&self, claim: Claim) -> bool {
        match self.holds.first() {
            None => true,
            Some(first) => claim == Claim::Shared && first.claim() == Claim::Shared,
        }
    }
}
