//! A cell for state that all callbacks share. The server's global lock protects it, not a lock of our own.
//!
//! A `Mutex` was rejected: one callback can run inside another (a DEL of ours calls `unlink2`), and there a mutex would
//! deadlock, while a `RefCell` reports it. The cell is sound because `with` panics on a thread that is not inside a
//! callback that runs under the lock, and only `guard` marks a thread as inside. The forked child that writes an RDB
//! file has its own copy of the memory.

use std::cell::RefCell;

use super::guard;

pub(crate) struct GilCell<T>(RefCell<T>);

// SAFETY: every access checks that this thread is inside a callback for which the server holds its global lock
// (module.c, moduleAcquireGIL: the main thread holds it except while it sleeps in poll), so two accesses never overlap
// in time. `T: Send` is required because the thread can differ: other modules may call commands from theirs.
unsafe impl<T: Send> Sync for GilCell<T> {}

impl<T> GilCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        GilCell(RefCell::new(value))
    }

    /// # Panics
    /// If a caller further up the stack uses the value, or if this thread does not hold the server's global lock.
    pub(crate) fn with<R>(&self, body: impl FnOnce(&mut T) -> R) -> R {
        assert!(
            guard::is_inside(),
            "server state touched outside a callback"
        );
        body(&mut self.0.borrow_mut())
    }

    /// [`with`](Self::with), but returns `None` where that would panic.
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
