//! A state that is built from its saved changes, all holds at once.
//!
//! A saved state lists its holds by rising fence. To build three trees from sorted entries takes a third of the time
//! that three insertions for each hold take, so the grants are collected first. A token that is there twice is
//! therefore found at the end of the grants.

use super::{Body, Policy, of_family};
use crate::change::{Change, Misfit};
use crate::hold::{Grant, Hold};
use crate::types::Family;

/// A state that is being built. Its grants must come one after the other, with rising fences.
pub struct Loading {
    body: Body,
    /// The holds but for the first, until they are added to the body.
    later: Vec<Hold>,
}

impl Loading {
    #[must_use]
    pub fn new(family: Family) -> Loading {
        Loading {
            body: Body::new(family),
            later: Vec::new(),
        }
    }

    /// Returns the state as far as it is built: without grants that [`Loading::end_grants`] has not added yet.
    #[must_use]
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// # Errors
    /// If the grant does not fit, but for a token that an earlier one has.
    pub fn grant(&mut self, grant: Grant) -> Result<(), Misfit> {
        if self.body.holds().is_empty() {
            return self.body.apply(&Change::Grant(grant)).map(drop);
        }
        // What fits beside the first hold fits beside all of them.
        let is_family = grant.claim.family() == self.body.family();
        let has_room = of_family!(&self.body, family => family.has_room_for(grant.claim));
        match (is_family, has_room) {
            (false, _) => Err(Misfit::Family),
            (true, false) => Err(Misfit::Taken),
            (true, true) => {
                self.later.push(Hold::new(&grant));
                Ok(())
            }
        }
    }

    /// Adds the holds that were granted. Call it after the last grant, and before [`Loading::apply`].
    ///
    /// # Errors
    /// If two grants have the same token.
    pub fn end_grants(&mut self) -> Result<(), Misfit> {
        let later = std::mem::take(&mut self.later);
        if later.is_empty() {
            return Ok(());
        }
        of_family!(&mut self.body, family => {
            for hold in &later {
                family.granted(hold.granted());
            }
            let holds = family.holds_mut().ok_or(Misfit::Taken)?;
            holds.extend(later)
        })
    }

    /// # Errors
    /// If the change does not fit.
    pub fn apply(&mut self, change: &Change) -> Result<(), Misfit> {
        self.body.apply(change).map(drop)
    }

    #[must_use]
    pub fn finish(self) -> Body {
        debug_assert!(self.later.is_empty(), "`end_grants` was called");
        self.body
    }
}
