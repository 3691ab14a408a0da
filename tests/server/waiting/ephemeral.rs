//! Holds that end with the connection that got them, besides their lease.
//!
//! The retries of such holds are told in `retries`, scripts in `no_blocking`.

use crate::support::steps::*;
use crate::support::*;
use std::time::Duration;

/// The ways in which a connection ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Closed,
    Killed,
    Quit,
}

fn end(mut client: Client, admin: &mut Client, how: End) {
    match how {
        End::Closed => client.close(),
        End::Killed => {
            let id = client.id();
            assert_eq!(ask(admin, format!("CLIENT KILL ID {id}")), 1);
            client.expect_closed(SOON);
        }
        End::Quit => {
            assert_eq!(ask(&mut client, "QUIT"), "OK");
            client.expect_closed(SOON);
        }
    }
}

#[test]
fn an_ephemeral_hold_ends_with_its_connection_and_passes_on() {
    let server = Server::start();
    let mut admin = server.connect();
    for how in [End::Closed, End::Killed, End::Quit] {
        let mut holder = server.connect();
        let (token, fence) = ask(&mut holder, "DLOCK.ACQUIRE lock EX 600 EPHEMERAL").grant();
        let mut first = queued(&server, "DLOCK.ACQUIRE lock TOKEN first BLOCK 0");
        let mut second = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
        first.expect_silence(A_WHILE);
        end(holder, &mut admin, how);
        assert!(granted(&mut first).1 > fence, "{how:?}");
        assert_eq!(
            ask(&mut admin, format!("DLOCK.RELEASE lock {token}")),
            0,
            "{how:?}"
        );
        second.expect_silence(A_WHILE);
        assert_eq!(ask(&mut admin, "DLOCK.RELEASE lock first"), 1);
        let (token, _) = granted(&mut second);
        assert_eq!(ask(&mut admin, format!("DLOCK.RELEASE lock {token}")), 1);
    }
}

#[test]
fn without_waiters_the_key_goes_too() {
    let server = Server::start();
    let mut admin = server.connect();
    let mut holder = server.connect();
    ask(&mut holder, "DLOCK.ACQUIRE lock EX 600 EPHEMERAL").grant();
    ask(
        &mut holder,
        "DSEM.ACQUIRE semaphore LIMIT 2 EX 600 EPHEMERAL",
    )
    .grant();
    holder.close();
    eventually("an empty database", SOON, || ask(&mut admin, "DBSIZE") == 0);
}

#[test]
fn other_holds_stay_when_a_connection_ends() {
    let server = Server::start();
    let mut admin = server.connect();
    let mut holder = server.connect();
    ask(&mut holder, "DLOCK.ACQUIRE lock TOKEN t").grant();
    ask(&mut holder, "DLOCK.ACQUIRE bound TOKEN t EPHEMERAL").grant();
    ask(
        &mut admin,
        "DSEM.ACQUIRE semaphore LIMIT 3 TOKEN admins EPHEMERAL",
    )
    .grant();
    ask(&mut holder, "DSEM.ACQUIRE semaphore LIMIT 3 TOKEN plain").grant();
    ask(
        &mut holder,
        "DSEM.ACQUIRE semaphore LIMIT 3 TOKEN bound EPHEMERAL",
    )
    .grant();
    let mut waiter = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    holder.close();
    wait_until_gone(&mut admin, "bound");
    assert!(ask(&mut admin, "DLOCK.CHECK lock t").as_int() > 0);
    waiter.expect_silence(A_WHILE);
    eventually("one permit back", SOON, || {
        count(&mut admin, "DSEM.INFO", "semaphore", "available") == 1
    });
    assert!(ask(&mut admin, "DSEM.CHECK semaphore plain").as_int() > 0);
    assert!(ask(&mut admin, "DSEM.CHECK semaphore admins").as_int() > 0);
    assert_eq!(ask(&mut admin, "DSEM.CHECK semaphore bound"), 0);
}

