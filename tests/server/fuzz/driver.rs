//! One thread that sends every request and reads every reply.
//!
//! It does not wait for a reply unless a step says so: requests of many connections are on their way at once, and the
//! server decides how they meet. The driver decides nothing at random: steps come from the plan or from a log.
//!
//! How a reply is checked is in `judge`.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::conditions::{Conditions, Relief};
use super::judge::describe;
use super::ledger::Ledger;
use super::link::{ClientLink, Part, Pending};
use super::meaning::Meaning;
use super::run_view::RunView;
use super::step::{Connection, FuzzRequest, OPERATOR, Step};
use super::words::{self, BROKEN};
use crate::support::*;

/// How much later than its BLOCK a reply may come.
const LATE: Duration = Duration::from_secs(20);

/// A grant that a client has read. The hold may have ended since.
#[derive(Clone, Debug)]
pub struct SeenGrant {
    pub database: usize,
    pub key: String,
    pub family: Family,
    /// As the log spells it: `$token:line` for a token that the server made.
    pub token: String,
}

/// A request that may be waiting in a queue.
#[derive(Clone, Debug)]
pub struct Waiting {
    pub on: usize,
    pub database: usize,
    pub key: String,
    pub family: Family,
    pub token: Option<String>,
    pub since: Instant,
}

pub struct Driver {
    pub(super) links: Vec<Option<ClientLink>>,
    last_serial: u64,
    pub ledger: Ledger,
    pub conditions: Conditions,
    pub(super) flavour: Flavour,
    pub(super) seen_grants: VecDeque<SeenGrant>,
    /// The token that the server made for the request of a log line.
    pub(super) made: HashMap<u64, String>,
    /// The last fence that each token was granted.
    pub(super) fences: HashMap<String, u64>,
    /// How often each command got each kind of reply.
    pub(super) counts: BTreeMap<String, u64>,
    pub(super) start: Instant,
    /// Replies and closed connections since [`Driver::take_heard`], a line each.
    pub(super) heard: Vec<String>,
    /// For each unanswered request of the operator: the condition that its reply ends, and the connection it unblocks.
    pub(super) turns: VecDeque<(Option<Relief>, Option<usize>)>,
}

impl Driver {
    /// `connections` is their number without the operator's.
    pub fn new(server: &Server, connections: usize) -> Driver {
        let mut ledger = Ledger::default();
        if server.info_section("keyspace").contains("db") {
            ledger.set_past_unknown();
        }
        Driver {
            links: (0..=connections).map(|_| None).collect(),
            last_serial: 0,
            ledger,
            conditions: Conditions::new(),
            flavour: server.flavour(),
            seen_grants: VecDeque::new(),
            made: HashMap::new(),
            fences: HashMap::new(),
            counts: BTreeMap::new(),
            start: Instant::now(),
            heard: Vec::new(),
            turns: VecDeque::new(),
        }
    }

    /// Carries out a step that concerns connections only. Later steps may refer to its log line.
    #[track_caller]
    pub fn perform(&mut self, server: &Server, line: u64, step: &Step) {
        match step {
            Step::Send { on, requests, fin } => {
                self.send(server, line, *on, requests);
                if *fin {
                    self.close(*on);
                }
            }
            Step::Close { on } => self.close(*on),
            Step::Settle => self.settle(),
            other => panic!("'{other}' is not for connections"),
        }
    }

    /// Sends requests on the operator's connection and waits for their replies.
    #[track_caller]
    pub fn operate(&mut self, server: &Server, lines: &[&str]) {
        self.perform(server, 0, &Step::operator(lines));
        while !self.is_idle(OPERATOR) {
            self.collect();
            std::thread::yield_now();
        }
    }

    /// Pauses writes: the server decides nothing from now on.
    #[track_caller]
    pub fn stand_still(&mut self, server: &Server) {
        self.operate(server, &["CLIENT PAUSE 600000 WRITE"]);
    }

