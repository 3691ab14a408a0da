//! A request that is sent again with its token: the same hold, the same place, nothing counted twice;
//! and grants whose connection is gone before they are delivered.
//!
//! Client libraries do this by themselves: they give up on a reply that takes long, connect anew and send
//! the command again. Without a token nothing of this holds, and one story says so.

use crate::support::steps::*;
use crate::support::*;
use std::time::{Duration, Instant};

const KEEP_LONG: &str = "CONFIG SET dsync.rejoin-ms 60000";

fn holders(client: &mut Client, key: &str) -> i64 {
    count(client, "DLOCK.INFO", key, "holders")
}

fn waiters(client: &mut Client, key: &str) -> i64 {
    count(client, "DLOCK.INFO", key, "waiters")
}

#[test]
fn a_token_that_holds_is_granted_the_same_hold_again_with_its_lease_renewed() {
    let server = Server::start();
    let mut client = server.connect();
    let (_, fence) = ask(&mut client, "DLOCK.ACQUIRE lock EX 10 TOKEN t OWNER one").grant();
    let (token, again) = ask(&mut server.connect(), "DLOCK.ACQUIRE lock EX 1000 TOKEN t").grant();
    assert_eq!((token.as_str(), again), ("t", fence));
    let left = ask(&mut client, "DLOCK.CHECK lock t").as_int();
    assert!((990_001..=1_000_000).contains(&left), "{left}");
    assert_eq!(holders(&mut client, "lock"), 1);
    // The lease that RENEW repeats is the one asked for last.
    assert_eq!(ask(&mut client, "DLOCK.RENEW lock t"), 1);
    assert!(ask(&mut client, "DLOCK.CHECK lock t").as_int() > 990_000);
    // Even with BLOCK and while others wait it is no new request.
    let mut waiter = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    let (_, again) = ask(&mut client, "DLOCK.ACQUIRE lock TOKEN t BLOCK 0").grant();
    assert_eq!(again, fence);
    assert_eq!(ask(&mut client, "DLOCK.RELEASE lock t"), 1);
    assert!(granted(&mut waiter).1 > fence);
}

#[test]
fn a_repeated_request_takes_its_permits_once() {
    let server = Server::start();
    let mut client = server.connect();
    let line = "DSEM.ACQUIRE semaphore LIMIT 5 PERMITS 3 TOKEN t";
    let (_, fence) = ask(&mut client, line).grant();
    for _ in 0..3 {
        let (_, again) = ask(&mut server.connect(), line).grant();
        assert_eq!(again, fence);
    }
    assert_eq!(count(&mut client, "DSEM.INFO", "semaphore", "available"), 2);
    assert_eq!(count(&mut client, "DSEM.INFO", "semaphore", "holders"), 1);
    assert_eq!(ask(&mut client, "DSEM.RELEASE semaphore t"), 1);
    assert_eq!(ask(&mut client, "EXISTS semaphore"), 0);

    let (_, fence) = ask(&mut client, "DWG.ADD group TOKEN t").grant();
    let (_, again) = ask(&mut client, "DWG.ADD group TOKEN t").grant();
    assert_eq!(again, fence);
    assert_eq!(ask(&mut client, "DWG.DONE group t"), 1);
    let finished = ask(&mut client, "DWG.WAIT group");
    assert_eq!(
        finished.as_array()[0],
        1,
        "one job, however often it was sent: {finished:?}"
    );
}

#[test]
fn an_overdue_hold_is_granted_again_to_its_token_also_while_others_wait() {
    let server = Server::start();
    let mut client = server.connect();
    ask(&mut client, "DLOCK.ACQUIRE lock PX 60000 TOKEN t").grant();
    let mut waiter = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    let replies = at_once(
        &mut client,
        &[
            "DLOCK.ACQUIRE lock PX 40 TOKEN t",
            "DEBUG SLEEP 0.15",
            "DLOCK.CHECK lock t",
            "DLOCK.ACQUIRE lock PX 60000 TOKEN t",
            "DLOCK.CHECK lock t",
        ],
    );
    let (_, fence) = replies[0].grant();
    assert_eq!(replies[2], 0, "overdue");
    assert_eq!(replies[3].grant().1, fence);
    assert!(replies[4].as_int() > 30_000, "{replies:?}");
    waiter.expect_silence(A_WHILE);
    assert_eq!(ask(&mut client, "DLOCK.RELEASE lock t"), 1);
    granted(&mut waiter);
}

