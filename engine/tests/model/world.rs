//! A primary, its replica and the model: they take the same steps, and are compared after each.
//!
//! After every step
//! - the reply and the wakes are those of the model (grants of one key in the same order, other answers in any order);
//! - every state is equal to the model's in every field, and INFO shows the model's holders and waiters;
//! - HOLDS shows the model's holds, and the ends that nobody asked for are noted;
//! - the replica, which got only the changes, would save exactly the same bytes as the primary;
//! - the laws hold, and so do the engine's own invariants.
//!
//! After a tick the next wake is no later than the next thing that the model will do without a request.

mod compare;
mod events;
mod operators;
mod requests;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::laws::Laws;
use crate::model::{Model, ModelSeat, Name, TICK_US};
use crate::server::{Done, Server, Stored, granted};
use crate::steps::{Step, token};
use dsync_engine::answer::Answer;
use dsync_engine::change::Change;
use dsync_engine::effect::HandedOver;
use dsync_engine::families::once::Keep;
use dsync_engine::types::{Fence, LeaseMs, LeaseUs, MonoUs, Now, Token, WaiterId};
use dsync_engine::unasked::UnaskedEnd;
use dsync_engine::{Family, Look, Settings, Visit};

use operators::Walk;

/// The waiter of the model that stands for a waiter of the engine.
struct Ticket {
    ticket: u64,
    name: Name,
    client: u64,
}

pub struct World {
    pub primary: Server,
    pub replica: Server,
    pub model: Model,
    laws: Laws,
    pub now: Now,
    /// How far the replica's wall clock is ahead of the primary's.
    pub skew_ms: u64,
    /// The budget of background work after each step. Ticks do what is left.
    pub background: u32,
    tickets: BTreeMap<WaiterId, Ticket>,
    /// The engine's fence for each fence of the model.
    fences: BTreeMap<u64, Fence>,
    conns: Vec<u64>,
    last_client: u64,
    made_up_tokens: u64,
    pub may_grow: bool,
    /// The answers of the last step to waiting requests, by connection.
    pub told: Vec<(usize, Answer)>,
    granted: Vec<(Name, HandedOver, u64)>,
    /// The grants of the last step to kept places on which nobody waits: the name, the number and the fence.
    pub announced: Vec<(Name, Fence, Fence)>,
    /// The ends that the last step noted, once they were compared.
    pub ended: Vec<(Name, UnaskedEnd)>,
    /// The ends that this step has noted so far.
    noted: Vec<(Name, UnaskedEnd)>,
    walk: Walk,
}

pub const START_US: u64 = 1_700_000_000_000_000;

impl World {
    pub fn new(settings: Settings) -> World {
        let now = Now {
            lease: LeaseUs(0),
            mono: MonoUs(5_000_000),
            unix_us: START_US,
            may_write: true,
        };
        let mut primary = Server::new(settings);
        primary.engine.take_over(now);
        let roomy = settings.max_waiters_per_key >= 100 && settings.max_waiters >= 100;
        World {
            primary,
            replica: Server::new(settings),
            model: Model::new(settings),
            laws: Laws::new(settings, roomy),
            now,
            skew_ms: 7,
            background: 0,
            tickets: BTreeMap::new(),
            fences: BTreeMap::new(),
            conns: Vec::new(),
            last_client: 0,
            made_up_tokens: 0,
            may_grow: true,
            told: Vec::new(),
            granted: Vec::new(),
            announced: Vec::new(),
            ended: Vec::new(),
            noted: Vec::new(),
            walk: Walk::default(),
        }
    }

    /// Returns the client that has this connection.
    pub fn client(&mut self, conn: usize) -> u64 {
        while self.conns.len() <= conn {
            self.last_client += 1;
            self.conns.push(self.last_client);
        }
        self.conns[conn]
    }

    fn reconnect(&mut self, conn: usize) {
        self.client(conn);
        self.last_client += 1;
        self.conns[conn] = self.last_client;
    }

    pub fn is_blocked(&mut self, conn: usize) -> bool {
        let client = self.client(conn);
        self.tickets.values().any(|ticket| ticket.client == client)
    }

    fn conn_of(&self, client: u64) -> usize {
        self.conns
            .iter()
            .position(|c| *c == client)
            .unwrap_or(usize::MAX)
    }

