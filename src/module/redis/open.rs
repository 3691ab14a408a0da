//! Keeps track of whether a key is open.
//!
//! Only one key may be open at a time. Through a second handle, or in a call that lets others delete keys, the first
//! handle's object could be freed, and the server reads it when it closes the handle.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Used only under the server's global lock.
static OPEN: AtomicBool = AtomicBool::new(false);

/// # Panics
/// If a key is open.
pub(super) fn assert_none() {
    assert!(!OPEN.load(Relaxed), "a key is still open");
}

pub(super) fn set(is_open: bool) {
    OPEN.store(is_open, Relaxed);
}
