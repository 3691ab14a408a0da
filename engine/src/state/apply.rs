//! The only functions that change what servers share of a state.
//!
//! The server that decides and its replicas both use [`Body::apply`], so their states are equal. `apply` checks every
//! change, because it may come from a file. The changes that only some families have are applied in `families`.

use super::body::{Body, Value, of_family};
use super::families::policy::Policy;
use super::hold_set::HoldSet;
use crate::change::{Change, Misfit};
use crate::hold::Hold;

impl Body {
    /// Applies one change. Returns the hold that it ended, if any.
    ///
    /// # Errors
    /// If the change does not fit. Then nothing has changed.
    pub fn apply(&mut self, change: &Change) -> Result<Option<Hold>, Misfit> {
        match change {
            Change::Pause { until } => self.pause(*until),
            // The engine removes the state, or changes the queue; there is nothing to change here.
            Change::Vanish | Change::Place(_) | Change::Leave { .. } => {}
            _ => return of_family!(self.value_mut(), family => family.apply(change)),
        }
        Ok(None)
    }

    /// Adds the holds of a saved state, which has none yet, in the order of their fences. It builds each tree from sorted
    /// entries, which is much faster than to insert each hold into three trees.
    ///
    /// # Errors
    /// As [`Body::apply`] for the grants of these holds.
    pub fn load(&mut self, holds: Vec<Hold>) -> Result<(), Misfit> {
        of_family!(self.value_mut(), family => family.load(holds))
    }
}

/// The changes of holds, which all families have.
trait Apply: Policy {
    fn apply(&mut self, change: &Change) -> Result<Option<Hold>, Misfit> {
        match change {
            Change::Grant(grant) => {
                if grant.claim.family() != Self::FAMILY {
                    return Err(Misfit::Family);
                }
                if !self.holds().accepts(grant) || !self.has_room_for(grant.claim) {
                    return Err(Misfit::Taken);
                }
                self.granted(grant.granted);
                self.holds_mut()?.insert(Hold::new(grant));
            }
            Change::Renew {
                fence,
                lease,
                deadline,
            } => {
                let renew = |hold: &mut Hold| hold.renew(*lease, *deadline);
                self.holds_mut()?.change(*fence, renew)?;
                self.renewed();
            }
            Change::End { fence, how, at } => {
                let ended = self.remove(*fence)?;
                self.ended(&ended, *how, *at);
                return Ok(Some(ended));
            }
            Change::Rest { fence, .. } => return self.holds_mut()?.rest(*fence).map(Some),
            Change::Unheard { fence, keep_ms } => {
                let mark = |hold: &mut Hold| hold.set_unheard(*keep_ms);
                self.holds_mut()?.change(*fence, mark)?;
            }
            _ => return self.apply_own(change),
        }
        Ok(None)
    }

    fn load(&mut self, holds: Vec<Hold>) -> Result<(), Misfit> {
        for (n, hold) in holds.iter().enumerate() {
            if !self.has_room_for(hold.claim()) {
                return Err(Misfit::Taken);
            }
            self.granted(hold.granted());
            // What fits beside the first hold fits beside all of them.
            if n == 0 {
                self.holds_mut()?.insert(hold.clone());
            }
        }
        if holds.len() > 1 {
            *self.holds_mut()? = HoldSet::of_sorted(holds)?;
        }
        Ok(())
    }
}

impl<P: Policy> Apply for P {}
