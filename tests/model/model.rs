//! The naive model: what locks, semaphores and wait groups do, written from the contract alone.
//!
//! Everything is a plain list that is searched from the front; nothing is indexed, cached or put off,
//! and every visit of a key looks at everything there is to see. It shares with the engine the
//! newtypes, [`Request`] and [`Answer`], and no rule. Deliberately absent: slices (nobody is answered
//! later than at the next look), budgets, and memory of which key is due: [`Model::tick`] looks at all
//! of them, so whatever the engine forgets to look at shows as a difference.
//!
//! Fences are counted here, 1, 2, 3 …; the engine's follow its clock. Only their order is compared.

use crate::engine::answer::Answer;
use crate::engine::change::{Change, End, Limits, Tally};
use crate::engine::types::{Claim, Fence, Now, Token, UnixMs};
use crate::engine::{Family, FullQueue, Refusal, Request, Settings, Wait};

/// A database and the number of a key in it.
pub type Name = (i32, u8);

/// What the timer's resolution makes of a lease: it is found overdue at the next whole tick.
pub const TICK_US: u64 = 1_024;

#[derive(Clone)]
pub struct Hold {
    pub fence: u64,
    pub token: Token,
    pub claim: Claim,
    pub lease_ms: u32,
    pub due_us: u64,
    pub deadline_ms: u64,
    pub granted_ms: u64,
    pub renewed: bool,
    pub owner: Option<Box<[u8]>>,
    pub client: u64,
    pub ephemeral: bool,
    /// Its connection is known to be gone; it ends at the next tick.
    pub ending: Option<End>,
    /// Rank and age of the place at which its token waited for it, if the client chose the token.
    origin: Option<(u64, u64)>,
    /// How long that place is kept for a grant that could not be delivered.
    vacant_until_us: Option<u64>,
}

#[derive(Clone)]
pub struct Content {
    pub family: Family,
    pub holds: Vec<Hold>,
    /// What requests last asked for.
    pub asked: Option<u32>,
    pub pinned: Option<u32>,
    pub limit_changes: u64,
    pub expected: Option<u32>,
    pub done: u64,
    pub lost: u64,
    pub touched_ms: u64,
    pub finished_ms: Option<u64>,
    /// When a visit last found that somebody had been waiting.
    pub waited_ms: u64,
}

impl Content {
    fn new(family: Family, at_ms: u64) -> Content {
        Content {
            family,
            holds: Vec::new(),
            asked: None,
            pinned: None,
            limit_changes: 0,
            expected: None,
            done: 0,
            lost: 0,
            touched_ms: at_ms,
            finished_ms: None,
            waited_ms: 0,
        }
    }

    pub fn in_force(&self) -> Option<u32> {
        self.pinned.or(self.asked)
    }

    pub fn owed(&self) -> u64 {
        self.expected
            .map_or(0, |jobs| u64::from(jobs).saturating_sub(self.done))
    }

    pub fn permits_held(&self) -> u64 {
        self.holds
            .iter()
            .map(|hold| u64::from(hold.claim.permits()))
            .sum()
    }

    fn fits(&self, claim: Claim, limit: Option<u32>) -> bool {
        match claim {
            Claim::Exclusive => self.holds.is_empty(),
            Claim::Shared => self.holds.iter().all(|hold| hold.claim == Claim::Shared),
            Claim::Permits(n) => {
                limit.is_some_and(|limit| self.permits_held() + u64::from(n) <= u64::from(limit))
            }
            Claim::Member => limit.is_none_or(|limit| (self.holds.len() as u64) < u64::from(limit)),
            other => panic!("{other:?} is not modelled"),
        }
    }

    fn ask(&mut self, limit: u32) {
        let before = (self.in_force(), self.asked);
        self.asked = Some(limit);
        let changed = match self.family {
            Family::Group => before.1.is_some() && before.1 != self.asked,
            _ => before.0.is_some() && before.0 != self.in_force(),
        };
        self.limit_changes += u64::from(changed);
    }

    fn pin(&mut self, limit: Option<u32>) {
        let before = self.in_force();
        self.pinned = limit;
        self.limit_changes += u64::from(before.is_some() && before != self.in_force());
    }

    /// An ADD or EXPECT: the next round, if the last one is over.
    fn begin(&mut self, at_ms: u64) {
        if self.finished_ms.take().is_some() {
            (self.expected, self.done, self.lost) = (None, 0, 0);
        }
        self.touched_ms = self.touched_ms.max(at_ms);
    }

