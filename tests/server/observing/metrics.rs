//! `INFO dsync`: what has happened, counted, and what is going on, gauged.
//!
//! Counters grow by exactly what happened, one story each; gauges agree with the keys and queues at any
//! moment, and are zero when everything is over, whatever storm has passed and however keys disappeared.

use crate::support::steps::*;
use crate::support::*;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng};
use std::collections::BTreeMap;
use std::time::Duration;

const FAMILIES: [&str; 4] = ["lock", "sem", "wg", "once"];

const COUNTERS: [&str; 11] = [
    "granted_at_once",
    "granted_after_wait",
    "released",
    "lapsed",
    "lapsed_unrenewed",
    "revoked",
    "disconnected",
    "undelivered",
    "wait_timeouts",
    "wait_disconnects",
    "limit_changes",
];

const BOUNDS_MS: [u64; 7] = [1, 10, 100, 1_000, 10_000, 60_000, 600_000];

/// All fields, without the prefix that the server gives them.
#[track_caller]
fn metrics(server: &Server) -> BTreeMap<String, u64> {
    let section = server.info_section("dsync");
    let fields = section.lines().filter_map(|line| line.split_once(':'));
    fields
        .map(|(name, value)| {
            let name = name.strip_prefix("dsync_").expect("the prefix");
            (name.to_owned(), value.parse().expect("a whole number"))
        })
        .collect()
}

#[track_caller]
fn metric(server: &Server, name: &str) -> u64 {
    server.info_number("dsync", &format!("dsync_{name}"))
}

/// What a family's counters say, those of zero left out.
#[track_caller]
fn counters(server: &Server, family: &str) -> Vec<(&'static str, u64)> {
    let all = metrics(server);
    let each = COUNTERS
        .iter()
        .map(|name| (*name, all[&format!("{family}_{name}")]));
    each.filter(|(_, count)| *count > 0).collect()
}

/// Holds and waiters by family, then in all, then the longest wait.
#[track_caller]
fn gauges(server: &Server) -> ([u64; 4], [u64; 4]) {
    let all = metrics(server);
    let holds = FAMILIES.map(|family| all[&format!("{family}_holds")]);
    let waiters = FAMILIES.map(|family| all[&format!("{family}_waiters")]);
    assert_eq!(all["holds"], holds.iter().sum::<u64>(), "{all:?}");
    assert_eq!(all["waiters"], waiters.iter().sum::<u64>(), "{all:?}");
    (holds, waiters)
}

#[track_caller]
fn wait_until_all_is_quiet(server: &Server) {
    eventually("gauges of zero", SOON, || {
        gauges(server) == ([0; 4], [0; 4]) && metric(server, "longest_wait_ms") == 0
    });
}

#[test]
fn the_section_has_every_field_and_all_begin_at_zero() {
    let server = Server::start();
    let mut expected: Vec<String> = ["holds", "waiters", "longest_wait_ms"]
        .map(str::to_owned)
        .to_vec();
    for family in FAMILIES {
        let of_family = ["holds", "waiters"].iter().chain(&COUNTERS);
        expected.extend(of_family.map(|name| format!("{family}_{name}")));
    }
    expected.extend(BOUNDS_MS.map(|bound| format!("wait_le_{bound}_ms")));
    expected.extend(
        [
            "wait_count",
            "wait_total_ms",
            "last_fence",
            "heard_fence",
            "unapplied_changes",
            "timer_ticks",
        ]
        .map(str::to_owned),
    );
    let found = metrics(&server);
    for name in &expected {
        let value = found.get(name);
        assert!(value.is_some(), "no {name} in {found:?}");
        // A start leaps past the fences that it may not know of.
        assert!(
            value == Some(&0) || name == "last_fence",
            "{name}: {value:?}"
        );
    }
    assert_eq!(found.len(), expected.len(), "{found:?}");
    let mut client = server.connect();
    let (_, fence) = ask(&mut client, "DLOCK.ACQUIRE lock").grant();
    assert_eq!(metric(&server, "last_fence"), fence);
    for section in ["everything", "all", "modules", "dsync"] {
        let info = server.info_section(section);
        let is_there = info.contains("# dsync") && info.contains("dsync_lock_holds:1");
        // `all` is everything but modules.
        assert_eq!(is_there, section != "all", "INFO {section}: {info}");
    }
}

