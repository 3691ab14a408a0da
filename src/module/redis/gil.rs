//! Cells for state that all callbacks share. The server's global lock protects it, not a lock of our own.
//!
//! A `Mutex` was rejected: one callback can run inside another (a DEL of ours calls `unlink2`), and there a mutex would
//! deadlock, while a `RefCell` reports it. The cell is sound because `with` panics on a thread that is not inside a
//! callback that runs under the lock, and only `guard` marks a thread as inside. The forked child that writes an RDB
//! file has its own copy of the memory.
//!
//! A cell is in a list from its first use on, when it makes its value. So [`forget_all`] leaves no cell out.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::guard;

/// The cells that were used.
static IN_USE: Mutex<Vec<&'static dyn Cell>> = Mutex::new(Vec::new());

trait Cell: Sync {
    fn forget(&self);
}

fn add_to_list(cell: &'static dyn Cell) {
    let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
    in_use.push(cell);
}

pub(crate) struct GilCell<T> {
    /// `None` until the cell is used.
    value: RefCell<Option<T>>,
    fresh: fn() -> T,
}

// SAFETY: every access checks that this thread is inside a callback for which the server holds its global lock
// (module.c, moduleAcquireGIL: the main thread holds it except while it sleeps in poll), so two accesses never overlap
// in time. `T: Send` is required because the thread can differ: other modules may call commands from theirs.
unsafe impl<T: Send> Sync for GilCell<T> {}

impl<T: Send> GilCell<T> {
    /// A cell whose first value will be `fresh()`.
    pub(crate) const fn new(fresh: fn() -> T) -> Self {
        let value = RefCell::new(None);
        GilCell { value, fresh }
    }

    /// # Panics
    /// If a caller further up the stack uses the value, or if this thread does not hold the server's global lock.
    pub(crate) fn with<R>(&'static self, body: impl FnOnce(&mut T) -> R) -> R {
        assert!(
            guard::is_inside(),
            "server state touched outside a callback"
        );
        body(self.made(&mut self.value.borrow_mut()))
    }

    /// [`with`](Self::with), but returns `None` where that would panic.
    pub(crate) fn try_with<R>(&'static self, body: impl FnOnce(&mut T) -> R) -> Option<R> {
        if !guard::is_inside() {
            return None;
        }
        let mut value = self.value.try_borrow_mut().ok()?;
        Some(body(self.made(&mut value)))
    }

    // A `match`, because a call of `get_or_insert_with` is not inlined, and each request uses eight cells.
    fn made<'a>(&'static self, value: &'a mut Option<T>) -> &'a mut T {
        match value {
            Some(value) => value,
            None => value.insert(self.first()),
        }
    }

    #[cold]
    fn first(&'static self) -> T {
        add_to_list(self);
        (self.fresh)()
    }
}

impl<T: Send> Cell for GilCell<T> {
    fn forget(&self) {
        let value = self.value.borrow_mut().take();
        // Dropped after the borrow ends, because it may call the server.
        drop(value);
    }
}

/// A cell for a `bool`, false at first. To read it costs no check, because nobody can borrow it.
pub(crate) struct GilFlag {
    is_set: AtomicBool,
    /// A flag may change many times a second, so it stays in the list.
    is_listed: AtomicBool,
}

impl GilFlag {
    pub(crate) const fn new() -> Self {
        GilFlag {
            is_set: AtomicBool::new(false),
            is_listed: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Relaxed)
    }

    /// Returns what it was before.
    pub(crate) fn set(&'static self, to: bool) -> bool {
        if to && !self.is_listed.swap(true, Relaxed) {
            add_to_list(self);
        }
        self.is_set.swap(to, Relaxed)
    }
}

impl Cell for GilFlag {
    fn forget(&self) {
        self.is_set.store(false, Relaxed);
        self.is_listed.store(false, Relaxed);
    }
}

/// Drops the values of all cells, when the server refuses the module. A cell that is used again starts with a fresh one.
pub(crate) fn forget_all() {
    let last = || {
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        in_use.pop()
    };
    while let Some(cell) = last() {
        cell.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::super::guard::guard;
    use super::*;

    /// The only test that uses cells, because they are shared with all others.
    #[test]
    fn forget_all_leaves_no_cell_out_and_lists_each_once() {
        static NUMBERS: GilCell<Vec<u8>> = GilCell::new(|| vec![1]);
        static FLAG: GilFlag = GilFlag::new();
        let passed = guard(
            c"a test",
            || false,
            || {
                for _ in 0..2 {
                    NUMBERS.with(|numbers| numbers.push(2));
                    NUMBERS.with(|numbers| assert_eq!(*numbers, [1, 2]));
                    // A flag changes with every tick of a busy server.
                    for _ in 0..100 {
                        assert!(!FLAG.set(true));
                        assert!(FLAG.is_set());
                        assert!(FLAG.set(false));
                    }
                    FLAG.set(true);
                    let in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner).len();
                    assert_eq!(in_use, 2, "each cell is listed once");
                    forget_all();
                    assert!(!FLAG.is_set());
                }
                true
            },
        );
        assert!(passed, "it panicked, as the lines above say");
    }

    #[test]
    #[should_panic(expected = "outside a callback")]
    fn cell_is_not_used_outside_a_callback() {
        static NUMBER: GilCell<u8> = GilCell::new(u8::default);
        NUMBER.with(|_| ());
    }
}