    /// Ends every pause and every setting that makes the server refuse writes.
    #[track_caller]
    pub fn accept(&mut self, server: &Server) {
        let accept = [
            "CLIENT UNPAUSE",
            "CONFIG SET min-replicas-to-write 0",
            "CONFIG SET maxmemory 0",
        ];
        self.operate(server, &accept);
    }

    #[track_caller]
    fn send(&mut self, server: &Server, line: u64, on: usize, requests: &[FuzzRequest]) {
        assert!(on < self.links.len(), "line {line}: no connection {on}");
        if self.links[on].is_none() {
            self.last_serial += 1;
            self.links[on] = Some(ClientLink::open(server, self.last_serial));
        }
        let mut bytes = Vec::new();
        for request in requests {
            if !is_safe(request, self.link(on).transaction.is_some(), self.flavour) {
                continue;
            }
            let names = self.known_words(request);
            let database = self.link(on).database;
            bytes.extend(words::bytes(&names, server, database));
            self.expect(
                line,
                on,
                FuzzRequest {
                    words: names,
                    odd: request.odd,
                },
                request,
            );
        }
        if self.link(on).client.push(&bytes).is_err() {
            self.closed_by_server(on);
        }
    }

    pub(super) fn link(&mut self, on: usize) -> &mut ClientLink {
        self.links[on].as_mut().expect("the connection is open")
    }

    /// The words of a request, with the values that only this run knows.
    fn known_words(&self, request: &FuzzRequest) -> Vec<String> {
        let mut words: Vec<String> = request
            .words
            .iter()
            .map(|word| self.known_word(word))
            .collect();
        let is_unblock = words.len() == 4 && words[..2] == ["CLIENT", "UNBLOCK"];
        if is_unblock && !can_unblock_with_error(self.flavour) {
            words.pop();
        }
        words
    }

    fn known_word(&self, word: &str) -> String {
        if let Some(on) = word.strip_prefix("$client:") {
            let link = on
                .parse()
                .ok()
                .and_then(|on: usize| self.links.get(on)?.as_ref());
            // An id that no connection has.
            return link.map_or(u32::MAX.to_string(), |link| link.id.to_string());
        }
        if let Some(line) = word.strip_prefix("$token:") {
            let made = line.parse().ok().and_then(|line: u64| self.made.get(&line));
            return made.cloned().unwrap_or("never".to_owned());
        }
        if let Some(token) = word.strip_prefix("$fence:") {
            let fence = self.fences.get(&self.known_word(token));
            return fence.map_or("1".to_owned(), u64::to_string);
        }
        word.to_owned()
    }

    /// Remembers the reply that a request must get. `spelled` is the request as the log has it.
    fn expect(&mut self, line: u64, on: usize, request: FuzzRequest, spelled: &FuzzRequest) {
        let now = Instant::now();
        let name = request.words.first().map_or("", String::as_str).to_owned();
        if name == "PSUBSCRIBE" {
            // The server answers with messages only.
            self.link(on).subscribed = true;
            return;
        }
        if on == OPERATOR {
            let turn = self.conditions.sent(&request.words);
            let aim = self.aim(spelled, now);
            self.turns.push_back((turn, aim));
        }
        let words = request.words.clone();
        let part = |driver: &mut Driver, request: FuzzRequest, is_try| {
            let link = driver.link(on);
            let (database, serial) = (link.database, link.serial);
            let meaning = Meaning::of(&request.words);
            let entry = driver.ledger.sent(meaning, database, serial, is_try, now);
            Part {
                line,
                request,
                entry,
            }
        };
        let in_transaction = self.link(on).transaction.is_some();
        let pending = match name.as_str() {
            "EXEC" if in_transaction => {
                let parts = self.link(on).transaction.take().unwrap_or_default();
                Pending::All { parts, sent: now }
            }
            _ if in_transaction => {
                let queued = Pending::Queued {
                    request: request.clone(),
                    sent: now,
                };
                let part = part(self, request, true);
                self.link(on).transaction.get_or_insert_default().push(part);
                queued
            }
            "EVAL" => {
                let requests = words::requests_of_script(&request);
                let parts = requests
                    .into_iter()
                    .map(|request| part(self, request, true));
                let parts = parts.collect();
                Pending::All { parts, sent: now }
            }
            _ => Pending::Request(part(self, request, false)),
        };
        let link = self.link(on);
        link.push(pending, now);
        match (name.as_str(), words.get(1).map(String::as_str)) {
            ("SELECT", Some(database)) => link.database = database.parse().unwrap_or(0),
            ("HELLO", Some("3")) => link.resp3 = true,
            ("MULTI", _) => link.transaction = Some(Vec::new()),
            ("QUIT" | BROKEN, _) => link.may_close = true,
            _ => {}
        }
    }

