//! A replica with `replica-read-only no`, to which the server passes every command of a client. It decides nothing: it
//! refuses what a read-only replica refuses, and holds what its primary holds.

use crate::commands::documented::*;
use crate::support::fixtures::{add_fixtures, assert_same_fixtures};
use crate::support::steps::{SOON, assert_calm};
use crate::support::*;

const WORDS: &str = "READONLY You can't write against a read only replica.";

fn replica_of(primary: &Server) -> Server {
    Server::builder()
        .config("replica-read-only", "no")
        .replica_of(primary)
        .start()
}

/// The commands that may change a key, as the server knows them.
fn writes(client: &mut Client) -> Vec<Documented> {
    let mut commands = documented(client);
    commands.retain(|command| {
        let info = client.ask(format!("COMMAND INFO {}", command.name));
        let flags = joined(&info.as_array()[0].as_array()[2]);
        flags.split(' ').any(|flag| flag == "write")
    });
    assert!(commands.len() > 20, "{}", commands.len());
    commands
}

/// Requests of the command on this key: without an option, and with each of them.
fn requests(command: &Documented, key: &str) -> Vec<Vec<String>> {
    let with = |option: &&DocArgument| {
        let mut words = option.words(&option.value());
        // QUEUE and LANELIMIT are nothing without these.
        for (word, other) in [("QUEUE", "TOKEN"), ("LANELIMIT", "LANE")] {
            if option.is_word(word) {
                words.extend([other, SECRET].map(str::to_owned));
            }
        }
        command.request(key, &words)
    };
    let options = command.options();
    let with_each = options.iter().map(with);
    with_each.chain([command.request(key, &[])]).collect()
}

#[track_caller]
fn assert_refused(reply: &Reply, request: &[String]) {
    assert!(reply.error().contains(WORDS), "{request:?}: {reply:?}");
}

/// A try on a writable replica was granted over the live hold of the primary, with a fence that the primary gave again.
#[test]
fn every_write_of_a_client_is_refused_and_changes_nothing() {
    let primary = Server::start();
    let replica = replica_of(&primary);
    let mut client = primary.connect();
    for command in documented(&mut client) {
        if command.asks() {
            let token = ["TOKEN", SECRET, "EX", "600"].map(str::to_owned);
            client.call(&command.request(command.family(), &token));
        }
    }
    add_fixtures(&primary);
    replica.wait_to_catch_up_with(&primary);
    let mut other = replica.connect();
    for command in writes(&mut other) {
        for key in [command.family(), "absent"] {
            for request in requests(&command, key) {
                assert_refused(&other.call(&request), &request);
                other.ask("MULTI");
                other.call(&request);
                assert_refused(&other.ask("EXEC").as_array()[0], &request);
                let script = "return redis.call(unpack(ARGV))";
                let eval = ["EVAL", script, "1", key].map(str::to_owned);
                // The request itself says that scripts have no connection.
                if !request.contains(&"EPHEMERAL".to_owned()) {
                    assert_refused(&other.call(&[&eval[..], &request].concat()), &request);
                }
            }
        }
    }
    assert_same_fixtures(&primary, &replica);
    for family in ["DLOCK", "DSEM", "DWG", "DONCE"] {
        let (key, token) = (family, SECRET);
        assert_eq!(
            client.ask(format!("{family}.RENEW {key} {token} EX 900")),
            1
        );
    }
    client.ask("DLOCK.ACQUIRE next TOKEN t").grant();
    assert_eq!(client.ask("DLOCK.RELEASE next t"), 1);
    replica.wait_to_catch_up_with(&primary);
    assert_same_fixtures(&primary, &replica);
    assert_eq!(replica.info_number("dsync", "dsync_unapplied_changes"), 0);
    assert_calm(&replica);
}

/// The wall clock passes every moment at which something would end on a primary: a lease, a pause, a kept place, a
/// delay. A request of a client on the replica ends none of them, and a promoted replica begins with all of them.
#[test]
fn request_after_every_deadline_ends_nothing() {
    let primary = Server::start();
    let replica = replica_of(&primary);
    let mut client = primary.connect();
    client.ask("DLOCK.ACQUIRE lock PX 1500 TOKEN t").grant();
    client.ask("DLOCK.ACQUIRE lock TOKEN kept QUEUE 1000");
    client
        .ask("DSEM.ACQUIRE paused LIMIT 1 PX 1500 TOKEN t")
        .grant();
    client.ask("DSEM.PAUSE paused 1500");
    client.ask("DONCE.BEGIN failed TOKEN t");
    client.ask("DONCE.FAIL failed t DELAY 1500");
    client.ask("DONCE.BEGIN done TOKEN t");
    client.ask("DONCE.DONE done t PX 1500");
    replica.wait_to_catch_up_with(&primary);
    primary.stop();
    let mut other = replica.connect();
    let before = other.ask("DEBUG DIGEST");
    eventually("every deadline", SOON, || {
        let left = other.ask("DSEM.INFO paused");
        let paused_ms = left.find_field("paused-ms").map_or(0, Reply::as_int);
        other.ask("DLOCK.CHECK lock t") == 0
            && paused_ms == 0
            && other.ask("DONCE.GET done").is_nil()
    });
    for request in [
        "DLOCK.ACQUIRE lock TOKEN new",
        "DLOCK.ACQUIRE lock TOKEN new QUEUE 1000",
        "DLOCK.ACQUIRE lock TOKEN new BLOCK 0",
        "DLOCK.RENEW lock t",
        "DSEM.PAUSE paused 0",
        "DSEM.LIMIT paused 5",
        "DONCE.BEGIN failed",
        "DONCE.BEGIN done",
        "DWG.WAIT absent BLOCK 0",
    ] {
        assert_eq!(other.ask(request).error(), WORDS, "{request}");
    }
    assert_eq!(other.ask("DEBUG DIGEST"), before);
    for (key, holds) in [("lock", 1), ("paused", 1), ("failed", 1), ("done", 1)] {
        assert_eq!(other.ask(format!("EXISTS {key}")), holds, "{key}");
    }
    primary.cont();
    // Where the deadline has passed, a promoted replica still gives a lease its grace.
    assert_eq!(other.ask("REPLICAOF NO ONE"), "OK");
    assert!(other.ask("DLOCK.ACQUIRE lock TOKEN new").is_nil());
    assert_eq!(other.ask("DLOCK.RENEW lock t"), 1);
}

/// What concerns the replica alone works there as on any server.
#[test]
fn settings_and_the_log_are_the_replicas_own() {
    let primary = Server::start();
    let replica = replica_of(&primary);
    let mut client = primary.connect();
    let (_, fence) = client.ask("DLOCK.ACQUIRE k TOKEN t").grant();
    assert_eq!(client.ask(format!("DLOCK.REVOKE k {fence}")), 1);
    replica.wait_to_catch_up_with(&primary);
    let mut other = replica.connect();
    assert_eq!(other.ask("DSYNC.LOG").as_array().len(), 1);
    assert_eq!(other.ask("DSYNC.LOG RESET"), "OK");
    assert_eq!(other.ask("DSYNC.LOG").as_array().len(), 0);
    assert_eq!(other.ask("CONFIG SET dsync.default-lease-ms 5000"), "OK");
}
