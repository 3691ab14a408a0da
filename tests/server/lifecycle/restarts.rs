//! Leases, fences and finished rounds of a server that starts again.
//!
//! A lease goes on with its rest and the grace of the start, but never with more than the whole lease. Fences only
//! rise, also where nothing was saved: `fences_of_starts` tells by how much.

use crate::support::data_files::{append_changes, kill_and_start, with_safe_aof};
use crate::support::steps::{SOON, unix_ms, unix_us};
use crate::support::*;

const MINUTE_US: u64 = 60_000_000;
const HOUR_US: u64 = 60 * MINUTE_US;

/// Kills a server with a lease of `lease_ms` and starts it `gone_ms` later with this grace. Returns what CHECK answers,
/// and how many milliseconds have passed since the grant.
fn left_after_restart(lease_ms: u64, gone_ms: u64, grace_ms: u64) -> (i64, i64) {
    let mut server = with_safe_aof(false)
        .module_arg("takeover-grace-ms")
        .module_arg(grace_ms)
        .start();
    server
        .connect()
        .ask(format!("DLOCK.ACQUIRE k PX {lease_ms} TOKEN t"));
    let granted = unix_ms();
    server.kill9();
    eventually("some of the lease to pass", SOON, || {
        unix_ms() >= granted + gone_ms
    });
    server.start_again();
    let left = server.connect().ask("DLOCK.CHECK k t").as_int();
    (
        left,
        i64::try_from(unix_ms() - granted).expect("a short while"),
    )
}

/// Prefix, family and claim of a hold, as the AOF names them.
const FAMILIES: [(&str, &str, &str); 5] = [
    ("DLOCK", "lock", "exclusive"),
    ("DLOCK", "lock", "shared"),
    ("DSEM", "semaphore", "7"),
    ("DWG", "group", "member"),
    ("DONCE", "once", "run"),
];

#[test]
fn start_gives_rest_of_lease_and_grace_but_at_most_the_lease() {
    const LEASE: i64 = 20_000;
    const HOUR: i64 = 3_600_000;
    for grace in [0, 5_000, 60_000] {
        // How far the written deadline lies ahead of the start: overdue, just due, and around the point from which the
        // whole lease is given. More than a lease ahead is what a wall clock that was set back leaves.
        let table = [
            -24 * HOUR,
            -1,
            0,
            1_000,
            LEASE - grace - 1,
            LEASE - grace,
            LEASE - grace + 1,
            LEASE,
            HOUR,
        ];
        let left_at = |ahead: i64| (ahead.max(0) + grace).min(LEASE);
        let mut server = with_safe_aof(false)
            .module_arg("takeover-grace-ms")
            .module_arg(grace)
            .start();
        server.kill9();
        let before = unix_ms();
        let mut fence = unix_us();
        for (f, (_, family, claim)) in FAMILIES.iter().enumerate() {
            for (n, ahead) in table.iter().enumerate() {
                fence += 1;
                let deadline = before.saturating_add_signed(*ahead);
                let granted = deadline - LEASE.unsigned_abs();
                let grant = format!("GRANT {fence} {claim} {LEASE} {deadline} {granted} 0 1:t 0:");
                append_changes(&server, &format!("{f}:{n}"), family, &[&grant]);
            }
        }
        server.start_again();
        let mut client = server.connect();
        for (f, (prefix, ..)) in FAMILIES.iter().enumerate() {
            for (n, ahead) in table.iter().enumerate() {
                let left = call!(client, format!("{prefix}.CHECK"), format!("{f}:{n}"), "t");
                // The server started at some moment since `before`, and the lease has run since then.
                let gone = i64::try_from(unix_ms() - before).expect("a short while");
                let (least, most) = (left_at(*ahead - gone) - gone, left_at(*ahead));
                assert!(
                    (least.max(0)..=most).contains(&left.as_int()),
                    "{prefix}, {ahead} ms ahead, grace {grace}: {left:?}, not {least} to {most}"
                );
            }
        }
    }
}

