//! Semaphores: who gets permits and when, and how permits come back.
//!
//! Elsewhere: the limit (`semaphore_limit`), the bounds of LIMIT and PERMITS (`every_command`), waiters that leave
//! (`leaving`).

use crate::commands::semaphore_steps::*;
use crate::support::steps::*;
use crate::support::*;

#[test]
fn semaphore_refused_try_changes_nothing() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DSEM.ACQUIRE sem LIMIT 3 PERMITS 2").grant();
    let state = |client: &mut Client| {
        (
            server.digest("sem"),
            info(client, "limit"),
            info(client, "limit-changes"),
        )
    };
    let before = state(&mut client);
    for request in [
        &["LIMIT", "2"][..],
        &["PERMITS", "2"],
        &["LIMIT", "2", "PERMITS", "2"],
    ] {
        let reply = client.call(&[&["DSEM.ACQUIRE", "sem"], request].concat());
        assert!(reply.is_nil(), "{request:?}: {reply:?}");
        assert_eq!(state(&mut client), before, "{request:?}");
    }
    // A try that would fit is refused because of a waiter, and changes nothing either.
    let mut waiter = server.waiting("DSEM.ACQUIRE sem PERMITS 2 BLOCK 0");
    for request in [&["LIMIT", "9"][..], &[], &["LIMIT", "9", "PERMITS", "4"]] {
        let reply = client.call(&[&["DSEM.ACQUIRE", "sem"], request].concat());
        assert!(reply.is_nil(), "{request:?}: {reply:?}");
        assert_eq!(state(&mut client), before, "{request:?} behind a waiter");
    }
    waiter.expect_silence(A_WHILE);
}

#[test]
fn semaphore_without_holds_vanishes_unless_pinned() {
    let server = Server::start();
    let mut client = server.connect();
    for pinned in [false, true] {
        let left = i64::from(pinned);
        if pinned {
            client.ask("DSEM.LIMIT sem 2");
        }
        let (token, _) = client.ask("DSEM.ACQUIRE sem LIMIT 2").grant();
        assert_eq!(client.ask(format!("DSEM.RELEASE sem {token}")), 1);
        assert_eq!(client.ask("EXISTS sem"), left, "after a release");

        let (_, fence) = client.ask("DSEM.ACQUIRE sem LIMIT 2").grant();
        assert_eq!(client.ask(format!("DSEM.REVOKE sem {fence}")), 1);
        assert_eq!(client.ask("EXISTS sem"), left, "after a revocation");

        client.ask("DSEM.ACQUIRE sem LIMIT 2 PX 30").grant();
        eventually("the lapse of the hold", SOON, || {
            let info = client.ask("DSEM.INFO sem");
            info.is_nil() || *info.field("holders") == 0
        });
        assert_eq!(client.ask("EXISTS sem"), left, "after a lapse");
    }
    assert_eq!(info(&mut client, "pinned-limit"), 2);
    assert_eq!(client.ask("DSEM.LIMIT sem NONE"), 2);
    assert_eq!(client.ask("EXISTS sem"), 0);
    assert!(client.ask("DSEM.INFO sem").is_nil());
}

#[test]
fn semaphore_large_request_is_not_starved_by_small_ones() {
    let server = Server::start();
    let mut client = server.connect();
    let mut small: Vec<_> = (0..2)
        .map(|_| client.ask("DSEM.ACQUIRE sem LIMIT 3").grant().0)
        .collect();
    let mut large = server.waiting("DSEM.ACQUIRE sem PERMITS 3 BLOCK 0");
    // One permit stays free while the large request waits, and no small request gets it.
    let mut behind: Vec<_> = (0..3)
        .map(|_| server.waiting("DSEM.ACQUIRE sem BLOCK 0"))
        .collect();
    assert!(client.ask("DSEM.ACQUIRE sem").is_nil());
    assert_eq!(info(&mut client, "available"), 1);
    assert_eq!(
        client.ask(format!("DSEM.RELEASE sem {}", small.remove(0))),
        1
    );
    assert!(client.ask("DSEM.ACQUIRE sem").is_nil());
    large.expect_silence(A_WHILE);
    assert_eq!(
        client.ask(format!("DSEM.RELEASE sem {}", small.remove(0))),
        1
    );
    let (token, fence) = large.granted();
    behind[0].expect_silence(A_WHILE);
    assert_eq!(client.ask(format!("DSEM.RELEASE sem {token}")), 1);
    for waiter in &mut behind {
        assert!(waiter.granted().1 > fence);
    }
}

