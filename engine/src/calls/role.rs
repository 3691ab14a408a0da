//! Whether this server decides, and what its holds' leases are worth since it does.
//!
//! A server that follows applies and never decides: it lapses nothing, serves nobody, indexes nothing. When its
//! turn comes, [`Engine::take_over`] notes the moment, and that is all it does: with a million holds a walk over
//! all of them would keep everybody waiting. Each hold is given a moment on this server's lease clock later, by
//! a walk that [`Engine::background`] takes in slices, or by the first request for its key; and each gets what
//! it had left at the take-over, so it does not matter when.
//!
//! Which holds have their moment is told by the moment itself: one that lies before the take-over is of an
//! earlier term, or none at all. Therefore the lease clock must have passed every moment that was given
//! before ([`Engine::latest_due`]) when a server takes over. It starts at zero with the process and means
//! nothing outside, so it can be moved. Rejected: to reset all holds at the demotion, which is the same walk
//! at another time, and a number of the term in each hold, for which there is no room.
//!
//! A hold without a moment is not due yet, whatever its deadline says. What it has left is known all the same.

use std::mem::take;

use crate::hold::Hold;
use crate::index::deadlines::Wheel;
use crate::types::{Fence, LeaseMs, LeaseUs, Now, UnixMs};
use crate::{Engine, StateId};

/// A moment from which leases run that another server, or an earlier life of this one, wrote down.
#[derive(Clone, Copy)]
struct Origin {
    lease: LeaseUs,
    unix: UnixMs,
    /// What a hold has left at least, within its lease.
    grace_ms: u64,
}

impl Origin {
    fn due(self, hold: &Hold) -> LeaseUs {
        let left_ms = lease_left(hold.lease, hold.deadline(), self.unix, self.grace_ms);
        self.lease.after_ms(left_ms)
    }
}

/// What is left of a lease that another server, or an earlier life of this one, wrote down.
fn lease_left(lease: LeaseMs, deadline: UnixMs, now: UnixMs, grace_ms: u64) -> u64 {
    deadline
        .ms_left(now)
        .saturating_add(grace_ms)
        .min(u64::from(lease.0))
}

/// Gives every hold a moment, in the order of the states' numbers. States that are made on the way need none.
#[derive(Clone, Copy)]
struct Walk {
    /// All holds of the states up to this one have their moments.
    after: Option<StateId>,
}

/// Invariants of a server that decides: what it has ever given as a moment is at most `latest_due`; no hold of a
/// state that the walk has passed is without one.
pub(crate) struct Role {
    /// This server decides: it is a primary and its data are loaded.
    serving: bool,
    took_over: Origin,
    walk: Option<Walk>,
    latest_due: LeaseUs,
}

impl Default for Role {
    fn default() -> Role {
        Role {
            serving: false,
            took_over: Origin {
                lease: LeaseUs(0),
                unix: UnixMs(0),
                grace_ms: 0,
            },
            walk: None,
            latest_due: LeaseUs(0),
        }
    }
}

impl Role {
    /// Moments before this one count for nothing.
    pub fn since(&self) -> LeaseUs {
        self.took_over.lease
    }

    pub fn is_serving(&self) -> bool {
        self.serving
    }

    pub fn is_walking(&self) -> bool {
        self.walk.is_some()
    }

    /// Whether every hold of the state must have its moment.
    #[cfg(debug_assertions)]
    pub fn has_walked(&self, id: StateId) -> bool {
        self.walk
            .is_none_or(|walk| walk.after.is_some_and(|after| id <= after))
    }
}