#[test]
fn lease_ended_while_down_is_handed_on_after_grace() {
    const GRACE: u64 = 700;
    let mut server = with_safe_aof(true)
        .module_arg("takeover-grace-ms")
        .module_arg(GRACE)
        .start();
    let acquire = [
        "DLOCK.ACQUIRE lock",
        "DSEM.ACQUIRE sem LIMIT 1",
        "DWG.ADD group LIMIT 1",
        "DONCE.BEGIN once",
    ];
    // The same request for another key.
    let renewed = |request: &str| {
        let key = request.split(' ').nth(1).expect("a key");
        request.replacen(key, &format!("{key}:renewed"), 1)
    };
    let mut client = server.connect();
    for request in acquire {
        client.ask(format!("{request} PX 900 TOKEN lost"));
        client.ask(format!("{} PX 900 TOKEN kept", renewed(request)));
    }
    let deadline = unix_ms() + 900;
    server.kill9();
    eventually("the deadline to pass", SOON, || unix_ms() > deadline);
    let started = unix_ms();
    server.start_again();
    let mut client = server.connect();
    let mut waiters = acquire.map(|request| {
        // A hold that is renewed within the grace stays its holder's.
        let prefix = request.split('.').next().expect("a family");
        let key = request.split(' ').nth(1).expect("a key");
        let renew = format!("{prefix}.RENEW {key}:renewed kept EX 60");
        assert_eq!(client.ask(renew), 1, "{key}");
        server.waiting(format!("{request} TOKEN next BLOCK 0"))
    });
    for waiter in &mut waiters {
        let granted = waiter.reply();
        assert!(
            granted.as_array().contains(&Reply::Bulk(b"next".to_vec())),
            "{granted:?}"
        );
        assert!(unix_ms() >= started + GRACE, "the grace was not over");
    }
    for (prefix, key) in [
        ("DLOCK", "lock"),
        ("DSEM", "sem"),
        ("DWG", "group"),
        ("DONCE", "once"),
    ] {
        let left = client.ask(format!("{prefix}.CHECK {key}:renewed kept"));
        assert!(left.as_int() > 0, "{key}");
    }
}

#[test]
fn restarted_lease_has_its_rest_and_grace() {
    // The rest and the grace together are less than the lease.
    let (left, gone) = left_after_restart(60_000, 500, 200);
    assert!(left <= 60_000 - 500 + 200, "{left}");
    assert!(left >= 60_000 - gone + 200 - 1_000, "{left} after {gone}");
    // Without grace only the rest is left.
    let (left, gone) = left_after_restart(20_000, 1_000, 0);
    assert!(
        (20_000 - gone - 1_000..=19_000).contains(&left),
        "{left} after {gone}"
    );
}

#[test]
fn restarted_lease_is_never_longer_than_granted() {
    // One second is gone and the grace is a minute: the whole lease is given, and no more.
    let (left, _) = left_after_restart(20_000, 1_000, 60_000);
    assert!((19_000..=20_000).contains(&left), "{left}");
    assert!(
        left > 19_300,
        "the grace makes up for what was lost: {left}"
    );
}

