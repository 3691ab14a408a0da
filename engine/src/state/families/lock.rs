//! The lock: one exclusive hold, or any number of shared ones.
//!
//! It keeps only its holds, and its key is removed with the last of them. Only a PAUSE keeps the key without holds.

use crate::change::Misfit;
use crate::state::families::policy::Policy;
use crate::state::hold_set::HoldSet;
use crate::types::{Claim, Family};

#[derive(Clone, Default)]
pub struct Lock(HoldSet);

impl Policy for Lock {
    const FAMILY: Family = Family::Lock;

    fn holds(&self) -> &HoldSet {
        &self.0
    }

    fn holds_mut(&mut self) -> Result<&mut HoldSet, Misfit> {
        Ok(&mut self.0)
    }

    /// All holds of a lock have the same claim, so the first is compared.
    fn admits(&self, claim: Claim, _limit: Option<u32>) -> bool {
        match self.0.first() {
            None => true,
            Some(first) => claim == Claim::Shared && first.claim() == Claim::Shared,
        }
    }

    fn free_capacity(&self) -> u64 {
        let claims = [Claim::Shared, Claim::Exclusive].into_iter();
        claims.filter(|claim| self.admits(*claim, None)).count() as u64
    }

    fn heap_bytes(&self) -> usize {
        0
    }

    #[cfg(debug_assertions)]
    fn check_invariants(&self) {
        let holds = &self.0;
        let has_exclusive = holds.iter().any(|hold| hold.claim() == Claim::Exclusive);
        assert!(
            !has_exclusive || holds.len() == 1,
            "an exclusive hold is alone"
        );
    }
}
