//! The semaphore: holds that take permits of a limit.
//!
//! The limit in force is the operator's, where one is pinned, and otherwise the one that a request
//! brought last. It binds grants, not holds: lowered below what is in use, it drains.

use crate::hold_set::HoldSet;

/// The scalars of a semaphore.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// The limit that requests last put in force, or would have but for the pin.
    pub limit: Option<u32>,
    /// The operator's limit; while it is set it is the one in force.
    pub pinned: Option<u32>,
    /// How often the limit in force has become another.
    pub changes: u64,
}

#[derive(Clone, Default)]
pub struct Semaphore {
    pub holds: HoldSet,
    limits: Limits,
}

impl Semaphore {
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    #[must_use]
    pub fn limit_in_force(&self) -> Option<u32> {
        self.limits.pinned.or(self.limits.limit)
    }

    #[must_use]
    pub fn admits(&self, permits: u32, limit: u32) -> bool {
        self.holds.permits() + u64::from(permits) <= u64::from(limit)
    }

    /// What requests ask for; remembered only, while another limit is pinned.
    pub fn ask_limit(&mut self, limit: u32) {
        self.change_limits(|limits| limits.limit = Some(limit));
    }

    pub fn pin(&mut self, limit: Option<u32>) {
        self.change_limits(|limits| limits.pinned = limit);
    }

    fn change_limits(&mut self, change: impl FnOnce(&mut Limits)) {
        let before = self.limit_in_force();
        change(&mut self.limits);
        // The first limit is no change of one.
        if before.is_some() && before != self.limit_in_force() {
            self.limits.changes = self.limits.changes.saturating_add(1);
        }
    }

    /// Pinned, it outlives its last hold and waiter.
    #[must_use]
    pub fn outlives_use(&self) -> bool {
        self.limits.pinned.is_some()
    }
}