    pub fn is_foreign(&self, name: Name) -> bool {
        self.primary.keys.get(&name) == Some(&Stored::Foreign)
    }

    /// Whether some token waits for a key that it holds already, because the key was moved there.
    pub fn a_waiter_holds_already(&self) -> bool {
        self.model.queues.iter().any(|queue| {
            let holds = self
                .model
                .content(queue.name)
                .map_or(&[][..], |content| &content.holds);
            let waits = |seat: &ModelSeat| {
                holds
                    .iter()
                    .any(|hold| seat.token.as_ref() == Some(&hold.token))
            };
            queue.seats.iter().any(waits)
        })
    }

    /// Whether some hold will end because its connection has closed.
    pub fn a_hold_is_ending(&self) -> bool {
        let contents = self
            .model
            .values
            .iter()
            .filter_map(|(name, _)| self.model.content(*name));
        contents
            .flat_map(|content| &content.holds)
            .any(|hold| hold.ending.is_some())
    }

    /// Takes the step on the primary, the replica and the model, and compares them. Returns the engine's answer to the
    /// request of the step; `None` if it waits or the step is no request.
    pub fn step(&mut self, step: &Step) -> Option<Answer> {
        self.told.clear();
        self.announced.clear();
        if !matches!(step, Step::FindGone { .. }) {
            self.granted.clear();
        }
        let answer = self.take(step);
        for server in [&mut self.primary, &mut self.replica] {
            server.engine.background(&mut { self.background });
        }
        self.compare(matches!(step, Step::Tick));
        self.compare_ends();
        self.compare_holds();
        self.continue_walk();
        answer
    }

    pub fn steps(&mut self, steps: &[Step]) {
        for step in steps {
            self.step(step);
        }
    }

    fn holds(&self, name: Name, token: &Token) -> bool {
        let state = self.primary.state(name);
        let mut changes = state.into_iter().flat_map(|state| state.body.as_changes());
        changes.any(|change| matches!(change, Change::Grant(grant) if grant.token == *token))
    }

