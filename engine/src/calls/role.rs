//! Whether this server decides, and how it takes over leases that another server wrote.
//!
//! A replica applies changes and never decides: it lapses no hold, serves no queue and indexes no deadline. When it is
//! promoted, [`Engine::take_over`] only notes the moment, because a walk over a million holds would keep all clients
//! waiting. Each hold gets its moment on this server's lease clock later: from a walk that [`Engine::background`] does
//! in slices, or from the first request for its key. The moment depends only on what was left of the lease at the
//! take-over, so it does not matter when the hold gets it.
//!
//! A hold has its moment if `due` is not before the take-over. So when a server takes over, its lease clock must be
//! past every moment that it gave before ([`Engine::latest_due`]). The lease clock starts at zero with the process and
//! means nothing to others, so it can be moved forward. Rejected: to reset all holds at the demotion, which is the same
//! walk at another time; and a number of the term in each hold, which has no room for it.
//!
//! Kept places have moments in the same way: a walk over the queues gives each the time for which it is kept, or the grace
//! if that is longer, from the take-over.
//!
//! A hold without a moment cannot lapse yet, whatever its deadline says. What is left of its lease can be computed all
//! the same.

use std::mem::take;

use crate::hold::Hold;
use crate::index::deadlines::Wheel;
use crate::queue::entry::{Keep, Place};
use crate::types::{Fence, LeaseMs, LeaseUs, Now, QueueId, UnixMs};
use crate::{Engine, StateId};

/// A moment at which this server takes over leases. Their deadlines were written by another server, or by this one
/// before a restart or demotion.
#[derive(Clone, Copy)]
struct TakeOver {
    lease: LeaseUs,
    unix: UnixMs,
    /// What a hold has left at least, but never more than its lease.
    grace_ms: u64,
}

impl TakeOver {
    fn due(self, hold: &Hold) -> LeaseUs {
        if let Some(keep_ms) = hold.unheard_ms() {
            return self.until(keep_ms);
        }
        let left_ms = lease_left(hold.lease, hold.deadline(), self.unix, self.grace_ms);
        self.lease.after_ms(left_ms)
    }

    /// Returns until when a place is kept, or a hold lasts whose token has not been heard from.
    fn until(self, keep_ms: u32) -> LeaseUs {
        self.lease.after_ms(self.grace_ms.max(u64::from(keep_ms)))
    }
}

/// Returns the milliseconds that are left of a lease whose deadline was written elsewhere: the rest by the wall clock
/// plus the grace, at most the whole lease.
fn lease_left(lease: LeaseMs, deadline: UnixMs, now: UnixMs, grace_ms: u64) -> u64 {
    deadline
        .ms_left(now)
        .saturating_add(grace_ms)
        .min(u64::from(lease.0))
}

/// The walk that gives every hold its moment, in the order of the states' ids. Holds that are granted meanwhile have
/// one already.
#[derive(Clone, Copy)]
struct Walk {
    /// The last state whose holds all have their moments; all states before it are done too.
    after: Option<StateId>,
}

/// Invariants on a server that decides: no moment that it ever gave is after `latest_due`; every hold of a state that
/// the walk has passed has its moment.
pub(crate) struct Role {
    /// Whether this server decides: it is a primary, and its data are loaded.
    serving: bool,
    took_over: TakeOver,
    walk: Option<Walk>,
    /// The walk that gives every kept place its moment, and the place that it looked at last.
    places_walk: Option<(QueueId, Place)>,
    latest_due: LeaseUs,
}

impl Default for Role {
    fn default() -> Role {
        Role {
            serving: false,
            took_over: TakeOver {
                lease: LeaseUs(0),
                unix: UnixMs(0),
                grace_ms: 0,
            },
            walk: None,
            places_walk: None,
            latest_due: LeaseUs(0),
        }
    }
}

impl Role {
    /// Returns the moment of the last take-over. A `due` before it means that the hold has no moment yet.
    pub fn since(&self) -> LeaseUs {
        self.took_over.lease
    }

    pub fn is_serving(&self) -> bool {
        self.serving
    }

    pub fn is_walking(&self) -> bool {
        self.walk.is_some() || self.places_walk.is_some()
    }

    pub fn places_walk(&self) -> Option<(QueueId, Place)> {
        self.places_walk
    }

    pub fn set_places_walk(&mut self, at: Option<(QueueId, Place)>) {
        self.places_walk = at;
    }

    /// Whether the walk has passed this state, so that all its holds must have their moments.
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

    /// Returns the latest moment that this server ever gave to a hold. The lease clock must be past it when this server
    /// takes over.
    #[must_use]
    pub fn latest_due(&self) -> LeaseUs {
        self.role.latest_due
    }

    /// Makes this server the one that decides. Each hold has what is left of its lease by the wall clock plus the
    /// grace, at most its whole lease.
    pub fn take_over(&mut self, now: Now) {
        if self.role.serving {
            return;
        }
        let passed = LeaseUs(self.role.latest_due.0 + 1);
        debug_assert!(
            now.lease >= passed || self.role.latest_due == LeaseUs(0),
            "the caller must move the lease clock first"
        );
        let lease = now.lease.max(passed);
        self.role.serving = true;
        self.role.took_over = TakeOver {
            lease,
            ..self.take_over_at(now)
        };
        self.role.walk = self
            .states
            .ids_after(None, 1)
            .next()
            .map(|_| Walk { after: None });
        let first = (QueueId(0), Place(Fence(0)));
        self.role.places_walk = Some(first).filter(|_| self.queues.kept() > 0);
        self.leases = Wheel::new(lease.0);
        self.queues.set_all_due(None);
    }