    /// Remembers at which connection CLIENT KILL or CLIENT UNBLOCK is aimed; returns the one that is unblocked.
    fn aim(&mut self, spelled: &FuzzRequest, now: Instant) -> Option<usize> {
        let words: Vec<&str> = spelled.words.iter().map(String::as_str).collect();
        let at = |word: &str| word.strip_prefix("$client:")?.parse::<usize>().ok();
        match words.as_slice() {
            ["CLIENT", "KILL", "ID", whom] => {
                let link = self.links.get_mut(at(whom)?)?.as_mut()?;
                link.may_close = true;
                let serial = link.serial;
                self.ledger.disconnects(serial, now);
                None
            }
            ["CLIENT", "UNBLOCK", whom, ..] => {
                let on = at(whom)?;
                self.links.get_mut(on)?.as_mut()?.unblocks.open();
                Some(on)
            }
            _ => None,
        }
    }

    /// Closes a connection; the outcome of its unanswered requests stays unknown.
    pub fn close(&mut self, on: usize) {
        let now = Instant::now();
        if let Some(link) = self.links.get_mut(on).and_then(Option::take) {
            self.ledger.disconnects(link.serial, now);
            link.unanswered()
                .for_each(|part| self.ledger.lost(&part.entry, now));
            if on == OPERATOR {
                self.turns.clear();
            }
            link.client.close();
        }
    }

    /// Closes all connections, also the operator's.
    pub fn close_all(&mut self) {
        (0..self.links.len()).for_each(|on| self.close(on));
    }

    /// From now on the server may close any connection that is open.
    pub fn expect_closing(&mut self) {
        self.links
            .iter_mut()
            .flatten()
            .for_each(|link| link.may_close = true);
    }

    #[track_caller]
    fn closed_by_server(&mut self, on: usize) {
        let may_close = self.link(on).may_close;
        self.heard.push(format!("{} was closed", Connection(on)));
        assert!(
            may_close,
            "the server closed {}, without a reason",
            Connection(on)
        );
        self.close(on);
    }

    /// Reads and checks all replies that have arrived.
    #[track_caller]
    pub fn collect(&mut self) {
        for on in 0..self.links.len() {
            while let Some(link) = self.links[on].as_mut() {
                match link.client.poll() {
                    Ok(Some(Reply::Push(_))) => {}
                    Ok(Some(reply)) => self.answered(on, &reply),
                    Ok(None) => {
                        link.silent_since = Instant::now();
                        self.check_late(on);
                        break;
                    }
                    Err(Closed) => self.closed_by_server(on),
                }
            }
        }
    }

    #[track_caller]
    fn check_late(&mut self, on: usize) {
        let link = self.link(on);
        let Some(first) = link.pending.front() else {
            return;
        };
        let within = match first.waits() {
            None => LATE,
            Some(Some(wait)) => wait + LATE,
            Some(None) => return,
        };
        let what = first.parts().first().map_or(String::new(), describe);
        let since = link.first_since.elapsed();
        assert!(
            since < within,
            "{}: {what} has no reply after {since:?}",
            Connection(on)
        );
    }

