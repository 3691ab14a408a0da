//! RELEASE, REVOKE, RENEW, and what an operator orders: PAUSE and the limit of a semaphore.
//!
//! A pause is part of the key. It ends by a change of its own, which the server that decides makes when the moment has
//! come by the wall clock: see [`Visit::open_due`]. So a pause that has ended does not begin again if the clock is set
//! back, and a replica never ends one by its own clock. Rejected: to compare the moment with the clock at every grant,
//! because nothing would then say when a replica and its primary differ, and when to announce that capacity was gained.
//!
//! A pause holds back grants and nothing else: holds lapse and end as ever, results, FAILED and finished rounds are
//! told, and a hold's own token gets its hold again.

use crate::answer::Answer;
use crate::change::{Change, End};
use crate::queue::place::Place;
use crate::state::Body;
use crate::types::{Family, Fence, LeaseMs, Rank, Token};
use crate::visit::{Visit, WrongType};

impl Visit<'_> {
    /// Ends the token's hold and withdraws its queued request. Returns whether there was either.
    ///
    /// The withdrawn request may still be on its way, on another connection. So its token is marked for as long as a
    /// vacant place is kept, unless the call ended a hold: whatever comes with it is answered as withdrawn. A hold whose
    /// grant was found undelivered ends as that: its client has given up, and knows of no hold.
    ///
    /// # Errors
    /// When the key is of another family; likewise for all calls here.
    pub fn release(&mut self, family: Family, token: &Token) -> Result<bool, WrongType> {
        let held = self.look().hold_of(family, token)?;
        let held = held.map(|hold| {
            let how = match self.engine.agenda.is_undelivered(hold.fence()) {
                true => End::Undelivered,
                false => End::Released,
            };
            (hold.fence(), how, self.rests_until(hold, how))
        });
        if let Some((fence, how, rests_until)) = held {
            self.end_or_rest(fence, how, rests_until);
        }
        let withdrawn = self.withdraw(family, token, held.is_none());
        Ok(held.is_some() || withdrawn)
    }

    /// Removes the token's place from the queue, waiting, kept or vacant, and answers its client if one waits. Returns
    /// whether there was a place. With `marks`, later requests of the token are answered as withdrawn for `rejoin_ms`.
    ///
    /// A client that has given up on the reply must not be granted: it would hold up the others for a lease.
    fn withdraw(&mut self, family: Family, token: &Token, marks: bool) -> bool {
        let place = self.queue().and_then(|queue| queue.find(token));
        let place = place.filter(|place| place.verdict().is_none());
        let place = place.filter(|place| place.claim.family() == family);
        let rank = place.map(Place::rank);
        let Some(left) = rank.and_then(|rank| self.take_place(rank)) else {
            return false;
        };
        let rejoin_ms = self.engine.settings.rejoin_ms;
        let until = self.now.mono.after_ms(rejoin_ms);
        // The mark takes the room of the place that has just left.
        if marks
            && rejoin_ms > 0
            && let Some(mark) = left.clone().vacated(until, Some(Answer::Withdrawn))
        {
            self.put(mark, None);
        }
        self.part(&left, Answer::Withdrawn);
        // New requests may have had to queue behind this one only, so the key may be free for them.
        self.engine.effects.may_free_capacity = true;
        true
    }

    /// Ends the hold with this fence, or withdraws the kept place with this rank, without its token: an operator's call.
    /// Returns whether there was either.
    pub fn revoke(&mut self, family: Family, fence: Fence) -> Result<bool, WrongType> {
        let body = self.look().body_of(family)?;
        let found = body.is_some_and(|body| body.holds().get(fence).is_some());
        if found {
            self.end(fence, End::Revoked);
        }
        Ok(found || self.withdraw_place(family, Rank(fence)))
    }

    /// Starts a new lease from now, with the last duration unless another is given. Returns whether the token still
    /// holds: a hold that has ended is not given back.
    pub fn renew(
        &mut self,
        family: Family,
        token: &Token,
        lease: Option<LeaseMs>,
    ) -> Result<bool, WrongType> {
        let hold = self.look().hold_of(family, token)?;
        let Some((fence, last)) = hold.map(|hold| (hold.fence(), hold.lease)) else {
            return Ok(false);
        };
        self.renew_hold(fence, lease.unwrap_or(last));
        // Its token was heard from, so it no longer matters that nobody got the reply with the grant.
        if self.engine.agenda.is_undelivered(fence) {
            self.engine.agenda.keep(fence);
        }
        Ok(true)
    }

    /// Pauses the key for so long from now, or ends its pause if that is 0. Returns the milliseconds that were left of
    /// the pause before.
    pub fn pause(&mut self, family: Family, ms: u64) -> Result<u64, WrongType> {
        let before = self.settled_body_of(family)?;
        let (before, now) = (before.and_then(Body::paused_until), self.now.unix());
        let until = (ms > 0).then(|| now.after_ms(ms));
        self.order(family, (until != before).then_some(Change::Pause { until }));
        Ok(before.map_or(0, |until| until.ms_left(now)))
    }

    /// Pins the limit for an operator, or unpins it. Returns the limit that was in force before.
    pub fn pin_limit(&mut self, limit: Option<u32>) -> Result<Option<u32>, WrongType> {
        let body = self.settled_body_of(Family::Semaphore)?;
        let before = body.map(Body::limits).unwrap_or_default();
        let pin = (before.pinned != limit).then_some(Change::Pin(limit));
        self.order(Family::Semaphore, pin);
        Ok(before.in_force())
    }

    /// Carries out an order, which makes the key if it is absent, and then what has come due. Without a change the order
    /// is carried out already.
    pub(crate) fn order(&mut self, family: Family, change: Option<Change>) {
        self.is_stale = true;
        if let Some(change) = change {
            self.make_state(family);
            let _ = self.decide(change);
        }
        self.catch_up();
    }
}
