//! Requests that all families have.

use super::content::ModelContent;
use super::queue::{ModelKeep, ModelSeat, Sitter};
use super::{Model, ModelWake, Name, Outcome, Value, ms};
use dsync_engine::answer::Answer;
use dsync_engine::change::End;
use dsync_engine::types::{Claim, Fence, Now, Rank, Token};
use dsync_engine::{Family, LaneName, Refusal, Request};

impl Model {
    pub fn acquire(&mut self, name: Name, request: &Request, now: Now) -> Outcome {
        let family = request.claim.family();
        if self.is_other(name, family) {
            return Outcome::Now(Answer::WrongType);
        }
        if let Some(answer) = self.same_hold(name, request, now) {
            self.settle(name, now);
            return Outcome::Now(answer);
        }
        self.lapse(name, now);
        self.serve(name, now);
        let outcome = if self.is_other(name, family) {
            // The key had been removed, and a waiter of another family was granted it just now.
            Outcome::Now(Answer::WrongType)
        } else if let Some(answer) = self.same_hold(name, request, now) {
            Outcome::Now(answer)
        } else {
            self.new_request(name, request.clone(), now)
        };
        self.settle(name, now);
        match self.answered_meanwhile(outcome) {
            Outcome::Queued(ticket) if request.keep_ms.is_some() => {
                Outcome::Now(self.keep_waiting(name, ticket, now))
            }
            outcome => outcome,
        }
    }

    /// A request with QUEUE was not granted in its call: its place is kept from now on.
    fn keep_waiting(&mut self, name: Name, ticket: u64, now: Now) -> Answer {
        let seats = &mut self.queue(name).seats;
        let seat = seats.iter_mut().find(|seat| seat.ticket() == Some(ticket));
        let seat = seat.expect("it was not answered");
        let (ms, rank) = (seat.keep.expect("it is kept").ms, seat.rank);
        seat.detach(now.lease.0 + u64::from(ms) * 1_000);
        Answer::Waiting {
            position: self.position(name, rank),
            rank: Rank(Fence(rank)),
        }
    }

    /// If a request was decided in the call that queued it, it is answered at once.
    pub(super) fn answered_meanwhile(&mut self, outcome: Outcome) -> Outcome {
        if let Outcome::Queued(ticket) = outcome
            && let Some(at) = self.wakes.iter().position(|wake| wake.ticket == ticket)
        {
            return Outcome::Now(self.wakes.remove(at).answer);
        }
        outcome
    }

    /// If the token holds the key already: returns the same hold, with a new lease from now.
    pub(super) fn same_hold(&mut self, name: Name, request: &Request, now: Now) -> Option<Answer> {
        let hold = self.hold_of(name, &request.token)?;
        if let Some(refusal) = other(hold.claim, &hold.lane, request) {
            return Some(Answer::Refused(refusal));
        }
        let fence = hold.fence;
        self.renew_hold(name, fence, request.lease.0, now);
        let hold = self.hold_mut(name, fence)?;
        (hold.client, hold.ephemeral, hold.ending) = (request.client.0, request.ephemeral, None);
        Some(self.granted(name, &request.token, fence))
    }

    /// Returns the answer to a request that was granted.
    pub(super) fn granted(&self, name: Name, token: &Token, fence: u64) -> Answer {
        let (token, fence) = (token.clone(), Fence(fence));
        match self.content(name) {
            Some(content) if content.family == Family::Once => Answer::Run {
                token,
                fence,
                attempt: content.work.attempts,
            },
            content => {
                let mut holds = content.iter().flat_map(|content| &content.holds);
                let hold = holds.find(|hold| hold.fence == fence.0);
                Answer::Granted {
                    token,
                    fence,
                    index: hold.and_then(|hold| hold.index),
                }
            }
        }
    }

