//! Semaphores: which limit counts and when, who is refused, who is served when the limit moves, and
//! that permits come back however their holder goes.
//!
//! Waiters of other kinds of events (CLIENT UNBLOCK, failover, a full disk) are other stories; so are
//! the bounds of the numbers, which `grammar` has.

use crate::support::*;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);
const A_WHILE: Duration = Duration::from_millis(60);

/// Sends a request that must wait, and returns when it is the `count`th blocked client.
#[track_caller]
fn queue(server: &Server, request: &[&str], count: u64) -> Client {
    let mut client = server.connect();
    client.send(request);
    wait_for_blocked(server, count);
    client
}

#[track_caller]
fn granted(waiter: &mut Client) -> (String, u64) {
    waiter.recv(SOON).expect("the waiter is granted").grant()
}

#[track_caller]
fn assert_error(reply: &Reply, parts: &[&str]) {
    let text = reply.error();
    assert!(
        parts.iter().all(|part| text.contains(part)),
        "{parts:?} in {text:?}"
    );
    assert!(
        text.starts_with(parts[0]),
        "{text:?} begins with {}",
        parts[0]
    );
}

#[track_caller]
fn info(client: &mut Client, field: &str) -> i64 {
    call!(client, "DSEM.INFO", "sem").field(field).as_int()
}

#[test]
fn a_request_without_a_limit_where_none_is_in_force_is_refused() {
    let server = Server::start();
    let mut client = server.connect();
    for block in [&[][..], &["BLOCK", "0"]] {
        let reply = client.call(&[&["DSEM.ACQUIRE", "sem"], block].concat());
        assert_error(&reply, &["NOLIMIT "]);
        assert_eq!(call!(client, "EXISTS", "sem"), 0);
    }
    let (first, _) = call!(client, "DSEM.ACQUIRE", "sem", "LIMIT", 2).grant();
    call!(client, "DSEM.ACQUIRE", "sem").grant();
    assert!(
        call!(client, "DSEM.ACQUIRE", "sem").is_nil(),
        "the limit in force is the one of the first"
    );
    assert_eq!(call!(client, "DSEM.RELEASE", "sem", first), 1);
    call!(client, "DSEM.ACQUIRE", "sem").grant();
    call!(client, "DEL", "sem");
    assert_error(&call!(client, "DSEM.ACQUIRE", "sem"), &["NOLIMIT "]);
}

#[test]
fn permits_above_the_limit_are_refused_at_the_request_and_change_nothing() {
    let server = Server::start();
    let mut client = server.connect();
    for block in [&[][..], &["BLOCK", "0"]] {
        let own = [
            &["DSEM.ACQUIRE", "sem", "LIMIT", "3", "PERMITS", "4"],
            block,
        ]
        .concat();
        assert_error(&client.call(&own), &["TOOMANY ", "4", "3"]);
        assert_eq!(call!(client, "EXISTS", "sem"), 0);
    }
    call!(client, "DSEM.ACQUIRE", "sem", "LIMIT", 5).grant();
    let before = digest(&server, "sem");
    for block in [&[][..], &["BLOCK", "0"]] {
        let in_force = [&["DSEM.ACQUIRE", "sem", "PERMITS", "6"], block].concat();
        assert_error(&client.call(&in_force), &["TOOMANY ", "6", "5"]);
        // Its own limit is the one that counts, not the larger one in force.
        let own = [
            &["DSEM.ACQUIRE", "sem", "LIMIT", "2", "PERMITS", "3"],
            block,
        ]
        .concat();
        assert_error(&client.call(&own), &["TOOMANY ", "3", "2"]);
    }
    assert_eq!(digest(&server, "sem"), before);
    // A pinned limit stands above the request's own.
    call!(client, "DSEM.LIMIT", "sem", 4);
    let reply = call!(
        client,
        "DSEM.ACQUIRE",
        "sem",
        "LIMIT",
        9,
        "PERMITS",
        5,
        "BLOCK",
        0
    );
    assert_error(&reply, &["TOOMANY ", "5", "4"]);
    // The whole limit may be asked for.
    call!(client, "DEL", "sem");
    call!(client, "DSEM.ACQUIRE", "sem", "LIMIT", 4, "PERMITS", 4).grant();
}

