//! Whether this server decides, and how it takes over leases that another server wrote.
//!
//! A replica applies changes and never decides: it lapses no hold, serves no queue and indexes no deadline. When it is
//! promoted, [`Term::take_over`] only notes the moment, because a walk over a million holds would keep all clients
//! waiting. Each hold gets its moment on this server's lease clock later: from a walk in slices ([`crate::walks`]), or
//! from the first visit of its key. The moment depends only on what was left of the lease at the take-over, so it does
//! not matter when the hold gets it.
//!
//! A hold has its moment if `due` is not before the take-over. So when a server takes over, its lease clock must be
//! past every moment that it gave before ([`Term::latest_due`]). The lease clock starts at zero with the process and
//! means nothing to others, so it can be moved forward. Rejected: to reset all holds at the demotion, which is the same
//! walk at another time; and a number of the term in each hold, which has no room for it.
//!
//! Kept places have moments in the same way: a walk over the queues gives each the time for which it is kept, or the grace
//! if that is longer, from the take-over.
//!
//! A hold without a moment cannot lapse yet, whatever its deadline says. What is left of its lease can be computed all
//! the same.

use crate::hold::Hold;
use crate::store::slab::StateId;
use crate::types::{Fence, LeaseMs, LeaseUs, Moments, Now, QueueId, Rank, UnixMs};

pub mod fences;
pub mod record;

use fences::Fences;

/// A moment at which this server takes over leases. Their deadlines were written by another server, or by this one
/// before a restart or demotion.
#[derive(Clone, Copy, Default)]
pub struct TakeOver {
    pub lease: LeaseUs,
    unix: UnixMs,
    /// What a hold has left at least, but never more than its lease.
    grace_ms: u64,
}

impl TakeOver {
    /// A take-over at this moment.
    pub fn at(now: Now, grace_ms: u64) -> TakeOver {
        TakeOver {
            lease: now.lease,
            unix: now.unix(),
            grace_ms,
        }
    }

    /// Returns when the lease of a hold runs out.
    pub fn due(self, hold: &Hold) -> LeaseUs {
        if let Some(keep_ms) = hold.unheard_ms() {
            return self.until(keep_ms);
        }
        self.end_of(hold.lease, hold.deadline())
    }

    /// Returns until when the place of a hold stays taken if it ends early; `None` without MINHOLD.
    pub fn rests_until(self, hold: &Hold) -> Option<LeaseUs> {
        let min_hold = hold.rest().0.after()?;
        let end = hold.granted().after_ms(u64::from(min_hold.0));
        Some(self.end_of(min_hold, end))
    }

    /// Returns when a lease runs out whose deadline was written elsewhere: after the rest by the wall clock plus the
    /// grace, at most the whole lease.
    fn end_of(self, lease: LeaseMs, deadline: UnixMs) -> LeaseUs {
        let left_ms = deadline.ms_left(self.unix).saturating_add(self.grace_ms);
        self.lease.after_ms(left_ms.min(u64::from(lease.0)))
    }

    /// Returns until when a place is kept, or a hold lasts whose token has not been heard from.
    pub fn until(self, keep_ms: u32) -> LeaseUs {
        self.lease.after_ms(self.grace_ms.max(u64::from(keep_ms)))
    }
}

/// Invariants on a server that decides: no moment that it ever gave is after `latest_due`; every hold of a state that
/// the walk has passed has its moment.
#[derive(Default)]
pub struct Term {
    /// Whether this server decides: it is a primary, and its data are loaded.
    serving: bool,
    /// The last take-over.
    pub took_over: TakeOver,
    /// The walk that gives every hold its moment, in the order of the states' ids: all states before this one are done.
    /// Holds that are granted meanwhile have their moment already.
    pub states_walk: Option<StateId>,
    /// The walk that gives every kept place its moment, and the place that it looked at last.
    pub places_walk: Option<(QueueId, Rank)>,
    latest_due: LeaseUs,
    pub fences: Fences,
}

impl Term {
    pub fn is_serving(&self) -> bool {
        self.serving
    }

    /// Returns the moment of the last take-over. A `due` before it means that the hold has no moment yet.
    pub fn since(&self) -> LeaseUs {
        self.took_over.lease
    }

    pub fn is_walking(&self) -> bool {
        self.states_walk.is_some() || self.places_walk.is_some()
    }

