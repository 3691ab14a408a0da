//! RELEASE with the token of a queued request withdraws it.
//!
//! Some clients give up on a reply but keep the connection (redis-rs after half a second, valkey-glide after a
//! quarter). Without withdrawal their request stays in the queue and is granted unnoticed, and the others wait for a
//! whole lease. The request may also come later than its RELEASE, on another connection: for `dsync.rejoin-ms` it is
//! answered as withdrawn, and is not queued.

use crate::support::steps::*;
use crate::support::*;

/// For each family: a request for `k`, RELEASE and INFO.
fn families() -> [[String; 3]; 4] {
    Family::ALL.map(|family| {
        let prefix = family.prefix();
        [
            family.request("k"),
            format!("{prefix}.RELEASE k"),
            format!("{prefix}.INFO"),
        ]
    })
}

#[track_caller]
fn expect_withdrawn(waiter: &mut Client) {
    let answer = waiter.reply();
    assert!(
        answer.error().starts_with("UNBLOCKED released"),
        "{answer:?}"
    );
    expect_no_more(waiter);
}

#[test]
fn release_of_queued_token_answers_its_connection_and_serves_the_rest() {
    for [take, release, info] in families() {
        let server = Server::start();
        let mut client = server.connect();
        client.ask(format!("{take} TOKEN held"));
        let mut gives_up = server.waiting(format!("{take} TOKEN t BLOCK 0"));
        let mut next = server.waiting(format!("{take} TOKEN next BLOCK 0"));
        let mut stream = ReplicationStream::attach(&server);
        assert_eq!(client.ask(format!("{release} t")), 1, "{release}");
        expect_withdrawn(&mut gives_up);
        assert_eq!(count(&mut client, &info, "k", "waiters"), 1);
        assert_eq!(server.info_number("dsync", "dsync_waiters"), 1);
        assert_eq!(client.ask(format!("{release} t")), 0, "it is over");
        let replicated = stream.take_so_far(&server);
        assert!(
            replicated.is_empty(),
            "no waiter is replicated: {replicated:?}"
        );
        assert_eq!(client.ask(format!("{release} held")), 1);
        assert!(!next.reply().is_error());
        assert_eq!(count(&mut client, &info, "k", "holders"), 1);
        server.wait_for_blocked(0);
    }
}

#[test]
fn release_of_vacant_place_gives_it_up() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(client.ask("CONFIG SET dsync.rejoin-ms 60000"), "OK");
    client.ask("DLOCK.ACQUIRE k TOKEN held");
    server.waiting("DLOCK.ACQUIRE k TOKEN t BLOCK 0").close();
    server.wait_for_blocked(0);
    let mut next = server.waiting("DLOCK.ACQUIRE k TOKEN next BLOCK 0");
    assert_eq!(client.ask("DLOCK.RELEASE k t"), 1);
    assert_eq!(client.ask("DLOCK.RELEASE k t"), 0, "it is over");
    assert_eq!(client.ask("DLOCK.RELEASE k held"), 1);
    next.granted();
    let again = client.ask("DLOCK.ACQUIRE k TOKEN t BLOCK 0");
    assert!(again.error().starts_with("UNBLOCKED released"), "{again:?}");
}