#[test]
fn a_grant_after_waiting_is_bound_to_the_connection_that_waited() {
    let server = Server::start();
    let mut holder = server.connect();
    ask(&mut holder, "DLOCK.ACQUIRE lock TOKEN held").grant();
    let mut waiter = queued(&server, "DLOCK.ACQUIRE lock EPHEMERAL BLOCK 0");
    let mut next = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    assert_eq!(ask(&mut holder, "DLOCK.RELEASE lock held"), 1);
    granted(&mut waiter);
    next.expect_silence(A_WHILE);
    waiter.close();
    granted(&mut next);
}

#[test]
fn a_released_or_lapsed_ephemeral_hold_leaves_nothing_that_could_end_the_next() {
    let server = Server::start();
    let mut admin = server.connect();
    let mut holder = server.connect();
    // Released, and held by the same token again without EPHEMERAL, by another.
    ask(&mut holder, "DLOCK.ACQUIRE one TOKEN t EPHEMERAL").grant();
    assert_eq!(ask(&mut holder, "DLOCK.RELEASE one t"), 1);
    ask(&mut admin, "DLOCK.ACQUIRE one TOKEN t").grant();
    // Lapsed, and handed over.
    ask(&mut holder, "DLOCK.ACQUIRE two PX 30 EPHEMERAL").grant();
    let mut next = server.connect();
    tell(&mut next, "DLOCK.ACQUIRE two TOKEN t BLOCK 0");
    granted(&mut next);
    // Removed, and granted afresh.
    ask(&mut holder, "DLOCK.ACQUIRE three EPHEMERAL").grant();
    assert_eq!(ask(&mut admin, "DEL three"), 1);
    ask(&mut admin, "DLOCK.ACQUIRE three TOKEN t").grant();
    ask(&mut holder, "DLOCK.ACQUIRE last EPHEMERAL").grant();
    holder.close();
    wait_until_gone(&mut admin, "last");
    for key in ["one", "two", "three"] {
        assert!(
            ask(&mut admin, format!("DLOCK.CHECK {key} t")).as_int() > 0,
            "{key}"
        );
    }
}

#[test]
fn its_lease_ends_an_ephemeral_hold_too() {
    let server = Server::start();
    let mut holder = server.connect();
    let (token, _) = ask(&mut holder, "DLOCK.ACQUIRE lock PX 150 EPHEMERAL").grant();
    let mut waiter = server.connect();
    tell(&mut waiter, "DLOCK.ACQUIRE lock TOKEN next BLOCK 0");
    granted(&mut waiter);
    assert_eq!(ask(&mut holder, format!("DLOCK.RENEW lock {token}")), 0);
    holder.close();
    // This one and the one that counts.
    eventually("the closed connection to be noticed", SOON, || {
        server.info_number("clients", "connected_clients") == 2
    });
    assert!(ask(&mut waiter, "DLOCK.CHECK lock next").as_int() > 0);
}

#[test]
fn a_renewed_ephemeral_hold_stays_bound() {
    let server = Server::start();
    let (mut holder, mut renewer) = (server.connect(), server.connect());
    let (token, _) = ask(&mut holder, "DLOCK.ACQUIRE lock EPHEMERAL").grant();
    assert_eq!(
        ask(&mut renewer, format!("DLOCK.RENEW lock {token} EX 600")),
        1
    );
    let mut waiter = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    // Whoever renews is not who holds.
    renewer.close();
    waiter.expect_silence(Duration::from_millis(100));
    holder.close();
    granted(&mut waiter);
}

#[test]
fn a_hundred_holds_of_one_connection_end_together() {
    const EACH: usize = 100;
    let server = Server::start();
    let mut admin = server.connect();
    let mut holder = server.connect();
    let mut lines = Vec::new();
    for n in 0..EACH {
        lines.push(format!("DLOCK.ACQUIRE lock:{n} EX 600 EPHEMERAL"));
        lines.push(format!(
            "DSEM.ACQUIRE semaphore LIMIT {EACH} EX 600 EPHEMERAL"
        ));
        lines.push("DWG.ADD group EX 600 EPHEMERAL".to_owned());
    }
    for reply in at_once(&mut holder, &lines) {
        reply.grant();
    }
    let mut waiters: Vec<_> = (0..EACH)
        .step_by(10)
        .map(|n| queued(&server, format!("DLOCK.ACQUIRE lock:{n} BLOCK 0")))
        .collect();
    let mut all = queued(
        &server,
        format!("DSEM.ACQUIRE semaphore LIMIT {EACH} PERMITS {EACH} BLOCK 0"),
    );
    let mut watcher = queued(&server, "DWG.WAIT group BLOCK 0");
    holder.close();
    for waiter in &mut waiters {
        granted(waiter);
    }
    granted(&mut all);
    let finished = reply(&mut watcher);
    assert_eq!(finished.as_array()[0], 0, "{finished:?}");
    assert_eq!(finished.as_array()[1], 100, "lost, not done: {finished:?}");
    assert_eq!(ask(&mut admin, "EXISTS lock:1 lock:99"), 0);
    eventually("all but what was granted anew", SOON, || {
        ask(&mut admin, "DBSIZE") == (waiters.len() + 2) as i64
    });
}

