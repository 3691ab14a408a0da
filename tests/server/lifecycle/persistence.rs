//! What a server has after it was saved, stopped, killed or reloaded.
//!
//! Holds are restored with their tokens, fences, leases and deadlines. A reload keeps the waiters.
//!
//! Kills under traffic are in `kills`, random histories in `histories_persisted`, leases over a restart in `restarts`.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::support::data_files::{
    aof, append_changes, append_packed, append_to_aof, grant_by_hand, kill_and_start, rewrite_aof,
    with_safe_aof,
};
use crate::support::fixtures::{add_fixtures, assert_in_use, digests};
use crate::support::steps::{SOON, assert_calm, unix_us};
use crate::support::*;

#[test]
fn saved_server_restores_every_state() {
    let mut server = Server::start();
    add_fixtures(&server);
    let before = digests(&server);
    assert_eq!(server.connect().ask("SAVE"), "OK");
    kill_and_start(&mut server);
    assert_eq!(digests(&server), before);
    assert_in_use(&server);
}

#[test]
fn clean_restart_saves_by_itself() {
    let mut server = Server::builder().config("save", "3600 1").start();
    add_fixtures(&server);
    let before = digests(&server);
    server.restart();
    assert_eq!(digests(&server), before);
    assert_in_use(&server);
}

#[test]
fn killed_server_restores_its_aof() {
    for preamble in [true, false] {
        let mut server = with_safe_aof(preamble).start();
        add_fixtures(&server);
        let before = digests(&server);
        kill_and_start(&mut server);
        assert_eq!(digests(&server), before, "preamble {preamble}");
        assert_in_use(&server);
    }
}

#[test]
fn killed_server_restores_rewritten_aof_and_what_follows() {
    for preamble in [true, false] {
        let mut server = with_safe_aof(preamble).start();
        add_fixtures(&server);
        rewrite_aof(&server);
        let mut client = server.connect();
        client.ask("DLOCK.RENEW renewed t");
        client.ask("DSEM.ACQUIRE sem TOKEN late");
        call!(client, "DWG.ADD", "just added", "TOKEN", "late");
        call!(client, "DWG.DONE", "just added", "a");
        let before = digests(&server);
        kill_and_start(&mut server);
        assert_eq!(digests(&server), before, "preamble {preamble}");
        assert_in_use(&server);
        // Once more, for states that were loaded and not decided by this process.
        let before = digests(&server);
        rewrite_aof(&server);
        kill_and_start(&mut server);
        assert_eq!(digests(&server), before, "preamble {preamble}, again");
    }
}

#[test]
fn reload_changes_nothing_and_keeps_waiters() {
    for reload in [&["DEBUG", "RELOAD"], &["DEBUG", "LOADAOF"]] {
        let server = with_safe_aof(false).start();
        add_fixtures(&server);
        let mut waiter = server.connect();
        waiter.begin("DLOCK.ACQUIRE lock BLOCK 0 TOKEN w");
        server.wait_for_blocked(1);
        let before = digests(&server);
        assert_eq!(server.connect().call(reload), "OK");
        assert_eq!(digests(&server), before, "{reload:?}");
        server.wait_for_blocked(1);
        assert_eq!(server.connect().ask("DLOCK.RELEASE lock t"), 1);
        assert_eq!(
            waiter.recv(SOON).expect("the waiter is granted").grant().0,
            "w"
        );
    }
}

#[test]
fn aof_with_unknown_change_stops_the_start_and_is_logged() {
    let grant = grant_by_hand(unix_us());
    let unpackable = |bytes: &[u8]| ("DSYN", sealed(bytes));
    let by_hand = |changes: &[&str]| ("DSYN", packed("lock", changes));
    let mut damaged = packed("lock", &["VANISH"]);
    damaged[2] ^= 1;
    let unknown: &[((&str, Vec<u8>), &str)] = &[
        (
            unpackable(&[2, 0, 127]),
            "its change 0x7f is not known here",
        ),
        (
            unpackable(&[6, 0, 7]),
            "it is of format version 6, and this dsync knows 2 to 5",
        ),
        (unpackable(&[2, 4, 7]), "the family 4 is not known here"),
        (
            unpackable(&[2, 0, 1, 1]),
            "its change 'RENEW' is malformed: lease",
        ),
        (("DSYN", damaged), "its checksum is wrong"),
        (("DSYN", Vec::new()), "its checksum is wrong"),
        (
            by_hand(&["RENEW 1 1 1"]),
            "its change 'RENEW 1' does not fit: no hold of the key has its fence",
        ),
        (
            by_hand(&[&grant, "LIMIT 1"]),
            "its change 'LIMIT' does not fit: the key is of another family",
        ),
        (
            ("DLOCK.RELEASE", b"nobody".to_vec()),
            "the key has no hold of its token, or others beside it",
        ),
        (
            ("DSYNC.APPLY", b"lock:1".to_vec()),
            concat!(
                "it was written by dsync 0.1.0, and this is dsync ",
                env!("CARGO_PKG_VERSION"),
                ", which does not read what 0.1.0 wrote"
            ),
        ),
    ];
    let mut server = with_safe_aof(false).start();
    add_fixtures(&server);
    let before = digests(&server);
    server.kill9();
    let good = fs::read(aof(&server)).expect("the AOF is read");
    for ((command, argument), reason) in unknown {
        append_to_aof(&server, &[command.as_bytes(), b"k", argument]);
        let seen = server.log_text().len();
        let started = catch_unwind(AssertUnwindSafe(|| server.start_again()));
        assert!(started.is_err(), "started though {reason}");
        let log = server.log_text()[seen..].to_owned();
        assert!(
            log.contains(&format!(
                "{command} failed on key 'k' of database 3: {reason}"
            )),
            "{reason}: {log}"
        );
        assert!(
            log.contains("; 58 changes of this AOF were applied before it"),
            "{log}"
        );
        assert!(log.contains("'dsync.aof-skip-unapplied yes'"), "{log}");
        assert!(!log.contains("panic"), "{log}");
        fs::write(aof(&server), &good).expect("the AOF is restored");
    }
    server.start_again();
    assert_eq!(digests(&server), before);
}

