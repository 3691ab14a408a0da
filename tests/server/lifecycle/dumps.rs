//! DUMP, RESTORE and MIGRATE of keys that hold locks, permits, members and runs.
//!
//! A payload has the whole state, also the holds. RESTORE and MIGRATE put it where they are told to; waiters of that
//! name then wait for the restored state.

use std::time::Duration;

use crate::support::fixtures::{FIXTURES, add_fixtures, assert_in_use};
use crate::support::steps::SOON;
use crate::support::*;

#[test]
fn dumped_value_is_restored_under_its_own_or_another_name() {
    let server = Server::start();
    add_fixtures(&server);
    let mut client = server.connect();
    for key in FIXTURES {
        let before = server.digest(key);
        let payload = call!(client, "DUMP", key).as_bytes().to_vec();
        assert!(
            call!(client, "RESTORE", key, 0, &payload)
                .error()
                .starts_with("BUSYKEY")
        );
        call!(client, "DEL", key);
        assert_eq!(call!(client, "RESTORE", key, 0, &payload), "OK");
        assert_eq!(server.digest(key), before, "{key}");
        assert_eq!(
            call!(client, "RESTORE", "copy", 0, &payload, "REPLACE"),
            "OK"
        );
        assert_eq!(server.digest("copy"), before, "{key}");
        assert!(
            call!(client, "COPY", key, "another").is_error(),
            "a copied lock would have two holders"
        );
    }
    client.ask("DEL copy");
    assert_in_use(&server);
}

#[test]
fn restored_hold_lapses_when_its_lease_ends() {
    let server = Server::builder()
        .module_arg("takeover-grace-ms")
        .module_arg(0)
        .start();
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE k PX 400 TOKEN t");
    let payload = client.ask("DUMP k").as_bytes().to_vec();
    client.ask("DEL k");
    assert_eq!(call!(client, "RESTORE", "k", 0, &payload), "OK");
    let left = client.ask("DLOCK.CHECK k t").as_int();
    assert!((0..=400).contains(&left), "{left}");
    let fence = client.ask("DLOCK.ACQUIRE k BLOCK 10000 TOKEN next").grant();
    assert_eq!(fence.0, "next");
}

#[test]
fn restore_with_replace_changes_holds_and_keeps_waiters() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE source TOKEN restored");
    let payload = client.ask("DUMP source").as_bytes().to_vec();
    let old = client.ask("DLOCK.ACQUIRE k TOKEN old").grant().1;
    let mut waiter = server.connect();
    waiter.begin("DLOCK.ACQUIRE k BLOCK 0 TOKEN waiter");
    server.wait_for_blocked(1);
    assert_eq!(call!(client, "RESTORE", "k", 0, &payload, "REPLACE"), "OK");
    assert_eq!(client.ask("DLOCK.RELEASE k old"), 0);
    assert_eq!(client.ask(format!("DLOCK.REVOKE k {old}")), 0);
    assert!(client.ask("DLOCK.CHECK k restored").as_int() > 0);
    waiter.expect_silence(Duration::from_millis(150));
    assert_eq!(client.ask("DLOCK.RELEASE k restored"), 1);
    assert_eq!(
        waiter.recv(SOON).expect("the waiter is granted").grant().0,
        "waiter"
    );

    // A restored value with free permits serves the waiters.
    client.ask("DSEM.ACQUIRE roomy LIMIT 5 TOKEN t");
    let payload = client.ask("DUMP roomy").as_bytes().to_vec();
    client.ask("DSEM.ACQUIRE s LIMIT 1");
    let mut waiter = server.connect();
    waiter.begin("DSEM.ACQUIRE s BLOCK 0 TOKEN waiter");
    server.wait_for_blocked(1);
    assert_eq!(call!(client, "RESTORE", "s", 0, &payload, "REPLACE"), "OK");
    assert_eq!(
        waiter.recv(SOON).expect("the waiter is granted").grant().0,
        "waiter"
    );
    assert_eq!(*client.ask("DSEM.INFO s").field("holders"), 2);

    // A restored string answers the waiters WRONGTYPE.
    client.ask("SET string 1");
    let payload = client.ask("DUMP string").as_bytes().to_vec();
    let mut waiter = server.connect();
    waiter.begin("DLOCK.ACQUIRE k BLOCK 0");
    server.wait_for_blocked(1);
    assert_eq!(call!(client, "RESTORE", "k", 0, &payload, "REPLACE"), "OK");
    let told = waiter.recv(SOON).expect("the waiter is told");
    assert!(told.error().starts_with("WRONGTYPE"), "{told:?}");
}

#[test]
fn migrated_lock_is_held_at_target_and_granted_afresh_at_source() {
    let (source, target) = (Server::start(), Server::start());
    let mut client = source.connect();
    let fence = client
        .ask("DLOCK.ACQUIRE k EX 60 TOKEN holder OWNER o")
        .grant()
        .1;
    let before = source.digest("k");
    let mut waiter = source.connect();
    waiter.begin("DLOCK.ACQUIRE k BLOCK 0 TOKEN waiter");
    source.wait_for_blocked(1);
    assert_eq!(
        client.ask(format!("MIGRATE 127.0.0.1 {} k 0 5000", target.port())),
        "OK"
    );
    assert_eq!(target.digest("k"), before);
    let mut there = target.connect();
    assert!(there.ask("DLOCK.CHECK k holder").as_int() > 50_000);
    assert!(there.ask("DLOCK.ACQUIRE k").is_nil());
    let (token, afresh) = waiter.recv(SOON).expect("the waiter is granted").grant();
    assert_eq!(token, "waiter");
    assert!(afresh > fence);
    assert_eq!(client.ask("DLOCK.CHECK k holder"), 0);
    assert_eq!(there.ask("DLOCK.RELEASE k holder"), 1);
    // Later fences of the target are higher than the one that arrived.
    assert!(there.ask("DLOCK.ACQUIRE k").grant().1 > fence);
}