#[test]
fn whoever_waits_for_more_than_a_limit_that_falls_is_refused_at_once_wherever_they_stand() {
    let server = Server::start();
    let mut client = server.connect();
    call!(client, "DSEM.ACQUIRE", "sem", "LIMIT", 5, "PERMITS", 3).grant();
    let mut three = queue(
        &server,
        &["DSEM.ACQUIRE", "sem", "PERMITS", "3", "BLOCK", "0"],
        1,
    );
    let mut five = queue(
        &server,
        &["DSEM.ACQUIRE", "sem", "PERMITS", "5", "BLOCK", "0"],
        2,
    );
    let mut one = queue(&server, &["DSEM.ACQUIRE", "sem", "BLOCK", "0"], 3);
    let mut four = queue(
        &server,
        &["DSEM.ACQUIRE", "sem", "PERMITS", "4", "BLOCK", "0"],
        4,
    );

    assert_eq!(call!(client, "DSEM.LIMIT", "sem", 3), 5);
    assert_error(&five.recv(SOON).expect("refused"), &["TOOMANY ", "5", "3"]);
    assert_error(&four.recv(SOON).expect("refused"), &["TOOMANY ", "4", "3"]);
    wait_for_blocked(&server, 2);
    three.expect_silence(A_WHILE);
    one.expect_silence(A_WHILE);

    // A limit that a request brings along, once unpinned, does the same. The head leaves, and whoever
    // fits then is served.
    assert_eq!(call!(client, "DSEM.LIMIT", "sem", "NONE"), 3);
    let mut two = queue(
        &server,
        &[
            "DSEM.ACQUIRE",
            "sem",
            "LIMIT",
            "2",
            "PERMITS",
            "2",
            "BLOCK",
            "0",
        ],
        2,
    );
    assert_error(&three.recv(SOON).expect("refused"), &["TOOMANY ", "3", "2"]);
    assert_eq!(info(&mut client, "limit"), 2);
    assert_eq!(info(&mut client, "waiters"), 2);
    let fence = call!(client, "DSEM.INFO", "sem")
        .field("first-holders")
        .as_array()[0]
        .field("fence")
        .as_int();
    assert_eq!(call!(client, "DSEM.REVOKE", "sem", fence), 1);
    granted(&mut one);
    two.expect_silence(A_WHILE);
}

#[test]
fn a_limit_takes_force_when_its_request_is_granted() {
    let server = Server::start();
    let mut client = server.connect();
    call!(client, "DSEM.ACQUIRE", "sem", "LIMIT", 1).grant();
    assert_eq!(info(&mut client, "limit"), 1);
    assert!(call!(client, "DSEM.ACQUIRE", "sem").is_nil());
    call!(client, "DSEM.ACQUIRE", "sem", "LIMIT", 3).grant();
    assert_eq!(info(&mut client, "limit"), 3);
    assert_eq!(info(&mut client, "available"), 1);
    call!(client, "DSEM.ACQUIRE", "sem").grant();
    assert!(call!(client, "DSEM.ACQUIRE", "sem").is_nil());
}

#[test]
fn a_limit_takes_force_when_its_request_queues_and_never_again() {
    let server = Server::start();
    let mut client = server.connect();
    let (held, _) = call!(client, "DSEM.ACQUIRE", "sem", "LIMIT", 1).grant();
    let mut first = queue(
        &server,
        &[
            "DSEM.ACQUIRE",
            "sem",
            "LIMIT",
            "2",
            "PERMITS",
            "2",
            "BLOCK",
            "0",
        ],
        1,
    );
    assert_eq!(info(&mut client, "limit"), 2);
    assert_eq!(info(&mut client, "available"), 1);
    let mut second = queue(
        &server,
        &[
            "DSEM.ACQUIRE",
            "sem",
            "LIMIT",
            "4",
            "PERMITS",
            "4",
            "BLOCK",
            "0",
        ],
        1,
    );
    // The larger limit made room for the first; its own, smaller one does not come back with its grant.
    let (first, _) = granted(&mut first);
    assert_eq!(info(&mut client, "limit"), 4);
    assert_eq!(call!(client, "DSEM.RELEASE", "sem", held), 1);
    second.expect_silence(A_WHILE);
    assert_eq!(call!(client, "DSEM.RELEASE", "sem", first), 1);
    granted(&mut second);
    assert_eq!(info(&mut client, "limit"), 4);
    assert_eq!(info(&mut client, "available"), 0);
}

