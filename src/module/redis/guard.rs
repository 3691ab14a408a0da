//! Every callback from C runs inside [`guard`] or [`guard_unlocked`].
//!
//! Both catch a panic, which then costs one request and not the server. `guard` also marks the thread as *inside*: the
//! thread holds the server's global lock until the callback returns. `GilCell` relies on that mark.

use std::any::Any;
use std::cell::Cell;
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::log::{Level, log};

thread_local! {
    static MAIN: Cell<bool> = const { Cell::new(false) };
    static DEPTH: Cell<u32> = const { Cell::new(0) };
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
fn discard(payload: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
}

/// Whether this thread is known to hold the server's global lock.
pub(super) fn is_inside() -> bool {
    DEPTH.get() > 0
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
        log(Level::Warning, &format!("dsync {panic}").replace('\n', " "))
    }));
}

/// The mark that this thread is inside, until it is dropped.
pub(crate) struct Inside(());

impl Inside {
    fn enter() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Inside(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}
