//! Values that the server has freed on another thread (FLUSHALL ASYNC, UNLINK).
//!
//! That thread puts their numbers into a list. The main thread takes the list as a whole and frees the states in
//! slices; until then the engine keeps them, out of everybody's reach. The list is in chunks, because a single vector
//! of a million numbers would be copied as it grows, under a lock that the main thread waits for.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::SHELL;
use dsync_engine::StateId;

/// At most [`CHUNK`] of them in each part.
static FREED_ELSEWHERE: Mutex<VecDeque<Vec<StateId>>> = Mutex::new(VecDeque::new());

const CHUNK: usize = 1_024;

/// Frees a value, here or by way of the list.
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

/// Hands the list to the engine, which frees the states in slices.
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
