//! A primary, its replica and the model, taking the same steps and compared after each.
//!
//! After every step: the reply and the wakes are the model's (grants in order within a key, refusals
//! in any), every state is the model's to the last field, INFO shows the model's holders and waiters,
//! the replica that was fed the changes alone would save exactly what the primary would, the laws hold
//! and the engine's own invariants too. When all that is due has been done, the next wake is no later
//! than the first thing that the model will do by itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::laws::Laws;
use crate::model::{Model, Name, Outcome, Seat, Sitter, TICK_US, Value};
use crate::server::{Done, Server, Stored, granted};
use dsync_engine::answer::Answer;
use dsync_engine::change::Change;
use dsync_engine::effect::HandedOver;
use dsync_engine::info::Particulars;
use dsync_engine::types::{
    Claim, ClientId, Db, Fence, LeaseMs, LeaseUs, MonoUs, Now, Token, WaiterId,
};
use dsync_engine::{Beginning, Engine, Family, Key, Reply, Request, Settings, Wait};

/// How long a request waits, from when it is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Block {
    Forever,
    Ms(u64),
}

/// A request for a hold. What is not said is as plain as can be: a try, by its token's own connection.
#[derive(Clone, Debug)]
pub struct Ask {
    pub name: Name,
    pub claim: Claim,
    pub limit: Option<u32>,
    /// For a run: how many attempts it allows in all.
    pub max_attempts: Option<u32>,
    pub lease_ms: u32,
    pub block: Option<Block>,
    /// `None` where the server makes one up.
    pub token: Option<u8>,
    pub conn: usize,
    pub ephemeral: bool,
    pub owner: Option<&'static str>,
}

/// A request of the token with this number, on the connection of that number.
pub fn ask(name: Name, claim: Claim, token: u8) -> Ask {
    Ask {
        name,
        claim,
        limit: None,
        max_attempts: None,
        lease_ms: 10_000,
        block: None,
        token: Some(token),
        conn: usize::from(token),
        ephemeral: false,
        owner: None,
    }
}

impl Ask {
    pub fn limit(mut self, limit: u32) -> Ask {
        self.limit = Some(limit);
        self
    }

    pub fn max_attempts(mut self, attempts: u32) -> Ask {
        self.max_attempts = Some(attempts);
        self
    }

    pub fn lease(mut self, lease_ms: u32) -> Ask {
        self.lease_ms = lease_ms;
        self
    }

    pub fn block(mut self) -> Ask {
        self.block = Some(Block::Forever);
        self
    }

    pub fn block_ms(mut self, ms: u64) -> Ask {
        self.block = Some(Block::Ms(ms));
        self
    }

    pub fn ephemeral(mut self) -> Ask {
        self.ephemeral = true;
        self
    }

    pub fn conn(mut self, conn: usize) -> Ask {
        self.conn = conn;
        self
    }

    pub fn without_token(mut self) -> Ask {
        self.token = None;
        self
    }
}

