//! A `DLOCK.RELEASE` that ends the only hold of a lock is replicated as it came; ARCHITECTURE.md says why this is safe.

use crate::support::data_files::{kill_and_start, with_safe_aof};
use crate::support::*;

/// Releases by a plain command, in lower case, in MULTI, in Lua, and of a shared lock.
#[test]
fn release_ends_hold_on_every_replica_and_in_every_aof() {
    let mut primary = with_safe_aof(false).start();
    let mut replica = with_safe_aof(false).replica_of(&primary).start();
    let chained = Server::builder().replica_of(&replica).start();
    let mut client = primary.connect();
    client.ask("DLOCK.ACQUIRE kept TOKEN t EX 600");
    let mut all = Vec::new();
    for key in ["plain", "lower", "multi", "lua", "shared"] {
        let acquired = match key {
            "shared" => client.ask(format!("DLOCK.ACQUIRE {key} SHARED TOKEN t EX 600")),
            _ => client.ask(format!("DLOCK.ACQUIRE {key} TOKEN t EX 600")),
        };
        acquired.grant();
        all.push(key);
    }
    let other = client.ask("DLOCK.ACQUIRE shared SHARED TOKEN u EX 600");
    other.grant();
    assert_eq!(client.ask("DLOCK.RELEASE plain t"), 1);
    assert_eq!(client.ask("dlock.release lower t"), 1);
    client.ask("MULTI");
    client.ask("DLOCK.RELEASE multi t");
    client.ask("EXEC");
    let script = "return redis.call('Dlock.Release', KEYS[1], ARGV[1])";
    assert_eq!(call!(client, "EVAL", script, 1, "lua", "t"), 1);
    // The first leaves a hold behind, the second does not.
    assert_eq!(client.ask("DLOCK.RELEASE shared t"), 1);
    assert_eq!(client.ask("DLOCK.RELEASE shared u"), 1);

    replica.wait_to_catch_up_with(&primary);
    chained.wait_to_catch_up_with(&primary);
    let assert_same = |server: &Server, what: &str| {
        let mut client = server.connect();
        assert_eq!(client.ask("DBSIZE"), 1, "{what}");
        assert!(client.ask("DLOCK.CHECK kept t").as_int() > 0, "{what}");
        assert_eq!(server.info_number("dsync", "dsync_unapplied_changes"), 0);
        assert_eq!(server.info_number("dsync", "dsync_lock_holds"), 1, "{what}");
    };
    assert_same(&primary, "the primary");
    assert_same(&replica, "the replica");
    assert_same(&chained, "the replica's replica");
    // Both load their own AOF; the replica has no primary to synchronise with.
    kill_and_start(&mut primary);
    assert_same(&primary, "the primary's AOF");
    primary.kill9();
    kill_and_start(&mut replica);
    assert_same(&replica, "the replica's AOF");
}

/// A replica that has lost the hold ends nothing, logs the refusal and counts it.
#[test]
fn release_on_replica_that_differs_is_refused_and_counted() {
    let primary = Server::start();
    let replica = Server::builder()
        .config("replica-read-only", "no")
        .replica_of(&primary)
        .start();
    let mut client = primary.connect();
    client.ask("DLOCK.ACQUIRE k TOKEN t").grant();
    replica.wait_to_catch_up_with(&primary);
    assert_eq!(replica.connect().ask("DEL k"), 1);
    assert_eq!(client.ask("DLOCK.RELEASE k t"), 1);
    replica.wait_to_catch_up_with(&primary);
    assert_eq!(replica.info_number("dsync", "dsync_unapplied_changes"), 2);
    let log = replica.log_text();
    let said = "DLOCK.RELEASE failed on key 'k' of database 0: the key has no hold of its token, or \
                others beside it";
    assert!(log.contains(said), "{log}");
}
