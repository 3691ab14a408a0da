//! The next step of a run: a random mix of requests, of what connections and operators do, and of faults.
//!
//! The seed decides, together with what the run shows so far: which requests wait, which grants were read.

use std::collections::VecDeque;
use std::time::Duration;

use rand::RngExt as _;

use super::requests::{NAMES, RequestGenerator, Version};
use super::run_view::RunView;
use super::step::{FuzzRequest, OPERATOR, Step};
use super::words::BROKEN;
use crate::support::InCommands;

/// What may happen in a run.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// How many names of keys are used.
    pub keys: usize,
    /// Whether keys get TTLs that may expire.
    pub ttls: bool,
    pub flushes: bool,
    /// Whether settings change, memory runs short, files are written, links break, and data are reloaded.
    pub faults: bool,
    /// Whether clients also write to the replica that takes writes, which must refuse that.
    pub strays: bool,
    /// The oldest module that must know the requests.
    pub oldest: Version,
    /// Whether clients send QUIT or a broken request behind their requests. Modules up to 0.4.0 gave the grant of such a
    /// client to another one as well.
    pub quits: bool,
    /// Whether each step waits for the reply to the one before, unless that request waits in a queue.
    pub one_by_one: bool,
}

pub struct Plan {
    requests: RequestGenerator,
    pub mix: Mix,
    /// Steps that must follow the last one.
    next: VecDeque<Step>,
    /// The number of steps until writes are accepted again.
    refusing_for: u32,
}

/// How many requests of one connection may be unanswered.
const PILED: usize = 3;

impl Plan {
    pub fn new(seed: u64, mix: Mix) -> Plan {
        Plan {
            requests: RequestGenerator::new(seed, mix.keys, mix.oldest),
            mix,
            next: VecDeque::new(),
            refusing_for: 0,
        }
    }

    /// The next step, and how long to wait before it.
    pub fn next(&mut self, view: &dyn RunView) -> (Duration, Step) {
        if let Some(step) = self.next.pop_front() {
            return (Duration::ZERO, step);
        }
        if self.refusing_for > 0 {
            self.refusing_for -= 1;
            if self.refusing_for == 0 {
                let back = [
                    "CONFIG SET min-replicas-to-write 0",
                    "CONFIG SET maxmemory 0",
                ];
                return (Duration::ZERO, Step::operator(&back));
            }
        }
        let pause = match self.requests.rng.random_range(0..100) {
            0..92 => Duration::ZERO,
            92..99 => Duration::from_micros(self.requests.rng.random_range(100..4_000)),
            _ => Duration::from_millis(self.requests.rng.random_range(4..30)),
        };
        let step = self.step(view);
        if self.mix.one_by_one {
            self.next.push_back(Step::Settle);
        }
        (pause, step)
    }

    fn step(&mut self, view: &dyn RunView) -> Step {
        // Every connection waits: close one, so that others can be used.
        let busy = (1..=view.connections()).all(|on| !view.is_idle(on));
        if busy && self.requests.chance(30) {
            return Step::Close {
                on: self.any_connection(view),
            };
        }
        match self.requests.rng.random_range(0..1_000) {
            0..560 => self.send(view),
            560..600 => self.transaction(view),
            600..625 => self.script(view),
            625..740 => {
                let request = self.requests.keyspace(self.mix.ttls, self.mix.flushes);
                let database = self.requests.database();
                self.on_free_connection(view, database, vec![request])
            }
            740..775 => Step::Close {
                on: self.any_connection(view),
            },
            775..805 => self.kill(view),
            805..845 => self.end_and_remove(view),
            845..862 => self.unblock(view),
            862..868 => {
                let ms = self.requests.number(2..20);
                Step::operator(&[&format!("CLIENT PAUSE {ms} WRITE")])
            }
            868..872 => Step::operator(&["CLIENT UNPAUSE"]),
            872..876 => {
                self.refusing_for = self.requests.rng.random_range(1..30);
                Step::operator(&["CONFIG SET min-replicas-to-write 9"])
            }
            876..886 => Step::operator(&["DEBUG SLEEP 0.006"]),
            886..906 => self.turn_over(view),
            906..910 => Step::Settle,
            910..920 if self.mix.quits => self.quit(view),
            910..920 => Step::Settle,
            920..930 => self.give_up(view),
            930..950 if self.mix.faults => self.fault(),
            950..960 if self.mix.strays => self.stray(view),
            _ => self.send(view),
        }
    }

