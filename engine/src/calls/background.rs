//! Background work: work in memory that no client waits for, done in slices.
//!
//! - After a take-over every hold and every kept place gets a moment on the lease clock: see [`crate::calls::role`].
//! - After a flush, a swap or a take-over queues are made due, and lose kept places that were flushed: see
//!   [`crate::queue::due`]. These places are taken apart.
//! - Large things that are no longer needed are dropped: see [`crate::index::leftovers`].
//!
//! A call that causes such work takes only a few steps itself, whatever the number of holds and waiters, so that no
//! turn of the event loop gets long. Replicas do background work too.

use std::collections::VecDeque;

use crate::index::leftovers::{Piece, SMALL};
use crate::state::State;
use crate::types::{ClientId, Fence};
use crate::{Engine, StateId};

/// The pause between two slices, in microseconds.
pub(crate) const PAUSE_US: u64 = 1_000;

impl Engine {
    /// Does one slice of background work. Each hold that gets its moment, each queue that is made due and each piece
    /// that is dropped costs one of the budget. If budget is left afterwards, no work is left.
    pub fn background(&mut self, budget: &mut u32) {
        self.queues.sweep(budget);
        self.walk(budget);
        self.walk_places(budget);
        self.queues.take_apart(budget);
        while *budget > 0
            && let Some(piece) = self.leftovers.next()
        {
            *budget -= 1;
            match piece {
                Piece::Dropped => {}
                Piece::Ephemeral(client, fence) => self.forget_ephemeral(client, fence),
                // These were freed by a flush, which is no removal of a key.
                Piece::Freed(id) => drop(self.freed(id)),
            }
        }
    }

    #[must_use]
    pub fn has_background(&self) -> bool {
        self.queues.is_sweeping()
            || self.role.is_walking()
            || self.queues.has_dropped()
            || !self.leftovers.is_empty()
    }

    /// Frees the states of values that the server has freed on another thread or during a flush, in slices.
    pub fn freed_elsewhere(&mut self, values: VecDeque<Vec<StateId>>) {
        self.leftovers.free(values.into_iter().flatten());
    }

    /// Notes that the state's holds are gone, and takes them out of the gauges at once.
    pub(crate) fn forget(&mut self, state: State) {
        let holds = state.body.holds();
        self.stats.holds_go(state.body.family(), holds.len());
        if holds.len() > SMALL {
            return self.leftovers.drop_holds(state.body.into_holds());
        }
        for hold in holds.iter().filter(|hold| hold.is_ephemeral()) {
            self.forget_ephemeral(hold.client(), hold.fence());
        }
    }

    /// Removes the index entry of an EPHEMERAL hold that is gone, unless the same hold has come back from a file and
    /// was bound to the same connection again.
    fn forget_ephemeral(&mut self, client: ClientId, fence: Fence) {
        let Some(id) = self.ephemeral.get(&(client, fence)) else {
            return;
        };
        let state = self.states.get(*id);
        if state.is_none_or(|state| state.body.holds().get(fence).is_none()) {
            self.ephemeral.remove(&(client, fence));
        }
    }
}