/// A server did not start because of one change in its AOF, so its operator had to lose all of the data.
#[test]
fn aof_skip_unapplied_loads_the_rest() {
    let mut server = with_safe_aof(false).start();
    add_fixtures(&server);
    let before = digests(&server);
    server.kill9();
    let grant = grant_by_hand(unix_us());
    append_changes(&server, "k", "lock", &[&grant, "LIMIT 1"]);
    append_packed(&server, "k", &sealed(&[3, 0, 7]));
    append_changes(&server, "elsewhere", "once", &["GIVEUP"]);
    let first: [&[u8]; 5] = [b"DSYNC.APPLY", b"k", b"lock:1", b"EXPLODE", b"VANISH"];
    append_to_aof(&server, &first);
    server.configure("dsync.aof-skip-unapplied", "yes");
    server.start_again();
    assert_eq!(digests(&server), before, "nothing of 'k' is there");
    assert_eq!(server.info_number("dsync", "dsync_unapplied_changes"), 6);
    let log = server.log_text();
    assert_eq!(
        log.matches("left out, as dsync.aof-skip-unapplied says")
            .count(),
        4,
        "{log}"
    );
    assert!(
        log.contains("6 changes of the AOF could not be applied and were left out"),
        "{log}"
    );
    assert!(
        !log.contains("CRITICAL"),
        "the server has nothing to add: {log}"
    );
    assert_in_use(&server);
}

/// A vacant place of a semaphore kept the semaphore's limit for the name. The name became a work-once key and was
/// deleted, and the next waiter was granted under that limit. The replica refused the grant, and the primary did not
/// start again from its AOF.
#[test]
fn name_reused_by_another_family_is_replicated_and_loaded() {
    let mut server = with_safe_aof(false)
        .module_arg("rejoin-ms")
        .module_arg(60_000)
        .start();
    let replica = Server::builder().replica_of(&server).start();
    let mut client = server.connect();
    let reuses: [&[&str]; 3] = [
        &["DONCE.BEGIN k TOKEN a", "DONCE.BEGIN k TOKEN b BLOCK 0"],
        &["DLOCK.ACQUIRE k TOKEN a", "DLOCK.ACQUIRE k TOKEN b BLOCK 0"],
        &[
            "DWG.ADD k LIMIT 7 TOKEN a",
            "DWG.ADD k LIMIT 1 TOKEN b BLOCK 0",
        ],
    ];
    for reuse in reuses {
        client.ask("DEL k");
        client.ask("DSEM.ACQUIRE k LIMIT 1 TOKEN holder");
        server
            .waiting("DSEM.ACQUIRE k LIMIT 1 TOKEN vacant BLOCK 0")
            .close();
        server.wait_for_blocked(0);
        assert_eq!(client.ask("DSEM.RELEASE k holder"), 1);
        assert!(!client.ask(reuse[0]).is_error());
        let mut waiter = server.waiting(reuse[1]);
        assert_eq!(client.ask("DEL k"), 1);
        waiter.reply();
        replica.wait_to_catch_up_with(&server);
        assert_eq!(replica.digest("k"), server.digest("k"), "{reuse:?}");
    }
    assert_eq!(replica.info_number("dsync", "dsync_unapplied_changes"), 0);
    let before = server.digest("k");
    kill_and_start(&mut server);
    assert_eq!(server.digest("k"), before);
}

