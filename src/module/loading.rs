//! The loading of saved data: whether it runs, which versions are read, and how the engine takes over what was read.

use super::out::journal;
use super::redis::gil::GilFlag;
use super::shell::SHELL;
use dsync_engine::types::Now;
use dsync_engine::{Engine, wire};

/// Whether the server is loading data from files or from its primary.
static IS_RUNNING: GilFlag = GilFlag::new();

/// Notes that the server begins to load.
pub(super) fn started() {
    IS_RUNNING.set(true);
}

/// Notes that the server has loaded, or that it failed to.
pub(super) fn ended() {
    IS_RUNNING.set(false);
}

pub(super) fn is_running() -> bool {
    IS_RUNNING.is_set()
}

/// Calls the engine to take over something that was saved, and warns of a fence that is far ahead of the clock.
pub(super) fn adopt<R>(call: impl FnOnce(&mut Engine, Now) -> R) -> R {
    let adopted = SHELL.with(|shell| {
        let now = shell.now();
        call(&mut shell.engine, now)
    });
    warn_of_fence_ahead();
    adopted
}

/// Warns, once, of a fence that was taken over and is far ahead of the clock.
pub(super) fn warn_of_fence_ahead() {
    if let Some(fence) = SHELL.with(|shell| shell.engine.fences_mut().take_ahead()) {
        journal::fence_ahead(fence);
    }
}

/// # Errors
/// For data of another format version; the text says which version of dsync wrote it.
pub(super) fn check_version(version: i32) -> Result<(), String> {
    let this = concat!("this is dsync ", env!("CARGO_PKG_VERSION"));
    match version {
        known if known == i32::from(wire::VERSION) => Ok(()),
        1 => Err(format!(
            "it was written by dsync 0.1.0, in format version 1, and {this}, which reads format version {}",
            wire::VERSION
        )),
        other => Err(format!(
            "it is of format version {other}, and {this}, which reads format version {}",
            wire::VERSION
        )),
    }
}
