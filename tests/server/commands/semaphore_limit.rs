//! Semaphores, the limit: which one is in force, when a request's LIMIT takes force, what `DSEM.LIMIT` pins, and what a
//! change means for holders and waiters.

use crate::commands::semaphore_steps::*;
use crate::support::steps::*;
use crate::support::*;

#[test]
fn semaphore_request_without_any_limit_is_refused() {
    let server = Server::start();
    let mut client = server.connect();
    for block in [&[][..], &["BLOCK", "0"]] {
        let reply = client.call(&[&["DSEM.ACQUIRE", "sem"], block].concat());
        assert_error(&reply, &["NOLIMIT "]);
        assert_eq!(client.ask("EXISTS sem"), 0);
    }
    let (first, _) = client.ask("DSEM.ACQUIRE sem LIMIT 2").grant();
    client.ask("DSEM.ACQUIRE sem").grant();
    assert!(
        client.ask("DSEM.ACQUIRE sem").is_nil(),
        "the limit in force is the one of the first"
    );
    assert_eq!(client.ask(format!("DSEM.RELEASE sem {first}")), 1);
    client.ask("DSEM.ACQUIRE sem").grant();
    client.ask("DEL sem");
    assert_error(&client.ask("DSEM.ACQUIRE sem"), &["NOLIMIT "]);
}

#[test]
fn semaphore_permits_above_the_limit_are_refused() {
    let server = Server::start();
    let mut client = server.connect();
    for block in [&[][..], &["BLOCK", "0"]] {
        let own = [
            &["DSEM.ACQUIRE", "sem", "LIMIT", "3", "PERMITS", "4"],
            block,
        ]
        .concat();
        assert_error(&client.call(&own), &["TOOMANY ", "4", "3"]);
        assert_eq!(client.ask("EXISTS sem"), 0);
    }
    client.ask("DSEM.ACQUIRE sem LIMIT 5").grant();
    let before = server.digest("sem");
    for block in [&[][..], &["BLOCK", "0"]] {
        let in_force = [&["DSEM.ACQUIRE", "sem", "PERMITS", "6"], block].concat();
        assert_error(&client.call(&in_force), &["TOOMANY ", "6", "5"]);
        // A request's own limit counts, not the larger one in force.
        let own = [
            &["DSEM.ACQUIRE", "sem", "LIMIT", "2", "PERMITS", "3"],
            block,
        ]
        .concat();
        assert_error(&client.call(&own), &["TOOMANY ", "3", "2"]);
    }
    assert_eq!(server.digest("sem"), before);
    // A pinned limit overrides the request's own.
    client.ask("DSEM.LIMIT sem 4");
    let reply = client.ask("DSEM.ACQUIRE sem LIMIT 9 PERMITS 5 BLOCK 0");
    assert_error(&reply, &["TOOMANY ", "5", "4"]);
    // The whole limit may be asked for.
    client.ask("DEL sem");
    client.ask("DSEM.ACQUIRE sem LIMIT 4 PERMITS 4").grant();
}

#[test]
fn semaphore_limit_lowered_refuses_waiters_for_more() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DSEM.ACQUIRE sem LIMIT 5 PERMITS 3").grant();
    let mut three = server.waiting("DSEM.ACQUIRE sem PERMITS 3 BLOCK 0");
    let mut five = server.waiting("DSEM.ACQUIRE sem PERMITS 5 BLOCK 0");
    let mut one = server.waiting("DSEM.ACQUIRE sem BLOCK 0");
    let mut four = server.waiting("DSEM.ACQUIRE sem PERMITS 4 BLOCK 0");

    assert_eq!(client.ask("DSEM.LIMIT sem 3"), 5);
    assert_error(&five.reply(), &["TOOMANY ", "5", "3"]);
    assert_error(&four.reply(), &["TOOMANY ", "4", "3"]);
    server.wait_for_blocked(2);
    three.expect_silence(A_WHILE);
    one.expect_silence(A_WHILE);

    // After NONE, the limit of a new request does the same. The head is refused, and waiters that fit are served.
    assert_eq!(client.ask("DSEM.LIMIT sem NONE"), 3);
    let mut two = server.connect();
    two.begin("DSEM.ACQUIRE sem LIMIT 2 PERMITS 2 BLOCK 0");
    assert_error(&three.reply(), &["TOOMANY ", "3", "2"]);
    server.wait_for_blocked(2);
    assert_eq!(info(&mut client, "limit"), 2);
    assert_eq!(info(&mut client, "waiters"), 2);
    let fence = client
        .ask("DSEM.INFO sem")
        .field("first-holders")
        .as_array()[0]
        .field("fence")
        .as_int();
    assert_eq!(client.ask(format!("DSEM.REVOKE sem {fence}")), 1);
    one.granted();
    two.expect_silence(A_WHILE);
}