/// A client gave up waiting and released, on another connection, while its request had been sent twice and the second
/// sending was still on its way. That one found the key free, and was granted to nobody for a whole lease.
#[test]
fn request_that_comes_after_its_release_is_answered_and_not_queued() {
    for [take, release, info] in families() {
        let server = Server::start();
        let mut client = server.connect();
        assert_eq!(client.ask("CONFIG SET dsync.rejoin-ms 60000"), "OK");
        let request = |token: &str| format!("{take} TOKEN {token} PX 60000");
        client.ask(format!("{take} TOKEN held"));
        let mut waiting = server.waiting(request("waiting") + " BLOCK 0");
        client.ask(request("kept") + " QUEUE 60000");
        server.waiting(request("vacant") + " BLOCK 0").close();
        server.wait_for_blocked(1);
        for token in ["waiting", "kept", "vacant"] {
            assert_eq!(client.ask(format!("{release} {token}")), 1);
        }
        expect_withdrawn(&mut waiting);
        assert_eq!(server.info_number("dsync", "dsync_waiters"), 0);
        assert_eq!(client.ask(format!("{release} held")), 1);
        let mut late = server.connect();
        for token in ["waiting", "kept", "vacant"] {
            for form in [" BLOCK 0", " QUEUE 60000", ""] {
                late.begin(request(token) + form);
                expect_withdrawn(&mut late);
            }
        }
        assert_eq!(count(&mut client, &info, "k", "holders"), 0, "{take}");
        let mut other = server.connect();
        assert!(!other.ask(request("other")).is_error(), "{take}");
    }
}

#[test]
fn withdrawn_token_is_new_after_the_rejoin_time() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(client.ask("CONFIG SET dsync.rejoin-ms 50"), "OK");
    client.ask("DLOCK.ACQUIRE k TOKEN held").grant();
    let mut gives_up = server.waiting("DLOCK.ACQUIRE k TOKEN t BLOCK 0");
    assert_eq!(client.ask("DLOCK.RELEASE k t"), 1);
    expect_withdrawn(&mut gives_up);
    assert_eq!(client.ask("DLOCK.RELEASE k held"), 1);
    eventually("the end of the rejoin time", SOON, || {
        !client.ask("DLOCK.ACQUIRE k TOKEN t BLOCK 0").is_error()
    });
    assert_eq!(client.ask("DLOCK.RELEASE k t"), 1, "it holds");
}

/// Withdrawn tokens take the room of vacant places: they keep nobody out, and the oldest is forgotten first.
#[test]
fn full_queue_forgets_the_oldest_withdrawn_token() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("CONFIG SET dsync.max-waiters-per-key 2");
    client.ask("CONFIG SET dsync.rejoin-ms 60000");
    client.ask("DLOCK.ACQUIRE k TOKEN held").grant();
    for token in ["old", "new"] {
        let mut gives_up = server.waiting(format!("DLOCK.ACQUIRE k TOKEN {token} BLOCK 0"));
        client.ask(format!("DLOCK.RELEASE k {token}"));
        expect_withdrawn(&mut gives_up);
    }
    let _waiting = server.waiting("DLOCK.ACQUIRE k TOKEN waiting BLOCK 0");
    let mut late = server.connect();
    late.begin("DLOCK.ACQUIRE k TOKEN new BLOCK 0");
    expect_withdrawn(&mut late);
    late.wait_on(&server, "DLOCK.ACQUIRE k TOKEN old BLOCK 0");
}

/// A program that uses one token again and again is mistaken, but RELEASE of its hold marks nothing.
#[test]
fn release_that_ended_a_hold_marks_no_token() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(client.ask("DLOCK.RELEASE k t"), 0);
    for form in ["", " BLOCK 0", " QUEUE 1000"] {
        client.ask(format!("DLOCK.ACQUIRE k TOKEN t{form}")).grant();
        assert_eq!(client.ask("DLOCK.RELEASE k t"), 1);
    }
}

/// RELEASE arrives in the turn of the grant: the client still reads the grant, but CHECK must say that it is void.
#[test]
fn release_in_the_turn_of_the_grant_makes_it_void() {
    for [take, release, info] in families() {
        let server = Server::start();
        let mut client = server.connect();
        client.ask(format!("{take} TOKEN held"));
        let mut gives_up = server.waiting(format!("{take} TOKEN t BLOCK 0"));
        let mut next = server.waiting(format!("{take} TOKEN next BLOCK 0"));
        let lines = [format!("{release} held"), format!("{release} t")];
        assert_eq!(client.ask_all(&lines), [Reply::Int(1), Reply::Int(1)]);
        let answer = gives_up.reply();
        assert!(
            !answer.is_error() && !answer.is_nil(),
            "the grant: {answer:?}"
        );
        expect_no_more(&mut gives_up);
        let check = release.replace("RELEASE", "CHECK");
        assert_eq!(client.ask(format!("{check} t")), 0, "and it is void");
        assert!(!next.reply().is_error());
        assert_eq!(count(&mut client, &info, "k", "holders"), 1);
    }
}

