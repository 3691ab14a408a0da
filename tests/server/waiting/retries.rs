//! A request that is sent again with the token of a hold gets the same hold: the same fence, nothing counted twice.
//!
//! Client libraries resend by themselves: they give up on a reply that takes long, connect anew and send the command
//! again. The token of a request that still waits is in `places`; grants that cannot be delivered are in `undelivered`.

use crate::support::steps::*;
use crate::support::*;
use std::time::{Duration, Instant};

#[test]
fn request_by_holding_token_answers_the_same_hold_renewed() {
    let server = Server::start();
    let mut client = server.connect();
    let (_, fence) = client
        .ask("DLOCK.ACQUIRE lock EX 10 TOKEN t OWNER one")
        .grant();
    let (token, again) = server
        .connect()
        .ask("DLOCK.ACQUIRE lock EX 1000 TOKEN t")
        .grant();
    assert_eq!((token.as_str(), again), ("t", fence));
    let left = client.ask("DLOCK.CHECK lock t").as_int();
    assert!((990_001..=1_000_000).contains(&left), "{left}");
    assert_eq!(lock_holders(&mut client, "lock"), 1);
    // RENEW repeats the lease of the last request.
    assert_eq!(client.ask("DLOCK.RENEW lock t"), 1);
    assert!(client.ask("DLOCK.CHECK lock t").as_int() > 990_000);
    // A repeat with BLOCK while others wait is answered the same hold too.
    let mut waiter = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    let (_, again) = client.ask("DLOCK.ACQUIRE lock TOKEN t BLOCK 0").grant();
    assert_eq!(again, fence);
    assert_eq!(client.ask("DLOCK.RELEASE lock t"), 1);
    assert!(waiter.granted().1 > fence);
}

#[test]
fn repeated_request_takes_its_permits_once() {
    let server = Server::start();
    let mut client = server.connect();
    let line = "DSEM.ACQUIRE semaphore LIMIT 5 PERMITS 3 TOKEN t";
    let (_, fence) = client.ask(line).grant();
    for _ in 0..3 {
        let (_, again) = server.connect().ask(line).grant();
        assert_eq!(again, fence);
    }
    assert_eq!(count(&mut client, "DSEM.INFO", "semaphore", "available"), 2);
    assert_eq!(count(&mut client, "DSEM.INFO", "semaphore", "holders"), 1);
    assert_eq!(client.ask("DSEM.RELEASE semaphore t"), 1);
    assert_eq!(client.ask("EXISTS semaphore"), 0);

    let (_, fence) = client.ask("DWG.ADD group TOKEN t").grant();
    let (_, again) = client.ask("DWG.ADD group TOKEN t").grant();
    assert_eq!(again, fence);
    assert_eq!(client.ask("DWG.DONE group t"), 1);
    let finished = client.ask("DWG.WAIT group");
    assert_eq!(
        finished.as_array()[0],
        1,
        "one job, however often it was sent: {finished:?}"
    );
}

#[test]
fn overdue_hold_is_answered_to_its_token_while_others_wait() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE lock PX 60000 TOKEN t").grant();
    let mut waiter = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    let replies = client.ask_all([
        "DLOCK.ACQUIRE lock PX 40 TOKEN t",
        "DEBUG SLEEP 0.15",
        "DLOCK.CHECK lock t",
        "DLOCK.ACQUIRE lock PX 60000 TOKEN t",
        "DLOCK.CHECK lock t",
    ]);
    let (_, fence) = replies[0].grant();
    assert_eq!(replies[2], 0, "overdue");
    assert_eq!(replies[3].grant().1, fence);
    assert!(replies[4].as_int() > 30_000, "{replies:?}");
    waiter.expect_silence(A_WHILE);
    assert_eq!(client.ask("DLOCK.RELEASE lock t"), 1);
    waiter.granted();
}

#[test]
fn retry_delayed_by_client_pause_finds_its_hold() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE lock TOKEN t").grant();
    let mut waiter = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    let replies = client.ask_all([
        "DLOCK.ACQUIRE lock PX 400 TOKEN t",
        "CLIENT PAUSE 60000 WRITE",
    ]);
    let (_, fence) = replies[0].grant();
    let mut retry = server.connect();
    retry.begin("DLOCK.ACQUIRE lock PX 60000 TOKEN t BLOCK 5000");
    // Longer than the lease, which stands still while writes are paused.
    retry.expect_silence(Duration::from_millis(600));
    assert_eq!(client.ask("CLIENT UNPAUSE"), "OK");
    assert_eq!(retry.granted().1, fence);
    waiter.expect_silence(A_WHILE);
    assert_eq!(client.ask("DLOCK.RELEASE lock t"), 1);
    waiter.granted();
}