#[test]
fn semaphore_limit_takes_force_when_its_request_is_granted() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DSEM.ACQUIRE sem LIMIT 1").grant();
    assert_eq!(info(&mut client, "limit"), 1);
    assert!(client.ask("DSEM.ACQUIRE sem").is_nil());
    client.ask("DSEM.ACQUIRE sem LIMIT 3").grant();
    assert_eq!(info(&mut client, "limit"), 3);
    assert_eq!(info(&mut client, "available"), 1);
    client.ask("DSEM.ACQUIRE sem").grant();
    assert!(client.ask("DSEM.ACQUIRE sem").is_nil());
}

#[test]
fn semaphore_limit_takes_force_once_when_its_request_queues() {
    let server = Server::start();
    let mut client = server.connect();
    let (held, _) = client.ask("DSEM.ACQUIRE sem LIMIT 1").grant();
    let mut first = server.waiting("DSEM.ACQUIRE sem LIMIT 2 PERMITS 2 BLOCK 0");
    assert_eq!(info(&mut client, "limit"), 2);
    assert_eq!(info(&mut client, "available"), 1);
    let mut second = server.connect();
    second.begin("DSEM.ACQUIRE sem LIMIT 4 PERMITS 4 BLOCK 0");
    // The second's limit makes room for the first. The first's own, smaller limit does not return with its grant.
    let (first, _) = first.granted();
    server.wait_for_blocked(1);
    assert_eq!(info(&mut client, "limit"), 4);
    assert_eq!(client.ask(format!("DSEM.RELEASE sem {held}")), 1);
    second.expect_silence(A_WHILE);
    assert_eq!(client.ask(format!("DSEM.RELEASE sem {first}")), 1);
    second.granted();
    assert_eq!(info(&mut client, "limit"), 4);
    assert_eq!(info(&mut client, "available"), 0);
}

#[test]
fn semaphore_limit_follows_a_rolling_deploy_and_its_rollback() {
    let server = Server::start();
    let mut client = server.connect();
    let old = ["DSEM.ACQUIRE", "sem", "LIMIT", "2"];
    let new = ["DSEM.ACQUIRE", "sem", "LIMIT", "4"];
    let mut holds: Vec<_> = [old, old, new, new]
        .iter()
        .map(|request| client.call(request).grant().0)
        .collect();
    assert!(client.call(&new).is_nil(), "four hold already");
    assert!(client.call(&old).is_nil());
    assert_eq!(info(&mut client, "limit"), 4, "a refused try sets no limit");

    // The deploy is rolled back: the request of an old worker, which waits, sets the old limit, and the holds drain.
    let mut waiter = server.waiting("DSEM.ACQUIRE sem LIMIT 2 BLOCK 0");
    assert_eq!(info(&mut client, "limit"), 2);
    for token in holds.drain(..2) {
        assert_eq!(client.ask(format!("DSEM.RELEASE sem {token}")), 1);
    }
    waiter.expect_silence(A_WHILE);
    assert_eq!(
        client.ask(format!("DSEM.RELEASE sem {}", holds.remove(0))),
        1
    );
    waiter.granted();
    assert!(client.call(&old).is_nil());
    client.call(&new).grant();
    assert_eq!(info(&mut client, "limit"), 4);
}