/// RELEASE and the same request again in one turn: the request is not queued again.
#[test]
fn withdrawn_token_that_asks_again_at_once_is_not_queued() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE k TOKEN held");
    let mut old = server.waiting("DLOCK.ACQUIRE k TOKEN t BLOCK 0");
    let mut next = server.waiting("DLOCK.ACQUIRE k TOKEN next BLOCK 0");
    let mut again = server.connect();
    again.send_raw(b"DLOCK.RELEASE k t\r\nDLOCK.ACQUIRE k TOKEN t BLOCK 0\r\n");
    assert_eq!(again.reply(), 1);
    expect_withdrawn(&mut again);
    expect_withdrawn(&mut old);
    assert_eq!(client.ask("DLOCK.RELEASE k held"), 1);
    next.granted();
}

#[test]
fn release_withdraws_from_transactions_and_scripts_too() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE k TOKEN held");
    let mut first = server.waiting("DLOCK.ACQUIRE k TOKEN a BLOCK 0");
    let mut second = server.waiting("DLOCK.ACQUIRE k TOKEN b BLOCK 0");
    assert_eq!(client.ask("MULTI"), "OK");
    assert_eq!(client.ask("DLOCK.RELEASE k a"), "QUEUED");
    assert_eq!(client.ask("EXEC").as_array(), [Reply::Int(1)]);
    expect_withdrawn(&mut first);
    let script = "return redis.call('DLOCK.RELEASE', KEYS[1], ARGV[1])";
    assert_eq!(call!(client, "EVAL", script, 1, "k", "b"), 1);
    expect_withdrawn(&mut second);
}

/// Permits are free, but tries fail because of a waiter that wants more of them. Its withdrawal announces `dsem.free`.
#[test]
fn withdrawal_of_the_only_waiter_announces_free_capacity() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(client.ask("CONFIG SET notify-keyspace-events Ed"), "OK");
    client.ask("DSEM.ACQUIRE k LIMIT 3 PERMITS 2");
    let mut large = server.waiting("DSEM.ACQUIRE k PERMITS 3 TOKEN t BLOCK 0");
    let mut listener = server.connect();
    listener.ask("SUBSCRIBE __keyevent@0__:dsem.free");
    assert_eq!(client.ask("DSEM.RELEASE k t"), 1);
    expect_withdrawn(&mut large);
    assert_eq!(listener.reply().as_array()[2], *"k");
    client.ask("DSEM.ACQUIRE k").grant();
}

/// The key is deleted in the turn of the RELEASE. The queue is served later in this turn, so the request still waits.
#[test]
fn release_of_queued_token_of_deleted_key_withdraws_it() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE k TOKEN held");
    let mut second = server.connect();
    let mut first = server.waiting("DLOCK.ACQUIRE k TOKEN a BLOCK 0");
    second.wait_on(&server, "DLOCK.ACQUIRE k TOKEN b BLOCK 0");
    let lines = ["DEL k", "DLOCK.RELEASE k b"];
    assert_eq!(client.ask_all(lines), [Reply::Int(1), Reply::Int(1)]);
    first.granted();
    expect_withdrawn(&mut second);
    assert_eq!(client.ask("DLOCK.RELEASE k a"), 1);
    assert_eq!(client.ask("EXISTS k"), 0);
}

#[test]
fn release_by_token_of_a_wait_that_has_none_withdraws_nothing() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE k TOKEN held");
    let mut waiter = server.waiting("DLOCK.ACQUIRE k BLOCK 0");
    assert_eq!(client.ask("DLOCK.RELEASE k t"), 0);
    assert_eq!(client.ask("DLOCK.RELEASE k held"), 1);
    waiter.granted();
}