#[test]
fn lease_ended_while_down_has_grace_and_then_lapses() {
    let mut server = with_safe_aof(true)
        .module_arg("takeover-grace-ms")
        .module_arg(1_200)
        .start();
    let fence = server
        .connect()
        .ask("DLOCK.ACQUIRE k PX 1500 TOKEN t")
        .grant()
        .1;
    server.connect().ask("DLOCK.ACQUIRE short PX 100 TOKEN t");
    server
        .connect()
        .ask("DLOCK.ACQUIRE renewable PX 1500 TOKEN t");
    server.kill9();
    let deadline = unix_ms() + 1_500;
    eventually("the deadline to pass", SOON, || unix_ms() > deadline);
    server.start_again();
    let mut client = server.connect();
    let left = client.ask("DLOCK.CHECK k t").as_int();
    assert!(
        (1..=1_200).contains(&left),
        "{left} ms left, of a grace of 1,200"
    );
    assert_eq!(client.ask("DLOCK.RENEW renewable t EX 60"), 1);
    assert!(client.ask("DLOCK.ACQUIRE k").is_nil(), "it is still held");
    let next = client.ask("DLOCK.ACQUIRE k BLOCK 10000").grant().1;
    assert!(next > fence);
    assert_eq!(client.ask("DLOCK.CHECK k t"), 0);
    // The hold `short` has at most its whole lease of 100 ms, although the grace is longer.
    eventually("a lapse", SOON, || client.ask("EXISTS short") == 0);
    assert!(client.ask("DLOCK.CHECK renewable t").as_int() > 0);
}

#[test]
fn fences_rise_over_removals_flushes_and_restarts() {
    let mut server = Server::start();
    let mut last = 0;
    let mut rises = |server: &Server, by: u64| {
        let fence = server.connect().ask("DLOCK.ACQUIRE k").grant().1;
        assert!(fence > last + by, "{fence} after {last}");
        last = fence;
        fence
    };
    let first = rises(&server, 0);
    let ahead_us = first - unix_us();
    assert!(
        (2 * HOUR_US - MINUTE_US..=2 * HOUR_US).contains(&ahead_us),
        "a start without a file leaps two hours ahead of the clock: {ahead_us}"
    );
    server.connect().ask("DEL k");
    rises(&server, 0);
    server.connect().ask("FLUSHALL");
    rises(&server, 0);
    server.connect().ask("FLUSHALL ASYNC");
    rises(&server, 0);
    // The server is killed without any save.
    kill_and_start(&mut server);
    rises(&server, 0);
    assert_eq!(server.connect().ask("SAVE"), "OK");
    // This grant comes after the save, and is lost.
    server.connect().ask("DEL k");
    rises(&server, 0);
    kill_and_start(&mut server);
    server.connect().ask("DEL k");
    rises(&server, 0);
    // The file has the last fence and no key.
    server.connect().ask("DEL k");
    assert_eq!(server.connect().ask("SAVE"), "OK");
    kill_and_start(&mut server);
    rises(&server, 0);
}

#[test]
fn reload_does_not_raise_fences() {
    let server = Server::start();
    let mut client = server.connect();
    let before = client.ask("DLOCK.ACQUIRE a").grant().1;
    assert_eq!(client.ask("DEBUG RELOAD"), "OK");
    let after = client.ask("DLOCK.ACQUIRE b").grant().1;
    assert!(after > before, "{after} after {before}");
    assert!(after - before < MINUTE_US, "{after} after {before}");
}

#[test]
fn finished_round_keeps_its_end_over_restart() {
    let mut server = with_safe_aof(true)
        .module_arg("group-keep-ms")
        .module_arg(2_500)
        .start();
    let mut client = server.connect();
    client.ask("DWG.ADD g TOKEN a");
    client.ask("DWG.DONE g a");
    let kept_until = client
        .ask("DWG.INFO g")
        .field("kept-until-unix-ms")
        .as_int()
        .unsigned_abs();
    kill_and_start(&mut server);
    let mut client = server.connect();
    let finished = client.ask("DWG.WAIT g");
    if unix_ms() < kept_until {
        assert_eq!(finished.as_array(), [Reply::Int(1), Reply::Int(0)]);
        assert_eq!(
            client
                .ask("DWG.INFO g")
                .field("kept-until-unix-ms")
                .as_int()
                .unsigned_abs(),
            kept_until
        );
    }
    eventually("the tally to go", SOON, || client.ask("EXISTS g") == 0);
    assert!(unix_ms() >= kept_until);
    // The end of the tally is in the AOF too.
    kill_and_start(&mut server);
    assert_eq!(server.connect().ask("EXISTS g"), 0);
}
