//! The only function that changes what servers share of a state.
//!
//! The server that decides and its replicas both use [`Body::apply`], so their states are equal. `apply` checks every
//! change, because it may come from a file. The changes that only some families have are applied in `families`.

use super::body::{Body, Value, of_family};
use super::families::policy::Policy;
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
}

/// The changes of holds, which all families have.
trait Apply: Policy {
    fn apply(&mut self, change: &Change) -> Result<Option<Hold>, Misfit> {
        match change {
            Change::Grant(grant) => {
                if grant.claim.family() != Self::FAMILY {
                    return Err(Misfit::Family);
                }
                let is_free = self.holds().accepts(grant.fence, &grant.token);
                if !is_free || !self.has_room_for(grant.claim) {
                    return Err(Misfit::Taken);
                }
                self.granted(grant.granted);
                self.insert(Hold::new(grant));
            }
            Change::Renew {
                fence,
                lease,
                deadline,
            } => {
                let holds = self.holds_mut().ok_or(Misfit::NoHold)?;
                holds.change(*fence, |hold| hold.renew(*lease, *deadline))?;
                self.renewed();
            }
            Change::End { fence, how, at } => {
                let ended = self.remove(*fence)?;
                self.ended(&ended, *how, *at);
                return Ok(Some(ended));
            }
            Change::Unheard { fence, keep_ms } => {
                let holds = self.holds_mut().ok_or(Misfit::NoHold)?;
                holds.change(*fence, |hold| hold.set_unheard(*keep_ms))?;
            }
            _ => return self.apply_own(change),
        }
        Ok(None)
    }
}

impl<P: Policy> Apply for P {}
