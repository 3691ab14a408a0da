//! QUEUE: a place in the queue without a connection. It is kept for its token, granted in its turn whoever listens, and
//! announced on a channel of its own.

use crate::support::steps::*;
use crate::support::*;

/// The reply to a request whose place is kept: its place, and the channel of its turn.
#[track_caller]
pub(super) fn place(reply: &Reply) -> (i64, String) {
    match reply.as_array() {
        [word, Reply::Int(place), channel] if *word == "WAITING" => {
            (*place, channel.as_str().to_owned())
        }
        _ => panic!("expected a kept place, received {reply:?}"),
    }
}

/// Reads the next message of a pattern subscription: its channel and text.
#[track_caller]
fn message(subscriber: &mut Client) -> (String, String) {
    let message = subscriber.reply();
    match message.as_array() {
        [kind, _, channel, text] if *kind == "pmessage" => {
            (channel.as_str().to_owned(), text.as_str().to_owned())
        }
        _ => panic!("expected a message, received {message:?}"),
    }
}

/// A connection that is subscribed to the turns of all places.
#[track_caller]
fn subscriber(server: &Server) -> Client {
    let mut client = server.connect();
    client.ask("PSUBSCRIBE dsync:*");
    client
}

fn undelivered(server: &Server) -> u64 {
    server.info_number("dsync", "dsync_lock_undelivered")
}

#[test]
fn request_with_queue_gets_place_and_channel() {
    let server = Server::start();
    let mut client = server.connect();
    let held = client.ask("DLOCK.ACQUIRE lock TOKEN held QUEUE 30000");
    assert_eq!(held.grant().0, "held", "a free lock is granted at once");
    let (first, channel) = place(&client.ask("DLOCK.ACQUIRE lock TOKEN a QUEUE 30000"));
    assert_eq!(first, 1);
    let number = channel
        .strip_prefix("dsync:{lock}:")
        .expect("the key's channel");
    let number: u64 = number.parse().expect("the number of the place");
    let (second, other) = place(&client.ask("DLOCK.ACQUIRE lock TOKEN b QUEUE 30000"));
    assert_eq!(second, 2);
    assert_ne!(channel, other);
    let again = place(&client.ask("DLOCK.ACQUIRE lock TOKEN a QUEUE 30000"));
    assert_eq!(again, (1, channel), "the same place again");
    let info = client.ask("DLOCK.INFO lock");
    let waiter = &info.field("first-waiters").as_array()[0];
    assert_eq!(waiter.field("number").as_int(), number as i64);
    assert!(waiter.field("kept-ms").as_int() > 20_000);
    assert!(waiter.field("client").is_nil());
    assert_eq!(server.info_number("dsync", "dsync_lock_waiters"), 2);
}

#[test]
fn queue_with_wrong_options_or_bounds_is_refused() {
    let server = Server::start();
    let mut client = server.connect();
    for (options, why) in [
        ("QUEUE 30000", "QUEUE keeps the place for a TOKEN"),
        (
            "TOKEN t EPHEMERAL QUEUE 30000",
            "QUEUE and EPHEMERAL exclude each other",
        ),
        (
            "TOKEN t BLOCK 5 QUEUE 30000",
            "BLOCK or QUEUE is given twice",
        ),
        (
            "TOKEN t QUEUE 999",
            "QUEUE is an integer of 1000 to 60000 milliseconds, not '999'",
        ),
        (
            "TOKEN t QUEUE 60001",
            "QUEUE is an integer of 1000 to 60000 milliseconds, not '60001'",
        ),
        ("TOKEN t QUEUE", "QUEUE has no value"),
    ] {
        let refused = client.ask(format!("DLOCK.ACQUIRE lock {options}"));
        assert!(refused.error().contains(why), "{options}: {refused:?}");
    }
    assert_eq!(client.ask("EXISTS lock"), 0);
}

