//! RENAME, MOVE, SWAPDB, COPY and overwriting while a lock is held and waited for.
//!
//! The hold travels with its value; the waiters stay with the name and the database number, and wait for whatever value
//! is there afterwards. If that value is of another type, they are answered WRONGTYPE. COPY is refused: a copied lock
//! would have two holders.

use super::removal::held_lock;
use crate::support::steps::*;
use crate::support::*;

#[test]
fn rename_moves_hold_and_leaves_waiters_with_name() {
    for line in ["RENAME lock moved", "RENAMENX lock moved"] {
        let mut held = held_lock();
        held.run(line);
        assert!(
            held.admin.ask("DLOCK.CHECK moved held").as_int() > 0,
            "{line}"
        );
        held.expect_granted_afresh();
        // The hold lives on under its new name, and can be released there.
        assert!(held.admin.ask("DLOCK.ACQUIRE moved").is_nil());
        assert_eq!(held.admin.ask("DLOCK.RENEW moved held EX 500"), 1);
        assert_eq!(held.admin.ask("DLOCK.RELEASE moved held"), 1);
        assert_eq!(held.admin.ask("DBSIZE"), 0);
    }
}

#[test]
fn rename_onto_name_with_waiters_replaces_its_hold() {
    let mut held = held_lock();
    let (_, fence) = held
        .admin
        .ask("DLOCK.ACQUIRE other EX 600 TOKEN others")
        .grant();
    held.run("RENAME other lock");
    held.first.expect_silence(A_WHILE);
    assert_eq!(held.admin.ask("DLOCK.RELEASE lock held"), 0);
    assert!(held.admin.ask("DLOCK.CHECK lock others").as_int() > 0);
    assert_eq!(held.admin.ask("DLOCK.RELEASE lock others"), 1);
    held.fence = held.fence.max(fence);
    held.expect_granted_afresh();
}

#[test]
fn renamed_hold_lapses_under_its_new_name() {
    let server = Server::start();
    let mut admin = server.connect();
    let lines = [
        "DLOCK.ACQUIRE lock PX 150 TOKEN held",
        "DLOCK.ACQUIRE alone PX 150",
        "RENAME lock moved",
        "MOVE alone 1",
    ];
    let replies = admin.ask_all(lines);
    assert_eq!(replies[2], "OK");
    assert_eq!(replies[3], 1);
    let mut waiter = server.connect();
    waiter.begin("DLOCK.ACQUIRE moved BLOCK 0");
    waiter.granted();
    assert_eq!(admin.ask("SELECT 1"), "OK");
    eventually("an empty database", SOON, || admin.ask("DBSIZE") == 0);
}

#[test]
fn rename_to_same_name_changes_nothing() {
    let mut held = held_lock();
    held.run("RENAME lock lock");
    held.first.expect_silence(A_WHILE);
    assert_eq!(held.admin.ask("DLOCK.RELEASE lock held"), 1);
    held.first.granted();
}

#[test]
fn move_takes_hold_to_other_database_and_leaves_waiters() {
    let mut held = held_lock();
    held.run("MOVE lock 1");
    held.run("SELECT 1");
    assert!(held.admin.ask("DLOCK.CHECK lock held").as_int() > 0);
    let mut elsewhere = held.server.connect();
    elsewhere.ask("SELECT 1");
    elsewhere.wait_on(&held.server, "DLOCK.ACQUIRE lock BLOCK 0");
    held.run("DLOCK.RELEASE lock held");
    elsewhere.granted();
    held.run("SELECT 0");
    held.expect_granted_afresh();
}

#[test]
fn move_onto_name_with_waiters_lets_them_wait_for_the_hold() {
    let mut held = held_lock();
    held.run("SELECT 1");
    held.run("DLOCK.ACQUIRE lock EX 600 TOKEN others");
    held.run("SELECT 0");
    // Database 0 loses its lock and is given another before anybody could be granted afresh.
    held.admin
        .ask_all(["DEL lock", "SELECT 1", "MOVE lock 0", "SELECT 0"]);
    held.first.expect_silence(A_WHILE);
    assert!(held.admin.ask("DLOCK.CHECK lock others").as_int() > 0);
    assert_eq!(held.admin.ask("DLOCK.RELEASE lock others"), 1);
    held.expect_granted_afresh();
}

