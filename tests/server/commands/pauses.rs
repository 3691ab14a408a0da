//! PAUSE of all families: what waits, what goes on, how a pause ends; what is replicated, to the letter, and what becomes of
//! a pause when its primary is gone.
//!
//! The end of a pause is a change of its own, so a replica never ends one by its clock, and has what its primary has.
//!
//! Elsewhere: the moments and every combination (the engine's tests), what is saved (the fixtures have paused keys), the
//! events (`events_free`), an incident (`incident`).

use crate::replication::role_change::pair;
use crate::replication::watched_primary::{FAMILIES, WatchedPrimary};
use crate::support::data_files::{kill_and_start, rewrite_aof, with_safe_aof};
use crate::support::steps::*;
use crate::support::*;

/// The prefix of each family, and a request for a hold of `k`.
fn families() -> impl Iterator<Item = (&'static str, String)> {
    Family::ALL
        .into_iter()
        .map(|family| (family.prefix(), family.request("k")))
}

#[test]
fn pause_refuses_tries_queues_requests_and_serves_them_in_order() {
    let server = Server::start();
    let mut client = server.connect();
    for (family, request) in families() {
        assert_eq!(client.ask(format!("{family}.PAUSE k 600000")), 0);
        assert!(client.ask(&request).is_nil(), "{family}: a try");
        assert!(
            client.ask(format!("{request} BLOCK 1")).is_nil(),
            "{family}: a wait that runs out"
        );
        let mut waiters =
            ["w1", "w2"].map(|token| server.waiting(format!("{request} BLOCK 0 TOKEN {token}")));
        let left = client.ask(format!("{family}.PAUSE k 0")).as_int();
        assert!((590_000..=600_000).contains(&left), "{family}: {left}");
        for (waiter, token) in waiters.iter_mut().zip(["w1", "w2"]) {
            let (granted, _) = any_grant(&waiter.reply());
            assert_eq!(granted, token.as_bytes(), "{family}");
            assert_eq!(client.ask(format!("{family}.RELEASE k {token}")), 1);
        }
        client.ask("DEL k");
    }
    assert_calm(&server);
}

#[test]
fn hold_of_paused_key_is_repeated_renewed_and_ended() {
    let server = Server::start();
    let mut client = server.connect();
    for (family, request) in families() {
        let request = format!("{request} EX 600 TOKEN t");
        let (_, fence) = any_grant(&client.ask(&request));
        client.ask(format!("{family}.PAUSE k 600000"));
        assert_eq!(any_grant(&client.ask(&request)).1, fence, "{family}");
        assert_eq!(client.ask(format!("{family}.RENEW k t EX 500")), 1);
        assert!(client.ask(format!("{family}.CHECK k t")).as_int() > 400_000);
        assert_eq!(client.ask(format!("{family}.REVOKE k {fence}")), 1);
        let info = client.ask(format!("{family}.INFO k"));
        assert_eq!(*info.field("holders"), 0, "{family}");
        assert_eq!(*info.field("state"), "paused", "{family}");
        client.ask("DEL k");
    }
}

/// A lease that runs out in a pause serves nobody: the end of the pause does.
#[test]
fn lease_lapses_in_a_pause_and_nobody_is_granted_before_its_end() {
    let server = Server::start();
    let mut client = server.connect();
    let lines = ["DLOCK.ACQUIRE k PX 20", "DLOCK.PAUSE k 300"];
    let since = unix_ms();
    client.ask_all(lines);
    let mut waiter = server.waiting("DLOCK.ACQUIRE k BLOCK 0 TOKEN w");
    eventually("the lapse", SOON, || lock_holders(&mut client, "k") == 0);
    // No command ends the pause.
    assert_eq!(waiter.granted().0, "w");
    assert!(unix_ms() >= since + 300, "not before the pause is over");
    assert_eq!(lock_holders(&mut client, "k"), 1);
}

#[test]
fn info_shows_a_pause_and_what_is_left_of_it() {
    let server = Server::start();
    let mut client = server.connect();
    for (family, request) in families() {
        client.ask(&request);
        let info = client.ask(format!("{family}.INFO k"));
        assert_eq!(*info.field("paused-ms"), 0, "{family}");
        assert!(*info.field("state") != "paused", "{family}");
        client.ask(format!("{family}.PAUSE k 600000"));
        let info = client.ask(format!("{family}.INFO k"));
        assert_eq!(*info.field("state"), "paused", "{family}");
        assert_eq!(*info.field("holders"), 1, "{family}: and it is held");
        let left = info.field("paused-ms").as_int();
        assert!((590_000..=600_000).contains(&left), "{family}: {left}");
        client.ask("DEL k");
    }
    // What is done stays done: nobody would run anyway.
    client.ask("DONCE.BEGIN k TOKEN t");
    client.ask("DONCE.PAUSE k 600000");
    client.ask("DONCE.DONE k t");
    let info = client.ask("DONCE.INFO k");
    assert_eq!(*info.field("state"), "done");
    assert!(info.field("paused-ms").as_int() > 0);
    assert_eq!(client.ask("DONCE.BEGIN k").as_array()[0], *"DONE");
}

