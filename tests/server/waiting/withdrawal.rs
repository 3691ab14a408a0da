//! RELEASE with the token of a queued request withdraws it.
//!
//! Some clients give up on a reply but keep the connection (redis-rs after half a second, valkey-glide after a
//! quarter). Without withdrawal their request stays in the queue and is granted unnoticed, and the others wait for a
//! whole lease.

use crate::support::steps::*;
use crate::support::*;

/// For each family: the request that is granted, the one that queues, RELEASE and INFO.
const FAMILIES: [[&str; 4]; 4] = [
    [
        "DLOCK.ACQUIRE k",
        "DLOCK.ACQUIRE k",
        "DLOCK.RELEASE k",
        "DLOCK.INFO",
    ],
    [
        "DSEM.ACQUIRE k LIMIT 1",
        "DSEM.ACQUIRE k LIMIT 1",
        "DSEM.RELEASE k",
        "DSEM.INFO",
    ],
    [
        "DWG.ADD k LIMIT 1",
        "DWG.ADD k LIMIT 1",
        "DWG.RELEASE k",
        "DWG.INFO",
    ],
    [
        "DONCE.BEGIN k",
        "DONCE.BEGIN k",
        "DONCE.RELEASE k",
        "DONCE.INFO",
    ],
];

#[track_caller]
fn expect_withdrawn(waiter: &mut Client) {
    let answer = reply(waiter);
    assert!(
        answer.error().starts_with("UNBLOCKED released"),
        "{answer:?}"
    );
    expect_no_more(waiter);
}

#[test]
fn release_of_queued_token_answers_its_connection_and_serves_the_rest() {
    for [take, queue, release, info] in FAMILIES {
        let server = Server::start();
        let mut client = server.connect();
        ask(&mut client, format!("{take} TOKEN held"));
        let mut gives_up = queued(&server, format!("{queue} TOKEN t BLOCK 0"));
        let mut next = queued(&server, format!("{queue} TOKEN next BLOCK 0"));
        let mut stream = ReplicationStream::attach(&server);
        assert_eq!(ask(&mut client, format!("{release} t")), 1, "{release}");
        expect_withdrawn(&mut gives_up);
        assert_eq!(count(&mut client, info, "k", "waiters"), 1);
        assert_eq!(server.info_number("dsync", "dsync_waiters"), 1);
        assert_eq!(ask(&mut client, format!("{release} t")), 0, "it is over");
        let replicated = stream.take_so_far(&server);
        assert!(
            replicated.is_empty(),
            "no waiter is replicated: {replicated:?}"
        );
        assert_eq!(ask(&mut client, format!("{release} held")), 1);
        assert!(!reply(&mut next).is_error());
        assert_eq!(count(&mut client, info, "k", "holders"), 1);
        wait_for_blocked(&server, 0);
    }
}

#[test]
fn release_of_vacant_place_gives_it_up() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(ask(&mut client, "CONFIG SET dsync.rejoin-ms 60000"), "OK");
    ask(&mut client, "DLOCK.ACQUIRE k TOKEN held");
    queued(&server, "DLOCK.ACQUIRE k TOKEN t BLOCK 0").close();
    wait_for_blocked(&server, 0);
    let mut next = queued(&server, "DLOCK.ACQUIRE k TOKEN next BLOCK 0");
    assert_eq!(ask(&mut client, "DLOCK.RELEASE k t"), 1);
    let mut again = queued(&server, "DLOCK.ACQUIRE k TOKEN t BLOCK 0");
    assert_eq!(ask(&mut client, "DLOCK.RELEASE k held"), 1);
    granted(&mut next);
    again.expect_silence(A_WHILE);
}

/// RELEASE arrives in the turn of the grant: the client still reads the grant, but CHECK must say that it is void.
#[test]
fn release_in_the_turn_of_the_grant_makes_it_void() {
    for [take, queue, release, info] in FAMILIES {
        let server = Server::start();
        let mut client = server.connect();
        ask(&mut client, format!("{take} TOKEN held"));
        let mut gives_up = queued(&server, format!("{queue} TOKEN t BLOCK 0"));
        let mut next = queued(&server, format!("{queue} TOKEN next BLOCK 0"));
        let lines = [format!("{release} held"), format!("{release} t")];
        assert_eq!(at_once(&mut client, &lines), [Reply::Int(1), Reply::Int(1)]);
        let answer = reply(&mut gives_up);
        assert!(
            !answer.is_error() && !answer.is_nil(),
            "the grant: {answer:?}"
        );
        expect_no_more(&mut gives_up);
        let check = release.replace("RELEASE", "CHECK");
        assert_eq!(ask(&mut client, format!("{check} t")), 0, "and it is void");
        assert!(!reply(&mut next).is_error());
        assert_eq!(count(&mut client, info, "k", "holders"), 1);
    }
}