#[test]
fn a_refused_try_changes_nothing() {
    let server = Server::start();
    let mut client = server.connect();
    call!(client, "DSEM.ACQUIRE", "sem", "LIMIT", 3, "PERMITS", 2).grant();
    let unchanged = |client: &mut Client, what: &str| {
        (
            digest(&server, "sem"),
            info(client, "limit"),
            info(client, "limit-changes"),
            what.len(),
        )
    };
    let before = unchanged(&mut client, "");
    for request in [
        &["LIMIT", "2"][..],
        &["PERMITS", "2"],
        &["LIMIT", "2", "PERMITS", "2"],
    ] {
        let reply = client.call(&[&["DSEM.ACQUIRE", "sem"], request].concat());
        assert!(reply.is_nil(), "{request:?}: {reply:?}");
        assert_eq!(unchanged(&mut client, ""), before, "{request:?}");
    }
    // Nor one that would fit, but for somebody who waits.
    let mut waiter = queue(
        &server,
        &["DSEM.ACQUIRE", "sem", "PERMITS", "2", "BLOCK", "0"],
        1,
    );
    for request in [&["LIMIT", "9"][..], &[], &["LIMIT", "9", "PERMITS", "4"]] {
        let reply = client.call(&[&["DSEM.ACQUIRE", "sem"], request].concat());
        assert!(reply.is_nil(), "{request:?}: {reply:?}");
        assert_eq!(
            unchanged(&mut client, ""),
            before,
            "{request:?} behind a waiter"
        );
    }
    waiter.expect_silence(A_WHILE);
}

#[test]
fn a_rolling_deploy_brings_its_new_limit_up_and_back_down() {
    let server = Server::start();
    let mut client = server.connect();
    let old = ["DSEM.ACQUIRE", "sem", "LIMIT", "2"];
    let new = ["DSEM.ACQUIRE", "sem", "LIMIT", "4"];
    let mut holds: Vec<_> = [old, old, new, new]
        .iter()
        .map(|request| client.call(request).grant().0)
        .collect();
    assert!(client.call(&new).is_nil(), "four is all there is");
    assert!(client.call(&old).is_nil());
    assert_eq!(
        info(&mut client, "limit"),
        4,
        "the refused try of an old one does not count"
    );

    // The deploy is rolled back: an old one that waits brings the old limit, and the four drain.
    let mut waiter = queue(
        &server,
        &["DSEM.ACQUIRE", "sem", "LIMIT", "2", "BLOCK", "0"],
        1,
    );
    assert_eq!(info(&mut client, "limit"), 2);
    for token in holds.drain(..2) {
        assert_eq!(call!(client, "DSEM.RELEASE", "sem", token), 1);
    }
    waiter.expect_silence(A_WHILE);
    assert_eq!(call!(client, "DSEM.RELEASE", "sem", holds.remove(0)), 1);
    granted(&mut waiter);
    assert!(client.call(&old).is_nil());
    client.call(&new).grant();
    assert_eq!(info(&mut client, "limit"), 4);
}

#[test]
fn raising_the_limit_serves_several_waiters_at_once_in_their_order() {
    let server = Server::start();
    let mut client = server.connect();
    call!(client, "DSEM.LIMIT", "sem", 1);
    call!(client, "DSEM.ACQUIRE", "sem", "LIMIT", 7).grant();
    let request = ["DSEM.ACQUIRE", "sem", "BLOCK", "0"];
    let mut waiters: Vec<_> = (1..=6)
        .map(|count| queue(&server, &request, count))
        .collect();

    assert_eq!(call!(client, "DSEM.LIMIT", "sem", 4), 1);
    let fences: Vec<_> = waiters[..3]
        .iter_mut()
        .map(|waiter| granted(waiter).1)
        .collect();
    assert!(fences.is_sorted(), "{fences:?}");
    wait_for_blocked(&server, 3);
    waiters[3].expect_silence(A_WHILE);

    // Unpinned, the remembered seven count, and the rest fits.
    assert_eq!(call!(client, "DSEM.LIMIT", "sem", "NONE"), 4);
    waiters[3..]
        .iter_mut()
        .for_each(|waiter| drop(granted(waiter)));
    assert_eq!(info(&mut client, "limit"), 7);
    assert_eq!(info(&mut client, "available"), 0);

    // A request's own limit raises it just as well.
    let mut eighth = queue(
        &server,
        &["DSEM.ACQUIRE", "sem", "PERMITS", "3", "BLOCK", "0"],
        1,
    );
    let mut ninth = server.connect();
    ninth.send(&["DSEM.ACQUIRE", "sem", "LIMIT", "11", "BLOCK", "0"]);
    granted(&mut eighth);
    granted(&mut ninth);
}