#[test]
fn a_retry_that_was_held_up_by_a_pause_finds_its_hold_as_it_was() {
    let server = Server::start();
    let mut client = server.connect();
    ask(&mut client, "DLOCK.ACQUIRE lock TOKEN t").grant();
    let mut waiter = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    let replies = at_once(
        &mut client,
        &[
            "DLOCK.ACQUIRE lock PX 400 TOKEN t",
            "CLIENT PAUSE 60000 WRITE",
        ],
    );
    let (_, fence) = replies[0].grant();
    let mut retry = server.connect();
    tell(&mut retry, "DLOCK.ACQUIRE lock PX 60000 TOKEN t BLOCK 5000");
    // Longer than the lease: no lease runs while writes are paused.
    retry.expect_silence(Duration::from_millis(600));
    assert_eq!(ask(&mut client, "CLIENT UNPAUSE"), "OK");
    assert_eq!(granted(&mut retry).1, fence);
    waiter.expect_silence(A_WHILE);
    assert_eq!(ask(&mut client, "DLOCK.RELEASE lock t"), 1);
    granted(&mut waiter);
}

#[test]
fn a_queued_token_that_asks_again_takes_over_its_place_and_the_old_request_is_superseded() {
    let server = Server::start();
    let mut holder = server.connect();
    ask(&mut holder, "DLOCK.ACQUIRE lock TOKEN held").grant();
    let mut old = queued(
        &server,
        "DLOCK.ACQUIRE lock EX 10 TOKEN t BLOCK 0 OWNER old",
    );
    let mut behind = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0 OWNER behind");
    let mut new = server.connect();
    tell(
        &mut new,
        "DLOCK.ACQUIRE lock EX 1000 TOKEN t BLOCK 0 OWNER new",
    );
    let told = reply(&mut old);
    assert!(told.error().starts_with("UNBLOCKED superseded"), "{told:?}");
    expect_no_more(&mut old);
    assert_eq!(waiters(&mut holder, "lock"), 2);
    let info = ask(&mut holder, "DLOCK.INFO lock");
    let owners: Vec<_> = info
        .field("first-waiters")
        .as_array()
        .iter()
        .map(|w| w.field("owner"))
        .collect();
    assert_eq!(*owners[0], "new", "the same place, the new owner: {info:?}");
    assert_eq!(*owners[1], "behind");

    assert_eq!(ask(&mut holder, "DLOCK.RELEASE lock held"), 1);
    let (_, fence) = granted(&mut new);
    behind.expect_silence(A_WHILE);
    let left = ask(&mut holder, "DLOCK.CHECK lock t").as_int();
    assert!(left > 990_000, "the new request's lease: {left}");
    assert_eq!(ask(&mut holder, "DLOCK.RELEASE lock t"), 1);
    assert!(granted(&mut behind).1 > fence);
    expect_no_more(&mut old);
}

#[test]
fn a_place_that_was_taken_over_waits_as_long_as_the_new_request_says() {
    let server = Server::start();
    let mut holder = server.connect();
    ask(&mut holder, "DLOCK.ACQUIRE lock TOKEN held").grant();
    // Without limit, then shortly.
    let mut old = queued(&server, "DLOCK.ACQUIRE lock TOKEN a BLOCK 0");
    let mut new = server.connect();
    tell(&mut new, "DLOCK.ACQUIRE lock TOKEN a BLOCK 50");
    assert!(reply(&mut old).is_error());
    assert!(reply(&mut new).is_nil());
    assert_eq!(waiters(&mut holder, "lock"), 0);
    // Shortly, then without limit.
    let mut old = server.connect();
    tell(&mut old, "DLOCK.ACQUIRE lock TOKEN b BLOCK 150");
    let mut new = server.connect();
    tell(&mut new, "DLOCK.ACQUIRE lock TOKEN b BLOCK 0");
    // Under load the old wait may have run out before; its place is then a new one.
    let told = reply(&mut old);
    assert!(told.is_error() || told.is_nil(), "{told:?}");
    new.expect_silence(Duration::from_millis(300));
    assert_eq!(ask(&mut holder, "DLOCK.RELEASE lock held"), 1);
    granted(&mut new);
}

#[test]
fn the_old_connections_end_does_not_matter_to_a_place_that_was_taken_over() {
    let server = Server::start();
    let mut holder = server.connect();
    ask(&mut holder, "DLOCK.ACQUIRE lock TOKEN held").grant();
    let mut old = queued(&server, "DLOCK.ACQUIRE lock TOKEN t BLOCK 0");
    let mut behind = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    let mut new = server.connect();
    tell(&mut new, "DLOCK.ACQUIRE lock TOKEN t BLOCK 0");
    assert!(reply(&mut old).is_error());
    old.close();
    new.expect_silence(A_WHILE);
    assert_eq!(waiters(&mut holder, "lock"), 2);
    assert_eq!(ask(&mut holder, "DLOCK.RELEASE lock held"), 1);
    granted(&mut new);
    behind.expect_silence(A_WHILE);
}