    /// Returns the latest moment that this server ever gave to a hold or a place. The lease clock must be past it when
    /// this server takes over.
    pub fn latest_due(&self) -> LeaseUs {
        self.latest_due
    }

    /// Makes this server the one that decides. Each hold has what is left of its lease by the wall clock plus the
    /// grace, at most its whole lease. The caller says where the walks begin.
    pub fn take_over(
        &mut self,
        now: Now,
        grace_ms: u64,
        first_state: Option<StateId>,
        has_kept: bool,
    ) {
        let passed = LeaseUs(self.latest_due.0 + 1);
        debug_assert!(
            now.lease >= passed || self.latest_due == LeaseUs(0),
            "the caller must move the lease clock first"
        );
        self.serving = true;
        self.took_over = TakeOver {
            lease: now.lease.max(passed),
            ..TakeOver::at(now, grace_ms)
        };
        self.states_walk = first_state;
        self.places_walk = has_kept.then_some((QueueId(0), Rank(Fence(0))));
    }

    /// Notes that another server decides from now on. The holds keep the moments that they were given: these are before
    /// the next take-over and count for nothing then.
    pub fn stand_down(&mut self) {
        self.serving = false;
        self.states_walk = None;
        self.places_walk = None;
    }

    /// Returns when the hold's lease runs out, on a server that decides.
    pub fn due(&self, hold: &Hold) -> LeaseUs {
        match hold.due >= self.since() {
            true => hold.due,
            false => self.took_over.due(hold),
        }
    }

    /// Returns until when the place of a hold stays taken if it ends early, on a server that decides; `None` without
    /// MINHOLD.
    pub fn rests_until(&self, hold: &Hold) -> Option<LeaseUs> {
        let (rest, until) = hold.rest();
        rest.after()?;
        match until >= self.since() {
            true => Some(until),
            false => self.took_over.rests_until(hold),
        }
    }

    /// Gives a hold the moments that another server or a payload has set.
    pub fn moments(&mut self, hold: &Hold, from: TakeOver) -> Moments {
        Moments {
            due: self.give(from.due(hold)),
            rests_until: (from.rests_until(hold)).map_or(LeaseUs(0), |until| self.give(until)),
        }
    }

    /// Returns the milliseconds left of the lease. A replica computes them from the written deadline.
    pub fn lease_left_ms(&self, hold: &Hold, now: Now) -> u64 {
        match self.serving {
            true => self.due(hold).ms_left(now.lease),
            false => hold.deadline().ms_left(now.unix()),
        }
    }

    /// Returns this moment, to be given to a hold or a place. A moment before the take-over is raised to it, so that it
    /// counts.
    #[must_use]
    pub fn give(&mut self, due: LeaseUs) -> LeaseUs {
        let due = due.max(self.since());
        self.latest_due = self.latest_due.max(due);
        due
    }

    /// Returns the moment at which a kept place runs out. A replica gives no moments: 0.
    #[must_use]
    pub fn give_to_place(&mut self, until: LeaseUs) -> LeaseUs {
        match self.serving {
            true => self.give(until),
            false => LeaseUs(0),
        }
    }

    /// Returns until when a place is kept that nobody waits on from now on.
    #[must_use]
    pub fn keep_until(&mut self, keep_ms: u32, now: Now) -> LeaseUs {
        self.give_to_place(now.lease.after_ms(u64::from(keep_ms)))
    }

    /// Returns the milliseconds for which a place is still kept that nobody waits on, on a server that decides.
    pub fn keep_left_ms(&self, keep_ms: u32, until: LeaseUs, now: Now) -> u64 {
        let until = match until >= self.since() {
            true => until,
            false => self.took_over.until(keep_ms),
        };
        until.ms_left(now.lease)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_at_take_over_is_rest_plus_grace_at_most_whole() {
        let take_over = TakeOver {
            lease: LeaseUs(7_000_000),
            unix: UnixMs(1_000),
            grace_ms: 5_000,
        };
        let left_ms = |lease_ms, deadline| {
            let end = take_over.end_of(LeaseMs(lease_ms), UnixMs(deadline));
            end.ms_left(take_over.lease)
        };
        for (deadline, left) in [
            (0, 5_000),
            (1_000, 5_000),
            (1_001, 5_001),
            (26_000, 30_000),
            (26_001, 30_000),
            (99_000, 30_000),
        ] {
            assert_eq!(left_ms(30_000, deadline), left, "{deadline}");
        }
        assert_eq!(left_ms(100, 0), 100);
    }
}