#[test]
fn a_limit_lowered_below_use_takes_nothing_away_and_drains() {
    let server = Server::start();
    let mut client = server.connect();
    let tokens: Vec<_> = (0..4)
        .map(|_| call!(client, "DSEM.ACQUIRE", "sem", "LIMIT", 4).grant().0)
        .collect();
    assert_eq!(call!(client, "DSEM.LIMIT", "sem", 2), 4);
    for token in &tokens {
        assert!(call!(client, "DSEM.CHECK", "sem", token).as_int() > 0);
        assert_eq!(call!(client, "DSEM.RENEW", "sem", token), 1);
    }
    assert_eq!(info(&mut client, "available"), 0);
    assert_eq!(info(&mut client, "holders"), 4);
    let mut waiter = queue(&server, &["DSEM.ACQUIRE", "sem", "BLOCK", "0"], 1);
    for token in &tokens[..2] {
        assert_eq!(call!(client, "DSEM.RELEASE", "sem", token), 1);
        waiter.expect_silence(A_WHILE);
    }
    assert_eq!(call!(client, "DSEM.RELEASE", "sem", tokens[2]), 1);
    granted(&mut waiter);
    assert_eq!(info(&mut client, "available"), 0);
}

#[test]
fn limit_answers_what_was_in_force_before() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(call!(client, "DSEM.LIMIT", "sem", "NONE"), -1);
    assert_eq!(
        call!(client, "EXISTS", "sem"),
        0,
        "there was nothing to unpin"
    );
    assert_eq!(call!(client, "DSEM.LIMIT", "sem", 5), -1);
    assert_eq!(call!(client, "DSEM.LIMIT", "sem", 0), 5);
    assert_eq!(call!(client, "DSEM.LIMIT", "sem", 1_000_000), 0);
    assert_eq!(call!(client, "DSEM.LIMIT", "sem", "none"), 1_000_000);
    assert_eq!(
        call!(client, "EXISTS", "sem"),
        0,
        "unpinned and unused it vanishes"
    );

    call!(client, "DSEM.ACQUIRE", "sem", "LIMIT", 2).grant();
    assert_eq!(call!(client, "DSEM.LIMIT", "sem", 7), 2);
    assert_eq!(call!(client, "DSEM.LIMIT", "sem", "NONE"), 7);
    assert_eq!(call!(client, "DSEM.LIMIT", "sem", "NONE"), 2);
    assert_eq!(info(&mut client, "limit"), 2);
}

#[test]
fn a_limit_of_zero_pauses_and_raising_it_goes_on() {
    let server = Server::start();
    let mut client = server.connect();
    let (held, _) = call!(client, "DSEM.ACQUIRE", "sem", "LIMIT", 2).grant();
    assert_eq!(call!(client, "DSEM.LIMIT", "sem", 0), 2);
    assert_eq!(*call!(client, "DSEM.INFO", "sem").field("state"), "paused");
    assert!(
        call!(client, "DSEM.CHECK", "sem", &held).as_int() > 0,
        "a pause takes nothing away"
    );
    assert!(call!(client, "DSEM.ACQUIRE", "sem", "LIMIT", 2).is_nil());
    let mut first = queue(&server, &["DSEM.ACQUIRE", "sem", "BLOCK", "0"], 1);
    // Nothing is said about sizes while it is paused: nobody knows the limit it will have.
    let mut large = queue(
        &server,
        &["DSEM.ACQUIRE", "sem", "PERMITS", "1000000", "BLOCK", "0"],
        2,
    );
    assert_eq!(call!(client, "DSEM.RELEASE", "sem", held), 1);
    first.expect_silence(A_WHILE);
    assert_eq!(call!(client, "EXISTS", "sem"), 1);

    assert_eq!(call!(client, "DSEM.LIMIT", "sem", 3), 0);
    granted(&mut first);
    assert_error(
        &large.recv(SOON).expect("refused"),
        &["TOOMANY ", "1000000", "3"],
    );
}

