//! A random history of everything that can happen to keys, told to a running primary.
//!
//! Impatient clients ask for holds of all four families in three databases, wait, come back, die and are
//! killed; operators revoke, pin, pause, rename, move, swap, overwrite, restore and flush. Leases are short
//! for the most part, so that they lapse in the middle of all this.
//!
//! The seed decides what is asked; when leases lapse, and so what is answered, is the server's. A history
//! that fails prints its seed and its last steps; `DSYNC_SEED=n` runs that seed alone, `DSYNC_HISTORIES=n`
//! that many.
//!
//! At any moment a history can be made to [stand still](History::still): while writes are paused a primary
//! decides nothing, so what it holds and what others hold of it can be compared to the letter.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng};

use crate::harness::*;
use crate::steps::SOON;

const DATABASES: usize = 3;
const NAMES: [&str; 13] = [
    "l0", "l1", "l2", "s0", "s1", "s2", "g0", "g1", "g2", "o0", "o1", "o2", "plain",
];
const CLIENTS: usize = 8;
/// For what must happen while a history goes on.
const UNTIL: Duration = Duration::from_secs(30);
/// How many of the last steps a failure shows.
const SHOWN: usize = 60;

/// What a request may be answered besides what it asks for.
const REFUSALS: [&str; 11] = [
    "WRONGTYPE",
    "MISMATCH",
    "TOOMANY",
    "NOLIMIT",
    "UNBLOCKED",
    "NOREPLICAS",
    "EXECABORT",
    "ERR no such key",
    "ERR source and destination objects are the same",
    "ERR EPHEMERAL",
    "ERR module key failed to copy",
];

/// The seeds to run: what the environment says, or so many.
pub fn seeds(count: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match number("DSYNC_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..number("DSYNC_HISTORIES").unwrap_or(count) + 1,
    }
}

/// A server on which what is kept for a while is not kept for long, so that it goes within a history.
pub fn builder() -> Builder {
    let short = [
        ("default-lease-ms", 40),
        ("rejoin-ms", 30),
        ("group-keep-ms", 60),
        ("group-idle-ms", 1_000),
        ("once-keep-ms", 300),
        ("takeover-grace-ms", 20),
    ];
    let builder = Server::builder().config("repl-backlog-size", "32mb");
    short.into_iter().fold(builder, |builder, (name, ms)| {
        builder.module_arg(name).module_arg(ms)
    })
}

struct Actor {
    client: Client,
    id: u64,
    database: usize,
    /// It has sent a request that may wait, and has not read the reply.
    waits: bool,
}

impl Actor {
    fn connect(server: &Server) -> Actor {
        let mut client = server.connect();
        Actor {
            id: client.id(),
            client,
            database: 0,
            waits: false,
        }
    }
}

/// A hold that somebody was told of; it may be gone.
#[derive(Clone)]
struct Told {
    database: usize,
    key: String,
    token: String,
    fence: String,
}

/// A request's words.
type Line = Vec<String>;

fn line(words: &[&str]) -> Line {
    words.iter().map(|word| (*word).to_owned()).collect()
}

pub struct History<'a> {
    seed: u64,
    rng: StdRng,
    server: &'a Server,
    operator: Actor,
    actors: Vec<Actor>,
    told: VecDeque<Told>,
    tokens: u64,
    /// Writes are refused for want of replicas.
    refusing: bool,
    /// Writes may be paused until then.
    paused_until: Instant,
    /// No key gets a TTL that may run out: see [`History::without_ttls`].
    ttls: bool,
    /// Databases are flushed: see [`History::without_flushes`].
    flushes: bool,
    steps: Vec<String>,
}

impl<'a> History<'a> {
    pub fn new(server: &'a Server, seed: u64) -> History<'a> {
        History {
            seed,
            rng: StdRng::seed_from_u64(seed),
            server,
            operator: Actor::connect(server),
            actors: (0..CLIENTS).map(|_| Actor::connect(server)).collect(),
            told: VecDeque::new(),
            tokens: 0,
            refusing: false,
            paused_until: Instant::now(),
            ttls: true,
            flushes: true,
            steps: Vec::new(),
        }
    }

    /// Keys get no TTL by hand: for a server that loads its own data in the middle. A primary leaves out
    /// what has expired when it loads, and tells nobody.
    pub fn without_ttls(mut self) -> History<'a> {
        self.ttls = false;
        self
    }

