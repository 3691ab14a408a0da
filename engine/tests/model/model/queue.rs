//! The requests that wait for a name, and the places that are kept for tokens whose connection closed.

use super::content::{FormerSeat, ModelHold};
use super::lanes::Turns;
use super::{Model, ModelWake, Name};
use crate::server::granted;
use dsync_engine::answer::Answer;
use dsync_engine::types::{Claim, ClientId, LeaseMs, MonoUs, Now, Token};
use dsync_engine::{Family, FullQueue, LaneName, Refusal, Request};

/// What stands at a place.
#[derive(Clone)]
pub enum Sitter {
    Waiting {
        ticket: u64,
        request: Request,
    },
    /// A kept place on which nobody waits.
    Kept {
        request: Request,
    },
    /// With a verdict, that is what the token is told; without, its next request that waits takes the place again.
    Vacant {
        until_us: u64,
        verdict: Option<Answer>,
    },
    /// A WAIT, which claims nothing and delays nobody.
    Watching {
        ticket: u64,
        client: u64,
        wait: MonoUs,
    },
}

/// Returns when a wait runs out, if it does.
fn deadline_us(until: MonoUs) -> Option<u64> {
    (until != MonoUs::NEVER).then_some(until.0)
}

/// How a place is kept, whether a client waits on it or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModelKeep {
    pub ms: u32,
    /// Until when, by the lease clock, if nobody waits on it.
    pub until_us: u64,
    /// When the place was first taken, by the wall clock; `None` if it was lost with a flush, and is computed from the
    /// clocks of two servers.
    pub since_ms: Option<u64>,
}

#[derive(Clone)]
pub struct ModelSeat {
    /// Stays the same when a retry takes over the place.
    pub rank: u64,
    pub claim: Option<Claim>,
    pub lane: LaneName,
    pub token: Option<Token>,
    pub since_us: u64,
    /// Another server has computed `since_us` from the wall clock.
    pub is_moved: bool,
    pub keep: Option<ModelKeep>,
    pub sitter: Sitter,
}

impl ModelSeat {
    /// Returns the request, waiting or kept.
    pub fn request(&self) -> Option<&Request> {
        match &self.sitter {
            Sitter::Waiting { request, .. } | Sitter::Kept { request } => Some(request),
            Sitter::Vacant { .. } | Sitter::Watching { .. } => None,
        }
    }

    /// Returns the ticket of the client that waits.
    pub fn ticket(&self) -> Option<u64> {
        match self.sitter {
            Sitter::Waiting { ticket, .. } | Sitter::Watching { ticket, .. } => Some(ticket),
            Sitter::Kept { .. } | Sitter::Vacant { .. } => None,
        }
    }

    /// The client on a kept place does not wait any more. Returns its ticket; `None` if the place is not kept.
    pub(super) fn detach(&mut self, until_us: u64) -> Option<u64> {
        let (ticket, keep) = (self.ticket()?, self.keep.as_mut()?);
        keep.until_us = until_us;
        let mut request = self.request()?.clone();
        (request.wait, request.client, request.ephemeral) = (None, ClientId::NONE, false);
        self.sitter = Sitter::Kept { request };
        Some(ticket)
    }

    /// Returns until when the place is kept, if nobody waits on it.
    pub fn kept_until_us(&self) -> Option<u64> {
        let is_kept = matches!(self.sitter, Sitter::Kept { .. });
        self.keep.filter(|_| is_kept).map(|keep| keep.until_us)
    }

    pub(super) fn runs_out_us(&self) -> Option<u64> {
        match &self.sitter {
            Sitter::Waiting { request, .. } => request.wait.and_then(deadline_us),
            Sitter::Kept { .. } => None,
            Sitter::Vacant { until_us, .. } => Some(*until_us),
            Sitter::Watching { wait, .. } => deadline_us(*wait),
        }
    }

    pub fn is_vacant(&self) -> bool {
        matches!(self.sitter, Sitter::Vacant { .. })
    }

