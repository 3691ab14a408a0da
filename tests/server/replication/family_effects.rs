//! What a primary replicates when a limit, a round or a run changes, to the letter.
//!
//! `replication_effects` lists every change and the test that asserts it.

use super::watched_primary::{WatchedPrimary, fence_of, grant};
use crate::support::steps::{SOON, unix_ms};
use crate::support::*;

#[test]
fn limits_and_pins_are_replicated_with_the_grants_they_allow() {
    let mut primary = WatchedPrimary::start();
    // A pin makes the key.
    primary.forget();
    primary.ask("DSEM.LIMIT s 1");
    primary.expect(&["s semaphore | PIN 1"]);
    // While the semaphore is pinned, a request's LIMIT is remembered, and replicated.
    let a = primary.fence("DSEM.ACQUIRE s LIMIT 2 TOKEN a");
    primary.expect(&[format!(
        "s semaphore | LIMIT 2 | {}",
        grant(a, "1", 30_000, "a")
    )]);
    let mut waiters: Vec<_> = ["b", "c"]
        .iter()
        .map(|token| {
            primary
                .server
                .waiting(format!("DSEM.ACQUIRE s TOKEN {token} BLOCK 0"))
        })
        .collect();
    primary.expect_nothing();
    primary.ask("DSEM.LIMIT s NONE");
    let b = waiters[0].granted().1;
    primary.expect(&[format!(
        "s semaphore | PIN NONE | {}",
        grant(b, "1", 30_000, "b")
    )]);
    primary.ask("DSEM.LIMIT s 3");
    let c = waiters[1].granted().1;
    primary.expect(&[format!(
        "s semaphore | PIN 3 | {}",
        grant(c, "1", 30_000, "c")
    )]);
    primary.ask("DSEM.LIMIT s 0");
    primary.expect(&["s semaphore | PIN 0"]);
    for (token, fence) in [("a", a), ("b", b), ("c", c)] {
        assert_eq!(primary.ask(format!("DSEM.RELEASE s {token}")), 1);
        primary.expect(&[format!("s semaphore | END {fence} released @")]);
    }
    primary.ask("DSEM.LIMIT s NONE");
    primary.expect(&["s semaphore | PIN NONE | VANISH"]);

    // The limit of a group: with the first member, and with a queued request that raises it.
    let a = primary.fence("DWG.ADD g LIMIT 1 TOKEN a");
    primary.expect(&[format!(
        "g group | LIMIT 1 | {}",
        grant(a, "member", 30_000, "a")
    )]);
    let mut b = primary.server.waiting("DWG.ADD g LIMIT 1 TOKEN b BLOCK 0");
    primary.expect_nothing();
    // The limit takes force when its request enters the queue, and lets the first waiter in.
    let mut c = primary.server.connect();
    c.begin("DWG.ADD g LIMIT 2 TOKEN c BLOCK 0");
    let b = b.granted().1;
    primary.expect(&[format!(
        "g group | LIMIT 2 | {}",
        grant(b, "member", 30_000, "b")
    )]);
    primary.ask("DWG.ADD g LIMIT 3 TOKEN d");
    primary.expect_nothing();
}

#[test]
fn limit_is_replicated_only_when_it_changes() {
    let mut primary = WatchedPrimary::start();
    primary.forget();
    let a = primary.fence("DSEM.ACQUIRE s LIMIT 3 TOKEN a");
    let first = format!("s semaphore | LIMIT 3 | {}", grant(a, "1", 30_000, "a"));
    primary.expect(&[first]);
    let b = primary.fence("DSEM.ACQUIRE s LIMIT 3 TOKEN b");
    let second = format!("s semaphore | {}", grant(b, "1", 30_000, "b"));
    primary.expect(&[second]);
    assert_eq!(primary.ask("DSEM.LIMIT s 0"), 3);
    primary.expect(&["s semaphore | PIN 0"]);
    assert_eq!(primary.ask("DSEM.LIMIT s 0"), 0);
    primary.expect_nothing();
    // A refused request brings no limit into force.
    assert!(primary.ask("DSEM.ACQUIRE s LIMIT 9").is_nil());
    primary.expect_nothing();
}

