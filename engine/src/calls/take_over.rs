//! How this server begins to decide, and ceases to: see [`crate::term`].

use crate::engine::Engine;
use crate::store::slab::StateId;
use crate::types::Now;

impl Engine {
    /// Makes this server the one that decides. Each hold has what is left of its lease by the wall clock plus the
    /// grace, at most its whole lease.
    pub fn take_over(&mut self, now: Now) {
        if self.is_serving() {
            return;
        }
        let grace_ms = self.settings.takeover_grace_ms;
        let first_state = self.store.states_since(StateId::FIRST).next();
        let first_state = first_state.map(|(id, _)| id);
        self.term
            .take_over(now, grace_ms, first_state, self.queues.kept() > 0);
        self.store.start_deadlines(self.term.since());
        self.queues.set_all_due(None);
    }

    /// Notes that another server decides from now on, and drops all deadlines.
    pub fn stand_down(&mut self) {
        self.term.stand_down();
        self.store.drop_deadlines();
        self.store.leftovers.drop_entries(self.queues.take_keeps());
        self.agenda.stand_down(&mut self.store);
    }
}
