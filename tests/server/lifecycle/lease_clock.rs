//! Leases while the server stands still: its process is stopped, or a script keeps it busy.
//!
//! Leases run on a clock that stands still while the server cannot serve. So no hold lapses whose RENEW waits in the
//! socket, and a hold has what is left of its lease when the server goes on.
//!
//! Not here: writes that are refused (`writes_refused`), a wall clock that jumps (`clock_jump`), many leases at once
//! (`many_lapses`).

use crate::support::steps::*;
use crate::support::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// At most this much of a turn of the event loop counts for a lease: the server sleeps up to 100 ms between turns, and
/// 100 ms more are allowed for the turn itself.
const TURN_MS: i64 = 200;

fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).expect("a short while")
}

/// The milliseconds that are left of the lease of token `t`.
#[track_caller]
pub(super) fn check(client: &mut Client, key: &str) -> i64 {
    client.ask(format!("DLOCK.CHECK {key} t")).as_int()
}

/// Returns at the moment; sleeps until then, unlike [`at`].
fn until(moment: Instant) {
    thread::sleep(moment.saturating_duration_since(Instant::now()));
}

/// Asserts that the condition holds all the time `during` lasts.
#[track_caller]
pub(super) fn assert_always(what: &str, during: Duration, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + during;
    while Instant::now() < end {
        assert!(holds(), "not any more: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn renewal_in_socket_saves_hold_of_stopped_server() {
    let server = Server::start();
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    for round in 0..3 {
        holder.ask("DLOCK.ACQUIRE k PX 700 TOKEN t");
        waiter.begin("DLOCK.ACQUIRE k BLOCK 0 TOKEN w");
        server.wait_for_blocked(1);
        assert_eq!(holder.ask("DLOCK.RENEW k t"), 1);
        server.stop();
        let stopped = Instant::now();
        holder.begin("DLOCK.RENEW k t EX 60");
        until(stopped + Duration::from_millis(1_500));
        server.cont();
        assert_eq!(
            holder.recv(SOON).expect("a reply to RENEW"),
            1,
            "round {round}"
        );
        waiter.expect_silence(Duration::from_millis(50));
        assert_eq!(holder.ask("DLOCK.RELEASE k t"), 1);
        waiter.granted();
        assert_eq!(holder.ask("DLOCK.RELEASE k w"), 1);
    }
}

/// Stalls the server for longer than a lease, and asserts that the lease did not run meanwhile and that the hold then
/// keeps what is left of it.
#[track_caller]
fn assert_stands_still(server: &Server, stall: impl FnOnce()) {
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    holder.ask("DLOCK.ACQUIRE k PX 1500 TOKEN t");
    waiter.begin("DLOCK.ACQUIRE k BLOCK 0 TOKEN w");
    server.wait_for_blocked(1);
    let asked = Instant::now();
    let before = check(&mut holder, "k");
    let began = Instant::now();
    stall();
    let ended = Instant::now();
    assert!(
        ended - began > Duration::from_millis(1_500),
        "the stall is longer than the lease"
    );
    let sent = Instant::now();
    let after = check(&mut holder, "k");
    // 5 ms: three roundings to milliseconds here and two in CHECK. Two turns: the server's cron may have ended one turn
    // between the reply to CHECK and the stall.
    let awake = ms(began - asked) + ms(ended.elapsed()) + 5;
    assert!(
        after >= before - 2 * TURN_MS - awake,
        "{before} ms left before, {after} after, {awake} awake"
    );
    waiter.expect_silence(Duration::ZERO);
    // The hold lapses only when the rest of its lease is over.
    waiter.granted();
    assert!(
        ms(sent.elapsed()) >= after - 1,
        "{after} ms were left, it was lapsed after {:?}",
        sent.elapsed()
    );
    holder.ask("DEL k");
}

#[test]
fn lease_stands_still_while_server_is_stopped() {
    let server = Server::start();
    for _ in 0..2 {
        assert_stands_still(&server, || {
            server.stop();
            until(Instant::now() + Duration::from_millis(2_000));
            server.cont();
        });
    }
}

/// Time for a slow script to end, and for the replies that it delays, on a machine under load.
const SCRIPT_WITHIN: Duration = Duration::from_secs(60);

fn send_slow_script(client: &mut Client, ms: u32) {
    send!(client, "EVAL", busy_for(ms) + "return 'done'", 0);
}

#[track_caller]
fn expect_end_of_script(client: &mut Client) {
    assert_eq!(client.recv(SCRIPT_WITHIN).expect("the script ends"), "done");
}

#[test]
fn lease_stands_still_during_slow_script() {
    let server = Server::start();
    let mut slow = server.connect();
    assert_stands_still(&server, || {
        send_slow_script(&mut slow, 1_700);
        expect_end_of_script(&mut slow);
    });
}

#[test]
fn renewal_in_socket_saves_hold_during_slow_script() {
    // The threshold is so high that the server never answers BUSY, even on a machine under load.
    let server = Server::builder()
        .config("busy-reply-threshold", 60_000)
        .start();
    let (mut holder, mut waiter, mut slow) = (server.connect(), server.connect(), server.connect());
    holder.ask("DLOCK.ACQUIRE k PX 500 TOKEN t");
    waiter.begin("DLOCK.ACQUIRE k BLOCK 0");
    server.wait_for_blocked(1);
    assert_eq!(holder.ask("DLOCK.RENEW k t"), 1);
    send_slow_script(&mut slow, 1_200);
    holder.begin("DLOCK.RENEW k t EX 60");
    assert_eq!(holder.recv(SCRIPT_WITHIN).expect("a reply to RENEW"), 1);
    expect_end_of_script(&mut slow);
    waiter.expect_silence(Duration::from_millis(50));
}

#[test]
fn lease_stands_still_during_script_that_answers_busy() {
    // Past the threshold the server reads other clients in the middle of the script and answers BUSY; leases must not
    // run then.
    let server = Server::builder().config("busy-reply-threshold", 50).start();
    let mut slow = server.connect();
    assert_stands_still(&server, || {
        send_slow_script(&mut slow, 1_700);
        expect_end_of_script(&mut slow);
    });
    assert_calm(&server);
}

#[test]
fn server_stopped_again_and_again_serves_every_request() {
    let server = Server::start();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for worker in 0..4 {
            let (server, over) = (&server, &over);
            scope.spawn(move || {
                let mut client = server.connect();
                let mut done = 0;
                while !over.load(Ordering::Relaxed) || done < 8 {
                    let token = format!("{worker}:{done}");
                    let reply =
                        client.ask(format!("DLOCK.ACQUIRE k PX 150 BLOCK 8000 TOKEN {token}"));
                    let (mine, _) = reply.grant();
                    assert_eq!(mine, token);
                    if done % 3 != 0 {
                        client.ask(format!("DLOCK.RELEASE k {token}"));
                    }
                    done += 1;
                }
            });
        }
        for _ in 0..6 {
            server.stop();
            until(Instant::now() + Duration::from_millis(120));
            server.cont();
            until(Instant::now() + Duration::from_millis(100));
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_calm(&server);
}