#[test]
fn queued_request_replicates_its_limit_but_not_its_place() {
    let mut primary = WatchedPrimary::start();
    primary.fence("DSEM.ACQUIRE s LIMIT 1 TOKEN a");
    let mut head = primary
        .server
        .waiting("DSEM.ACQUIRE s LIMIT 1 TOKEN head BLOCK 0");
    primary.forget();
    let mut client = primary.server.connect();
    client.begin("DSEM.ACQUIRE s LIMIT 2 PERMITS 2 BLOCK 0");
    // The new limit has room for the first waiter.
    let fence = head.granted().1;
    let expected = grant(fence, "1", 30_000, "head");
    primary.expect(&[format!("s semaphore | LIMIT 2 | {expected}")]);
}

#[test]
fn round_is_replicated_from_expect_to_vanish() {
    let builder = Server::builder()
        .module_arg("group-idle-ms")
        .module_arg(1_000);
    let mut primary =
        WatchedPrimary::start_with(builder.module_arg("group-keep-ms").module_arg(40_000));
    primary.forget();
    primary.ask("DWG.EXPECT g 3");
    primary.ask("DWG.EXPECT g 2");
    primary.expect(&["g group | EXPECT 3 @", "g group | EXPECT 2 @"]);
    let a = primary.fence("DWG.ADD g TOKEN a");
    primary.forget();
    primary.ask("DWG.DONE g a");
    // One job is still owed: the round goes on without members.
    primary.expect(&[format!("g group | END {a} done @")]);
    // EXPECT with the number that is done finishes the round.
    let mut waiter = primary.server.waiting("DWG.WAIT g BLOCK 0");
    primary.ask("DWG.EXPECT g 1");
    primary.expect(&["g group | EXPECT 1 @ | FINISH @+40000"]);
    assert_eq!(waiter.reply().as_array(), [Reply::Int(1), Reply::Int(0)]);
    // The next round begins with EXPECT, without a change of its own.
    primary.ask("DWG.EXPECT g 5");
    primary.expect(&["g group | EXPECT 5 @"]);
    // Several ends of one call are one command.
    let (b, c) = (
        primary.fence("DWG.ADD g TOKEN b"),
        primary.fence("DWG.ADD g TOKEN c"),
    );
    primary.forget();
    assert_eq!(primary.ask("DWG.DONE g c b b nobody"), 2);
    primary.expect(&[format!("g group | END {c} done @ | END {b} done @")]);
    // The group is idle: the timer forgets it.
    primary.expect(&["g group | VANISH"]);
}

#[test]
fn finished_group_is_kept_and_then_vanishes() {
    const KEEP_MS: u64 = 300;
    let builder = Server::builder().module_arg("group-keep-ms");
    let mut primary = WatchedPrimary::start_with(builder.module_arg(KEEP_MS));
    primary.forget();
    assert_eq!(primary.ask("DWG.EXPECT g 2"), 2);
    primary.expect(&["g group | EXPECT 2 @"]);
    let a = primary.fence("DWG.ADD g TOKEN a");
    let b = primary.fence("DWG.ADD g TOKEN b");
    primary.forget();
    assert_eq!(primary.ask("DWG.DONE g a nobody"), 1);
    primary.expect(&[format!("g group | END {a} done @")]);
    let mut waiter = primary.server.waiting("DWG.WAIT g BLOCK 0");
    primary.expect_nothing();
    let done = unix_ms();
    assert_eq!(primary.ask("DWG.DONE g b"), 1);
    assert_eq!(waiter.reply().as_array(), [Reply::Int(2), Reply::Int(0)]);
    primary.expect_bare(&[
        format!("g group | END {b} done @ | FINISH @+{KEEP_MS}"),
        "g group | VANISH".to_owned(),
    ]);
    assert!(unix_ms() >= done + KEEP_MS, "the tally vanished early");
    assert_eq!(primary.ask("EXISTS g"), 0);
}

