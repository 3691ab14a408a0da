//! A state that is built from its saved changes, all holds at once.
//!
//! A saved state lists its holds by rising fence. To build each tree from sorted entries is much faster than to insert
//! each hold into three trees, so the grants are collected first. A token that is there twice is therefore found at the
//! end of the grants.

use super::body::{Body, Value, of_family};
use super::families::policy::Policy;
use super::hold_set::HoldSet;
use crate::change::{Change, Misfit};
use crate::hold::{Grant, Hold};
use crate::types::{Family, Fence};

/// A state that is being built. Its grants must come one after the other, with rising fences.
pub struct Loading {
    /// With the first hold only, until [`Loading::end_grants`].
    body: Body,
    /// The holds of the grants, the first included.
    holds: Vec<(Fence, Hold)>,
}

impl Loading {
    pub(crate) fn new(family: Family) -> Loading {
        Loading {
            body: Body::new(family),
            holds: Vec::new(),
        }
    }

    pub(crate) fn body(&self) -> &Body {
        &self.body
    }

    /// # Errors
    /// If the grant does not fit for another reason than its token.
    pub fn grant(&mut self, grant: Grant) -> Result<(), Misfit> {
        self.holds.push((grant.fence, Hold::new(&grant)));
        if self.holds.len() == 1 {
            return self.apply(&Change::Grant(grant));
        }
        let claim = grant.claim;
        // What fits beside the first hold fits beside all of them.
        let has_room = of_family!(self.body.value(), family => family.has_room_for(claim));
        match claim.family() == self.body.family() {
            false => Err(Misfit::Family),
            true => has_room.then_some(()).ok_or(Misfit::Taken),
        }
    }

    /// Adds the holds that were granted. Call it after the last grant, and before [`Loading::apply`].
    ///
    /// # Errors
    /// If two grants have the same token.
    pub fn end_grants(&mut self) -> Result<(), Misfit> {
        let holds = std::mem::take(&mut self.holds);
        if holds.len() <= 1 {
            return Ok(());
        }
        of_family!(self.body.value_mut(), family => {
            for (_, hold) in holds.iter().skip(1) {
                family.granted(hold.granted());
            }
            *family.holds_mut().ok_or(Misfit::Taken)? = HoldSet::of_sorted(holds)?;
            Ok(())
        })
    }

    /// # Errors
    /// If the change does not fit.
    pub fn apply(&mut self, change: &Change) -> Result<(), Misfit> {
        self.body.apply(change).map(drop)
    }

    pub(crate) fn finish(self) -> Body {
        debug_assert!(self.holds.is_empty(), "`end_grants` was called");
        self.body
    }
}