/// A family in the words of its commands, and what is particular to its counters.
struct Words {
    family: &'static str,
    begin: &'static str,
    release: &'static str,
    other_ends: &'static [&'static str],
    prefix: &'static str,
}

const WORDS: [Words; 4] = [
    Words {
        family: "lock",
        begin: "DLOCK.ACQUIRE k",
        release: "DLOCK.RELEASE",
        other_ends: &[],
        prefix: "DLOCK",
    },
    Words {
        family: "sem",
        begin: "DSEM.ACQUIRE k LIMIT 1",
        release: "DSEM.RELEASE",
        other_ends: &[],
        prefix: "DSEM",
    },
    Words {
        family: "wg",
        begin: "DWG.ADD k LIMIT 1",
        release: "DWG.RELEASE",
        other_ends: &["DWG.DONE"],
        prefix: "DWG",
    },
    Words {
        family: "once",
        begin: "DONCE.BEGIN k",
        release: "DONCE.RELEASE",
        other_ends: &["DONCE.FAIL", "DONCE.DONE"],
        prefix: "DONCE",
    },
];

#[track_caller]
fn fence(reply: &Reply) -> i64 {
    let fence = reply.as_array().iter().find_map(|item| match item {
        Reply::Int(n) if *n > 1_000_000 => Some(*n),
        _ => None,
    });
    fence.unwrap_or_else(|| panic!("no fence in {reply:?}"))
}

