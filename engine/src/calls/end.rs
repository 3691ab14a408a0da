//! How a hold ends: by its token, by an operator, by time, or with its connection.
//!
//! Only the token ends a hold, or an operator by its fence. An overdue hold that has not been ended yet can still be
//! renewed or released by its token.

use crate::change::{Change, End};
use crate::effect::Note;
use crate::hold::Hold;
use crate::state::Body;
use crate::types::{Fence, LeaseUs, UnixMs};
use crate::unasked::UnaskedEnd;
use crate::visit::Visit;

/// How many overdue holds one visit ends.
const LAPSES: u32 = 1_024;

impl Visit<'_> {
    /// Ends a hold that exists. A hold that ends undelivered gives back what it displaced.
    ///
    /// What comes back is a change of its own, and not a part of END: a server that was given a saved state in between
    /// knows of nothing that was displaced, and one of an earlier version never does.
    pub(crate) fn end(&mut self, fence: Fence, how: End) {
        let body = self.body().filter(|_| how == End::Undelivered);
        let displaced = body.and_then(Body::displaced);
        let at = self.now.unix();
        self.end_by(Change::End { fence, how, at }, how, at);
        let brought_back = displaced.and_then(|displaced| self.body()?.brought_back(displaced));
        if let Some(brought_back) = brought_back {
            let _ = self.decide(brought_back);
        }
    }

    /// Ends a hold that exists. With a moment its place stays taken until then: see [`Visit::rests_until`].
    pub(crate) fn end_or_rest(&mut self, fence: Fence, how: End, rests_until: Option<LeaseUs>) {
        match rests_until {
            None => self.end(fence, how),
            Some(until) => self.rest(fence, how, until),
        }
    }

    #[cold]
    fn rest(&mut self, fence: Fence, how: End, until: LeaseUs) {
        let at = self.now.unix();
        self.end_by(Change::Rest { fence, how, at }, how, at);
        self.set_moments(fence, until, None);
    }

    /// Ends a hold by this change. `decide` counts it; an end that the client of the hold did not ask for is noted.
    fn end_by(&mut self, change: Change, how: End, at: UnixMs) {
        if let Ok(Some(hold)) = self.decide(change)
            && how.is_unasked()
        {
            let late_ms = self.now.lease.ms_since(self.engine.term.due(&hold));
            let end = UnaskedEnd::of(&hold, how, at, late_ms);
            self.engine.effects.notes.push(Note::Ended(end));
        }
    }

    /// Returns until when the place of the hold stays taken if it ends so now: with a MINHOLD that is not over, unless
    /// nobody has heard of the grant. The caller has the hold at hand, so that the end of one without MINHOLD searches for
    /// nothing.
    pub(crate) fn rests_until(&self, hold: &Hold, how: End) -> Option<LeaseUs> {
        let until = self.engine.term.rests_until(hold)?;
        let rests = how.may_rest() && hold.unheard_ms().is_none();
        (rests && until > self.now.lease).then_some(until)
    }

    /// Carries out what has come due for the holds and the queue of this key, even if the timer is late.
    #[inline(always)]
    pub(crate) fn catch_up(&mut self) {
        if self.now.may_write {
            self.lapse_due();
            self.open_due();
        }
    }

    /// Ends the holds of this key whose lease has run out, up to `LAPSES`. A hold that was granted to a kept place, and
    /// whose token was not heard from, ends as if its grant had not been delivered.
    #[inline(always)]
    fn lapse_due(&mut self) {
        if let Some(id) = self.state
            && self.engine.term.is_walking()
        {
            let engine = &mut *self.engine;
            (engine.term).give_moments(&mut engine.store, id, &mut { LAPSES });
            self.is_stale = true;
        }
        for _ in 0..LAPSES {
            let Some(hold) = self.overdue_hold() else {
                return;
            };
            let how = match hold.unheard_ms() {
                _ if hold.is_resting() => End::Rested,
                Some(_) => End::Undelivered,
                None => End::Lapsed,
            };
            let rests_until = self.rests_until(hold, how);
            self.end_or_rest(hold.fence(), how, rests_until);
        }
    }

    /// Returns the hold whose lease has run out first, if one has.
    pub(crate) fn overdue_hold(&self) -> Option<&Hold> {
        let since = self.engine.term.since();
        self.body()?.holds().overdue(since, self.now.lease)
    }

    /// Ends what closes this key, each if its time is up.
    #[inline(always)]
    pub(crate) fn open_due(&mut self) {
        let Some(body) = self.body().filter(|body| body.opens_at().is_some()) else {
            return;
        };
        let (closings, now) = (body.closings(), self.now.unix());
        for closing in closings {
            // Replicas get each end as a change too, so that they hold what this server holds.
            if closing.until.has_come(now) {
                let _ = self.decide((closing.change)(None));
            }
        }
    }
}
