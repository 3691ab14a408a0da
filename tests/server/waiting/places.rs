//! The place of a token in the queue: a new request of the token takes it over, and it stays vacant for
//! `dsync.rejoin-ms` after the connection closed. A vacant place delays nobody. A request without a token has no place
//! to come back to.

use crate::support::steps::*;
use crate::support::*;
use std::time::Duration;

const KEEP_LONG: &str = "CONFIG SET dsync.rejoin-ms 60000";

#[test]
fn queued_token_that_asks_again_takes_over_its_place() {
    let server = Server::start();
    let mut holder = server.connect();
    holder.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    let mut old = server.waiting("DLOCK.ACQUIRE lock EX 10 TOKEN t BLOCK 0 OWNER old");
    let mut behind = server.waiting("DLOCK.ACQUIRE lock BLOCK 0 OWNER behind");
    let mut new = server.connect();
    new.begin("DLOCK.ACQUIRE lock EX 1000 TOKEN t BLOCK 0 OWNER new");
    let answer = old.reply();
    assert!(
        answer.error().starts_with("UNBLOCKED superseded"),
        "{answer:?}"
    );
    expect_no_more(&mut old);
    assert_eq!(lock_waiters(&mut holder, "lock"), 2);
    let info = holder.ask("DLOCK.INFO lock");
    let owners: Vec<_> = info
        .field("first-waiters")
        .as_array()
        .iter()
        .map(|w| w.field("owner"))
        .collect();
    assert_eq!(*owners[0], "new", "the same place, the new owner: {info:?}");
    assert_eq!(*owners[1], "behind");

    assert_eq!(holder.ask("DLOCK.RELEASE lock held"), 1);
    let (_, fence) = new.granted();
    behind.expect_silence(A_WHILE);
    let left = holder.ask("DLOCK.CHECK lock t").as_int();
    assert!(left > 990_000, "the new request's lease: {left}");
    assert_eq!(holder.ask("DLOCK.RELEASE lock t"), 1);
    assert!(behind.granted().1 > fence);
    expect_no_more(&mut old);
}

#[test]
fn place_taken_over_waits_for_the_new_block() {
    let server = Server::start();
    let mut holder = server.connect();
    holder.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    // First without a time limit, then with a short one.
    let mut old = server.waiting("DLOCK.ACQUIRE lock TOKEN a BLOCK 0");
    let mut new = server.connect();
    new.begin("DLOCK.ACQUIRE lock TOKEN a BLOCK 50");
    assert!(old.reply().is_error());
    assert!(new.reply().is_nil());
    assert_eq!(lock_waiters(&mut holder, "lock"), 0);
    // First with a short one, then without.
    let mut old = server.connect();
    old.begin("DLOCK.ACQUIRE lock TOKEN b BLOCK 150");
    let mut new = server.connect();
    new.begin("DLOCK.ACQUIRE lock TOKEN b BLOCK 0");
    // On a busy machine the old wait may have timed out before; then the new request takes a new place.
    let answer = old.reply();
    assert!(answer.is_error() || answer.is_nil(), "{answer:?}");
    new.expect_silence(Duration::from_millis(300));
    assert_eq!(holder.ask("DLOCK.RELEASE lock held"), 1);
    new.granted();
}

#[test]
fn place_taken_over_survives_the_end_of_the_old_connection() {
    let server = Server::start();
    let mut holder = server.connect();
    holder.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    let mut old = server.waiting("DLOCK.ACQUIRE lock TOKEN t BLOCK 0");
    let mut behind = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    let mut new = server.connect();
    new.begin("DLOCK.ACQUIRE lock TOKEN t BLOCK 0");
    assert!(old.reply().is_error());
    old.close();
    new.expect_silence(A_WHILE);
    assert_eq!(lock_waiters(&mut holder, "lock"), 2);
    assert_eq!(holder.ask("DLOCK.RELEASE lock held"), 1);
    new.granted();
    behind.expect_silence(A_WHILE);
}

#[test]
fn try_by_queued_token_answers_nil_and_changes_nothing() {
    let server = Server::start();
    let mut holder = server.connect();
    holder.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    let mut old = server.waiting("DLOCK.ACQUIRE lock EX 1000 TOKEN t BLOCK 0 OWNER old");
    let mut behind = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    assert!(
        holder
            .ask("DLOCK.ACQUIRE lock EX 5 TOKEN t OWNER new")
            .is_nil()
    );
    let info = holder.ask("DLOCK.INFO lock");
    assert_eq!(
        *info.field("first-waiters").as_array()[0].field("owner"),
        "old"
    );
    // The old connection is granted, in its place.
    assert_eq!(holder.ask("DLOCK.RELEASE lock held"), 1);
    old.granted();
    assert!(holder.ask("DLOCK.CHECK lock t").as_int() > 900_000);
    behind.expect_silence(A_WHILE);
}

