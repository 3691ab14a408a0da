//! What a replica holds, lapses and answers.
//!
//! However it got its data, a replica holds exactly what its primary holds. It lapses nothing and accepts no writes.

use std::time::Duration;

use crate::support::fixtures::{FIXTURES, add_fixtures, assert_same_fixtures};
use crate::support::steps::{SOON, assert_calm, unix_ms};
use crate::support::*;

/// The replica applies the removal first and the grant that follows it second, and so keeps the new hold.
#[test]
fn removal_and_grant_after_it_reach_replica_in_order() {
    let primary = Server::builder().config("appendonly", "yes").start();
    let replica = Server::builder().replica_of(&primary).start();
    let mut client = primary.connect();
    for round in 0..10 {
        for removal in [
            "DEL",
            "DEL in Lua",
            "DEL in MULTI",
            "PEXPIRE",
            "FLUSHALL in Lua",
        ] {
            let token = format!("waiter-{round}");
            client.ask("DLOCK.ACQUIRE k TOKEN holder").grant();
            let mut waiter = primary.waiting(format!("DLOCK.ACQUIRE k BLOCK 0 TOKEN {token}"));
            let done = match removal {
                "DEL" => client.ask("DEL k"),
                "DEL in Lua" => call!(client, "EVAL", "return redis.call('DEL', KEYS[1])", 1, "k"),
                "DEL in MULTI" => {
                    let lines = ["MULTI", "DEL k", "SET x 1", "EXEC"];
                    client.ask_all(lines).remove(3)
                }
                "PEXPIRE" => client.ask("PEXPIRE k 20"),
                _ => call!(client, "EVAL", "redis.call('FLUSHALL')", 0),
            };
            assert!(!done.is_error(), "{removal}: {done:?}");
            assert_eq!(waiter.granted().0, token, "{removal}");
            replica.wait_to_catch_up_with(&primary);
            let left = replica
                .connect()
                .ask(format!("DLOCK.CHECK k {token}"))
                .as_int();
            assert!(left > 0, "the replica lost the grant after {removal}");
            assert_eq!(replica.digest("k"), primary.digest("k"), "{removal}");
            assert_eq!(client.ask(format!("DLOCK.RELEASE k {token}")), 1);
        }
    }
    assert_calm(&primary);
    assert_calm(&replica);
}

#[test]
fn full_synchronisation_brings_every_state() {
    for diskless in ["no", "yes"] {
        let primary = Server::builder()
            .config("repl-diskless-sync", diskless)
            .start();
        add_fixtures(&primary);
        let load = if diskless == "yes" {
            "on-empty-db"
        } else {
            "disabled"
        };
        let replica = Server::builder()
            .config("repl-diskless-load", load)
            .replica_of(&primary)
            .start();
        assert_same_fixtures(&primary, &replica);
        let left = replica.connect().ask("DLOCK.CHECK renewed t").as_int();
        assert!(
            (600_001..=700_000).contains(&left),
            "{left} ms left on the replica"
        );

        // Changes after the snapshot apply to it.
        let mut client = primary.connect();
        assert_eq!(client.ask("DLOCK.RENEW lock t"), 1);
        assert_eq!(client.ask("DSEM.RELEASE sem t"), 1);
        assert_eq!(client.ask("DWG.DONE group b"), 1);
        call!(client, "DWG.ADD", "finished", "TOKEN", "next round");
        replica.wait_to_catch_up_with(&primary);
        assert_same_fixtures(&primary, &replica);
        assert!(
            !replica.log_text().contains("DSYN failed"),
            "{}",
            replica.log_text()
        );
    }
}

