//! The calls that end a hold or renew its lease.
//!
//! Only the token ends a hold, or an operator by its fence. An overdue hold that has not been ended yet can still be
//! renewed or released by its token.

use crate::answer::Answer;
use crate::change::{Change, End};
use crate::effect::Note;
use crate::hold::Hold;
use crate::queue::entry::Place;
use crate::types::{Fence, LeaseMs, Now, Token};
use crate::unasked::UnaskedEnd;
use crate::{Body, Engine, Family, Key, WrongType};

impl Engine {
    /// Ends the token's hold and withdraws its queued request. Returns whether there was either.
    ///
    /// The withdrawn request may still be on its way, on another connection. So its token is marked for as long as a
    /// vacant place is kept, unless the call ended a hold: whatever comes with it is answered as withdrawn.
    ///
    /// # Errors
    /// When the key is of another family; likewise for all calls here.
    pub fn release(
        &mut self,
        key: &mut Key<'_>,
        family: Family,
        token: &Token,
        now: Now,
    ) -> Result<bool, WrongType> {
        let hold = self
            .body(key, family)?
            .and_then(|body| body.holds().by_token(token));
        let fence = hold.map(Hold::fence);
        if let Some(fence) = fence {
            self.end(key, family, fence, End::Released, now);
        }
        let withdrawn = self.withdraw(key, family, token, fence.is_none(), now);
        if fence.is_some() || withdrawn {
            self.settle(key, now);
        }
        Ok(fence.is_some() || withdrawn)
    }

    /// Removes the token's request from the queue, waiting, kept or vacant, and answers its connection if one waits.
    /// Returns whether there was a request. Without this, a client that gave up on the reply would be granted without
    /// knowing it, and would hold up the others for a lease. With `marks` the token stays withdrawn for a while.
    fn withdraw(
        &mut self,
        key: &Key<'_>,
        family: Family,
        token: &Token,
        marks: bool,
        now: Now,
    ) -> bool {
        let found = self.queues.find(key.db, key.name).and_then(|id| {
            let (place, seat) = self.queues.get(id)?.find(token)?;
            (seat.is_open() && seat.claim().family() == family).then_some((id, place))
        });
        let Some((queue, place)) = found else {
            return false;
        };
        let Some(left) = self.queues.leave(queue, place) else {
            return false;
        };
        let until = now.mono.after_ms(self.settings.rejoin_ms);
        // The mark takes the room of the place that has just left.
        if let Some(mark) = left.vacancy(Some(Answer::Withdrawn), until)
            && marks
            && self.settings.rejoin_ms > 0
        {
            self.queues.vacate(queue, place, mark);
        }
        self.part(place, left.waiter(), left.was_kept(), Answer::Withdrawn);
        // New requests may have had to queue behind this one only, so the key may be free for them.
        self.effects.may_free_capacity = true;
        true
    }

    /// Ends the hold with this fence, or withdraws the kept place with this number, without its token: an operator's call.
    /// Returns whether there was either.
    ///
    /// # Errors
    /// See [`Engine::release`].
    pub fn revoke(
        &mut self,
        key: &mut Key<'_>,
        family: Family,
        fence: Fence,
        now: Now,
    ) -> Result<bool, WrongType> {
        let found = self
            .body(key, family)?
            .is_some_and(|body| body.holds().get(fence).is_some());
        if found {
            self.end(key, family, fence, End::Revoked, now);
        }
        let revoked = found || self.withdraw_place(key, family, Place(fence), now);
        if revoked {
            self.settle(key, now);
        }
        Ok(revoked)
    }

    /// Ends a hold that exists. `decide` counts it; an end that its client did not ask for is noted. A hold that ends
    /// undelivered gives back what it displaced.
    ///
    /// What comes back is a change of its own, and not a part of END: a server that was given a saved state in between
    /// knows of nothing that was displaced, and one of an earlier version never does.
    pub(crate) fn end(
        &mut self,
        key: &mut Key<'_>,
        family: Family,
        fence: Fence,
        how: End,
        now: Now,
    ) {
        let body = self.body_mut(key).filter(|_| how == End::Undelivered);
        let displaced = body.and_then(|body| body.displaced());
        let ended = self.decide(
            key,
            family,
            Change::End {
                fence,
                how,
                at: now.unix(),
            },
        );
        if let Some(displaced) = displaced
            && let Some(body) = self.body_mut(key)
            && let Some(brought_back) = body.brought_back(displaced)
        {
            let _ = self.decide(key, family, brought_back);
        }
        if how.is_unasked()
            && let Ok(Some(hold)) = ended
        {
            let late_ms = now.lease.ms_since(self.due(&hold));
            let end = UnaskedEnd::of(&hold, how, now.unix(), late_ms);
            self.effects.notes.push(Note::Ended(end));
        }
    }

    /// Starts a new lease from now, with the last duration unless another is given. Returns whether the token still
    /// holds: a hold that has ended is not given back.
    pub fn renew(
        &mut self,
        key: &mut Key<'_>,
        family: Family,
        token: &Token,
        lease: Option<LeaseMs>,
        now: Now,
    ) -> Result<bool, WrongType> {
        let hold = self
            .body(key, family)?
            .and_then(|body| body.holds().by_token(token));
        let Some((fence, last)) = hold.map(|hold| (hold.fence(), hold.lease)) else {
            return Ok(false);
        };
        self.renew_hold(key, fence, lease.unwrap_or(last), now);
        self.settle(key, now);
        Ok(true)
    }

    pub(crate) fn renew_hold(&mut self, key: &mut Key<'_>, fence: Fence, lease: LeaseMs, now: Now) {
        let Some(family) = self.body_mut(key).map(|body| body.family()) else {
            return;
        };
        let deadline = now.unix().after_ms(u64::from(lease.0));
        let renewed = self.decide(
            key,
            family,
            Change::Renew {
                fence,
                lease,
                deadline,
            },
        );
        if renewed.is_ok()
            && let Some(id) = key.state
        {
            self.set_due(id, fence, now.lease.after(lease));
        }
    }

    /// Returns the milliseconds left of the token's lease, rounded up; 0 if it does not hold or is overdue. A replica
    /// computes them from the written deadline.
    ///
    /// # Errors
    /// See [`Engine::release`].
    pub fn check(
        &self,
        key: &Key<'_>,
        family: Family,
        token: &Token,
        now: Now,
    ) -> Result<u64, WrongType> {
        let hold = self
            .body(key, family)?
            .and_then(|body| body.holds().by_token(token));
        Ok(hold.map_or(0, |hold| self.lease_left_ms(hold, now)))
    }

    pub(crate) fn lease_left_ms(&self, hold: &Hold, now: Now) -> u64 {
        if self.is_serving() {
            self.due(hold).ms_left(now.lease)
        } else {
            hold.deadline().ms_left(now.unix())
        }
    }

    /// Pins the limit for an operator, or unpins it. Returns the limit that was in force before.
    ///
    /// # Errors
    /// See [`Engine::release`].
    pub fn pin_limit(
        &mut self,
        key: &mut Key<'_>,
        limit: Option<u32>,
        now: Now,
    ) -> Result<Option<u32>, WrongType> {
        self.settle_if_absent(key, now);
        let body = self.body(key, Family::Semaphore)?;
        let before = body.and_then(Body::limit_in_force);
        let pinned = body.and_then(|body| body.limits().pinned);
        if pinned != limit {
            let _ = self.decide(key, Family::Semaphore, Change::Pin(limit));
        }
        self.catch_up(key, now);
        self.settle(key, now);
        Ok(before)
    }
}
