//! A server to whom nobody listens leaves its changes unwritten; whoever begins to listen, at whatever
//! moment, must miss none.
//!
//! Each story waits until the server has had time to find out that it is alone, and lets somebody begin to
//! listen in the middle of traffic: what that one holds in the end is what the server holds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::harness::*;

const SOON: Duration = Duration::from_secs(20);

/// Locks, semaphores and hand-overs on a hundred keys until it is told to stop.
fn traffic(client: &mut Client, stop: &AtomicBool) -> u64 {
    let mut calls: u64 = 0;
    while !stop.load(Ordering::Relaxed) {
        let key = format!("k{}", calls % 100);
        let token = format!("t{calls}");
        let before = format!("t{}", calls.saturating_sub(37));
        call!(
            client,
            "DLOCK.ACQUIRE",
            &key,
            "SHARED",
            "TOKEN",
            &token,
            "PX",
            600_000
        );
        call!(
            client,
            "DSEM.ACQUIRE",
            format!("s{key}"),
            "LIMIT",
            50,
            "TOKEN",
            &token,
            "PX",
            600_000
        );
        let old = format!("k{}", calls.saturating_sub(37) % 100);
        call!(client, "DLOCK.RELEASE", &old, &before);
        call!(client, "DSEM.RELEASE", format!("s{old}"), &before);
        calls += 1;
    }
    calls
}

/// The digests of all keys, `-` for one that is not there.
fn digests(server: &Server) -> Vec<String> {
    let keys = (0..100).flat_map(|n| [format!("k{n}"), format!("sk{n}")]);
    keys.map(|key| digest(server, &key)).collect()
}

/// The server has looked around twice by then: its cron runs ten times a second.
fn let_it_find_out_that_it_is_alone(server: &Server) {
    let mut client = server.connect();
    let since = std::time::Instant::now();
    eventually("the server looked around", SOON, || {
        call!(client, "PING");
        since.elapsed() > Duration::from_millis(500)
    });
}

#[test]
fn the_first_replica_misses_nothing_that_happens_while_it_comes() {
    let primary = Server::start();
    let_it_find_out_that_it_is_alone(&primary);
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
fn an_aof_that_is_switched_on_in_the_middle_of_traffic_has_everything_after_it() {
    let mut server = Server::builder().config("appendfsync", "always").start();
    let_it_find_out_that_it_is_alone(&server);
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let mut client = server.connect();
        let traffic = threads.spawn({
            let stop = &stop;
            move || traffic(&mut client, stop)
        });
        let mut operator = server.connect();
        assert_eq!(call!(operator, "CONFIG", "SET", "appendonly", "yes"), "OK");
        assert_eq!(call!(operator, "CONFIG", "REWRITE"), "OK");
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

#[test]
fn changes_that_nobody_hears_still_count_for_the_save_points() {
    let server = Server::start();
    let_it_find_out_that_it_is_alone(&server);
    let before = server.info_number("persistence", "rdb_changes_since_last_save");
    let mut client = server.connect();
    for n in 0..10 {
        call!(client, "DLOCK.ACQUIRE", format!("k{n}")).grant();
    }
    let after = server.info_number("persistence", "rdb_changes_since_last_save");
    assert!(
        after >= before + 10,
        "{before} changes before, {after} after"
    );
}
