//! Which task is next, and when: see [`crate::agenda`].

use crate::agenda::task::Task;
use crate::calls::background::PAUSE_US;
use crate::engine::Engine;
use crate::short_bytes::KeyName;
use crate::types::{Db, Now};

impl Engine {
    /// Returns the next task that is due, its key and the key's database. Each look into the lease index costs one of
    /// `budget`; when it is used up there is no task.
    ///
    /// While the server does not take writes only waits run out, and everything else stays due.
    pub fn next_task(&mut self, now: Now, budget: &mut u32) -> Option<(Task, Db, KeyName)> {
        self.agenda
            .next(&mut self.store, &mut self.queues, now, budget)
    }

    /// Returns the microseconds until the next task is due, 0 while work is left over, `None` if nothing will come due.
    /// A replica has background work only.
    #[must_use]
    pub fn next_wake(&self, now: Now) -> Option<u64> {
        let background = self.has_background().then_some(PAUSE_US);
        if !self.is_serving() {
            return background;
        }
        let task = self.agenda.next_wake(&self.store, &self.queues, now);
        task.into_iter().chain(background).min()
    }

    /// Whether work is left that needs the server to take writes again.
    #[must_use]
    pub fn is_held_up(&self, now: Now) -> bool {
        let opens = || {
            self.store
                .openings
                .first()
                .is_some_and(|(at, _)| at <= now.unix())
        };
        !now.may_write && self.is_serving() && (self.agenda.has_work(&self.queues) || opens())
    }
}
