//! What every family says about itself. `state` asks these questions at one place, whatever the family.
//!
//! All that changes a value is visible in `state` alone, so that nothing but [`crate::Body::apply`] calls it. A default
//! is the answer of a lock: it has no limit, nothing is kept without holds, and the only changes are those that all
//! families share.

use crate::answer::Answer;
use crate::change::{Change, End, Limits, Misfit};
use crate::hold::Hold;
use crate::settings::Settings;
use crate::state::hold_set::HoldSet;
use crate::types::{Claim, Family, Fence, UnixMs};

/// What becomes of a request that nobody is before.
pub(crate) enum Admission {
    /// It may be granted now.
    Now,
    /// It must wait.
    Later,
    /// It would wait in vain. It is told this answer, even if others are before it.
    Never(Answer),
    /// All attempts that it allows have failed: it is told FAILED.
    GiveUp,
}

/// The rules of one family, for the value of one key.
pub(in crate::state) trait Policy {
    const FAMILY: Family;

    fn family(&self) -> Family {
        Self::FAMILY
    }

    fn holds(&self) -> &HoldSet;

    /// # Errors
    /// If there are none, and the value has no room for any.
    fn holds_mut(&mut self) -> Result<&mut HoldSet, Misfit>;

    fn remove(&mut self, fence: Fence) -> Result<Hold, Misfit> {
        self.holds_mut()?.remove(fence).ok_or(Misfit::NoHold)
    }

    /// Whether a hold with this claim fits beside the present ones, under this limit if there is one. A pause does not
    /// count. A GRANT that another server decided must fit without a limit: only the server that decides compares limits.
    fn admits(&self, claim: Claim, limit: Option<u32>) -> bool;

    /// Returns what becomes of a request that is told something else than a grant, and has this bound.
    fn told_instead(&self, _bound: Option<u32>) -> Option<Admission> {
        None
    }

    /// Returns how much could be granted now. A pause does not count.
    fn free_capacity(&self) -> u64;

    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// Returns until when the value is kept without holds and waiters; `None` if it is not kept.
    fn retained_until(&self, _settings: &Settings) -> Option<UnixMs> {
        None
    }

    /// Notes that a hold is granted, and makes room for it. Call it before the hold is added.
    fn granted(&mut self, _at: UnixMs) {}

    /// Notes that a hold was renewed.
    fn renewed(&mut self) {}

    /// Notes that a hold has ended, and was removed.
    fn ended(&mut self, _hold: &Hold, _how: End, _at: UnixMs) {}

    /// Applies a change that not all families have. Returns the hold that it ended, if any.
    fn apply_own(&mut self, _change: &Change) -> Result<Option<Hold>, Misfit> {
        Err(Misfit::Family)
    }

    /// Returns the bytes on the heap, with the box that the state keeps the value in, and without those of the holds.
    fn heap_bytes(&self) -> usize;

    /// Panics unless the holds obey the rules of the family.
    #[cfg(debug_assertions)]
    fn check_invariants(&self) {}
}

/// What one server knows alone of a value that stays without holds.
#[derive(Clone, Default)]
pub(in crate::state) struct Retention {
    /// When a request was last seen waiting for the key.
    last_watched: UnixMs,
    /// The moment under which the engine has the key in its `retention` index, if it is there.
    pub(in crate::state) noted: Option<UnixMs>,
}

impl Retention {
    pub(in crate::state) fn watched(&mut self, at: UnixMs) {
        self.last_watched = self.last_watched.max(at);
    }

    /// Returns the end of so many milliseconds after the last change, or after the last request that waited.
    pub(super) fn idle_until(&self, touched: UnixMs, idle_ms: u64) -> UnixMs {
        touched.max(self.last_watched).after_ms(idle_ms)
    }
}