    pub fn steps(&mut self, count: u32) {
        for _ in 0..count {
            self.step();
        }
    }

    /// Databases are not flushed: for a story about links that break. From Redis 7.4 on, a replica whose
    /// link breaks while a flush is under way forgets where it was.
    pub fn without_flushes(mut self) -> History<'a> {
        self.flushes = false;
        self
    }

    /// Goes on until the condition holds.
    #[track_caller]
    pub fn until(&mut self, what: &str, holds: impl Fn() -> bool) {
        let deadline = Instant::now() + UNTIL;
        loop {
            let late = Instant::now() >= deadline;
            if holds() {
                return;
            }
            assert!(!late, "not within {UNTIL:?}: {what}");
            self.step();
        }
    }

    /// Lets somebody look while nothing changes: writes are paused, and the server decides nothing.
    pub fn still<R>(&mut self, look: impl FnOnce(&Server) -> R) -> R {
        self.stand_still();
        let seen = look(self.server);
        self.operate(&["CLIENT", "UNPAUSE"]);
        seen
    }

    /// The same for good: for a server that is about to be killed.
    pub fn stand_still(&mut self) {
        self.operate(&["CLIENT", "PAUSE", "600000", "WRITE"]);
    }

    /// The end of the history: every hold whose lease runs out ends, wherever its key has gone since.
    #[track_caller]
    pub fn end(mut self) {
        // No lease runs while writes are refused.
        self.refuse_no_more();
        let client = &mut self.operator.client;
        for database in 0..DATABASES {
            assert_eq!(call!(client, "SELECT", database), "OK");
            for name in NAMES {
                eventually(
                    &format!("nothing overdue in {database} {name}"),
                    SOON,
                    || nothing_is_overdue(client, name),
                );
            }
        }
    }

    fn refuse_no_more(&mut self) {
        if self.refusing {
            self.refusing = false;
            self.operate(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
        }
    }

    fn step(&mut self) {
        self.collect();
        if self.rng.random_range(0..4) == 0 {
            self.refuse_no_more();
        }
        match self.rng.random_range(0..100) {
            0..62 => self.ask(),
            62..66 => self.transaction(),
            66..68 => self.script(),
            68..82 => self.keyspace(),
            82..86 => self.hang_up(),
            86..90 => self.kill(),
            90..93 => self.revoke_and_kill(),
            93..95 => self.unblock(),
            95 => self.pause(),
            96 => {
                self.refusing = true;
                self.operate(&["CONFIG", "SET", "min-replicas-to-write", "9"]);
            }
            97 => self.operate(&["DEBUG", "SLEEP", "0.008"]),
            _ => self.let_time_pass(),
        }
    }

    fn note(&mut self, who: impl std::fmt::Display, words: &[String]) {
        self.steps.push(format!("{who}: {}", words.join(" ")));
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn one_of<'b>(&mut self, choices: &[&'b str]) -> &'b str {
        choices[self.rng.random_range(0..choices.len())]
    }

    fn number(&mut self, range: std::ops::Range<u32>) -> String {
        self.rng.random_range(range).to_string()
    }

    fn database(&mut self) -> usize {
        [0, 0, 0, 0, 0, 0, 1, 1, 1, 2][self.rng.random_range(0..10)]
    }

    /// A key of the family, most often: `l`, `s`, `g` or `o`.
    fn key(&mut self, family: &str) -> String {
        if self.chance(4) {
            return self.one_of(&NAMES).to_owned();
        }
        format!("{family}{}", self.rng.random_range(0..3))
    }

    /// Short for the most part; some outlast the history, so that there is something left to compare.
    fn lease(&mut self) -> Line {
        match self.rng.random_range(0..10) {
            0..3 => line(&["EX", &self.number(600..700)]),
            3..9 => line(&["PX", &self.number(1..60)]),
            _ => Line::new(),
        }
    }

    fn token(&mut self) -> String {
        self.tokens += 1;
        let n = self.tokens;
        if !self.chance(30) {
            return format!("{}:{n}", self.seed);
        }
        // A retry, late or not.
        let back = self.rng.random_range(1..12);
        format!("{}:{}", self.seed, n.saturating_sub(back))
    }

    /// What comes behind the key of a request for a hold. Scripts may not bind holds to connections.
    fn wishes(&mut self, in_script: bool) -> Line {
        let mut wishes = self.lease();
        if self.chance(80) {
            wishes.extend(["TOKEN".to_owned(), self.token()]);
        }
        if self.chance(60) {
            let block = if self.chance(15) {
                "0".to_owned()
            } else {
                self.number(1..40)
            };
            wishes.extend(["BLOCK".to_owned(), block]);
        }
        if !in_script && self.chance(20) {
            wishes.push("EPHEMERAL".to_owned());
        }
        if self.chance(20) {
            wishes.extend(["OWNER".to_owned(), format!("o\r\n{}", self.tokens)]);
        }
        wishes
    }

    fn request(&mut self, in_script: bool) -> Line {
        let mut request = match self.rng.random_range(0..100) {
            0..12 => {
                let mut request = vec!["DLOCK.ACQUIRE".to_owned(), self.key("l")];
                if self.chance(40) {
                    request.push("SHARED".to_owned());
                }
                request
            }
            12..26 => {
                let mut request = vec!["DSEM.ACQUIRE".to_owned(), self.key("s")];
                if self.chance(70) {
                    request.extend(["LIMIT".to_owned(), self.number(1..6)]);
                }
                if self.chance(40) {
                    request.extend(["PERMITS".to_owned(), self.number(1..4)]);
                }
                request
            }
            26..40 => {
                let mut request = vec!["DWG.ADD".to_owned(), self.key("g")];
                if self.chance(40) {
                    request.extend(["LIMIT".to_owned(), self.number(1..4)]);
                }
                request
            }
            40..54 => {
                let mut request = vec!["DONCE.BEGIN".to_owned(), self.key("o")];
                if self.chance(50) {
                    request.extend(["MAX".to_owned(), self.number(1..5)]);
                }
                request
            }
            other => return self.word_on_a_hold(other),
        };
        request.extend(self.wishes(in_script));
        request
    }

    /// What is said of holds and keys that are there already.
    fn word_on_a_hold(&mut self, kind: u32) -> Line {
        match kind {
            ..58 => {
                let limit = if self.chance(40) {
                    "NONE".to_owned()
                } else {
                    self.number(0..6)
                };
                return vec!["DSEM.LIMIT".to_owned(), self.key("s"), limit];
            }
            58..62 => return vec!["DWG.EXPECT".to_owned(), self.key("g"), self.number(1..4)],
            62..66 => {
                let block = self.number(1..40);
                return vec![
                    "DWG.WAIT".to_owned(),
                    self.key("g"),
                    "BLOCK".to_owned(),
                    block,
                ];
            }
            _ => {}
        }
        let Some(told) = self.some_told() else {
            return line(&["DLOCK.INFO", "l0"]);
        };
        let (key, token) = (told.key.as_str(), told.token.as_str());
        let prefix = match key.as_bytes()[0] {
            b'l' => "DLOCK",
            b's' => "DSEM",
            b'g' => "DWG",
            _ => "DONCE",
        };
        let say = |word: &str, with: &str| line(&[&format!("{prefix}.{word}"), key, with]);
        match kind {
            66..72 => say("RENEW", token)
                .into_iter()
                .chain(self.lease())
                .collect(),
            72..77 => say("REVOKE", &told.fence),
            77..79 => say("CHECK", token),
            79..88 if prefix == "DWG" => say("DONE", token),
            79..85 if prefix == "DONCE" => {
                let kept = self.lease();
                let result = line(&["RESULT", "r\r\n"]);
                say("DONE", token)
                    .into_iter()
                    .chain(result)
                    .chain(kept)
                    .collect()
            }
            85..91 if prefix == "DONCE" => {
                let reason = line(&["REASON", "no disk"]);
                say("FAIL", token).into_iter().chain(reason).collect()
            }
            _ => say("RELEASE", token),
        }
    }

    fn some_told(&mut self) -> Option<Told> {
        if self.told.is_empty() {
            return None;
        }
        let at = self.rng.random_range(0..self.told.len());
        self.told.get(at).cloned()
    }

    /// The database of the request: that of the hold it speaks of, most often.
    fn database_of(&mut self, request: &Line) -> usize {
        let told = self.told.iter().find(|told| request.contains(&told.token));
        match told.map(|told| told.database) {
            Some(database) if !self.chance(5) => database,
            _ => self.database(),
        }
    }

    /// Somebody who is not waiting, with the database selected.
    fn free_actor(&mut self, database: usize) -> usize {
        let start = self.rng.random_range(0..CLIENTS);
        let free = (0..CLIENTS)
            .map(|n| (start + n) % CLIENTS)
            .find(|at| !self.actors[*at].waits);
        let at = free.unwrap_or_else(|| {
            self.actors[start] = Actor::connect(self.server);
            start
        });
        select(&mut self.actors[at], database);
        at
    }

    fn ask(&mut self) {
        let request = self.request(false);
        let database = self.database_of(&request);
        let at = self.free_actor(database);
        self.note(at, &request);
        self.actors[at].client.send(&request);
        if request.iter().any(|word| word == "BLOCK") {
            self.actors[at].waits = true;
        } else {
            let reply = answer(&mut self.actors[at]);
            self.hear(database, &reply, Some(&request));
        }
    }

    fn transaction(&mut self) {
        let database = self.database();
        let at = self.free_actor(database);
        let count = self.rng.random_range(1..5);
        let requests: Vec<Line> = (0..count).map(|_| self.request(false)).collect();
        self.note(at, &requests.concat());
        let actor = &mut self.actors[at];
        actor.client.send(&["MULTI"]);
        requests
            .iter()
            .for_each(|request| actor.client.send(request));
        actor.client.send(&["EXEC"]);
        for _ in 0..=requests.len() {
            answer(actor);
        }
        let done = answer(actor);
        self.hear(database, &done, None);
    }

    fn script(&mut self) {
        let database = self.database();
        let at = self.free_actor(database);
        let request = self.request(true);
        let script = "redis.call('INCR', KEYS[2]) return redis.pcall(unpack(ARGV))";
        let mut eval = line(&["EVAL", script, "2", &request[1].clone(), "plain"]);
        eval.extend(request);
        self.note(at, &eval);
        let reply = self.actors[at].client.call(&eval);
        self.hear(database, &reply, Some(&eval[5..].to_vec()));
    }

    /// What other commands do to keys.
    fn keyspace(&mut self) {
        let database = self.database();
        select(&mut self.operator, database);
        let (key, other) = (self.one_of(&NAMES[..12]), self.one_of(&NAMES[..12]));
        let elsewhere = self.number(0..3);
        let ms = if self.ttls {
            self.number(1..60)
        } else {
            "900000".to_owned()
        };
        let line: &[&str] = match self.rng.random_range(0..60) {
            0..12 => &["DEL", key],
            12..20 => &["UNLINK", key, other],
            20..30 => &["RENAME", key, other],
            30..33 => &["RENAMENX", key, other],
            33..39 => &["MOVE", key, &elsewhere],
            39..41 => &["SWAPDB", "0", &elsewhere],
            41..45 => &["PEXPIRE", key, &ms],
            45..47 => &["PERSIST", key],
            47..50 => &["SET", key, "overwritten", "PX", &ms],
            50..52 => &["COPY", key, other],
            52..58 => return self.restore(key, other),
            58 if !self.flushes => return,
            58 if self.chance(50) => &["FLUSHDB"],
            58 => &["FLUSHDB", "ASYNC"],
            _ => &["DEL", "plain"],
        };
        self.operate(line);
    }

    fn restore(&mut self, key: &str, other: &str) {
        let payload = call!(self.operator.client, "DUMP", key);
        if payload.is_nil() {
            return;
        }
        self.note("operator", &line(&["RESTORE", other, "(what is in)", key]));
        let reply = call!(
            self.operator.client,
            "RESTORE",
            other,
            0,
            payload.as_bytes(),
            "REPLACE"
        );
        check(&reply);
    }

    fn pause(&mut self) {
        self.operate(&["CLIENT", "PAUSE", "12", "WRITE"]);
        self.paused_until = Instant::now() + Duration::from_millis(60);
    }

    fn operate(&mut self, words: &[&str]) {
        self.note("operator", &line(words));
        let reply = self.operator.client.call(words);
        check(&reply);
    }

    fn hang_up(&mut self) {
        let at = self.rng.random_range(0..CLIENTS);
        self.note(at, &line(&["hangs up"]));
        self.actors[at] = Actor::connect(self.server);
    }

    fn kill(&mut self) {
        let at = self.rng.random_range(0..CLIENTS);
        let id = self.actors[at].id.to_string();
        self.note(at, &line(&["is killed"]));
        call!(self.operator.client, "CLIENT", "KILL", "ID", id);
        self.actors[at] = Actor::connect(self.server);
    }

    /// In one turn: a hold is taken away, and the first in line for it is gone before it can be told.
    fn revoke_and_kill(&mut self) {
        let contended = call!(self.operator.client, "DSYNC.CONTENDED", "COUNT", 4);
        let keys = contended.as_array();
        if keys.is_empty() {
            return;
        }
        let [database, key, family, ..] = keys[self.rng.random_range(0..keys.len())].as_array()
        else {
            panic!("a row of DSYNC.CONTENDED: {contended:?}");
        };
        let prefix = match family.as_str() {
            "lock" => "DLOCK",
            "semaphore" => "DSEM",
            "group" => "DWG",
            _ => "DONCE",
        };
        let database = usize::try_from(database.as_int()).expect("a database");
        select(&mut self.operator, database);
        let key = key.as_str();
        let info = call!(self.operator.client, format!("{prefix}.INFO"), key);
        // It may be over by now, or the key be of another family than they wait for.
        if info.is_error() || info.is_nil() {
            return;
        }
        let first = |list: &str, field: &str| {
            let first = info.field(list).as_array().first()?;
            Some(first.field(field).clone())
        };
        let (Some(Reply::Int(fence)), Some(Reply::Int(waiter))) = (
            first("first-holders", "fence"),
            first("first-waiters", "client"),
        ) else {
            return;
        };
        let both = format!("{prefix}.REVOKE {key} {fence}\r\nCLIENT KILL ID {waiter}\r\n");
        self.note("operator", &line(&[&both]));
        self.operator.client.send_raw(both.as_bytes());
        check(&answer(&mut self.operator));
        answer(&mut self.operator);
        let killed = self
            .actors
            .iter()
            .position(|actor| i64::try_from(actor.id) == Ok(waiter));
        if let Some(at) = killed {
            self.actors[at] = Actor::connect(self.server);
        }
    }

    fn unblock(&mut self) {
        // Redis 7.0 ends itself when a client is unblocked that is held up by a pause.
        if Instant::now() < self.paused_until {
            return;
        }
        if let Some(at) = self.actors.iter().position(|actor| actor.waits) {
            let id = self.actors[at].id.to_string();
            self.operate(&["CLIENT", "UNBLOCK", &id]);
        }
    }

    fn let_time_pass(&mut self) {
        let ms = self.rng.random_range(1..25);
        self.collect_within(Duration::from_millis(ms));
    }

    fn collect(&mut self) {
        self.collect_within(Duration::ZERO);
    }

    /// Reads the reply of one who waits, if it is there in time.
    fn collect_within(&mut self, within: Duration) {
        let start = self.rng.random_range(0..CLIENTS);
        let waiting = (0..CLIENTS)
            .map(|n| (start + n) % CLIENTS)
            .find(|at| self.actors[*at].waits);
        let Some(at) = waiting else { return };
        let actor = &mut self.actors[at];
        if let Some(reply) = actor.client.recv(within) {
            actor.waits = false;
            let database = actor.database;
            self.hear(database, &reply, None);
        }
    }

    /// Keeps in mind what was granted.
    fn hear(&mut self, database: usize, reply: &Reply, request: Option<&Line>) {
        check(reply);
        let Reply::Array(items) = reply else { return };
        let (token, fence) = match items.as_slice() {
            [Reply::Bulk(_), Reply::Int(fence)] => (&items[0], fence),
            [run, token, Reply::Int(fence), Reply::Int(_)] if *run == "RUN" => (token, fence),
            _ => {
                return items
                    .iter()
                    .for_each(|item| self.hear(database, item, None));
            }
        };
        let token = token.as_str().to_owned();
        // One who waited is remembered by the last request with its token.
        let key = match request {
            Some(request) => request[1].clone(),
            None => {
                let asked = self.steps.iter().rev().find(|step| step.contains(&token));
                let names = |step: &String| {
                    let found = NAMES
                        .iter()
                        .find(|name| step.contains(&format!(" {name} ")));
                    found.map(|name| (*name).to_owned())
                };
                match asked.and_then(names) {
                    Some(key) => key,
                    None => return,
                }
            }
        };
        self.told.push_back(Told {
            database,
            key,
            token,
            fence: fence.to_string(),
        });
        if self.told.len() > 24 {
            self.told.pop_front();
        }
    }
}

