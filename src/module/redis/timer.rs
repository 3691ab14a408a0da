//! Calls that the event loop makes later: a timer, and a call in its next turn.
//!
//! A timer can be armed, moved and stopped at any moment, also in its own callback. RM_StopTimer must not be called for
//! the timer that is firing, because that would free it twice. So a slot forgets its timer before the callback runs. A
//! slot has one timer, without data: the engine knows what is due.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use redis_module::raw;

use super::api::required;
use super::context::Ctx;
use super::guard::guard;

/// The longest period of a timer.
///
/// Redis 7.0 multiplies the milliseconds until the next timer by 1000 in an int (ae.c, processTimeEvents). From 35.8
/// minutes on the product is negative, and the event loop would turn without a pause until the timer fires.
pub(crate) const MAX_PERIOD_MS: u64 = 30 * 60 * 1_000;

/// The server's id of the armed timer; 0 if none is armed. (The ids are moments in microseconds, never 0.)
pub(crate) struct TimerSlot(AtomicU64);

impl TimerSlot {
    pub(crate) const fn new() -> Self {
        TimerSlot(AtomicU64::new(0))
    }
}

/// A timer, as a type.
pub(crate) trait Timer {
    const SLOT: &'static TimerSlot;

    /// Called once for each `start`, at its moment or later, in the database of the context that armed the timer. Not
    /// called while a script runs or data is loaded.
    fn fire(ctx: Ctx<'_>);
}

/// Arms the timer; if it is armed already, moves it. With a period of 0 it fires in the event loop's next turn. A
/// period above [`MAX_PERIOD_MS`] is cut to that.
pub(crate) fn start<T: Timer>(ctx: Ctx, period_ms: u64) {
    stop::<T>(ctx);
    // SAFETY: the context is live; the module stops its timer before the server unloads this library, and the callback
    // takes no data.
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

/// Stops the timer, if it is armed.
pub(crate) fn stop<T: Timer>(ctx: Ctx) {
    let id = T::SLOT.0.swap(0, Relaxed);
    if id != 0 {
        // SAFETY: the timer is ours and has neither fired nor been stopped, because both clear the slot. RM_StopTimer
        // accepts NULL for the data.
        unsafe { required!(RedisModule_StopTimer)(ctx.raw(), id, std::ptr::null_mut()) };
    }
}

unsafe extern "C" fn trampoline<T: Timer>(ctx: *mut raw::RedisModuleCtx, _: *mut c_void) {
    T::SLOT.0.store(0, Relaxed);
    // SAFETY: the server keeps the context until this returns, and holds its global lock (module.c,
    // moduleTimerHandler).
    guard(c"a timer", || (), || T::fire(unsafe { Ctx::from_raw(ctx) }));
}

/// A call in the next turn of the event loop, as a type.
///
/// The server's timers count in milliseconds, so the event loop sleeps for one at least before a timer that was armed in
/// a timer's callback. A one-shot call does not wait: in the next turn the event loop reads from the clients whose
/// requests have come, makes the call, and then fires the timers that are due.
pub(crate) trait OneShot {
    /// The server makes the call also in the middle of a script that takes long. So it may arm a timer, but nothing may be
    /// replicated, which the server asserts against.
    fn run();
}

/// Has the server call `T::run` in the next turn of its event loop.
pub(crate) fn call_in_next_turn<T: OneShot>() {
    let add_one_shot = required!(RedisModule_EventLoopAddOneShot);
    // SAFETY: RM_EventLoopAddOneShot keeps the function and passes the data on without reading it. This library stays
    // loaded: only a server that refuses the module unloads it, and then no timer has fired yet.
    let status = unsafe { add_one_shot(Some(on_next_turn::<T>), std::ptr::null_mut()) };
    debug_assert_eq!(status, raw::REDISMODULE_OK as i32, "it refuses only NULL");
}

unsafe extern "C" fn on_next_turn<T: OneShot>(_: *mut c_void) {
    // The server holds its global lock: the call is part of an event of its loop (module.c, modulePipeReadable).
    guard(c"a one-shot call", || (), T::run);
}
