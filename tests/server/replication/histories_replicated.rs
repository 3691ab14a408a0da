//! Random histories on a primary: its replicas, and their replicas, end up equal to it.
//!
//! They get their data in different ways: by the stream from the start, by a full synchronisation in the middle
//! (through a file or straight into memory, beside the stream or before it), or by resuming after the link broke. Equal
//! means that every key has the same digest: holds, tokens, fences, leases, deadlines, limits, tallies, results. Writes
//! are paused while the servers are compared, so that the result does not depend on timing.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::fuzz::history::{self, History, assert_same, assert_untroubled, seeds};
use crate::support::steps::SOON;
use crate::support::*;

/// Pauses the history and asserts that every replica equals the primary.
#[track_caller]
fn compare(history: &mut History<'_>, followers: &[&Server], what: &str) {
    history.still(|primary| {
        for follower in followers {
            follower.wait_to_catch_up_with(primary);
            assert_same(primary, follower, what);
        }
    });
    followers
        .iter()
        .for_each(|follower| assert_untroubled(follower));
}

/// The verb of a change, and for END the way in which the hold ended.
fn verb(change: &str) -> String {
    let mut words = change.split(' ');
    let verb = words.next().unwrap_or_default();
    match (verb, words.nth(1)) {
        ("END", Some(how)) => format!("END {how}"),
        _ => verb.to_owned(),
    }
}

/// How many histories there are at most until each change has been in one. One in three has no GIVEUP.
const MOST_HISTORIES: u64 = 30;

const ALL_CHANGES: [&str; 25] = [
    "GRANT",
    "RENEW",
    "END released",
    "END done",
    "END lapsed",
    "END revoked",
    "END disconnected",
    "END undelivered",
    "LIMIT",
    "PIN",
    "EXPECT",
    "FINISH",
    "FAIL",
    "COMPLETE",
    "GIVEUP",
    "VANISH",
    "DEL",
    "UNLINK",
    "RENAME",
    "MOVE",
    "SWAPDB",
    "RESTORE",
    "SET",
    "MULTI",
    "EXEC",
];

/// A history that a replica and its replica follow. Returns the changes that were replicated.
fn changes_of_followed_history(seed: u64) -> BTreeSet<String> {
    let primary = history::builder().start();
    let replica = history::builder().replica_of(&primary).start();
    let chained = history::builder().replica_of(&replica).start();
    let mut stream = ReplicationStream::attach(&primary);
    let mut history = History::new(&primary, seed);
    for _ in 0..6 {
        history.steps(150);
        compare(&mut history, &[&replica, &chained], "in the middle");
    }
    history.end();
    assert_untroubled(&primary);
    assert_eq!(
        primary.info_number("stats", "sync_full"),
        2,
        "the replica and the stream"
    );
    let mut changes = BTreeSet::new();
    for command in stream.take_so_far(&primary) {
        let command = words(&command);
        match command[0].as_str() {
            "DSYN" => changes.extend(command[3..].iter().map(|change| verb(change))),
            other => drop(changes.insert(other.to_uppercase())),
        }
    }
    changes
}

#[test]
fn replica_and_its_replica_equal_primary_at_any_moment() {
    let seeds = seeds(3);
    let wants_all = seeds.clone().count() >= 3;
    let mut missing = ALL_CHANGES.to_vec();
    let most = if wants_all { MOST_HISTORIES } else { 0 };
    for seed in seeds.start..seeds.end.max(most) {
        // Which changes a history has also depends on when leases lapse.
        if seed >= seeds.end && missing.is_empty() {
            break;
        }
        let changes = changes_of_followed_history(seed);
        missing.retain(|change| !changes.contains(*change));
    }
    assert!(
        !wants_all || missing.is_empty(),
        "no history had {missing:?}"
    );
}

/// A way of full synchronisation: its name, settings of the primary, settings of the replica.
type SyncWay = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static [(&'static str, &'static str)],
);

const WAYS: [SyncWay; 5] = [
    (
        "through a file on both sides",
        &[("repl-diskless-sync", "no")],
        &[("repl-diskless-load", "disabled")],
    ),
    (
        "straight from memory into memory",
        &[("repl-diskless-sync", "yes")],
        &[("repl-diskless-load", "on-empty-db")],
    ),
    (
        // The server falls back to the disk: dsync does not declare that it keeps two data sets apart.
        "by way of the disk, where swapdb was asked for",
        &[("repl-diskless-sync", "yes")],
        &[("repl-diskless-load", "swapdb")],
    ),
    // With two connections: the replica buffers the stream while the snapshot arrives.
    (
        "beside the stream, on Valkey",
        &[
            ("repl-diskless-sync", "yes"),
            ("dual-channel-replication-enabled", "yes"),
        ],
        &[("dual-channel-replication-enabled", "yes")],
    ),
    (
        "beside the stream, on Redis",
        &[("repl-diskless-sync", "yes"), ("repl-rdb-channel", "yes")],
        &[("repl-rdb-channel", "yes")],
    ),
];

fn knows(server: &Server, setting: &str) -> bool {
    !server
        .connect()
        .ask(format!("CONFIG GET {setting}"))
        .as_array()
        .is_empty()
}