impl Drop for History<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let from = self.steps.len().saturating_sub(SHOWN);
            eprintln!(
                "DSYNC_SEED={} fails after {} steps:",
                self.seed,
                self.steps.len()
            );
            for step in &self.steps[from..] {
                eprintln!("    {}", step.escape_debug());
            }
        }
    }
}

#[track_caller]
fn answer(actor: &mut Actor) -> Reply {
    actor.client.recv(SOON).expect("an answer")
}

fn select(actor: &mut Actor, database: usize) {
    if actor.database != database {
        assert_eq!(call!(actor.client, "SELECT", database), "OK");
        actor.database = database;
    }
}

#[track_caller]
fn check(reply: &Reply) {
    if let Reply::Error(text) = reply {
        let known = REFUSALS.iter().any(|code| text.starts_with(code));
        assert!(known, "{text}");
    }
}

fn nothing_is_overdue(client: &mut Client, key: &str) -> bool {
    ["DLOCK.INFO", "DSEM.INFO", "DWG.INFO", "DONCE.INFO"]
        .iter()
        .all(|info| {
            let info = call!(client, info, key, "COUNT", 1000);
            // Absent, or of another family.
            if info.is_nil() || info.is_error() {
                return true;
            }
            let holders = info.field("first-holders").as_array();
            holders.iter().all(|hold| *hold.field("lease-left-ms") != 0)
        })
}