    /// A well-formed write to the replica, without words that only a connection to the primary has a meaning for.
    fn stray(&mut self, view: &dyn RunView) -> Step {
        let (database, request) = self.request(view, false);
        let is_plain = !request.odd && !request.words.iter().any(|word| word.contains('$'));
        match is_plain && is_write(&request) {
            true => Step::Stray { database, request },
            false => self.send(view),
        }
    }

    /// Any connection but the operator's.
    fn any_connection(&mut self, view: &dyn RunView) -> usize {
        self.requests.rng.random_range(1..=view.connections())
    }

    /// A connection without unanswered requests, where there is one; sometimes one with a few.
    fn free(&mut self, view: &dyn RunView) -> usize {
        let start = self.any_connection(view);
        let count = view.connections();
        let mut all = (0..count).map(|n| (start + n - 1) % count + 1);
        let patient = !self.mix.one_by_one && self.requests.chance(6);
        let free = if patient {
            all.find(|on| view.load(*on) < PILED)
        } else {
            all.find(|on| view.is_idle(*on))
        };
        free.unwrap_or(start)
    }

    fn on_free_connection(
        &mut self,
        view: &dyn RunView,
        database: usize,
        mut requests: Vec<FuzzRequest>,
    ) -> Step {
        let on = self.free(view);
        if view.database(on) != database {
            requests.insert(0, FuzzRequest::line(&format!("SELECT {database}")));
        }
        if !view.is_resp3(on) && self.requests.chance(2) {
            requests.insert(0, FuzzRequest::line("HELLO 3"));
            if self.requests.chance(20) {
                requests.push(FuzzRequest::line("CLIENT TRACKING ON"));
            } else if self.requests.chance(10) {
                requests.push(FuzzRequest::line("PSUBSCRIBE __key*__:*"));
            }
        }
        Step::Send {
            on,
            requests,
            fin: self.requests.chance(2),
        }
    }

    fn request(&mut self, view: &dyn RunView, in_script: bool) -> (usize, FuzzRequest) {
        let (database, request) = if self.requests.chance(55) {
            self.requests.ask(view, in_script)
        } else {
            self.requests.word(view)
        };
        let request = if self.requests.chance(2) {
            self.requests.spoil(request)
        } else {
            request
        };
        (database, request)
    }

    fn some_requests(
        &mut self,
        view: &dyn RunView,
        most: u32,
        in_script: bool,
    ) -> (usize, Vec<FuzzRequest>) {
        let (database, first) = self.request(view, in_script);
        let mut requests = vec![first];
        for _ in 1..self.requests.rng.random_range(1..=most) {
            // Its database is ignored: the request is sent in the database of the first.
            requests.push(self.request(view, in_script).1);
        }
        (database, requests)
    }

    fn send(&mut self, view: &dyn RunView) -> Step {
        let most = if self.requests.chance(15) { 4 } else { 1 };
        let (database, requests) = self.some_requests(view, most, false);
        self.on_free_connection(view, database, requests)
    }

    /// A client waits, and has sent behind its request what has the server close the connection when it has answered.
    /// Another waits for the same, and then it is released.
    fn quit(&mut self, view: &dyn RunView) -> Step {
        let (database, [held, first, second, release]) = self.requests.hand_off();
        let end = if self.requests.chance(50) {
            FuzzRequest::line("QUIT")
        } else {
            FuzzRequest {
                odd: true,
                ..FuzzRequest::line(BROKEN)
            }
        };
        let remove = FuzzRequest::new(["DEL", &held.words[1]]);
        let mut on_free = |requests| self.on_free_connection(view, database, requests);
        let steps = [
            on_free(vec![remove, held]),
            Step::Settle,
            on_free(vec![first, end]),
            on_free(vec![second]),
            Step::Settle,
            on_free(vec![release]),
        ];
        self.next.extend(steps);
        Step::Settle
    }