/// A lock's queue had a vacant place when the name was deleted and used as a semaphore. The token's request for permits
/// got MISMATCH, although nothing of the kind held or waited.
#[test]
fn vacant_place_of_another_family_does_not_refuse_its_token() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(client.ask(KEEP_LONG), "OK");
    client.ask("DLOCK.ACQUIRE k TOKEN held").grant();
    server.waiting("DLOCK.ACQUIRE k TOKEN t BLOCK 0").close();
    server.wait_for_blocked(0);
    assert_eq!(client.ask("DEL k"), 1);
    client.ask("DSEM.ACQUIRE k LIMIT 1 TOKEN t").grant();
}

#[test]
fn vacant_place_is_resumed_by_its_token_in_its_old_rank() {
    let server = Server::start();
    let mut holder = server.connect();
    assert_eq!(holder.ask(KEEP_LONG), "OK");
    holder.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    let lost = server.waiting("DLOCK.ACQUIRE lock TOKEN t BLOCK 0");
    let mut killed = server.waiting("DLOCK.ACQUIRE lock TOKEN u BLOCK 0");
    let mut behind = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    lost.close();
    server.wait_for_blocked(2);
    let id = holder
        .ask("DLOCK.INFO lock")
        .field("first-waiters")
        .as_array()[0]
        .field("client")
        .as_int();
    assert_eq!(holder.ask(format!("CLIENT KILL ID {id}")), 1);
    killed.expect_closed(SOON);
    server.wait_for_blocked(1);
    assert_eq!(
        lock_waiters(&mut holder, "lock"),
        1,
        "a vacant place is no waiter"
    );

    // They come back in the other order and still have their ranks.
    let mut second = server.waiting("DLOCK.ACQUIRE lock TOKEN u BLOCK 0");
    let mut first = server.waiting("DLOCK.ACQUIRE lock TOKEN t BLOCK 0");
    assert_eq!(lock_waiters(&mut holder, "lock"), 3);
    assert_eq!(holder.ask("DLOCK.RELEASE lock held"), 1);
    first.granted();
    second.expect_silence(A_WHILE);
    assert_eq!(holder.ask("DLOCK.RELEASE lock t"), 1);
    second.granted();
    behind.expect_silence(A_WHILE);
    assert_eq!(holder.ask("DLOCK.RELEASE lock u"), 1);
    behind.granted();
}

#[test]
fn vacant_place_delays_nobody() {
    let server = Server::start();
    let mut holder = server.connect();
    assert_eq!(holder.ask(KEEP_LONG), "OK");
    holder.ask("DLOCK.ACQUIRE lock SHARED TOKEN held").grant();
    let lost = server.waiting("DLOCK.ACQUIRE lock TOKEN t BLOCK 0");
    let mut reader = server.waiting("DLOCK.ACQUIRE lock SHARED BLOCK 0");
    reader.expect_silence(A_WHILE);
    lost.close();
    // Only the exclusive request was ahead of the shared one.
    reader.granted();
    // A vacant place is no waiter, so a try is granted.
    holder.ask("DLOCK.ACQUIRE lock SHARED").grant();

    holder.ask("DLOCK.ACQUIRE other TOKEN held").grant();
    let lost = server.waiting("DLOCK.ACQUIRE other TOKEN t BLOCK 0");
    lost.close();
    server.wait_for_blocked(0);
    assert_eq!(holder.ask("DLOCK.RELEASE other held"), 1);
    assert_eq!(
        holder.ask("EXISTS other"),
        0,
        "a vacant place is not granted"
    );
    holder.ask("DLOCK.ACQUIRE other TOKEN next").grant();
    // The token comes back to its old rank.
    let mut late = server.waiting("DLOCK.ACQUIRE other BLOCK 0");
    let mut back = server.waiting("DLOCK.ACQUIRE other TOKEN t BLOCK 0");
    assert_eq!(holder.ask("DLOCK.RELEASE other next"), 1);
    back.granted();
    late.expect_silence(A_WHILE);
}

#[test]
fn vacant_place_is_gone_after_rejoin_ms() {
    for rejoin_ms in [0, 80] {
        let server = Server::start();
        let mut holder = server.connect();
        holder.ask(format!("CONFIG SET dsync.rejoin-ms {rejoin_ms}"));
        holder.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
        let lost = server.waiting("DLOCK.ACQUIRE lock TOKEN t BLOCK 0");
        let mut behind = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
        lost.close();
        server.wait_for_blocked(1);
        behind.expect_silence(Duration::from_millis(3 * rejoin_ms + 1));
        let mut back = server.waiting("DLOCK.ACQUIRE lock TOKEN t BLOCK 0");
        assert_eq!(holder.ask("DLOCK.RELEASE lock held"), 1);
        let (token, _) = behind.granted();
        back.expect_silence(A_WHILE);
        assert_eq!(holder.ask(format!("DLOCK.RELEASE lock {token}")), 1);
        back.granted();
    }
}