#[derive(Clone, Debug)]
pub enum Step {
    Acquire(Ask),
    Release(Name, Family, u8),
    Renew(Name, Family, u8, Option<u32>),
    Check(Name, Family, u8),
    /// The hold at this place, oldest first; beyond the last a fence that nobody has.
    Revoke(Name, Family, usize),
    Done(Name, Vec<u8>),
    Expect(Name, u32),
    Pin(Name, Option<u32>),
    Wait(Name, Option<Block>, usize),
    /// DONE of work-once: the token, the result and how long it is kept, if that is said.
    Complete(Name, u8, Option<&'static str>, Option<u64>),
    /// FAIL of work-once: the token and the reason.
    Fail(Name, u8, &'static str),
    /// The connection closes; another takes its number.
    Disconnect(usize),
    /// The server itself answers the waiter, CLIENT UNBLOCK for one.
    Unblock(usize),
    /// The waiters that the last step granted are found gone, before or after their connections are
    /// reported closed.
    FindGone {
        reported_first: bool,
    },
    Pass {
        us: u64,
    },
    /// A stall, or a server that cannot write: the lease clock stands still.
    Stall {
        us: u64,
    },
    /// The timer fires.
    Tick,
    MayWrite(bool),
    Delete(Name),
    Rename(Name, Name),
    Overwrite(Name),
    Flush(Option<i32>),
    Swap(i32, i32),
    Free,
    /// The server starts again from what it saved, this long after.
    Restart {
        as_changes: bool,
        ms: u64,
    },
    /// The replica is promoted.
    Failover {
        ms: u64,
    },
    /// The server is demoted, and promoted again.
    Demote {
        ms: u64,
    },
}

/// Where a waiter of the engine is in the model.
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
    /// How far the replica's wall clock is from the primary's.
    pub skew_ms: u64,
    /// How much of their own work the engines do after each step. What is left is done by the ticks.
    pub background: u32,
    tickets: BTreeMap<WaiterId, Ticket>,
    /// The engine's fences, by the model's.
    fences: BTreeMap<u64, Fence>,
    conns: Vec<u64>,
    last_client: u64,
    made_up_tokens: u64,
    /// What the last step told whom.
    pub told: Vec<(usize, Answer)>,
    granted: Vec<(Name, HandedOver, u64)>,
    pub notes: usize,
}

/// The token with this number: UUIDs and plain texts by turns.
pub fn token(number: u8) -> Token {
    let text = match number % 2 {
        0 => format!("8f14e45f-ceea-467f-a8f5-6d1e2c3b4a{number:02x}"),
        _ => format!("token {number}"),
    };
    Token::parse(text.as_bytes()).expect("legal")
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
            told: Vec::new(),
            granted: Vec::new(),
            notes: 0,
        }
    }

    /// The client that has this connection.
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

    /// A token holds a key for which it waits: its hold came with a key that was moved there.
    pub fn somebody_waits_for_what_it_holds(&self) -> bool {
        self.model.queues.iter().any(|queue| {
            let holds = self
                .model
                .content(queue.name)
                .map_or(&[][..], |content| &content.holds);
            let waits = |seat: &Seat| {
                holds
                    .iter()
                    .any(|hold| seat.token.as_ref() == Some(&hold.token))
            };
            queue.seats.iter().any(waits)
        })
    }

    /// The connection of some ephemeral hold is gone.
    pub fn somebodys_hold_is_ending(&self) -> bool {
        let contents = self
            .model
            .values
            .iter()
            .filter_map(|(name, _)| self.model.content(*name));
        contents
            .flat_map(|content| &content.holds)
            .any(|hold| hold.ending.is_some())
    }

    fn until(&self, block: Option<Block>) -> Option<Wait> {
        block.map(|block| match block {
            Block::Forever => Wait::Forever,
            Block::Ms(ms) => Wait::Until(self.now.mono.after_ms(ms)),
        })
    }

    fn request(&mut self, ask: &Ask) -> Request {
        if self.is_blocked(ask.conn) {
            // A connection that waits cannot ask: this is the client's next one.
            self.reconnect(ask.conn);
        }
        let own = ask.token.map(token).unwrap_or_else(|| {
            self.made_up_tokens += 1;
            Token::parse(format!("made up: {}", self.made_up_tokens).as_bytes()).expect("legal")
        });
        Request {
            claim: ask.claim,
            limit: ask.limit,
            max_attempts: ask.max_attempts,
            lease: LeaseMs(ask.lease_ms),
            wait: self.until(ask.block),
            token: own,
            may_return: ask.token.is_some(),
            client: ClientId(self.client(ask.conn)),
            ephemeral: ask.ephemeral,
            owner: ask.owner.map(|owner| owner.as_bytes().into()),
        }
    }

    // Steps.

    /// Takes the step on all sides, and compares. The answer is that to the step's own request, in the
    /// engine's fences; `None` where it waits or asks for nothing.
    pub fn step(&mut self, step: &Step) -> Option<Answer> {
        self.told.clear();
        if !matches!(step, Step::FindGone { .. }) {
            self.granted.clear();
        }
        let answer = self.take(step);
        for server in [&mut self.primary, &mut self.replica] {
            server.engine.background(&mut { self.background });
        }
        self.compare(matches!(step, Step::Tick));
        answer
    }

    pub fn steps(&mut self, steps: &[Step]) {
        for step in steps {
            self.step(step);
        }
    }

    fn take(&mut self, step: &Step) -> Option<Answer> {
        let now = self.now;
        match step.clone() {
            Step::Acquire(ask) => {
                let request = self.request(&ask);
                if self.is_foreign(ask.name) {
                    return Some(Answer::WrongType);
                }
                self.forget_if_over(ask.name);
                let ours = request.clone();
                let (reply, done) = self.primary.call(ask.name, ask.claim.family(), |e, key| {
                    e.acquire(key, ours, now)
                });
                let outcome = self.model.acquire(ask.name, &request, now);
                // Granted to this request, and not to an earlier sending of it that still waited.
                let to_a_waiter = |fence: Fence| {
                    let mut wakes = done.wakes.iter().filter_map(|wake| granted(&wake.answer));
                    wakes.any(|(_, f)| f == fence)
                };
                let is_new = done.changes.iter().any(|change| {
                    matches!(change, Change::Grant(grant)
                        if grant.token == request.token && !to_a_waiter(grant.fence))
                });
                self.carry_out(vec![done]);
                let may_return = request.may_return;
                let client = request.client.0;
                let answer = self.same_reply(ask.name, client, reply, outcome);
                match &answer {
                    Ok(answer) if granted(answer).is_some() => {
                        let laws = &mut self.laws;
                        laws.granted_at_once(ask.name, &request.token, is_new, answer);
                        return Some(answer.clone());
                    }
                    Ok(answer) => {
                        let blocks = request.wait.is_some();
                        let laws = &mut self.laws;
                        laws.refused_at_once(ask.name, &request.token, blocks, answer);
                        return Some(answer.clone());
                    }
                    Err(id) => {
                        let family = ask.claim.family();
                        self.laws
                            .queued(ask.name, family, *id, &request.token, may_return);
                    }
                }
                None
            }
            Step::Wait(name, block, conn) => {
                if self.is_blocked(conn) {
                    self.reconnect(conn);
                }
                let client = self.client(conn);
                if self.is_foreign(name) {
                    return Some(Answer::WrongType);
                }
                self.forget_if_over(name);
                let wait = self.until(block);
                let (reply, done) = self.primary.call(name, Family::Group, |e, key| {
                    e.wait(key, wait, ClientId(client), now)
                });
                let outcome = self.model.wait(name, wait, client, now);
                self.carry_out(vec![done]);
                match self.same_reply(name, client, reply, outcome) {
                    Ok(answer) => return Some(answer),
                    Err(id) => self.laws.watches(id),
                }
                None
            }
            Step::Release(name, family, number) => {
                let token = token(number);
                let ours =
                    |e: &mut Engine, key: &mut Key<'_>| e.release(key, family, &token, now).ok();
                let answer = self.plain(name, family, ours, |model| {
                    model.release(name, family, &token, now)
                });
                if answer.is_none() && !self.is_foreign(name) {
                    self.laws.released(name, family, &token);
                }
                answer
            }
            Step::Renew(name, family, number, lease_ms) => {
                let (token, lease) = (token(number), lease_ms.map(LeaseMs));
                let ours = |e: &mut Engine, key: &mut Key<'_>| {
                    e.renew(key, family, &token, lease, now).ok()
                };
                self.plain(name, family, ours, |model| {
                    model.renew(name, family, &token, lease_ms, now)
                })
            }
            Step::Check(name, family, number) => {
                let token = token(number);
                let ours =
                    |e: &mut Engine, key: &mut Key<'_>| e.check(key, family, &token, now).ok();
                self.look(name, family, ours, |model| {
                    model.check(name, family, &token, now)
                })
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
                let ours =
                    |e: &mut Engine, key: &mut Key<'_>| e.revoke(key, family, fence, now).ok();
                self.plain(name, family, ours, |model| {
                    model.revoke(name, family, theirs, now)
                })
            }
            Step::Done(name, numbers) => {
                let tokens: Vec<Token> = numbers.iter().map(|number| token(*number)).collect();
                let ours = |e: &mut Engine, key: &mut Key<'_>| e.done(key, &tokens, now).ok();
                self.plain(name, Family::Group, ours, |model| {
                    model.done(name, &tokens, now)
                })
            }
            Step::Expect(name, jobs) => {
                let ours = |e: &mut Engine, key: &mut Key<'_>| e.expect(key, jobs, now).ok();
                self.plain(name, Family::Group, ours, |model| {
                    model.expect(name, jobs, now)
                })
            }
            Step::Pin(name, limit) => {
                let ours = |e: &mut Engine, key: &mut Key<'_>| e.pin_limit(key, limit, now).ok();
                self.plain(name, Family::Semaphore, ours, |model| {
                    model.pin_limit(name, limit, now)
                })
            }
            Step::Complete(name, number, result, keep_ms) => {
                let token = token(number);
                let result: Option<Arc<[u8]>> = result.map(|text| text.as_bytes().into());
                let keep_ms = keep_ms.unwrap_or(self.model.settings.once_keep_ms);
                let ours = |e: &mut Engine, key: &mut Key<'_>| {
                    e.complete(key, &token, result.clone(), keep_ms, now).ok()
                };
                self.plain(name, Family::Once, ours, |model| {
                    model.complete(name, &token, result.clone(), keep_ms, now)
                })
            }
            Step::Fail(name, number, reason) => {
                let token = token(number);
                let ours = |e: &mut Engine, key: &mut Key<'_>| {
                    e.fail(key, &token, reason.as_bytes().into(), now).ok()
                };
                self.plain(name, Family::Once, ours, |model| {
                    model.fail(name, &token, reason.as_bytes(), now)
                })
            }
            Step::Disconnect(conn) => {
                // No two connections close in the same microsecond.
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
                assert!(self.primary.engine.leave(id), "{id:?} waits");
                assert!(!self.primary.engine.leave(id), "{id:?} waits no longer");
                let ticket = self.tickets.remove(&id).expect("found above");
                self.model.leave(ticket.ticket);
                self.laws.left(id, false, now);
                None
            }
            Step::FindGone { reported_first } => {
                for (name, grant, client) in std::mem::take(&mut self.granted) {
                    let fence = grant.fence;
                    // One that is overdue by the next tick ends so or so.
                    let theirs = self.fences.iter().find(|(_, ours)| **ours == fence);
                    let theirs = *theirs.expect("it was granted").0;
                    let holds = self
                        .model
                        .content(name)
                        .map_or(&[][..], |content| &content.holds);
                    let hold = holds.iter().find(|hold| hold.fence == theirs);
                    if hold.is_some_and(|hold| hold.due_us <= now.lease.0 + TICK_US) {
                        continue;
                    }
                    self.now.mono.0 += 1;
                    let now = self.now;
                    // Where bounds are tight, which vacant place has to go depends on the order of the
                    // tasks, which is not said: there no place is kept.
                    let closed = self.laws.judge_order;
                    if reported_first {
                        self.disconnect(client);
                    }
                    let engine = &mut self.primary.engine;
                    // Another connection's hold, or none: nothing happens.
                    engine.undelivered(grant, ClientId(client + 1_000_000), closed, now);
                    let elsewhere = HandedOver {
                        fence: Fence(fence.0 + 1_000_000),
                        ..grant
                    };
                    engine.undelivered(elsewhere, ClientId(client), closed, now);
                    engine.undelivered(grant, ClientId(client), closed, now);
                    self.model.undelivered(name, theirs, client, closed, now);
                    if closed {
                        self.laws.undelivered(fence, now);
                    }
                    if !reported_first {
                        self.disconnect(client);
                    }
                    let conn = self.conn_of(client);
                    if conn < self.conns.len() {
                        self.reconnect(conn);
                    }
                }
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
                // While the server cannot write, some are turned away and some are not yet.
                self.laws.ticked(self.now, |name| {
                    keys.get(&name) == Some(&Stored::Foreign) && model.seats(name).is_empty()
                });
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
                self.model.flush(db);
                self.laws.removed(|(d, _)| db.is_none_or(|db| d == db));
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
                self.primary.free_what_was_let_go();
                self.replica.free_what_was_let_go();
                None
            }
            Step::Restart { as_changes, ms } => {
                self.pass_unserved(ms);
                let saved = self.primary.engine.last_fence();
                self.primary = self.primary.reloaded(as_changes, self.now);
                self.begin_to_serve(saved, Beginning::Start);
                None
            }
            Step::Failover { ms } => {
                self.step(&Step::Tick);
                self.pass_unserved(ms);
                let empty = Server::new(self.primary.engine.settings);
                self.primary = std::mem::replace(&mut self.replica, empty);
                let saved = self.primary.engine.last_fence();
                self.begin_to_serve(saved, Beginning::Start);
                None
            }
            Step::Demote { ms } => {
                self.primary.engine.dismiss_all();
                self.model.dismiss_all();
                let wakes = std::mem::take(&mut self.primary.engine.effects.wakes);
                assert!(
                    self.primary.engine.effects.changes.is_empty(),
                    "nothing but answers"
                );
                let mut told: Vec<u64> = Vec::new();
                for wake in wakes {
                    assert_eq!(wake.answer, Answer::Demoted);
                    told.push(self.tickets.remove(&wake.waiter).expect("it waits").ticket);
                }
                let mut expected: Vec<u64> = self.model.wakes.drain(..).map(|w| w.ticket).collect();
                told.sort_unstable();
                expected.sort_unstable();
                assert_eq!(told, expected, "all who wait are sent away");
                self.primary.engine.stand_down();
                assert!(!self.primary.engine.is_serving());
                self.primary.finish_background();
                assert_eq!(
                    self.primary.engine.next_wake(self.now),
                    None,
                    "no deadline is its own"
                );
                self.compare_checks_of_a_follower();
                self.pass_unserved(ms);
                self.compare_checks_of_a_follower();
                let saved = self.primary.engine.last_fence();
                self.begin_to_serve(saved, Beginning::Promotion);
                None
            }
        }
    }

    fn pass_unserved(&mut self, ms: u64) {
        self.now.may_write = true;
        self.now.mono.0 += ms * 1_000;
        self.now.unix_us += ms * 1_000;
    }

    fn begin_to_serve(&mut self, saved: Fence, beginning: Beginning) {
        // A process that was promoted knows its connections; one that was started has none.
        let knows_clients = beginning == Beginning::Promotion;
        self.primary.engine.leap_fences(beginning, self.now);
        let latest = self.primary.engine.latest_due();
        self.now.lease = self.now.lease.max(LeaseUs(latest.0 + 1));
        self.primary.engine.take_over(self.now);
        self.laws
            .leapt(beginning, saved, self.primary.engine.last_fence(), self.now);
        self.model.take_over(self.now, knows_clients);
        self.tickets.clear();
        if !knows_clients {
            self.conns.clear();
        }
        // The replicas of the new primary get a full copy.
        self.replica = self.primary.reloaded(false, self.now);
    }

    fn compare_checks_of_a_follower(&mut self) {
        for (name, value) in &self.model.values {
            let Value::State(content) = value else {
                continue;
            };
            for hold in &content.holds {
                let (family, now) = (content.family, self.now);
                let check =
                    |e: &mut Engine, key: &mut Key<'_>| e.check(key, family, &hold.token, now);
                let (left, _) = self.primary.call(*name, family, check);
                let expected = hold.deadline_ms.saturating_sub(now.unix_us / 1_000);
                assert_eq!(
                    left,
                    Ok(expected),
                    "{name:?}: CHECK on a server that follows"
                );
            }
        }
    }

    fn disconnect(&mut self, client: u64) {
        let now = self.now;
        self.primary.engine.disconnected(ClientId(client), now);
        self.model.disconnected(client, now);
        let found = self
            .tickets
            .iter()
            .find(|(_, ticket)| ticket.client == client);
        if let Some(id) = found.map(|(id, _)| *id) {
            self.tickets.remove(&id);
            self.laws.left(id, true, now);
        }
    }

    fn forget_if_over(&mut self, name: Name) {
        let now = self.now;
        if now.may_write {
            let forgotten = self.primary.forget_if_over(name, now);
            self.model.forget_if_over(name, now);
            self.carry_out(forgotten.into_iter().collect());
        }
    }

    /// A request that may write and is answered at once.
    fn plain<R: PartialEq + std::fmt::Debug>(
        &mut self,
        name: Name,
        family: Family,
        ours: impl FnOnce(&mut Engine, &mut Key<'_>) -> Option<R>,
        theirs: impl FnOnce(&mut Model) -> Option<R>,
    ) -> Option<Answer> {
        self.forget_if_over(name);
        self.look(name, family, ours, theirs)
    }

    /// A request that only looks.
    fn look<R: PartialEq + std::fmt::Debug>(
        &mut self,
        name: Name,
        family: Family,
        ours: impl FnOnce(&mut Engine, &mut Key<'_>) -> Option<R>,
        theirs: impl FnOnce(&mut Model) -> Option<R>,
    ) -> Option<Answer> {
        if self.is_foreign(name) {
            return Some(Answer::WrongType);
        }
        let (ours, done) = self.primary.call(name, family, ours);
        let theirs = theirs(&mut self.model);
        self.carry_out(vec![done]);
        assert_eq!(ours, theirs, "{name:?}: the reply");
        ours.is_none().then_some(Answer::WrongType)
    }

    // Comparisons.

    fn same_fence(&mut self, theirs: Fence, ours: Fence) {
        match self.fences.get(&theirs.0) {
            Some(known) => assert_eq!(*known, ours, "the same hold has the same fence"),
            None => {
                assert!(
                    !self.fences.values().any(|fence| *fence == ours),
                    "{ours:?} given twice"
                );
                self.fences.insert(theirs.0, ours);
            }
        }
    }

    fn same_answer(&mut self, name: Name, ours: &Answer, theirs: &Answer) {
        let (Some((_, fence)), Some((_, their_fence))) = (granted(ours), granted(theirs)) else {
            return assert_eq!(ours, theirs, "{name:?}: the answer");
        };
        self.same_fence(their_fence, fence);
        // But for the fence they must be equal.
        let mut theirs = theirs.clone();
        if let Answer::Granted { fence: f, .. } | Answer::Run { fence: f, .. } = &mut theirs {
            *f = fence;
        }
        assert_eq!(*ours, theirs, "{name:?}: the grant");
    }

    fn same_reply(
        &mut self,
        name: Name,
        client: u64,
        ours: Reply,
        theirs: Outcome,
    ) -> Result<Answer, WaiterId> {
        match (ours, theirs) {
            (Reply::Now(ours), Outcome::Now(theirs)) => {
                self.same_answer(name, &ours, &theirs);
                Ok(ours)
            }
            (Reply::Queued(id), Outcome::Queued(ticket)) => {
                let before = self.tickets.insert(
                    id,
                    Ticket {
                        ticket,
                        name,
                        client,
                    },
                );
                assert!(before.is_none(), "{id:?} is used once");
                Err(id)
            }
            (ours, theirs) => panic!("{name:?}: the reply is {ours:?}, and should be {theirs:?}"),
        }
    }

    /// Feeds the replica and the laws, and hands out the answers to those who waited.
    fn carry_out(&mut self, all: Vec<Done>) {
        let mut later = self.now;
        later.unix_us += self.skew_ms * 1_000;
        let mut ours: Vec<(Name, u64, Answer)> = Vec::new();
        for done in &all {
            self.laws.written(done.name, &done.changes, self.now);
            self.replica.follow(done, later);
            self.notes += done.notes.len();
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
        // Within a key grants come in order; who is told otherwise, and when in between, is free.
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
            "who is told: {:#?} and should be {:#?}",
            lists[0],
            lists[1]
        );
        for ((name, ticket, answer), (their_name, their_ticket, theirs)) in ours.iter().zip(&theirs)
        {
            assert_eq!(
                (name, ticket),
                (their_name, their_ticket),
                "who is told: {:#?} and should be {:#?}",
                lists[0],
                lists[1]
            );
            self.same_answer(*name, answer, theirs);
        }
    }

    fn compare(&mut self, nothing_is_due: bool) {
        let now = self.now;
        self.primary.engine.check_invariants(now);
        self.replica.engine.check_invariants(now);
        let mut names: Vec<Name> = self.primary.keys.keys().copied().collect();
        names.extend(self.replica.keys.keys());
        names.extend(self.model.values.iter().map(|(name, _)| *name));
        names.extend(self.model.queues.iter().map(|queue| queue.name));
        names.sort_unstable();
        names.dedup();
        for name in names {
            self.compare_key(name);
        }
        for family in Family::ALL {
            let seats = self.model.queues.iter().flat_map(|queue| &queue.seats);
            let waiting = seats.filter(|seat| {
                let claimed = seat.claim.map_or(Family::Group, Claim::family);
                !seat.is_vacant() && claimed == family
            });
            assert_eq!(
                self.primary.engine.waiting(family),
                waiting.count() as u64,
                "how many wait for a {family:?}"
            );
        }
        for (id, ticket) in &self.tickets {
            assert!(self.laws.waits(*id), "{id:?} is owed an answer");
            let waits = self
                .model
                .queues
                .iter()
                .flat_map(|queue| &queue.seats)
                .any(|seat| {
                    matches!(&seat.sitter,
                    Sitter::Waiting { ticket: t, .. } | Sitter::Watching { ticket: t, .. }
                        if *t == ticket.ticket)
                });
            assert!(waits, "{id:?} waits, in the model too");
        }
        if nothing_is_due {
            let next = self.primary.engine.next_wake(now);
            if let Some(event) = self.model.next_event(now) {
                let next =
                    next.unwrap_or_else(|| panic!("something is due in {event} µs, and no wake"));
                assert!(
                    next <= event,
                    "something is due in {event} µs, the wake is in {next}"
                );
            }
            assert!(
                !now.may_write || next != Some(0),
                "all is done, and yet there is something to do"
            );
            assert!(!self.primary.engine.is_held_up(now) || !now.may_write);
        }
    }

    fn compare_key(&mut self, name: Name) {
        let saved = self.primary.saved(name);
        assert_eq!(
            self.replica.saved(name),
            saved,
            "{name:?}: the replica has what the primary has"
        );
        let ours = self.primary.state(name);
        let theirs = self.model.content(name);
        assert_eq!(
            ours.map(|state| state.body.family()),
            theirs.map(|content| content.family),
            "{name:?}: what the key is"
        );
        let foreign = matches!(self.model.value(name), Some(Value::Foreign));
        assert_eq!(self.is_foreign(name), foreign, "{name:?}");
        let (Some(state), Some(content)) = (ours, theirs) else {
            return;
        };
        let mut holds = content.holds.iter();
        let mut scalars = None;
        for change in state.body.as_changes() {
            let Change::Grant(ours) = change else {
                assert_eq!(scalars.replace(change), None, "{name:?}: scalars come once");
                continue;
            };
            let hold = holds
                .next()
                .unwrap_or_else(|| panic!("{name:?}: a hold too many: {ours:?}"));
            let fence = *self
                .fences
                .get(&hold.fence)
                .expect("it was told to somebody");
            assert_eq!(
                (ours.fence, &ours.token, ours.claim, ours.owner.as_deref()),
                (fence, &hold.token, hold.claim, hold.owner.as_deref()),
                "{name:?}: who holds"
            );
            assert_eq!(
                (ours.lease.0, ours.deadline.0, ours.granted.0, ours.renewed),
                (
                    hold.lease_ms,
                    hold.deadline_ms,
                    hold.granted_ms,
                    hold.renewed
                ),
                "{name:?}: the lease of {fence:?}"
            );
        }
        assert_eq!(holds.len(), 0, "{name:?}: holds too few");
        assert_eq!(
            scalars,
            content.scalars(),
            "{name:?}: what the key is besides its holds"
        );
        self.compare_info(name);
    }

    fn compare_info(&self, name: Name) {
        let content = self.model.content(name).expect("a state");
        let spelling = crate::server::spelled(name);
        let Some(Stored::State(id)) = self.primary.keys.get(&name) else {
            return;
        };
        let key = Key::found(Db(name.0), &spelling, Some(*id));
        let info = self
            .primary
            .engine
            .info(&key, content.family, 1_000, self.now);
        let info = info.expect("its family").expect("present");
        match info.particulars {
            Particulars::Semaphore {
                in_force,
                available,
                ..
            } => {
                assert_eq!(in_force, content.in_force(), "{name:?}: the limit in force");
                let limit = u64::from(content.in_force().unwrap_or(0));
                assert_eq!(
                    available,
                    limit.saturating_sub(content.permits_held()),
                    "{name:?}"
                );
            }
            Particulars::Group { owed, .. } => assert_eq!(owed, content.owed(), "{name:?}: owed"),
            _ => {}
        }
        assert_eq!(info.holders, content.holds.len(), "{name:?}: holders");
        for (ours, hold) in info.first_holders.iter().zip(&content.holds) {
            assert_eq!(ours.owner, hold.owner.as_deref(), "{name:?}: owner");
            assert_eq!(
                ours.client,
                ClientId(hold.client),
                "{name:?}: client of {:?}",
                ours.fence
            );
            assert_eq!(ours.claim, hold.claim, "{name:?}: claim");
            let left_ms = hold.due_us.saturating_sub(self.now.lease.0).div_ceil(1_000);
            assert_eq!(
                ours.lease_left_ms, left_ms,
                "{name:?}: lease left of {:?}",
                ours.fence
            );
            let held_ms = (self.now.unix_us / 1_000).saturating_sub(hold.granted_ms);
            assert_eq!(ours.held_ms, held_ms, "{name:?}: held");
        }
        let waiters = info.waiters.expect("it serves");
        let seats: Vec<_> = self
            .model
            .seats(name)
            .iter()
            .filter(|seat| !seat.is_vacant())
            .collect();
        assert_eq!(waiters.count, seats.len(), "{name:?}: waiters");
        let age_ms = |since_us: u64| (self.now.mono.0 - since_us) / 1_000;
        let longest_ms = seats.iter().map(|seat| age_ms(seat.since_us)).max();
        assert_eq!(
            waiters.longest_ms,
            longest_ms.unwrap_or(0),
            "{name:?}: the longest wait"
        );
        let claiming = seats.iter().filter(|seat| seat.claim.is_some());
        let watching = seats.iter().filter(|seat| seat.claim.is_none());
        let mut in_order: Vec<_> = claiming.collect();
        in_order.sort_by_key(|seat| seat.rank);
        for (ours, seat) in waiters
            .first
            .iter()
            .zip(in_order.into_iter().chain(watching))
        {
            let (client, owner) = match &seat.sitter {
                Sitter::Waiting { request, .. } => (request.client, request.owner.as_deref()),
                Sitter::Watching { client, .. } => (ClientId(*client), None),
                Sitter::Vacant { .. } => continue,
            };
            assert_eq!(
                (ours.client, ours.owner),
                (client, owner),
                "{name:?}: who waits"
            );
            assert_eq!(
                (ours.claim, ours.age_ms),
                (seat.claim, age_ms(seat.since_us)),
                "{name:?}"
            );
        }
    }
}
