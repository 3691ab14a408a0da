//! Locks: leases. How long one runs, what its end does, what RENEW and CHECK answer before and after it.
//!
//! A hold is *overdue* between the end of its lease and its lapse. `DEBUG SLEEP` in one batch with other commands
//! makes that moment: the event loop cannot run its timers in between. Clocks and longer stalls are in `lease_clock`.

use crate::support::steps::*;
use crate::support::*;
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn lapse_is_never_early_and_serves_the_next() {
    let server = Server::start();
    let leases = [1, 5, 30, 100, 180, 250, 400];
    let mut holder = server.connect();
    let mut waiting: Vec<_> = leases.iter().map(|_| server.connect()).collect();
    let mut asked = Vec::new();
    for (lease, waiter) in leases.iter().zip(&mut waiting) {
        asked.push(Instant::now());
        holder
            .ask(format!("DLOCK.ACQUIRE lock:{lease} PX {lease}"))
            .grant();
        waiter.begin(format!("DLOCK.ACQUIRE lock:{lease} PX 60000 BLOCK 0"));
    }
    thread::scope(|scope| {
        for ((lease, waiter), asked) in leases.iter().zip(&mut waiting).zip(asked) {
            scope.spawn(move || {
                waiter.granted();
                let held = asked.elapsed();
                assert!(
                    held >= Duration::from_millis(*lease),
                    "a lease of {lease}: {held:?}"
                );
            });
        }
    });
}

#[test]
fn lapse_without_waiters_removes_the_key() {
    let server = Server::start();
    let mut client = server.connect();
    let (token, _) = client.ask("DLOCK.ACQUIRE lock PX 30").grant();
    client.ask("DLOCK.ACQUIRE kept PX 60000").grant();
    // DBSIZE opens no key, so it must be the timer that ends the hold.
    eventually("the key's end", SOON, || client.ask("DBSIZE") == 1);
    assert_eq!(client.ask(format!("DLOCK.RELEASE lock {token}")), 0);
}

#[test]
fn each_shared_hold_lapses_by_its_own_lease() {
    let server = Server::start();
    let mut client = server.connect();
    let (long, _) = client.ask("DLOCK.ACQUIRE lock SHARED PX 60000").grant();
    let (short, _) = client.ask("DLOCK.ACQUIRE lock SHARED PX 30").grant();
    let mut writer = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    eventually("the shorter lease's end", SOON, || {
        lock_holders(&mut client, "lock") == 1
    });
    assert_eq!(client.ask(format!("DLOCK.RENEW lock {short}")), 0);
    writer.expect_silence(A_WHILE);
    assert_eq!(client.ask(format!("DLOCK.RELEASE lock {long}")), 1);
    writer.granted();
}

#[test]
fn overdue_hold_can_still_be_renewed_and_released() {
    let server = Server::start();
    let mut client = server.connect();
    // One turn of the event loop: no timer can end the hold meanwhile.
    let replies = client.ask_all([
        "DLOCK.ACQUIRE lock PX 40 TOKEN mine",
        "DEBUG SLEEP 0.15",
        "DLOCK.CHECK lock mine",
        "DLOCK.CHECK lock mine",
        "DLOCK.RENEW lock mine PX 50000",
        "DLOCK.CHECK lock mine",
    ]);
    let (_, fence) = replies[0].grant();
    assert_eq!(replies[2], 0, "overdue");
    assert_eq!(replies[3], 0, "and CHECK has changed nothing");
    assert_eq!(replies[4], 1, "overdue, not lost");
    assert!(replies[5].as_int() > 40_000, "{replies:?}");
    let replies = client.ask_all([
        "DLOCK.RENEW lock mine PX 40",
        "DEBUG SLEEP 0.15",
        "DLOCK.RELEASE lock mine",
        "DLOCK.ACQUIRE lock TOKEN next",
    ]);
    assert_eq!(replies[2], 1, "overdue, and given back");
    assert!(replies[3].grant().1 > fence);
}

#[test]
fn overdue_hold_is_ended_by_a_competing_request() {
    let server = Server::start();
    let mut client = server.connect();
    let replies = client.ask_all([
        "DLOCK.ACQUIRE lock PX 40 TOKEN mine",
        "DEBUG SLEEP 0.15",
        "DLOCK.ACQUIRE lock PX 60000 TOKEN theirs",
        "DLOCK.RENEW lock mine",
        "DLOCK.RELEASE lock mine",
        "DLOCK.CHECK lock theirs",
    ]);
    assert!(replies[2].grant().1 > replies[0].grant().1);
    assert_eq!(replies[3], 0, "lost");
    assert_eq!(replies[4], 0, "lost");
    assert!(replies[5].as_int() > 50_000);
}

