//! Keys that RENAME or MOVE gives another name, and that nobody opens under it.
//!
//! No server tells the module of the new name, so the module searches the keyspace for the value. The promise: leases
//! and EPHEMERAL holds end under the new name as they would have ended under the old one, also where a server has so
//! many other keys that the search takes many turns, and after a save, a restart or a promotion.

use crate::support::steps::*;
use crate::support::*;

/// So many keys that a search takes several turns of the event loop.
const OTHERS: u32 = 200_000;

#[track_caller]
fn server_with_many_keys() -> (Server, Client) {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(client.ask(format!("DEBUG POPULATE {OTHERS}")), "OK");
    (server, client)
}

#[track_caller]
fn wait_for_lapses(server: &Server, count: u64) {
    eventually("the lapses", SOON, || {
        server.info_number("dsync", "dsync_lock_lapsed") == count
    });
    assert_eq!(server.info_number("dsync", "dsync_lock_holds"), 0);
}

#[test]
fn renamed_lock_lapses() {
    let (server, mut client) = server_with_many_keys();
    let replies = client.ask_all(["DLOCK.ACQUIRE a PX 100", "RENAME a b"]);
    assert_eq!(replies[1], "OK");
    wait_for_lapses(&server, 1);
    assert_eq!(client.ask("DBSIZE"), i64::from(OTHERS));
    assert_calm(&server);
}

#[test]
fn moved_lock_lapses_in_its_new_database() {
    let (server, mut client) = server_with_many_keys();
    let replies = client.ask_all(["DLOCK.ACQUIRE a PX 100", "MOVE a 9"]);
    assert_eq!(replies[1], 1);
    wait_for_lapses(&server, 1);
    client.ask("SELECT 9");
    assert_eq!(client.ask("DBSIZE"), 0);
}

/// The second renaming comes while the search for the first is under way, and puts the key behind it or before it.
#[test]
fn locks_renamed_during_a_search_lapse() {
    let (server, mut client) = server_with_many_keys();
    for n in 0..20 {
        client.ask(format!("DLOCK.ACQUIRE a{n} PX 3000")).grant();
    }
    for round in 0..20 {
        for n in 0..20 {
            let (from, to) = (char::from(b'a' + round), char::from(b'b' + round));
            assert_eq!(client.ask(format!("RENAME {from}{n} {to}{n}")), "OK");
        }
    }
    wait_for_lapses(&server, 20);
    assert_eq!(client.ask("DBSIZE"), i64::from(OTHERS));
}

#[test]
fn lock_swapped_during_a_search_lapses() {
    let (server, mut client) = server_with_many_keys();
    client.ask("SELECT 1");
    client.ask(format!("DEBUG POPULATE {OTHERS}"));
    client.ask_all(["DLOCK.ACQUIRE a PX 1000", "RENAME a b"]);
    for _ in 0..101 {
        client.ask("SWAPDB 0 1");
    }
    wait_for_lapses(&server, 1);
}

#[test]
fn renamed_ephemeral_hold_ends_with_its_connection() {
    let (server, mut client) = server_with_many_keys();
    let mut holder = server.connect();
    holder.ask("DLOCK.ACQUIRE a PX 60000 EPHEMERAL").grant();
    assert_eq!(client.ask("RENAME a b"), "OK");
    holder.close();
    wait_until_gone(&mut client, "b");
    assert_eq!(server.info_number("dsync", "dsync_lock_holds"), 0);
}

#[test]
fn request_for_renamed_lock_finds_its_hold_at_once() {
    let (server, mut client) = server_with_many_keys();
    let fence = client.ask("DLOCK.ACQUIRE a PX 60000 TOKEN t").grant().1;
    let lines = [
        "RENAME a b",
        "DLOCK.ACQUIRE b",
        "DLOCK.ACQUIRE b TOKEN t",
        "DLOCK.RENEW b t PX 100",
    ];
    let replies = client.ask_all(lines);
    assert!(replies[1].is_nil(), "it is held: {replies:?}");
    assert_eq!(replies[2].clone().grant().1, fence);
    wait_for_lapses(&server, 1);
}

#[test]
fn renamed_lock_is_saved_under_its_new_name() {
    let mut server = Server::builder().config("appendonly", "no").start();
    let mut client = server.connect();
    let fence = client.ask("DLOCK.ACQUIRE a PX 60000 TOKEN t").grant().1;
    let saved = client.ask_all(["RENAME a b", "SAVE"]);
    assert_eq!(saved[1], "OK");
    drop(client);
    server.kill9();
    server.start_again();
    let mut client = server.connect();
    let again = client.ask("DLOCK.ACQUIRE b TOKEN t").grant();
    assert_eq!(again, ("t".to_owned(), fence));
    assert_eq!(client.ask("EXISTS a"), 0);
}

#[test]
fn renamed_lock_lapses_at_promoted_replica() {
    let primary = Server::start();
    let replica = Server::builder()
        .module_arg("takeover-grace-ms")
        .module_arg("0")
        .replica_of(&primary)
        .start();
    let mut client = primary.connect();
    // Long enough for the primary to be stopped before the lease ends.
    client.ask("DLOCK.ACQUIRE a PX 3000").grant();
    client.ask("RENAME a b");
    // The replica follows without knowing where the value is.
    client.ask("DLOCK.ACQUIRE c PX 60000").grant();
    replica.wait_to_catch_up_with(&primary);
    primary.stop();
    assert_eq!(replica.connect().ask("REPLICAOF NO ONE"), "OK");
    wait_until_gone(&mut replica.connect(), "b");
    assert_eq!(replica.info_number("dsync", "dsync_lock_lapsed"), 1);
    primary.cont();
}

/// Only a primary searches. A replica that armed its timer for a search would fire it again and again.
#[test]
fn replica_with_renamed_lock_is_asleep() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    let mut client = primary.connect();
    let lines = ["DLOCK.ACQUIRE a PX 60000", "RENAME a b"];
    assert_eq!(client.ask_all(lines)[1], "OK");
    replica.wait_to_catch_up_with(&primary);
    let ticks = || replica.info_number("dsync", "dsync_timer_ticks");
    let before = ticks();
    std::thread::sleep(std::time::Duration::from_millis(500));
    let fired = ticks() - before;
    assert!(fired <= 5, "the timer fired {fired} times");
}

/// A search that went on without anything to find would fire the timer again and again.
#[test]
fn search_ends_when_a_request_has_found_the_lock() {
    let (server, mut client) = server_with_many_keys();
    let ticks = || server.info_number("dsync", "dsync_timer_ticks");
    let before = ticks();
    let lines = ["DLOCK.ACQUIRE a PX 60000", "RENAME a b"];
    assert_eq!(client.ask_all(lines)[1], "OK");
    eventually("the search has begun", SOON, || ticks() > before);
    assert!(client.ask("DLOCK.ACQUIRE b").is_nil());
    std::thread::sleep(std::time::Duration::from_millis(100));
    let before = ticks();
    std::thread::sleep(std::time::Duration::from_millis(500));
    let fired = ticks() - before;
    assert!(fired <= 5, "the timer fired {fired} times");
}
