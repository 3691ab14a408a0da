//! The promises of the whole engine, checked over everything it holds. Debug builds only.

use crate::agenda::task::Task;
use crate::engine::Engine;
use crate::queue::place::Presence;
use crate::store::spaces::Space;
use crate::types::{Family, Now};

impl Engine {
    /// Checks every promise that must hold between two calls. Tests call it after each step.
    ///
    /// # Panics
    /// If one is broken.
    pub fn check_invariants(&self, now: Now) {
        self.queues.check_invariants();
        self.store.leases.check_invariants();
        self.store.openings.check_invariants();
        for (id, state) in self.store.states_since(None) {
            state.body.check_invariants();
            let noted = state.body.retention();
            let db = self.store.db_of(state);
            assert_eq!(
                self.store.strays.contains(id),
                state.address.space() == Space::NOWHERE,
                "{id:?} is a stray"
            );
            let walked = self.is_serving() && self.term.has_walked(id);
            assert!(
                !walked
                    || db.is_none()
                    || noted.is_none_or(|until| self.store.retention.contains(&(until, id))),
                "{id:?} is not in the retention index under {noted:?}"
            );
            let opens_at = state.body.opens_at();
            let put_off = self.agenda.put_off.has(Task::Open(id));
            assert!(
                !walked
                    || db.is_none()
                    || self.store.openings.get(id).map(|(at, ())| *at) == opens_at
                    || put_off,
                "{id:?} may go on at {opens_at:?}"
            );
            let holds = state.body.holds();
            let without = holds.first_before(self.term.since());
            assert!(
                !walked || without.is_none(),
                "{id:?}: a hold without a moment"
            );
            assert!(
                holds.iter().all(|hold| hold.due <= self.latest_due()),
                "{id:?}: a moment past the latest"
            );
            let earliest = holds.earliest(self.term.since());
            if self.is_serving() && db.is_some() {
                let put_off = self.agenda.put_off.has(Task::Lapse(id));
                assert!(
                    self.store.leases.contains(id) == earliest.is_some() || put_off,
                    "{id:?} in the lease index"
                );
            }
            let queue = db.and_then(|db| self.queues.find(db, state.address.name()));
            let due = queue.is_some_and(|queue| {
                self.queues.will_be_due(queue) || self.agenda.put_off.has(Task::Serve(queue))
            });
            if let Some(queue) = queue.and_then(|queue| self.queues.get(queue))
                && let Some(head) = queue.head()
                && now.may_write
                && self.is_serving()
                && !due
            {
                let claim = head.claim;
                let limit = state.body.limit_in_force();
                assert!(
                    !state.body.admits(claim, limit),
                    "{id:?}: a grantable head waits"
                );
            }
        }
        for family in Family::ALL {
            let states = self.store.states_since(None);
            let states = states.filter(|(_, state)| state.body.family() == family);
            let holds: usize = states.map(|(_, state)| state.body.holds().len()).sum();
            assert_eq!(
                self.store.holds(family),
                holds as u64,
                "holds of {family:?}"
            );
        }
        for (client, fence, id) in self.store.ephemeral() {
            let state = self.store.get(id);
            let hold = state.and_then(|state| state.body.holds().get(fence));
            assert!(
                hold.map_or(!self.store.leftovers.is_empty(), |hold| {
                    hold.is_ephemeral() && hold.client() == client
                }),
                "{fence:?} is bound to {client:?}"
            );
        }
        self.check_kept_places();
        self.agenda.put_off.check_invariants();
    }

    /// Checks that every kept place will run out, and that every name with kept places has a value or is visited soon.
    fn check_kept_places(&self) {
        for (id, place) in self.queues.all_in_line() {
            let Presence::Kept { until } = place.presence else {
                continue;
            };
            if !self.is_serving() {
                continue;
            }
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
            let is_held = self.has_holder(&kept);
            let id = self.queues.find(kept.db, kept.name.as_bytes());
            let is_due = id.is_some_and(|id| self.queues.will_be_due(id) || serve(id));
            let is_visited = !self.is_serving() || is_due;
            assert!(is_held || is_visited, "{id:?}: kept places without a value");
        }
    }
}
