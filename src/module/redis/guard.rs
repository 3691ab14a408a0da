//! Every callback from C runs inside [`guard`] or [`guard_unlocked`].
//!
//! Both catch a panic, which then costs one request and not the server. `guard` also marks the thread as *inside*: the
//! thread holds the server's global lock until the callback returns. `GilCell` relies on that mark.

use std::any::Any;
use std::cell::Cell;
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::log::{Level, log};

thread_local! {
    static MAIN: Cell<bool> = const { Cell::new(false) };
}

/// The thread that is inside, or 0. One number is enough, because only one thread has the lock. A thread-local mark was
/// rejected: to find it costs more than all else that a `GilCell` checks.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

/// The number of this thread, which no other thread has and which is never 0.
fn this_thread() -> usize {
    // SAFETY: pthread_self has no arguments and cannot fail.
    unsafe { libc::pthread_self() as usize }
}

/// Runs a callback that the server calls while it holds its global lock. Returns the result of `fallback` if it panics.
///
/// The module's state can be half-changed after a panic. That was judged better than to stop the server, which has
/// other data too.
pub(super) fn guard<R>(
    callback: &CStr,
    fallback: impl FnOnce() -> R,
    body: impl FnOnce() -> R,
) -> R {
    let _inside = Inside::enter();
    caught(callback, fallback, body)
}

/// [`guard`] for a callback that can run without the global lock (on a lazyfree thread, in a crash report). Does not
/// mark the thread as inside.
pub(super) fn guard_unlocked<R>(
    callback: &CStr,
    fallback: impl FnOnce() -> R,
    body: impl FnOnce() -> R,
) -> R {
    caught(callback, fallback, body)
}

fn caught<R>(callback: &CStr, fallback: impl FnOnce() -> R, body: impl FnOnce() -> R) -> R {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result,
        Err(payload) => {
            log(
                Level::Warning,
                &format!("dsync panic in {}", callback.to_string_lossy()),
            );
            discard(payload);
            // The fallbacks are simple values. If one panics all the same, nothing safe is left to return.
            catch_unwind(AssertUnwindSafe(fallback)).unwrap_or_else(|_| std::process::abort())
        }
    }
}

/// Drops the panic's payload, which can itself panic when it is dropped.
#[expect(
    clippy::mem_forget,
    reason = "the payload of the second panic could panic as well"
)]
fn discard(payload: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
}

/// Whether this thread is known to hold the server's global lock.
pub(super) fn is_inside() -> bool {
    INSIDE.load(Relaxed) == this_thread()
}

/// Whether this is the thread that loaded the module. The server frees values also on other threads, without its global
/// lock.
pub(crate) fn on_main_thread() -> bool {
    MAIN.get()
}

/// Marks this thread as the main thread, and sends the text of panics to the server's log. To be called once, while the
/// module is loaded, which always happens on the main thread.
pub(super) fn mark_main_thread() {
    MAIN.set(true);
    std::panic::set_hook(Box::new(|panic| {
        log(Level::Warning, &format!("dsync {panic}").replace('\n', " "));
    }));
}

/// The mark that this thread is inside, until it is dropped. Keeps the mark of the callback further up the stack.
pub(crate) struct Inside {
    outer: usize,
}

impl Inside {
    fn enter() -> Self {
        let outer = INSIDE.load(Relaxed);
        INSIDE.store(this_thread(), Relaxed);
        Inside { outer }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.store(self.outer, Relaxed);
    }
}
