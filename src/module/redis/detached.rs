//! A context of our own, for callbacks that are given none: a value that leaves its key, a client
//! that leaves.
//!
//! It serves to arm a timer and to log, and for nothing else: it has no client's database and, in
//! the middle of somebody's command, nothing may be written anyway.

use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use redis_module::raw;

use super::api::required;
use super::context::Ctx;
use super::guard;

static DETACHED: AtomicPtr<raw::RedisModuleCtx> = AtomicPtr::new(std::ptr::null_mut());

/// Makes it, while the module is loaded. It lives as long as the module.
pub(crate) fn make(ctx: Ctx<'_>) {
    // SAFETY: a live context; RM_GetDetachedThreadSafeContext returns one that lives until it is
    // freed.
    let detached = unsafe { required!(RedisModule_GetDetachedThreadSafeContext)(ctx.raw()) };
    DETACHED.store(detached, Relaxed);
}

/// Frees it, where the module is not loaded after all.
pub(crate) fn free() {
    let detached = DETACHED.swap(std::ptr::null_mut(), Relaxed);
    if !detached.is_null() {
        // SAFETY: made by `make`, and taken out of the static, so freed once and used by nobody.
        unsafe { required!(RedisModule_FreeThreadSafeContext)(detached) };
    }
}

/// Calls `body` with it, from a callback that holds the server's global lock.
pub(crate) fn with(body: impl FnOnce(Ctx<'_>)) {
    let detached = DETACHED.load(Relaxed);
    // A value may be freed on a thread without the lock: there is no context for that.
    if !detached.is_null() && guard::is_inside() {
        // SAFETY: alive while the static has it; this thread holds the global lock, as for every context.
        body(unsafe { Ctx::detached(detached) });
    }
}