    pub(super) fn new_request(&mut self, name: Name, mut request: Request, now: Now) -> Outcome {
        let queues = request.wait.is_some() || request.keep_ms.is_some();
        let family = request.claim.family();
        let permits = request.claim.permits();
        if let Some(limit) = request.bound.filter(|limit| permits > *limit) {
            return Outcome::Now(Answer::Refused(Refusal::TooManyForLane { permits, limit }));
        }
        // A vacant place of another family is over as soon as its token asks in this one. So is one that was told
        // FAILED, if the work is done now.
        let is_done = (self.content(name)).is_some_and(|content| content.work.done.is_some());
        self.queue(name).seats.retain(|seat| {
            let is_others = seat.claim.is_some_and(|claim| claim.family() != family);
            let is_failed = matches!(seat.verdict(), Some(Answer::GivenUp { .. }));
            let is_over = is_others || is_failed && is_done;
            !(is_over && seat.is_vacant() && seat.token.as_ref() == Some(&request.token))
        });
        let same_token = |seat: &&ModelSeat| seat.token.as_ref() == Some(&request.token);
        let found = self.seats(name).iter().find(same_token);
        if let Some(verdict) = found.and_then(ModelSeat::verdict) {
            return Outcome::Now(verdict.clone());
        }
        if let Some(seat) = self.seats(name).iter().find(same_token) {
            let claim = seat.claim.expect("a WAIT has no token");
            if let Some(refusal) = other(claim, &seat.lane, &request) {
                return Outcome::Now(Answer::Refused(refusal));
            }
            if !queues && !seat.is_vacant() {
                return Outcome::Now(Answer::NotGranted);
            }
            if request.keep_ms.is_some()
                && seat.keep.is_none()
                && let Err(full) = self.check_room_for_kept(name, request.claim, &request.lane)
            {
                return Outcome::Now(Answer::Refused(Refusal::QueueFull(full)));
            }
        }
        // A vacant place does not affect a try, not even one by its own token.
        let stands = self.seats(name).iter().find(same_token);
        if let Some(seat) = stands.filter(|_| queues) {
            let since_ms = ms(now) - (now.mono.0 - seat.since_us) / 1_000;
            let since_ms = Some(since_ms).filter(|_| !seat.is_moved);
            let since_ms = seat.keep.map_or(since_ms, |keep| keep.since_ms);
            let keep = request.keep_ms.map(|ms| ModelKeep {
                ms,
                until_us: 0,
                since_ms,
            });
            let keep = keep.or(seat.keep);
            let (rank, before) = (seat.rank, seat.sitter.clone());
            if let Sitter::Waiting { ticket, .. } = before {
                self.wakes.push(ModelWake {
                    name,
                    ticket,
                    answer: Answer::Superseded,
                });
            }
            let ticket = self.number();
            let seats = &mut self.queue(name).seats;
            let seat = seats
                .iter_mut()
                .find(|seat| seat.rank == rank)
                .expect("found above");
            seat.sitter = Sitter::Waiting { ticket, request };
            seat.keep = keep;
            return Outcome::Queued(ticket);
        }
        let is_first = self.waiting(name).is_empty();
        let content = self.content_mut(name);
        if let Some(answer) = content.and_then(|content| content.work_is_over(&request, is_first)) {
            return Outcome::Now(answer);
        }
        let in_force = self.content(name).and_then(ModelContent::in_force);
        let pinned = self.content(name).and_then(|content| content.pinned);
        let limit = match request.claim {
            Claim::Exclusive | Claim::Shared | Claim::Run => None,
            Claim::Member => request.limit.or(in_force),
            Claim::Permits(_) | Claim::Indexed => {
                let permits = request.claim.permits();
                let Some(limit) = pinned.or(request.limit).or(in_force) else {
                    return Outcome::Now(Answer::Refused(Refusal::NoLimit));
                };
                if limit >= 1 && permits > limit {
                    return Outcome::Now(Answer::Refused(Refusal::TooMany { permits, limit }));
                }
                Some(limit)
            }
        };
        let fits = self
            .content(name)
            .is_none_or(|content| content.fits(request.claim, limit));
        let is_first = self.waiting(name).is_empty()
            || family == Family::Semaphore && self.passes_line(name, &request, limit);
        let is_granted = fits && is_first && self.fits_lane(name, &request);
        if !is_granted && !queues {
            return Outcome::Now(Answer::NotGranted);
        }
        if !request.may_grow {
            return Outcome::Now(Answer::Refused(Refusal::OutOfMemory));
        }
        if is_granted {
            let seats = &mut self.queue(name).seats;
            seats.retain(|seat| seat.token.as_ref() != Some(&request.token));
            return Outcome::Now(self.grant(name, &request, request.limit, None, now));
        }
        let keep = request.keep_ms.map(|keep_ms| ModelKeep {
            ms: keep_ms,
            until_us: 0,
            since_ms: Some(ms(now)),
        });
        let (claim, lane) = (request.claim, request.lane.clone());
        let mut room = self.check_room_in_lane(name, claim, &lane, false);
        if keep.is_some() && room.is_ok() {
            room = self.check_room_for_kept(name, claim, &lane);
        }
        if let Err(full) = room {
            return Outcome::Now(Answer::Refused(Refusal::QueueFull(full)));
        }
        if let Err(full) = self.make_room(name) {
            return Outcome::Now(Answer::Refused(Refusal::QueueFull(full)));
        }
        // The limit takes force when the request enters the queue, and not again later.
        if let Some(limit) = request.limit.take() {
            self.put_in_force(name, request.claim.family(), limit, now);
        }
        if family == Family::Semaphore {
            self.come(name, &lane);
        }
        let (ticket, rank) = (self.number(), self.draw());
        let token = request.may_return.then(|| request.token.clone());
        self.queue(name).seats.push(ModelSeat {
            rank,
            claim: Some(request.claim),
            lane,
            token,
            since_us: now.mono.0,
            is_moved: false,
            keep,
            sitter: Sitter::Waiting { ticket, request },
        });
        self.remember_limit(name);
        Outcome::Queued(ticket)
    }