#[test]
fn turn_of_kept_place_is_granted_announced_and_heard() {
    let server = Server::start();
    let mut client = server.connect();
    let mut subscriber = subscriber(&server);
    client.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    let request = "DLOCK.ACQUIRE lock EX 1000 TOKEN a QUEUE 30000";
    let (_, channel) = place(&client.ask(request));
    let mut behind = server.waiting("DLOCK.ACQUIRE lock TOKEN behind BLOCK 0");
    assert!(
        client.ask("DLOCK.ACQUIRE lock TOKEN late").is_nil(),
        "a try fails"
    );
    assert_eq!(client.ask("DLOCK.RELEASE lock held"), 1);
    let (announced_on, fence) = message(&mut subscriber);
    assert_eq!(announced_on, channel);
    // Nobody has asked yet, so the lease ends when the place would have.
    let left = client.ask("DLOCK.CHECK lock a").as_int();
    assert!((1..=30_000).contains(&left), "{left}");
    let (token, granted_fence) = client.ask(request).grant();
    assert_eq!((token.as_str(), granted_fence.to_string()), ("a", fence));
    assert!(
        client.ask("DLOCK.CHECK lock a").as_int() > 900_000,
        "the whole lease"
    );
    behind.expect_silence(A_WHILE);
    assert_eq!(client.ask("DLOCK.RELEASE lock a"), 1);
    behind.granted();
    assert_eq!(undelivered(&server), 0);
}

#[test]
fn renew_hears_the_grant_of_a_kept_place() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    place(&client.ask("DLOCK.ACQUIRE lock EX 1000 TOKEN a QUEUE 30000"));
    assert_eq!(client.ask("DLOCK.RELEASE lock held"), 1);
    assert_eq!(client.ask("DLOCK.RENEW lock a"), 1);
    assert!(client.ask("DLOCK.CHECK lock a").as_int() > 900_000);
}

#[test]
fn grant_that_nobody_hears_of_lapses_as_undelivered() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    place(&client.ask("DLOCK.ACQUIRE lock EX 1000 TOKEN dead QUEUE 1000"));
    let mut behind = server.waiting("DLOCK.ACQUIRE lock TOKEN behind BLOCK 0");
    assert_eq!(client.ask("DLOCK.RELEASE lock held"), 1);
    behind.granted();
    assert_eq!(undelivered(&server), 1);
    assert_eq!(server.info_number("dsync", "dsync_lock_lapsed"), 0);
    assert_eq!(client.ask("DLOCK.CHECK lock dead"), 0);
    assert_eq!(lock_waiters(&mut client, "lock"), 0, "it leaves no place");
}

#[test]
fn unheard_run_counts_no_attempt_and_no_lost_member() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DONCE.BEGIN job TOKEN first");
    place(&client.ask("DONCE.BEGIN job EX 1000 TOKEN dead QUEUE 1000"));
    let mut behind = server.waiting("DONCE.BEGIN job TOKEN behind BLOCK 0");
    assert_eq!(client.ask("DONCE.FAIL job first"), 1);
    let run = behind.reply();
    assert_eq!(run.as_array()[3], 2, "the second attempt: {run:?}");
    client.ask("DWG.ADD group LIMIT 1 TOKEN first").grant();
    place(&client.ask("DWG.ADD group EX 1000 TOKEN dead QUEUE 1000"));
    assert_eq!(client.ask("DWG.DONE group first"), 1);
    let finished = client.ask("DWG.WAIT group BLOCK 0");
    let numbers: Vec<i64> = finished.as_array().iter().map(Reply::as_int).collect();
    assert_eq!(numbers, [1, 0], "nobody is lost");
}

#[test]
fn kept_place_that_nobody_asks_for_is_dropped() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    place(&client.ask("DLOCK.ACQUIRE lock TOKEN a QUEUE 1000"));
    eventually("the end of the place", SOON, || {
        lock_waiters(&mut client, "lock") == 0
    });
    assert_eq!(client.ask("DLOCK.RELEASE lock a"), 0);
    assert!(
        client.ask("DLOCK.ACQUIRE lock TOKEN b").is_nil(),
        "still held"
    );
    assert_eq!(client.ask("DLOCK.RELEASE lock held"), 1);
    wait_until_gone(&mut client, "lock");
}