/// RELEASE and the same request again in one turn: the request takes a new place, at the back.
#[test]
fn withdrawn_token_that_asks_again_queues_at_the_back() {
    let server = Server::start();
    let mut client = server.connect();
    ask(&mut client, "DLOCK.ACQUIRE k TOKEN held");
    let mut old = queued(&server, "DLOCK.ACQUIRE k TOKEN t BLOCK 0");
    let mut next = queued(&server, "DLOCK.ACQUIRE k TOKEN next BLOCK 0");
    let mut again = server.connect();
    again.send_raw(b"DLOCK.RELEASE k t\r\nDLOCK.ACQUIRE k TOKEN t BLOCK 0\r\n");
    assert_eq!(reply(&mut again), 1);
    expect_withdrawn(&mut old);
    wait_for_blocked(&server, 2);
    assert_eq!(ask(&mut client, "DLOCK.RELEASE k held"), 1);
    granted(&mut next);
    assert_eq!(ask(&mut client, "DLOCK.RELEASE k next"), 1);
    granted(&mut again);
}

#[test]
fn release_withdraws_from_transactions_and_scripts_too() {
    let server = Server::start();
    let mut client = server.connect();
    ask(&mut client, "DLOCK.ACQUIRE k TOKEN held");
    let mut first = queued(&server, "DLOCK.ACQUIRE k TOKEN a BLOCK 0");
    let mut second = queued(&server, "DLOCK.ACQUIRE k TOKEN b BLOCK 0");
    assert_eq!(ask(&mut client, "MULTI"), "OK");
    assert_eq!(ask(&mut client, "DLOCK.RELEASE k a"), "QUEUED");
    assert_eq!(ask(&mut client, "EXEC").as_array(), [Reply::Int(1)]);
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
    assert_eq!(
        ask(&mut client, "CONFIG SET notify-keyspace-events Ed"),
        "OK"
    );
    ask(&mut client, "DSEM.ACQUIRE k LIMIT 3 PERMITS 2");
    let mut large = queued(&server, "DSEM.ACQUIRE k PERMITS 3 TOKEN t BLOCK 0");
    let mut listener = server.connect();
    call!(listener, "SUBSCRIBE", "__keyevent@0__:dsem.free");
    assert_eq!(ask(&mut client, "DSEM.RELEASE k t"), 1);
    expect_withdrawn(&mut large);
    assert_eq!(reply(&mut listener).as_array()[2], *"k");
    ask(&mut client, "DSEM.ACQUIRE k").grant();
}

/// The key is deleted in the turn of the RELEASE. The queue is served later in this turn, so the request still waits.
#[test]
fn release_of_queued_token_of_deleted_key_withdraws_it() {
    let server = Server::start();
    let mut client = server.connect();
    ask(&mut client, "DLOCK.ACQUIRE k TOKEN held");
    let mut second = server.connect();
    let mut first = queued(&server, "DLOCK.ACQUIRE k TOKEN a BLOCK 0");
    queue(&server, &mut second, "DLOCK.ACQUIRE k TOKEN b BLOCK 0");
    let lines = ["DEL k", "DLOCK.RELEASE k b"];
    assert_eq!(at_once(&mut client, &lines), [Reply::Int(1), Reply::Int(1)]);
    granted(&mut first);
    expect_withdrawn(&mut second);
    assert_eq!(ask(&mut client, "DLOCK.RELEASE k a"), 1);
    assert_eq!(ask(&mut client, "EXISTS k"), 0);
}

#[test]
fn release_by_token_of_a_wait_that_has_none_withdraws_nothing() {
    let server = Server::start();
    let mut client = server.connect();
    ask(&mut client, "DLOCK.ACQUIRE k TOKEN held");
    let mut waiter = queued(&server, "DLOCK.ACQUIRE k BLOCK 0");
    assert_eq!(ask(&mut client, "DLOCK.RELEASE k t"), 0);
    assert_eq!(ask(&mut client, "DLOCK.RELEASE k held"), 1);
    granted(&mut waiter);
}
