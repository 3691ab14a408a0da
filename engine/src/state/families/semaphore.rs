//! The semaphore: holds that take permits of a limit.
//!
//! The limit in force is the one that an operator pinned, if any, and otherwise the last one that a request gave. It is
//! compared at a grant only: after it was lowered below what is in use, nothing is granted until enough holds have
//! ended.

use crate::answer::Refusal;
use crate::change::{Change, Limits, Misfit};
use crate::heap;
use crate::hold::Hold;
use crate::settings::Settings;
use crate::state::families::policy::Policy;
use crate::state::hold_set::HoldSet;
use crate::types::{Claim, Family, UnixMs};

#[derive(Clone, Default)]
pub struct Semaphore {
    /// Boxed, because limits and a hold together do not fit into the room that a lock takes.
    holds: Box<HoldSet>,
    limits: Limits,
}

impl Semaphore {
    /// Returns how many permits are left under the limit in force, whether or not the key is paused.
    pub(crate) fn available(&self) -> u64 {
        let limit = self.limits.in_force().map_or(0, u64::from);
        limit.saturating_sub(self.holds.permits())
    }
}

/// Returns why a request is refused whose claim no semaphore with this limit ever fits, even a key that is absent.
pub(crate) fn refusal(claim: Claim, limit: Option<u32>) -> Option<Refusal> {
    match (claim, limit) {
        (Claim::Permits(_) | Claim::Indexed, None) => Some(Refusal::NoLimit),
        // A limit of 0 pauses the semaphore, and no number of permits is too many for a pause.
        (Claim::Permits(permits), Some(limit)) if limit >= 1 && permits > limit => {
            Some(Refusal::TooMany { permits, limit })
        }
        _ => None,
    }
}

impl Policy for Semaphore {
    const FAMILY: Family = Family::Semaphore;

    fn holds(&self) -> &HoldSet {
        &self.holds
    }

    fn holds_mut(&mut self) -> Result<&mut HoldSet, Misfit> {
        Ok(&mut self.holds)
    }

    fn admits(&self, claim: Claim, limit: Option<u32>) -> bool {
        let taken = self.holds.permits() + u64::from(claim.permits());
        limit.is_none_or(|limit| taken <= u64::from(limit))
    }

    fn free_capacity(&self) -> u64 {
        self.available()
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    /// A pinned semaphore stays after its last hold and waiter.
    fn retained_until(&self, _settings: &Settings) -> Option<UnixMs> {
        self.limits.pinned.map(|_| UnixMs::NEVER)
    }

    fn apply_own(&mut self, change: &Change) -> Result<Option<Hold>, Misfit> {
        match change {
            Change::Limit(limit) => self.limits.set(Some(*limit), self.limits.pinned),
            Change::Pin(limit) => self.limits.set(self.limits.limit, *limit),
            Change::Limits(limits) => self.limits = *limits,
            _ => return Err(Misfit::Family),
        }
        Ok(None)
    }

    fn heap_bytes(&self) -> usize {
        heap::allocated(size_of::<HoldSet>())
    }
}
