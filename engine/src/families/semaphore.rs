//! The semaphore: holds that take permits of a limit.
//!
//! The limit in force is the one that an operator pinned, if any, and otherwise the last one that a request gave. It is
//! compared at a grant only: after it was lowered below what is in use, nothing is granted until enough holds have
//! ended.

use crate::hold_set::HoldSet;
use crate::types::OptionalUnixMs;

/// What a semaphore keeps besides its holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// The last limit that a request put in force, or would have if no limit were pinned.
    pub limit: Option<u32>,
    /// The limit that an operator pinned. While it is set, it is in force.
    pub pinned: Option<u32>,
    /// How often the limit in force has changed.
    pub changes: u64,
}

#[derive(Clone, Default)]
pub struct Semaphore {
    /// Boxed, because limits and a hold together do not fit into the room that a lock takes.
    pub holds: Box<HoldSet>,
    pub(crate) paused_until: OptionalUnixMs,
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

    /// Takes a limit that a request gave. While another limit is pinned, it is only remembered.
    pub fn ask_limit(&mut self, limit: u32) {
        self.change_limits(|limits| limits.limit = Some(limit));
    }

    pub fn pin(&mut self, limit: Option<u32>) {
        self.change_limits(|limits| limits.pinned = limit);
    }

    fn change_limits(&mut self, change: impl FnOnce(&mut Limits)) {
        let before = self.limit_in_force();
        change(&mut self.limits);
        // The first limit of a semaphore does not count as a change.
        if before.is_some() && before != self.limit_in_force() {
            self.limits.changes = self.limits.changes.saturating_add(1);
        }
    }

    /// Whether the semaphore stays after its last hold and waiter: a pinned one does.
    #[must_use]
    pub fn outlives_use(&self) -> bool {
        self.limits.pinned.is_some()
    }
}