#[test]
fn semaphore_head_that_leaves_makes_room_for_the_next() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DSEM.ACQUIRE sem LIMIT 3").grant();
    // Two permits are free and the head wants three. First its connection closes.
    let head = server.waiting("DSEM.ACQUIRE sem PERMITS 3 BLOCK 0");
    let mut next = server.waiting("DSEM.ACQUIRE sem BLOCK 0");
    head.close();
    next.granted();
    // Then the next head's wait times out.
    let mut head = server.waiting("DSEM.ACQUIRE sem PERMITS 3 BLOCK 800");
    let mut next = server.connect();
    next.begin("DSEM.ACQUIRE sem BLOCK 0");
    assert!(head.reply().is_nil());
    next.granted();
}

#[test]
fn semaphore_waiters_that_fit_together_are_granted_together() {
    let server = Server::start();
    let mut client = server.connect();
    let (held, _) = client.ask("DSEM.ACQUIRE sem LIMIT 4 PERMITS 4").grant();
    let sizes = ["1", "2", "2", "1"];
    let mut waiters: Vec<_> = sizes
        .iter()
        .map(|size| server.waiting(format!("DSEM.ACQUIRE sem PERMITS {size} BLOCK 0")))
        .collect();
    assert_eq!(client.ask(format!("DSEM.RELEASE sem {held}")), 1);
    let (one, _) = waiters[0].granted();
    waiters[1].granted();
    // One permit is free, but the last waiter must not pass the one ahead of it.
    server.wait_for_blocked(2);
    waiters[3].expect_silence(A_WHILE);
    assert_eq!(client.ask(format!("DSEM.RELEASE sem {one}")), 1);
    waiters[2].granted();
    waiters[3].expect_silence(A_WHILE);
    assert_eq!(info(&mut client, "available"), 0);
}

#[test]
fn semaphore_repeated_request_takes_no_permits_and_sets_no_limit() {
    let server = Server::start();
    let mut client = server.connect();
    let first = client
        .ask("DSEM.ACQUIRE sem LIMIT 3 PERMITS 2 TOKEN t")
        .grant();
    let again = client
        .ask("DSEM.ACQUIRE sem LIMIT 9 PERMITS 2 TOKEN t")
        .grant();
    assert_eq!(again, first);
    assert_eq!(
        (info(&mut client, "limit"), info(&mut client, "available")),
        (3, 1)
    );
    let other = client.ask("DSEM.ACQUIRE sem PERMITS 1 TOKEN t");
    assert_error(&other, &["MISMATCH "]);
    assert_eq!(client.ask("DSEM.RELEASE sem t"), 1);
    assert_eq!(client.ask("DSEM.RELEASE sem t"), 0);
}

/// How the next test ends the hold of all three permits.
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
fn semaphore_permits_come_back_however_the_hold_ends() {
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
        // Together the two waiters need all three permits.
        let mut two = server.waiting("DSEM.ACQUIRE sem PERMITS 2 BLOCK 0");
        let mut one = server.connect();
        one.begin("DSEM.ACQUIRE sem BLOCK 0");
        match exit {
            Release => assert_eq!(client.ask(format!("DSEM.RELEASE sem {token}")), 1),
            Lapse => {}
            Disconnect => holder.close(),
            Revoke => assert_eq!(client.ask(format!("DSEM.REVOKE sem {fence}")), 1),
            Del => assert_eq!(client.ask("DEL sem"), 1),
            FlushAll => assert_eq!(client.ask("FLUSHALL"), "OK"),
        }
        let (_, second) = two.granted();
        let (_, third) = one.granted();
        assert!(
            fence < second && second < third,
            "{exit:?}: {fence}, {second}, {third}"
        );
        assert_eq!(client.ask(format!("DSEM.CHECK sem {token}")), 0, "{exit:?}");
        // Also after DEL and FLUSHALL the queue has the limit from before.
        assert_eq!(
            (info(&mut client, "limit"), info(&mut client, "available")),
            (3, 0),
            "{exit:?}"
        );
        assert!(client.ask("DSEM.ACQUIRE sem").is_nil(), "{exit:?}");
        client.ask("DEL sem");
    }
}
