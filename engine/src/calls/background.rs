//! Background work: work in memory that no client waits for, done in slices.
//!
//! - After a take-over every hold and every kept place gets a moment on the lease clock: see [`crate::term`].
//! - After a flush, a swap or a take-over queues are made due, and lose kept places that were flushed: see
//!   [`crate::queue::sweep`]. These places are taken apart.
//! - Large things that are no longer needed are dropped: see [`crate::store::leftovers`].
//!
//! A call that causes such work takes only a few steps itself, whatever the number of holds and waiters, so that no
//! turn of the event loop gets long. Replicas do background work too.

use crate::engine::Engine;

/// The pause between two slices, in microseconds.
pub(crate) const PAUSE_US: u64 = 1_000;

impl Engine {
    /// Does one slice of background work. Each hold that gets its moment, each queue that is made due and each piece
    /// that is dropped costs one of the budget. If budget is left afterwards, no work is left.
    pub fn background(&mut self, budget: &mut u32) {
        self.queues.sweep(budget);
        self.term
            .walk_states(&mut self.store, &self.settings, budget);
        self.term.walk_places(&mut self.queues, budget);
        self.queues.take_apart(budget);
        self.store.drop_leftovers(budget);
    }

    #[must_use]
    pub fn has_background(&self) -> bool {
        self.queues.is_sweeping()
            || self.term.is_walking()
            || self.queues.has_dropped()
            || !self.store.leftovers.is_empty()
    }
}
