//! A random history of requests to a running primary, for tests of replication and persistence: the steps of
//! [`fuzz`](crate::fuzz), one by one, as many as a test wants.
//!
//! Clients ask for holds of all four families in three databases, wait, come back, disconnect and are killed; operators
//! revoke, pin, pause, rename, move, swap, overwrite, restore and flush. Most leases are short, so that they lapse
//! during the history. Every reply is checked against the contract.
//!
//! The seed decides the requests; the replies also depend on when leases lapse. A history that fails prints its seed
//! and its last steps. `DSYNC_SEED=n` runs that seed alone, `DSYNC_HISTORIES=n` runs that many.
//!
//! A history can be [paused](History::still): while writes are paused a primary decides nothing, so servers can be
//! compared exactly.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::fuzz::driver::Driver;
use crate::fuzz::plan::{Mix, Plan};
use crate::fuzz::requests::{DATABASES, NAMES, Version};
use crate::fuzz::step::Step;
use crate::support::steps::SOON;
use crate::support::*;

const CLIENTS: usize = 8;
/// How long a history waits for a condition.
const UNTIL: Duration = Duration::from_secs(30);
/// How many of the last steps a failure shows.
const SHOWN: usize = 20_000;

const MIX: Mix = Mix {
    keys: NAMES.len(),
    ttls: true,
    flushes: true,
    faults: false,
    strays: false,
    oldest: Version::V0_4_0,
    quits: false,
    one_by_one: true,
};

/// The seeds to run: those of the environment, or `count`.
pub fn seeds(count: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match number("DSYNC_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..number("DSYNC_HISTORIES").unwrap_or(count) + 1,
    }
}

/// A server with short retention, so that states are forgotten within a history.
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

pub struct History<'a> {
    seed: u64,
    server: &'a Server,
    plan: Plan,
    driver: Driver,
    count: u64,
    /// The last steps and replies.
    last: VecDeque<String>,
}

impl<'a> History<'a> {
    pub fn new(server: &'a Server, seed: u64) -> History<'a> {
        History {
            seed,
            server,
            plan: Plan::new(seed, MIX),
            driver: Driver::new(server, CLIENTS),
            count: 0,
            last: VecDeque::new(),
        }
    }

    /// Gives keys no TTL. For a server that reloads its own data: a primary that loads skips expired keys without
    /// telling its replicas.
    pub fn without_ttls(mut self) -> History<'a> {
        self.plan.mix.ttls = false;
        self
    }

    /// Flushes no database. For tests with broken links: from Redis 7.4 on, a replica whose link breaks during a flush
    /// cannot resume.
    pub fn without_flushes(mut self) -> History<'a> {
        self.plan.mix.flushes = false;
        self
    }

    #[track_caller]
    pub fn steps(&mut self, count: u32) {
        for _ in 0..count {
            self.step();
        }
    }

    /// Carries out steps until the condition holds.
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

    /// Calls `look` while writes are paused and the server decides nothing.
    #[track_caller]
    pub fn still<R>(&mut self, look: impl FnOnce(&Server) -> R) -> R {
        self.stand_still();
        let seen = look(self.server);
        self.driver.operate(self.server, &["CLIENT UNPAUSE"]);
        seen
    }

    /// Pauses writes for good: for a server that is about to be killed.
    #[track_caller]
    pub fn stand_still(&mut self) {
        self.driver.stand_still(self.server);
    }

    /// Ends the history, and asserts that no overdue hold stays, wherever its key has moved.
    #[track_caller]
    pub fn end(mut self) {
        // No lease runs while writes are refused.
        self.driver.accept(self.server);
        assert_nothing_overdue(self.server);
    }

    #[track_caller]
    fn step(&mut self) {
        loop {
            let (pause, step) = self.plan.next(&self.driver);
            self.driver.rest(pause);
            self.count += 1;
            self.last.extend(self.driver.take_heard());
            self.last.push_back(step.to_string());
            while self.last.len() > SHOWN {
                self.last.pop_front();
            }
            self.driver.perform(self.server, self.count, &step);
            if step == Step::Settle {
                return;
            }
        }
    }
}