    /// What replicas and files must agree on besides the holds.
    pub fn scalars(&self) -> Option<Change> {
        match self.family {
            Family::Semaphore => Some(Change::Limits(Limits {
                limit: self.asked,
                pinned: self.pinned,
                changes: self.limit_changes,
            })),
            Family::Group => Some(Change::Tally(Tally {
                limit: self.asked,
                limit_changes: self.limit_changes,
                expected: self.expected,
                done: self.done,
                lost: self.lost,
                touched: UnixMs(self.touched_ms),
                finished: self.finished_ms.map(UnixMs),
            })),
            _ => None,
        }
    }
}

/// What the keyspace has under a name.
#[derive(Clone)]
pub enum Value {
    State(Content),
    /// A string, say.
    Foreign,
}

/// Who is in a seat.
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
pub struct Seat {
    /// Kept when the place is taken over or resumed.
    pub rank: u64,
    pub claim: Option<Claim>,
    pub token: Option<Token>,
    pub since_us: u64,
    pub sitter: Sitter,
}

impl Seat {
    fn runs_out_us(&self) -> Option<u64> {
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

/// Those who wait for a name. They stay with it whatever becomes of the value.
#[derive(Clone)]
pub struct Queue {
    pub name: Name,
    /// By rank.
    pub seats: Vec<Seat>,
    /// What the queue goes by when its key is gone: what requests of this family last asked for here or,
    /// failing that, what the operator had set.
    kept_limits: Vec<(Family, u32)>,
    /// Somebody left who was waiting, and no visit has seen it.
    left: bool,
}

#[derive(Clone, Debug)]
pub enum Outcome {
    Now(Answer),
    Queued(u64),
}

pub struct Wake {
    pub name: Name,
    pub ticket: u64,
    pub answer: Answer,
}

pub struct Model {
    pub settings: Settings,
    pub values: Vec<(Name, Value)>,
    pub queues: Vec<Queue>,
    pub wakes: Vec<Wake>,
    last_fence: u64,
    last_number: u64,
}

fn ms(now: Now) -> u64 {
    now.unix_us / 1_000
}

impl Model {
    pub fn new(settings: Settings) -> Model {
        Model {
            settings,
            values: Vec::new(),
            queues: Vec::new(),
            wakes: Vec::new(),
            last_fence: 0,
            last_number: 0,
        }
    }

    // Looking things up.

    pub fn value(&self, name: Name) -> Option<&Value> {
        self.values
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, value)| value)
    }

    pub fn content(&self, name: Name) -> Option<&Content> {
        match self.value(name) {
            Some(Value::State(content)) => Some(content),
            _ => None,
        }
    }

    fn content_mut(&mut self, name: Name) -> Option<&mut Content> {
        match self.values.iter_mut().find(|(n, _)| *n == name) {
            Some((_, Value::State(content))) => Some(content),
            _ => None,
        }
    }

    fn is_foreign(&self, name: Name) -> bool {
        matches!(self.value(name), Some(Value::Foreign))
    }

    fn is_other(&self, name: Name, family: Family) -> bool {
        match self.value(name) {
            None => false,
            Some(Value::Foreign) => true,
            Some(Value::State(content)) => content.family != family,
        }
    }

    pub fn seats(&self, name: Name) -> &[Seat] {
        self.queues
            .iter()
            .find(|queue| queue.name == name)
            .map_or(&[], |queue| &queue.seats)
    }