#[test]
fn the_counters_of_each_family_tell_exactly_what_happened() {
    let server = Server::start();
    let mut client = server.connect();
    for (at, words) in WORDS.iter().enumerate() {
        let Words {
            family,
            begin,
            release,
            other_ends,
            prefix,
        } = words;
        let mut expected = BTreeMap::from(COUNTERS.map(|name| (name, 0)));
        let mut check = |what: &str, counted: &[&'static str]| {
            for name in counted {
                *expected.get_mut(name).expect("a counter") += 1;
            }
            let expected = COUNTERS.map(|name| (name, expected[name]));
            let expected: Vec<_> = expected.into_iter().filter(|(_, n)| *n > 0).collect();
            assert_eq!(counters(&server, family), expected, "{family}: {what}");
        };
        fence(&ask(&mut client, format!("{begin} TOKEN a EX 600")));
        check("a grant", &["granted_at_once"]);
        // A repeat and a renewal are the same hold; a try that fails is nothing.
        ask(&mut client, format!("{begin} TOKEN a EX 600"));
        ask(&mut client, format!("{prefix}.RENEW k a"));
        assert!(ask(&mut client, *begin).is_nil());
        assert_eq!(ask(&mut client, format!("{release} k nobody")), 0);
        check("what does not count", &[]);

        let mut waiter = queued(&server, format!("{begin} BLOCK 0 TOKEN b EX 600"));
        let (_, waiting) = gauges(&server);
        assert_eq!(waiting[at], 1, "{family}");
        check("queueing", &[]);
        assert_eq!(ask(&mut client, format!("{release} k a")), 1);
        let second = fence(&reply(&mut waiter));
        check("a hand-over", &["released", "granted_after_wait"]);
        let (holds, waiting) = gauges(&server);
        assert_eq!((holds[at], waiting[at]), (1, 0), "{family}");
        assert_eq!(ask(&mut client, format!("{prefix}.REVOKE k {second}")), 1);
        check("a revocation", &["revoked"]);

        let idle = |what: &str| {
            eventually(what, SOON, || gauges(&server).0[at] == 0);
        };
        fence(&ask(&mut client, format!("{begin} PX 20")));
        idle("a lapse");
        check(
            "a lapse",
            &["granted_at_once", "lapsed", "lapsed_unrenewed"],
        );
        fence(&ask(&mut client, format!("{begin} TOKEN c EX 600")));
        assert_eq!(ask(&mut client, format!("{prefix}.RENEW k c PX 20")), 1);
        idle("a renewed lapse");
        check(
            "a lapse of a hold that had been renewed",
            &["granted_at_once", "lapsed"],
        );
        let mut holder = server.connect();
        fence(&ask(&mut holder, format!("{begin} EX 600 EPHEMERAL")));
        holder.close();
        idle("the end of an ephemeral hold");
        check("a connection's end", &["granted_at_once", "disconnected"]);

        fence(&ask(&mut client, format!("{begin} TOKEN d EX 600")));
        check("a grant", &["granted_at_once"]);
        assert!(ask(&mut client, format!("{begin} BLOCK 20")).is_nil());
        check("a wait that ran out", &["wait_timeouts"]);
        // With a place that is kept for it, and without.
        for token in [String::new(), format!("TOKEN {family}-e")] {
            queued(&server, format!("{begin} BLOCK 0 {token}")).close();
            wait_for_blocked(&server, 0);
            check("a waiter that hung up", &["wait_disconnects"]);
        }
        let mut unblocked = server.connect();
        let id = unblocked.id();
        queue(&server, &mut unblocked, format!("{begin} BLOCK 0"));
        assert_eq!(ask(&mut client, format!("CLIENT UNBLOCK {id}")), 1);
        assert!(reply(&mut unblocked).is_nil());
        check("neither ran out nor hung up", &[]);
        let mut killed = server.connect();
        let id = killed.id();
        queue(&server, &mut killed, format!("{begin} BLOCK 0 EX 600"));
        let replies = at_once(
            &mut client,
            &[format!("{release} k d"), format!("CLIENT KILL ID {id}")],
        );
        assert_eq!(replies, [Reply::Int(1), Reply::Int(1)]);
        killed.expect_closed(SOON);
        idle("the end of what could not be delivered");
        check(
            "a grant nobody got",
            &["released", "granted_after_wait", "undelivered"],
        );

        for end in *other_ends {
            fence(&ask(&mut client, format!("{begin} TOKEN f{end} EX 600")));
            assert_eq!(ask(&mut client, format!("{end} k f{end}")), 1);
            check(end, &["granted_at_once", "released"]);
        }
        ask(&mut client, "DEL k");
        wait_until_all_is_quiet(&server);
        check("a removal", &[]);
    }
    // None has counted what belongs to another.
    let released: u64 = FAMILIES
        .iter()
        .map(|family| metric(&server, &format!("{family}_released")))
        .sum();
    assert_eq!(released, 2 + 2 + 3 + 4);
    assert_eq!(metric(&server, "wait_count"), 8);
}

#[test]
fn limit_changes_are_counted_when_the_limit_in_force_becomes_another() {
    let server = Server::start();
    let mut client = server.connect();
    ask(&mut client, "DSEM.ACQUIRE k LIMIT 1 EX 600").grant();
    assert_eq!(
        metric(&server, "sem_limit_changes"),
        0,
        "the first is no change"
    );
    for (line, changes) in [
        ("DSEM.ACQUIRE k LIMIT 1", 0),
        // A try that is refused changes nothing.
        ("DSEM.ACQUIRE k LIMIT 2 PERMITS 2", 0),
        ("DSEM.ACQUIRE k LIMIT 3 PERMITS 2 EX 600", 1),
        ("DSEM.LIMIT k 5", 2),
        ("DSEM.LIMIT k 5", 2),
        // Remembered, not in force.
        ("DSEM.ACQUIRE k LIMIT 4", 2),
        ("DSEM.LIMIT k NONE", 3),
    ] {
        ask(&mut client, line);
        assert_eq!(metric(&server, "sem_limit_changes"), changes, "{line}");
    }
    ask(&mut client, "DWG.ADD g LIMIT 1").grant();
    ask(&mut client, "DWG.ADD g LIMIT 2").grant();
    assert_eq!(metric(&server, "wg_limit_changes"), 1);
    assert_eq!(metric(&server, "lock_limit_changes"), 0);
}

