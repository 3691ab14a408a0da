//! Thousands of keys that are removed at once: every waiter is granted afresh, no queue stays behind, and the memory
//! is given back.

use super::lapse_wave::LapseWave;
use crate::support::steps::*;
use crate::support::*;

fn used_memory(server: &Server) -> i64 {
    i64::try_from(server.info_number("memory", "used_memory")).expect("memory fits")
}

#[test]
fn ten_thousand_keys_leave_no_memory_behind() {
    const KEYS: usize = 10_000;
    let server = Server::start();
    let mut client = server.connect();
    let all = |client: &mut Client, line: &str| {
        client.ask_all((0..KEYS).map(|n| line.replace("{}", &n.to_string())));
    };
    let take =
        "DLOCK.ACQUIRE lock:{} EX 600 TOKEN a-token-that-is-longer-than-a-uuid:{} OWNER owner-{}";
    // The first round allocates memory that the later rounds use again.
    all(&mut client, take);
    all(
        &mut client,
        "DLOCK.RELEASE lock:{} a-token-that-is-longer-than-a-uuid:{}",
    );
    assert_eq!(client.ask("DBSIZE"), 0);
    let before = used_memory(&server);
    for round in 0..2 {
        all(&mut client, take);
        assert_eq!(client.ask("DBSIZE"), KEYS as i64);
        all(
            &mut client,
            "DLOCK.RELEASE lock:{} a-token-that-is-longer-than-a-uuid:{}",
        );
        assert_eq!(client.ask("DBSIZE"), 0, "released, round {round}");

        all(&mut client, take);
        all(&mut client, "UNLINK lock:{}");
        assert_eq!(client.ask("DBSIZE"), 0, "unlinked, round {round}");

        all(&mut client, "DLOCK.ACQUIRE lock:{} PX 20");
        eventually("ten thousand lapses", SOON, || client.ask("DBSIZE") == 0);

        all(&mut client, "DLOCK.ACQUIRE lock:{} EX 600 EPHEMERAL");
        let old = std::mem::replace(&mut client, server.connect());
        old.close();
        eventually("ten thousand ends", SOON, || client.ask("DBSIZE") == 0);

        all(&mut client, "DSEM.ACQUIRE semaphore:{} LIMIT 3 EX 600");
        all(&mut client, "DWG.ADD group:{} EX 600");
        assert_eq!(client.ask("FLUSHALL ASYNC"), "OK");
        assert_eq!(client.ask("DBSIZE"), 0);

        all(&mut client, take);
        assert_eq!(client.ask("FLUSHALL"), "OK");
        assert_eq!(client.ask("DBSIZE"), 0);
    }
    // A held lock takes more than 100 bytes: a round that leaked would take more than a megabyte.
    eventually("the memory of the start", SOON, || {
        used_memory(&server) - before < 600_000
    });
}

#[test]
fn flush_of_keys_with_waiters_leaves_no_queue() {
    const KEYS: usize = 200;
    let server = Server::start();
    let mut admin = server.connect();
    let lines: Vec<_> = (0..KEYS)
        .map(|n| format!("DLOCK.ACQUIRE lock:{n} EX 600"))
        .collect();
    admin.ask_all(&lines);
    let mut waiters: Vec<_> = (0..KEYS).map(|_| server.connect()).collect();
    for (n, waiter) in waiters.iter_mut().enumerate() {
        waiter.begin(format!("DLOCK.ACQUIRE lock:{n} EX 600 BLOCK 0"));
    }
    server.wait_for_blocked(KEYS as u64);
    assert_eq!(admin.ask("FLUSHALL"), "OK");
    let tokens: Vec<_> = waiters
        .iter_mut()
        .map(|waiter| waiter.granted().0)
        .collect();
    for (n, token) in tokens.iter().enumerate() {
        assert_eq!(admin.ask(format!("DLOCK.RELEASE lock:{n} {token}")), 1);
    }
    assert_eq!(admin.ask("DBSIZE"), 0);
    server.wait_for_blocked(0);
}

#[test]
fn holds_freed_after_flush_leave_names_usable() {
    let server = Server::start();
    let mut client = server.connect();
    let acquire =
        |generation: usize| move |n| format!("DLOCK.ACQUIRE k{n} PX 60000 TOKEN g{generation}");
    let mut used = Vec::new();
    for generation in 0..4 {
        for reply in client.ask_all((0..50_000).map(acquire(generation))) {
            reply.grant();
        }
        used.push(server.info_number("memory", "used_memory"));
        let mut waiter = server.connect();
        waiter.begin("DLOCK.ACQUIRE k7 BLOCK 0 TOKEN waiter");
        server.wait_for_blocked(1);
        // The server frees the values on another thread, or during the command; the module frees the holds later.
        let flush = [
            "FLUSHALL ASYNC",
            "FLUSHALL SYNC",
            "FLUSHDB ASYNC",
            "FLUSHDB SYNC",
        ][generation];
        assert_eq!(client.ask(flush), "OK");
        // At once, while the old holds are being freed.
        let acquire_new = |n| format!("DLOCK.ACQUIRE new{n} PX 60000 TOKEN new");
        for reply in client.ask_all((0..2_000).map(acquire_new)) {
            reply.grant();
        }
        assert_eq!(waiter.granted().0, "waiter");
        let check_new = |n| format!("DLOCK.CHECK new{n} new");
        for left in client.ask_all((0..2_000).map(check_new)) {
            assert!(left.as_int() > 0);
        }
        assert_eq!(client.ask(format!("DLOCK.CHECK k1 g{generation}")), 0);
        assert_eq!(client.ask("DBSIZE"), 2_001);
        assert_eq!(client.ask("FLUSHALL SYNC"), "OK");
    }
    // The numbers of freed values are used again: three generations do not leave three times as much.
    assert!(
        used[3] < used[0] + used[0] / 2,
        "used_memory by generation: {used:?}"
    );
    assert_calm(&server);
}

#[test]
fn flush_or_swap_in_wave_of_lapses_serves_every_waiter() {
    let server = Server::start();
    for flush in [
        &["FLUSHALL", "ASYNC"][..],
        &["FLUSHDB", "SYNC"],
        &["SWAPDB", "0", "1"],
    ] {
        let wave = LapseWave::start(&server, 40);
        LapseWave::wait_for_middle(&server);
        assert_eq!(server.connect().call(flush), "OK");
        wave.assert_all_granted();
        let mut client = server.connect();
        for db in 0..2 {
            client.ask(format!("SELECT {db}"));
            eventually("the end of the wave", SOON, || client.ask("DBSIZE") == 0);
        }
    }
    assert_calm(&server);
}