#[test]
fn a_queued_token_that_asks_without_block_gets_nil_and_nothing_changes() {
    let server = Server::start();
    let mut holder = server.connect();
    ask(&mut holder, "DLOCK.ACQUIRE lock TOKEN held").grant();
    let mut old = queued(
        &server,
        "DLOCK.ACQUIRE lock EX 1000 TOKEN t BLOCK 0 OWNER old",
    );
    let mut behind = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    assert!(ask(&mut holder, "DLOCK.ACQUIRE lock EX 5 TOKEN t OWNER new").is_nil());
    let info = ask(&mut holder, "DLOCK.INFO lock");
    assert_eq!(
        *info.field("first-waiters").as_array()[0].field("owner"),
        "old"
    );
    // It is the old connection that gets it, in its place.
    assert_eq!(ask(&mut holder, "DLOCK.RELEASE lock held"), 1);
    granted(&mut old);
    assert!(ask(&mut holder, "DLOCK.CHECK lock t").as_int() > 900_000);
    behind.expect_silence(A_WHILE);
}

#[test]
fn a_closed_connection_leaves_a_place_that_its_token_resumes_ahead_of_later_ones() {
    let server = Server::start();
    let mut holder = server.connect();
    assert_eq!(ask(&mut holder, KEEP_LONG), "OK");
    ask(&mut holder, "DLOCK.ACQUIRE lock TOKEN held").grant();
    let lost = queued(&server, "DLOCK.ACQUIRE lock TOKEN t BLOCK 0");
    let mut killed = queued(&server, "DLOCK.ACQUIRE lock TOKEN u BLOCK 0");
    let mut behind = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    lost.close();
    wait_for_blocked(&server, 2);
    let id = ask(&mut holder, "DLOCK.INFO lock")
        .field("first-waiters")
        .as_array()[0]
        .field("client")
        .as_int();
    assert_eq!(ask(&mut holder, format!("CLIENT KILL ID {id}")), 1);
    killed.expect_closed(SOON);
    wait_for_blocked(&server, 1);
    assert_eq!(
        waiters(&mut holder, "lock"),
        1,
        "a vacant place is no waiter"
    );

    // In whatever order they come back.
    let mut second = queued(&server, "DLOCK.ACQUIRE lock TOKEN u BLOCK 0");
    let mut first = queued(&server, "DLOCK.ACQUIRE lock TOKEN t BLOCK 0");
    assert_eq!(waiters(&mut holder, "lock"), 3);
    assert_eq!(ask(&mut holder, "DLOCK.RELEASE lock held"), 1);
    granted(&mut first);
    second.expect_silence(A_WHILE);
    assert_eq!(ask(&mut holder, "DLOCK.RELEASE lock t"), 1);
    granted(&mut second);
    behind.expect_silence(A_WHILE);
    assert_eq!(ask(&mut holder, "DLOCK.RELEASE lock u"), 1);
    granted(&mut behind);
}

#[test]
fn a_vacant_place_delays_nobody() {
    let server = Server::start();
    let mut holder = server.connect();
    assert_eq!(ask(&mut holder, KEEP_LONG), "OK");
    ask(&mut holder, "DLOCK.ACQUIRE lock SHARED TOKEN held").grant();
    let lost = queued(&server, "DLOCK.ACQUIRE lock TOKEN t BLOCK 0");
    let mut reader = queued(&server, "DLOCK.ACQUIRE lock SHARED BLOCK 0");
    reader.expect_silence(A_WHILE);
    lost.close();
    // It stood behind the writer only.
    granted(&mut reader);
    // Nobody waits any more, so a try does not fail.
    ask(&mut holder, "DLOCK.ACQUIRE lock SHARED").grant();

    ask(&mut holder, "DLOCK.ACQUIRE other TOKEN held").grant();
    let lost = queued(&server, "DLOCK.ACQUIRE other TOKEN t BLOCK 0");
    lost.close();
    wait_for_blocked(&server, 0);
    assert_eq!(ask(&mut holder, "DLOCK.RELEASE other held"), 1);
    assert_eq!(
        ask(&mut holder, "EXISTS other"),
        0,
        "granted to nobody who is not there"
    );
    ask(&mut holder, "DLOCK.ACQUIRE other TOKEN next").grant();
    // And its token comes back to a place of the same rank.
    let mut late = queued(&server, "DLOCK.ACQUIRE other BLOCK 0");
    let mut back = queued(&server, "DLOCK.ACQUIRE other TOKEN t BLOCK 0");
    assert_eq!(ask(&mut holder, "DLOCK.RELEASE other next"), 1);
    granted(&mut back);
    late.expect_silence(A_WHILE);
}

