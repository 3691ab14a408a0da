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
        let key = family.prefix().to_lowercase();
        let about = family.about(&key);
        let pause = |ms: u32| format!("{}.PAUSE {key} {ms}", family.prefix());
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
        let key = family.prefix().to_lowercase();
        let about = family.about(&key);
        primary.ask(format!("{}.PAUSE {key} 600000", family.prefix()));
        let mut waiter = primary
            .server
            .waiting(format!("{} BLOCK 0", family.request(&key, "w")));
        primary.forget();
        primary.ask(format!("{}.PAUSE {key} 0", family.prefix()));
        let fence = fence_in(&waiter.reply()).expect("a grant");
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
    let replies = primary.client.ask_all(lines);
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
    client.ask("DLOCK.PAUSE long 600000");
    client.ask("DONCE.PAUSE work 600000");
    new.wait_to_catch_up_with(&old);
    for key in ["long", "work"] {
        assert_eq!(new.digest(key), old.digest(key));
    }
    let mut replica = new.connect();
    let info = replica.ask("DLOCK.INFO long");
    assert_eq!(*info.field("state"), "paused");
    assert!(info.field("paused-ms").as_int() > 500_000);
    assert!(
        replica
            .ask("DLOCK.PAUSE long 0")
            .error()
            .starts_with("READONLY")
    );
    replica.ask("REPLICAOF NO ONE");
    assert!(replica.ask("DLOCK.ACQUIRE long").is_nil());
    let mut waiter = new.waiting("DLOCK.ACQUIRE long BLOCK 0 TOKEN w");
    assert!(replica.ask("DLOCK.PAUSE long 0").as_int() > 500_000);
    assert_eq!(waiter.granted().0, "w");
    assert!(replica.ask("DONCE.BEGIN work").is_nil());
    assert_calm(&new);
}

/// The primary dies in the pause. Its replica shows the pause as over when its moment has come, but ends it only when
/// it is promoted.
#[test]
fn promoted_replica_carries_out_the_end_of_a_pause() {
    let (old, new) = pair();
    let mut client = old.connect();
    client.ask("DLOCK.PAUSE k 700");
    client.ask("DLOCK.PAUSE alone 700");
    new.wait_to_catch_up_with(&old);
    old.stop();
    let before = new.digest("k");
    let mut replica = new.connect();
    eventually("the moment of its end", SOON, || {
        *replica.ask("DLOCK.INFO k").field("paused-ms") == 0
    });
    assert_eq!(*replica.ask("DLOCK.INFO k").field("state"), "free");
    assert_eq!(new.digest("k"), before, "a replica decides nothing");
    replica.ask("REPLICAOF NO ONE");
    let (token, _) = replica.ask("DLOCK.ACQUIRE k TOKEN t").grant();
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
            client.ask("DLOCK.PAUSE long 600000");
            let until = unix_ms() + 1_500;
            client.ask("DSEM.PAUSE short 1500");
            client.ask("DONCE.PAUSE ended 600000");
            client.ask("DONCE.PAUSE ended 0");
            if rewritten {
                rewrite_aof(&server);
            }
            let before = server.digest("long");
            kill_and_start(&mut server);
            let mut client = server.connect();
            assert_eq!(server.digest("long"), before, "preamble {preamble}");
            assert!(client.ask("DLOCK.ACQUIRE long").is_nil());
            assert_eq!(client.ask("EXISTS ended"), 0);
            let mut waiter = server.connect();
            waiter.begin("DSEM.ACQUIRE short LIMIT 1 BLOCK 0 TOKEN w");
            assert_eq!(waiter.granted().0, "w");
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
        client
            .ask(format!("DWG.ADD {group} LIMIT 1 TOKEN t"))
            .grant();
        let mut adding = old.connect();
        adding.begin(format!("DWG.ADD {group} LIMIT 1 TOKEN u BLOCK 0"));
        adding
    });
    old.wait_for_blocked(2);
    client.ask("DWG.PAUSE asked 600000");
    client.ask("DWG.PAUSE left 1000");
    for group in ["asked", "left"] {
        assert_eq!(client.ask(format!("DWG.DONE {group} t")), 1);
    }
    new.wait_to_catch_up_with(&old);
    old.stop();
    let mut replica = new.connect();
    replica.ask("REPLICAOF NO ONE");
    let info = replica.ask("DWG.INFO asked");
    assert_eq!(*info.field("state"), "paused", "{info:?}");
    let finished = Reply::Array(vec![Reply::Int(1), Reply::Int(0)]);
    assert_eq!(replica.ask("DWG.WAIT asked"), finished);
    eventually("the end of the round", SOON, || {
        *replica.ask("DWG.INFO left").field("state") == "finished"
    });
    old.cont();
    assert_calm(&new);
}