#[test]
fn full_synchronisation_replaces_holds_of_new_replica() {
    let primary = Server::start();
    add_fixtures(&primary);
    for load in ["disabled", "swapdb"] {
        let other = Server::builder().config("repl-diskless-load", load).start();
        let mut client = other.connect();
        client.ask("DLOCK.ACQUIRE mine PX 300");
        client.ask("DLOCK.ACQUIRE lock PX 300");
        client.ask(format!("REPLICAOF 127.0.0.1 {}", primary.port()));
        other.wait_for_sync();
        // dsync does not declare that it keeps two data sets apart.
        assert!(other.log_text().contains("to disk"), "{load}");
        assert_same_fixtures(&primary, &other);
        assert_eq!(other.connect().ask("EXISTS mine"), 0);
        let outlives = "the primary's lock outlives the lease of the one before it";
        assert_always(outlives, Duration::from_millis(600), || {
            other.connect().ask("DLOCK.CHECK lock t").as_int() > 0
        });
        // Later changes find the loaded values.
        let mut client = primary.connect();
        client.ask("DLOCK.RENEW lock t");
        client.ask(format!("DWG.ADD group TOKEN {load}"));
        other.wait_to_catch_up_with(&primary);
        assert_same_fixtures(&primary, &other);
    }
}

#[test]
fn restarted_replica_resumes_by_partial_synchronisation() {
    let primary = Server::start();
    let mut replica = Server::builder()
        .config("save", "3600 1")
        .replica_of(&primary)
        .start();
    let mut client = primary.connect();
    add_fixtures(&primary);
    client.ask("DLOCK.ACQUIRE lapses PX 300");
    replica.wait_to_catch_up_with(&primary);
    replica.shutdown();
    eventually("a lapse while the replica is down", SOON, || {
        client.ask("EXISTS lapses") == 0
    });
    client.ask("DSEM.RELEASE sem t");
    replica.start_again();
    replica.wait_for_sync();
    replica.wait_to_catch_up_with(&primary);
    assert_same_fixtures(&primary, &replica);
    let log = replica.log_text();
    assert!(
        log.contains("Successful partial resynchronization"),
        "{log}"
    );
    assert!(!log.contains("DSYN failed"), "{log}");
}

#[test]
fn replica_writes_replicated_changes_to_its_aof() {
    let mut primary = Server::start();
    let mut replica = Server::builder()
        .config("appendonly", "yes")
        .config("appendfsync", "always")
        .config("aof-use-rdb-preamble", "no")
        .replica_of(&primary)
        .start();
    // After the synchronisation the server rewrites its AOF in the background.
    eventually("the replica's AOF", SOON, || {
        let info = replica.info_section("persistence");
        ["aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0"]
            .iter()
            .all(|line| info.contains(line))
    });
    let mut client = primary.connect();
    add_fixtures(&primary);
    client.ask("DLOCK.ACQUIRE gone TOKEN t");
    client.ask("DLOCK.RELEASE gone t");
    replica.wait_to_catch_up_with(&primary);
    let before = FIXTURES.map(|key| replica.digest(key));
    // The primary is killed too, so the replica can have its data only from its AOF.
    primary.kill9();
    replica.kill9();
    replica.start_again();
    for (key, before) in FIXTURES.iter().zip(before) {
        assert_eq!(replica.digest(key), before, "the digest of {key}");
    }
    assert_eq!(replica.connect().ask("EXISTS gone"), 0);
    assert_eq!(replica.connect().ask("REPLICAOF NO ONE"), "OK");
    assert_eq!(replica.connect().ask("DLOCK.RELEASE lock t"), 1);
}