#[test]
fn a_vacant_place_is_gone_after_its_time() {
    for rejoin_ms in [0, 80] {
        let server = Server::start();
        let mut holder = server.connect();
        ask(
            &mut holder,
            format!("CONFIG SET dsync.rejoin-ms {rejoin_ms}"),
        );
        ask(&mut holder, "DLOCK.ACQUIRE lock TOKEN held").grant();
        let lost = queued(&server, "DLOCK.ACQUIRE lock TOKEN t BLOCK 0");
        let mut behind = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
        lost.close();
        wait_for_blocked(&server, 1);
        behind.expect_silence(Duration::from_millis(3 * rejoin_ms + 1));
        let mut back = queued(&server, "DLOCK.ACQUIRE lock TOKEN t BLOCK 0");
        assert_eq!(ask(&mut holder, "DLOCK.RELEASE lock held"), 1);
        let (token, _) = granted(&mut behind);
        back.expect_silence(A_WHILE);
        assert_eq!(ask(&mut holder, format!("DLOCK.RELEASE lock {token}")), 1);
        granted(&mut back);
    }
}

#[test]
fn a_place_that_was_left_otherwise_than_by_closing_is_not_kept() {
    let server = Server::start();
    let mut holder = server.connect();
    assert_eq!(ask(&mut holder, KEEP_LONG), "OK");
    ask(&mut holder, "DLOCK.ACQUIRE lock TOKEN held").grant();
    let mut patient = server.connect();
    let mut unblocked = server.connect();
    let id = unblocked.id();
    queue(
        &server,
        &mut unblocked,
        "DLOCK.ACQUIRE lock TOKEN a BLOCK 0",
    );
    let mut timed_out = queued(&server, "DLOCK.ACQUIRE lock TOKEN b BLOCK 1000");
    queue(&server, &mut patient, "DLOCK.ACQUIRE lock BLOCK 0");
    assert_eq!(ask(&mut holder, format!("CLIENT UNBLOCK {id}")), 1);
    assert!(reply(&mut unblocked).is_nil());
    assert!(reply(&mut timed_out).is_nil());
    // Both have had their answer; what they send now is new.
    queue(
        &server,
        &mut unblocked,
        "DLOCK.ACQUIRE lock TOKEN a BLOCK 0",
    );
    queue(
        &server,
        &mut timed_out,
        "DLOCK.ACQUIRE lock TOKEN b BLOCK 0",
    );
    assert_eq!(ask(&mut holder, "DLOCK.RELEASE lock held"), 1);
    granted(&mut patient);
    unblocked.expect_silence(A_WHILE);
}

#[test]
fn a_request_without_a_token_has_no_place_to_come_back_to() {
    let server = Server::start();
    let mut holder = server.connect();
    ask(&mut holder, "DLOCK.ACQUIRE lock TOKEN held").grant();
    let lost = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    let mut behind = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    lost.close();
    wait_for_blocked(&server, 1);
    let mut again = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    assert_eq!(ask(&mut holder, "DLOCK.RELEASE lock held"), 1);
    granted(&mut behind);
    again.expect_silence(A_WHILE);
}

#[test]
fn vacant_places_count_towards_the_bound_and_the_oldest_makes_room() {
    let server = Server::start();
    let mut holder = server.connect();
    assert_eq!(ask(&mut holder, KEEP_LONG), "OK");
    ask(&mut holder, "CONFIG SET dsync.max-waiters-per-key 3");
    ask(&mut holder, "DLOCK.ACQUIRE lock TOKEN held").grant();
    for token in ["a", "b"] {
        queued(&server, format!("DLOCK.ACQUIRE lock TOKEN {token} BLOCK 0")).close();
        wait_for_blocked(&server, 0);
    }
    let mut third = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    // Three places are taken, two of them vacant. The next costs a's.
    let mut fourth = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    let mut b = queued(&server, "DLOCK.ACQUIRE lock TOKEN b BLOCK 0");
    // Three wait now: nobody makes room.
    for line in [
        "DLOCK.ACQUIRE lock BLOCK 0",
        "DLOCK.ACQUIRE lock TOKEN a BLOCK 0",
    ] {
        let full = ask(&mut holder, line);
        assert!(full.error().starts_with("QUEUEFULL "), "{full:?}");
        assert!(full.error().contains('3'), "{full:?}");
    }
    assert_eq!(ask(&mut holder, "DLOCK.RELEASE lock held"), 1);
    granted(&mut b);
    assert_eq!(ask(&mut holder, "DLOCK.RELEASE lock b"), 1);
    let (token, _) = granted(&mut third);
    let mut a = queued(&server, "DLOCK.ACQUIRE lock TOKEN a BLOCK 0");
    assert_eq!(ask(&mut holder, format!("DLOCK.RELEASE lock {token}")), 1);
    granted(&mut fourth);
    a.expect_silence(A_WHILE);
}