#[test]
fn release_and_revoke_withdraw_kept_places() {
    let server = Server::start();
    let mut client = server.connect();
    let mut subscriber = subscriber(&server);
    client.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    place(&client.ask("DLOCK.ACQUIRE lock TOKEN a QUEUE 30000"));
    let (_, channel) = place(&client.ask("DLOCK.ACQUIRE lock TOKEN b QUEUE 30000"));
    assert_eq!(client.ask("DLOCK.RELEASE lock a"), 1);
    let number = channel.rsplit(':').next().expect("a number");
    assert_eq!(client.ask(format!("DLOCK.REVOKE lock {number}")), 1);
    assert_eq!(client.ask(format!("DLOCK.REVOKE lock {number}")), 0);
    assert_eq!(lock_waiters(&mut client, "lock"), 0);
    // The token has released its own place; that an operator took the other one away, its token must hear.
    assert_eq!(message(&mut subscriber), (channel, "0".to_owned()));
    subscriber.expect_silence(A_WHILE);
}

#[test]
fn token_with_block_waits_on_its_kept_place_and_falls_back_to_it() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    let (_, channel) = place(&client.ask("DLOCK.ACQUIRE lock TOKEN a QUEUE 60000"));
    let mut behind = server.waiting("DLOCK.ACQUIRE lock TOKEN behind BLOCK 0");
    let waiting = server.waiting("DLOCK.ACQUIRE lock TOKEN a BLOCK 0");
    waiting.close();
    server.wait_for_blocked(1);
    let kept = place(&client.ask("DLOCK.ACQUIRE lock TOKEN a QUEUE 60000"));
    assert_eq!(
        kept,
        (1, channel),
        "the connection is gone, the place is kept"
    );
    // A connection that waits on the place gets the grant.
    let mut waiting = server.waiting("DLOCK.ACQUIRE lock TOKEN a BLOCK 0");
    assert_eq!(client.ask("DLOCK.RELEASE lock held"), 1);
    assert_eq!(waiting.granted().0, "a");
    behind.expect_silence(A_WHILE);
}

#[test]
fn queue_by_a_waiting_token_supersedes_its_connection() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    let mut waiting = server.waiting("DLOCK.ACQUIRE lock TOKEN a BLOCK 0");
    place(&client.ask("DLOCK.ACQUIRE lock TOKEN behind QUEUE 60000"));
    let (first, _) = place(&client.ask("DLOCK.ACQUIRE lock TOKEN a QUEUE 60000"));
    assert_eq!(first, 1, "at its old rank");
    let answer = waiting.reply();
    assert!(
        answer.error().starts_with("UNBLOCKED superseded"),
        "{answer:?}"
    );
    let held = client.ask("DLOCK.ACQUIRE lock SHARED TOKEN a QUEUE 60000");
    assert!(held.error().starts_with("MISMATCH"), "{held:?}");
}

#[test]
fn place_that_is_dropped_by_a_decision_announces_0() {
    let server = Server::start();
    let mut client = server.connect();
    let mut subscriber = subscriber(&server);
    client.ask("DONCE.BEGIN job TOKEN first");
    let (_, channel) = place(&client.ask("DONCE.BEGIN job TOKEN a QUEUE 30000"));
    assert_eq!(client.ask("DONCE.DONE job first RESULT r"), 1);
    assert_eq!(message(&mut subscriber), (channel, "0".to_owned()));
    let done = client.ask("DONCE.BEGIN job TOKEN a QUEUE 30000");
    assert_eq!(done.as_array()[0], "DONE", "{done:?}");

    client
        .ask("DSEM.ACQUIRE sem LIMIT 3 PERMITS 3 TOKEN held")
        .grant();
    let (_, channel) = place(&client.ask("DSEM.ACQUIRE sem PERMITS 2 TOKEN a QUEUE 30000"));
    assert_eq!(client.ask("DSEM.LIMIT sem 1"), 3);
    assert_eq!(message(&mut subscriber), (channel, "0".to_owned()));
    let refused = client.ask("DSEM.ACQUIRE sem PERMITS 2 TOKEN a QUEUE 30000");
    assert!(refused.error().starts_with("TOOMANY"), "{refused:?}");
}