#[test]
fn renew_of_lapsed_hold_answers_0_and_takes_nothing() {
    let server = Server::start();
    let mut client = server.connect();
    let (token, _) = client.ask("DLOCK.ACQUIRE lock PX 20").grant();
    wait_until_gone(&mut client, "lock");
    assert_eq!(client.ask(format!("DLOCK.RENEW lock {token}")), 0);
    assert_eq!(client.ask(format!("DLOCK.RENEW lock {token} EX 10")), 0);
    assert_eq!(client.ask("EXISTS lock"), 0);
    client.ask("DLOCK.ACQUIRE lock").grant();
}

#[test]
fn renew_repeats_the_last_lease_or_sets_another() {
    let server = Server::start();
    let mut client = server.connect();
    let (token, fence) = client.ask("DLOCK.ACQUIRE lock EX 100").grant();
    let mut renew = |options: &str, from: i64, to: i64| {
        assert_eq!(client.ask(format!("DLOCK.RENEW lock {token}{options}")), 1);
        let left = client.ask(format!("DLOCK.CHECK lock {token}")).as_int();
        assert!((from..=to).contains(&left), "{options:?} left {left}");
    };
    renew("", 90_001, 100_000);
    renew(" EX 200", 190_001, 200_000);
    renew("", 190_001, 200_000);
    renew(" px 50000", 40_001, 50_000);
    renew("", 40_001, 50_000);
    let info = client.ask("DLOCK.INFO lock");
    let holder = &info.field("first-holders").as_array()[0];
    assert_eq!(
        *holder.field("fence"),
        i64::try_from(fence).expect("a fence fits")
    );
}

#[test]
fn renewed_lease_lapses_at_its_new_deadline_only() {
    let server = Server::start();
    let mut client = server.connect();
    let replies = client.ask_all([
        "DLOCK.ACQUIRE lock PX 50 TOKEN mine",
        "DLOCK.RENEW lock mine PX 60000",
    ]);
    replies[0].grant();
    let mut waiter = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    waiter.expect_silence(Duration::from_millis(150));
    // A shortened lease lapses at its new deadline.
    assert_eq!(client.ask("DLOCK.RENEW lock mine PX 20"), 1);
    waiter.granted();
}

#[test]
fn lease_units_default_and_bound_follow_the_settings() {
    let server = Server::start();
    let mut client = server.connect();
    let mut lease = |options: &str, from: i64, to: i64| {
        let (token, _) = client.ask(format!("DLOCK.ACQUIRE lock{options}")).grant();
        let left = client.ask(format!("DLOCK.CHECK lock {token}")).as_int();
        assert!((from..=to).contains(&left), "{options:?} left {left}");
        assert_eq!(client.ask(format!("DLOCK.RELEASE lock {token}")), 1);
    };
    lease(" EX 100", 90_001, 100_000);
    lease(" PX 100000", 90_001, 100_000);
    lease(" EX 86400", 86_390_001, 86_400_000);
    lease(" PX 86400000", 86_390_001, 86_400_000);
    lease("", 20_001, 30_000);

    assert_eq!(
        server
            .connect()
            .ask("CONFIG SET dsync.default-lease-ms 90000"),
        "OK"
    );
    lease("", 80_001, 90_000);
    assert_eq!(
        server.connect().ask("CONFIG SET dsync.max-lease-ms 60000"),
        "OK"
    );
    lease("", 50_001, 60_000);
    lease(" PX 60000", 50_001, 60_000);
    lease(" EX 60", 50_001, 60_000);
    for bad in ["PX 60001", "EX 61"] {
        let error = client.ask(format!("DLOCK.ACQUIRE lock {bad}"));
        assert!(
            error.error().contains("60"),
            "the bound in force: {error:?}"
        );
    }
    let (token, _) = client.ask("DLOCK.ACQUIRE lock").grant();
    assert!(
        client
            .ask(format!("DLOCK.RENEW lock {token} PX 60001"))
            .is_error()
    );
    assert_eq!(client.ask(format!("DLOCK.RENEW lock {token} PX 60000")), 1);
}

#[test]
fn check_rounds_up_and_answers_0_when_overdue() {
    let server = Server::start();
    let mut client = server.connect();
    // If CHECK rounded down, it would never answer all 50 ms: some microseconds have passed since the grant.
    let mut whole = false;
    for _ in 0..200 {
        let lines = [
            "DLOCK.ACQUIRE lock PX 50 TOKEN t",
            "DLOCK.CHECK lock t",
            "DLOCK.RELEASE lock t",
        ];
        let left = client.ask_all(lines)[1].as_int();
        assert!((0..=50).contains(&left), "{left}");
        whole |= left == 50;
    }
    assert!(whole, "never all 50 ms in 200 grants");
    let lines = [
        "DLOCK.ACQUIRE lock PX 5 TOKEN t",
        "DEBUG SLEEP 0.02",
        "DLOCK.CHECK lock t",
    ];
    assert_eq!(client.ask_all(lines)[2], 0);
    assert_eq!(client.ask("DLOCK.CHECK absent t"), 0);
}