#[test]
fn a_wait_for_a_group_is_a_wait() {
    let server = Server::start();
    let mut client = server.connect();
    ask(&mut client, "DWG.ADD g TOKEN a EX 600");
    let mut finished = queued(&server, "DWG.WAIT g BLOCK 0");
    assert_eq!(metric(&server, "wg_waiters"), 1);
    assert!(ask(&mut client, "DWG.WAIT g BLOCK 20").is_nil());
    queued(&server, "DWG.WAIT g BLOCK 0").close();
    wait_for_blocked(&server, 1);
    assert_eq!(ask(&mut client, "DWG.DONE g a"), 1);
    assert_eq!(reply(&mut finished).as_array().len(), 2);
    assert_eq!(
        counters(&server, "wg"),
        [
            ("granted_at_once", 1),
            ("released", 1),
            ("wait_timeouts", 1),
            ("wait_disconnects", 1)
        ]
    );
    wait_until_all_is_quiet(&server);
}

#[test]
fn the_histogram_has_every_wait_that_ended_in_a_grant_and_counts_upwards() {
    let server = Server::start();
    let mut client = server.connect();
    let classes = || BOUNDS_MS.map(|bound| metric(&server, &format!("wait_le_{bound}_ms")));
    let mut waited_ms = 0;
    for n in 1..=3 {
        ask(&mut client, "DLOCK.ACQUIRE k TOKEN a EX 600").grant();
        let before = classes();
        let total_before = metric(&server, "wait_total_ms");
        let mut waiter = queued(&server, "DLOCK.ACQUIRE k TOKEN b BLOCK 0");
        eventually("a wait of some length", SOON, || {
            metric(&server, "longest_wait_ms") > 20
        });
        let least = metric(&server, "longest_wait_ms");
        assert_eq!(ask(&mut client, "DLOCK.RELEASE k a"), 1);
        granted(&mut waiter);
        assert_eq!(ask(&mut client, "DLOCK.RELEASE k b"), 1);
        let after = classes();
        assert_eq!(metric(&server, "wait_count"), n);
        let waited = metric(&server, "wait_total_ms") - total_before;
        assert!(
            (least..10_000).contains(&waited),
            "{waited}, at least {least}"
        );
        waited_ms += waited;
        assert!(after.is_sorted(), "{after:?}");
        for ((bound, before), after) in BOUNDS_MS.iter().zip(before).zip(after) {
            let in_class = u64::from(waited <= *bound);
            assert_eq!(
                after - before,
                in_class,
                "{waited} ms in the class of {bound}"
            );
        }
    }
    // Waits that end otherwise are in no class.
    ask(&mut client, "DLOCK.ACQUIRE k EX 600").grant();
    assert!(ask(&mut client, "DLOCK.ACQUIRE k BLOCK 30").is_nil());
    assert_eq!(metric(&server, "wait_count"), 3);
    assert_eq!(metric(&server, "wait_total_ms"), waited_ms);
}

#[test]
fn the_longest_wait_is_that_of_whoever_waits_now() {
    let server = Server::start();
    let mut client = server.connect();
    ask(&mut client, "DLOCK.ACQUIRE k EX 600");
    ask(&mut client, "DONCE.BEGIN o EX 600");
    assert_eq!(metric(&server, "longest_wait_ms"), 0);
    let old = queued(&server, "DLOCK.ACQUIRE k BLOCK 0");
    eventually("a long wait", SOON, || {
        metric(&server, "longest_wait_ms") >= 300
    });
    let new = queued(&server, "DONCE.BEGIN o BLOCK 0");
    assert!(metric(&server, "longest_wait_ms") >= 300);
    old.close();
    wait_for_blocked(&server, 1);
    let of_new = ask(&mut client, "DONCE.INFO o")
        .field("longest-wait-ms")
        .as_int()
        .unsigned_abs();
    let longest = metric(&server, "longest_wait_ms");
    assert!(
        longest >= of_new && longest <= of_new + 250,
        "{longest}, {of_new}"
    );
    new.close();
    wait_until_longest_is_zero(&server);
}