#[test]
fn a_key_that_was_paused_before_anybody_asked_lets_requests_queue() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(call!(client, "DSEM.LIMIT", "sem", 0), -1);
    assert!(call!(client, "DSEM.ACQUIRE", "sem").is_nil());
    let mut waiter = queue(
        &server,
        &["DSEM.ACQUIRE", "sem", "LIMIT", "2", "BLOCK", "0"],
        1,
    );
    waiter.expect_silence(A_WHILE);
    assert_eq!(call!(client, "DSEM.LIMIT", "sem", "NONE"), 0);
    granted(&mut waiter);
    assert_eq!(
        info(&mut client, "limit"),
        2,
        "remembered from when it queued"
    );
}

#[test]
fn a_waiter_left_without_any_limit_is_told_so() {
    let server = Server::start();
    let mut client = server.connect();
    call!(client, "DSEM.LIMIT", "sem", 1);
    call!(client, "DSEM.ACQUIRE", "sem").grant();
    let mut waiter = queue(&server, &["DSEM.ACQUIRE", "sem", "BLOCK", "0"], 1);
    assert_eq!(call!(client, "DSEM.LIMIT", "sem", "NONE"), 1);
    assert_error(&waiter.recv(SOON).expect("refused"), &["NOLIMIT "]);
}

#[test]
fn a_pinned_semaphore_survives_being_idle_and_any_other_vanishes() {
    let server = Server::start();
    let mut client = server.connect();
    for pinned in [false, true] {
        let left = i64::from(pinned);
        if pinned {
            call!(client, "DSEM.LIMIT", "sem", 2);
        }
        let (token, _) = call!(client, "DSEM.ACQUIRE", "sem", "LIMIT", 2).grant();
        assert_eq!(call!(client, "DSEM.RELEASE", "sem", token), 1);
        assert_eq!(call!(client, "EXISTS", "sem"), left, "after a release");

        let (_, fence) = call!(client, "DSEM.ACQUIRE", "sem", "LIMIT", 2).grant();
        assert_eq!(call!(client, "DSEM.REVOKE", "sem", fence), 1);
        assert_eq!(call!(client, "EXISTS", "sem"), left, "after a revocation");

        call!(client, "DSEM.ACQUIRE", "sem", "LIMIT", 2, "PX", 30).grant();
        eventually("the lapse of the hold", SOON, || {
            let info = call!(client, "DSEM.INFO", "sem");
            info.is_nil() || *info.field("holders") == 0
        });
        assert_eq!(call!(client, "EXISTS", "sem"), left, "after a lapse");
    }
    assert_eq!(info(&mut client, "pinned-limit"), 2);
    assert_eq!(call!(client, "DSEM.LIMIT", "sem", "NONE"), 2);
    assert_eq!(call!(client, "EXISTS", "sem"), 0);
    assert!(call!(client, "DSEM.INFO", "sem").is_nil());
}

#[test]
fn requests_limits_are_only_remembered_while_one_is_pinned() {
    let server = Server::start();
    let mut client = server.connect();
    call!(client, "DSEM.LIMIT", "sem", 1);
    call!(client, "DSEM.ACQUIRE", "sem", "LIMIT", 5).grant();
    assert_eq!(info(&mut client, "limit"), 1);
    // Judged by the pinned one, and a refused try is not even remembered.
    assert!(call!(client, "DSEM.ACQUIRE", "sem", "LIMIT", 9).is_nil());
    assert_eq!(call!(client, "DSEM.LIMIT", "sem", "NONE"), 1);
    assert_eq!(info(&mut client, "limit"), 5);
    assert!(
        call!(client, "DSEM.INFO", "sem")
            .field("pinned-limit")
            .is_nil()
    );
    assert_eq!(info(&mut client, "available"), 4);
}