impl Engine {
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.role.is_serving()
    }

    /// The latest moment that any lease was ever given here. The lease clock must be past it when this server
    /// takes over.
    #[must_use]
    pub fn latest_due(&self) -> LeaseUs {
        self.role.latest_due
    }

    /// From here on this server decides. Every hold has what is left of its lease by the wall clock
    /// and some grace, at most its whole lease.
    pub fn take_over(&mut self, now: Now) {
        if self.role.serving {
            return;
        }
        let passed = LeaseUs(self.role.latest_due.0 + 1);
        debug_assert!(
            now.lease >= passed || self.role.latest_due == LeaseUs(0),
            "the lease clock is to be moved first"
        );
        let lease = now.lease.max(passed);
        self.role.serving = true;
        self.role.took_over = Origin {
            lease,
            ..self.origin(now)
        };
        self.role.walk = self
            .states
            .ids_after(None, 1)
            .next()
            .map(|_| Walk { after: None });
        self.leases = Wheel::new(lease.0);
        self.queues.set_all_due(None);
    }

    /// From here on another server decides: all deadlines are its business. Moments that were given stay where
    /// they are, and lie before those of the next term.
    pub fn stand_down(&mut self) {
        self.role.serving = false;
        self.role.walk = None;
        let wheel = std::mem::replace(&mut self.leases, Wheel::new(0));
        let leftovers = &mut self.leftovers;
        leftovers.drop_entries(wheel.into_chunks());
        leftovers.drop_entries(take(&mut self.retention));
        leftovers.drop_entries(take(&mut self.ephemeral));
        leftovers.drop_entries(take(&mut self.closed));
        leftovers.drop_entries(take(&mut self.ending));
        leftovers.drop_entries(take(&mut self.put_off));
        leftovers.drop_entries(take(&mut self.put_off_ends));
    }

    fn origin(&self, now: Now) -> Origin {
        Origin {
            lease: now.lease,
            unix: now.unix(),
            grace_ms: self.settings.takeover_grace_ms,
        }
    }

    /// When the hold's lease runs out, on a server that decides.
    pub(crate) fn due(&self, hold: &Hold) -> LeaseUs {
        if hold.due >= self.role.since() {
            hold.due
        } else {
            self.role.took_over.due(hold)
        }
    }

    /// The hold's lease runs out at this moment, which counts from now on: a clock that was not moved as it
    /// should have been makes leases longer, not endless.
    pub(crate) fn set_due(&mut self, id: StateId, fence: Fence, due: LeaseUs) {
        let due = due.max(self.role.since());
        self.role.latest_due = self.role.latest_due.max(due);
        if let Some(state) = self.states.get_mut(id) {
            state.body.holds_mut().set_due(fence, due);
        }
    }

    /// Another server, or a payload, has given this hold its lease: it runs here from now on.
    pub(crate) fn take_up(&mut self, id: StateId, fence: Fence, now: Now) {
        let state = self.states.get(id);
        if let Some(hold) = state.and_then(|state| state.body.holds().get(fence)) {
            let due = self.origin(now).due(hold);
            self.set_due(id, fence, due);
        }
    }

    /// The same for all holds of a state that has just come.
    pub(crate) fn take_up_all(&mut self, id: StateId, now: Now) {
        self.give_moments(id, self.origin(now), &mut { u32::MAX });
        self.index(id);
    }

    /// The holds of this state are asked about: those that the walk has not come to yet get their moments now,
    /// a bounded number of them.
    pub(crate) fn walk_ahead(&mut self, id: StateId, budget: u32) {
        if self.role.is_walking() {
            self.give_moments(id, self.role.took_over, &mut { budget });
        }
    }

    /// Goes on with the walk. A hold or a state costs one of the budget.
    pub(crate) fn walk(&mut self, budget: &mut u32) {
        while *budget > 0
            && let Some(Walk { after }) = self.role.walk
        {
            let slice: Vec<_> = self.states.ids_after(after, *budget as usize).collect();
            if slice.is_empty() {
                self.role.walk = None;
            }
            for id in slice {
                if *budget == 0 {
                    return;
                }
                *budget -= 1;
                let is_done = self.give_moments(id, self.role.took_over, budget);
                self.index(id);
                if !is_done {
                    return;
                }
                self.role.walk = Some(Walk { after: Some(id) });
            }
        }
    }

    /// Gives holds without a moment theirs, as long as the budget lasts. Returns whether all have one.
    fn give_moments(&mut self, id: StateId, origin: Origin, budget: &mut u32) -> bool {
        let Some(state) = self.states.get_mut(id) else {
            return true;
        };
        let holds = state.body.holds_mut();
        let since = self.role.since();
        while let Some(hold) = holds.first_before(since) {
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            let (fence, due) = (hold.fence, origin.due(hold).max(since));
            holds.set_due(fence, due);
            self.role.latest_due = self.role.latest_due.max(due);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_taken_over_has_its_rest_and_some_grace_but_never_more_than_all() {
        let (lease, grace) = (LeaseMs(30_000), 5_000);
        for (deadline, left) in [
            (0, 5_000),
            (1_000, 5_000),
            (1_001, 5_001),
            (26_000, 30_000),
            (26_001, 30_000),
            (99_000, 30_000),
        ] {
            assert_eq!(
                lease_left(lease, UnixMs(deadline), UnixMs(1_000), grace),
                left,
                "{deadline}"
            );
        }
        assert_eq!(
            lease_left(LeaseMs(100), UnixMs(0), UnixMs(1_000), grace),
            100
        );
    }
}
