//! The first replica, or the AOF, appears in the middle of traffic.
//!
//! A server without replicas and without an AOF does not replicate its changes. Each test waits until the server has
//! noticed that nobody listens, then lets a replica or an AOF begin to listen, which must miss no change from then on.
//! Changes that are not replicated must still count for the save points.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::steps::SOON;
use crate::support::*;

/// Acquires and releases a hundred locks and semaphores until `stop` is set; returns the number of rounds.
fn traffic(client: &mut Client, stop: &AtomicBool) -> u64 {
    let mut calls: u64 = 0;
    while !stop.load(Ordering::Relaxed) {
        let key = format!("k{}", calls % 100);
        let token = format!("t{calls}");
        let before = format!("t{}", calls.saturating_sub(37));
        client.ask(format!(
            "DLOCK.ACQUIRE {key} SHARED TOKEN {token} PX 600000"
        ));
        client.ask(format!(
            "DSEM.ACQUIRE s{key} LIMIT 50 TOKEN {token} PX 600000"
        ));
        let old = format!("k{}", calls.saturating_sub(37) % 100);
        client.ask(format!("DLOCK.RELEASE {old} {before}"));
        client.ask(format!("DSEM.RELEASE s{old} {before}"));
        calls += 1;
    }
    calls
}

/// The digests of all keys, also of those that do not exist.
fn digests(server: &Server) -> Vec<String> {
    let keys = (0..100).flat_map(|n| [format!("k{n}"), format!("sk{n}")]);
    keys.map(|key| server.digest(&key)).collect()
}

/// Waits long enough for several turns of the server's cron, in which the module looks whether anybody listens.
fn wait_until_module_sees_no_listener(server: &Server) {
    let mut client = server.connect();
    let since = std::time::Instant::now();
    eventually("some turns of the cron", SOON, || {
        client.ask("PING");
        since.elapsed() > Duration::from_millis(500)
    });
}

#[test]
fn first_replica_misses_nothing_while_it_synchronises() {
    let primary = Server::start();
    wait_until_module_sees_no_listener(&primary);
    let stop = AtomicBool::new(false);
    let replica = std::thread::scope(|threads| {
        let mut client = primary.connect();
        let traffic = threads.spawn({
            let stop = &stop;
            move || traffic(&mut client, stop)
        });
        let replica = Server::builder().replica_of(&primary).start();
        replica.wait_for_sync();
        stop.store(true, Ordering::Relaxed);
        assert!(traffic.join().expect("traffic") > 0);
        replica
    });
    replica.wait_to_catch_up_with(&primary);
    assert_eq!(digests(&replica), digests(&primary));
}

#[test]
fn aof_switched_on_under_traffic_has_everything_after() {
    let mut server = Server::builder().config("appendfsync", "always").start();
    wait_until_module_sees_no_listener(&server);
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let mut client = server.connect();
        let traffic = threads.spawn({
            let stop = &stop;
            move || traffic(&mut client, stop)
        });
        let mut operator = server.connect();
        assert_eq!(operator.ask("CONFIG SET appendonly yes"), "OK");
        assert_eq!(operator.ask("CONFIG REWRITE"), "OK");
        eventually("the AOF is written", SOON, || {
            server.info_number("persistence", "aof_rewrite_in_progress") == 0
                && server.info_number("persistence", "aof_rewrite_scheduled") == 0
        });
        stop.store(true, Ordering::Relaxed);
        traffic.join().expect("traffic");
    });
    let before = digests(&server);
    server.kill9();
    server.start_again();
    assert_eq!(digests(&server), before);
}

/// A replica asks for its first synchronisation, and the primary delays the snapshot: it has a backlog already, but has
/// forked no child that would tell the module so. The module then replicated the timer's decisions as if for a running
/// command, which a timer does not have, and an empty command was in the backlog.
#[test]
fn timer_decisions_before_first_snapshot_are_whole_commands_in_backlog() {
    let primary = Server::builder()
        .config("repl-diskless-sync", "yes")
        .config("repl-diskless-sync-delay", 3_600)
        .start();
    wait_until_module_sees_no_listener(&primary);
    let mut client = primary.connect();
    client.ask("DLOCK.ACQUIRE lapsing PX 1500").grant();
    client.ask("DLOCK.ACQUIRE passed-on PX 1500").grant();
    let mut next = primary.connect();
    next.begin("DLOCK.ACQUIRE passed-on BLOCK 0 TOKEN n");
    primary.wait_for_blocked(1);
    let mut replica = primary.connect();
    assert_eq!(replica.ask("REPLCONF capa eof"), "OK");
    replica.begin("PSYNC ? -1");
    eventually("a backlog", SOON, || {
        primary.info_number("replication", "repl_backlog_active") == 1
    });
    assert_eq!(primary.info_number("dsync", "dsync_lock_lapsed"), 0);
    next.recv(SOON).expect("the waiter is granted").grant();
    eventually("both lapses", SOON, || {
        primary.info_number("dsync", "dsync_lock_lapsed") == 2
    });
    let mut stream = ReplicationStream::of_backlog(&primary);
    let commands = stream.take_so_far(&primary);
    let words: Vec<_> = commands.iter().map(|command| words(command)).collect();
    assert!(
        words.iter().all(|command| !command.is_empty()),
        "a command without words: {words:?}"
    );
    for key in ["lapsing", "passed-on"] {
        let of_key = words
            .iter()
            .filter(|command| command[0] == "DSYN" && command[1] == key);
        assert_eq!(of_key.count(), 1, "{key}: {words:?}");
    }
    let brackets = |command: &&Vec<String>| command[0] == "MULTI" || command[0] == "EXEC";
    let rest = words.iter().filter(|command| !brackets(command));
    assert_eq!(rest.count(), 2, "{words:?}");
}

#[test]
fn timer_decisions_without_replica_count_for_save_points() {
    const LAPSES: u64 = 100;
    let server = Server::start();
    wait_until_module_sees_no_listener(&server);
    let changes = || server.info_number("persistence", "rdb_changes_since_last_save");
    let mut client = server.connect();
    for n in 0..LAPSES {
        client.ask(format!("DLOCK.ACQUIRE k{n} PX 2000")).grant();
    }
    let before = changes();
    assert_eq!(server.info_number("dsync", "dsync_lock_lapsed"), 0);
    eventually("the lapses", SOON, || {
        server.info_number("dsync", "dsync_lock_lapsed") == LAPSES
    });
    let after = changes();
    assert!(
        after >= before + LAPSES,
        "{before} changes before, {after} after"
    );
}

#[test]
fn changes_without_replica_count_for_save_points() {
    let server = Server::start();
    wait_until_module_sees_no_listener(&server);
    let before = server.info_number("persistence", "rdb_changes_since_last_save");
    let mut client = server.connect();
    for n in 0..10 {
        client.ask(format!("DLOCK.ACQUIRE k{n}")).grant();
    }
    let after = server.info_number("persistence", "rdb_changes_since_last_save");
    assert!(
        after >= before + 10,
        "{before} changes before, {after} after"
    );
}
