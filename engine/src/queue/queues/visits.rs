//! Which queues the engine must visit.
//!
//! A queue is *due* after an event outside a request has touched it, for example a flush. As soon as the server can
//! write, the engine visits due queues in the order in which they became due, a bounded slice at a time.

use std::ops::Bound::{Excluded, Unbounded};

use super::Queues;
use crate::index::leftovers::SMALL;
use crate::types::{Db, QueueId};

impl Queues {
    /// Makes the queue due.
    pub fn set_due(&mut self, id: QueueId) {
        if self.queues.contains_key(&id) {
            self.due.set(id);
        }
    }

    /// Notes that a request has left the queue unserved, so the queue must be visited.
    pub fn left_unserved(&mut self, id: QueueId) {
        if let Some(queue) = self.get_mut(id) {
            queue.left_unserved = true;
        }
        self.set_due(id);
    }

    /// Makes all queues of the database, or of all databases, due: at once if they are few, otherwise as
    /// [`Queues::sweep`] comes to them.
    pub fn set_all_due(&mut self, db: Option<Db>) {
        if !self.queues.is_empty() {
            self.due.start_sweep(db);
        }
        if self.queues.len() <= SMALL {
            self.sweep(&mut { 2 * SMALL as u32 });
        }
    }

    /// Continues the sweeps. Each queue that it looks at costs one of the budget.
    pub fn sweep(&mut self, budget: &mut u32) {
        while *budget > 0
            && let Some((db, after)) = self.due.sweep()
        {
            *budget -= 1;
            let rest = (after.map_or(Unbounded, Excluded), Unbounded);
            let next = self.queues.range(rest).next();
            self.due.swept(db, next.map(|(id, _)| *id));
            if let Some((id, queue)) = next
                && db.is_none_or(|db| queue.db == db)
            {
                let id = *id;
                self.due.set(id);
                self.drop_flushed(id);
            }
        }
    }

    #[must_use]
    pub fn is_sweeping(&self) -> bool {
        self.due.is_sweeping()
    }

    /// Notes that the queue has been visited.
    pub fn mark_visited(&mut self, id: QueueId) {
        self.due.mark_visited(id);
    }

    /// Notes that the queue has been visited and nothing is left to do for it, and drops it if it is empty.
    pub fn finish_visit(&mut self, id: QueueId) {
        self.mark_visited(id);
        self.drop_if_empty(id);
    }

    #[must_use]
    pub fn is_due(&self, id: QueueId) -> bool {
        self.due.contains(id)
    }

    /// Returns the queue that has been due for longest.
    #[must_use]
    pub fn first_due(&self) -> Option<QueueId> {
        self.due.first()
    }
}
