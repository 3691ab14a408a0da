//! Values that the server frees on another thread (FLUSHALL ASYNC, and on Valkey every FLUSHDB).
//!
//! That thread only puts the numbers of their states into a list. The main thread takes the whole list and lets the
//! engine free the states in slices; until then they use memory but no key leads to them. The list consists of chunks,
//! because a single vector of a million numbers would be copied as it grows, under a lock that the main thread waits
//! for.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::SHELL;
use dsync_engine::StateId;

/// The list. Each part has at most [`CHUNK`] numbers.
static FREED_ELSEWHERE: Mutex<VecDeque<Vec<StateId>>> = Mutex::new(VecDeque::new());

const CHUNK: usize = 1_024;

/// Frees a value: at once on the main thread, unless a caller further up the stack uses the shell; otherwise by the
/// list.
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

/// Hands the list to the engine, which frees the states in slices. On the main thread only.
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