/// A hold that ends undelivered gives back what it displaced, by changes that dsync 0.3.0 knows too.
#[test]
fn what_an_undelivered_hold_displaced_is_replicated_with_its_end() {
    let mut primary = WatchedPrimary::start();
    let turn_of_dead = |primary: &mut WatchedPrimary, check: &str| {
        eventually("the turn of a dead client", SOON, || {
            primary.ask(check).as_int() > 0
        });
        primary.forget();
    };
    let fence = |primary: &mut WatchedPrimary, info: &str| {
        let info = primary.ask(info);
        info.field("first-holders").as_array()[0]
            .field("fence")
            .as_int()
    };
    // The turn of a run runs out unheard, and is cut short by the late DONE.
    for (key, keep_ms) in [("w", 4_000), ("x", 60_000)] {
        primary.ask(format!("DONCE.BEGIN {key} TOKEN a"));
        primary.ask(format!("DONCE.BEGIN {key} TOKEN dead QUEUE {keep_ms}"));
        primary.ask(format!("DONCE.RENEW {key} a PX 1"));
        turn_of_dead(&mut primary, &format!("DONCE.CHECK {key} dead"));
        let run = fence(&mut primary, &format!("DONCE.INFO {key}"));
        let end = format!("{key} once | END {run} undelivered @ | RECORD 1 @ lapsed 1:a NONE");
        if key == "w" {
            primary.expect(&[end]);
        } else {
            assert_eq!(primary.ask("DONCE.DONE x a PX 60000"), 1);
            primary.expect(&[end + " | COMPLETE NONE @+60000 1:a NONE"]);
        }
    }
    primary.ask("DWG.ADD g TOKEN a");
    assert_eq!(primary.ask("DWG.DONE g a"), 1);
    let until = primary
        .ask("DWG.INFO g")
        .field("kept-until-unix-ms")
        .as_int();
    primary.ask("DWG.PAUSE g 60000");
    primary.ask("DWG.ADD g TOKEN dead QUEUE 4000");
    primary.ask("DWG.PAUSE g 0");
    turn_of_dead(&mut primary, "DWG.CHECK g dead");
    let member = fence(&mut primary, "DWG.INFO g");
    let tally = format!("TALLY NONE 0 NONE 1 0 @ {until}");
    primary.expect(&[format!("g group | END {member} undelivered @ | {tally}")]);
}

#[test]
fn work_done_failed_or_given_up_is_replicated_with_the_next_run() {
    let builder = Server::builder().module_arg("once-keep-ms").module_arg(600);
    let mut primary = WatchedPrimary::start_with(builder);
    let run = |fence, token| grant(fence, "run", 30_000, token);
    // FAIL without and with a waiter.
    let a = primary.fence("DONCE.BEGIN w TOKEN a");
    primary.forget();
    primary.ask("DONCE.FAIL w a");
    primary.expect(&[format!("w once | FAIL {a} @ 6:failed")]);
    let b = primary.fence("DONCE.BEGIN w TOKEN b");
    let mut heir = primary.server.waiting("DONCE.BEGIN w TOKEN c BLOCK 0");
    primary.forget();
    primary.ask("DONCE.FAIL w b REASON no-disk");
    let c = fence_of(&heir.reply());
    primary.expect(&[format!("w once | FAIL {b} @ 7:no-disk | {}", run(c, "c"))]);
    // DONE with a waiter: nobody runs afterwards, so only COMPLETE is replicated.
    let mut waiter = primary.server.waiting("DONCE.BEGIN w TOKEN d BLOCK 0");
    primary.ask("DONCE.DONE w c RESULT r PX 700");
    assert_eq!(waiter.reply().as_array()[0], *"DONE");
    primary.expect(&[format!("w once | COMPLETE {c} @+700 1:c 1:r")]);
    primary.expect(&["w once | VANISH"]);

    // A waiter gives up in the command that ends the last attempt.
    let a = primary.fence("DONCE.BEGIN x TOKEN a PX 150");
    let mut hopeless = primary
        .server
        .waiting("DONCE.BEGIN x TOKEN b MAX 1 BLOCK 0");
    primary.next_commands(1);
    assert_eq!(hopeless.reply().as_array()[0], *"FAILED");
    primary.expect(&[format!("x once | END {a} lapsed @ | GIVEUP")]);
    // The record is kept as long as a result.
    primary.expect(&["x once | VANISH"]);

    // A try gives up. Then: a late DONE, which names no run.
    let a = primary.fence("DONCE.BEGIN y TOKEN a PX 1");
    let lapse = format!("y once | END {a} lapsed @");
    primary.expect(&[format!("y once | {}", grant(a, "run", 1, "a")), lapse]);
    primary.ask("DONCE.BEGIN y MAX 1");
    primary.expect(&["y once | GIVEUP", "y once | VANISH"]);
    let a = primary.fence("DONCE.BEGIN z TOKEN a PX 1");
    let lapse = format!("z once | END {a} lapsed @");
    primary.expect(&[format!("z once | {}", grant(a, "run", 1, "a")), lapse]);
    primary.ask("DONCE.DONE z a PX 90");
    primary.expect(&["z once | COMPLETE NONE @+90 1:a NONE", "z once | VANISH"]);
}
