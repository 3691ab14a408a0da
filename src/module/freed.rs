//! Values that the server frees on another thread (FLUSHALL ASYNC, and on Valkey every FLUSHDB), or during a flush.
//!
//! The numbers of their states are only put into a list. The main thread takes the whole list and lets the engine free
//! the states in slices; until then they use memory but no key leads to them. So a flush waits for no state to be
//! freed. The list consists of chunks, because a single vector of a million numbers would be copied as it grows, under
//! a lock that the main thread needs.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError, TryLockError};

use super::loading;
use super::out::ends;
use super::redis::gil::GilFlag;
use super::shell::SHELL;
use dsync_engine::StateId;

/// The list. Each part has at most [`CHUNK`] numbers.
static FREED: Mutex<VecDeque<Vec<StateId>>> = Mutex::new(VecDeque::new());

const CHUNK: usize = 1_024;

/// Whether the server is freeing the contents of a database.
static IS_FLUSHING: GilFlag = GilFlag::new();

/// How many states are freed at the end of a flush: so many that it takes less than a millisecond.
const AT_ONCE: u32 = 2_048;

/// Frees a value: at once on the main thread, unless the server is flushing or a caller further up the stack uses the
/// shell; otherwise by the list.
pub(super) fn free(id: StateId, on_main_thread: bool) {
    if on_main_thread && free_at_once(id) {
        return;
    }
    let mut freed = FREED.lock().unwrap_or_else(PoisonError::into_inner);
    match freed.back_mut().filter(|chunk| chunk.len() < CHUNK) {
        Some(chunk) => chunk.push(id),
        None => {
            let mut chunk = Vec::with_capacity(CHUNK);
            chunk.push(id);
            freed.push_back(chunk);
        }
    }
}

fn free_at_once(id: StateId) -> bool {
    if IS_FLUSHING.is_set() {
        return false;
    }
    let Some(removal) = SHELL.try_with(|shell| shell.engine.freed(id)) else {
        return false;
    };
    if let Some(removal) = removal
        && !loading::is_running()
    {
        ends::removed(removal);
    }
    true
}

/// Hands the list to the engine, which frees the states in slices. On the main thread only.
///
/// Leaves the list for the next call while another thread uses it: that thread may have been put to sleep with the
/// lock, and clients would wait until it runs again.
pub(super) fn collect() {
    let freed = match FREED.try_lock() {
        Ok(mut freed) => std::mem::take(&mut *freed),
        Err(TryLockError::Poisoned(freed)) => std::mem::take(&mut *freed.into_inner()),
        Err(TryLockError::WouldBlock) => return,
    };
    if !freed.is_empty() {
        SHELL.with(|shell| shell.engine.freed_elsewhere(freed));
    }
}

/// Notes that the server is about to flush. What it frees until `flush_ended` goes by the list.
pub(super) fn flush_started() {
    IS_FLUSHING.set(true);
}

/// Frees the states of a small database at once. Those of a large one follow in slices.
pub(super) fn flush_ended() {
    IS_FLUSHING.set(false);
    collect();
    SHELL.with(|shell| shell.engine.background(&mut { AT_ONCE }));
}

/// Frees the states of all values that the server has freed so far.
pub(super) fn finish() {
    collect();
    SHELL.with(|shell| {
        while shell.engine.has_background() {
            shell.engine.background(&mut { u32::MAX });
        }
    });
}
