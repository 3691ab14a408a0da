//! A call that the event loop makes in its next turn, without a sleep before it.
//!
//! The server's timers count in milliseconds, so the event loop sleeps for one at least before a timer that was armed in
//! a timer's callback. A one-shot call does not wait: in the next turn the event loop reads from the clients whose
//! requests have come, makes the call, and then fires the timers that are due.
//!
//! The server makes the call also in the middle of a script that takes long. So the callee may arm a timer, but nothing
//! may be replicated, which the server asserts against.

use std::ffi::c_void;

use redis_module::raw;

use super::api::required;
use super::guard::guard;

/// A one-shot call, as a type.
pub(crate) trait OneShot {
    fn run();
}

/// Has the server call `T::run` in the next turn of its event loop.
pub(crate) fn call_in_next_turn<T: OneShot>() {
    let add_one_shot = required!(RedisModule_EventLoopAddOneShot);
    // SAFETY: RM_EventLoopAddOneShot keeps the function and passes the data on without reading it. This library stays
    // loaded: only a server that refuses the module unloads it, and then no timer has fired yet.
    let status = unsafe { add_one_shot(Some(trampoline::<T>), std::ptr::null_mut()) };
    debug_assert_eq!(status, raw::REDISMODULE_OK as i32, "it refuses only NULL");
}

unsafe extern "C" fn trampoline<T: OneShot>(_: *mut c_void) {
    // The server holds its global lock: the call is part of an event of its loop (module.c, modulePipeReadable).
    guard(c"a one-shot call", || (), T::run);
}
