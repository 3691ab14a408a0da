//! The promises of the whole engine, checked over everything it holds. Debug builds only.

use crate::agenda::task::Task;
use crate::engine::Engine;
use crate::queue::place::Presence;
use crate::store::slab::StateId;
use crate::store::spaces::Space;
use crate::types::{Family, Now};

impl Engine {
    /// Checks every promise that must hold between two calls. Tests call it after each step.
    ///
    /// # Panics
    /// If one is broken.
    pub fn check_invariants(&self, now: Now) {
        self.queues.check_invariants();
        for (id, state) in self.store.states_since(StateId::FIRST) {
            let must = |is_so: bool, what: &str| assert!(is_so, "{id:?}: {what}");
            let put_off = |task| self.agenda.put_off.has(task);
            let (body, db) = (&state.body, self.store.db_of(state));
            body.check_invariants();
            let is_stray = state.address.space() == Space::NOWHERE;
            must(self.store.strays.contains(id) == is_stray, "a stray");
            let walked = self.is_serving() && self.term.has_walked(id);
            if walked && db.is_some() {
                let noted = body.retention();
                let is_noted = |until| self.store.retention.contains(&(until, id));
                must(noted.is_none_or(is_noted), "not in the retention index");
                let opening = self.store.openings.get(id).map(|(at, ())| *at);
                let is_noted = opening == body.opens_at();
                must(is_noted || put_off(Task::Open(id)), "not in the openings");
            }
            let holds = body.holds();
            let since = self.term.since();
            let without = holds.first_before(since);
            must(!walked || without.is_none(), "a hold without a moment");
            let is_past = holds.iter().any(|hold| hold.due > self.latest_due());
            must(!is_past, "a moment past the latest");
            if self.is_serving() && db.is_some() {
                let is_noted = self.store.leases.contains(id) == holds.earliest(since).is_some();
                must(is_noted || put_off(Task::Lapse(id)), "in the lease index");
            }
            let queue = db.and_then(|db| self.queues.find(db, state.address.name()));
            let due = queue
                .is_some_and(|queue| self.queues.will_be_due(queue) || put_off(Task::Serve(queue)));
            let head = queue.and_then(|queue| self.queues.get(queue)?.head());
            if let Some(head) = head.filter(|_| now.may_write && self.is_serving() && !due) {
                let admits = body.admits(head.claim, body.limit_in_force());
                must(!admits, "a grantable head waits");
            }
        }
        for family in Family::ALL {
            let states = self.store.states_since(StateId::FIRST);
            let states = states.filter(|(_, state)| state.body.family() == family);
            let holds: usize = states.map(|(_, state)| state.body.holds().len()).sum();
            assert_eq!(self.store.holds(family), holds as u64, "of {family:?}");
        }
        for (client, fence, id) in self.store.ephemeral() {
            let state = self.store.get(id);
            let hold = state.and_then(|state| state.body.holds().get(fence));
            let is_freed_later = !self.store.leftovers.is_empty();
            let is_bound = hold.map_or(is_freed_later, |hold| {
                hold.is_ephemeral() && hold.client() == client
            });
            assert!(is_bound, "{fence:?} is bound to {client:?}");
        }
        self.check_kept_places();
    }

    /// Checks that every kept place will run out, and that every name with kept places has a value or is visited soon.
    fn check_kept_places(&self) {
        if !self.is_serving() {
            return;
        }
        for (id, place) in self.queues.all_in_line() {
            let Presence::Kept { until } = place.presence else {
                continue;
            };
            assert!(until <= self.latest_due(), "a moment past the latest");
            let over = Task::KeepOver {
                until,
                queue: id,
                rank: place.rank(),
            };
            let runs_out = self.queues.is_listed(until, id, place)
                || self.agenda.put_off.has(over)
                || until < self.term.since() && self.term.is_walking();
            assert!(runs_out, "{:?} runs out", place.rank());
        }
        let serve = |id| self.agenda.put_off.has(Task::Serve(id));
        for kept in self.queues.with_kept() {
            let is_held = self.holder(kept).is_some();
            let id = self.queues.find(kept.db, kept.name.as_bytes());
            let is_due = id.is_some_and(|id| self.queues.will_be_due(id) || serve(id));
            assert!(is_held || is_due, "{id:?}: kept places without a value");
        }
    }
}
