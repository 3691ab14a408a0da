//! A timer of the server that can be armed, moved and stopped at any moment, also from its own
//! callback.
//!
//! RM_StopTimer on the timer that is firing frees it twice. A slot forgets its timer before the
//! callback runs, so there is nothing left to stop. One timer a slot, and no data: what is due is
//! the engine's business.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use redis_module::raw;

use super::api::required;
use super::context::Ctx;
use super::guard::guard;

/// The longest period of a timer.
///
/// Redis 7.0 multiplies the milliseconds to the next timer by 1000 in an int (ae.c, processTimeEvents): from
/// 35.8 minutes on the product is negative, and the event loop would turn without a pause until the timer
/// fires.
pub(crate) const MAX_PERIOD_MS: u64 = 30 * 60 * 1_000;

/// The number of the armed timer; 0 when there is none (the server's numbers are moments in
/// microseconds, never 0).
pub(crate) struct TimerSlot(AtomicU64);

impl TimerSlot {
    pub(crate) const fn new() -> Self {
        TimerSlot(AtomicU64::new(0))
    }
}

pub(crate) trait Timer {
    const SLOT: &'static TimerSlot;

    /// Called once for each `start`, at or after its moment, in the database of the context that
    /// armed it. Not while a script runs or data is loaded.
    fn fire(ctx: Ctx<'_>);
}

/// Arms the timer, instead of what it was armed for. A period of 0 fires in the event loop's next
/// turn; one above [`MAX_PERIOD_MS`] is cut to it.
pub(crate) fn start<T: Timer>(ctx: Ctx, period_ms: u64) {
    stop::<T>(ctx);
    // SAFETY: a live context; the callback is a function of this library and takes no data.
    let id = unsafe {
        required!(RedisModule_CreateTimer)(
            ctx.raw(),
            period_ms.min(MAX_PERIOD_MS) as i64,
            Some(trampoline::<T>),
            std::ptr::null_mut(),
        )
    };
    T::SLOT.0.store(id, Relaxed);
}

/// Harmless when it is not armed.
pub(crate) fn stop<T: Timer>(ctx: Ctx) {
    let id = T::SLOT.0.swap(0, Relaxed);
    if id != 0 {
        // SAFETY: a timer of ours that has neither fired nor been stopped: firing and stopping both
        // clear the slot.
        unsafe { required!(RedisModule_StopTimer)(ctx.raw(), id, std::ptr::null_mut()) };
    }
}

unsafe extern "C" fn trampoline<T: Timer>(ctx: *mut raw::RedisModuleCtx, _: *mut c_void) {
    T::SLOT.0.store(0, Relaxed);
    // SAFETY: the server's context, alive until this returns, under the global lock (module.c,
    // moduleTimerHandler).
    guard(c"a timer", || (), || T::fire(unsafe { Ctx::from_raw(ctx) }));
}