    /// Returns what the token of this place is told, if its request was decided or withdrawn.
    pub fn verdict(&self) -> Option<&Answer> {
        match &self.sitter {
            Sitter::Vacant { verdict, .. } => verdict.as_ref(),
            _ => None,
        }
    }
}

/// The queue of one name. It stays with the name whatever happens to the value.
#[derive(Clone)]
pub struct ModelQueue {
    pub name: Name,
    /// By rank.
    pub seats: Vec<ModelSeat>,
    /// The turns of the lanes that have places.
    pub(super) turns: Turns,
    /// The rank of the request that was chosen.
    pub(super) chosen: Option<u64>,
    /// For each family, the limit for its waiters if the key is removed: the last one that a request gave or, without
    /// any, the one that an operator pinned.
    pub(super) kept_limits: Vec<(Family, u32)>,
    /// A waiter has left, and its key was not settled since.
    pub(super) left: bool,
}

impl Model {
    pub fn seats(&self, name: Name) -> &[ModelSeat] {
        self.queues
            .iter()
            .find(|queue| queue.name == name)
            .map_or(&[], |queue| &queue.seats)
    }

    pub(super) fn queue(&mut self, name: Name) -> &mut ModelQueue {
        if !self.queues.iter().any(|queue| queue.name == name) {
            self.queues.push(ModelQueue {
                name,
                seats: Vec::new(),
                turns: Turns::default(),
                chosen: None,
                kept_limits: Vec::new(),
                left: false,
            });
        }
        self.queues
            .iter_mut()
            .find(|queue| queue.name == name)
            .expect("just made")
    }

    pub(super) fn kept_limit(&self, name: Name, family: Family) -> Option<u32> {
        let queue = self.queues.iter().find(|queue| queue.name == name)?;
        let kept = queue.kept_limits.iter().find(|(f, _)| *f == family);
        kept.map(|(_, limit)| *limit)
    }

    /// Remembers the limit of the key, as long as the queue has places.
    pub(super) fn remember_limit(&mut self, name: Name) {
        if self.seats(name).is_empty() {
            return self.queue(name).kept_limits.clear();
        }
        let Some(content) = self.content(name) else {
            return;
        };
        let (family, limit) = (content.family, content.asked.or(content.pinned));
        if let Some(limit) = limit.filter(|limit| *limit >= 1) {
            let kept = &mut self.queue(name).kept_limits;
            kept.retain(|(f, _)| *f != family);
            kept.push((family, limit));
        }
    }

    /// Returns the requests that wait for a grant, in the order in which they queued, with their ranks.
    pub fn waiting(&self, name: Name) -> Vec<(u64, Request)> {
        let seats = self.seats(name).iter();
        seats
            .filter_map(|seat| Some((seat.rank, seat.request()?.clone())))
            .collect()
    }

    /// Returns the ranks of the WAITs.
    pub fn watching(&self, name: Name) -> Vec<u64> {
        let seats = self.seats(name).iter();
        seats
            .filter(|seat| matches!(seat.sitter, Sitter::Watching { .. }))
            .map(|seat| seat.rank)
            .collect()
    }

    pub fn kept(&self, name: Name) -> usize {
        let seats = self.seats(name).iter();
        seats.filter(|seat| seat.keep.is_some()).count()
    }

    /// Checks that there is room for one more kept place.
    pub(super) fn check_room_for_kept(
        &self,
        name: Name,
        claim: Claim,
        lane: &LaneName,
    ) -> Result<(), FullQueue> {
        self.check_room_in_lane(name, claim, lane, true)?;
        let per_key = self.settings.max_waiters_per_key / 2;
        let server = self.settings.max_waiters / 2;
        let names = self.queues.iter().map(|queue| queue.name);
        if self.kept(name) as u64 >= per_key {
            return Err(FullQueue::HalfOfKey(per_key));
        }
        if names.map(|name| self.kept(name) as u64).sum::<u64>() >= server {
            return Err(FullQueue::HalfOfServer(server));
        }
        Ok(())
    }

    pub fn waiters(&self, name: Name) -> usize {
        self.seats(name)
            .iter()
            .filter(|seat| !seat.is_vacant())
            .count()
    }