#[track_caller]
fn wait_until_longest_is_zero(server: &Server) {
    eventually("no wait", SOON, || metric(server, "longest_wait_ms") == 0);
}

/// Holders and waiters in all families and several keys; what becomes of each is thrown.
fn storm(server: &Server, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut admin = server.connect();
    let mut lines = Vec::new();
    for key in 0..3 {
        lines.push(format!("DLOCK.ACQUIRE l{key}"));
        lines.push(format!("DLOCK.ACQUIRE l{key} SHARED"));
        lines.push(format!("DSEM.ACQUIRE s{key} LIMIT 3 PERMITS 2"));
        lines.push(format!("DWG.ADD g{key} LIMIT 2"));
        lines.push(format!("DONCE.BEGIN o{key}"));
        lines.push(format!("DWG.WAIT g{key}"));
    }
    let mut clients = Vec::new();
    for n in 0..160 {
        let mut line = lines[rng.random_range(0..lines.len())].clone();
        let block_ms: u32 = if rng.random_bool(0.5) {
            0
        } else {
            rng.random_range(1..400)
        };
        line += &format!(" BLOCK {block_ms}");
        if !line.starts_with("DWG.WAIT") {
            line += &format!(" PX {}", rng.random_range(5..60));
            if rng.random_bool(0.3) {
                line += " EPHEMERAL";
            }
            if rng.random_bool(0.5) {
                line += &format!(" TOKEN t{seed}-{n}");
            }
        }
        let mut client = server.connect();
        let id = client.id();
        tell(&mut client, line);
        clients.push((client, id));
        match rng.random_range(0..12) {
            0 => {
                let at = rng.random_range(0..clients.len());
                clients.swap_remove(at).0.close();
            }
            1 => {
                let (client, id) = clients.swap_remove(rng.random_range(0..clients.len()));
                ask(&mut admin, format!("CLIENT KILL ID {id}"));
                drop(client);
            }
            2 => {
                let (_, id) = &clients[rng.random_range(0..clients.len())];
                let how = ["TIMEOUT", "ERROR"][rng.random_range(0..2)];
                ask(&mut admin, format!("CLIENT UNBLOCK {id} {how}"));
            }
            3 => {
                let key = ["l", "s", "g", "o"][rng.random_range(0..4)];
                ask(&mut admin, format!("DEL {key}{}", rng.random_range(0..3)));
            }
            4 => {
                let key = ["l", "s", "g", "o"][rng.random_range(0..4)];
                ask(&mut admin, format!("RENAME {key}0 {key}1"));
            }
            _ => {}
        }
    }
    // Whoever is left either has his answer some time, or goes now.
    let (stay, go): (Vec<_>, Vec<_>) = clients.into_iter().partition(|_| rng.random_bool(0.5));
    drop(go);
    for (mut client, id) in stay {
        // A hold of those who stay lapses, so everybody's turn comes; who unblocks has two replies at
        // most, of which the first is enough.
        if client.recv(Duration::from_secs(8)).is_none() {
            panic!("client {id} has no answer (seed {seed})");
        }
    }
}

#[test]
fn after_a_storm_all_gauges_return_to_zero() {
    let server = Server::start();
    for seed in 1..=4 {
        storm(&server, seed);
        wait_until_all_is_quiet(&server);
        wait_for_blocked(&server, 0);
    }
    let all = metrics(&server);
    for family in FAMILIES {
        let of = |name: &str| all[&format!("{family}_{name}")];
        assert!(
            of("granted_at_once") > 0 && of("granted_after_wait") > 0,
            "{family}: {all:?}"
        );
        assert!(
            of("lapsed") > 0 && of("wait_disconnects") > 0,
            "{family}: {all:?}"
        );
        // What was granted has ended in one way or another, or went with its key.
        let granted = of("granted_at_once") + of("granted_after_wait");
        let ended = [
            "released",
            "lapsed",
            "revoked",
            "disconnected",
            "undelivered",
        ]
        .map(of);
        assert!(ended.iter().sum::<u64>() <= granted, "{family}: {all:?}");
        assert!(of("lapsed_unrenewed") <= of("lapsed"), "{family}: {all:?}");
    }
    let after_wait: u64 = FAMILIES
        .iter()
        .map(|family| all[&format!("{family}_granted_after_wait")])
        .sum();
    assert_eq!(all["wait_count"], after_wait);
}

