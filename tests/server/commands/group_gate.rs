//! Wait groups, the gate: ADD with LIMIT waits until fewer than LIMIT members live.

use crate::commands::group_steps::*;
use crate::support::steps::*;
use crate::support::*;
use std::time::Duration;

#[test]
fn group_gate_admits_up_to_its_limit_in_order() {
    let server = Server::start();
    let mut client = server.connect();
    let first = client.ask("DWG.ADD group LIMIT 2").grant().0;
    let second = add(&mut client);
    assert!(
        client.ask("DWG.ADD group").is_nil(),
        "the gate of the first is in force"
    );
    let mut waiters: Vec<_> = (0..4)
        .map(|_| server.waiting("DWG.ADD group LIMIT 2 BLOCK 0"))
        .collect();
    // WAIT also waits for requests that wait to be added.
    let mut watcher = server.waiting("DWG.WAIT group BLOCK 0");

    let mut live = vec![first, second];
    let mut last = 0;
    for at in 0..4 {
        for waiter in &mut waiters[at..] {
            waiter.expect_silence(Duration::from_millis(10));
        }
        assert_eq!(client.ask(format!("DWG.DONE group {}", live.remove(0))), 1);
        let (token, fence) = waiters[at].reply().grant();
        assert!(fence > last, "in their order");
        last = fence;
        live.push(token);
        assert_eq!(*client.ask("DWG.INFO group").field("holders"), 2);
    }
    watcher.expect_silence(A_WHILE);
    assert_eq!(
        client.ask(format!("DWG.DONE group {} {}", live[0], live[1])),
        2
    );
    assert_tally(&watcher.reply(), 6, 0);
}

#[test]
fn group_round_is_open_while_an_add_waits() {
    let server = Server::start();
    let mut client = server.connect();
    let (token, _) = client.ask("DWG.ADD group LIMIT 1").grant();
    let mut worker = server.waiting("DWG.ADD group BLOCK 0");
    let mut waiter = server.waiting("DWG.WAIT group BLOCK 0");
    assert_eq!(client.ask(format!("DWG.DONE group {token}")), 1);
    let (token, _) = worker.reply().grant();
    waiter.expect_silence(A_WHILE);
    assert_eq!(client.ask(format!("DWG.DONE group {token}")), 1);
    assert_tally(&waiter.reply(), 2, 0);
}

#[test]
fn group_gate_raised_admits_waiters_and_lowered_ends_nobody() {
    let server = Server::start();
    let mut client = server.connect();
    let first = client.ask("DWG.ADD group LIMIT 1").grant().0;
    let mut waiters = [(); 2].map(|()| server.waiting("DWG.ADD group BLOCK 0"));
    // A refused try does not change the gate.
    assert!(client.ask("DWG.ADD group LIMIT 9").is_nil());
    assert_eq!(*client.ask("DWG.INFO group").field("limit"), 1);
    // A request that queues does: it makes room for the two before it and for itself.
    let mut wide = server.connect();
    wide.begin("DWG.ADD group LIMIT 4 BLOCK 0");
    let mut live: Vec<_> = waiters
        .iter_mut()
        .map(|waiter| waiter.reply().grant().0)
        .collect();
    live.push(wide.reply().grant().0);
    live.push(first);
    assert_eq!(*client.ask("DWG.INFO group").field("limit"), 4);
    assert_eq!(*client.ask("DWG.INFO group").field("limit-changes"), 1);

    let mut narrow = server.waiting("DWG.ADD group LIMIT 2 BLOCK 0");
    assert_eq!(
        *client.ask("DWG.INFO group").field("holders"),
        4,
        "no member is removed"
    );
    for token in live.drain(..2) {
        assert_eq!(client.ask(format!("DWG.DONE group {token}")), 1);
        narrow.expect_silence(A_WHILE);
    }
    assert_eq!(client.ask(format!("DWG.DONE group {}", live.remove(0))), 1);
    narrow.reply().grant();
}

#[test]
fn group_without_limit_has_no_gate() {
    let server = Server::start();
    let mut client = server.connect();
    for _ in 0..2_000 {
        client.begin("DWG.ADD group");
    }
    (0..2_000).for_each(|_| drop(client.reply().grant()));
    assert_eq!(*client.ask("DWG.INFO group").field("holders"), 2_000);
    assert!(client.ask("DWG.INFO group").field("limit").is_nil());
}

#[test]
fn group_ephemeral_member_that_is_lost_makes_room_at_the_gate() {
    let server = Server::start();
    let mut worker = server.connect();
    worker.ask("DWG.ADD group LIMIT 1 EPHEMERAL").grant();
    let mut next = server.waiting("DWG.ADD group BLOCK 0");
    worker.close();
    next.reply().grant();
}
