//! PAUSE of all families: what waits, what goes on, and how a pause ends.
//!
//! Elsewhere: the moments and every combination (the engine's tests), what is replicated (`pauses_replicated`), what is
//! saved (the fixtures have paused keys), the events (`events_free`), an incident (`incident`).

use crate::support::steps::*;
use crate::support::*;

/// The prefix of a family's commands, and a request of it.
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
