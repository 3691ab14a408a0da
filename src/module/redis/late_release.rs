//! A client that is let go by the very command that parks it, in a panic say.
//!
//! On Redis 7.2 to unblock a client within its own command stops the server at an assertion, when the
//! command's duration has been booked twice. So such a release waits for the next turn of the event
//! loop, on all servers alike.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The waiter parked by the command that is running, or 0; and whether it was let go already.
/// Only touched under the server's global lock.
static PARKING: AtomicU64 = AtomicU64::new(0);
static TOO_EARLY: AtomicBool = AtomicBool::new(false);

pub(super) fn none_parked() -> bool {
    PARKING.load(Relaxed) == 0
}

pub(super) fn parked(waiter: NonZeroU64) {
    PARKING.store(waiter.get(), Relaxed);
}

/// Whether the release of this waiter has to wait: then it is seen to.
pub(super) fn takes(waiter: NonZeroU64) -> bool {
    let too_early = PARKING.load(Relaxed) == waiter.get();
    if too_early {
        TOO_EARLY.store(true, Relaxed);
    }
    too_early
}

/// One run of a command; those further up the stack are set aside.
pub(super) struct Running {
    outer: (u64, bool),
}

impl Running {
    pub(super) fn begin() -> Self {
        let outer = (PARKING.swap(0, Relaxed), TOO_EARLY.swap(false, Relaxed));
        Running { outer }
    }

    /// Returns the waiter that was let go too early, if there is one: to be unblocked in the next turn.
    pub(super) fn end(self) -> Option<NonZeroU64> {
        let waiter = PARKING.swap(self.outer.0, Relaxed);
        let too_early = TOO_EARLY.swap(self.outer.1, Relaxed);
        NonZeroU64::new(waiter).filter(|_| too_early)
    }
}
