//! State shared by all callbacks, guarded by the server's global lock instead of a lock of our own.
//!
//! Why not a `Mutex`: a callback can be entered from within another (a DEL made by us calls
//! `unlink2`), and a mutex would deadlock where a `RefCell` reports. Why it is sound: `with`
//! refuses on a thread that is not inside a callback that runs under the lock (see `guard`), and
//! `Inside` cannot be obtained any other way. The forked child that writes an RDB has its own copy.

use std::cell::RefCell;

use super::guard;

pub(crate) struct GilCell<T>(RefCell<T>);

// SAFETY: every access checks that this thread is inside a callback for which the server holds its
// global lock (module.c, moduleAcquireGIL: the main thread holds it except while it sleeps in
// poll), so accesses never overlap in time. `T: Send` because that thread need not be the same one
// each time: other modules may call commands from theirs.
unsafe impl<T: Send> Sync for GilCell<T> {}

impl<T> GilCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        GilCell(RefCell::new(value))
    }

    /// # Panics
    /// When it is in use further up the stack, or when this thread does not hold the server's lock.
    pub(crate) fn with<R>(&self, body: impl FnOnce(&mut T) -> R) -> R {
        assert!(
            guard::is_inside(),
            "server state touched outside a callback"
        );
        body(&mut self.0.borrow_mut())
    }

    /// `None` where `with` would panic.
    pub(crate) fn try_with<R>(&self, body: impl FnOnce(&mut T) -> R) -> Option<R> {
        if !guard::is_inside() {
            return None;
        }
        self.0
            .try_borrow_mut()
            .ok()
            .map(|mut value| body(&mut value))
    }
}