#[test]
fn place_is_not_kept_after_timeout_or_unblock() {
    let server = Server::start();
    let mut holder = server.connect();
    assert_eq!(holder.ask(KEEP_LONG), "OK");
    holder.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    let mut patient = server.connect();
    let mut unblocked = server.connect();
    let id = unblocked.id();
    unblocked.wait_on(&server, "DLOCK.ACQUIRE lock TOKEN a BLOCK 0");
    let mut timed_out = server.waiting("DLOCK.ACQUIRE lock TOKEN b BLOCK 1000");
    patient.wait_on(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    assert_eq!(holder.ask(format!("CLIENT UNBLOCK {id}")), 1);
    assert!(unblocked.reply().is_nil());
    assert!(timed_out.reply().is_nil());
    // Both requests were answered, so the next ones take new places.
    unblocked.wait_on(&server, "DLOCK.ACQUIRE lock TOKEN a BLOCK 0");
    timed_out.wait_on(&server, "DLOCK.ACQUIRE lock TOKEN b BLOCK 0");
    assert_eq!(holder.ask("DLOCK.RELEASE lock held"), 1);
    patient.granted();
    unblocked.expect_silence(A_WHILE);
}

#[test]
fn request_without_token_leaves_no_vacant_place() {
    let server = Server::start();
    let mut holder = server.connect();
    holder.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    let lost = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    let mut behind = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    lost.close();
    server.wait_for_blocked(1);
    let mut again = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    assert_eq!(holder.ask("DLOCK.RELEASE lock held"), 1);
    behind.granted();
    again.expect_silence(A_WHILE);
}

#[test]
fn vacant_places_count_to_the_bound_and_the_oldest_goes_first() {
    let server = Server::start();
    let mut holder = server.connect();
    assert_eq!(holder.ask(KEEP_LONG), "OK");
    holder.ask("CONFIG SET dsync.max-waiters-per-key 3");
    holder.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    for token in ["a", "b"] {
        server
            .waiting(format!("DLOCK.ACQUIRE lock TOKEN {token} BLOCK 0"))
            .close();
        server.wait_for_blocked(0);
    }
    let mut third = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    // Three places are taken, two of them vacant. The next request takes the room of the oldest, a's.
    let mut fourth = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    let mut b = server.waiting("DLOCK.ACQUIRE lock TOKEN b BLOCK 0");
    // Three clients wait and no place is vacant, so nothing makes room.
    for line in [
        "DLOCK.ACQUIRE lock BLOCK 0",
        "DLOCK.ACQUIRE lock TOKEN a BLOCK 0",
    ] {
        let full = holder.ask(line);
        assert!(full.error().starts_with("QUEUEFULL "), "{full:?}");
        assert!(full.error().contains('3'), "{full:?}");
    }
    assert_eq!(holder.ask("DLOCK.RELEASE lock held"), 1);
    b.granted();
    assert_eq!(holder.ask("DLOCK.RELEASE lock b"), 1);
    let (token, _) = third.granted();
    let mut a = server.waiting("DLOCK.ACQUIRE lock TOKEN a BLOCK 0");
    assert_eq!(holder.ask(format!("DLOCK.RELEASE lock {token}")), 1);
    fourth.granted();
    a.expect_silence(A_WHILE);
}

/// A try by the token of a vacant place was refused, although the key was free, until the place was given up.
#[test]
fn try_by_token_of_vacant_place_is_judged_like_any_other() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(client.ask(KEEP_LONG), "OK");
    client.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    server.waiting("DLOCK.ACQUIRE lock TOKEN t BLOCK 0").close();
    server.wait_for_blocked(0);
    assert!(client.ask("DLOCK.ACQUIRE lock TOKEN t").is_nil());
    let other = client.ask("DLOCK.ACQUIRE lock SHARED TOKEN t");
    assert!(other.error().starts_with("MISMATCH"), "{other:?}");
    assert_eq!(client.ask("DLOCK.RELEASE lock held"), 1);
    client.ask("DLOCK.ACQUIRE lock TOKEN t").grant();

    client.ask("DONCE.BEGIN job TOKEN runs");
    server.waiting("DONCE.BEGIN job TOKEN t BLOCK 0").close();
    server.wait_for_blocked(0);
    assert_eq!(client.ask("DONCE.DONE job runs RESULT r"), 1);
    let answer = client.ask("DONCE.BEGIN job TOKEN t");
    assert_eq!(
        answer.as_array()[..2],
        [Reply::Bulk(b"DONE".to_vec()), Reply::Bulk(b"r".to_vec())]
    );
}

#[test]
fn token_of_a_waiter_holds_and_renews_nothing() {
    let server = Server::start();
    let mut holder = server.connect();
    holder.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    let mut waiter = server.waiting("DLOCK.ACQUIRE lock TOKEN t BLOCK 0");
    for line in ["DLOCK.RENEW lock t", "DLOCK.CHECK lock t"] {
        assert_eq!(holder.ask(line), 0, "{line}");
    }
    // The same token on another key has nothing to do with this wait.
    holder.ask("DLOCK.ACQUIRE other TOKEN t").grant();
    assert_eq!(lock_waiters(&mut holder, "lock"), 1);
    assert_eq!(holder.ask("DLOCK.RELEASE lock held"), 1);
    waiter.granted();
}