    /// Notes that another server decides from now on, and drops all deadlines. The holds keep the moments that they
    /// were given: these are before the next take-over and count for nothing then.
    pub fn stand_down(&mut self) {
        self.role.serving = false;
        self.role.walk = None;
        self.role.places_walk = None;
        let wheel = std::mem::replace(&mut self.leases, Wheel::new(0));
        let leftovers = &mut self.leftovers;
        leftovers.drop_entries(wheel.into_chunks());
        leftovers.drop_entries(self.queues.take_keeps());
        leftovers.drop_entries(take(&mut self.openings).into_pieces());
        leftovers.drop_entries(take(&mut self.retention));
        leftovers.drop_entries(take(&mut self.ephemeral));
        leftovers.drop_entries(take(&mut self.closed));
        leftovers.drop_entries(take(&mut self.ending));
        leftovers.drop_entries(take(&mut self.put_off).into_pieces());
    }

    fn take_over_at(&self, now: Now) -> TakeOver {
        TakeOver {
            lease: now.lease,
            unix: now.unix(),
            grace_ms: self.settings.takeover_grace_ms,
        }
    }

    /// Returns when the hold's lease runs out, on a server that decides.
    pub(crate) fn due(&self, hold: &Hold) -> LeaseUs {
        if hold.due >= self.role.since() {
            hold.due
        } else {
            self.role.took_over.due(hold)
        }
    }

    /// Sets the moment at which the hold's lease runs out. A moment before the take-over is raised to it, so that it
    /// counts.
    pub(crate) fn set_due(&mut self, id: StateId, fence: Fence, due: LeaseUs) {
        let due = due.max(self.role.since());
        self.role.latest_due = self.role.latest_due.max(due);
        if let Some(state) = self.states.get_mut(id) {
            state.body.local().set_due(fence, due);
        }
    }

    /// Returns until when a place is kept that nobody waits on from now on. A replica gives no moments: 0.
    pub(crate) fn keep_until(&mut self, keep_ms: u32, now: Now) -> LeaseUs {
        let until = now.lease.after_ms(u64::from(keep_ms));
        self.new_moment(until)
    }

    /// Returns until when a place is kept that another server or a file has just put here.
    pub(crate) fn take_up_until(&mut self, keep_ms: u32, now: Now) -> LeaseUs {
        let until = self.take_over_at(now).until(keep_ms);
        self.new_moment(until)
    }

    /// Returns until when a place is kept that was there when this server took over.
    pub(crate) fn taken_over_until(&mut self, keep_ms: u32) -> LeaseUs {
        let until = self.role.took_over.until(keep_ms);
        self.new_moment(until)
    }

    /// Returns the moment at which a kept place runs out, as [`Engine::set_due`] does for a lease.
    fn new_moment(&mut self, until: LeaseUs) -> LeaseUs {
        if !self.role.serving {
            return LeaseUs(0);
        }
        let until = until.max(self.role.since());
        self.role.latest_due = self.role.latest_due.max(until);
        until
    }

    /// Returns the milliseconds for which a place is still kept that nobody waits on, on a server that decides.
    pub(crate) fn keep_left_ms(&self, keep: Keep, now: Now) -> u64 {
        let until = match keep.until >= self.role.since() {
            true => keep.until,
            false => self.role.took_over.until(keep.ms),
        };
        until.ms_left(now.lease)
    }

    /// Gives a moment to a hold whose lease another server or a payload has just set.
    pub(crate) fn take_up(&mut self, id: StateId, fence: Fence, now: Now) {
        let state = self.states.get(id);
        if let Some(hold) = state.and_then(|state| state.body.holds().get(fence)) {
            let due = self.take_over_at(now).due(hold);
            self.set_due(id, fence, due);
        }
    }

    /// Gives a moment to each hold of a state that was loaded just now, and indexes the state.
    pub(crate) fn take_up_all(&mut self, id: StateId, now: Now) {
        let (from, since) = (self.take_over_at(now), self.role.since());
        let mut latest = self.role.latest_due;
        if let Some(state) = self.states.get_mut(id) {
            state.body.local().set_all_due(|hold| {
                let due = from.due(hold).max(since);
                latest = latest.max(due);
                due
            });
        }
        self.role.latest_due = latest;
        self.index(id);
    }

    /// Gives moments to holds of this state that the walk has not reached, because a request needs them now: `budget`
    /// holds at most.
    pub(crate) fn walk_ahead(&mut self, id: StateId, budget: u32) {
        if self.role.is_walking() {
            self.give_moments(id, self.role.took_over, &mut { budget });
        }
    }

    /// Continues the walk. Each hold and each state costs one of the budget.
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

    /// Gives moments to holds that have none, while the budget lasts. Returns whether all holds of the state have one
    /// then.
    fn give_moments(&mut self, id: StateId, from: TakeOver, budget: &mut u32) -> bool {
        let Some(state) = self.states.get_mut(id) else {
            return true;
        };
        let body = &mut state.body;
        let since = self.role.since();
        while let Some(hold) = body.holds().first_before(since) {
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            let (fence, due) = (hold.fence(), from.due(hold).max(since));
            body.local().set_due(fence, due);
            self.role.latest_due = self.role.latest_due.max(due);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_at_take_over_is_rest_plus_grace_at_most_whole() {
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