/// Asserts that the condition holds all the time `during` lasts.
#[track_caller]
fn assert_always(what: &str, during: Duration, mut holds: impl FnMut() -> bool) {
    let until = std::time::Instant::now() + during;
    while std::time::Instant::now() < until {
        assert!(holds(), "not any more: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn lagging_replica_keeps_moments_of_primary() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    replica.stop();
    add_fixtures(&primary);
    call!(primary.connect(), "DWG.ADD", "just added", "TOKEN", "a");
    let done = unix_ms();
    eventually("20 ms between the decision and its arrival", SOON, || {
        unix_ms() > done + 20
    });
    replica.cont();
    replica.wait_to_catch_up_with(&primary);
    for key in FIXTURES.iter().chain(&["just added"]) {
        assert_eq!(
            replica.digest(key),
            primary.digest(key),
            "the digest of {key}"
        );
    }
}

#[test]
fn replica_refuses_writes_and_answers_reads() {
    let primary = Server::start();
    add_fixtures(&primary);
    let replica = Server::builder().replica_of(&primary).start();
    let mut client = replica.connect();
    let writes: &[&[&str]] = &[
        &["DLOCK.ACQUIRE", "lock"],
        &["DLOCK.ACQUIRE", "lock", "BLOCK", "0"],
        &["DLOCK.ACQUIRE", "free"],
        &["DLOCK.RELEASE", "lock", "t"],
        &["DLOCK.RENEW", "lock", "t"],
        &["DLOCK.REVOKE", "lock", "1"],
        &["DSEM.ACQUIRE", "sem", "BLOCK", "0"],
        &["DSEM.LIMIT", "sem", "1"],
        &["DWG.ADD", "group"],
        &["DWG.DONE", "group", "b"],
        &["DWG.EXPECT", "group", "1"],
        &["DWG.WAIT", "group", "BLOCK", "0"],
    ];
    for write in writes {
        let reply = client.call(write);
        assert!(
            reply.error().starts_with("READONLY"),
            "{write:?}: {reply:?}"
        );
    }
    for (command, key) in [
        ("DLOCK.INFO", "lock"),
        ("DSEM.INFO", "sem"),
        ("DWG.INFO", "group"),
    ] {
        let info = call!(client, command, key);
        assert_eq!(info.field("waiters"), &"unknown on a replica", "{info:?}");
        let first = &info.field("first-holders").as_array()[0];
        let left = first.field("lease-left-ms").as_int();
        assert!((1..=700_000).contains(&left), "{info:?}");
        assert!(
            first.field("client").is_nil(),
            "connections are the primary's: {info:?}"
        );
        let on_primary = call!(primary.connect(), command, key);
        assert_eq!(info.field("holders"), on_primary.field("holders"));
        assert_eq!(
            first.field("fence"),
            on_primary.field("first-holders").as_array()[0].field("fence")
        );
    }
}

#[test]
fn replica_lapses_nothing_and_checks_by_deadline() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    assert_lapses_nothing(&primary, &replica);
    // The same for a server that was a primary before.
    let demoted = Server::start();
    demoted.connect().ask("DLOCK.ACQUIRE other PX 60000");
    demoted
        .connect()
        .ask(format!("REPLICAOF 127.0.0.1 {}", primary.port()));
    demoted.wait_for_sync();
    assert_lapses_nothing(&primary, &demoted);
}

fn assert_lapses_nothing(primary: &Server, replica: &Server) {
    primary.connect().ask("DLOCK.ACQUIRE k PX 1500 TOKEN t");
    primary
        .connect()
        .ask("DLOCK.ACQUIRE other PX 60000 TOKEN t");
    replica.wait_to_catch_up_with(primary);
    // The primary is stopped, so it lapses nothing either; the replica knows only the deadline.
    primary.stop();
    let mut client = replica.connect();
    let left = client.ask("DLOCK.CHECK k t").as_int();
    assert!((0..=1500).contains(&left), "{left}");
    eventually("an overdue hold on the replica", SOON, || {
        let left = client.ask("DLOCK.CHECK k t").as_int();
        assert!((0..=1500).contains(&left), "{left}");
        left == 0
    });
    assert_always(
        "an overdue hold on a replica",
        Duration::from_millis(500),
        || client.ask("EXISTS k") == 1,
    );
    let info = client.ask("DLOCK.INFO k");
    assert_eq!(*info.field("holders"), 1);
    assert_eq!(
        *info.field("first-holders").as_array()[0].field("lease-left-ms"),
        0
    );
    primary.cont();
    eventually("the primary's lapse on the replica", SOON, || {
        client.ask("EXISTS k") == 0
    });
    assert!(client.ask("DLOCK.CHECK other t").as_int() > 0);
}
