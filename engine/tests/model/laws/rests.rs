//! What must hold for MINHOLD: where all requests say MINHOLD ms, the grants of any span of ms take at most the limit
//! together, on the lease clock. It counts grants, and knows nothing of holds and how they end.
//!
//! Not counted are grants that were revoked, or of which nobody has heard when they ended, and those from before a
//! take-over.

use crate::model::Name;
use dsync_engine::change::{Change, End};
use dsync_engine::hold::Rest;
use dsync_engine::types::{Claim, Fence, LeaseUs};

/// A grant whose span is not over.
#[derive(Clone)]
struct Paced {
    fence: Fence,
    claim: Claim,
    until: LeaseUs,
    is_unheard: bool,
}

/// The grants of one key.
#[derive(Clone, Default)]
pub struct RestLaws(Vec<Paced>);

impl RestLaws {
    /// Checks one change, made at this moment while this limit is in force, and notes it.
    pub fn written(&mut self, name: Name, change: &Change, limit: Option<u32>, now: LeaseUs) {
        match change {
            Change::Grant(grant) => {
                self.0.retain(|paced| paced.until > now);
                let until = match grant.rest {
                    Rest::After(ms) => now.after_ms(u64::from(ms.0)),
                    Rest::None | Rest::Now => now,
                };
                let (fence, claim) = (grant.fence, grant.claim);
                self.0.push(Paced {
                    fence,
                    claim,
                    until,
                    is_unheard: false,
                });
                let taken = self.0.iter().map(|paced| u64::from(paced.claim.permits()));
                let within = match claim {
                    Claim::Exclusive => self.0.len() == 1,
                    Claim::Shared => self.0.iter().all(|paced| paced.claim == Claim::Shared),
                    Claim::Permits(_) | Claim::Indexed => {
                        taken.sum::<u64>() <= limit.map_or(0, u64::from)
                    }
                    Claim::Member | Claim::Run => grant.rest == Rest::None,
                };
                assert!(within, "{name:?}: {fence:?} comes too early");
            }
            Change::Unheard { fence, .. } => self.set_unheard(*fence, true),
            Change::Renew { fence, .. } => self.set_unheard(*fence, false),
            Change::End { fence, how, .. } => self.0.retain(|paced| {
                let is_void = matches!(how, End::Revoked | End::Undelivered) || paced.is_unheard;
                paced.fence != *fence || !is_void
            }),
            _ => {}
        }
    }

    fn set_unheard(&mut self, fence: Fence, is_unheard: bool) {
        let mut grants = self.0.iter_mut();
        if let Some(grant) = grants.find(|paced| paced.fence == fence) {
            grant.is_unheard = is_unheard;
        }
    }
}