impl Drop for History<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("DSYNC_SEED={} fails after {} steps:", self.seed, self.count);
            self.last.extend(self.driver.take_heard());
            self.last.iter().for_each(|step| eprintln!("    {step}"));
        }
    }
}

/// Asserts that every overdue hold ends soon, wherever its key has moved.
#[track_caller]
pub fn assert_nothing_overdue(server: &Server) {
    let mut client = server.connect();
    for database in 0..DATABASES {
        assert_eq!(client.ask(format!("SELECT {database}")), "OK");
        for name in NAMES {
            let deadline = Instant::now() + SOON;
            loop {
                let late = Instant::now() >= deadline;
                let Some(overdue) = overdue_at(&mut client, name) else {
                    break;
                };
                assert!(
                    !late,
                    "overdue for {SOON:?}, key {name:?} of database {database}: {overdue:?}"
                );
            }
        }
    }
}

/// The reply of INFO for the key, if it has an overdue hold.
#[track_caller]
fn overdue_at(client: &mut Client, key: &str) -> Option<Reply> {
    let infos = ["DLOCK.INFO", "DSEM.INFO", "DWG.INFO", "DONCE.INFO"];
    let infos = infos.map(|info| call!(client, info, key, "COUNT", 1000));
    // INFO answers nil for an absent key, and an error for one of another family.
    let mut infos = infos
        .into_iter()
        .filter(|info| !info.is_nil() && !info.is_error());
    infos.find(|info| {
        let holders = info.field("first-holders").as_array();
        holders.iter().any(|hold| {
            // One that rests has no lease left, and a rest of its own.
            let left = hold.find_field("resting-ms");
            *left.unwrap_or(hold.field("lease-left-ms")) == 0
        })
    })
}

/// The digests of all keys in the databases of the history.
pub fn contents(server: &Server) -> BTreeMap<(usize, &'static str), String> {
    let mut client = server.connect();
    let mut all = BTreeMap::new();
    for database in 0..DATABASES {
        assert_eq!(client.ask(format!("SELECT {database}")), "OK");
        // Asks for every name, because KEYS leaves out a key that has expired and that another server still has.
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

/// The lines of INFO with the number of holds of each family.
fn holds(server: &Server) -> Vec<String> {
    let info = server.info_section("dsync");
    let lines = info.lines().filter(|line| line.contains("_holds:"));
    lines.map(str::to_owned).collect()
}

/// Asserts that two servers are equal. Writes must be paused.
#[track_caller]
pub fn assert_same(one: &Server, other: &Server, what: &str) {
    assert_eq!(contents(one), contents(other), "{what}: the keys");
    // Holds that FLUSHDB ASYNC frees on another thread are subtracted in the next turn of the cron.
    eventually(&format!("{what}: as many holds"), SOON, || {
        holds(one) == holds(other)
    });
    // DEBUG DIGEST also covers TTLs and keys of other names.
    let whole = |server: &Server| server.connect().ask("DEBUG DIGEST");
    assert_eq!(whole(one), whole(other), "{what}: everything");
}

/// Asserts that the server refused no replicated or loaded change, and that its log reports no defect.
#[track_caller]
pub fn assert_untroubled(server: &Server) {
    assert_eq!(server.info_number("dsync", "dsync_unapplied_changes"), 0);
    let log = server.log_text();
    // Payloads that are beyond a bound are refused as they should be. A clock that is set back by days puts the moments
    // in a payload that is older beyond theirs.
    let is_bound = |line: &str| {
        let bounds = [
            "QUEUE allows",
            "dsync.max-lease-ms is",
            "dsync.max-result-bytes is",
            "dsync.max-waiters",
            "and a day more for the clock",
        ];
        line.contains("a value is refused: ") && bounds.iter().any(|bound| line.contains(bound))
    };
    let lines = log.lines().filter(|line| !is_bound(line));
    let log = lines.collect::<Vec<_>>().join("\n");
    for word in [
        "DSYN failed",
        "a defect of dsync",
        "panic",
        "BUG REPORT",
        "is refused",
    ] {
        assert!(!log.contains(word), "{word} in the log:\n{log}");
    }
}
