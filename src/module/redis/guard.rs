//! The doorway every callback from C comes through.
//!
//! It does two things. A panic stops here and costs one request, not the server. And the thread is
//! marked as *inside*: it holds the server's global lock until the callback returns, which is what
//! makes `GilCell` sound.

use std::any::Any;
use std::cell::Cell;
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::log::{Level, log};

thread_local! {
    static MAIN: Cell<bool> = const { Cell::new(false) };
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Runs one callback that the server makes while the global lock is held; `fallback` is its result
/// if it panics.
///
/// The state above may be half-changed after a panic; that is judged better than taking the data of
/// others down.
pub(super) fn guard<R>(
    callback: &CStr,
    fallback: impl FnOnce() -> R,
    body: impl FnOnce() -> R,
) -> R {
    let _inside = Inside::enter();
    caught(callback, fallback, body)
}

/// The same for a callback that may run without the global lock (a lazyfree thread, a crash
/// report): not inside.
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
            // The fallback only talks to the server; were it to panic too, a second doorway would
            // not help.
            catch_unwind(AssertUnwindSafe(fallback)).unwrap_or_else(|_| std::process::abort())
        }
    }
}

/// A payload may itself panic when dropped.
fn discard(payload: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
}

/// Whether this thread holds the server's global lock as far as we know.
pub(super) fn is_inside() -> bool {
    DEPTH.get() > 0
}

/// Whether this is the thread that loaded the module. Data freed on any other may be freed without
/// the lock.
pub(crate) fn on_main_thread() -> bool {
    MAIN.get()
}

/// To be called once, while the module is loaded: that always happens on the main thread.
pub(super) fn mark_main_thread() {
    MAIN.set(true);
    std::panic::set_hook(Box::new(|panic| {
        log(Level::Warning, &format!("dsync {panic}").replace('\n', " "))
    }));
}

/// Inside until dropped.
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
