//! The promises of the whole engine, checked over everything it holds. Debug builds only.

use crate::calls::tasks::Task;
use crate::index::spaces::Space;
use crate::types::Now;
use crate::{Engine, Family};

impl Engine {
    /// Checks every promise that must hold between two calls. Tests call it after each step.
    ///
    /// # Panics
    /// If one is broken.
    pub fn check_invariants(&self, now: Now) {
        self.queues.check_invariants();
        self.leases.check_invariants();
        self.openings.check_invariants();
        for (id, state) in self.states.iter() {
            state.body.check_invariants();
            let noted = state.body.retention();
            let db = self.spaces.db(state.address.space());
            assert_eq!(
                self.strays.contains(id),
                state.address.space() == Space::NOWHERE,
                "{id:?} is a stray"
            );
            let walked = self.is_serving() && self.role.has_walked(id);
            assert!(
                !walked
                    || db.is_none()
                    || noted.is_none_or(|until| self.retention.contains(&(until, id))),
                "{id:?} is not in the retention index under {noted:?}"
            );
            let opens_at = state.body.opens_at();
            let put_off = self.put_off.has(Task::Open(id));
            assert!(
                !walked || db.is_none() || self.openings.of(id) == opens_at || put_off,
                "{id:?} may go on at {opens_at:?}"
            );
            let holds = state.body.holds();
            let without = holds.first_before(self.role.since());
            assert!(
                !walked || without.is_none(),
                "{id:?}: a hold without a moment"
            );
            assert!(
                holds.iter().all(|hold| hold.due <= self.latest_due()),
                "{id:?}: a moment past the latest"
            );
            let earliest = holds.earliest(self.role.since());
            if self.is_serving() && db.is_some() {
                let put_off = self.put_off.has(Task::Lapse(id));
                assert!(
                    self.leases.contains(id) == earliest.is_some() || put_off,
                    "{id:?} in the lease index"
                );
            }
            let queue = db.and_then(|db| self.queues.find(db, state.address.name()));
            let due = queue.is_some_and(|queue| {
                self.queues.will_be_due(queue) || self.put_off.has(Task::Serve(queue))
            });
            if let Some(queue) = queue.and_then(|queue| self.queues.get(queue))
                && let Some((_, head)) = queue.head()
                && now.may_write
                && self.is_serving()
                && !due
            {
                let claim = head.request.claim;
                let limit = state.body.limit_in_force();
                assert!(
                    !state.body.admits(claim, limit),
                    "{id:?}: a grantable head waits"
                );
            }
        }
        for family in Family::ALL {
            let states = self
                .states
                .iter()
                .filter(|(_, state)| state.body.family() == family);
            let holds: usize = states.map(|(_, state)| state.body.holds().len()).sum();
            assert_eq!(
                self.stats.holds(family),
                holds as u64,
                "holds of {family:?}"
            );
        }
        for ((client, fence), id) in &self.ephemeral {
            let state = self.states.get(*id);
            let hold = state.and_then(|state| state.body.holds().get(*fence));
            assert!(
                hold.map_or(!self.leftovers.is_empty(), |hold| {
                    hold.is_ephemeral() && hold.client() == *client
                }),
                "{fence:?} is bound to {client:?}"
            );
        }
        self.check_kept_places();
        self.put_off.check_invariants();
    }

    /// Checks that every kept place will run out, and that every name with kept places has a value or is visited soon.
    fn check_kept_places(&self) {
        for (id, place, waiter) in self.queues.all_waiting() {
            let Some(keep) = waiter.keep.filter(|_| self.is_serving()) else {
                continue;
            };
            assert!(keep.until <= self.latest_due(), "a moment past the latest");
            let over = Task::KeepOver {
                until: keep.until,
                queue: id,
                place,
            };
            let runs_out = self.queues.is_listed(keep.until, id, place)
                || self.put_off.has(over)
                || keep.until < self.role.since() && self.role.is_walking();
            assert!(waiter.is_parked() || runs_out, "{place:?} runs out");
        }
        let serve = |id| self.put_off.has(Task::Serve(id));
        for kept in self.queues.with_kept() {
            let Some(id) = self.queues.find(kept.db, kept.name.as_bytes()) else {
                continue;
            };
            let is_held = self.holds(&kept);
            let is_visited = !self.is_serving() || self.queues.will_be_due(id) || serve(id);
            assert!(is_held || is_visited, "{id:?}: kept places without a value");
        }
    }
}
