//! Defers the release of a client that is released by the same command that parks it, for example after a panic.
//!
//! On Redis 7.2 to unblock a client within its own command stops the server at an assertion, because the command's
//! duration is then recorded twice. So such a release waits for the next turn of the event loop, on all servers alike.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The waiter that the running command has parked, or 0. Used only under the server's global lock.
static PARKED_NOW: AtomicU64 = AtomicU64::new(0);
/// Whether that waiter was released already.
static RELEASED_EARLY: AtomicBool = AtomicBool::new(false);

/// Whether the running command has parked no client yet.
pub(super) fn none_parked() -> bool {
    PARKED_NOW.load(Relaxed) == 0
}

/// Notes that the running command has parked this waiter.
pub(super) fn parked(waiter: NonZeroU64) {
    PARKED_NOW.store(waiter.get(), Relaxed);
}

/// Returns whether the release of this waiter has to wait until the running command is over. If so, [`Running::end`]
/// will return the waiter.
pub(super) fn defers(waiter: NonZeroU64) -> bool {
    let released_early = PARKED_NOW.load(Relaxed) == waiter.get();
    if released_early {
        RELEASED_EARLY.store(true, Relaxed);
    }
    released_early
}

/// One run of a command. Keeps the values of the command further up the stack, if one called this one.
pub(super) struct Running {
    outer: (u64, bool),
}

impl Running {
    pub(super) fn begin() -> Self {
        let outer = (
            PARKED_NOW.swap(0, Relaxed),
            RELEASED_EARLY.swap(false, Relaxed),
        );
        Running { outer }
    }

    /// Returns the waiter whose release was deferred, if there is one. It must be unblocked in the next turn.
    pub(super) fn end(self) -> Option<NonZeroU64> {
        let waiter = PARKED_NOW.swap(self.outer.0, Relaxed);
        let released_early = RELEASED_EARLY.swap(self.outer.1, Relaxed);
        NonZeroU64::new(waiter).filter(|_| released_early)
    }
}
