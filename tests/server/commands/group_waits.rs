//! Wait groups, WAIT: on a group that does not exist, with a timeout, in great numbers, and when the group is removed.
//!
//! `removal` has the other ways to remove or overwrite a group.

use crate::commands::group_steps::*;
use crate::support::steps::*;
use crate::support::*;

#[test]
fn wait_on_absent_group_answers_at_once() {
    let server = Server::start();
    let mut client = server.connect();
    assert_tally(&client.ask("DWG.WAIT group"), 0, 0);
    assert_tally(&client.ask("DWG.WAIT group BLOCK 0"), 0, 0);
    assert_eq!(client.ask("EXISTS group"), 0);
}

#[test]
fn wait_that_times_out_answers_nil_and_the_round_stays_open() {
    let server = Server::start();
    let mut client = server.connect();
    let token = add(&mut client);
    assert!(client.ask("DWG.WAIT group BLOCK 30").is_nil());
    assert!(client.ask("DWG.WAIT group BLOCK 1").is_nil());
    server.wait_for_blocked(0);
    assert_eq!(*client.ask("DWG.INFO group").field("waiters"), 0);
    assert_eq!(client.ask(format!("DWG.DONE group {token}")), 1);
    assert_tally(&client.ask("DWG.WAIT group BLOCK 30"), 1, 0);
}

#[test]
fn wait_on_removed_group_is_answered_unblocked() {
    let server = Server::start();
    let mut client = server.connect();
    let ways: [&[&str]; 6] = [
        &["DEL", "group"],
        &["UNLINK", "group"],
        &["FLUSHALL"],
        &["FLUSHDB", "ASYNC"],
        &["RENAME", "group", "elsewhere"],
        &["PEXPIRE", "group", "1"],
    ];
    for way in ways {
        add(&mut client);
        let mut waiter = server.waiting("DWG.WAIT group BLOCK 0");
        assert!(!client.call(way).is_error());
        if way[0] == "PEXPIRE" {
            eventually("the key's end", SOON, || client.ask("EXISTS group") == 0);
        }
        let reply = waiter.reply();
        assert!(
            reply.error().starts_with("UNBLOCKED "),
            "{way:?}: {reply:?}"
        );
        server.wait_for_blocked(0);
        client.ask("FLUSHALL");
    }
}

#[test]
fn wait_on_group_removed_and_recreated_is_answered_unblocked() {
    let server = Server::start();
    let mut client = server.connect();
    add(&mut client);
    let mut waiter = server.waiting("DWG.WAIT group BLOCK 0");
    client.ask("MULTI");
    client.ask("DEL group");
    client.ask("DWG.ADD group TOKEN new");
    client.ask("EXEC");
    let reply = waiter.reply();
    assert!(reply.error().starts_with("UNBLOCKED "), "{reply:?}");
    assert!(client.ask("DWG.CHECK group new").as_int() > 0);
}

#[test]
fn thousand_waits_are_all_answered() {
    const WAITS: u64 = 1_000;
    let server = Server::start();
    let mut client = server.connect();
    let token = add(&mut client);
    let mut waiters: Vec<_> = (0..WAITS).map(|_| server.connect()).collect();
    waiters
        .iter_mut()
        .for_each(|waiter| waiter.begin("DWG.WAIT group BLOCK 0"));
    server.wait_for_blocked(WAITS);
    assert_eq!(*client.ask("DWG.INFO group").field("waiters"), 1_000);
    assert_eq!(client.ask(format!("DWG.DONE group {token}")), 1);
    // A new round begins while the server answers in slices. These waiters get the tally of the old one.
    let next = add(&mut client);
    for waiter in &mut waiters {
        assert_tally(&waiter.reply(), 1, 0);
    }
    server.wait_for_blocked(0);
    for waiter in &mut waiters {
        assert_eq!(waiter.ask("PING"), "PONG", "one answer each");
    }
    assert_eq!(client.ask(format!("DWG.DONE group {next}")), 1);
}