/// What every key of the history's databases holds, by its digest.
pub fn contents(server: &Server) -> BTreeMap<(usize, &'static str), String> {
    let mut client = server.connect();
    let mut all = BTreeMap::new();
    for database in 0..DATABASES {
        assert_eq!(call!(client, "SELECT", database), "OK");
        // Also of a key that has expired and is still there: KEYS would leave it out on one server only.
        let words = ["DEBUG", "DIGEST-VALUE"].into_iter().chain(NAMES);
        let digests = client.call(&words.collect::<Vec<_>>());
        for (name, digest) in NAMES.into_iter().zip(digests.as_array()) {
            if digest.as_str().bytes().any(|digit| digit != b'0') {
                all.insert((database, name), digest.as_str().to_owned());
            }
        }
    }
    all
}

/// How many holds each family has, by INFO's count.
fn holds(server: &Server) -> Vec<String> {
    let info = server.info_section("dsync");
    let lines = info.lines().filter(|line| line.contains("_holds:"));
    lines.map(str::to_owned).collect()
}

/// Asserts that the servers hold the same. Both must stand still.
#[track_caller]
pub fn assert_same(one: &Server, other: &Server, what: &str) {
    assert_eq!(contents(one), contents(other), "{what}: the keys");
    // What FLUSHDB ASYNC let go of elsewhere is taken off at the next turn of the cron.
    eventually(&format!("{what}: as many holds"), SOON, || {
        holds(one) == holds(other)
    });
    // The keys' TTLs, and whatever else there might be.
    let whole = |server: &Server| call!(server.connect(), "DEBUG", "DIGEST");
    assert_eq!(whole(one), whole(other), "{what}: everything");
}

/// Asserts that nothing was refused that came from elsewhere, and that nothing went wrong inside.
#[track_caller]
pub fn assert_untroubled(server: &Server) {
    assert_eq!(server.info_number("dsync", "dsync_unapplied_changes"), 0);
    let log = server.log_text();
    for word in ["DSYNC.APPLY failed", "panic", "BUG REPORT", "is refused"] {
        assert!(!log.contains(word), "{word} in the log:\n{log}");
    }
}