/// One hold of each family, and many in one semaphore: large enough to be freed by another thread.
fn add_fixtures(client: &mut Client) {
    ask(client, "DLOCK.ACQUIRE lock EX 600").grant();
    for _ in 0..3 {
        ask(client, "DLOCK.ACQUIRE shared SHARED EX 600").grant();
    }
    for _ in 0..200 {
        ask(client, "DSEM.ACQUIRE sem LIMIT 200 EX 600").grant();
    }
    ask(client, "DWG.ADD group EX 600 EPHEMERAL").grant();
    ask(client, "DONCE.BEGIN once EX 600");
}

const FURNISHED: [u64; 4] = [4, 200, 1, 1];

#[track_caller]
fn wait_for_holds(server: &Server, what: &str, holds: [u64; 4]) {
    let mut found = [0; 4];
    eventually(&format!("holds of {holds:?} after {what}"), SOON, || {
        found = gauges(server).0;
        found == holds
    });
}

#[test]
fn the_gauge_of_holds_follows_keys_however_they_go_and_come() {
    let server = Server::start();
    let mut client = server.connect();
    let [lock, sem, wg, once] = FURNISHED;
    for (lines, holds) in [
        (&["FLUSHALL ASYNC"][..], [0; 4]),
        (&["FLUSHALL SYNC"], [0; 4]),
        (&["FLUSHDB"], [0; 4]),
        (&["SELECT 1", "FLUSHDB", "SELECT 0"], FURNISHED),
        (&["SWAPDB 0 1"], FURNISHED),
        (&["SWAPDB 0 1", "FLUSHDB"], FURNISHED),
        (&["DEL lock shared sem group once"], [0; 4]),
        (&["UNLINK lock shared sem group once"], [0; 4]),
        (
            &["RENAME lock other", "RENAME sem once"],
            [lock, sem, wg, 0],
        ),
        (&["RENAME lock shared"], [1, sem, wg, once]),
        (&["RENAME shared lock"], [3, sem, wg, once]),
        (&["MOVE sem 2"], FURNISHED),
        (&["SET lock x", "SET sem x"], [3, 0, wg, once]),
        (&["PEXPIRE sem 1", "PEXPIRE once 1"], [lock, 0, wg, 0]),
        (&["DEBUG RELOAD"], FURNISHED),
        (
            &["DEBUG RELOAD", "DEBUG RELOAD", "DEL sem"],
            [lock, 0, wg, once],
        ),
        (&["COPY lock copied"], FURNISHED),
    ] {
        ask(&mut client, "FLUSHALL");
        wait_for_holds(&server, "FLUSHALL", [0; 4]);
        add_fixtures(&mut client);
        assert_eq!(gauges(&server).0, FURNISHED);
        for line in lines {
            let reply = ask(&mut client, *line);
            assert!(
                !reply.is_error() || line.starts_with("COPY"),
                "{line}: {reply:?}"
            );
        }
        wait_for_holds(&server, &lines.join(", "), holds);
        ask(&mut client, "SELECT 0");
    }
    // RESTORE brings holds along, and REPLACE takes those that were there.
    ask(&mut client, "FLUSHALL");
    add_fixtures(&mut client);
    let payload = ask(&mut client, "DUMP sem");
    assert_eq!(
        call!(client, "RESTORE", "restored", 0, payload.as_bytes()),
        "OK"
    );
    wait_for_holds(&server, "RESTORE", [lock, 2 * sem, wg, once]);
    assert_eq!(
        call!(client, "RESTORE", "sem", 0, payload.as_bytes(), "REPLACE"),
        "OK"
    );
    wait_for_holds(&server, "RESTORE REPLACE", [lock, 2 * sem, wg, once]);
    // A connection that ends has no say in what is gone.
    client.close();
    wait_for_holds(&server, "the end of a connection", [lock, 2 * sem, 0, once]);
    assert_eq!(metric(&server, "wg_disconnected"), 1);
}