#[test]
fn pause_keeps_its_key_moves_with_rename_and_goes_with_del() {
    let server = Server::start();
    let mut client = server.connect();
    for (family, request) in families() {
        assert_eq!(client.ask(format!("{family}.PAUSE k 0")), 0);
        assert_eq!(client.ask("EXISTS k"), 0, "{family}: 0 makes no key");
        client.ask(format!("{family}.PAUSE k 600000"));
        assert_eq!(client.ask("TTL k"), -1, "{family}");
        let mut waiter = server.waiting(format!("{request} BLOCK 0"));
        assert_eq!(client.ask("RENAME k moved"), "OK");
        assert!(
            fence_in(&waiter.reply()).is_some(),
            "{family}: the old name is free"
        );
        let moved = request.replace(" k", " moved");
        assert!(client.ask(&moved).is_nil(), "{family}: the new is not");
        let mut waiter = server.waiting(format!("{moved} BLOCK 0"));
        assert_eq!(client.ask("DEL moved"), 1);
        assert!(fence_in(&waiter.reply()).is_some(), "{family}");
        client.ask("FLUSHALL");
        // With its end, or with 0, the key goes.
        client.ask(format!("{family}.PAUSE k 5"));
        wait_until_gone(&mut client, "k");
        client.ask(format!("{family}.PAUSE k 600000"));
        client.ask(format!("{family}.PAUSE k 0"));
        assert_eq!(client.ask("EXISTS k"), 0, "{family}");
    }
    assert_calm(&server);
}

/// The end of a pause comes under the key's new name, also if no command opens it there.
#[test]
fn renamed_pause_ends_without_a_command_on_its_key() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask_all(["DLOCK.PAUSE k 20", "RENAME k moved"]);
    eventually("an empty database", SOON, || client.ask("DBSIZE") == 0);
}

#[test]
fn pause_of_another_family_is_wrongtype() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DLOCK.PAUSE k 600000");
    for line in ["DSEM.PAUSE k 1", "DONCE.PAUSE k 0", "DONCE.BEGIN k"] {
        assert!(client.ask(line).error().starts_with("WRONGTYPE"));
    }
    client.ask("SET text 1");
    assert!(
        client
            .ask("DLOCK.PAUSE text 1")
            .error()
            .starts_with("WRONGTYPE")
    );
}

/// In MULTI and in scripts PAUSE works as elsewhere.
#[test]
fn pause_and_revoke_are_one_transaction() {
    let server = Server::start();
    let mut client = server.connect();
    let fence = client.ask("DLOCK.ACQUIRE k TOKEN a").grant().1;
    let mut waiter = server.waiting("DLOCK.ACQUIRE k BLOCK 0 TOKEN b");
    let revoke = format!("DLOCK.REVOKE k {fence}");
    let replies = client.ask_all(["MULTI", "DLOCK.PAUSE k 600000", &revoke, "EXEC"]);
    assert_eq!(replies[3].as_array(), [Reply::Int(0), Reply::Int(1)]);
    waiter.expect_silence(A_WHILE);
    let script = "EVAL \"return redis.call('DLOCK.PAUSE', KEYS[1], 0)\" 1 k";
    assert!(client.ask(script).as_int() > 0);
    assert_eq!(waiter.granted().0, "b");
}

/// FAILED is told to the first in line, and the round of a paused group finishes.
#[test]
fn failures_and_rounds_are_told_in_a_pause() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DONCE.BEGIN o TOKEN t");
    let mut exhausted = server.waiting("DONCE.BEGIN o MAX 1 BLOCK 0");
    client.ask("DONCE.PAUSE o 600000");
    client.ask("DONCE.FAIL o t REASON broken");
    assert_eq!(
        exhausted.reply().as_array()[..2],
        ["FAILED", "broken"].map(bulk)
    );
    assert_eq!(client.ask("DONCE.BEGIN o MAX 1").as_array()[0], *"FAILED");
    assert!(client.ask("DONCE.BEGIN o MAX 2").is_nil());

    client.ask("DWG.ADD g TOKEN t");
    let mut watcher = server.waiting("DWG.WAIT g BLOCK 0");
    client.ask("DWG.PAUSE g 600000");
    client.ask("DWG.DONE g t");
    assert_eq!(
        watcher.reply(),
        Reply::Array(vec![Reply::Int(1), Reply::Int(0)])
    );
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

#[test]
fn pause_signals_its_key_as_modified() {
    let server = Server::start();
    let (mut client, mut other) = (server.connect(), server.connect());
    for pause in ["DLOCK.PAUSE k 600000", "DLOCK.PAUSE k 0"] {
        client.ask("WATCH k");
        other.ask(pause);
        let replies = client.ask_all(["MULTI", "PING", "EXEC"]);
        assert!(replies[2].is_nil(), "{pause}");
    }
}

/// DONE has ended the last member of a paused group, and a queued ADD keeps its round open. RENAME takes the group away
/// from that request, and a failover loses it. Nothing tells the group: its round finishes with the next command that
/// may write, or with the pause.
#[test]
fn paused_group_without_its_queued_add_finishes_with_next_command_or_end_of_pause() {
    let server = Server::start();
    let mut client = server.connect();
    let finished = || Reply::Array(vec![Reply::Int(1), Reply::Int(0)]);
    for (pause_ms, ask_for) in [(600_000, Some("DWG.WAIT moved")), (300, None)] {
        client.ask("DWG.ADD g LIMIT 1 TOKEN t").grant();
        let mut adding = server.waiting("DWG.ADD g LIMIT 1 TOKEN u BLOCK 0");
        client.ask(format!("DWG.PAUSE g {pause_ms}"));
        assert_eq!(client.ask("DWG.DONE g t"), 1);
        assert!(client.ask("DWG.WAIT g").is_nil(), "one is queued");
        assert_eq!(client.ask("RENAME g moved"), "OK");
        // The request stays with the name, which is not paused.
        adding.granted();
        if let Some(line) = ask_for {
            assert_eq!(*client.ask("DWG.INFO moved").field("state"), "paused");
            assert_eq!(client.ask(line), finished());
        } else {
            eventually("the end of the round", SOON, || {
                *client.ask("DWG.INFO moved").field("state") == "finished"
            });
        }
        assert_eq!(client.ask("DEL moved g"), 2);
    }
}

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
