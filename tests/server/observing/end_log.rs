//! DSYNC.LOG: the last ends of holds that nobody with the token asked for.

use crate::support::steps::*;
use crate::support::*;

/// A row of DSYNC.LOG.
#[derive(Clone, Debug, PartialEq)]
struct LogRow {
    id: i64,
    unix_ms: i64,
    what: String,
    db: Option<i64>,
    key: Option<String>,
    family: Option<String>,
    fence: Option<u64>,
    owner: Option<String>,
    held_ms: Option<i64>,
    late_ms: Option<i64>,
}

fn number(reply: &Reply) -> Option<i64> {
    (!reply.is_nil()).then(|| reply.as_int())
}

fn text(reply: &Reply) -> Option<String> {
    (!reply.is_nil()).then(|| reply.as_str().to_owned())
}

/// The rows of `DSYNC.LOG` with these arguments, the newest first.
#[track_caller]
fn rows(client: &mut Client, arguments: &str) -> Vec<LogRow> {
    let reply = client.ask(format!("DSYNC.LOG {arguments}"));
    let read = |row: &Reply| match row.as_array() {
        [
            id,
            unix_ms,
            what,
            db,
            key,
            family,
            fence,
            owner,
            held_ms,
            late_ms,
        ] => LogRow {
            id: id.as_int(),
            unix_ms: unix_ms.as_int(),
            what: what.as_str().to_owned(),
            db: number(db),
            key: text(key),
            family: text(family),
            fence: number(fence).map(i64::unsigned_abs),
            owner: text(owner),
            held_ms: number(held_ms),
            late_ms: number(late_ms),
        },
        _ => panic!("no row of DSYNC.LOG: {row:?}"),
    };
    reply.as_array().iter().map(read).collect()
}

/// All rows but those about stalls: a busy machine may stall a server at any time.
#[track_caller]
fn ends(client: &mut Client) -> Vec<LogRow> {
    let mut rows = rows(client, "COUNT 5000");
    rows.retain(|row| row.what != "stall");
    rows
}

/// The newest row, which the test has just caused.
#[track_caller]
fn newest(client: &mut Client) -> LogRow {
    ends(client).swap_remove(0)
}

#[test]
fn log_tells_why_a_job_ran_twice() {
    let server = Server::start();
    let mut client = server.connect();
    let mut stuck = server.connect();
    // The worker never renews its lease: it is stuck, and sends nothing more.
    let run = stuck.ask("DONCE.BEGIN report:7 PX 300 TOKEN a-41 OWNER web-1/241");
    let first = any_grant(&run).1;
    let before = unix_ms();
    let mut second = server.waiting("DONCE.BEGIN report:7 TOKEN b-72 OWNER web-2/97 BLOCK 0");
    let (_, fence) = any_grant(&second.reply());
    let rows = ends(&mut client);
    let [row] = rows.as_slice() else {
        panic!("one end: {rows:?}");
    };
    let expected = LogRow {
        what: "lapse".to_owned(),
        db: Some(0),
        key: Some("report:7".to_owned()),
        family: Some("once".to_owned()),
        fence: Some(first),
        owner: Some("web-1/241".to_owned()),
        ..row.clone()
    };
    assert_eq!(*row, expected);
    assert!(fence > first, "the run that came next");
    assert!(row.held_ms >= Some(300), "it had its whole lease: {row:?}");
    assert!(row.late_ms >= Some(0), "{row:?}");
    assert!(
        (before..=unix_ms()).contains(&row.unix_ms.unsigned_abs()),
        "{row:?}"
    );
}