#[test]
fn same_token_with_other_mode_or_permits_is_a_mismatch() {
    let server = Server::start();
    let mut client = server.connect();
    let (_, fence) = client.ask("DLOCK.ACQUIRE lock EX 100 TOKEN t").grant();
    for line in [
        "DLOCK.ACQUIRE lock SHARED EX 5 TOKEN t",
        "DLOCK.ACQUIRE lock SHARED EX 5 TOKEN t BLOCK 0",
    ] {
        let error = client.ask(line);
        assert!(error.error().starts_with("MISMATCH "), "{error:?}");
    }
    assert!(
        client.ask("DLOCK.CHECK lock t").as_int() > 90_000,
        "nothing changed"
    );

    let mut waiter = server.waiting("DLOCK.ACQUIRE lock SHARED TOKEN w BLOCK 0");
    for line in [
        "DLOCK.ACQUIRE lock TOKEN w BLOCK 0",
        "DLOCK.ACQUIRE lock TOKEN w",
    ] {
        let error = client.ask(line);
        assert!(error.error().starts_with("MISMATCH "), "{line}: {error:?}");
    }
    assert_eq!(client.ask("DLOCK.RELEASE lock t"), 1);
    assert!(waiter.granted().1 > fence, "its place was not touched");

    client
        .ask("DSEM.ACQUIRE semaphore LIMIT 5 PERMITS 2 TOKEN t")
        .grant();
    for permits in ["", "PERMITS 1", "PERMITS 3"] {
        let error = client.ask(format!("DSEM.ACQUIRE semaphore LIMIT 5 TOKEN t {permits}"));
        assert!(error.error().starts_with("MISMATCH "), "{error:?}");
    }
    assert_eq!(count(&mut client, "DSEM.INFO", "semaphore", "available"), 3);
}

#[test]
fn grant_whose_reply_was_lost_is_answered_to_the_retry() {
    let server = Server::start();
    let mut holder = server.connect();
    holder.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    let unread = server.waiting("DLOCK.ACQUIRE lock TOKEN t BLOCK 0");
    assert_eq!(holder.ask("DLOCK.RELEASE lock held"), 1);
    eventually("a grant that nobody reads", SOON, || {
        holder.ask("DLOCK.CHECK lock t").as_int() > 0
    });
    let info = holder.ask("DLOCK.INFO lock");
    let fence = info.field("first-holders").as_array()[0]
        .field("fence")
        .as_int();
    let mut next = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    // The server has written the grant to the connection, so the hold stays when it closes.
    unread.close();
    next.expect_silence(A_WHILE);
    let line = "DLOCK.ACQUIRE lock TOKEN t BLOCK 5000";
    let (_, again) = server.connect().ask(line).grant();
    assert_eq!(i64::try_from(again).expect("a fence fits"), fence);
    assert_eq!(lock_holders(&mut holder, "lock"), 1);
    assert_eq!(holder.ask("DLOCK.RELEASE lock t"), 1);
    next.granted();
}

/// Resends as redis-py does by default: it gives up on the reply, closes, connects and sends the same again, ten times.
/// Here every 300 ms, with a rival behind it in the queue. The permits come free at different moments.
#[test]
fn request_resent_ten_times_gets_one_grant_and_one_permit() {
    std::thread::scope(|scope| {
        for freed_at_ms in [350, 598, 605, 1_000, 1_200] {
            scope.spawn(move || resend(freed_at_ms, false));
        }
        scope.spawn(|| resend(900, true));
    });
}