    /// Makes room for one more entry, by giving up vacant places, the oldest first.
    pub(super) fn make_room(&mut self, name: Name) -> Result<(), FullQueue> {
        let bounds = (self.settings.max_waiters_per_key, self.settings.max_waiters);
        while self.seats(name).len() as u64 >= bounds.0 && !self.seats(name).is_empty() {
            let oldest = self.seats(name).iter().position(ModelSeat::is_vacant);
            let oldest = oldest.ok_or(FullQueue::Key(bounds.0))?;
            self.queue(name).seats.remove(oldest);
        }
        while self
            .queues
            .iter()
            .map(|queue| queue.seats.len() as u64)
            .sum::<u64>()
            >= bounds.1
        {
            let vacant = self.queues.iter().flat_map(|queue| {
                let vacant = queue.seats.iter().filter(|seat| seat.is_vacant());
                vacant.map(|seat| (seat.runs_out_us(), seat.rank, queue.name))
            });
            let (_, rank, name) = vacant.min().ok_or(FullQueue::Server(bounds.1))?;
            self.queue(name).seats.retain(|seat| seat.rank != rank);
        }
        Ok(())
    }

    /// Withdraws the token's request in the queue of this family, and answers it if it waits. Returns whether there was
    /// one. With `marks` its token is told so for a while.
    pub(super) fn withdraw(
        &mut self,
        name: Name,
        family: Family,
        token: &Token,
        marks: bool,
        now: Now,
    ) -> bool {
        let is_its = |seat: &&ModelSeat| {
            seat.token.as_ref() == Some(token)
                && seat.claim.is_some_and(|claim| claim.family() == family)
                && seat.verdict().is_none()
        };
        let Some(seat) = self.seats(name).iter().find(is_its).cloned() else {
            return false;
        };
        let at = self.seats(name).iter().position(|s| s.rank == seat.rank);
        self.tell(name, seat.rank, Answer::Withdrawn, now);
        let rejoin_us = self.settings.rejoin_ms * 1_000;
        if marks && rejoin_us > 0 {
            let sitter = Sitter::Vacant {
                until_us: now.mono.0 + rejoin_us,
                verdict: Some(Answer::Withdrawn),
            };
            let mark = ModelSeat {
                keep: None,
                sitter,
                ..seat
            };
            let at = at.expect("it was found");
            self.queue(name).seats.insert(at, mark);
        }
        true
    }

    /// Withdraws the kept place with this number. Returns whether there was one.
    pub(super) fn revoke_place(
        &mut self,
        name: Name,
        family: Family,
        number: u64,
        now: Now,
    ) -> bool {
        let mut seats = self.seats(name).iter();
        let seat = seats.find(|seat| {
            let is_of_family = seat.claim.is_some_and(|claim| claim.family() == family);
            seat.rank == number && seat.keep.is_some() && is_of_family
        });
        let Some(seat) = seat.cloned() else {
            return false;
        };
        self.tell(name, seat.rank, Answer::Withdrawn, now);
        if seat.ticket().is_none() {
            self.announcements.push((name, seat.rank, None));
        }
        true
    }

    /// Notes in the token's hold from which place it was granted.
    pub(super) fn note_former_place(&mut self, name: Name, rank: u64, token: &Token) {
        let mut seats = self.seats(name).iter();
        let seat = seats.find(|seat| seat.rank == rank);
        let former_place = seat
            .filter(|seat| seat.token.is_some() && seat.ticket().is_some())
            .map(|seat| FormerSeat {
                rank: seat.rank,
                since_us: seat.since_us,
                keep: seat.keep,
                bound: seat.request().and_then(|request| request.bound),
            });
        if let Some(content) = self.content_mut(name)
            && let Some(hold) = content.holds.iter_mut().find(|hold| hold.token == *token)
        {
            hold.former_place = former_place;
        }
    }

