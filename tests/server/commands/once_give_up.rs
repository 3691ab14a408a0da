//! Work-once, MAX: a request whose own MAX is reached is answered FAILED with the last reason, at once or in the queue.

use crate::commands::once_steps::*;
use crate::support::steps::*;
use crate::support::*;

#[test]
fn begin_with_max_reached_is_answered_failed() {
    let server = Server::start();
    let mut client = server.connect();
    for (n, reason) in ["one", "two", "three"].iter().enumerate() {
        let begun = client.ask("DONCE.BEGIN job MAX 3 TOKEN t");
        assert_eq!(attempt(&begun), n as i64 + 1);
        // No request is answered FAILED while a run may still succeed.
        assert!(client.ask("DONCE.BEGIN job MAX 1").is_nil());
        assert_eq!(client.ask(format!("DONCE.FAIL job t REASON {reason}")), 1);
    }
    for max in 1..=3 {
        for block in ["", "BLOCK 0"] {
            let line = format!("DONCE.BEGIN job MAX {max} {block}");
            assert_failed(&client.ask(line), "three", 3);
        }
    }
    assert_eq!(attempt(&client.ask("DONCE.BEGIN job MAX 4 TOKEN t")), 4);
    assert_eq!(client.ask("DONCE.FAIL job t"), 1);
    assert_failed(&client.ask("DONCE.BEGIN job MAX 4"), "failed", 4);
    // Without MAX a request never gives up.
    assert_eq!(attempt(&client.ask("DONCE.BEGIN job TOKEN t")), 5);
    assert_eq!(client.ask("DONCE.DONE job t"), 1);
    assert_done(&client.ask("DONCE.BEGIN job MAX 1"), None, 5);
}

#[test]
fn queued_begin_with_max_reached_is_answered_failed() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DONCE.BEGIN job TOKEN a");
    let mut one = server.waiting("DONCE.BEGIN job MAX 1 BLOCK 0");
    let mut one_too = server.waiting("DONCE.BEGIN job MAX 1 BLOCK 0");
    let mut two = server.waiting("DONCE.BEGIN job MAX 2 TOKEN b BLOCK 0");
    let mut two_too = server.waiting("DONCE.BEGIN job MAX 2 BLOCK 0");
    let mut any = server.waiting("DONCE.BEGIN job TOKEN c BLOCK 0");
    assert_eq!(client.ask("DONCE.FAIL job a REASON first"), 1);
    assert_failed(&one.reply(), "first", 1);
    assert_failed(&one_too.reply(), "first", 1);
    assert_eq!(attempt(&two.reply()), 2);
    two_too.expect_silence(A_WHILE);
    assert_eq!(client.ask("DONCE.FAIL job b REASON second"), 1);
    assert_failed(&two_too.reply(), "second", 2);
    assert_eq!(attempt(&any.reply()), 3);
}

#[test]
fn attempt_without_reason_gets_the_way_it_ended_as_reason() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DONCE.BEGIN lapsing PX 20");
    wait_until_idle(&mut client, "lapsing");
    assert_failed(&client.ask("DONCE.BEGIN lapsing MAX 1"), "lapsed", 1);

    let fence = run(&client.ask("DONCE.BEGIN revoked")).fence;
    assert_eq!(client.ask(format!("DONCE.REVOKE revoked {fence}")), 1);
    assert_failed(&client.ask("DONCE.BEGIN revoked MAX 1"), "revoked", 1);

    let mut worker = server.connect();
    worker.ask("DONCE.BEGIN ephemeral EPHEMERAL");
    worker.close();
    wait_until_idle(&mut client, "ephemeral");
    assert_failed(&client.ask("DONCE.BEGIN ephemeral MAX 1"), "lapsed", 1);

    // A competing request ends an overdue run before it is judged itself.
    let replies = client.ask_all([
        "DONCE.BEGIN overdue PX 20",
        "DEBUG SLEEP 0.06",
        "DONCE.BEGIN overdue MAX 1",
        "DONCE.BEGIN overdue MAX 2 TOKEN t",
    ]);
    assert_failed(&replies[2], "lapsed", 1);
    assert_eq!(attempt(&replies[3]), 2);
}

#[test]
fn thousand_waiters_with_max_reached_all_get_failed() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DONCE.BEGIN job TOKEN t");
    let mut waiters: Vec<_> = (0..1_000).map(|_| server.connect()).collect();
    for waiter in &mut waiters {
        waiter.begin("DONCE.BEGIN job MAX 1 BLOCK 0");
    }
    server.wait_for_blocked(1_000);
    let mut last = server.waiting("DONCE.BEGIN job MAX 2 BLOCK 0");
    assert_eq!(client.ask("DONCE.FAIL job t REASON r"), 1);
    for waiter in &mut waiters {
        assert_failed(&waiter.reply(), "r", 1);
    }
    assert_eq!(attempt(&last.reply()), 2);
}
