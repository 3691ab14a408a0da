//! Requests of clients: each goes to the engine and to the model, and both must answer the same.

use super::World;
use crate::ask::{Ask, Block, lane, token};
use crate::model::{Model, Name};
use crate::server::granted;
use dsync_engine::answer::Answer;
use dsync_engine::change::Change;
use dsync_engine::types::{ClientId, Fence, LeaseMs, MonoUs, Token};
use dsync_engine::{Family, Look, Refusal, Reply, Request, Visit};

impl World {
    pub fn acquire(&mut self, ask: &Ask) -> Option<Answer> {
        let now = self.now;
        let request = self.request(ask);
        self.laws.asks();
        if self.is_foreign(ask.name) {
            return Some(Answer::WrongType);
        }
        self.do_overdue(ask.name);
        let ours = request.clone();
        let (reply, done) = self
            .primary
            .call(ask.name, ask.claim.family(), now, |visit| {
                let is_try = ours.wait.is_none() && ours.keep_ms.is_none() && !ours.may_return;
                let is_refused = is_try && visit.refuses(ours.claim);
                let reply = visit.acquire(ours);
                let agrees = !is_refused || reply == Reply::Now(Answer::NotGranted);
                assert!(agrees, "a try that is refused: {reply:?}");
                reply
            });
        let outcome = self.model.acquire(ask.name, &request, now);
        // Was the grant for this request, and not for an earlier sending of it that still waited?
        let to_a_waiter = |fence: Fence| {
            let mut wakes = done.wakes.iter().filter_map(|wake| granted(&wake.answer));
            wakes.any(|(_, f)| f == fence)
        };
        let is_new = done.changes.iter().any(|change| {
            matches!(change, Change::Grant(grant)
                if grant.token == request.token && !to_a_waiter(grant.fence))
        });
        self.carry_out(vec![done]);
        let client = request.client.0;
        let answer = self.same_reply(ask.name, client, reply, outcome);
        let is_judged = match &answer {
            Ok(Answer::WrongType | Answer::Refused(Refusal::Mismatch | Refusal::OtherLane)) => {
                false
            }
            Ok(answer) if granted(answer).is_some() => is_new,
            _ => true,
        };
        if is_judged {
            let family = ask.claim.family();
            self.laws.changes_family(ask.name, family, &request.token);
        }
        match &answer {
            Ok(answer) if granted(answer).is_some() => {
                let laws = &mut self.laws;
                laws.granted_at_once(ask.name, &request, is_new, answer, now);
                return Some(answer.clone());
            }
            Ok(answer) => {
                let blocks = request.wait.is_some();
                let laws = &mut self.laws;
                laws.refused_at_once(ask.name, &request.token, blocks, answer);
                return Some(answer.clone());
            }
            Err(id) => {
                self.laws.queued(ask.name, *id, &request);
            }
        }
        None
    }

    pub fn wait(&mut self, name: Name, block: Option<Block>, conn: usize) -> Option<Answer> {
        let now = self.now;
        self.laws.asks();
        if self.is_blocked(conn) {
            self.reconnect(conn);
        }
        let client = self.client(conn);
        if self.is_foreign(name) {
            return Some(Answer::WrongType);
        }
        self.do_overdue(name);
        let wait = self.until(block);
        let (reply, done) = self.primary.call(name, Family::Group, now, |visit| {
            visit.wait(wait, ClientId(client))
        });
        let outcome = self.model.wait(name, wait, client, now);
        self.carry_out(vec![done]);
        match self.same_reply(name, client, reply, outcome) {
            Ok(answer) => return Some(answer),
            Err(id) => self.laws.watches(id),
        }
        None
    }

    pub(super) fn until(&self, block: Option<Block>) -> Option<MonoUs> {
        block.map(|block| match block {
            Block::Forever => MonoUs::NEVER,
            Block::Ms(ms) => self.now.mono.after_ms(ms),
        })
    }

    pub(super) fn request(&mut self, ask: &Ask) -> Request {
        if self.is_blocked(ask.conn) {
            // A connection that waits cannot send a request, so the client opens another one.
            self.reconnect(ask.conn);
        }
        let own = ask.token.map(token).unwrap_or_else(|| {
            self.made_up_tokens += 1;
            Token::parse(format!("made up: {}", self.made_up_tokens).as_bytes()).expect("legal")
        });
        Request {
            claim: ask.claim,
            limit: ask.limit,
            bound: ask.max_attempts.or(ask.lane_limit),
            lease: LeaseMs(ask.lease_ms),
            min_hold: ask.min_hold_ms.map(LeaseMs),
            wait: self.until(ask.block),
            keep_ms: ask.keep_ms,
            token: own,
            may_return: ask.token.is_some(),
            client: ClientId(self.client(ask.conn)),
            ephemeral: ask.ephemeral,
            owner: ask.owner.map(|owner| owner.as_bytes().into()),
            lane: lane(ask.lane),
            may_grow: self.may_grow,
        }
    }

    pub fn do_overdue(&mut self, name: Name) {
        let now = self.now;
        if now.may_write {
            let done = self.primary.do_overdue(name, now);
            self.model.overdue(name, now);
            self.carry_out(done.into_iter().collect());
        }
    }

    /// Sends a request that may write and is answered at once.
    pub fn write_request<R: PartialEq + std::fmt::Debug>(
        &mut self,
        name: Name,
        family: Family,
        ours: impl FnOnce(&mut Visit<'_>) -> Option<R>,
        theirs: impl FnOnce(&mut Model) -> Option<R>,
    ) -> Option<Answer> {
        self.do_overdue(name);
        if self.is_foreign(name) {
            return Some(Answer::WrongType);
        }
        let (ours, done) = self.primary.call(name, family, self.now, ours);
        let theirs = theirs(&mut self.model);
        self.carry_out(vec![done]);
        compare(name, &ours, &theirs)
    }

    /// Sends a request that only reads.
    pub fn read_request<R: PartialEq + std::fmt::Debug>(
        &mut self,
        name: Name,
        ours: impl FnOnce(Look<'_>) -> Option<R>,
        theirs: impl FnOnce(&mut Model) -> Option<R>,
    ) -> Option<Answer> {
        if self.is_foreign(name) {
            return Some(Answer::WrongType);
        }
        let ours = self.primary.look(name, self.now, ours);
        compare(name, &ours, &theirs(&mut self.model))
    }
}

fn compare<R: PartialEq + std::fmt::Debug>(
    name: Name,
    ours: &Option<R>,
    theirs: &Option<R>,
) -> Option<Answer> {
    assert_eq!(ours, theirs, "{name:?}: the reply");
    ours.is_none().then_some(Answer::WrongType)
}