#[test]
fn a_large_request_is_not_starved_by_small_ones() {
    let server = Server::start();
    let mut client = server.connect();
    let mut small: Vec<_> = (0..2)
        .map(|_| call!(client, "DSEM.ACQUIRE", "sem", "LIMIT", 3).grant().0)
        .collect();
    let mut large = queue(
        &server,
        &["DSEM.ACQUIRE", "sem", "PERMITS", "3", "BLOCK", "0"],
        1,
    );
    // One permit stays free for as long as the large request waits, and nobody gets it.
    let mut behind: Vec<_> = (2..=4)
        .map(|count| queue(&server, &["DSEM.ACQUIRE", "sem", "BLOCK", "0"], count))
        .collect();
    assert!(call!(client, "DSEM.ACQUIRE", "sem").is_nil());
    assert_eq!(info(&mut client, "available"), 1);
    assert_eq!(call!(client, "DSEM.RELEASE", "sem", small.remove(0)), 1);
    assert!(call!(client, "DSEM.ACQUIRE", "sem").is_nil());
    large.expect_silence(A_WHILE);
    assert_eq!(call!(client, "DSEM.RELEASE", "sem", small.remove(0)), 1);
    let (token, fence) = granted(&mut large);
    behind[0].expect_silence(A_WHILE);
    assert_eq!(call!(client, "DSEM.RELEASE", "sem", token), 1);
    for waiter in &mut behind {
        assert!(granted(waiter).1 > fence);
    }
}

#[test]
fn a_head_that_leaves_the_queue_lets_those_behind_it_in() {
    let server = Server::start();
    let mut client = server.connect();
    call!(client, "DSEM.ACQUIRE", "sem", "LIMIT", 3).grant();
    // Two permits are free, and the head wants three. It closes its connection …
    let large = ["DSEM.ACQUIRE", "sem", "PERMITS", "3", "BLOCK", "0"];
    let head = queue(&server, &large, 1);
    let mut next = queue(&server, &["DSEM.ACQUIRE", "sem", "BLOCK", "0"], 2);
    head.close();
    granted(&mut next);
    // … or its time runs out.
    let mut head = queue(
        &server,
        &["DSEM.ACQUIRE", "sem", "PERMITS", "3", "BLOCK", "800"],
        1,
    );
    let mut next = server.connect();
    next.send(&["DSEM.ACQUIRE", "sem", "BLOCK", "0"]);
    assert!(head.recv(SOON).expect("its time runs out").is_nil());
    granted(&mut next);
}

#[test]
fn changes_of_the_limit_in_force_are_counted() {
    let server = Server::start();
    let mut client = server.connect();
    let acquire = |client: &mut Client, limit: i64| {
        call!(client, "DSEM.ACQUIRE", "sem", "LIMIT", limit).grant();
        (info(client, "limit"), info(client, "limit-changes"))
    };
    assert_eq!(
        acquire(&mut client, 8),
        (8, 0),
        "the first is no change of one"
    );
    assert_eq!(acquire(&mut client, 8), (8, 0));
    assert_eq!(acquire(&mut client, 9), (9, 1));
    call!(client, "DSEM.LIMIT", "sem", 9);
    assert_eq!(
        info(&mut client, "limit-changes"),
        1,
        "pinned to what it was"
    );
    call!(client, "DSEM.LIMIT", "sem", 7);
    assert_eq!(info(&mut client, "limit-changes"), 2);
    assert_eq!(acquire(&mut client, 6), (7, 2), "remembered only");
    call!(client, "DSEM.LIMIT", "sem", "NONE");
    assert_eq!(
        (
            info(&mut client, "limit"),
            info(&mut client, "limit-changes")
        ),
        (6, 3)
    );
    // A request that only waits has changed it too; a refused one has not.
    let _waiter = queue(
        &server,
        &[
            "DSEM.ACQUIRE",
            "sem",
            "LIMIT",
            "5",
            "PERMITS",
            "5",
            "BLOCK",
            "0",
        ],
        1,
    );
    call!(client, "DSEM.ACQUIRE", "sem", "LIMIT", 4);
    assert_eq!(
        (
            info(&mut client, "limit"),
            info(&mut client, "limit-changes")
        ),
        (5, 4)
    );
}