    fn queue(&mut self, name: Name) -> &mut Queue {
        if !self.queues.iter().any(|queue| queue.name == name) {
            self.queues.push(Queue {
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

    fn kept_limit(&self, name: Name, family: Family) -> Option<u32> {
        let queue = self.queues.iter().find(|queue| queue.name == name)?;
        let kept = queue.kept_limits.iter().rev();
        kept.into_iter()
            .find(|(of, _)| *of == family)
            .map(|(_, limit)| *limit)
    }

    /// Those who wait to be granted, first come first.
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

    fn hold_of(&self, name: Name, token: &Token) -> Option<&Hold> {
        self.content(name)?
            .holds
            .iter()
            .find(|hold| hold.token == *token)
    }

    fn hold_mut(&mut self, name: Name, fence: u64) -> Option<&mut Hold> {
        self.content_mut(name)?
            .holds
            .iter_mut()
            .find(|hold| hold.fence == fence)
    }

    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    // What clients ask for.

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
            // The key had been removed, and somebody who waited for it was served just now.
            Outcome::Now(Answer::WrongType)
        } else if let Some(answer) = self.same_hold(name, request, now) {
            Outcome::Now(answer)
        } else {
            self.new_request(name, request.clone(), now)
        };
        self.settle(name, now);
        self.told_meanwhile(outcome)
    }

    /// A request that was decided in the call that queued it is answered at once.
    fn told_meanwhile(&mut self, outcome: Outcome) -> Outcome {
        if let Outcome::Queued(ticket) = outcome
            && let Some(at) = self.wakes.iter().position(|wake| wake.ticket == ticket)
        {
            return Outcome::Now(self.wakes.remove(at).answer);
        }
        outcome
    }

    /// The token holds the key already: the same hold again, its lease from now.
    fn same_hold(&mut self, name: Name, request: &Request, now: Now) -> Option<Answer> {
        let hold = self.hold_of(name, &request.token)?;
        if hold.claim != request.claim {
            return Some(Answer::Refused(Refusal::Mismatch));
        }
        let fence = hold.fence;
        self.renew_hold(name, fence, request.lease.0, now);
        let hold = self.hold_mut(name, fence)?;
        (hold.client, hold.ephemeral, hold.ending) = (request.client.0, request.ephemeral, None);
        Some(Answer::Granted {
            token: request.token.clone(),
            fence: Fence(fence),
        })
    }

    fn new_request(&mut self, name: Name, mut request: Request, now: Now) -> Outcome {
        let same_token = |seat: &&Seat| seat.token.as_ref() == Some(&request.token);
        if let Some(seat) = self.seats(name).iter().find(same_token) {
            if seat.claim != Some(request.claim) {
                return Outcome::Now(Answer::Refused(Refusal::Mismatch));
            }
            if request.wait.is_none() && !seat.is_vacant() {
                return Outcome::Now(Answer::NotGranted);
            }
        }
        // A vacant place is nothing to a try, not even to its own token's.
        let stands = self.seats(name).iter().find(same_token);
        if let Some(seat) = stands.filter(|_| request.wait.is_some()) {
            let (rank, before) = (seat.rank, seat.sitter.clone());
            if let Sitter::Waiting { ticket, .. } = before {
                self.wakes.push(Wake {
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
            return Outcome::Queued(ticket);
        }
        let family = request.claim.family();
        let in_force = self.content(name).and_then(Content::in_force);
        let pinned = self.content(name).and_then(|content| content.pinned);
        let limit = match request.claim {
            Claim::Exclusive | Claim::Shared => None,
            Claim::Member => request.limit.or(in_force),
            Claim::Permits(permits) => {
                let Some(limit) = pinned.or(request.limit).or(in_force) else {
                    return Outcome::Now(Answer::Refused(Refusal::NoLimit));
                };
                if limit >= 1 && permits > limit {
                    return Outcome::Now(Answer::Refused(Refusal::TooMany { permits, limit }));
                }
                Some(limit)
            }
            other => panic!("{other:?} is not modelled"),
        };
        let fits = self
            .content(name)
            .is_none_or(|content| content.fits(request.claim, limit));
        if fits && self.waiting(name).is_empty() {
            self.give_up_place(name, family, &request.token);
            return Outcome::Now(self.grant(name, &request, request.limit, now));
        }
        if request.wait.is_none() {
            return Outcome::Now(Answer::NotGranted);
        }
        if let Err(full) = self.make_room(name) {
            return Outcome::Now(Answer::Refused(Refusal::QueueFull(full)));
        }
        // Its limit takes force as it enters the queue, and never again.
        if let Some(limit) = request.limit.take() {
            self.put_in_force(name, request.claim.family(), limit, now);
        }
        self.remember_limit(name);
        let (ticket, rank) = (self.number(), self.number());
        let token = request.may_return.then(|| request.token.clone());
        self.queue(name).seats.push(Seat {
            rank,
            claim: Some(request.claim),
            token,
            since_us: now.mono.0,
            sitter: Sitter::Waiting { ticket, request },
        });
        Outcome::Queued(ticket)
    }

    /// One more must fit; vacant places go first, the oldest of them first of all.
    fn make_room(&mut self, name: Name) -> Result<(), FullQueue> {
        let bounds = (self.settings.max_waiters_per_key, self.settings.max_waiters);
        while self.seats(name).len() as u64 >= bounds.0 && !self.seats(name).is_empty() {
            let oldest = self.seats(name).iter().position(Seat::is_vacant);
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

    pub fn release(&mut self, name: Name, family: Family, token: &Token, now: Now) -> Option<bool> {
        if self.is_other(name, family) {
            return None;
        }
        let fence = self.hold_of(name, token).map(|hold| hold.fence);
        if let Some(fence) = fence {
            self.end(name, fence, End::Released, now);
        }
        let given_up = self.give_up_place(name, family, token);
        if fence.is_some() || given_up {
            self.settle(name, now);
        }
        Some(fence.is_some() || given_up)
    }

    /// The token's place in the queue of this family goes; who waits there is told.
    fn give_up_place(&mut self, name: Name, family: Family, token: &Token) -> bool {
        let is_its = |seat: &Seat| {
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

    pub fn revoke(&mut self, name: Name, family: Family, fence: u64, now: Now) -> Option<bool> {
        if self.is_other(name, family) {
            return None;
        }
        let fence = self.hold_mut(name, fence).map(|hold| hold.fence);
        Some(self.end_and_settle(name, fence, End::Revoked, now))
    }

    fn end_and_settle(&mut self, name: Name, fence: Option<u64>, how: End, now: Now) -> bool {
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

    pub fn done(&mut self, name: Name, tokens: &[Token], now: Now) -> Option<u64> {
        if self.is_other(name, Family::Group) {
            return None;
        }
        let mut ended = 0;
        for token in tokens {
            if let Some(fence) = self.hold_of(name, token).map(|hold| hold.fence) {
                self.end(name, fence, End::Done, now);
                ended += 1;
            }
        }
        if ended > 0 {
            self.settle(name, now);
        }
        Some(ended)
    }

    pub fn expect(&mut self, name: Name, jobs: u32, now: Now) -> Option<u64> {
        self.serve_the_bereaved(name, now);
        if self.is_other(name, Family::Group) {
            return None;
        }
        let content = self.content_or_new(name, Family::Group, now);
        content.begin(ms(now));
        content.expected = Some(jobs);
        let owed = content.owed();
        self.visit(name, now);
        Some(owed)
    }

    pub fn pin_limit(&mut self, name: Name, limit: Option<u32>, now: Now) -> Option<Option<u32>> {
        self.serve_the_bereaved(name, now);
        if self.is_other(name, Family::Semaphore) {
            return None;
        }
        let before = self.content(name).and_then(Content::in_force);
        if limit.is_some() || self.content(name).is_some() {
            self.content_or_new(name, Family::Semaphore, now).pin(limit);
        }
        self.visit(name, now);
        Some(before)
    }

    pub fn wait(&mut self, name: Name, wait: Option<Wait>, client: u64, now: Now) -> Outcome {
        self.serve_the_bereaved(name, now);
        if self.is_other(name, Family::Group) {
            return Outcome::Now(Answer::WrongType);
        }
        self.visit(name, now);
        let Some(content) = self.content(name) else {
            return Outcome::Now(Answer::Finished { done: 0, lost: 0 });
        };
        if content.finished_ms.is_some() {
            return Outcome::Now(Answer::Finished {
                done: content.done,
                lost: content.lost,
            });
        }
        let Some(wait) = wait else {
            return Outcome::Now(Answer::NotGranted);
        };
        if let Err(full) = self.make_room(name) {
            return Outcome::Now(Answer::Refused(Refusal::QueueFull(full)));
        }
        let (ticket, rank) = (self.number(), self.number());
        self.queue(name).seats.push(Seat {
            rank,
            claim: None,
            token: None,
            since_us: now.mono.0,
            sitter: Sitter::Watching {
                ticket,
                client,
                wait,
            },
        });
        self.settle(name, now);
        self.told_meanwhile(Outcome::Queued(ticket))
    }

    // What happens to connections and keys.

    pub fn disconnected(&mut self, client: u64, now: Now) {
        let rejoin_us = self.settings.rejoin_ms * 1_000;
        for queue in &mut self.queues {
            let seat_of_client = queue.seats.iter().position(|seat| match &seat.sitter {
                Sitter::Waiting { request, .. } => request.client.0 == client,
                Sitter::Watching {
                    client: watcher, ..
                } => *watcher == client,
                Sitter::Vacant { .. } => false,
            });
            let Some(at) = seat_of_client else { continue };
            queue.left = true;
            if queue.seats[at].token.is_some() && rejoin_us > 0 {
                queue.seats[at].sitter = Sitter::Vacant {
                    until_us: now.mono.0 + rejoin_us,
                };
            } else {
                queue.seats.remove(at);
            }
        }
        for hold in self.values.iter_mut().flat_map(|(_, value)| match value {
            Value::State(content) => content.holds.iter_mut(),
            Value::Foreign => [].iter_mut(),
        }) {
            if hold.ephemeral && hold.client == client && hold.ending.is_none() {
                hold.ending = Some(End::Disconnected);
            }
        }
    }

    /// The waiter is gone for good: its connection lives, and may not come back to the place.
    pub fn leave(&mut self, ticket: u64) {
        for queue in &mut self.queues {
            let before = queue.seats.len();
            queue.seats.retain(|seat| match seat.sitter {
                Sitter::Waiting { ticket: t, .. } | Sitter::Watching { ticket: t, .. } => {
                    t != ticket
                }
                Sitter::Vacant { .. } => true,
            });
            queue.left |= queue.seats.len() < before;
        }
    }

    pub fn undelivered(&mut self, name: Name, fence: u64, client: u64, closed: bool, now: Now) {
        let rejoin_us = self.settings.rejoin_ms * 1_000;
        let keeps = closed && rejoin_us > 0;
        if let Some(hold) = self
            .hold_mut(name, fence)
            .filter(|hold| hold.client == client)
        {
            hold.ending = Some(End::Undelivered);
            hold.vacant_until_us = keeps.then_some(now.mono.0 + rejoin_us);
        }
    }

    pub fn delete(&mut self, name: Name) {
        self.values.retain(|(n, _)| *n != name);
    }

    pub fn overwrite(&mut self, name: Name) {
        self.delete(name);
        self.values.push((name, Value::Foreign));
    }

    pub fn rename(&mut self, from: Name, to: Name) {
        self.delete(to);
        for (name, _) in self.values.iter_mut().filter(|(name, _)| *name == from) {
            *name = to;
        }
    }

    pub fn flush(&mut self, db: Option<i32>) {
        self.values
            .retain(|((d, _), _)| db.is_some_and(|db| *d != db));
    }

    pub fn swap(&mut self, a: i32, b: i32) {
        for ((db, _), _) in &mut self.values {
            *db = if *db == a {
                b
            } else if *db == b {
                a
            } else {
                *db
            };
        }
    }

    /// Everybody who waits, vacant places aside, is sent away.
    pub fn dismiss_all(&mut self) {
        for queue in std::mem::take(&mut self.queues) {
            for seat in queue.seats {
                if let Sitter::Waiting { ticket, .. } | Sitter::Watching { ticket, .. } =
                    seat.sitter
                {
                    self.wakes.push(Wake {
                        name: queue.name,
                        ticket,
                        answer: Answer::Demoted,
                    });
                }
            }
        }
    }

    /// Another server, or the same one in a new life, decides from here on: `knows_clients` says
    /// whether it still has the connections that holds were given to.
    pub fn take_over(&mut self, now: Now, knows_clients: bool) {
        self.queues.clear();
        let grace_ms = self.settings.takeover_grace_ms;
        for (_, value) in &mut self.values {
            let Value::State(content) = value else {
                continue;
            };
            content.waited_ms = if knows_clients { content.waited_ms } else { 0 };
            for hold in &mut content.holds {
                let rest_ms = hold.deadline_ms.saturating_sub(ms(now)) + grace_ms;
                hold.due_us = now.lease.0 + 1_000 * rest_ms.min(u64::from(hold.lease_ms));
                hold.ephemeral = false;
                hold.ending = None;
                if !knows_clients {
                    hold.client = 0;
                }
            }
        }
    }

    // What comes due by itself.

    /// Everything that is due, for every key there is.
    pub fn tick(&mut self, now: Now) {
        let mut names: Vec<Name> = self.values.iter().map(|(name, _)| *name).collect();
        names.extend(self.queues.iter().map(|queue| queue.name));
        names.sort_unstable();
        names.dedup();
        if now.may_write {
            while let Some((name, hold)) = self.first_ending() {
                let how = hold.ending.expect("it is ending");
                self.end(name, hold.fence, how, now);
                if how == End::Undelivered {
                    self.stand_again(name, hold);
                }
                self.visit(name, now);
            }
            names.iter().for_each(|name| self.visit(*name, now));
        }
        // Grants win over waits that run out, so each is preceded by a visit.
        while let Some((_, rank, name)) = self.first_to_run_out(now) {
            self.lapse(name, now);
            self.serve(name, now);
            if self.is_foreign(name) {
                self.tell_all_wrong_type(name);
            }
            let seats = self.seats(name).iter();
            if let Some(seat) = seats.clone().find(|seat| seat.rank == rank) {
                if let Sitter::Waiting { ticket, .. } | Sitter::Watching { ticket, .. } =
                    seat.sitter
                {
                    self.wakes.push(Wake {
                        name,
                        ticket,
                        answer: Answer::NotGranted,
                    });
                    self.queue(name).left = true;
                }
                self.queue(name).seats.retain(|seat| seat.rank != rank);
            }
            self.visit(name, now);
        }
    }

    /// The oldest hold whose connection is known to be gone.
    fn first_ending(&self) -> Option<(Name, Hold)> {
        let holds = self.values.iter().flat_map(|(name, value)| match value {
            Value::State(content) => content.holds.iter().map(|hold| (*name, hold)).collect(),
            Value::Foreign => Vec::new(),
        });
        holds
            .filter(|(_, hold)| hold.ending.is_some())
            .min_by_key(|(_, hold)| hold.fence)
            .map(|(name, hold)| (name, hold.clone()))
    }

    fn first_to_run_out(&self, now: Now) -> Option<(u64, u64, Name)> {
        let seats = self.queues.iter().flat_map(|queue| {
            let due = queue
                .seats
                .iter()
                .filter_map(|seat| Some((seat.runs_out_us()?, seat.rank)));
            due.map(|(moment, rank)| (moment, rank, queue.name))
        });
        seats.filter(|(moment, ..)| *moment <= now.mono.0).min()
    }

    /// Microseconds until the first thing is due that nobody has to ask for.
    pub fn next_event(&self, now: Now) -> Option<u64> {
        let seats = self.queues.iter().flat_map(|queue| &queue.seats);
        let waits = seats
            .filter_map(|seat| Some(seat.runs_out_us()?.saturating_sub(now.mono.0)))
            .min();
        if !now.may_write {
            return waits;
        }
        let contents = self.values.iter().filter_map(|(name, value)| match value {
            Value::State(content) => Some((*name, content)),
            Value::Foreign => None,
        });
        let mut first = waits;
        for (name, content) in contents {
            for hold in &content.holds {
                let at = hold.due_us.div_ceil(TICK_US) * TICK_US;
                first = first
                    .into_iter()
                    .chain([at.saturating_sub(now.lease.0)])
                    .min();
            }
            // A vacant place is no waiter; yet while one is kept, how long a group has been idle is
            // not said to the millisecond.
            let exact = content.finished_ms.is_some() || self.settings.rejoin_ms == 0;
            let unused = content.holds.is_empty() && self.waiters(name) == 0;
            if content.family == Family::Group && unused && exact {
                let left_ms = self.kept_until_ms(content).saturating_sub(ms(now));
                first = first.into_iter().chain([left_ms * 1_000]).min();
            }
        }
        first
    }

    // The rules.

    fn visit(&mut self, name: Name, now: Now) {
        self.lapse(name, now);
        self.settle(name, now);
    }

    /// An absent key that somebody waits for was removed a moment ago: they were here first.
    fn serve_the_bereaved(&mut self, name: Name, now: Now) {
        if self.value(name).is_none() {
            self.settle(name, now);
        }
    }

    fn lapse(&mut self, name: Name, now: Now) {
        if !now.may_write {
            return;
        }
        while let Some(fence) = self.content(name).and_then(|content| {
            let overdue = content
                .holds
                .iter()
                .filter(|hold| hold.due_us <= now.lease.0);
            overdue
                .min_by_key(|hold| (hold.due_us, hold.fence))
                .map(|hold| hold.fence)
        }) {
            self.end(name, fence, End::Lapsed, now);
        }
    }

    fn end(&mut self, name: Name, fence: u64, how: End, now: Now) {
        let Some(content) = self.content_mut(name) else {
            return;
        };
        content.holds.retain(|hold| hold.fence != fence);
        if content.family == Family::Group {
            match how {
                End::Done => content.done += 1,
                End::Lapsed | End::Revoked | End::Disconnected => content.lost += 1,
                End::Released | End::Undelivered => {}
            }
            content.touched_ms = content.touched_ms.max(ms(now));
        }
    }

    fn renew_hold(&mut self, name: Name, fence: u64, lease_ms: u32, now: Now) {
        let Some(hold) = self.hold_mut(name, fence) else {
            return;
        };
        hold.lease_ms = lease_ms;
        hold.due_us = now.lease.0 + u64::from(lease_ms) * 1_000;
        hold.deadline_ms = ms(now) + u64::from(lease_ms);
        hold.renewed = true;
    }

    fn settle(&mut self, name: Name, now: Now) {
        let before = self.waiters(name) > 0;
        self.serve(name, now);
        let waited = self.waiters(name) > 0;
        let left = std::mem::take(&mut self.queue(name).left);
        if let Some(content) = self.content_mut(name)
            && (before || waited || left)
        {
            content.waited_ms = content.waited_ms.max(ms(now));
        }
        if now.may_write && self.is_at_its_end(name, waited, now) {
            self.delete(name);
        }
        self.queues
            .retain(|queue| queue.name != name || !queue.seats.is_empty());
    }

    fn kept_until_ms(&self, content: &Content) -> u64 {
        let idle_from = content.touched_ms.max(content.waited_ms);
        content
            .finished_ms
            .unwrap_or(idle_from + self.settings.group_idle_ms)
    }

    fn is_at_its_end(&self, name: Name, waited: bool, now: Now) -> bool {
        let Some(content) = self.content(name) else {
            return false;
        };
        content.holds.is_empty()
            && match content.family {
                Family::Semaphore => content.pinned.is_none() && !waited,
                Family::Group => !waited && self.kept_until_ms(content) <= ms(now),
                _ => true,
            }
    }

    fn content_or_new(&mut self, name: Name, family: Family, now: Now) -> &mut Content {
        if self.value(name).is_none() {
            self.values
                .push((name, Value::State(Content::new(family, ms(now)))));
        }
        self.content_mut(name).expect("no foreign value gets here")
    }

    fn put_in_force(&mut self, name: Name, family: Family, limit: u32, now: Now) {
        let content = self.content_or_new(name, family, now);
        if content.asked != Some(limit) {
            content.ask(limit);
        }
    }

    fn remember_limit(&mut self, name: Name) {
        let kept = self.content(name).and_then(|content| {
            let limit = content.asked.or(content.pinned)?;
            (limit >= 1).then_some((content.family, limit))
        });
        if let Some(kept) = kept {
            self.queue(name).kept_limits.push(kept);
        }
    }

    fn grant(&mut self, name: Name, request: &Request, limit: Option<u32>, now: Now) -> Answer {
        self.last_fence += 1;
        let fence = self.last_fence;
        let family = request.claim.family();
        if let Some(limit) = limit {
            self.put_in_force(name, family, limit, now);
        }
        let content = self.content_or_new(name, family, now);
        content.begin(ms(now));
        content.holds.push(Hold {
            fence,
            token: request.token.clone(),
            claim: request.claim,
            lease_ms: request.lease.0,
            due_us: now.lease.0 + u64::from(request.lease.0) * 1_000,
            deadline_ms: ms(now) + u64::from(request.lease.0),
            granted_ms: ms(now),
            renewed: false,
            owner: request.owner.clone(),
            client: request.client.0,
            ephemeral: request.ephemeral,
            ending: None,
            origin: None,
            vacant_until_us: None,
        });
        Answer::Granted {
            token: request.token.clone(),
            fence: Fence(fence),
        }
    }

    /// The token's hold is granted from this waiter's place.
    fn note_origin(&mut self, name: Name, ticket: u64, token: &Token) {
        let mut seats = self.seats(name).iter();
        let seat = seats
            .find(|seat| matches!(seat.sitter, Sitter::Waiting { ticket: t, .. } if t == ticket));
        let origin = seat
            .filter(|seat| seat.token.is_some())
            .map(|seat| (seat.rank, seat.since_us));
        if let Some(content) = self.content_mut(name)
            && let Some(hold) = content.holds.iter_mut().find(|hold| hold.token == *token)
        {
            hold.origin = origin;
        }
    }

    /// A grant that was not delivered has ended: its token has its place again for a while.
    fn stand_again(&mut self, name: Name, hold: Hold) {
        let (Some((rank, since_us)), Some(until_us)) = (hold.origin, hold.vacant_until_us) else {
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
            Seat {
                rank,
                claim,
                token,
                since_us,
                sitter,
            },
        );
    }

    /// Tells the waiter, whose seat is free then.
    fn tell(&mut self, name: Name, ticket: u64, answer: Answer) {
        self.queue(name).seats.retain(|seat| match seat.sitter {
            Sitter::Waiting { ticket: t, .. } | Sitter::Watching { ticket: t, .. } => t != ticket,
            Sitter::Vacant { .. } => true,
        });
        self.wakes.push(Wake {
            name,
            ticket,
            answer,
        });
    }

    fn tell_watchers(&mut self, name: Name, answer: &Answer) {
        for ticket in self.watching(name) {
            self.tell(name, ticket, answer.clone());
        }
    }

    /// Vacant places go too: what their tokens asked for is no more.
    fn tell_all_wrong_type(&mut self, name: Name) {
        self.queue(name).seats.retain(|seat| !seat.is_vacant());
        self.tell_watchers(name, &Answer::WrongType);
        for (ticket, _) in self.waiting(name) {
            self.tell(name, ticket, Answer::WrongType);
        }
    }

    /// Answers from the front whoever can be answered, until the first who cannot.
    fn serve(&mut self, name: Name, now: Now) {
        if !now.may_write {
            return;
        }
        self.remember_limit(name);
        loop {
            if self.is_foreign(name) {
                return self.tell_all_wrong_type(name);
            }
            let content = self.content(name);
            let is_group = content.is_some_and(|content| content.family == Family::Group);
            match content {
                Some(_) if is_group => {}
                Some(_) => self.tell_watchers(name, &Answer::WrongType),
                None => self.tell_watchers(name, &Answer::Removed),
            }
            let waiting = self.waiting(name);
            self.finish_if_over(name, waiting.is_empty(), now);
            let content = self.content(name);
            let waits_for = waiting.first().map(|(_, head)| head.claim.family());
            let kept = waits_for.and_then(|family| self.kept_limit(name, family));
            let limit = content.map_or(kept, Content::in_force);
            let family = content.map(|content| content.family);
            let is_other = |claim: Claim| family.is_some_and(|family| family != claim.family());
            if let Some(limit) = limit.filter(|limit| *limit >= 1)
                && let Some((ticket, request)) = waiting.iter().find(|(_, request)| {
                    matches!(request.claim, Claim::Permits(n) if n > limit)
                        && !is_other(request.claim)
                })
            {
                let permits = request.claim.permits();
                let refusal = Refusal::TooMany { permits, limit };
                self.tell(name, *ticket, Answer::Refused(refusal));
                continue;
            }
            let Some((ticket, head)) = waiting.first() else {
                return;
            };
            if is_other(head.claim) {
                self.tell(name, *ticket, Answer::WrongType);
                continue;
            }
            // A hold that came with a renamed or exchanged key: the waiter has it already.
            if let Some(answer) = self.same_hold(name, head, now) {
                self.note_origin(name, *ticket, &head.token);
                self.tell(name, *ticket, answer);
                continue;
            }
            if matches!(head.claim, Claim::Permits(_)) && limit.is_none() {
                self.tell(name, *ticket, Answer::Refused(Refusal::NoLimit));
                continue;
            }
            let content = self.content(name);
            if content.is_some_and(|content| !content.fits(head.claim, limit)) {
                return;
            }
            let begins_afresh = content.is_none();
            let limit = limit.filter(|_| begins_afresh);
            let answer = self.grant(name, head, limit, now);
            self.note_origin(name, *ticket, &head.token);
            self.tell(name, *ticket, answer);
        }
    }

    /// Ends the round if it is over, and tells those who wait for that. Some of them may have waited
    /// for another group, whose place one that was over already has taken.
    fn finish_if_over(&mut self, name: Name, nobody_waits: bool, now: Now) {
        let keep_ms = self.settings.group_keep_ms;
        let Some(content) = self
            .content_mut(name)
            .filter(|content| content.family == Family::Group)
        else {
            return;
        };
        let over = content.holds.is_empty() && nobody_waits && content.owed() == 0;
        if over && content.finished_ms.is_none() {
            content.finished_ms = Some(ms(now) + keep_ms);
        }
        if content.finished_ms.is_some() && nobody_waits {
            let answer = Answer::Finished {
                done: content.done,
                lost: content.lost,
            };
            self.tell_watchers(name, &answer);
        }
    }
}
