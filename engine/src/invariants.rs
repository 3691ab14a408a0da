//! The promises of the whole engine, checked over everything it holds. Debug builds only.

use crate::agenda::task::Task;
use crate::engine::Engine;
use crate::state::families::policy::Admission;
use crate::store::slab::StateId;
use crate::store::spaces::Space;
use crate::types::{Family, Now};

impl Engine {
    /// Checks every promise that must hold between two calls. Tests call it after each step.
    ///
    /// # Panics
    /// If one is broken.
    pub fn check_invariants(&self, now: Now) {
        let is_put_off = |queue| self.agenda.put_off.has(Task::Serve(queue));
        self.queues.check_invariants(is_put_off);
        let (mut counted, mut all_resting) = (Family::ALL.map(|_| 0), 0);
        for (id, state) in self.store.states_since(StateId::FIRST) {
            let must = |is_so: bool, what: &str| assert!(is_so, "{id:?}: {what}");
            let put_off = |task| self.agenda.put_off.has(task);
            let (body, db) = (&state.body, self.store.db_of(state));
            body.check_invariants();
            let (resting, _) = body.holds().resting();
            counted[body.family() as usize] += (body.holds().len() - resting) as u64;
            all_resting += resting as u64;
            let is_stray = state.address.space() == Space::NOWHERE;
            must(self.store.strays.contains(id) == is_stray, "a stray");
            let next = self.term.states_walk;
            let walked = self.is_serving() && next.is_none_or(|next| id < next);
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
            let queue = queue.and_then(|queue| self.queues.get(queue));
            let lanes = queue.and_then(|queue| queue.lanes().filter(|_| queue.has_line()));
            let lanes = lanes.filter(|_| body.family() == Family::Semaphore);
            let head = queue.and_then(|queue| match lanes {
                Some(lanes) => queue.place(lanes.chosen()?),
                None => queue.head(),
            });
            if let Some(lanes) = lanes.filter(|_| !due && self.is_serving()) {
                lanes.check_in_use(|lane| holds.in_use(lane.as_bytes()).permits);
            }
            if let Some(head) = head.filter(|_| now.may_write && self.is_serving() && !due) {
                let becomes = body.admission(head.claim, body.limit_in_force(), None);
                must(!matches!(becomes, Admission::Now), "a grantable head waits");
            }
        }
        let noted = Family::ALL.map(|family| self.store.holds(family));
        assert_eq!(noted, counted, "holds by family");
        assert_eq!(self.store.resting(), all_resting, "holds that rest");
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
        for (id, queue) in self.queues.with_kept() {
            let serve = Task::Serve(id);
            let is_due = self.queues.will_be_due(id) || self.agenda.put_off.has(serve);
            let is_held = self.holder(queue).is_some();
            assert!(is_held || is_due, "{id:?}: kept places without a value");
            for place in queue.line() {
                let (queue, rank) = (id, place.rank());
                let Some((_, until)) = place.kept_until() else {
                    continue;
                };
                assert!(until <= self.latest_due(), "a moment past the latest");
                let over = Task::KeepOver { until, queue, rank };
                let runs_out = self.queues.is_listed(until, id, rank)
                    || self.agenda.put_off.has(over)
                    || until < self.term.since() && self.term.is_walking();
                assert!(runs_out, "{rank:?} runs out");
            }
        }
    }
}
