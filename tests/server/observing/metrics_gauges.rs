//! `INFO dsync`: the gauges of holds and waiters agree with the keys and the queues at any moment, however keys come
//! and go, also on a replica, and are zero when everything has ended.

use crate::observing::metrics_steps::*;
use crate::support::steps::*;
use crate::support::*;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng};
use std::time::Duration;

#[test]
fn longest_wait_is_that_of_present_waiters() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE k EX 600");
    client.ask("DONCE.BEGIN o EX 600");
    assert_eq!(metric(&server, "longest_wait_ms"), 0);
    let old = server.waiting("DLOCK.ACQUIRE k BLOCK 0");
    eventually("a long wait", SOON, || {
        metric(&server, "longest_wait_ms") >= 300
    });
    let new = server.waiting("DONCE.BEGIN o BLOCK 0");
    assert!(metric(&server, "longest_wait_ms") >= 300);
    old.close();
    server.wait_for_blocked(1);
    let of_new = client
        .ask("DONCE.INFO o")
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

/// Sends 160 requests for locks, semaphores, groups and work-once keys at random. Some clients close, are killed or
/// unblocked, some keys are deleted or renamed; in the end half of the clients close and the others wait for a reply.
fn random_requests(server: &Server, seed: u64) {
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
        client.begin(line);
        clients.push((client, id));
        match rng.random_range(0..12) {
            0 => {
                let at = rng.random_range(0..clients.len());
                clients.swap_remove(at).0.close();
            }
            1 => {
                let (client, id) = clients.swap_remove(rng.random_range(0..clients.len()));
                admin.ask(format!("CLIENT KILL ID {id}"));
                drop(client);
            }
            2 => {
                let (_, id) = &clients[rng.random_range(0..clients.len())];
                let how = ["TIMEOUT", "ERROR"][rng.random_range(0..2)];
                admin.ask(format!("CLIENT UNBLOCK {id} {how}"));
            }
            3 => {
                let key = ["l", "s", "g", "o"][rng.random_range(0..4)];
                admin.ask(format!("DEL {key}{}", rng.random_range(0..3)));
            }
            4 => {
                let key = ["l", "s", "g", "o"][rng.random_range(0..4)];
                admin.ask(format!("RENAME {key}0 {key}1"));
            }
            _ => {}
        }
    }
    let (stay, go): (Vec<_>, Vec<_>) = clients.into_iter().partition(|_| rng.random_bool(0.5));
    drop(go);
    for (mut client, id) in stay {
        // All leases are short, so every request is answered. A client that was unblocked may have two replies; the
        // first is enough here.
        if client.recv(Duration::from_secs(8)).is_none() {
            panic!("client {id} has no answer (seed {seed})");
        }
    }
}

