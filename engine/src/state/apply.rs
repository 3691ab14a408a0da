//! The changes of holds, which all families have. Each is checked, because it may come from a file. Those that only some
//! families have are applied in `families`.

use super::families::policy::Policy;
use super::hold_set::HoldSet;
use crate::change::{Change, Misfit};
use crate::hold::Hold;
use crate::types::Fence;

/// What [`Body`](super::Body) asks of the value of a family.
pub(super) trait Apply: Policy {
    fn apply(&mut self, change: &Change) -> Result<Option<Hold>, Misfit> {
        match change {
            Change::Grant(grant) => {
                if grant.claim.family() != Self::FAMILY {
                    return Err(Misfit::Family);
                }
                if !self.holds().accepts(grant) || !self.admits(grant.claim, None) {
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

    fn load(&mut self, holds: Vec<(Fence, Hold)>) -> Result<(), Misfit> {
        for (n, (_, hold)) in holds.iter().enumerate() {
            if !self.admits(hold.claim(), None) {
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