/// A place was dropped because the work had failed, and 0 was announced. Another request still waited, so the token
/// that asked why was put at the end of the queue, and was never told.
#[test]
fn place_dropped_as_failed_is_told_why_when_it_asks_again() {
    let server = Server::start();
    let mut client = server.connect();
    let mut subscriber = subscriber(&server);
    client.ask("DONCE.BEGIN job TOKEN first");
    let request = "DONCE.BEGIN job MAX 1 TOKEN a QUEUE 60000";
    let (_, channel) = place(&client.ask(request));
    place(&client.ask("DONCE.BEGIN job MAX 9 TOKEN b QUEUE 60000"));
    assert_eq!(client.ask("DONCE.FAIL job first REASON disk"), 1);
    assert_eq!(message(&mut subscriber), (channel, "0".to_owned()));
    for again in [
        request,
        "DONCE.BEGIN job MAX 1 TOKEN a BLOCK 0",
        "DONCE.BEGIN job MAX 1 TOKEN a",
    ] {
        let failed = client.ask(again);
        assert_eq!(failed.as_array()[0], "FAILED", "{failed:?}");
        assert_eq!(failed.as_array()[1], "disk");
    }
    // The decision stands, also where the key could grant the request again.
    client
        .ask("DSEM.ACQUIRE sem LIMIT 3 PERMITS 3 TOKEN held")
        .grant();
    let request = "DSEM.ACQUIRE sem PERMITS 2 TOKEN a QUEUE 60000";
    place(&client.ask(request));
    assert_eq!(client.ask("DSEM.LIMIT sem 1"), 3);
    assert_eq!(client.ask("DSEM.LIMIT sem NONE"), 1);
    let refused = client.ask(request);
    assert!(refused.error().starts_with("TOOMANY"), "{refused:?}");
}

/// An operator has revoked the place, so 0 is announced. That decides nothing about the request: it may ask again.
#[test]
fn token_of_a_revoked_place_may_ask_again() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    let (_, channel) = place(&client.ask("DLOCK.ACQUIRE lock TOKEN a QUEUE 60000"));
    place(&client.ask("DLOCK.ACQUIRE lock TOKEN b QUEUE 60000"));
    let number = channel.rsplit(':').next().expect("a number");
    assert_eq!(client.ask(format!("DLOCK.REVOKE lock {number}")), 1);
    let (again, _) = place(&client.ask("DLOCK.ACQUIRE lock TOKEN a QUEUE 60000"));
    assert_eq!(again, 2, "at the end of the queue");
}

#[test]
fn script_and_transaction_take_kept_places() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    let script = "return redis.call('DLOCK.ACQUIRE', KEYS[1], 'TOKEN', ARGV[1], 'QUEUE', 30000)";
    let taken = client.call(&["EVAL", script, "1", "lock", "a"]);
    assert_eq!(place(&taken).0, 1);
    assert_eq!(client.ask("MULTI"), "OK");
    client.ask("DLOCK.ACQUIRE lock TOKEN b QUEUE 30000");
    let replies = client.ask("EXEC");
    assert_eq!(place(&replies.as_array()[0]).0, 2);
}

/// A message inside of EXEC's reply would break the protocol for a client that subscribes on the same connection.
#[test]
fn turn_in_a_transaction_is_announced_after_its_reply() {
    let server = Server::start();
    let mut client = server.connect_resp3();
    client.ask("PSUBSCRIBE dsync:*");
    client.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    place(&client.ask("DLOCK.ACQUIRE lock TOKEN a QUEUE 30000"));
    assert_eq!(client.ask("MULTI"), "OK");
    client.ask("SET before 1");
    client.ask("DLOCK.RELEASE lock held");
    client.ask("SET behind 1");
    let replies = client.ask("EXEC");
    assert_eq!(replies.as_array().len(), 3, "{replies:?}");
    assert_eq!(replies.as_array()[1], 1);
    message(&mut client);
}

#[test]
fn kept_places_take_at_most_half_of_the_bounds() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("CONFIG SET dsync.max-waiters-per-key 4");
    client.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    place(&client.ask("DLOCK.ACQUIRE lock TOKEN a QUEUE 30000"));
    place(&client.ask("DLOCK.ACQUIRE lock TOKEN b QUEUE 30000"));
    let full = client.ask("DLOCK.ACQUIRE lock TOKEN c QUEUE 30000");
    assert!(full.error().starts_with("QUEUEFULL 2 "), "{full:?}");
    // A connection may still wait.
    let _waiting = server.waiting("DLOCK.ACQUIRE lock TOKEN c BLOCK 0");
}