#[test]
fn gauges_return_to_zero_after_random_waits_and_ends() {
    let server = Server::start();
    for seed in 1..=4 {
        random_requests(&server, seed);
        wait_until_all_is_quiet(&server);
        server.wait_for_blocked(0);
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
        // A hold that was granted has ended in one of these ways, or with its key.
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

/// Makes holds of each family; the semaphore has so many that the server frees it on another thread.
fn add_fixtures(client: &mut Client) {
    client.ask("DLOCK.ACQUIRE lock EX 600").grant();
    for _ in 0..3 {
        client.ask("DLOCK.ACQUIRE shared SHARED EX 600").grant();
    }
    for _ in 0..200 {
        client.ask("DSEM.ACQUIRE sem LIMIT 200 EX 600").grant();
    }
    client.ask("DWG.ADD group EX 600 EPHEMERAL").grant();
    client.ask("DONCE.BEGIN once EX 600");
}

/// The holds of [`add_fixtures`], by family.
const FIXTURE_HOLDS: [u64; 4] = [4, 200, 1, 1];

#[track_caller]
fn wait_for_holds(server: &Server, what: &str, holds: [u64; 4]) {
    let mut found = [0; 4];
    eventually(&format!("holds of {holds:?} after {what}"), SOON, || {
        found = gauges(server).0;
        found == holds
    });
}

#[test]
fn holds_gauge_follows_keys_that_come_and_go() {
    let server = Server::start();
    let mut client = server.connect();
    let [lock, sem, wg, once] = FIXTURE_HOLDS;
    for (lines, holds) in [
        (&["FLUSHALL ASYNC"][..], [0; 4]),
        (&["FLUSHALL SYNC"], [0; 4]),
        (&["FLUSHDB"], [0; 4]),
        (&["SELECT 1", "FLUSHDB", "SELECT 0"], FIXTURE_HOLDS),
        (&["SWAPDB 0 1"], FIXTURE_HOLDS),
        (&["SWAPDB 0 1", "FLUSHDB"], FIXTURE_HOLDS),
        (&["DEL lock shared sem group once"], [0; 4]),
        (&["UNLINK lock shared sem group once"], [0; 4]),
        (
            &["RENAME lock other", "RENAME sem once"],
            [lock, sem, wg, 0],
        ),
        (&["RENAME lock shared"], [1, sem, wg, once]),
        (&["RENAME shared lock"], [3, sem, wg, once]),
        (&["MOVE sem 2"], FIXTURE_HOLDS),
        (&["SET lock x", "SET sem x"], [3, 0, wg, once]),
        (&["PEXPIRE sem 1", "PEXPIRE once 1"], [lock, 0, wg, 0]),
        (&["DEBUG RELOAD"], FIXTURE_HOLDS),
        (
            &["DEBUG RELOAD", "DEBUG RELOAD", "DEL sem"],
            [lock, 0, wg, once],
        ),
        (&["COPY lock copied"], FIXTURE_HOLDS),
    ] {
        client.ask("FLUSHALL");
        wait_for_holds(&server, "FLUSHALL", [0; 4]);
        add_fixtures(&mut client);
        assert_eq!(gauges(&server).0, FIXTURE_HOLDS);
        for line in lines {
            let reply = client.ask(*line);
            assert!(
                !reply.is_error() || line.starts_with("COPY"),
                "{line}: {reply:?}"
            );
        }
        wait_for_holds(&server, &lines.join(", "), holds);
        client.ask("SELECT 0");
    }
    // RESTORE adds the holds of its payload; with REPLACE the holds of the old value go.
    client.ask("FLUSHALL");
    add_fixtures(&mut client);
    let payload = client.ask("DUMP sem");
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
    // The end of a connection ends its EPHEMERAL hold, and is counted only for holds that still exist.
    client.close();
    wait_for_holds(&server, "the end of a connection", [lock, 2 * sem, 0, once]);
    assert_eq!(metric(&server, "wg_disconnected"), 1);
}

#[test]
fn waiters_gauge_follows_removed_keys() {
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
        client
            .ask("DSEM.ACQUIRE k LIMIT 1 TOKEN held EX 600")
            .grant();
        client.ask("DSEM.ACQUIRE other LIMIT 1 EX 600").grant();
        let mut waiters: Vec<_> = (0..3)
            .map(|n| server.waiting(format!("DSEM.ACQUIRE k TOKEN {n} EX 600 BLOCK 0")))
            .collect();
        assert_eq!(gauges(&server).1, [0, 3, 0, 0]);
        client.ask(line);
        if line == "RENAME other k" {
            assert_eq!(gauges(&server), ([0, 1, 0, 0], [0, 3, 0, 0]), "{line}");
            client.ask("DEL k");
        }
        // The waiters are granted one after the other on the new key.
        for (n, waiter) in waiters.iter_mut().enumerate() {
            waiter.granted();
            assert_eq!(gauges(&server).1[1], 2 - n as u64, "{line}");
            assert_eq!(client.ask(format!("DSEM.RELEASE k {n}")), 1);
        }
        client.ask("FLUSHALL");
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
fn replica_gauges_show_the_primarys_holds_and_counters_stay_zero() {
    let primary = Server::start();
    let early = Server::builder().replica_of(&primary).start();
    let mut client = primary.connect();
    add_fixtures(&mut client);
    let _waiters = [
        primary.waiting("DLOCK.ACQUIRE lock BLOCK 0"),
        primary.waiting("DWG.WAIT group BLOCK 0"),
        primary.waiting("DONCE.BEGIN once BLOCK 0"),
    ];
    let (_, fence) = client.ask("DLOCK.ACQUIRE other TOKEN t EX 600").grant();
    client.ask("DLOCK.RENEW other t");
    client.ask("DLOCK.ACQUIRE lapsing PX 10").grant();
    wait_until_gone(&mut client, "lapsing");
    client.ask(format!("DLOCK.REVOKE other {fence}"));
    let late = Server::builder().replica_of(&primary).start();
    let agree = |what: &str| {
        for replica in [&early, &late] {
            replica.wait_to_catch_up_with(&primary);
            // The primary's gauge follows a removal at the end of the turn, so it may be a moment late too.
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
                assert_eq!(counters(replica, family), counts([]), "{what}: {family}");
            }
        }
    };
    assert_eq!(gauges(&primary), (FIXTURE_HOLDS, [1, 0, 1, 1]));
    agree("a full synchronisation or a stream");
    client.ask("UNLINK sem");
    client.ask("RENAME shared elsewhere");
    client.ask("SET once x");
    agree("removals");
    client.ask("FLUSHALL ASYNC");
    agree("FLUSHALL");
    drop(primary);
}
