//! A context of our own, for callbacks that get none from the server: a value that leaves its key, a client that
//! disconnects.
//!
//! It serves only to arm a timer and to log. It does not have a client's database, and such callbacks come in the
//! middle of other clients' commands, when nothing may be written.

use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use redis_module::raw;

use super::api::required;
use super::context::Ctx;
use super::guard;

static DETACHED: AtomicPtr<raw::RedisModuleCtx> = AtomicPtr::new(std::ptr::null_mut());

/// Makes the context while the module is loaded. It lives as long as the module.
pub(crate) fn make(ctx: Ctx<'_>) {
    // SAFETY: the context is live; RM_GetDetachedThreadSafeContext returns another, which lives until it is freed.
    let detached = unsafe { required!(RedisModule_GetDetachedThreadSafeContext)(ctx.raw()) };
    DETACHED.store(detached, Relaxed);
}

/// Frees the context if the server refuses the module.
pub(crate) fn free() {
    let detached = DETACHED.swap(std::ptr::null_mut(), Relaxed);
    if !detached.is_null() {
        // SAFETY: `make` made this context, and the swap above makes sure that it is freed once and used no more.
        unsafe { required!(RedisModule_FreeThreadSafeContext)(detached) };
    }
}

/// Calls `body` with the context. Does nothing on a thread without the server's global lock.
pub(crate) fn with(body: impl FnOnce(Ctx<'_>)) {
    let detached = DETACHED.load(Relaxed);
    // The server can free a value on a thread without the lock, where no context may be used.
    if !detached.is_null() && guard::is_inside() {
        // SAFETY: the context lives as long as the static has it, and `is_inside` shows that this thread holds the
        // server's global lock.
        body(unsafe { Ctx::detached(detached) });
    }
}