    /// An undelivered grant has ended: its token gets its place back, kept again or as a vacant one.
    pub(super) fn restore_place(&mut self, name: Name, hold: ModelHold, now: Now) {
        let Some(former) = hold.former_place else {
            return;
        };
        let token = Some(hold.token.clone());
        if self.seats(name).iter().any(|seat| seat.token == token) {
            return;
        }
        let keep = former.keep.map(|keep| ModelKeep {
            until_us: now.lease.0 + u64::from(keep.ms) * 1_000,
            ..keep
        });
        let sitter = match (keep, hold.vacant_until_us) {
            (Some(_), _) if (self.check_room_for_kept(name, hold.claim, &hold.lane)).is_err() => {
                return;
            }
            (Some(_), _) => Sitter::Kept {
                request: Request {
                    claim: hold.claim,
                    limit: None,
                    bound: former.bound,
                    lease: LeaseMs(hold.lease_ms),
                    min_hold: hold.min_hold_ms.map(LeaseMs),
                    wait: None,
                    keep_ms: None,
                    token: hold.token,
                    may_return: true,
                    client: ClientId::NONE,
                    ephemeral: false,
                    owner: hold.owner,
                    lane: hold.lane.clone(),
                    may_grow: true,
                },
            },
            (None, Some(until_us)) => Sitter::Vacant {
                until_us,
                verdict: None,
            },
            (None, None) => return,
        };
        let room = self.check_room_in_lane(name, hold.claim, &hold.lane, false);
        if room.is_err() || self.make_room(name).is_err() {
            return;
        }
        self.come(name, &hold.lane);
        let seats = &mut self.queue(name).seats;
        let at = seats.iter().filter(|seat| seat.rank < former.rank).count();
        let seat = ModelSeat {
            rank: former.rank,
            claim: Some(hold.claim),
            lane: hold.lane,
            token,
            since_us: former.since_us,
            is_moved: false,
            keep,
            sitter,
        };
        seats.insert(at, seat);
    }

    /// Answers the request at this place, which leaves the queue. A decision about a kept place on which nobody waits
    /// is announced. If the key does not tell it, the token is told when it asks again, in what is left of its time.
    pub(super) fn tell(&mut self, name: Name, rank: u64, answer: Answer, now: Now) {
        let seats = &mut self.queue(name).seats;
        let Some(at) = seats.iter().position(|seat| seat.rank == rank) else {
            return;
        };
        let seat = seats.remove(at);
        let is_told_later = matches!(
            answer,
            Answer::GivenUp { .. } | Answer::Refused(Refusal::TooMany { .. } | Refusal::NoLimit)
        );
        if let Some(until_us) = seat.kept_until_us().filter(|_| is_told_later) {
            let left_ms = until_us.saturating_sub(now.lease.0).div_ceil(1_000);
            if left_ms > 0 {
                let sitter = Sitter::Vacant {
                    until_us: now.mono.0 + 1_000 * left_ms,
                    verdict: Some(answer.clone()),
                };
                let told = ModelSeat {
                    keep: None,
                    sitter,
                    ..seat.clone()
                };
                seats.insert(at, told);
            }
        }
        self.queue(name).left |= !seat.is_vacant();
        match seat.ticket() {
            Some(ticket) => self.wakes.push(ModelWake {
                name,
                ticket,
                answer,
            }),
            None if seat.keep.is_some() && answer != Answer::Withdrawn => {
                let fence = granted(&answer).map(|(_, fence)| fence.0);
                self.announcements.push((name, rank, fence));
            }
            None => {}
        }
    }

    pub(super) fn tell_watchers(&mut self, name: Name, answer: &Answer, now: Now) {
        for rank in self.watching(name) {
            self.tell(name, rank, answer.clone(), now);
        }
    }

    /// Removes vacant places too, because what their tokens waited for is gone.
    pub(super) fn tell_all_wrong_type(&mut self, name: Name, now: Now) {
        self.queue(name).seats.retain(|seat| !seat.is_vacant());
        self.tell_watchers(name, &Answer::WrongType, now);
        for (rank, _) in self.waiting(name) {
            self.tell(name, rank, Answer::WrongType, now);
        }
    }
}