/// `between`: the permits come free while the token has no connection, so the rival is granted first.
fn resend(freed_at_ms: u64, between: bool) {
    const EVERY: Duration = Duration::from_millis(300);
    let server = Server::start();
    let mut holder = server.connect();
    holder
        .ask("DSEM.ACQUIRE semaphore LIMIT 2 PERMITS 2 TOKEN held")
        .grant();
    let started = Instant::now();
    let freed_at = started + Duration::from_millis(freed_at_ms);
    let line = "DSEM.ACQUIRE semaphore LIMIT 2 TOKEN t BLOCK 60000";
    let rivals = "DSEM.ACQUIRE semaphore LIMIT 2 PERMITS 2 TOKEN rival BLOCK 0";
    let mut rival = server.connect();
    let mut freed = false;
    let mut grants = Vec::new();
    for attempt in 1..=10 {
        let until = started + EVERY * attempt;
        let mut client = server.connect();
        client.begin(line);
        if attempt == 1 {
            server.wait_for_blocked(1);
            rival.wait_on(&server, rivals);
        }
        if !freed && !between && until >= freed_at {
            // The server must have read the resent request first; otherwise the rival would be granted.
            server.wait_for_blocked(2);
            at(freed_at);
            assert_eq!(holder.ask("DSEM.RELEASE semaphore held"), 1);
            freed = true;
        } else if freed && between && grants.is_empty() {
            server.wait_for_blocked(1);
            assert_eq!(holder.ask("DSEM.RELEASE semaphore rival"), 1);
            rival.wait_on(&server, rivals);
        }
        // The client gives up after this time: it drops a reply and closes the connection.
        if let Some(reply) = client.recv(until.saturating_duration_since(Instant::now())) {
            grants.push(reply.grant().1);
        }
        client.close();
        if !freed && between && until >= freed_at {
            server.wait_for_blocked(1);
            assert_eq!(holder.ask("DSEM.RELEASE semaphore held"), 1);
            rival.granted();
            freed = true;
        }
    }
    assert!(!grants.is_empty());
    assert!(
        grants.iter().all(|fence| *fence == grants[0]),
        "one grant: {grants:?}"
    );
    let mut number = |field| count(&mut holder, "DSEM.INFO", "semaphore", field);
    assert_eq!(number("holders"), 1);
    assert_eq!(number("available"), 1, "one permit");
    assert_eq!(number("waiters"), 1, "the rival");
    assert_eq!(holder.ask("DSEM.RELEASE semaphore t"), 1);
    rival.granted();
    assert_eq!(
        count(&mut holder, "DSEM.INFO", "semaphore", "holders"),
        1,
        "the rival alone"
    );
}

#[test]
fn request_resent_before_its_predecessor_ended_gets_one_grant() {
    let server = Server::start();
    let mut holder = server.connect();
    holder
        .ask("DSEM.ACQUIRE semaphore LIMIT 1 TOKEN held")
        .grant();
    let mut sent: Vec<Client> = Vec::new();
    for attempt in 0..10 {
        let mut client = server.connect();
        client.begin("DSEM.ACQUIRE semaphore LIMIT 1 TOKEN t BLOCK 60000");
        match sent.last_mut() {
            // Every second old request is still open and is superseded; the others are closed first.
            Some(old) if attempt % 2 == 0 => {
                assert!(old.reply().error().starts_with("UNBLOCKED superseded"));
            }
            Some(_) => sent.pop().expect("there is a last one").close(),
            None => {}
        }
        sent.push(client);
    }
    server.wait_for_blocked(1);
    assert_eq!(holder.ask("DSEM.RELEASE semaphore held"), 1);
    let mut last = sent.pop().expect("the tenth");
    last.granted();
    for mut old in sent {
        expect_no_more(&mut old);
    }
    assert_eq!(count(&mut holder, "DSEM.INFO", "semaphore", "holders"), 1);
}

#[test]
fn ephemeral_hold_is_bound_to_the_connection_that_asked_last() {
    let server = Server::start();
    let mut admin = server.connect();
    let (mut one, mut two) = (server.connect(), server.connect());
    let line = "DLOCK.ACQUIRE lock EX 600 TOKEN t EPHEMERAL";
    let (_, fence) = one.ask(line).grant();
    let mut waiter = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    assert_eq!(two.ask(line).grant().1, fence);
    one.close();
    waiter.expect_silence(Duration::from_millis(150));
    assert!(admin.ask("DLOCK.CHECK lock t").as_int() > 0);
    two.close();
    waiter.granted();
}

#[test]
fn ephemeral_retry_in_the_turn_of_the_old_end_keeps_the_hold() {
    let server = Server::start();
    let mut admin = server.connect();
    let (mut one, mut two) = (server.connect(), server.connect());
    let line = "DLOCK.ACQUIRE lock EX 600 TOKEN t EPHEMERAL";
    let (_, fence) = one.ask(line).grant();
    let mut waiter = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    two.ask("PING");
    server.stop();
    two.begin(line);
    one.close();
    server.cont();
    assert_eq!(two.granted().1, fence);
    waiter.expect_silence(A_WHILE);
    assert!(admin.ask("DLOCK.CHECK lock t").as_int() > 0);
    two.close();
    waiter.granted();
}

#[test]
fn retry_without_ephemeral_unbinds_the_hold() {
    let server = Server::start();
    let mut admin = server.connect();
    let mut one = server.connect();
    let (_, fence) = one
        .ask("DLOCK.ACQUIRE lock EX 600 TOKEN t EPHEMERAL")
        .grant();
    let mut two = server.connect();
    assert_eq!(
        two.ask("DLOCK.ACQUIRE lock EX 600 TOKEN t").grant().1,
        fence
    );
    let mut waiter = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    one.close();
    waiter.expect_silence(Duration::from_millis(150));
    assert!(admin.ask("DLOCK.CHECK lock t").as_int() > 0);
}