#[test]
fn the_gauge_of_waiters_follows_removals() {
    for line in [
        "FLUSHALL",
        "FLUSHALL ASYNC",
        "DEL k",
        "UNLINK k",
        "RENAME k other",
        "RENAME other k",
    ] {
        let server = Server::start();
        let mut client = server.connect();
        ask(&mut client, "DSEM.ACQUIRE k LIMIT 1 TOKEN held EX 600").grant();
        ask(&mut client, "DSEM.ACQUIRE other LIMIT 1 EX 600").grant();
        let mut waiters: Vec<_> = (0..3)
            .map(|n| queued(&server, format!("DSEM.ACQUIRE k TOKEN {n} EX 600 BLOCK 0")))
            .collect();
        assert_eq!(gauges(&server).1, [0, 3, 0, 0]);
        ask(&mut client, line);
        if line == "RENAME other k" {
            assert_eq!(gauges(&server), ([0, 1, 0, 0], [0, 3, 0, 0]), "{line}");
            ask(&mut client, "DEL k");
        }
        // One after the other, afresh.
        for (n, waiter) in waiters.iter_mut().enumerate() {
            granted(waiter);
            assert_eq!(gauges(&server).1[1], 2 - n as u64, "{line}");
            assert_eq!(ask(&mut client, format!("DSEM.RELEASE k {n}")), 1);
        }
        ask(&mut client, "FLUSHALL");
        wait_until_all_is_quiet(&server);
        assert_eq!(metric(&server, "sem_granted_after_wait"), 3, "{line}");
        assert_eq!(
            metric(&server, "sem_released"),
            3,
            "{line}: a removal is no release"
        );
    }
}

#[test]
fn a_replica_has_its_primarys_holds_and_no_waiters_and_counts_nothing() {
    let primary = Server::start();
    let early = Server::builder().replica_of(&primary).start();
    let mut client = primary.connect();
    add_fixtures(&mut client);
    let _waiters = [
        queued(&primary, "DLOCK.ACQUIRE lock BLOCK 0"),
        queued(&primary, "DWG.WAIT group BLOCK 0"),
        queued(&primary, "DONCE.BEGIN once BLOCK 0"),
    ];
    let (_, fence) = ask(&mut client, "DLOCK.ACQUIRE other TOKEN t EX 600").grant();
    ask(&mut client, "DLOCK.RENEW other t");
    ask(&mut client, "DLOCK.ACQUIRE lapsing PX 10").grant();
    wait_until_gone(&mut client, "lapsing");
    ask(&mut client, format!("DLOCK.REVOKE other {fence}"));
    let late = Server::builder().replica_of(&primary).start();
    let agree = |what: &str| {
        for replica in [&early, &late] {
            replica.wait_to_catch_up_with(&primary);
            // The primary's own gauge too follows a removal only when its turn is over.
            eventually(&format!("the primary's holds after {what}"), SOON, || {
                gauges(replica).0 == gauges(&primary).0
            });
            assert_eq!(gauges(replica).1, [0; 4], "{what}");
            let all = metrics(replica);
            assert_eq!(all["longest_wait_ms"], 0);
            assert_eq!(all["wait_count"], 0);
            assert_eq!(all["unapplied_changes"], 0);
            assert_eq!(all["last_fence"], metric(&primary, "last_fence"));
            for family in FAMILIES {
                assert_eq!(counters(replica, family), [], "{what}: {family}");
            }
        }
    };
    assert_eq!(gauges(&primary), (FURNISHED, [1, 0, 1, 1]));
    agree("a full synchronisation or a stream");
    ask(&mut client, "UNLINK sem");
    ask(&mut client, "RENAME shared elsewhere");
    ask(&mut client, "SET once x");
    agree("removals");
    ask(&mut client, "FLUSHALL ASYNC");
    agree("FLUSHALL");
    drop(primary);
}
