//! Clients that ask for permits again and again. Answers to them are lost, they ask again, and they end their holds early
//! or not at all.

use super::{Paced, SPAN_MS};
use crate::fixture::{KEY, MS};
use crate::server::granted;
use dsync_engine::answer::Answer;
use dsync_engine::effect::Wake;
use dsync_engine::types::{Claim, ClientId, LeaseMs, MonoUs, Token, WaiterId};
use dsync_engine::{Family, LaneName, Reply, Request};

#[derive(Clone, Copy, PartialEq)]
enum At {
    /// It wants nothing.
    Idle,
    Waits(WaiterId),
    /// It has a kept place, or has heard no answer: it asks again.
    Asks,
    Holds,
}

pub struct Caller {
    number: usize,
    at: At,
    /// Counts its tokens.
    tokens: u64,
    permits: u32,
    ephemeral: bool,
    client: u64,
}

impl Caller {
    pub fn new(number: usize) -> Caller {
        Caller {
            number,
            at: At::Idle,
            tokens: 0,
            permits: 1,
            ephemeral: false,
            client: 0,
        }
    }

    fn token(&self) -> Token {
        let text = format!("{} {}", self.number, self.tokens);
        Token::parse(text.as_bytes()).expect("legal")
    }
}

impl Paced {
    /// This caller does something.
    pub(super) fn act(&mut self, n: usize) {
        match (self.callers[n].at, self.random.below(8)) {
            (At::Idle, _) => {
                let caller = &mut self.callers[n];
                caller.tokens += 1;
                caller.permits = 1 + self.random.below(2) as u32;
                caller.ephemeral = self.random.one_in(4);
                self.ask(n);
            }
            (At::Waits(_), 0) | (At::Holds, 1) => self.disconnect(n),
            (At::Waits(_), 1..6) => {}
            (At::Waits(_), 6) | (At::Holds, 2) | (At::Asks, 1..) => self.ask(n),
            (At::Holds, 0) => {
                let (token, lease) = (self.callers[n].token(), Some(self.lease()));
                let renewed = self.call(|visit| visit.renew(Family::Semaphore, &token, lease));
                assert!(renewed.is_ok());
            }
            // Its lease may end before the span does, or after it.
            (At::Holds, 3) => self.callers[n].at = At::Idle,
            (At::Holds | At::Waits(_) | At::Asks, _) => {
                let token = self.callers[n].token();
                let released = self.call(|visit| visit.release(Family::Semaphore, &token));
                assert!(released.is_ok());
                self.callers[n].at = At::Idle;
            }
        }
    }

    fn lease(&mut self) -> LeaseMs {
        LeaseMs(self.random.pick(&[10, 60, 300]))
    }

    fn ask(&mut self, n: usize) {
        let lease = self.lease();
        let caller = &self.callers[n];
        let (token, ephemeral) = (caller.token(), caller.ephemeral);
        let mode = self.random.below(4);
        let waits = MonoUs(self.mono.0 + self.random.below(300 * MS));
        let request = Request {
            claim: Claim::Permits(caller.permits),
            limit: Some(self.asked).filter(|_| !self.random.one_in(3)),
            bound: None,
            lease,
            min_hold: Some(LeaseMs(SPAN_MS)),
            wait: (mode > 1).then_some(waits),
            keep_ms: (mode == 1 && !ephemeral).then_some(40),
            token,
            may_return: true,
            client: ClientId(self.connect(n)),
            ephemeral,
            owner: None,
            lane: LaneName::default(),
            may_grow: true,
        };
        let now = self.now();
        if let Some(done) = self.servers[self.primary].do_overdue(KEY, now) {
            self.take(done);
        }
        match self.call(|visit| visit.acquire(request)) {
            Reply::Queued(waiter) => self.callers[n].at = At::Waits(waiter),
            Reply::Now(answer) => self.hear(n, &answer),
        }
    }

    /// A new connection, because the old one may still wait.
    fn connect(&mut self, n: usize) -> u64 {
        self.last_client += 1;
        self.callers[n].client = self.last_client;
        self.last_client
    }

    fn hear(&mut self, n: usize, answer: &Answer) {
        let is_lost = self.random.one_in(8);
        self.callers[n].at = match answer {
            Answer::Waiting { .. } | Answer::Superseded => At::Asks,
            _ if is_lost => At::Asks,
            answer if granted(answer).is_some() => At::Holds,
            Answer::NotGranted | Answer::Refused(_) | Answer::Withdrawn => At::Idle,
            other => panic!("{other:?} is no answer here"),
        };
    }

    /// The answer to a request that waited. It may not be delivered, which the server finds out.
    pub(super) fn told(&mut self, wake: &Wake) {
        let waits = |caller: &Caller| caller.at == At::Waits(wake.waiter);
        // Otherwise the caller has asked again meanwhile.
        let Some(n) = self.callers.iter().position(waits) else {
            return;
        };
        self.hear(n, &wake.answer);
        if self.callers[n].at == At::Asks
            && let Some(grant) = wake.grant
        {
            let (client, now) = (ClientId(self.callers[n].client), self.now());
            let engine = &mut self.servers[self.primary].engine;
            engine.undelivered(grant, client, self.random.one_in(2), now);
        }
    }

    fn disconnect(&mut self, n: usize) {
        let (client, now) = (ClientId(self.callers[n].client), self.now());
        self.servers[self.primary].engine.disconnected(client, now);
        self.callers[n].at = At::Asks;
    }

    /// All who waited ask again.
    pub(super) fn lose_connections(&mut self) {
        for caller in &mut self.callers {
            if matches!(caller.at, At::Waits(_)) {
                caller.at = At::Asks;
            }
        }
    }
}