#[test]
fn every_kind_of_end_has_its_row() {
    let server = Server::start();
    let mut client = server.connect();
    let line = |client: &mut Client, line: &str| any_grant(&client.ask(line)).1;
    let mut expected = Vec::new();
    let mut expect =
        |what: &str, key: &str, family: &str, fence: Option<u64>, owner: Option<&str>| {
            let owned = str::to_owned;
            expected.push((
                owned(what),
                owned(key),
                owned(family),
                fence,
                owner.map(owned),
            ));
        };

    let fence = line(&mut client, "DSEM.ACQUIRE sem LIMIT 3 OWNER me");
    assert_eq!(client.ask(format!("DSEM.REVOKE sem {fence}")), 1);
    expect("revoke", "sem", "semaphore", Some(fence), Some("me"));

    let mut closing = server.connect();
    let fence = line(&mut closing, "DWG.ADD group EPHEMERAL");
    closing.close();
    eventually("its end", SOON, || {
        !ends(&mut client).is_empty() && newest(&mut client).what == "disconnect"
    });
    expect("disconnect", "group", "group", Some(fence), None);

    line(&mut client, "DLOCK.ACQUIRE lock TOKEN t OWNER me");
    let mut gone = server.connect();
    let id = gone.id();
    gone.wait_on(&server, "DLOCK.ACQUIRE lock OWNER you BLOCK 0");
    client.ask_all(["DLOCK.RELEASE lock t", &format!("CLIENT KILL ID {id}")]);
    eventually("the end of the grant", SOON, || {
        newest(&mut client).what == "undelivered"
    });
    let undelivered = newest(&mut client).fence;
    expect("undelivered", "lock", "lock", undelivered, Some("you"));

    for removal in [
        "DEL key",
        "UNLINK key",
        "SET key 1",
        "PEXPIRE key 1",
        "RENAME other key",
        "RESTORE",
    ] {
        client.ask("DEL key");
        client.ask("SET other 1");
        let fence = line(&mut client, "DLOCK.ACQUIRE key OWNER me");
        if removal == "RESTORE" {
            // Restoring over a key removes what was there.
            let dump = client.ask("DUMP key");
            call!(client, "RESTORE", "key", 0, dump.as_bytes(), "REPLACE");
        } else {
            client.ask(removal);
        }
        eventually(removal, SOON, || {
            let row = newest(&mut client);
            row.what == "removed" && row.fence == Some(fence)
        });
        expect("removed", "key", "lock", Some(fence), Some("me"));
        if removal == "RESTORE" {
            // The restored hold is removed in turn.
            client.ask("DEL key");
            expect("removed", "key", "lock", Some(fence), Some("me"));
        }
    }

    // Of several holds only their number is told.
    for owner in ["a", "b", "c"] {
        line(
            &mut client,
            &format!("DSEM.ACQUIRE many LIMIT 3 OWNER {owner}"),
        );
    }
    client.ask("DEL many");
    expect("removed", "many", "semaphore", None, Some("3 holds"));

    let fence = line(&mut client, "DLOCK.ACQUIRE short PX 20 OWNER me");
    eventually("a lapse", SOON, || newest(&mut client).what == "lapse");
    expect("lapse", "short", "lock", Some(fence), Some("me"));

    let found = ends(&mut client);
    for row in &found {
        assert_eq!(row.late_ms.is_some(), row.what == "lapse", "{row:?}");
        assert!(row.held_ms >= Some(0), "{row:?}");
    }
    let found = found.into_iter().rev().map(|row| {
        assert_eq!(row.db, Some(0), "{row:?}");
        let (key, family) = (row.key.expect("a key"), row.family.expect("a type"));
        (row.what, key, family, row.fence, row.owner)
    });
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

#[test]
fn what_somebody_asked_for_is_not_in_the_log() {
    let server = Server::start();
    let mut client = server.connect();
    for line in [
        "DLOCK.ACQUIRE lock TOKEN t",
        "DLOCK.RELEASE lock t",
        "DWG.ADD group TOKEN t",
        "DWG.DONE group t",
        "DONCE.BEGIN once TOKEN t",
        "DONCE.FAIL once t",
        "DONCE.BEGIN once TOKEN t",
        "DONCE.DONE once t",
        "DEL once group",
        // The hold lives on under another name, in another database.
        "DLOCK.ACQUIRE lock TOKEN t",
        "RENAME lock renamed",
        "MOVE renamed 1",
        "SWAPDB 1 2",
        "SELECT 2",
        "DLOCK.RELEASE renamed t",
        // A flush removes everything, which needs no list of what it was.
        "DSEM.ACQUIRE sem LIMIT 1",
        "FLUSHDB",
        "DSEM.ACQUIRE sem LIMIT 1",
        "FLUSHALL",
        "DSEM.ACQUIRE sem LIMIT 1",
        "FLUSHALL ASYNC",
        "DSEM.LIMIT pinned 1",
        "DEL pinned",
    ] {
        let reply = client.ask(line);
        assert!(!reply.is_error(), "{line}: {reply:?}");
    }
    eventually("all states freed", SOON, || {
        server.info_number("dsync", "dsync_holds") == 0
    });
    assert_eq!(ends(&mut client), []);
}

#[test]
fn log_has_as_many_rows_as_allowed_and_its_ids_only_rise() {
    let server = Server::builder().config("dsync.log-max-len", 3).start();
    let mut client = server.connect();
    let lose = |client: &mut Client, key: usize| {
        let (_, fence) = client.ask(format!("DLOCK.ACQUIRE k{key}")).grant();
        assert_eq!(client.ask(format!("DLOCK.REVOKE k{key} {fence}")), 1);
    };
    let keys = |client: &mut Client| -> Vec<String> {
        ends(client).into_iter().filter_map(|row| row.key).collect()
    };
    eventually("a log of three ends and no stall", SOON, || {
        (0..5).for_each(|key| lose(&mut client, key));
        assert_eq!(rows(&mut client, "COUNT 5000").len(), 3);
        keys(&mut client) == ["k4", "k3", "k2"]
    });
    assert_eq!(rows(&mut client, "COUNT 1")[0].key.as_deref(), Some("k4"));
    assert!(ends(&mut client).is_sorted_by(|a, b| a.id > b.id));

    assert_eq!(client.ask("CONFIG SET dsync.log-max-len 1"), "OK");
    assert_eq!(keys(&mut client), ["k4"], "the oldest are dropped");
    eventually("ids that go on after RESET, and no stall", SOON, || {
        let last = rows(&mut client, "COUNT 1")[0].id;
        assert_eq!(client.ask("DSYNC.LOG RESET"), "OK");
        assert_eq!(keys(&mut client), [""; 0]);
        lose(&mut client, 5);
        rows(&mut client, "COUNT 1")[0].id == last + 1
    });
    assert_eq!(client.ask("CONFIG SET dsync.log-max-len 0"), "OK");
    lose(&mut client, 6);
    assert_eq!(keys(&mut client), [""; 0], "none is kept");

    assert_eq!(client.ask("CONFIG SET dsync.log-max-len 10000"), "OK");
    (0..12).for_each(|key| lose(&mut client, key));
    assert_eq!(rows(&mut client, "").len(), 10, "ten without COUNT");
    // Of a long name the beginning is kept.
    let name = "k".repeat(3_000);
    let (_, fence) = client.ask(format!("DLOCK.ACQUIRE {name}")).grant();
    client.ask(format!("DLOCK.REVOKE {name} {fence}"));
    let shown = newest(&mut client).key.expect("a key");
    assert_eq!(shown, format!("{}... (2744 more bytes)", &name[..256]));
}

#[test]
fn stalls_and_pauses_are_in_the_log() {
    let server = Server::start();
    let mut client = server.connect();
    let stall = |client: &mut Client| {
        let rows = rows(client, "");
        rows.into_iter().find(|row| row.what == "stall")
    };
    // The server's cron runs before the stall, so that the start is not part of it.
    eventually("a tick of the cron", SOON, || {
        server.info_number("server", "uptime_in_seconds") >= 1
    });
    client.ask("DSYNC.LOG RESET");
    assert_eq!(client.ask("DEBUG SLEEP 1"), "OK");
    eventually("the stall", SOON, || stall(&mut client).is_some());
    let row = stall(&mut client).expect("a stall");
    // 200 ms of it may have counted.
    assert!(row.late_ms >= Some(750), "{row:?}");
    let expected = LogRow {
        id: row.id,
        unix_ms: row.unix_ms,
        what: "stall".to_owned(),
        db: None,
        key: None,
        family: None,
        fence: None,
        owner: None,
        held_ms: None,
        late_ms: row.late_ms,
    };
    assert_eq!(row, expected);
    client.ask("DSYNC.LOG RESET");
    assert_eq!(client.ask("CLIENT PAUSE 600 WRITE"), "OK");
    eventually("the end of the pause", SOON, || {
        stall(&mut client).is_some()
    });
    let row = stall(&mut client).expect("a stall");
    assert!(
        row.late_ms >= Some(300),
        "leases stood still meanwhile: {row:?}"
    );
}

#[test]
fn replica_logs_what_it_applies_and_no_restart_keeps_it() {
    let mut primary = Server::builder().config("appendonly", "yes").start();
    let replica = Server::builder().replica_of(&primary).start();
    let mut client = primary.connect();
    let fence = any_grant(&client.ask("DSEM.ACQUIRE sem LIMIT 3 OWNER a")).1;
    client.ask(format!("DSEM.REVOKE sem {fence}"));
    client.ask("DLOCK.ACQUIRE gone OWNER b").grant();
    client.ask("DEL gone");
    client.ask("DWG.ADD group PX 20 OWNER c");
    eventually("the lapse", SOON, || ends(&mut client).len() == 3);
    replica.wait_to_catch_up_with(&primary);
    let (ours, theirs) = (ends(&mut client), ends(&mut replica.connect()));
    let words =
        |rows: &[LogRow]| -> Vec<String> { rows.iter().map(|row| row.what.clone()).collect() };
    assert_eq!(words(&ours), ["lapse", "removed", "revoke"]);
    assert_eq!(words(&theirs), words(&ours));
    for (ours, theirs) in ours.iter().zip(&theirs) {
        // When the key was removed, and how late the lapse was, each server tells by its own clock.
        let alike = LogRow {
            id: ours.id,
            unix_ms: if ours.what == "removed" {
                ours.unix_ms
            } else {
                theirs.unix_ms
            },
            held_ms: if ours.what == "removed" {
                ours.held_ms
            } else {
                theirs.held_ms
            },
            late_ms: ours.late_ms.and(theirs.late_ms).and(ours.late_ms),
            ..theirs.clone()
        };
        assert_eq!(*ours, alike);
    }
    // The server's own log has the lines of the server that decided.
    assert!(primary.log_text().contains("was revoked (owner 'a')"));
    assert!(!replica.log_text().contains("was revoked"));
    primary.restart();
    assert_eq!(
        ends(&mut primary.connect()),
        [],
        "what an AOF has ended before is not told again"
    );
}

#[test]
fn wave_of_lapses_leaves_the_newest_rows() {
    const WAVE: usize = 20_000;
    let server = Server::builder()
        .config("dsync.log-max-len", 10_000)
        .start();
    let mut client = server.connect();
    let lines = (0..WAVE).map(|n| format!("DLOCK.ACQUIRE k{n} PX 2000"));
    client.ask_all(lines);
    eventually("all lapses", std::time::Duration::from_secs(30), || {
        server.info_number("dsync", "dsync_holds") == 0
    });
    let found = ends(&mut client);
    let stalls = rows(&mut client, "COUNT 5000").len() - found.len();
    assert_eq!(found.len() + stalls, 5_000);
    assert!(found.iter().all(|row| row.what == "lapse"));
    assert!(found.is_sorted_by(|a, b| a.id > b.id));
}