#[test]
fn a_hold_that_was_renamed_moved_or_swapped_ends_with_its_connection_all_the_same() {
    let server = Server::start();
    let mut admin = server.connect();
    for travel in [
        ["RENAME lock:0 lock:1", "SELECT 0"],
        ["MOVE lock:0 1", "SELECT 1"],
        ["SWAPDB 0 1", "SELECT 1"],
    ] {
        let mut holder = server.connect();
        ask(&mut holder, "DLOCK.ACQUIRE lock:0 EX 600 EPHEMERAL").grant();
        let reply = ask(&mut admin, travel[0]);
        assert!(!reply.is_error(), "{travel:?}: {reply:?}");
        ask(&mut admin, travel[1]);
        assert_eq!(ask(&mut admin, "DBSIZE"), 1, "{travel:?}");
        holder.close();
        eventually("the hold's end where it went", SOON, || {
            ask(&mut admin, "DBSIZE") == 0
        });
        ask(&mut admin, "SELECT 0");
        assert_eq!(ask(&mut admin, "DBSIZE"), 0);
    }
}

#[test]
fn a_connection_that_closes_in_the_middle_of_a_busy_script_loses_its_holds_after_it() {
    let server = Server::start();
    let (mut busy, mut admin) = (server.connect(), server.connect());
    let mut holder = server.connect();
    ask(&mut holder, "DLOCK.ACQUIRE lock EX 600 EPHEMERAL").grant();
    ask(&mut holder, "DLOCK.ACQUIRE alone EX 600 EPHEMERAL").grant();
    let mut waiter = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    assert_eq!(ask(&mut busy, "CONFIG SET busy-reply-threshold 10"), "OK");
    send!(busy, "EVAL", "while true do end", 0);
    eventually("a busy server", SOON, || {
        let reply = ask(&mut admin, "PING");
        reply.is_error() && reply.error().starts_with("BUSY")
    });
    holder.close();
    waiter.expect_silence(Duration::from_millis(300));
    assert_eq!(ask(&mut admin, "SCRIPT KILL"), "OK");
    assert!(reply(&mut busy).is_error());
    granted(&mut waiter);
    wait_until_gone(&mut admin, "alone");
}

#[test]
fn a_connection_that_closes_while_writes_are_paused_loses_its_holds_when_they_go_on() {
    let server = Server::start();
    let mut admin = server.connect();
    let mut holder = server.connect();
    ask(&mut holder, "DLOCK.ACQUIRE lock EX 600 EPHEMERAL").grant();
    let mut waiter = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    assert_eq!(ask(&mut admin, "CLIENT PAUSE 30000 WRITE"), "OK");
    holder.close();
    waiter.expect_silence(Duration::from_millis(200));
    assert_eq!(ask(&mut admin, "CLIENT UNPAUSE"), "OK");
    granted(&mut waiter);
}

#[test]
fn an_ephemeral_hold_and_the_next_waiter_lost_in_one_turn_pass_to_the_third() {
    let server = Server::start();
    let mut third = server.connect();
    let mut holder = server.connect();
    ask(&mut holder, "DLOCK.ACQUIRE lock EX 600 EPHEMERAL").grant();
    let second = queued(&server, "DLOCK.ACQUIRE lock EPHEMERAL BLOCK 0");
    queue(&server, &mut third, "DLOCK.ACQUIRE lock BLOCK 0");
    server.stop();
    holder.close();
    second.close();
    server.cont();
    granted(&mut third);
}
