//! A client that is let go by the very command that parks it, in a panic say.
//!
//! On Redis 7.2 to unblock a client within its own command stops the server at an assertion, when the
//! command's duration has been booked twice. So such a release waits for the next turn of the event
//! loop, on all servers alike.

use std::ffi::c_void;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use redis_module::raw;

use super::api::required;
use super::blocked::unblock;
use super::context::Ctx;
use super::guard::guard;

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

    pub(super) fn end(self, ctx: Ctx<'_>) {
        let waiter = PARKING.swap(self.outer.0, Relaxed);
        if TOO_EARLY.swap(self.outer.1, Relaxed) {
            let data = std::ptr::without_provenance_mut(waiter as usize);
            // SAFETY: a live context; the callback is a function of this library, and its data a
            // number nobody dereferences.
            unsafe { required!(RedisModule_CreateTimer)(ctx.raw(), 0, Some(on_next_turn), data) };
        }
    }
}

unsafe extern "C" fn on_next_turn(_: *mut raw::RedisModuleCtx, data: *mut c_void) {
    guard(
        c"a late release",
        || (),
        || {
            if let Some(waiter) = NonZeroU64::new(data.addr() as u64) {
                unblock(waiter);
            }
        },
    );
}