    pub fn release(&mut self, name: Name, family: Family, token: &Token, now: Now) -> Option<bool> {
        if self.is_other(name, family) {
            return None;
        }
        let held = self.hold_of(name, token);
        let held = held.map(|hold| match hold.ending {
            Some(End::Undelivered) => (hold.fence, End::Undelivered),
            _ => (hold.fence, End::Released),
        });
        if let Some((fence, how)) = held {
            self.end(name, fence, how, now);
        }
        let withdrawn = self.withdraw(name, family, token, held.is_none(), now);
        if held.is_some() || withdrawn {
            self.settle(name, now);
        }
        Some(held.is_some() || withdrawn)
    }

    pub fn revoke(&mut self, name: Name, family: Family, fence: u64, now: Now) -> Option<bool> {
        if self.is_other(name, family) {
            return None;
        }
        if self.revoke_place(name, family, fence, now) {
            self.settle(name, now);
            return Some(true);
        }
        let fence = self.hold_mut(name, fence).map(|hold| hold.fence);
        Some(self.end_and_settle(name, fence, End::Revoked, now))
    }

    pub(super) fn end_and_settle(
        &mut self,
        name: Name,
        fence: Option<u64>,
        how: End,
        now: Now,
    ) -> bool {
        if let Some(fence) = fence {
            self.end(name, fence, how, now);
            self.settle(name, now);
        }
        fence.is_some()
    }

    pub fn renew(
        &mut self,
        name: Name,
        family: Family,
        token: &Token,
        lease_ms: Option<u32>,
        now: Now,
    ) -> Option<bool> {
        if self.is_other(name, family) {
            return None;
        }
        let hold = self
            .hold_of(name, token)
            .map(|hold| (hold.fence, hold.lease_ms));
        if let Some((fence, last)) = hold {
            self.renew_hold(name, fence, lease_ms.unwrap_or(last), now);
            // Its token was heard from, so the lost reply no longer matters. For an EPHEMERAL hold the close of its
            // connection still does.
            if let Some(hold) = self.hold_mut(name, fence)
                && hold.ending == Some(End::Undelivered)
            {
                hold.ending = hold.ephemeral.then_some(End::Disconnected);
            }
            self.settle(name, now);
        }
        Some(hold.is_some())
    }

    pub fn check(&self, name: Name, family: Family, token: &Token, now: Now) -> Option<u64> {
        if self.is_other(name, family) {
            return None;
        }
        let due_us = self.hold_of(name, token).map_or(0, |hold| hold.due_us);
        Some(due_us.saturating_sub(now.lease.0).div_ceil(1_000))
    }

    pub fn pin_limit(&mut self, name: Name, limit: Option<u32>, now: Now) -> Option<Option<u32>> {
        self.serve_removed_key(name, now);
        if self.is_other(name, Family::Semaphore) {
            return None;
        }
        let before = self.content(name).and_then(ModelContent::in_force);
        if limit.is_some() || self.content(name).is_some() {
            self.content_or_new(name, Family::Semaphore, now).pin(limit);
        }
        self.visit(name, now);
        Some(before)
    }

    /// PAUSE. Returns the milliseconds that were left of the pause before.
    pub fn pause(&mut self, name: Name, family: Family, pause_ms: u64, now: Now) -> Option<u64> {
        self.serve_removed_key(name, now);
        if self.is_other(name, family) {
            return None;
        }
        if self.value(name).is_none() && pause_ms > 0 {
            // A key that only a pause keeps has no moment at which anything happened.
            let content = ModelContent::new(family, 0);
            self.values.push((name, Value::State(content)));
        }
        let mut before = None;
        if let Some(content) = self.content_mut(name) {
            before = content.paused_until_ms;
            content.paused_until_ms = (pause_ms > 0).then(|| ms(now) + pause_ms);
        }
        self.visit(name, now);
        Some(before.map_or(0, |until_ms| until_ms.saturating_sub(ms(now))))
    }
}

/// Returns how a request is refused whose token has something else.
fn other(claim: Claim, lane: &LaneName, request: &Request) -> Option<Refusal> {
    let is_same_lane = *lane == request.lane;
    match claim == request.claim {
        true if is_same_lane => None,
        true => Some(Refusal::OtherLane),
        false => Some(Refusal::Mismatch),
    }
}
