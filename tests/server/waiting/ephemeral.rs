//! EPHEMERAL: a hold ends when the connection that got it closes, or when its lease runs out, whichever is first.
//!
//! Requests that are sent again are in `retries`, scripts in `no_blocking`.

use crate::support::steps::*;
use crate::support::*;
use std::time::Duration;

/// How a connection ends.
#[derive(Clone, Copy, Debug)]
enum ConnectionEnd {
    Closed,
    Killed,
    Quit,
}

fn end(mut client: Client, admin: &mut Client, how: ConnectionEnd) {
    match how {
        ConnectionEnd::Closed => client.close(),
        ConnectionEnd::Killed => {
            let id = client.id();
            assert_eq!(admin.ask(format!("CLIENT KILL ID {id}")), 1);
            client.expect_closed(SOON);
        }
        ConnectionEnd::Quit => {
            assert_eq!(client.ask("QUIT"), "OK");
            client.expect_closed(SOON);
        }
    }
}

#[test]
fn ephemeral_hold_ends_with_its_connection_and_passes_on() {
    let server = Server::start();
    let mut admin = server.connect();
    for how in [
        ConnectionEnd::Closed,
        ConnectionEnd::Killed,
        ConnectionEnd::Quit,
    ] {
        let mut holder = server.connect();
        let (token, fence) = holder.ask("DLOCK.ACQUIRE lock EX 600 EPHEMERAL").grant();
        let mut first = server.waiting("DLOCK.ACQUIRE lock TOKEN first BLOCK 0");
        let mut second = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
        first.expect_silence(A_WHILE);
        end(holder, &mut admin, how);
        assert!(first.granted().1 > fence, "{how:?}");
        assert_eq!(
            admin.ask(format!("DLOCK.RELEASE lock {token}")),
            0,
            "{how:?}"
        );
        second.expect_silence(A_WHILE);
        assert_eq!(admin.ask("DLOCK.RELEASE lock first"), 1);
        let (token, _) = second.granted();
        assert_eq!(admin.ask(format!("DLOCK.RELEASE lock {token}")), 1);
    }
}

#[test]
fn ephemeral_hold_without_waiters_takes_its_key_along() {
    let server = Server::start();
    let mut admin = server.connect();
    let mut holder = server.connect();
    holder.ask("DLOCK.ACQUIRE lock EX 600 EPHEMERAL").grant();
    holder
        .ask("DSEM.ACQUIRE semaphore LIMIT 2 EX 600 EPHEMERAL")
        .grant();
    holder.close();
    eventually("an empty database", SOON, || admin.ask("DBSIZE") == 0);
}

#[test]
fn ephemeral_end_leaves_other_holds_alone() {
    let server = Server::start();
    let mut admin = server.connect();
    let mut holder = server.connect();
    holder.ask("DLOCK.ACQUIRE lock TOKEN t").grant();
    holder.ask("DLOCK.ACQUIRE bound TOKEN t EPHEMERAL").grant();
    admin
        .ask("DSEM.ACQUIRE semaphore LIMIT 3 TOKEN admins EPHEMERAL")
        .grant();
    holder
        .ask("DSEM.ACQUIRE semaphore LIMIT 3 TOKEN plain")
        .grant();
    holder
        .ask("DSEM.ACQUIRE semaphore LIMIT 3 TOKEN bound EPHEMERAL")
        .grant();
    let mut waiter = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    holder.close();
    wait_until_gone(&mut admin, "bound");
    assert!(admin.ask("DLOCK.CHECK lock t").as_int() > 0);
    waiter.expect_silence(A_WHILE);
    eventually("one permit back", SOON, || {
        count(&mut admin, "DSEM.INFO", "semaphore", "available") == 1
    });
    assert!(admin.ask("DSEM.CHECK semaphore plain").as_int() > 0);
    assert!(admin.ask("DSEM.CHECK semaphore admins").as_int() > 0);
    assert_eq!(admin.ask("DSEM.CHECK semaphore bound"), 0);
}