    fn transaction(&mut self, view: &dyn RunView) -> Step {
        let (database, mut requests) = self.some_requests(view, 4, false);
        if self.requests.chance(15) {
            requests.push(self.requests.keyspace(false, false));
        }
        let elsewhere = self.requests.database();
        if self.requests.chance(10) {
            let at = self.requests.rng.random_range(0..=requests.len());
            requests.insert(at, FuzzRequest::line(&format!("SELECT {elsewhere}")));
        }
        requests.insert(0, FuzzRequest::line("MULTI"));
        if self.requests.chance(20) {
            let key = NAMES[self.requests.key()];
            requests.insert(0, FuzzRequest::new(["WATCH", key]));
        }
        requests.push(FuzzRequest::line("EXEC"));
        // The transaction may have selected another database.
        requests.push(FuzzRequest::line(&format!("SELECT {database}")));
        self.on_free_connection(view, database, requests)
    }

    fn script(&mut self, view: &dyn RunView) -> Step {
        if self.requests.chance(15) {
            let ms = self.requests.number(1..6);
            return self.on_free_connection(
                view,
                0,
                vec![FuzzRequest::line(&format!("EVAL $busy:{ms} 0"))],
            );
        }
        let (database, requests) = self.some_requests(view, 3, true);
        let key = requests[0].words.get(1).cloned().unwrap_or_default();
        let odd = requests.iter().any(|request| request.odd);
        let mut words: Vec<String> = ["EVAL", "$each", "1", &key].map(str::to_owned).to_vec();
        for (nth, request) in requests.into_iter().enumerate() {
            words.extend((nth > 0).then(|| ";".to_owned()));
            words.extend(request.words);
        }
        self.on_free_connection(view, database, vec![FuzzRequest { words, odd }])
    }

    fn kill(&mut self, view: &dyn RunView) -> Step {
        let on = self.any_connection(view);
        Step::operator(&[&format!("CLIENT KILL ID $client:{on}")])
    }

    /// In one turn, a hold that a client waits for is ended, and that client is killed or unblocked.
    fn end_and_remove(&mut self, view: &dyn RunView) -> Step {
        let waiting = view.waiting();
        if waiting.is_empty() {
            return self.send(view);
        }
        let at = self.requests.rng.random_range(0..waiting.len());
        let first = waiting
            .iter()
            .filter(|other| other.key == waiting[at].key && other.database == waiting[at].database);
        let first = first
            .min_by_key(|other| other.since)
            .unwrap_or(&waiting[at]);
        // Most often the first waiter of the key.
        let waiting = if self.requests.chance(70) {
            first
        } else {
            &waiting[at]
        };
        let key = waiting.key.clone();
        let held = view.seen_grants().iter().rev().find(|grant| {
            grant.key == waiting.key
                && grant.database == waiting.database
                && grant.family == waiting.family
        });
        let prefix = waiting.family.prefix();
        let end = match (held, self.requests.rng.random_range(0..10)) {
            (Some(grant), 0..5) => {
                FuzzRequest::new([format!("{prefix}.RELEASE"), key, grant.token.clone()])
            }
            (Some(grant), 5..8) => {
                let fence = format!("$fence:{}", grant.token);
                FuzzRequest::new([format!("{prefix}.REVOKE"), key, fence])
            }
            _ => FuzzRequest::new(["DEL".to_owned(), key]),
        };
        let on = waiting.on;
        let whom = match self.requests.rng.random_range(0..10) {
            0..6 => format!("CLIENT KILL ID $client:{on}"),
            6..8 => format!("CLIENT UNBLOCK $client:{on}"),
            _ => format!("CLIENT UNBLOCK $client:{on} ERROR"),
        };
        let mut requests = vec![FuzzRequest::line(&format!("SELECT {}", waiting.database))];
        // Redis 7.0 crashes when a client is unblocked whose request a pause has postponed.
        requests.push(FuzzRequest::line("CLIENT UNPAUSE"));
        requests.extend([end, FuzzRequest::line(&whom)]);
        if self.requests.chance(30) {
            requests.swap(2, 3);
        }
        Step::Send {
            on: OPERATOR,
            requests,
            fin: false,
        }
    }

    /// A client gives up waiting and releases, and then its request comes once more, in any form and on any connection.
    fn give_up(&mut self, view: &dyn RunView) -> Step {
        let waiting = view.waiting();
        if waiting.is_empty() {
            return self.send(view);
        }
        let at = self.requests.rng.random_range(0..waiting.len());
        let Some((database, late)) = self.requests.late(&waiting[at]) else {
            return self.send(view);
        };
        let step = self.on_free_connection(view, database, vec![late]);
        self.next.push_back(step);
        let waiting = &waiting[at];
        let name = format!("{}.RELEASE", waiting.family.prefix());
        let token = waiting.token.clone().unwrap_or_default();
        let release = FuzzRequest::new([name, waiting.key.clone(), token]);
        self.on_free_connection(view, database, vec![release])
    }