#[test]
fn full_synchronisation_in_random_history_misses_nothing() {
    for seed in seeds(1) {
        let primary = history::builder().start();
        let mut history = History::new(&primary, seed);
        history.steps(100);
        let mut replicas = Vec::new();
        for (way, of_primary, of_replica) in WAYS {
            let settings = of_primary.iter().chain(of_replica);
            if settings.clone().any(|(name, _)| !knows(&primary, name)) {
                continue;
            }
            for (name, value) in of_primary {
                assert_eq!(
                    primary.connect().ask(format!("CONFIG SET {name} {value}")),
                    "OK"
                );
            }
            let full_before = primary.info_number("stats", "sync_full");
            let replica = of_replica
                .iter()
                .fold(history::builder(), |builder, (name, value)| {
                    builder.config(name, value)
                })
                .start();
            // The replica has other data before the synchronisation, except where it must be empty.
            if !of_replica.contains(&("repl-diskless-load", "on-empty-db")) {
                History::new(&replica, seed + 1_000).steps(60);
            }
            let synchronised = AtomicBool::new(false);
            thread::scope(|threads| {
                let (replica, primary, synchronised) = (&replica, &primary, &synchronised);
                threads.spawn(move || {
                    replica
                        .connect()
                        .ask(format!("REPLICAOF 127.0.0.1 {}", primary.port()));
                    replica.wait_for_sync();
                    synchronised.store(true, Ordering::Relaxed);
                });
                history.until(way, || synchronised.load(Ordering::Relaxed));
            });
            compare(&mut history, &[&replica], way);
            let full = primary.info_number("stats", "sync_full");
            assert!(full > full_before, "{way}: {full} full synchronisations");
            replicas.push(replica);
        }
        // All replicas follow the rest of the history.
        history.steps(150);
        let replicas: Vec<_> = replicas.iter().collect();
        compare(
            &mut history,
            &replicas,
            "after synchronisations of all kinds",
        );
    }
}

#[test]
fn replica_with_broken_link_resumes_where_it_was() {
    for seed in seeds(1) {
        let primary = history::builder().start();
        let replica = history::builder().replica_of(&primary).start();
        let chained = history::builder().replica_of(&replica).start();
        let mut history = History::new(&primary, seed).without_flushes();
        let counts = |server: &Server| {
            ["sync_full", "sync_partial_ok"].map(|field| server.info_number("stats", field))
        };
        let before = [counts(&primary), counts(&replica)];
        for round in 0..3 {
            history.steps(60);
            // The replica is stopped, so that it lags behind, and finds its link broken when it goes on.
            replica.stop();
            history.steps(80);
            primary.connect().ask("CLIENT KILL TYPE replica");
            history.steps(40);
            replica.cont();
            let resumed = |server: &Server, before: [u64; 2]| counts(server)[1] > before[1] + round;
            history.until("a replica that goes on", || resumed(&primary, before[0]));
            // The link of its own replica breaks as well.
            replica.connect().ask("CLIENT KILL TYPE replica");
            history.until("its own that goes on", || resumed(&replica, before[1]));
            for follower in [&replica, &chained] {
                follower.wait_for_sync();
            }
            compare(
                &mut history,
                &[&replica, &chained],
                "after a partial resynchronisation",
            );
        }
        assert_eq!(
            counts(&primary),
            [before[0][0], before[0][1] + 3],
            "all in part"
        );
        assert_eq!(
            counts(&replica),
            [before[1][0], before[1][1] + 3],
            "all in part"
        );
    }
}

#[test]
fn promoted_replica_and_its_replica_continue_the_history() {
    for seed in seeds(1) {
        let mut primary = history::builder().start();
        let replica = history::builder().replica_of(&primary).start();
        let chained = history::builder().replica_of(&replica).start();
        let mut history = History::new(&primary, seed);
        history.steps(200);
        history.stand_still();
        for follower in [&replica, &chained] {
            follower.wait_to_catch_up_with(&primary);
            assert_same(&primary, follower, "before the end of the primary");
        }
        drop(history);
        let full = replica.info_number("stats", "sync_full");
        primary.kill9();
        assert_eq!(replica.connect().ask("REPLICAOF NO ONE"), "OK");
        let mut history = History::new(&replica, seed + 1_000);
        history.steps(200);
        chained.wait_for_sync();
        compare(&mut history, &[&chained], "after the promotion");
        // The old primary starts again without data, as a replica.
        primary.start_again();
        primary
            .connect()
            .ask(format!("REPLICAOF 127.0.0.1 {}", replica.port()));
        history.steps(30);
        primary.wait_for_sync();
        history.steps(30);
        compare(&mut history, &[&chained, &primary], "with the old primary");
        assert_eq!(
            replica.info_number("stats", "sync_full"),
            full + 1,
            "only the old primary needed a full synchronisation"
        );
        history.end();
        eventually("a client that is served", SOON, || {
            let reply = call!(replica.connect(), "DLOCK.ACQUIRE", "one more", "TOKEN", "t");
            !reply.is_nil()
        });
    }
}