#[test]
fn ephemeral_grant_after_waiting_is_bound_to_the_waiter() {
    let server = Server::start();
    let mut holder = server.connect();
    holder.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    let mut waiter = server.waiting("DLOCK.ACQUIRE lock EPHEMERAL BLOCK 0");
    let mut next = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    assert_eq!(holder.ask("DLOCK.RELEASE lock held"), 1);
    waiter.granted();
    next.expect_silence(A_WHILE);
    waiter.close();
    next.granted();
}

#[test]
fn ephemeral_hold_that_ended_does_not_end_the_next() {
    let server = Server::start();
    let mut admin = server.connect();
    let mut holder = server.connect();
    // Released; then another connection takes it with the same token, without EPHEMERAL.
    holder.ask("DLOCK.ACQUIRE one TOKEN t EPHEMERAL").grant();
    assert_eq!(holder.ask("DLOCK.RELEASE one t"), 1);
    admin.ask("DLOCK.ACQUIRE one TOKEN t").grant();
    // Lapsed; the next waiter has it.
    holder.ask("DLOCK.ACQUIRE two PX 30 EPHEMERAL").grant();
    let mut next = server.connect();
    next.begin("DLOCK.ACQUIRE two TOKEN t BLOCK 0");
    next.granted();
    // Its key was deleted; another connection has it.
    holder.ask("DLOCK.ACQUIRE three EPHEMERAL").grant();
    assert_eq!(admin.ask("DEL three"), 1);
    admin.ask("DLOCK.ACQUIRE three TOKEN t").grant();
    holder.ask("DLOCK.ACQUIRE last EPHEMERAL").grant();
    holder.close();
    wait_until_gone(&mut admin, "last");
    for key in ["one", "two", "three"] {
        assert!(
            admin.ask(format!("DLOCK.CHECK {key} t")).as_int() > 0,
            "{key}"
        );
    }
}

#[test]
fn ephemeral_hold_also_lapses() {
    let server = Server::start();
    let mut holder = server.connect();
    let (token, _) = holder.ask("DLOCK.ACQUIRE lock PX 150 EPHEMERAL").grant();
    let mut waiter = server.connect();
    waiter.begin("DLOCK.ACQUIRE lock TOKEN next BLOCK 0");
    waiter.granted();
    assert_eq!(holder.ask(format!("DLOCK.RENEW lock {token}")), 0);
    holder.close();
    // Two connections are left: the waiter's, and the one that asks for INFO.
    eventually("the closed connection to be noticed", SOON, || {
        server.info_number("clients", "connected_clients") == 2
    });
    assert!(waiter.ask("DLOCK.CHECK lock next").as_int() > 0);
}

#[test]
fn ephemeral_hold_renewed_from_elsewhere_stays_bound() {
    let server = Server::start();
    let (mut holder, mut renewer) = (server.connect(), server.connect());
    let (token, _) = holder.ask("DLOCK.ACQUIRE lock EPHEMERAL").grant();
    assert_eq!(renewer.ask(format!("DLOCK.RENEW lock {token} EX 600")), 1);
    let mut waiter = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    // The hold stays bound to the connection that got it, not to the one that renews.
    renewer.close();
    waiter.expect_silence(Duration::from_millis(100));
    holder.close();
    waiter.granted();
}

#[test]
fn ephemeral_holds_of_one_connection_end_together() {
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
    for reply in holder.ask_all(&lines) {
        reply.grant();
    }
    let mut waiters: Vec<_> = (0..EACH)
        .step_by(10)
        .map(|n| server.waiting(format!("DLOCK.ACQUIRE lock:{n} BLOCK 0")))
        .collect();
    let mut all = server.waiting(format!(
        "DSEM.ACQUIRE semaphore LIMIT {EACH} PERMITS {EACH} BLOCK 0"
    ));
    let mut watcher = server.waiting("DWG.WAIT group BLOCK 0");
    holder.close();
    for waiter in &mut waiters {
        waiter.granted();
    }
    all.granted();
    let finished = watcher.reply();
    assert_eq!(finished.as_array()[0], 0, "{finished:?}");
    assert_eq!(finished.as_array()[1], 100, "all were lost: {finished:?}");
    assert_eq!(admin.ask("EXISTS lock:1 lock:99"), 0);
    eventually(
        "the end of all keys but those of the new holds",
        SOON,
        || admin.ask("DBSIZE") == (waiters.len() + 2) as i64,
    );
}