#[test]
fn forty_thousand_holds_are_restored() {
    for preamble in [true, false] {
        let mut server = with_safe_aof(preamble).config("appendfsync", "no").start();
        let mut client = server.connect();
        let acquire_lock = |n: u32| format!("DLOCK.ACQUIRE l:{n} EX 600 TOKEN t{n}");
        let acquire_permit = |n: u32| format!("DSEM.ACQUIRE s LIMIT 20000 EX 600 TOKEN t{n}");
        let lines = (0..20_000).flat_map(|n| [acquire_lock(n), acquire_permit(n)]);
        for reply in client.ask_all(lines) {
            reply.grant();
        }
        rewrite_aof(&server);
        let before = client.ask("DEBUG DIGEST");
        kill_and_start(&mut server);
        let mut client = server.connect();
        assert_eq!(client.ask("DEBUG DIGEST"), before, "preamble {preamble}");
        assert_eq!(client.ask("DBSIZE"), 20_001);
        let check_lock = |n| format!("DLOCK.CHECK l:{n} t{n}");
        for left in client.ask_all((0..20_000).map(check_lock)) {
            assert!(left.as_int() > 0);
        }
        assert!(client.ask("DSEM.ACQUIRE s").is_nil());
        let release_permit = |n: u32| format!("DSEM.RELEASE s t{n}");
        let release_lock = |n: u32| format!("DLOCK.RELEASE l:{n} t{n}");
        let lines = (0..20_000).flat_map(|n| [release_permit(n), release_lock(n)]);
        for reply in client.ask_all(lines) {
            assert_eq!(reply, 1);
        }
        assert_eq!(client.ask("DBSIZE"), 0);
    }
}

#[test]
fn save_with_waiters_saves_only_holds() {
    let mut server = Server::start();
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE k EX 600 TOKEN t");
    let before = server.digest("k");
    let mut waiters: Vec<_> = (0..20).map(|_| server.connect()).collect();
    for waiter in &mut waiters {
        waiter.begin("DLOCK.ACQUIRE k BLOCK 0");
    }
    server.wait_for_blocked(20);
    assert_eq!(
        server.digest("k"),
        before,
        "a queue is no part of the value"
    );
    assert_eq!(client.ask("SAVE"), "OK");
    kill_and_start(&mut server);
    assert_eq!(server.digest("k"), before);
    assert_eq!(*server.connect().ask("DLOCK.INFO k").field("waiters"), 0);
}

#[test]
fn background_save_leaves_a_thousand_waiters_queued() {
    let server = Server::builder().config("appendonly", "yes").start();
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE k TOKEN t");
    let mut waiters: Vec<_> = (0..1_000).map(|_| server.connect()).collect();
    for (n, waiter) in waiters.iter_mut().enumerate() {
        waiter.begin(format!("DLOCK.ACQUIRE k SHARED BLOCK 0 TOKEN w{n}"));
    }
    server.wait_for_blocked(1_000);
    for save in ["BGSAVE", "BGREWRITEAOF"] {
        let reply = call!(client, save);
        assert!(!reply.is_error(), "{reply:?}");
        eventually("the end of the save", SOON * 2, || {
            let info = server.info_section("persistence");
            [
                "rdb_bgsave_in_progress:0",
                "aof_rewrite_in_progress:0",
                "rdb_last_bgsave_status:ok",
                "aof_last_bgrewrite_status:ok",
            ]
            .iter()
            .all(|line| info.contains(line))
        });
        assert_eq!(server.blocked_clients(), 1_000);
    }
    assert_eq!(client.ask("BGSAVE").as_str(), "Background saving started");
    assert_eq!(client.ask("DLOCK.RELEASE k t"), 1);
    for (n, waiter) in waiters.iter_mut().enumerate() {
        assert_eq!(waiter.granted().0, format!("w{n}"));
    }
    assert_eq!(*client.ask("DLOCK.INFO k").field("holders"), 1_000);
    assert_calm(&server);
}

/// Power failed while a transaction was written. Redis, and Valkey before 9, left in the AOF what was complete of it. The
/// next start but one dropped all that was written since, as a part of that transaction. A rewrite prevents it.
#[test]
fn torn_transaction_takes_nothing_with_it_once_the_aof_is_rewritten() {
    let mut server = with_safe_aof(true).start();
    let two = [
        "DLOCK.ACQUIRE a TOKEN t EX 500",
        "DLOCK.ACQUIRE b TOKEN t EX 500",
    ];
    server.connect().ask_all(["MULTI", two[0], two[1], "EXEC"]);
    server.kill9();
    let torn = fs::OpenOptions::new()
        .write(true)
        .open(aof(&server))
        .expect("it opens");
    let whole = torn.metadata().expect("it is a file").len();
    torn.set_len(whole - 3).expect("it is cut");
    server.start_again();
    assert!(server.log_text().contains("Truncating the AOF"));
    assert_eq!(server.connect().ask("EXISTS a b"), 0);
    rewrite_aof(&server);
    server.connect().ask("DLOCK.ACQUIRE c TOKEN t EX 500");
    kill_and_start(&mut server);
    assert_eq!(server.connect().ask("EXISTS a b"), 0);
    assert_eq!(server.connect().ask("EXISTS c"), 1);
}
