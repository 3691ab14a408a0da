//! Whether a key is open.
//!
//! A key is open alone: a second handle, or a call that lets others delete, would leave the first one with
//! a freed object, which the server reads when it closes it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Only touched under the server's global lock.
static OPEN: AtomicBool = AtomicBool::new(false);

/// # Panics
/// When a key is open.
pub(super) fn assert_none() {
    assert!(!OPEN.load(Relaxed), "a key is still open");
}

pub(super) fn note(is_open: bool) {
    OPEN.store(is_open, Relaxed);
}
