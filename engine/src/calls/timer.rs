//! What the timer asks: which task is next, when to ask again (see [`crate::agenda`]), and background work. That is work
//! in memory that no client waits for, done in slices:
//!
//! - After a take-over every hold and every kept place gets a moment on the lease clock: see [`crate::term`].
//! - After a flush, a swap or a take-over queues are made due, and lose kept places that were flushed: see
//!   [`crate::queue::sweep`]. These places are taken apart.
//! - Large things that are no longer needed are dropped: see [`crate::store::leftovers`].
//!
//! A call that causes such work takes only a few steps itself, whatever the number of holds and waiters, so that no
//! turn of the event loop gets long. Replicas do background work too.

use crate::agenda::task::Task;
use crate::engine::Engine;
use crate::short_bytes::KeyName;
use crate::types::{Db, Now};

/// The pause between two slices, in microseconds.
const PAUSE_US: u64 = 1_000;

impl Engine {
    /// Returns the next task that is due, its key and the key's database. Each look into the lease index costs one of
    /// `budget`; when it is used up there is no task.
    ///
    /// While the server does not take writes only waits run out, and everything else stays due.
    pub fn next_task(&mut self, now: Now, budget: &mut u32) -> Option<(Task, Db, KeyName)> {
        let (store, queues) = (&mut self.store, &mut self.queues);
        (self.agenda).next(store, queues, &self.term, now, budget)
    }

    /// Returns the microseconds until the next task is due, 0 while work is left over, `None` if nothing will come due.
    /// A replica has background work only.
    pub fn next_wake(&self, now: Now) -> Option<u64> {
        let background = self.has_background().then_some(PAUSE_US);
        if !self.is_serving() {
            return background;
        }
        let task = self.agenda.next_wake(&self.store, &self.queues, now);
        task.into_iter().chain(background).min()
    }

    /// Whether work is left that needs the server to take writes again.
    pub fn is_held_up(&self, now: Now) -> bool {
        let opening = self.store.openings.first();
        let opens = opening.is_some_and(|(at, _)| at <= now.unix());
        !now.may_write && self.is_serving() && (opens || self.agenda.has_work(&self.queues))
    }

    /// Does one slice of background work. Each hold that gets its moment, each queue that is made due and each piece
    /// that is dropped costs one of the budget. If budget is left afterwards, no work is left.
    pub fn background(&mut self, budget: &mut u32) {
        self.queues.sweep(budget);
        (self.term).walk_states(&mut self.store, &self.settings, budget);
        self.term.walk_places(&mut self.queues, budget);
        self.queues.take_apart(budget);
        self.store.drop_leftovers(budget);
    }

    pub fn has_background(&self) -> bool {
        self.queues.is_sweeping()
            || self.term.is_walking()
            || self.queues.has_dropped()
            || !self.store.leftovers.is_empty()
    }
}