#[test]
fn the_same_token_with_another_mode_or_other_permits_is_a_mismatch() {
    let server = Server::start();
    let mut client = server.connect();
    let (_, fence) = ask(&mut client, "DLOCK.ACQUIRE lock EX 100 TOKEN t").grant();
    for line in [
        "DLOCK.ACQUIRE lock SHARED EX 5 TOKEN t",
        "DLOCK.ACQUIRE lock SHARED EX 5 TOKEN t BLOCK 0",
    ] {
        let error = ask(&mut client, line);
        assert!(error.error().starts_with("MISMATCH "), "{error:?}");
    }
    assert!(
        ask(&mut client, "DLOCK.CHECK lock t").as_int() > 90_000,
        "nothing changed"
    );

    let mut waiter = queued(&server, "DLOCK.ACQUIRE lock SHARED TOKEN w BLOCK 0");
    for line in [
        "DLOCK.ACQUIRE lock TOKEN w BLOCK 0",
        "DLOCK.ACQUIRE lock TOKEN w",
    ] {
        let error = ask(&mut client, line);
        assert!(error.error().starts_with("MISMATCH "), "{line}: {error:?}");
    }
    assert_eq!(ask(&mut client, "DLOCK.RELEASE lock t"), 1);
    assert!(granted(&mut waiter).1 > fence, "its place was not touched");

    ask(
        &mut client,
        "DSEM.ACQUIRE semaphore LIMIT 5 PERMITS 2 TOKEN t",
    )
    .grant();
    for permits in ["", "PERMITS 1", "PERMITS 3"] {
        let error = ask(
            &mut client,
            format!("DSEM.ACQUIRE semaphore LIMIT 5 TOKEN t {permits}"),
        );
        assert!(error.error().starts_with("MISMATCH "), "{error:?}");
    }
    assert_eq!(count(&mut client, "DSEM.INFO", "semaphore", "available"), 3);
}

#[test]
fn a_grant_whose_reply_was_lost_is_had_by_asking_again() {
    let server = Server::start();
    let mut holder = server.connect();
    ask(&mut holder, "DLOCK.ACQUIRE lock TOKEN held").grant();
    let unread = queued(&server, "DLOCK.ACQUIRE lock TOKEN t BLOCK 0");
    assert_eq!(ask(&mut holder, "DLOCK.RELEASE lock held"), 1);
    eventually("a grant that nobody reads", SOON, || {
        ask(&mut holder, "DLOCK.CHECK lock t").as_int() > 0
    });
    let info = ask(&mut holder, "DLOCK.INFO lock");
    let fence = info.field("first-holders").as_array()[0]
        .field("fence")
        .as_int();
    let mut next = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    // Delivered as far as the server can know, so it stays.
    unread.close();
    next.expect_silence(A_WHILE);
    let line = "DLOCK.ACQUIRE lock TOKEN t BLOCK 5000";
    let (_, again) = ask(&mut server.connect(), line).grant();
    assert_eq!(i64::try_from(again).expect("a fence fits"), fence);
    assert_eq!(holders(&mut holder, "lock"), 1);
    assert_eq!(ask(&mut holder, "DLOCK.RELEASE lock t"), 1);
    granted(&mut next);
}

/// What redis-py does by default: it gives up on the reply, closes, connects and sends the same again, ten
/// times. Here every 300 ms, with a rival behind, while the permits come free at some moment of that.
#[test]
fn the_same_command_resent_ten_times_gets_exactly_one_grant_and_one_permit() {
    std::thread::scope(|scope| {
        for freed_at_ms in [350, 598, 605, 1_000, 1_200] {
            scope.spawn(move || resend(freed_at_ms, false));
        }
        scope.spawn(|| resend(900, true));
    });
}