#[test]
fn semaphore_limit_raised_serves_queue_in_order() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DSEM.LIMIT sem 1");
    client.ask("DSEM.ACQUIRE sem LIMIT 7").grant();
    let mut waiters: Vec<_> = (0..6)
        .map(|_| server.waiting("DSEM.ACQUIRE sem BLOCK 0"))
        .collect();

    assert_eq!(client.ask("DSEM.LIMIT sem 4"), 1);
    let fences: Vec<_> = waiters[..3]
        .iter_mut()
        .map(|waiter| waiter.granted().1)
        .collect();
    assert!(fences.is_sorted(), "{fences:?}");
    server.wait_for_blocked(3);
    waiters[3].expect_silence(A_WHILE);

    // After NONE the remembered limit of seven is in force, and the other waiters fit.
    assert_eq!(client.ask("DSEM.LIMIT sem NONE"), 4);
    waiters[3..]
        .iter_mut()
        .for_each(|waiter| drop(waiter.granted()));
    assert_eq!(info(&mut client, "limit"), 7);
    assert_eq!(info(&mut client, "available"), 0);

    // The limit of a new request raises it too.
    let mut eighth = server.waiting("DSEM.ACQUIRE sem PERMITS 3 BLOCK 0");
    let mut ninth = server.connect();
    ninth.begin("DSEM.ACQUIRE sem LIMIT 11 BLOCK 0");
    eighth.granted();
    ninth.granted();
}

#[test]
fn semaphore_limit_lowered_below_use_ends_no_hold() {
    let server = Server::start();
    let mut client = server.connect();
    let tokens: Vec<_> = (0..4)
        .map(|_| client.ask("DSEM.ACQUIRE sem LIMIT 4").grant().0)
        .collect();
    assert_eq!(client.ask("DSEM.LIMIT sem 2"), 4);
    for token in &tokens {
        assert!(client.ask(format!("DSEM.CHECK sem {token}")).as_int() > 0);
        assert_eq!(client.ask(format!("DSEM.RENEW sem {token}")), 1);
    }
    assert_eq!(info(&mut client, "available"), 0);
    assert_eq!(info(&mut client, "holders"), 4);
    let mut waiter = server.waiting("DSEM.ACQUIRE sem BLOCK 0");
    for token in &tokens[..2] {
        assert_eq!(client.ask(format!("DSEM.RELEASE sem {token}")), 1);
        waiter.expect_silence(A_WHILE);
    }
    assert_eq!(client.ask(format!("DSEM.RELEASE sem {}", tokens[2])), 1);
    waiter.granted();
    assert_eq!(info(&mut client, "available"), 0);
}

#[test]
fn semaphore_limit_command_answers_the_limit_before() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(client.ask("DSEM.LIMIT sem NONE"), -1);
    assert_eq!(client.ask("EXISTS sem"), 0, "there was nothing to unpin");
    assert_eq!(client.ask("DSEM.LIMIT sem 5"), -1);
    assert_eq!(client.ask("DSEM.LIMIT sem 0"), 5);
    assert_eq!(client.ask("DSEM.LIMIT sem 1000000"), 0);
    assert_eq!(client.ask("DSEM.LIMIT sem none"), 1_000_000);
    assert_eq!(
        client.ask("EXISTS sem"),
        0,
        "neither pinned nor held: it vanishes"
    );

    client.ask("DSEM.ACQUIRE sem LIMIT 2").grant();
    assert_eq!(client.ask("DSEM.LIMIT sem 7"), 2);
    assert_eq!(client.ask("DSEM.LIMIT sem NONE"), 7);
    assert_eq!(client.ask("DSEM.LIMIT sem NONE"), 2);
    assert_eq!(info(&mut client, "limit"), 2);
}