#[test]
fn place_beyond_a_hundred_is_100() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    let requests = (1..=150).map(|n| format!("DLOCK.ACQUIRE lock TOKEN t{n} QUEUE 60000"));
    let places: Vec<i64> = client
        .ask_all(requests)
        .iter()
        .map(|reply| place(reply).0)
        .collect();
    let expected: Vec<i64> = (1..=150).map(|n| n.min(100)).collect();
    assert_eq!(places, expected);
}

/// 500 clients share one connection, and one subscription tells all of them of their turns. None of them polls: each
/// asks for its place, asks again when its turn is announced, and releases.
#[test]
fn five_hundred_clients_on_one_connection_are_served_in_order() {
    const CLIENTS: usize = 500;
    let server = Server::start();
    let mut shared = server.connect();
    let mut subscriber = subscriber(&server);
    shared.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    let requests = (0..CLIENTS).map(|n| format!("DLOCK.ACQUIRE lock TOKEN t{n} QUEUE 60000"));
    let replies = shared.ask_all(requests);
    let channels: Vec<String> = replies.iter().map(|reply| place(reply).1).collect();
    let calls_before = calls(&server);
    assert_eq!(shared.ask("DLOCK.RELEASE lock held"), 1);
    let mut last_fence = 0;
    for (n, channel) in channels.iter().enumerate() {
        let (announced_on, fence) = message(&mut subscriber);
        assert_eq!(announced_on, *channel, "client {n} is next");
        let (token, granted_fence) = shared
            .ask(format!("DLOCK.ACQUIRE lock TOKEN t{n} QUEUE 60000"))
            .grant();
        assert_eq!(token, format!("t{n}"));
        assert_eq!(fence, granted_fence.to_string());
        assert!(granted_fence > last_fence);
        last_fence = granted_fence;
        assert_eq!(shared.ask(format!("DLOCK.RELEASE lock t{n}")), 1);
    }
    // RELEASE of the first holder, and then two commands each, beside the first QUEUE of each.
    assert_eq!(calls(&server) - calls_before, 1 + 2 * CLIENTS as u64);
}

/// A client that dies in the queue costs the others at most the time that it asked for.
#[test]
fn every_third_client_that_dies_in_the_queue_is_passed_over() {
    const CLIENTS: usize = 9;
    let server = Server::start();
    let mut shared = server.connect();
    let mut subscriber = subscriber(&server);
    shared.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    let is_dead = |n: usize| n % 3 == 2;
    let request = |n: usize| {
        let ms = if is_dead(n) { 1_000 } else { 60_000 };
        format!("DLOCK.ACQUIRE lock TOKEN t{n} QUEUE {ms}")
    };
    let replies = shared.ask_all((0..CLIENTS).map(request).collect::<Vec<_>>());
    let channels: Vec<String> = replies.iter().map(|reply| place(reply).1).collect();
    shared.ask("DLOCK.RELEASE lock held");
    let mut served = Vec::new();
    // A dead client's place may also have run out before its turn; then it is not announced.
    while served.len() < CLIENTS - CLIENTS / 3 {
        let (channel, _) = message(&mut subscriber);
        let n = channels
            .iter()
            .position(|own| *own == channel)
            .expect("a client's channel");
        if !is_dead(n) {
            shared.ask(request(n)).grant();
            assert_eq!(shared.ask(format!("DLOCK.RELEASE lock t{n}")), 1);
            served.push(n);
        }
    }
    assert_eq!(served, [0, 1, 3, 4, 6, 7]);
}

/// How many commands of dsync the server has carried out.
fn calls(server: &Server) -> u64 {
    let stats = server.info_section("commandstats");
    let of_dsync = stats
        .lines()
        .filter(|line| line.to_lowercase().starts_with("cmdstat_dlock."));
    of_dsync
        .filter_map(|line| {
            line.split_once("calls=")?
                .1
                .split(',')
                .next()?
                .parse::<u64>()
                .ok()
        })
        .sum()
}