#[test]
fn ephemeral_hold_renamed_moved_or_swapped_ends_all_the_same() {
    let server = Server::start();
    let mut admin = server.connect();
    for travel in [
        ["RENAME lock:0 lock:1", "SELECT 0"],
        ["MOVE lock:0 1", "SELECT 1"],
        ["SWAPDB 0 1", "SELECT 1"],
    ] {
        let mut holder = server.connect();
        holder.ask("DLOCK.ACQUIRE lock:0 EX 600 EPHEMERAL").grant();
        let reply = admin.ask(travel[0]);
        assert!(!reply.is_error(), "{travel:?}: {reply:?}");
        admin.ask(travel[1]);
        assert_eq!(admin.ask("DBSIZE"), 1, "{travel:?}");
        holder.close();
        eventually("the hold's end under its new name", SOON, || {
            admin.ask("DBSIZE") == 0
        });
        admin.ask("SELECT 0");
        assert_eq!(admin.ask("DBSIZE"), 0);
    }
}

#[test]
fn ephemeral_hold_closed_during_busy_script_ends_after_it() {
    let server = Server::start();
    let (mut busy, mut admin) = (server.connect(), server.connect());
    let mut holder = server.connect();
    holder.ask("DLOCK.ACQUIRE lock EX 600 EPHEMERAL").grant();
    holder.ask("DLOCK.ACQUIRE alone EX 600 EPHEMERAL").grant();
    let mut waiter = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    keep_busy(&mut busy, &mut admin);
    holder.close();
    waiter.expect_silence(Duration::from_millis(300));
    assert_eq!(admin.ask("SCRIPT KILL"), "OK");
    assert!(busy.reply().is_error());
    waiter.granted();
    wait_until_gone(&mut admin, "alone");
}

#[test]
fn ephemeral_hold_closed_during_client_pause_ends_after_it() {
    let server = Server::start();
    let mut admin = server.connect();
    let mut holder = server.connect();
    holder.ask("DLOCK.ACQUIRE lock EX 600 EPHEMERAL").grant();
    let mut waiter = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    assert_eq!(admin.ask("CLIENT PAUSE 30000 WRITE"), "OK");
    holder.close();
    waiter.expect_silence(Duration::from_millis(200));
    assert_eq!(admin.ask("CLIENT UNPAUSE"), "OK");
    waiter.granted();
}

#[test]
fn ephemeral_hold_and_next_waiter_lost_together_serve_the_third() {
    let server = Server::start();
    let mut third = server.connect();
    let mut holder = server.connect();
    holder.ask("DLOCK.ACQUIRE lock EX 600 EPHEMERAL").grant();
    let second = server.waiting("DLOCK.ACQUIRE lock EPHEMERAL BLOCK 0");
    third.wait_on(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    server.stop();
    holder.close();
    second.close();
    server.cont();
    third.granted();
}

/// The server's setting `timeout` closes connections without requests, also one with a hold that is renewed elsewhere.
#[test]
fn ephemeral_hold_ends_when_the_servers_timeout_closes_its_connection() {
    let server = Server::builder().config("timeout", 1).start();
    let mut holder = server.connect();
    holder
        .ask("DLOCK.ACQUIRE lock EX 600 TOKEN bound EPHEMERAL")
        .grant();
    holder.ask("DLOCK.ACQUIRE plain EX 600 TOKEN t").grant();
    let mut waiter = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    let mut renewer = server.connect();
    eventually("the end of the hold", 2 * SOON, || {
        renewer.ask("DLOCK.RENEW lock bound EX 600") == 0
    });
    // Nobody closes the connection of a client that waits, and a hold without EPHEMERAL stays.
    waiter.granted();
    holder.expect_closed(SOON);
    assert!(renewer.ask("DLOCK.CHECK plain t").as_int() > 0);
}