#[test]
fn semaphore_limit_of_zero_pauses_until_raised() {
    let server = Server::start();
    let mut client = server.connect();
    let (held, _) = client.ask("DSEM.ACQUIRE sem LIMIT 2").grant();
    assert_eq!(client.ask("DSEM.LIMIT sem 0"), 2);
    assert_eq!(*client.ask("DSEM.INFO sem").field("state"), "paused");
    assert!(
        client.ask(format!("DSEM.CHECK sem {held}")).as_int() > 0,
        "a pause takes nothing away"
    );
    assert!(client.ask("DSEM.ACQUIRE sem LIMIT 2").is_nil());
    let mut first = server.waiting("DSEM.ACQUIRE sem BLOCK 0");
    // No size is refused while the limit is 0: the limit that will follow is not known.
    let mut large = server.waiting("DSEM.ACQUIRE sem PERMITS 1000000 BLOCK 0");
    assert_eq!(client.ask(format!("DSEM.RELEASE sem {held}")), 1);
    first.expect_silence(A_WHILE);
    assert_eq!(client.ask("EXISTS sem"), 1);

    assert_eq!(client.ask("DSEM.LIMIT sem 3"), 0);
    first.granted();
    assert_error(&large.reply(), &["TOOMANY ", "1000000", "3"]);
}

#[test]
fn semaphore_paused_before_first_request_lets_requests_queue() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(client.ask("DSEM.LIMIT sem 0"), -1);
    assert!(client.ask("DSEM.ACQUIRE sem").is_nil());
    let mut waiter = server.waiting("DSEM.ACQUIRE sem LIMIT 2 BLOCK 0");
    waiter.expect_silence(A_WHILE);
    assert_eq!(client.ask("DSEM.LIMIT sem NONE"), 0);
    waiter.granted();
    assert_eq!(
        info(&mut client, "limit"),
        2,
        "remembered from the request when it queued"
    );
}

#[test]
fn semaphore_waiter_left_without_limit_is_refused() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DSEM.LIMIT sem 1");
    client.ask("DSEM.ACQUIRE sem").grant();
    let mut waiter = server.waiting("DSEM.ACQUIRE sem BLOCK 0");
    assert_eq!(client.ask("DSEM.LIMIT sem NONE"), 1);
    assert_error(&waiter.reply(), &["NOLIMIT "]);
}

#[test]
fn semaphore_limits_of_requests_are_remembered_while_pinned() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DSEM.LIMIT sem 1");
    client.ask("DSEM.ACQUIRE sem LIMIT 5").grant();
    assert_eq!(info(&mut client, "limit"), 1);
    // A try is judged by the pinned limit; when it is refused, its own limit is not remembered.
    assert!(client.ask("DSEM.ACQUIRE sem LIMIT 9").is_nil());
    assert_eq!(client.ask("DSEM.LIMIT sem NONE"), 1);
    assert_eq!(info(&mut client, "limit"), 5);
    assert!(client.ask("DSEM.INFO sem").field("pinned-limit").is_nil());
    assert_eq!(info(&mut client, "available"), 4);
}

#[test]
fn semaphore_limit_changes_are_counted() {
    let server = Server::start();
    let mut client = server.connect();
    let acquire = |client: &mut Client, limit: i64| {
        client
            .ask(format!("DSEM.ACQUIRE sem LIMIT {limit}"))
            .grant();
        (info(client, "limit"), info(client, "limit-changes"))
    };
    assert_eq!(
        acquire(&mut client, 8),
        (8, 0),
        "the first limit is no change"
    );
    assert_eq!(acquire(&mut client, 8), (8, 0));
    assert_eq!(acquire(&mut client, 9), (9, 1));
    client.ask("DSEM.LIMIT sem 9");
    assert_eq!(
        info(&mut client, "limit-changes"),
        1,
        "pinned to the limit in force"
    );
    client.ask("DSEM.LIMIT sem 7");
    assert_eq!(info(&mut client, "limit-changes"), 2);
    assert_eq!(acquire(&mut client, 6), (7, 2), "remembered only");
    client.ask("DSEM.LIMIT sem NONE");
    assert_eq!(
        (
            info(&mut client, "limit"),
            info(&mut client, "limit-changes")
        ),
        (6, 3)
    );
    // A request that waits changes the limit; a refused try does not.
    let _waiter = server.waiting("DSEM.ACQUIRE sem LIMIT 5 PERMITS 5 BLOCK 0");
    client.ask("DSEM.ACQUIRE sem LIMIT 4");
    assert_eq!(
        (
            info(&mut client, "limit"),
            info(&mut client, "limit-changes")
        ),
        (5, 4)
    );
}