/// `between`: the permits come free when the token has no connection, so that it is its rival's turn.
fn resend(freed_at_ms: u64, between: bool) {
    const EVERY: Duration = Duration::from_millis(300);
    let server = Server::start();
    let mut holder = server.connect();
    ask(
        &mut holder,
        "DSEM.ACQUIRE semaphore LIMIT 2 PERMITS 2 TOKEN held",
    )
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
        tell(&mut client, line);
        if attempt == 1 {
            wait_for_blocked(&server, 1);
            queue(&server, &mut rival, rivals);
        }
        if !freed && !between && until >= freed_at {
            // It would be the rival's turn if the server read this before the other.
            wait_for_blocked(&server, 2);
            at(freed_at);
            assert_eq!(ask(&mut holder, "DSEM.RELEASE semaphore held"), 1);
            freed = true;
        } else if freed && between && grants.is_empty() {
            wait_for_blocked(&server, 1);
            assert_eq!(ask(&mut holder, "DSEM.RELEASE semaphore rival"), 1);
            queue(&server, &mut rival, rivals);
        }
        // What came is thrown away like the connection: the client has given up.
        if let Some(reply) = client.recv(until.saturating_duration_since(Instant::now())) {
            grants.push(reply.grant().1);
        }
        client.close();
        if !freed && between && until >= freed_at {
            wait_for_blocked(&server, 1);
            assert_eq!(ask(&mut holder, "DSEM.RELEASE semaphore held"), 1);
            granted(&mut rival);
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
    assert_eq!(ask(&mut holder, "DSEM.RELEASE semaphore t"), 1);
    granted(&mut rival);
    assert_eq!(
        count(&mut holder, "DSEM.INFO", "semaphore", "holders"),
        1,
        "the rival alone"
    );
}

#[test]
fn a_resent_command_overlapping_its_predecessor_gets_one_grant_too() {
    let server = Server::start();
    let mut holder = server.connect();
    ask(&mut holder, "DSEM.ACQUIRE semaphore LIMIT 1 TOKEN held").grant();
    let mut sent: Vec<Client> = Vec::new();
    for attempt in 0..10 {
        let mut client = server.connect();
        tell(
            &mut client,
            "DSEM.ACQUIRE semaphore LIMIT 1 TOKEN t BLOCK 60000",
        );
        match sent.last_mut() {
            // The old one is told, or its connection was closed just before.
            Some(old) if attempt % 2 == 0 => {
                assert!(reply(old).error().starts_with("UNBLOCKED superseded"));
            }
            Some(_) => sent.pop().expect("there is a last one").close(),
            None => {}
        }
        sent.push(client);
    }
    wait_for_blocked(&server, 1);
    assert_eq!(ask(&mut holder, "DSEM.RELEASE semaphore held"), 1);
    let mut last = sent.pop().expect("the tenth");
    granted(&mut last);
    for mut old in sent {
        expect_no_more(&mut old);
    }
    assert_eq!(count(&mut holder, "DSEM.INFO", "semaphore", "holders"), 1);
}

/// A lock, its holder's connection, and three that wait: the first with a token of its own, the second of
/// whom all is hoped.
struct Line {
    server: Server,
    holder: Client,
    first: Client,
    first_id: u64,
    second: Client,
    third: Client,
}

fn line_up() -> Line {
    let server = Server::start();
    let mut holder = server.connect();
    ask(&mut holder, "DLOCK.ACQUIRE lock TOKEN held").grant();
    let mut first = server.connect();
    let first_id = first.id();
    queue(
        &server,
        &mut first,
        "DLOCK.ACQUIRE lock TOKEN first BLOCK 0",
    );
    let second = queued(&server, "DLOCK.ACQUIRE lock TOKEN second BLOCK 0");
    let third = queued(&server, "DLOCK.ACQUIRE lock TOKEN third BLOCK 0");
    Line {
        server,
        holder,
        first,
        first_id,
        second,
        third,
    }
}

impl Line {
    /// The first is gone, its grant with it; the others get theirs in order.
    #[track_caller]
    fn expect_passed_on(&mut self) {
        granted(&mut self.second);
        assert_eq!(ask(&mut self.holder, "DLOCK.CHECK lock first"), 0);
        assert_eq!(holders(&mut self.holder, "lock"), 1);
        self.third.expect_silence(A_WHILE);
        assert_eq!(ask(&mut self.holder, "DLOCK.RELEASE lock second"), 1);
        granted(&mut self.third);
        assert_eq!(ask(&mut self.holder, "DLOCK.RELEASE lock third"), 1);
        assert_eq!(ask(&mut self.holder, "EXISTS lock"), 0);
        wait_for_blocked(&self.server, 0);
    }
}

#[test]
fn a_grant_whose_client_is_killed_in_the_same_turn_goes_to_the_next() {
    for lines in [
        vec!["DLOCK.RELEASE lock held", "CLIENT KILL ID {}"],
        vec!["CLIENT KILL ID {}", "DLOCK.RELEASE lock held"],
        vec![
            "MULTI",
            "DLOCK.RELEASE lock held",
            "CLIENT KILL ID {}",
            "EXEC",
        ],
        vec![
            "MULTI",
            "CLIENT KILL ID {}",
            "DLOCK.RELEASE lock held",
            "EXEC",
        ],
    ] {
        let mut line = line_up();
        let id = line.first_id.to_string();
        let lines: Vec<_> = lines.iter().map(|text| text.replace("{}", &id)).collect();
        at_once(&mut line.holder, &lines);
        line.first.expect_closed(SOON);
        line.expect_passed_on();
    }
}

#[test]
fn two_grants_undelivered_one_after_the_other_reach_the_third() {
    let server = Server::start();
    let mut holder = server.connect();
    ask(
        &mut holder,
        "DSEM.ACQUIRE semaphore LIMIT 4 PERMITS 4 TOKEN held",
    )
    .grant();
    let mut ids = Vec::new();
    let mut doomed = Vec::new();
    for _ in 0..2 {
        let mut client = server.connect();
        ids.push(client.id());
        queue(
            &server,
            &mut client,
            "DSEM.ACQUIRE semaphore LIMIT 4 PERMITS 2 BLOCK 0",
        );
        doomed.push(client);
    }
    let mut third = queued(&server, "DSEM.ACQUIRE semaphore LIMIT 4 PERMITS 4 BLOCK 0");
    at_once(
        &mut holder,
        &[
            "MULTI".to_owned(),
            "DSEM.RELEASE semaphore held".to_owned(),
            format!("CLIENT KILL ID {}", ids[0]),
            format!("CLIENT KILL ID {}", ids[1]),
            "EXEC".to_owned(),
        ],
    );
    for client in &mut doomed {
        client.expect_closed(SOON);
    }
    let (token, _) = granted(&mut third);
    assert_eq!(count(&mut holder, "DSEM.INFO", "semaphore", "holders"), 1);
    assert_eq!(
        ask(&mut holder, format!("DSEM.RELEASE semaphore {token}")),
        1
    );
    assert_eq!(
        ask(&mut holder, "EXISTS semaphore"),
        0,
        "all permits came back"
    );
}

/// The server stands still while the waiter closes and the lock is released: it finds both at once.
#[test]
fn a_grant_whose_client_closed_in_the_same_turn_goes_to_the_next() {
    for release_first in [true, false] {
        let mut line = line_up();
        line.server.stop();
        if release_first {
            tell(&mut line.holder, "DLOCK.RELEASE lock held");
        }
        let Line {
            server,
            mut holder,
            first,
            first_id,
            second,
            third,
        } = line;
        first.close();
        if !release_first {
            tell(&mut holder, "DLOCK.RELEASE lock held");
        }
        server.cont();
        assert_eq!(reply(&mut holder), 1);
        // Any connection serves for `first` from here on.
        let first = server.connect();
        let mut line = Line {
            server,
            holder,
            first,
            first_id,
            second,
            third,
        };
        line.expect_passed_on();
    }
}

/// The release, the old connection's end and the retry on a new one all in one turn, in every order: the
/// token is granted once or keeps its place, and nobody is forgotten.
#[test]
fn a_release_a_closed_connection_and_a_retry_in_one_turn_come_out_even_in_every_order() {
    const ORDERS: [[u8; 3]; 6] = [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ];
    for order in ORDERS {
        let server = Server::start();
        let mut holder = server.connect();
        ask(&mut holder, "DLOCK.ACQUIRE lock TOKEN held").grant();
        let mut old = Some(queued(&server, "DLOCK.ACQUIRE lock EX 600 TOKEN t BLOCK 0"));
        let mut next = queued(&server, "DLOCK.ACQUIRE lock EX 600 TOKEN next BLOCK 0");
        let mut new = server.connect();
        ask(&mut new, "PING");
        server.stop();
        for step in order {
            match step {
                0 => tell(&mut holder, "DLOCK.RELEASE lock held"),
                1 => old.take().expect("closed once").close(),
                _ => tell(&mut new, "DLOCK.ACQUIRE lock EX 600 TOKEN t BLOCK 0"),
            }
        }
        server.cont();
        assert_eq!(reply(&mut holder), 1, "{order:?}");
        // Where the connection closed before all else, it may be the next one's turn before the token's.
        eventually("a holder", SOON, || holders(&mut holder, "lock") == 1);
        let mut turns = [("t", &mut new), ("next", &mut next)];
        if ask(&mut holder, "DLOCK.CHECK lock next").as_int() > 0 {
            turns.reverse();
        }
        for (token, client) in turns {
            assert_eq!(granted(client).0, token, "{order:?}");
            assert_eq!(holders(&mut holder, "lock"), 1, "{order:?}");
            assert_eq!(ask(&mut holder, format!("DLOCK.RELEASE lock {token}")), 1);
            expect_no_more(client);
        }
        assert_eq!(ask(&mut holder, "EXISTS lock"), 0, "{order:?}");
        wait_for_blocked(&server, 0);
    }
}

#[test]
fn the_token_of_one_that_waits_holds_and_renews_nothing() {
    let server = Server::start();
    let mut holder = server.connect();
    ask(&mut holder, "DLOCK.ACQUIRE lock TOKEN held").grant();
    let mut waiter = queued(&server, "DLOCK.ACQUIRE lock TOKEN t BLOCK 0");
    for line in ["DLOCK.RENEW lock t", "DLOCK.CHECK lock t"] {
        assert_eq!(ask(&mut holder, line), 0, "{line}");
    }
    // The same token waits for another key as a stranger.
    ask(&mut holder, "DLOCK.ACQUIRE other TOKEN t").grant();
    assert_eq!(waiters(&mut holder, "lock"), 1);
    assert_eq!(ask(&mut holder, "DLOCK.RELEASE lock held"), 1);
    granted(&mut waiter);
}

/// The RELEASE and the waiter's end arrived in one turn of the event loop, RELEASE first: the grant was
/// undelivered and the place was used up. With the end one turn earlier it would have been kept.
#[test]
fn undelivered_grant_with_token_keeps_its_place_for_the_retry() {
    let mut line = line_up();
    let id = line.first_id;
    at_once(
        &mut line.holder,
        &[
            "DLOCK.RELEASE lock held".to_owned(),
            format!("CLIENT KILL ID {id}"),
        ],
    );
    granted(&mut line.second);
    let mut again = queued(&line.server, "DLOCK.ACQUIRE lock TOKEN first BLOCK 0");
    assert_eq!(ask(&mut line.holder, "DLOCK.RELEASE lock second"), 1);
    granted(&mut again);
    assert_eq!(ask(&mut line.holder, "DLOCK.RELEASE lock first"), 1);
    granted(&mut line.third);
}

/// For as long as its place was kept, a worker that came back with a try was refused a key that was free.
#[test]
fn try_by_token_of_vacant_place_is_judged_like_any_other() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(ask(&mut client, KEEP_LONG), "OK");
    ask(&mut client, "DLOCK.ACQUIRE lock TOKEN held").grant();
    queued(&server, "DLOCK.ACQUIRE lock TOKEN t BLOCK 0").close();
    wait_for_blocked(&server, 0);
    assert!(ask(&mut client, "DLOCK.ACQUIRE lock TOKEN t").is_nil());
    let other = ask(&mut client, "DLOCK.ACQUIRE lock SHARED TOKEN t");
    assert!(other.error().starts_with("MISMATCH"), "{other:?}");
    assert_eq!(ask(&mut client, "DLOCK.RELEASE lock held"), 1);
    ask(&mut client, "DLOCK.ACQUIRE lock TOKEN t").grant();

    ask(&mut client, "DONCE.BEGIN job TOKEN runs");
    queued(&server, "DONCE.BEGIN job TOKEN t BLOCK 0").close();
    wait_for_blocked(&server, 0);
    assert_eq!(ask(&mut client, "DONCE.DONE job runs RESULT r"), 1);
    let told = ask(&mut client, "DONCE.BEGIN job TOKEN t");
    assert_eq!(
        told.as_array()[..2],
        [Reply::Bulk(b"DONE".to_vec()), Reply::Bulk(b"r".to_vec())]
    );
}

