//! The requests that wait for a name, and the places that are kept for tokens whose connection closed.

use super::content::ModelHold;
use super::{Model, ModelWake, Name};
use dsync_engine::answer::Answer;
use dsync_engine::types::{Claim, Token};
use dsync_engine::{Family, FullQueue, Request, Wait};

/// What stands at a place.
#[derive(Clone)]
pub enum Sitter {
    Waiting {
        ticket: u64,
        request: Request,
    },
    Vacant {
        until_us: u64,
    },
    /// A WAIT, which claims nothing and delays nobody.
    Watching {
        ticket: u64,
        client: u64,
        wait: Wait,
    },
}

#[derive(Clone)]
pub struct ModelSeat {
    /// Stays the same when a retry takes over the place.
    pub rank: u64,
    pub claim: Option<Claim>,
    pub token: Option<Token>,
    pub since_us: u64,
    pub sitter: Sitter,
}

impl ModelSeat {
    pub(super) fn runs_out_us(&self) -> Option<u64> {
        match &self.sitter {
            Sitter::Waiting { request, .. } => request.wait.and_then(Wait::deadline).map(|at| at.0),
            Sitter::Vacant { until_us } => Some(*until_us),
            Sitter::Watching { wait, .. } => wait.deadline().map(|at| at.0),
        }
    }

    pub fn is_vacant(&self) -> bool {
        matches!(self.sitter, Sitter::Vacant { .. })
    }
}

/// The queue of one name. It stays with the name whatever happens to the value.
#[derive(Clone)]
pub struct ModelQueue {
    pub name: Name,
    /// By rank.
    pub seats: Vec<ModelSeat>,
    /// For each family, the limit for its waiters if the key is removed: the last one that a request gave or, without
    /// any, the one that an operator pinned.
    pub(super) kept_limits: Vec<(Family, u32)>,
    /// A waiter has left since the last visit.
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

    /// Returns the requests that wait for a grant, in the order in which they queued.
    pub fn waiting(&self, name: Name) -> Vec<(u64, Request)> {
        let seats = self.seats(name).iter();
        seats
            .filter_map(|seat| match &seat.sitter {
                Sitter::Waiting { ticket, request } => Some((*ticket, request.clone())),
                _ => None,
            })
            .collect()
    }

    pub fn watching(&self, name: Name) -> Vec<u64> {
        let seats = self.seats(name).iter();
        seats
            .filter_map(|seat| match seat.sitter {
                Sitter::Watching { ticket, .. } => Some(ticket),
                _ => None,
            })
            .collect()
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
            let oldest = oldest.ok_or(FullQueue::Key { bound: bounds.0 })?;
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
                vacant.map(|seat| (seat.runs_out_us(), queue.name, seat.rank))
            });
            let (_, name, rank) = vacant.min().ok_or(FullQueue::Server { bound: bounds.1 })?;
            self.queue(name).seats.retain(|seat| seat.rank != rank);
        }
        Ok(())
    }

    /// Gives up the token's place in the queue of this family, and answers the request that waits there. Returns
    /// whether there was a place.
    pub(super) fn give_up_place(&mut self, name: Name, family: Family, token: &Token) -> bool {
        let is_its = |seat: &ModelSeat| {
            seat.token.as_ref() == Some(token)
                && seat.claim.is_some_and(|claim| claim.family() == family)
        };
        let Some(seat) = self.seats(name).iter().find(|seat| is_its(seat)).cloned() else {
            return false;
        };
        match seat.sitter {
            Sitter::Waiting { ticket, .. } => self.tell(name, ticket, Answer::Withdrawn),
            _ => self.queue(name).seats.retain(|seat| !is_its(seat)),
        }
        true
    }

    /// Notes in the token's hold from which place it was granted.
    pub(super) fn note_former_place(&mut self, name: Name, ticket: u64, token: &Token) {
        let mut seats = self.seats(name).iter();
        let seat = seats
            .find(|seat| matches!(seat.sitter, Sitter::Waiting { ticket: t, .. } if t == ticket));
        let former_place = seat
            .filter(|seat| seat.token.is_some())
            .map(|seat| (seat.rank, seat.since_us));
        if let Some(content) = self.content_mut(name)
            && let Some(hold) = content.holds.iter_mut().find(|hold| hold.token == *token)
        {
            hold.former_place = former_place;
        }
    }

    /// An undelivered grant has ended: its token gets its place back, as a vacant one.
    pub(super) fn restore_place(&mut self, name: Name, hold: ModelHold) {
        let (Some((rank, since_us)), Some(until_us)) = (hold.former_place, hold.vacant_until_us)
        else {
            return;
        };
        let token = Some(hold.token);
        if self.seats(name).iter().any(|seat| seat.token == token) || self.make_room(name).is_err()
        {
            return;
        }
        let seats = &mut self.queue(name).seats;
        let at = seats.iter().filter(|seat| seat.rank < rank).count();
        let sitter = Sitter::Vacant { until_us };
        let claim = Some(hold.claim);
        seats.insert(
            at,
            ModelSeat {
                rank,
                claim,
                token,
                since_us,
                sitter,
            },
        );
    }

    /// Answers the waiter, which leaves the queue.
    pub(super) fn tell(&mut self, name: Name, ticket: u64, answer: Answer) {
        self.queue(name).seats.retain(|seat| match seat.sitter {
            Sitter::Waiting { ticket: t, .. } | Sitter::Watching { ticket: t, .. } => t != ticket,
            Sitter::Vacant { .. } => true,
        });
        self.wakes.push(ModelWake {
            name,
            ticket,
            answer,
        });
    }

    pub(super) fn tell_watchers(&mut self, name: Name, answer: &Answer) {
        for ticket in self.watching(name) {
            self.tell(name, ticket, answer.clone());
        }
    }

    /// Removes vacant places too, because what their tokens waited for is gone.
    pub(super) fn tell_all_wrong_type(&mut self, name: Name) {
        self.queue(name).seats.retain(|seat| !seat.is_vacant());
        self.tell_watchers(name, &Answer::WrongType);
        for (ticket, _) in self.waiting(name) {
            self.tell(name, ticket, Answer::WrongType);
        }
    }
}
