//! What time does to the state of one key: leases run out, delays end, and states that nothing keeps are forgotten.
//!
//! It also indexes each state under the moments at which that happens. `calls::tasks` asks the indexes what has come due.

use crate::change::Change;
use crate::hold::Hold;
use crate::types::{LeaseUs, Now, UnixMs};
use crate::{End, Engine, Family, Key, StateId};

/// How many overdue holds one call ends.
const LAPSES: u32 = 1_024;

impl Engine {
    /// Carries out what has come due for the holds and the queue of this key, even if the timer is late.
    pub(crate) fn catch_up(&mut self, key: &mut Key<'_>, now: Now) {
        if now.may_write {
            self.lapse_due(key, now);
            self.open_due(key, now);
        }
    }

    /// Ends the holds of this key whose lease has run out, up to `LAPSES`. A hold that was granted to a kept place, and
    /// whose token was not heard from, ends as if its grant had not been delivered.
    fn lapse_due(&mut self, key: &mut Key<'_>, now: Now) {
        if let Some(id) = key.state {
            self.walk_ahead(id, LAPSES);
        }
        for _ in 0..LAPSES {
            let Some(state) = key.state.and_then(|id| self.states.get(id)) else {
                return;
            };
            let (family, holds) = (state.body.family(), state.body.holds());
            let earliest = holds.earliest(self.role.since());
            let due = earliest.filter(|(due, _)| *due <= now.lease);
            let Some((_, fence)) = due else { return };
            let unheard = holds.get(fence).and_then(Hold::unheard_ms);
            let how = unheard.map_or(End::Lapsed, |_| End::Undelivered);
            self.end(key, family, fence, how, now);
        }
    }

    /// Ends the delay and the pause of this key, each if its time is up.
    pub(crate) fn open_due(&mut self, key: &mut Key<'_>, now: Now) {
        let Some(body) = self.body_mut(key) else {
            return;
        };
        let family = body.family();
        let has_come = |at: Option<UnixMs>| at.is_some_and(|at| at.has_come(now.unix()));
        let delay_is_over = has_come(body.delayed_until());
        let pause_is_over = has_come(body.paused_until());
        // Replicas get each end as a change too, so that they hold what this server holds.
        if delay_is_over {
            let _ = self.decide(key, family, Change::Delay { until: None });
        }
        if pause_is_over {
            let _ = self.decide(key, family, Change::Pause { until: None });
        }
    }

    /// Indexes the state under its next lease end, the moment at which its queue may go on, and the end of its
    /// retention. Does nothing on a replica.
    pub(crate) fn index(&mut self, id: StateId) {
        let Some(state) = self.states.get_mut(id) else {
            return;
        };
        if !self.role.is_serving() || self.spaces.db(state.address.space()).is_none() {
            return;
        }
        let holds = state.body.holds();
        match holds.earliest(self.role.since()) {
            Some((LeaseUs(due), _)) => self.leases.schedule(id, due),
            None => self.leases.cancel(id),
        }
        // RENAME moves the state but not its waiters, so index it even while requests wait.
        let idle = holds.is_empty();
        self.openings.set(id, state.body.opens_at());
        let until = state.body.retained_until(&self.settings);
        let until = until.filter(|until| idle && *until != UnixMs::NEVER);
        if let Some(before) = state.body.local().note_retention(until) {
            self.retention.remove(&(before, id));
        }
        if let Some(until) = until {
            self.retention.insert((until, id));
        }
    }

    /// Removes the state from all deadline indexes.
    pub(crate) fn unindex(&mut self, id: StateId) {
        self.leases.cancel(id);
        self.openings.set(id, None);
        if let Some(state) = self.states.get_mut(id)
            && let Some(until) = state.body.local().note_retention(None)
        {
            self.retention.remove(&(until, id));
        }
    }

    /// Removes the key, and records that as a change.
    pub(crate) fn vanish(&mut self, key: &mut Key<'_>) {
        let family = self
            .body_mut(key)
            .map_or(Family::Lock, |body| body.family());
        let _ = self.decide(key, family, Change::Vanish);
        self.discard(key);
    }

    /// Forgets a state that has been kept long enough, as a step of its own: a later visit serves the requests that
    /// wait for its key, and makes a new state. Returns whether it forgot one.
    pub(crate) fn forget_if_over(&mut self, key: &mut Key<'_>, now: Now) -> bool {
        let is_over = self.is_over(key, now);
        if is_over {
            self.vanish(key);
            if let Some(queue) = self.queues.find(key.db, key.name) {
                self.queues.set_due(queue);
            }
        }
        is_over
    }

    /// Whether the state has been kept long enough. Queued requests do not keep a finished result or tally longer: such
    /// a key has a queue only if RENAME or SWAPDB brought it there.
    pub(crate) fn is_over(&self, key: &Key<'_>, now: Now) -> bool {
        let Some(state) = key.state.and_then(|id| self.states.get(id)) else {
            return false;
        };
        if state.body.retained_until(&self.settings).is_none() {
            return false;
        }
        let is_used = !state.body.holds().is_empty()
            || !state.body.is_concluded() && self.queues.find(key.db, key.name).is_some();
        !is_used && self.is_at_its_end(key, false, now)
    }

    /// Whether nothing keeps the state: it has no holds, no pause, no pinned limit, and nothing that is still retained.
    /// `waited` says that requests wait for the key.
    pub(crate) fn is_at_its_end(&self, key: &Key<'_>, waited: bool, now: Now) -> bool {
        let state = key.state.and_then(|id| self.states.get(id));
        state.is_some_and(|state| !state.body.outlives_use(&self.settings, waited, now.unix()))
    }
}