    /// Takes the replies since the last call, a line each.
    pub fn take_heard(&mut self) -> Vec<String> {
        std::mem::take(&mut self.heard)
    }

    /// Waits until every request is answered that cannot be waiting in a queue.
    #[track_caller]
    pub fn settle(&mut self) {
        while self
            .links
            .iter()
            .flatten()
            .any(|link| !link.pending.is_empty() && !link.is_waiting())
        {
            self.collect();
            std::thread::yield_now();
        }
    }

    /// Reads replies for this long.
    #[track_caller]
    pub fn rest(&mut self, pause: Duration) {
        let until = Instant::now() + pause;
        loop {
            self.collect();
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(Duration::from_micros(500)));
        }
    }
}

impl RunView for Driver {
    fn is_idle(&self, on: usize) -> bool {
        let link = self.links.get(on).and_then(Option::as_ref);
        link.is_none_or(|link| link.pending.is_empty())
    }

    fn load(&self, on: usize) -> usize {
        let link = self.links.get(on).and_then(Option::as_ref);
        link.map_or(0, |link| link.pending.len())
    }

    fn is_resp3(&self, on: usize) -> bool {
        let link = self.links.get(on).and_then(Option::as_ref);
        link.is_some_and(|link| link.resp3)
    }

    fn database(&self, on: usize) -> usize {
        let link = self.links.get(on).and_then(Option::as_ref);
        link.map_or(0, |link| link.database)
    }

    fn connections(&self) -> usize {
        self.links.len() - 1
    }

    fn seen_grants(&self) -> &VecDeque<SeenGrant> {
        &self.seen_grants
    }

    fn waiting(&self) -> Vec<Waiting> {
        let links = self.links.iter().enumerate();
        let links = links.filter_map(|(on, link)| Some((on, link.as_ref()?)));
        let waiting = links.filter_map(|(on, link)| match link.pending.front()? {
            Pending::Request(part) if link.is_waiting() => {
                let (key, family, token) = match &part.entry.meaning {
                    Meaning::Ask(ask) => (ask.key.clone(), ask.claim.family(), ask.token.clone()),
                    _ => (part.request.words.get(1)?.clone(), Family::Group, None),
                };
                // The server refuses a token of another length.
                let token = token.filter(|token| (1..=128).contains(&token.len()));
                Some(Waiting {
                    on,
                    database: part.entry.database,
                    key,
                    family,
                    token,
                    since: part.entry.sent,
                })
            }
            _ => None,
        });
        waiting.collect()
    }
}

/// Returns false for Redis before 7.4 and Valkey 8: there a CLIENT UNBLOCK … ERROR in the turn of a grant can lose
/// the grant, or be a second reply.
fn can_unblock_with_error(flavour: Flavour) -> bool {
    match flavour.product {
        Product::Redis => flavour.version >= (7, 4, 0),
        Product::Valkey => flavour.version >= (9, 0, 0),
    }
}

/// Returns false for requests that meet a known defect of this server.
fn is_safe(request: &FuzzRequest, in_transaction: bool, flavour: Flavour) -> bool {
    let name = request.words.first().map_or("", String::as_str);
    match (flavour.product, name) {
        // Redis before 7.2 writes a message about a transaction's change into the middle of the reply to EXEC.
        (Product::Redis, "PSUBSCRIBE") => flavour.version >= (7, 2, 0),
        // Redis from 8.0 on notices a broken request behind one that waited only when the client sends more.
        (Product::Redis, BROKEN) => flavour.version < (8, 0, 0),
        // Valkey from 9.0 on tells modules of a MOVE in a transaction as if in the old database.
        (Product::Valkey, "MOVE") => flavour.version < (9, 0, 0) || !in_transaction,
        _ => true,
    }
}
