//! PAUSE on replicas and in the AOF: what is replicated, to the letter, and what becomes of a pause when its primary is
//! gone.
//!
//! The end of a pause is a change of its own, so a replica never ends one by its clock, and has what its primary has.

use super::role_change::pair;
use super::watched_primary::{FAMILIES, WatchedPrimary};
use crate::support::data_files::{kill_and_start, rewrite_aof, with_safe_aof};
use crate::support::steps::*;
use crate::support::*;

#[test]
fn pause_and_its_end_are_replicated_beside_what_follows() {
    let mut primary = WatchedPrimary::start();
    for family in &FAMILIES {
        let key = family.prefix.to_lowercase();
        let about = family.about(&key);
        let pause = |ms: u32| format!("{}.PAUSE {key} {ms}", family.prefix);
        primary.forget();
        // A pause makes the key, and with its end the key goes.
        primary.ask(pause(600_000));
        primary.expect_bare(&[format!("{about} | PAUSE @+600000")]);
        primary.ask(pause(500_000));
        primary.expect_bare(&[format!("{about} | PAUSE @+500000")]);
        primary.ask(pause(0));
        primary.expect(&[format!("{about} | PAUSE NONE"), format!("{about} | VANISH")]);
        primary.ask(pause(0));
        primary.expect_nothing();
        // The timer ends it.
        primary.ask(pause(5));
        let rest = [format!("{about} | PAUSE NONE"), format!("{about} | VANISH")];
        primary.expect(&[&[format!("{about} | PAUSE @+5")][..], &rest].concat());
    }
}

#[test]
fn end_of_pause_and_the_grants_it_allows_are_replicated_together() {
    let mut primary = WatchedPrimary::start();
    for family in &FAMILIES {
        let key = family.prefix.to_lowercase();
        let about = family.about(&key);
        primary.ask(format!("{}.PAUSE {key} 600000", family.prefix));
        let mut waiter = primary.queued(format!("{} BLOCK 0", family.request(&key, "w")));
        primary.forget();
        primary.ask(format!("{}.PAUSE {key} 0", family.prefix));
        let fence = fence_in(&reply(&mut waiter)).expect("a grant");
        let grant = family.grant(fence, "w");
        primary.expect(&[
            format!("{about} | PAUSE NONE"),
            format!("{about} | {grant}"),
        ]);
    }
}

/// The timer may be late: a pause that is over holds nobody back.
#[test]
fn request_after_the_end_of_a_pause_is_granted_before_the_timer() {
    let mut primary = WatchedPrimary::start();
    primary.forget();
    let lines = [
        "DLOCK.PAUSE k 2",
        "DEBUG SLEEP 0.01",
        "DLOCK.ACQUIRE k TOKEN t",
    ];
    let replies = at_once(&mut primary.client, &lines);
    let fence = fence_in(&replies[2]).expect("a grant");
    primary.expect(&[
        "k lock | PAUSE @+2".to_owned(),
        "k lock | PAUSE NONE".to_owned(),
        "k lock | VANISH".to_owned(),
        format!("k lock | {}", FAMILIES[0].grant(fence, "t")),
    ]);
}

#[test]
fn replica_shows_a_pause_and_keeps_it_when_promoted() {
    let (old, new) = pair();
    let mut client = old.connect();
    ask(&mut client, "DLOCK.PAUSE long 600000");
    ask(&mut client, "DONCE.PAUSE work 600000");
    new.wait_to_catch_up_with(&old);
    for key in ["long", "work"] {
        assert_eq!(digest(&new, key), digest(&old, key));
    }
    let mut replica = new.connect();
    let info = ask(&mut replica, "DLOCK.INFO long");
    assert_eq!(*info.field("state"), "paused");
    assert!(info.field("paused-ms").as_int() > 500_000);
    assert!(
        ask(&mut replica, "DLOCK.PAUSE long 0")
            .error()
            .starts_with("READONLY")
    );
    ask(&mut replica, "REPLICAOF NO ONE");
    assert!(ask(&mut replica, "DLOCK.ACQUIRE long").is_nil());
    let mut waiter = queued(&new, "DLOCK.ACQUIRE long BLOCK 0 TOKEN w");
    assert!(ask(&mut replica, "DLOCK.PAUSE long 0").as_int() > 500_000);
    assert_eq!(granted(&mut waiter).0, "w");
    assert!(ask(&mut replica, "DONCE.BEGIN work").is_nil());
    assert_calm(&new);
}