    fn unblock(&mut self, view: &dyn RunView) -> Step {
        let waiting = view.waiting();
        if waiting.is_empty() {
            return self.send(view);
        }
        let at = self.requests.rng.random_range(0..waiting.len());
        let error = if self.requests.chance(30) {
            " ERROR"
        } else {
            ""
        };
        let unblock = format!("CLIENT UNBLOCK $client:{}{error}", waiting[at].on);
        Step::operator(&["CLIENT UNPAUSE", &unblock])
    }

    /// Releases the holds of a key and closes waiting connections, because the key is used for something else from now
    /// on.
    fn turn_over(&mut self, view: &dyn RunView) -> Step {
        let key = self.requests.turn_over();
        let grants: Vec<_> = view
            .seen_grants()
            .iter()
            .filter(|grant| grant.key == key)
            .cloned()
            .collect();
        for grant in grants.iter().rev().take(4) {
            let name = format!("{}.RELEASE", grant.family.prefix());
            let release = FuzzRequest::new([name, key.to_owned(), grant.token.clone()]);
            let step = self.on_free_connection(view, grant.database, vec![release]);
            self.next.push_back(step);
        }
        let gone: Vec<_> = view
            .waiting()
            .into_iter()
            .filter(|waiting| waiting.key == key)
            .collect();
        for waiting in gone {
            if self.requests.chance(60) {
                self.next.push_back(Step::Close { on: waiting.on });
            }
        }
        Step::Settle
    }

    fn fault(&mut self) -> Step {
        let setting = |name: &str, value: String| format!("CONFIG SET dsync.{name} {value}");
        let line = match self.requests.rng.random_range(0..100) {
            0..12 => setting(
                "rejoin-ms",
                self.requests.one_of(&["0", "30", "400", "2000"]).to_owned(),
            ),
            12..18 => setting("default-lease-ms", self.requests.number(5..300)),
            18..24 => setting(
                "max-lease-ms",
                self.requests
                    .one_of(&["400", "600000", "600000"])
                    .to_owned(),
            ),
            24..30 => setting(
                "group-keep-ms",
                self.requests.one_of(&["0", "20", "400"]).to_owned(),
            ),
            30..36 => setting(
                "once-keep-ms",
                self.requests.one_of(&["1", "50", "700"]).to_owned(),
            ),
            36..42 => setting(
                "takeover-grace-ms",
                self.requests.one_of(&["0", "100"]).to_owned(),
            ),
            42..50 => setting(
                "max-waiters-per-key",
                self.requests
                    .one_of(&["1", "4", "20000", "20000"])
                    .to_owned(),
            ),
            50..54 => setting(
                "max-waiters",
                self.requests.one_of(&["6", "100000", "100000"]).to_owned(),
            ),
            54..58 => setting(
                "max-result-bytes",
                self.requests.one_of(&["100", "65536"]).to_owned(),
            ),
            58..64 => {
                let events = self.requests.one_of(&["", "KEA", "Kd"]);
                return Step::one(
                    OPERATOR,
                    FuzzRequest::new(["CONFIG", "SET", "notify-keyspace-events", events]),
                );
            }
            64..70 => {
                self.refusing_for = self.requests.rng.random_range(1..30);
                "CONFIG SET maxmemory 1".to_owned()
            }
            70..80 => "BGSAVE".to_owned(),
            80..90 => "BGREWRITEAOF".to_owned(),
            90..96 => "CLIENT KILL TYPE replica".to_owned(),
            _ => return Step::Reload,
        };
        Step::operator(&[&line])
    }
}

/// Whether the request is a command of the module that may change its key.
fn is_write(request: &FuzzRequest) -> bool {
    let name = request.words[0].to_ascii_uppercase();
    match name.split_once('.') {
        Some(("DLOCK" | "DSEM" | "DWG" | "DONCE", verb)) => {
            !["CHECK", "INFO", "GET"].contains(&verb)
        }
        _ => false,
    }
}
