//! Values that the server let go of on another thread (FLUSHALL ASYNC, UNLINK).
//!
//! Their numbers are put in a list that the main thread takes up, as a whole, and works off in slices. Until
//! then the engine keeps the states, which nobody can reach. The list is in chunks: a single one of a million
//! numbers would be copied as it grows, under a lock that the main thread waits for.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::SHELL;
use dsync_engine::StateId;

/// At most [`CHUNK`] of them in each part.
static FREED_ELSEWHERE: Mutex<VecDeque<Vec<StateId>>> = Mutex::new(VecDeque::new());

const CHUNK: usize = 1_024;

/// The server has let go of the value.
pub(super) fn free(id: StateId, on_main_thread: bool) {
    if on_main_thread && SHELL.try_with(|shell| shell.engine.freed(id)).is_some() {
        return;
    }
    let mut freed = freed_elsewhere();
    match freed.back_mut().filter(|chunk| chunk.len() < CHUNK) {
        Some(chunk) => chunk.push(id),
        None => {
            let mut chunk = Vec::with_capacity(CHUNK);
            chunk.push(id);
            freed.push_back(chunk);
        }
    }
}

/// Hands what was freed elsewhere over to the engine, which gives it back in slices.
pub(super) fn collect() {
    let freed = std::mem::take(&mut *freed_elsewhere());
    if !freed.is_empty() {
        SHELL.with(|shell| shell.engine.freed_elsewhere(freed));
    }
}

fn freed_elsewhere() -> MutexGuard<'static, VecDeque<Vec<StateId>>> {
    FREED_ELSEWHERE
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}