/// The primary dies in the pause. Its replica shows the pause as over when its moment has come, but ends it only when it
/// is promoted.
#[test]
fn promoted_replica_carries_out_the_end_of_a_pause() {
    let (old, new) = pair();
    let mut client = old.connect();
    ask(&mut client, "DLOCK.PAUSE k 700");
    ask(&mut client, "DLOCK.PAUSE alone 700");
    new.wait_to_catch_up_with(&old);
    old.stop();
    let before = digest(&new, "k");
    let mut replica = new.connect();
    eventually("the moment of its end", SOON, || {
        *ask(&mut replica, "DLOCK.INFO k").field("paused-ms") == 0
    });
    assert_eq!(*ask(&mut replica, "DLOCK.INFO k").field("state"), "free");
    assert_eq!(digest(&new, "k"), before, "a replica decides nothing");
    ask(&mut replica, "REPLICAOF NO ONE");
    let (token, _) = ask(&mut replica, "DLOCK.ACQUIRE k TOKEN t").grant();
    assert_eq!(token, "t");
    wait_until_gone(&mut replica, "alone");
    old.cont();
    assert_calm(&new);
}

/// The pause goes on by the wall clock after a restart, and ends without a command.
#[test]
fn restarted_server_goes_on_with_a_pause_and_ends_it() {
    for preamble in [true, false] {
        for rewritten in [true, false] {
            let mut server = with_safe_aof(preamble).start();
            let mut client = server.connect();
            ask(&mut client, "DLOCK.PAUSE long 600000");
            let until = unix_ms() + 1_500;
            ask(&mut client, "DSEM.PAUSE short 1500");
            ask(&mut client, "DONCE.PAUSE ended 600000");
            ask(&mut client, "DONCE.PAUSE ended 0");
            if rewritten {
                rewrite_aof(&server);
            }
            let before = digest(&server, "long");
            kill_and_start(&mut server);
            let mut client = server.connect();
            assert_eq!(digest(&server, "long"), before, "preamble {preamble}");
            assert!(ask(&mut client, "DLOCK.ACQUIRE long").is_nil());
            assert_eq!(ask(&mut client, "EXISTS ended"), 0);
            let mut waiter = server.connect();
            tell(&mut waiter, "DSEM.ACQUIRE short LIMIT 1 BLOCK 0 TOKEN w");
            assert_eq!(granted(&mut waiter).0, "w");
            assert!(unix_ms() >= until - 1, "not before its end");
            assert_calm(&server);
        }
    }
}

/// The primary dies with the request that kept the round of a paused group open. The round is as it was until the pause
/// ends, or a command that may write comes.
#[test]
fn promoted_replica_finishes_round_of_paused_group_that_lost_its_queued_add() {
    let (old, new) = pair();
    let mut client = old.connect();
    let _adding = ["asked", "left"].map(|group| {
        ask(&mut client, format!("DWG.ADD {group} LIMIT 1 TOKEN t")).grant();
        let mut adding = old.connect();
        tell(
            &mut adding,
            format!("DWG.ADD {group} LIMIT 1 TOKEN u BLOCK 0"),
        );
        adding
    });
    wait_for_blocked(&old, 2);
    ask(&mut client, "DWG.PAUSE asked 600000");
    ask(&mut client, "DWG.PAUSE left 1000");
    for group in ["asked", "left"] {
        assert_eq!(ask(&mut client, format!("DWG.DONE {group} t")), 1);
    }
    new.wait_to_catch_up_with(&old);
    old.stop();
    let mut replica = new.connect();
    ask(&mut replica, "REPLICAOF NO ONE");
    let info = ask(&mut replica, "DWG.INFO asked");
    assert_eq!(*info.field("state"), "paused", "{info:?}");
    let finished = Reply::Array(vec![Reply::Int(1), Reply::Int(0)]);
    assert_eq!(ask(&mut replica, "DWG.WAIT asked"), finished);
    eventually("the end of the round", SOON, || {
        *ask(&mut replica, "DWG.INFO left").field("state") == "finished"
    });
    old.cont();
    assert_calm(&new);
}