#[test]
fn swapdb_leaves_waiters_with_database_number() {
    let mut held = held_lock();
    held.run("SELECT 1");
    let (_, fence) = held
        .admin
        .ask("DLOCK.ACQUIRE lock EX 600 TOKEN others")
        .grant();
    let mut elsewhere = held.server.connect();
    elsewhere.ask("SELECT 1");
    elsewhere.wait_on(&held.server, "DLOCK.ACQUIRE lock TOKEN elsewhere BLOCK 0");
    held.run("SWAPDB 0 1");
    // Now each queue waits for the hold that came from the other database.
    held.first.expect_silence(A_WHILE);
    elsewhere.expect_silence(A_WHILE);
    assert_eq!(
        held.admin.ask("DLOCK.RELEASE lock held"),
        1,
        "in database 1 now"
    );
    elsewhere.granted();
    held.first.expect_silence(A_WHILE);
    held.run("SELECT 0");
    assert_eq!(held.admin.ask("DLOCK.RELEASE lock others"), 1);
    held.fence = fence;
    held.expect_granted_afresh();
}

#[test]
fn swapdb_with_empty_database_grants_waiters_afresh() {
    let mut held = held_lock();
    held.run("SWAPDB 0 9");
    held.expect_granted_afresh();
    held.run("SELECT 9");
    assert!(held.admin.ask("DLOCK.CHECK lock held").as_int() > 0);
    // The lease also runs in database 9.
    assert_eq!(held.admin.ask("DLOCK.RENEW lock held PX 20"), 1);
    eventually("an empty database", SOON, || held.admin.ask("DBSIZE") == 0);
}

#[test]
fn overwriting_by_other_type_answers_waiters_wrongtype() {
    for lines in [
        &["SET lock text"][..],
        &["SET text x", "RENAME text lock"],
        &["SET text x", "COPY text lock REPLACE"],
        &["SADD a 1", "SADD b 1", "SINTERSTORE lock a b"],
        &["MULTI", "DEL lock", "LPUSH lock x", "EXEC"],
        &["SELECT 1", "SET lock x", "SWAPDB 0 1", "SELECT 0"],
    ] {
        let mut held = held_lock();
        for line in lines {
            held.run(line);
        }
        held.expect_wrong_type();
    }
}

#[test]
fn overwriting_by_other_family_answers_waiters_wrongtype() {
    for (line, release) in [
        (
            "DSEM.ACQUIRE other LIMIT 1 EX 600 TOKEN t",
            "DSEM.RELEASE lock t",
        ),
        ("DWG.ADD other EX 600 TOKEN t", "DWG.DONE lock t"),
    ] {
        let mut held = held_lock();
        held.admin.ask(line).grant();
        held.run("RENAME other lock");
        held.expect_wrong_type();
        assert_eq!(held.admin.ask(release), 1, "the other hold is untouched");
    }
}

#[test]
fn copy_is_refused() {
    let mut held = held_lock();
    held.admin.ask("DSEM.ACQUIRE semaphore LIMIT 1").grant();
    held.admin.ask("DWG.ADD group").grant();
    for key in ["lock", "semaphore", "group"] {
        for line in [format!("COPY {key} twin"), format!("COPY {key} {key} DB 1")] {
            let error = held.admin.ask(&line);
            assert!(error.is_error(), "{line}: {error:?}");
        }
    }
    assert_eq!(held.admin.ask("EXISTS twin"), 0);
    held.run("SELECT 1");
    assert_eq!(held.admin.ask("DBSIZE"), 0);
    held.run("SELECT 0");
    held.first.expect_silence(A_WHILE);
}

#[test]
fn same_name_in_two_databases_is_two_locks() {
    let mut held = held_lock();
    let mut elsewhere = held.server.connect();
    elsewhere.ask("SELECT 5");
    let (token, _) = elsewhere.ask("DLOCK.ACQUIRE lock BLOCK 0").grant();
    assert_eq!(held.admin.ask(format!("DLOCK.RELEASE lock {token}")), 0);
    assert_eq!(elsewhere.ask("DLOCK.RELEASE lock held"), 0);
    assert_eq!(elsewhere.ask(format!("DLOCK.RELEASE lock {token}")), 1);
    held.first.expect_silence(A_WHILE);
}