    fn take(&mut self, step: &Step) -> Option<Answer> {
        let now = self.now;
        match step.clone() {
            Step::Acquire(ask) => self.acquire(&ask),
            Step::Wait(name, block, conn) => self.wait(name, block, conn),
            Step::Release(name, family, number) => {
                let token = token(number);
                let held = self.holds(name, &token);
                let mut withdrew = false;
                let ours = |visit: &mut Visit<'_>| {
                    let released = visit.release(family, &token).ok();
                    withdrew = released == Some(true) && !held;
                    released
                };
                let answer = self.write_request(name, family, ours, |model| {
                    model.release(name, family, &token, now)
                });
                if answer.is_none() && !self.is_foreign(name) {
                    self.laws.released(name, family, &token, withdrew, now);
                }
                answer
            }
            Step::Renew(name, family, number, lease_ms) => {
                let (token, lease) = (token(number), lease_ms.map(LeaseMs));
                let ours = |visit: &mut Visit<'_>| visit.renew(family, &token, lease).ok();
                self.write_request(name, family, ours, |model| {
                    model.renew(name, family, &token, lease_ms, now)
                })
            }
            Step::Check(name, family, number) => {
                let token = token(number);
                let ours = |look: Look<'_>| look.check(family, &token).ok();
                self.read_request(name, ours, |model| model.check(name, family, &token, now))
            }
            Step::Revoke(name, family, nth) => {
                let holds = self
                    .model
                    .content(name)
                    .map(|content| content.holds.clone());
                let theirs = holds
                    .and_then(|holds| holds.get(nth).map(|hold| hold.fence))
                    .unwrap_or(0);
                let fence = self.fences.get(&theirs).copied().unwrap_or(Fence(77));
                let ours = |visit: &mut Visit<'_>| visit.revoke(family, fence).ok();
                self.write_request(name, family, ours, |model| {
                    model.revoke(name, family, theirs, now)
                })
            }
            Step::RevokePlace(name, family, nth) => {
                let seats = self.model.seats(name).iter();
                let mut kept = seats.filter(|seat| seat.keep.is_some());
                let theirs = kept.nth(nth).map_or(0, |seat| seat.rank);
                let number = self.fences.get(&theirs).copied().unwrap_or(Fence(77));
                let ours = |visit: &mut Visit<'_>| visit.revoke(family, number).ok();
                self.write_request(name, family, ours, |model| {
                    model.revoke(name, family, theirs, now)
                })
            }
            Step::Done(name, numbers) => {
                let tokens: Vec<Token> = numbers.iter().map(|number| token(*number)).collect();
                let ours = |visit: &mut Visit<'_>| visit.done(&tokens).ok();
                self.write_request(name, Family::Group, ours, |model| {
                    model.done(name, &tokens, now)
                })
            }
            Step::Expect(name, jobs) => {
                let ours = |visit: &mut Visit<'_>| visit.expect(jobs).ok();
                self.write_request(name, Family::Group, ours, |model| {
                    model.expect(name, jobs, now)
                })
            }
            Step::Pin(name, limit) => {
                let ours = |visit: &mut Visit<'_>| visit.pin_limit(limit).ok();
                self.write_request(name, Family::Semaphore, ours, |model| {
                    model.pin_limit(name, limit, now)
                })
            }
            Step::Pause(name, family, ms) => {
                let ours = |visit: &mut Visit<'_>| visit.pause(family, ms).ok();
                self.write_request(name, family, ours, |model| {
                    model.pause(name, family, ms, now)
                })
            }
            Step::Complete(name, number, result, keep) => {
                let token = token(number);
                let result: Option<Arc<[u8]>> = result.map(|text| text.as_bytes().into());
                let keep = keep.unwrap_or(Keep::ForMs(self.model.settings.once_keep_ms));
                let ours =
                    |visit: &mut Visit<'_>| visit.complete(&token, result.clone(), keep).ok();
                self.write_request(name, Family::Once, ours, |model| {
                    model.complete(name, &token, result.clone(), keep, now)
                })
            }
            Step::Fail(name, number, reason, delay_ms) => {
                let token = token(number);
                let ours = |visit: &mut Visit<'_>| {
                    visit.fail(&token, reason.as_bytes().into(), delay_ms).ok()
                };
                self.write_request(name, Family::Once, ours, |model| {
                    model.fail(name, &token, reason.as_bytes(), delay_ms, now)
                })
            }
            Step::Disconnect(conn) => {
                // Two connections never close in the same microsecond, so the order of their places is known.
                self.now.mono.0 += 1;
                let client = self.client(conn);
                self.disconnect(client);
                self.reconnect(conn);
                None
            }
            Step::Unblock(conn) => {
                let client = self.client(conn);
                let found = self
                    .tickets
                    .iter()
                    .find(|(_, ticket)| ticket.client == client);
                let id = found.map(|(id, _)| *id)?;
                assert!(self.primary.engine.leave(id, now), "{id:?} waits");
                assert!(
                    !self.primary.engine.leave(id, now),
                    "{id:?} waits no longer"
                );
                let ticket = self.tickets.remove(&id).expect("found above");
                self.model.leave(ticket.ticket, now);
                self.laws.left(id, false, now);
                None
            }
            Step::FindGone { reported_first } => {
                self.find_gone(reported_first);
                None
            }
            Step::Pass { us } => {
                self.now.mono.0 += us;
                self.now.unix_us += us;
                if now.may_write {
                    self.now.lease.0 += us;
                }
                None
            }
            Step::Stall { us } => {
                self.now.mono.0 += us;
                self.now.unix_us += us;
                None
            }
            Step::Tick => {
                if now.may_write {
                    self.now.lease.0 = self.now.lease.0.next_multiple_of(TICK_US);
                }
                let all = self.primary.run_tasks(self.now);
                self.model.tick(self.now);
                self.carry_out(all);
                let (keys, model) = (&self.primary.keys, &self.model);
                // While the server cannot write, some waiters of an overwritten key may still wait.
                self.laws.ticked(self.now, |name| {
                    keys.get(&name) == Some(&Stored::Foreign) && model.seats(name).is_empty()
                });
                None
            }
            Step::MayGrow(may_grow) => {
                self.may_grow = may_grow;
                None
            }
            Step::MayWrite(may_write) => {
                self.now.may_write = may_write;
                None
            }
            Step::Delete(name) => {
                self.primary.delete(name);
                self.replica.delete(name);
                self.model.delete(name);
                self.laws.removed(|n| n == name);
                None
            }
            Step::Overwrite(name) => {
                self.primary.overwrite(name);
                self.replica.overwrite(name);
                self.model.overwrite(name);
                self.laws.removed(|n| n == name);
                None
            }
            Step::Rename(from, to) => {
                if from != to && self.primary.keys.contains_key(&from) {
                    self.primary.rename(from, to);
                    self.replica.rename(from, to);
                    self.model.rename(from, to);
                    self.laws.renamed(from, to);
                }
                None
            }
            Step::Flush(db) => {
                self.primary.flush(db);
                self.replica.flush(db);
                // The kept places of a queue go when the sweep comes to it, or a request. To compare all queues, let it
                // come to all of them.
                if self
                    .model
                    .queues
                    .iter()
                    .any(|q| self.model.kept(q.name) > 0)
                {
                    self.primary.finish_background();
                    self.replica.finish_background();
                }
                self.model.flush(db);
                self.laws.removed(|(d, _)| db.is_none_or(|db| d == db));
                self.laws.flushed(|(d, _)| db.is_none_or(|db| d == db));
                None
            }
            Step::Swap(a, b) => {
                self.primary.swap(a, b);
                self.replica.swap(a, b);
                self.model.swap(a, b);
                self.laws.swapped(a, b);
                None
            }
            Step::Free => {
                self.primary.free_let_go();
                self.replica.free_let_go();
                None
            }
            Step::Restart { as_changes, ms } => {
                self.restart(as_changes, ms);
                None
            }
            Step::Failover { ms } => {
                self.fail_over(ms);
                None
            }
            Step::Demote { ms } => {
                self.demote(ms);
                None
            }
        }
    }

    /// Gives the effects to the replica and the laws, and compares the answers to waiting requests with the model's.
    fn carry_out(&mut self, all: Vec<Done>) {
        let mut later = self.now;
        later.unix_us += self.skew_ms * 1_000;
        let mut ours: Vec<(Name, u64, Answer)> = Vec::new();
        self.same_announcements(&all);
        for done in &all {
            self.laws.tells(&done.wakes);
            self.laws.written(done.name, &done.changes, self.now);
            self.replica.follow(done, later);
            self.note_ends(done);
            for wake in &done.wakes {
                let (id, answer) = (wake.waiter, &wake.answer);
                self.laws.told(done.name, id, answer);
                let ticket = self.tickets.remove(&id);
                let ticket =
                    ticket.unwrap_or_else(|| panic!("{id:?} is told {answer:?} out of turn"));
                assert_eq!(ticket.name, done.name, "{id:?} is told of its own key");
                if let Some(grant) = wake.grant {
                    self.granted.push((done.name, grant, ticket.client));
                }
                self.told
                    .push((self.conn_of(ticket.client), answer.clone()));
                ours.push((done.name, ticket.ticket, answer.clone()));
            }
        }
        let mut theirs: Vec<(Name, u64, Answer)> = self
            .model
            .wakes
            .drain(..)
            .map(|wake| (wake.name, wake.ticket, wake.answer))
            .collect();
        // Grants of one key must come in the same order. Other answers may come in any order, also between grants.
        let is_grant = |wake: &(Name, u64, Answer)| granted(&wake.2).is_some();
        for wakes in [&mut ours, &mut theirs] {
            wakes.sort_by_key(|wake| {
                (
                    wake.0,
                    !is_grant(wake),
                    if is_grant(wake) { 0 } else { wake.1 },
                )
            });
        }
        let spoken = |wakes: &[(Name, u64, Answer)]| {
            wakes
                .iter()
                .map(|(name, ticket, answer)| format!("{name:?} #{ticket}: {answer:?}"))
                .collect()
        };
        let lists: [Vec<String>; 2] = [spoken(&ours), spoken(&theirs)];
        assert_eq!(
            ours.len(),
            theirs.len(),
            "answered: {:#?}, expected: {:#?}",
            lists[0],
            lists[1]
        );
        for ((name, ticket, answer), (their_name, their_ticket, theirs)) in ours.iter().zip(&theirs)
        {
            assert_eq!(
                (name, ticket),
                (their_name, their_ticket),
                "answered: {:#?}, expected: {:#?}",
                lists[0],
                lists[1]
            );
            self.same_answer(*name, answer, theirs);
        }
    }
}