#[test]
fn a_holders_repeat_counts_nothing_twice_and_brings_no_limit() {
    let server = Server::start();
    let mut client = server.connect();
    let first = call!(
        client,
        "DSEM.ACQUIRE",
        "sem",
        "LIMIT",
        3,
        "PERMITS",
        2,
        "TOKEN",
        "t"
    )
    .grant();
    let again = call!(
        client,
        "DSEM.ACQUIRE",
        "sem",
        "LIMIT",
        9,
        "PERMITS",
        2,
        "TOKEN",
        "t"
    )
    .grant();
    assert_eq!(again, first);
    assert_eq!(
        (info(&mut client, "limit"), info(&mut client, "available")),
        (3, 1)
    );
    let other = call!(client, "DSEM.ACQUIRE", "sem", "PERMITS", 1, "TOKEN", "t");
    assert_error(&other, &["MISMATCH "]);
    assert_eq!(call!(client, "DSEM.RELEASE", "sem", "t"), 1);
    assert_eq!(call!(client, "DSEM.RELEASE", "sem", "t"), 0);
}

/// How the holder of all three permits goes, in the story below.
#[derive(Clone, Copy, Debug)]
enum Exit {
    Release,
    Lapse,
    Disconnect,
    Revoke,
    Del,
    FlushAll,
}

#[test]
fn permits_come_back_however_their_holder_goes() {
    use Exit::*;
    let server = Server::start();
    let mut client = server.connect();
    for exit in [Release, Lapse, Disconnect, Revoke, Del, FlushAll] {
        let mut holder = server.connect();
        let mut request = vec!["DSEM.ACQUIRE", "sem", "LIMIT", "3", "PERMITS", "3"];
        match exit {
            Lapse => request.extend(["PX", "700"]),
            Disconnect => request.push("EPHEMERAL"),
            _ => {}
        }
        let (token, fence) = holder.call(&request).grant();
        // Both of them together need all that the holder had.
        let mut two = queue(
            &server,
            &["DSEM.ACQUIRE", "sem", "PERMITS", "2", "BLOCK", "0"],
            1,
        );
        let mut one = server.connect();
        one.send(&["DSEM.ACQUIRE", "sem", "BLOCK", "0"]);
        match exit {
            Release => assert_eq!(call!(client, "DSEM.RELEASE", "sem", &token), 1),
            Lapse => {}
            Disconnect => holder.close(),
            Revoke => assert_eq!(call!(client, "DSEM.REVOKE", "sem", fence), 1),
            Del => assert_eq!(call!(client, "DEL", "sem"), 1),
            FlushAll => assert_eq!(call!(client, "FLUSHALL"), "OK"),
        }
        let (_, second) = granted(&mut two);
        let (_, third) = granted(&mut one);
        assert!(
            fence < second && second < third,
            "{exit:?}: {fence}, {second}, {third}"
        );
        assert_eq!(call!(client, "DSEM.CHECK", "sem", token), 0, "{exit:?}");
        // Also where the key began afresh, the queue goes by the limit that it knew.
        assert_eq!(
            (info(&mut client, "limit"), info(&mut client, "available")),
            (3, 0),
            "{exit:?}"
        );
        assert!(call!(client, "DSEM.ACQUIRE", "sem").is_nil(), "{exit:?}");
        call!(client, "DEL", "sem");
    }
}

#[test]
fn waiters_that_fit_together_are_served_together() {
    let server = Server::start();
    let mut client = server.connect();
    let (held, _) = call!(client, "DSEM.ACQUIRE", "sem", "LIMIT", 4, "PERMITS", 4).grant();
    let sizes = ["1", "2", "2", "1"];
    let mut waiters: Vec<_> = (1..)
        .zip(sizes)
        .map(|(count, size)| {
            queue(
                &server,
                &["DSEM.ACQUIRE", "sem", "PERMITS", size, "BLOCK", "0"],
                count,
            )
        })
        .collect();
    assert_eq!(call!(client, "DSEM.RELEASE", "sem", held), 1);
    let (one, _) = granted(&mut waiters[0]);
    granted(&mut waiters[1]);
    // One permit is left, and the last waiter may not have it before the one ahead of it.
    wait_for_blocked(&server, 2);
    waiters[3].expect_silence(A_WHILE);
    assert_eq!(call!(client, "DSEM.RELEASE", "sem", one), 1);
    granted(&mut waiters[2]);
    waiters[3].expect_silence(A_WHILE);
    assert_eq!(info(&mut client, "available"), 0);
}
