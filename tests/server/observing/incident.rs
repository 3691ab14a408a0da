//! An incident at three in the morning, from the first question to the last command: CONTENDED, PAUSE, INFO, REVOKE,
//! PAUSE 0.

use crate::support::steps::*;
use crate::support::*;

/// Asserts that the longest wait is for this key, and returns what INFO says of it.
#[track_caller]
fn stuck(client: &mut Client, family: &str, key: &str, waiters: i64) -> Reply {
    let contended = client.ask("DSYNC.CONTENDED COUNT 1");
    let [row] = contended.as_array() else {
        panic!("one key is stuck: {contended:?}");
    };
    assert_eq!(row.as_array()[1], *key);
    assert_eq!(row.as_array()[3], waiters);
    client.ask(format!("{family}.INFO {key}"))
}

/// The fence of the only holder, with this owner.
#[track_caller]
fn holder(info: &Reply, owner: &str) -> i64 {
    let holders = info.field("first-holders").as_array();
    let [holder] = holders else {
        panic!("one holder: {holders:?}");
    };
    assert_eq!(*holder.field("owner"), owner);
    holder.field("fence").as_int()
}

/// A worker hangs with the lock, and the next ones would hang in the same way. The operator lets nobody in, ends the
/// hold, looks, repairs what was broken, and lets the queue go on where it stood.
#[test]
fn stuck_lock_is_paused_revoked_examined_and_goes_on_in_order() {
    let server = Server::start();
    let mut operator = server.connect();
    let mut hanging = server.connect();
    hanging.ask("DLOCK.ACQUIRE deploy EX 3600 TOKEN a OWNER web-1");
    let mut second = server.waiting("DLOCK.ACQUIRE deploy BLOCK 0 TOKEN b OWNER web-2");
    let mut third = server.waiting("DLOCK.ACQUIRE deploy BLOCK 0 TOKEN c OWNER web-3");

    let fence = holder(&stuck(&mut operator, "DLOCK", "deploy", 2), "web-1");
    assert_eq!(operator.ask("DLOCK.PAUSE deploy 600000"), 0);
    assert_eq!(operator.ask(format!("DLOCK.REVOKE deploy {fence}")), 1);
    let info = operator.ask("DLOCK.INFO deploy");
    assert_eq!(*info.field("state"), "paused");
    assert_eq!(*info.field("holders"), 0);
    assert_eq!(*info.field("waiters"), 2, "nobody was let in");
    // The worker that hung learns of it, and finds nothing to take.
    assert_eq!(hanging.ask("DLOCK.RENEW deploy a"), 0);
    assert!(hanging.ask("DLOCK.ACQUIRE deploy TOKEN d").is_nil());
    // Who comes now stands behind those who came before.
    let mut fourth = server.waiting("DLOCK.ACQUIRE deploy BLOCK 0 TOKEN e");
    assert!(operator.ask("DLOCK.PAUSE deploy 0").as_int() > 0);

    for (waiter, token) in [(&mut second, "b"), (&mut third, "c"), (&mut fourth, "e")] {
        assert_eq!(waiter.granted().0, token);
        assert_eq!(operator.ask(format!("DLOCK.RELEASE deploy {token}")), 1);
    }
    assert_eq!(operator.ask("EXISTS deploy"), 0, "nothing is left of it");
    assert_calm(&server);
}

/// A nightly job fails in the same way in whatever process runs it. The operator stops the retries, ends the run that
/// is still at it, reads the reason, and lets the next one run when the disk has room again.
#[test]
fn failing_work_is_paused_revoked_examined_and_goes_on_with_its_attempts() {
    let server = Server::start();
    let mut operator = server.connect();
    let mut worker = server.connect();
    worker.ask("DONCE.BEGIN report TOKEN a OWNER web-1");
    let mut second = server.waiting("DONCE.BEGIN report BLOCK 0 TOKEN b OWNER web-2");
    let mut third = server.waiting("DONCE.BEGIN report BLOCK 0 TOKEN c OWNER web-3");
    worker.ask("DONCE.FAIL report a REASON 'no disk space'");
    assert_eq!(second.reply().as_array()[0], *"RUN");

    let info = stuck(&mut operator, "DONCE", "report", 1);
    assert_eq!(*info.field("last-reason"), "no disk space");
    let fence = holder(&info, "web-2");
    assert_eq!(operator.ask("DONCE.PAUSE report 600000"), 0);
    assert_eq!(operator.ask(format!("DONCE.REVOKE report {fence}")), 1);
    let info = operator.ask("DONCE.INFO report");
    assert_eq!(*info.field("state"), "paused");
    assert_eq!(*info.field("attempts"), 2);
    assert_eq!(*info.field("waiters"), 1);
    assert!(worker.ask("DONCE.BEGIN report TOKEN d").is_nil());
    assert_eq!(second.ask("DONCE.DONE report b"), 0, "it was revoked");
    third.expect_silence(A_WHILE);

    assert!(operator.ask("DONCE.PAUSE report 0").as_int() > 0);
    let run = third.reply();
    assert_eq!(run.as_array()[3], 3, "the third attempt");
    assert_eq!(third.ask("DONCE.DONE report c RESULT r"), 1);
    assert_eq!(worker.ask("DONCE.BEGIN report").as_array()[1], *"r");
    assert_calm(&server);
}