#[test]
fn an_ephemeral_hold_is_bound_to_the_connection_that_asked_last() {
    let server = Server::start();
    let mut admin = server.connect();
    let (mut one, mut two) = (server.connect(), server.connect());
    let line = "DLOCK.ACQUIRE lock EX 600 TOKEN t EPHEMERAL";
    let (_, fence) = ask(&mut one, line).grant();
    let mut waiter = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    assert_eq!(ask(&mut two, line).grant().1, fence);
    one.close();
    waiter.expect_silence(Duration::from_millis(150));
    assert!(ask(&mut admin, "DLOCK.CHECK lock t").as_int() > 0);
    two.close();
    granted(&mut waiter);
}

#[test]
fn a_retry_and_the_old_connections_end_in_one_turn_leave_the_hold_to_the_new_one() {
    let server = Server::start();
    let mut admin = server.connect();
    let (mut one, mut two) = (server.connect(), server.connect());
    let line = "DLOCK.ACQUIRE lock EX 600 TOKEN t EPHEMERAL";
    let (_, fence) = ask(&mut one, line).grant();
    let mut waiter = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    ask(&mut two, "PING");
    server.stop();
    tell(&mut two, line);
    one.close();
    server.cont();
    assert_eq!(granted(&mut two).1, fence);
    waiter.expect_silence(A_WHILE);
    assert!(ask(&mut admin, "DLOCK.CHECK lock t").as_int() > 0);
    two.close();
    granted(&mut waiter);
}

#[test]
fn a_retry_without_ephemeral_makes_the_old_connections_end_harmless() {
    let server = Server::start();
    let mut admin = server.connect();
    let mut one = server.connect();
    let (_, fence) = ask(&mut one, "DLOCK.ACQUIRE lock EX 600 TOKEN t EPHEMERAL").grant();
    let mut two = server.connect();
    assert_eq!(
        ask(&mut two, "DLOCK.ACQUIRE lock EX 600 TOKEN t").grant().1,
        fence
    );
    let mut waiter = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    one.close();
    waiter.expect_silence(Duration::from_millis(150));
    assert!(ask(&mut admin, "DLOCK.CHECK lock t").as_int() > 0);
}
