//! Leases while the server takes no writes: during CLIENT PAUSE, with too few replicas, and after a failed save.
//!
//! No lease runs and no timer grants as long as writes are refused, because a RENEW would be refused too. A BLOCK still
//! runs out. When writes are accepted again, every waiter is served and every overdue lease lapses.
//!
//! Not here: what is replicated during a pause (`paused`), a real replica that stops (`min_replicas`).

use super::lease_clock::{assert_always, check};
use crate::support::steps::*;
use crate::support::*;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn client_pause_stops_leases_but_not_waits() {
    let server = Server::start();
    let _stream = ReplicationStream::attach(&server);
    let (mut client, mut patient, mut impatient) =
        (server.connect(), server.connect(), server.connect());
    client.ask("DLOCK.ACQUIRE k PX 600 TOKEN t");
    client.ask("DLOCK.ACQUIRE alone PX 600 TOKEN t");
    client.ask("DWG.ADD g PX 600 TOKEN t");
    patient.begin("DLOCK.ACQUIRE k BLOCK 0 TOKEN w");
    server.wait_for_blocked(1);
    impatient.begin("DLOCK.ACQUIRE k BLOCK 900");
    let mut watcher = server.connect();
    watcher.begin("DWG.WAIT g BLOCK 0");
    server.wait_for_blocked(3);
    assert_eq!(client.ask("CLIENT PAUSE 60000 WRITE"), "OK");
    // The turn in which the pause begins may still count for the lease.
    let first = check(&mut client, "k");
    let (left, alone) = (check(&mut client, "k"), check(&mut client, "alone"));
    assert!(left > 0 && left <= first, "{left}");
    assert_always(
        "a lease that stands still",
        Duration::from_millis(1_200),
        || check(&mut client, "k") == left && check(&mut client, "alone") == alone,
    );
    assert!(impatient.recv(SOON).expect("the wait runs out").is_nil());
    patient.expect_silence(Duration::ZERO);
    assert_eq!(client.ask("CLIENT UNPAUSE"), "OK");
    assert_eq!(patient.granted().0, "w");
    let finished = watcher.recv(SOON).expect("the round finishes");
    assert_eq!(finished.as_array(), [Reply::Int(0), Reply::Int(1)]);
    eventually("the lock that nobody waits for to lapse", SOON, || {
        client.ask("EXISTS alone") == 0
    });
    assert_calm(&server);
}

#[test]
fn client_pause_that_expires_serves_waiters() {
    let server = Server::start();
    let _stream = ReplicationStream::attach(&server);
    let mut client = server.connect();
    for kind in ["WRITE", "ALL"] {
        let mut waiter = server.connect();
        client.ask("DLOCK.ACQUIRE k PX 300 TOKEN t");
        waiter.begin("DLOCK.ACQUIRE k BLOCK 0 PX 100");
        server.wait_for_blocked(1);
        assert_eq!(client.ask(format!("CLIENT PAUSE 700 {kind}")), "OK");
        waiter.granted();
        eventually("the waiter's own lapse", SOON, || {
            client.ask("EXISTS k") == 0
        });
    }
    assert_calm(&server);
}

/// A server that refuses writes without a replica, and a stream that counts as one.
fn server_that_needs_a_replica() -> (Server, ReplicationStream) {
    let server = Server::builder()
        .config("min-replicas-to-write", 1)
        .config("min-replicas-max-lag", 10)
        .start();
    let stream = ReplicationStream::attach(&server);
    eventually("writes to be taken", SOON, || {
        server.connect().ask("SET x 1") == "OK"
    });
    (server, stream)
}

/// Returns whether a write is refused; asserts that the error then begins with `code`.
#[track_caller]
fn refuses_with(client: &mut Client, code: &str) -> bool {
    match client.ask("SET x 1") {
        Reply::Error(text) => {
            assert!(text.starts_with(code), "{text}");
            true
        }
        _ => false,
    }
}

/// Asserts that no lease runs and nothing is granted after `refuse` has made the server refuse writes with `code`, and
/// that every waiter is served promptly after `recover` has made it accept them again.
#[track_caller]
fn assert_refusal_stops_leases(
    server: &Server,
    code: &str,
    refuse: impl FnOnce(),
    recover: impl FnOnce(),
) {
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE k PX 1500 TOKEN t");
    let mut lapse = server.connect();
    lapse.begin("DLOCK.ACQUIRE k BLOCK 0 TOKEN w");
    // `second` waits behind the exclusive request of `first`, and could be granted when that leaves.
    client.ask("DLOCK.ACQUIRE shared SHARED EX 600");
    let (mut first, mut second) = (server.connect(), server.connect());
    server.wait_for_blocked(1);
    let first_id = first.id();
    first.begin("DLOCK.ACQUIRE shared BLOCK 0");
    server.wait_for_blocked(2);
    second.begin("DLOCK.ACQUIRE shared SHARED BLOCK 0");
    let mut ephemeral = server.connect();
    ephemeral.ask("DLOCK.ACQUIRE bound EPHEMERAL EX 600");
    let mut heir = server.connect();
    heir.begin("DLOCK.ACQUIRE bound BLOCK 0 TOKEN heir");
    let mut impatient = server.connect();
    impatient.begin("DLOCK.ACQUIRE k BLOCK 400");
    server.wait_for_blocked(5);

    refuse();
    eventually("writes to be refused", SOON, || {
        refuses_with(&mut client, code)
    });
    // The module asks the server ten times a second whether it accepts writes; afterwards no lease runs.
    let mut left = check(&mut client, "k");
    eventually("a lease that stands still", SOON, || {
        thread::sleep(Duration::from_millis(120));
        let before = std::mem::replace(&mut left, check(&mut client, "k"));
        before == left
    });
    assert!(left > 0, "the lease was too short for this test");
    assert_eq!(client.ask(format!("CLIENT KILL ID {first_id}")), 1);
    ephemeral.close();
    assert_always(
        "a lease that stands still",
        Duration::from_millis(1_600),
        || check(&mut client, "k") == left,
    );
    let refused = client.ask("DLOCK.RENEW k t");
    assert!(refused.error().starts_with(code), "{refused:?}");
    lapse.expect_silence(Duration::ZERO);
    second.expect_silence(Duration::ZERO);
    heir.expect_silence(Duration::ZERO);
    assert!(
        impatient
            .recv(SOON)
            .expect("a wait runs out all the same")
            .is_nil()
    );

    recover();
    eventually("writes to be taken", SOON, || {
        !refuses_with(&mut client, code)
    });
    let back = Instant::now();
    second.granted();
    assert_eq!(heir.granted().0, "heir");
    // The module promises 100 ms; the other second is for a machine under load.
    assert!(
        back.elapsed() < Duration::from_millis(1_100),
        "granted {:?} after",
        back.elapsed()
    );
    assert_eq!(lapse.granted().0, "w");
    assert_calm(server);
}

#[test]
fn missing_replica_stops_leases_and_grants() {
    let (server, stream) = server_that_needs_a_replica();
    let mut replaced = None;
    assert_refusal_stops_leases(
        &server,
        "NOREPLICAS",
        || drop(stream),
        || replaced = Some(ReplicationStream::attach(&server)),
    );
}

#[test]
fn failed_save_stops_leases_and_grants() {
    // The save fails because it cannot rename its file over a directory, not even as root.
    let server = Server::builder().config("save", "3600 1000000").start();
    let in_the_way = server.dir().join("dump.rdb");
    let save = |server: &Server, status: &str| {
        let reply = server.connect().ask("BGSAVE");
        assert!(!reply.is_error(), "{reply:?}");
        eventually("the end of a save", SOON, || {
            let info = server.info_section("persistence");
            info.contains("rdb_bgsave_in_progress:0") && info.contains(status)
        });
    };
    assert_refusal_stops_leases(
        &server,
        "MISCONF",
        || {
            fs::create_dir_all(in_the_way.join("full")).expect("a directory is made");
            save(&server, "rdb_last_bgsave_status:err");
        },
        || {
            fs::remove_dir_all(&in_the_way).expect("a directory is removed");
            save(&server, "rdb_last_bgsave_status:ok");
        },
    );
}

#[test]
fn release_in_turn_that_accepts_writes_again_leaves_no_key() {
    let (server, stream) = server_that_needs_a_replica();
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE k EX 60 TOKEN t");
    client.ask("DSEM.ACQUIRE s LIMIT 1 EX 60 TOKEN t");
    client.ask("DWG.ADD g EX 60 TOKEN t");
    drop(stream);
    eventually("writes to be refused", SOON, || {
        refuses_with(&mut client, "NOREPLICAS")
    });
    // When a lease stands still, the server's cron knows of the refusal too.
    let mut left = 0;
    eventually("a lease that stands still", SOON, || {
        thread::sleep(Duration::from_millis(120));
        let before = std::mem::replace(&mut left, check(&mut client, "k"));
        before == left
    });
    client.send_raw(
        b"CONFIG SET min-replicas-to-write 0\r\nDLOCK.RELEASE k t\r\nDSEM.RELEASE s t\r\nDWG.DONE g t\r\n",
    );
    assert_eq!(client.recv(SOON).expect("a reply"), "OK");
    for _ in 0..3 {
        assert_eq!(client.recv(SOON).expect("a reply"), 1);
    }
    eventually("keys without holds to go", SOON, || {
        client.ask("EXISTS k s") == 0
    });
    eventually("a round without members to finish", SOON, || {
        *client.ask("DWG.INFO g").field("state") == *"finished"
    });
}

#[test]
fn release_in_turn_that_ends_pause_leaves_no_key() {
    let server = Server::start();
    let mut client = server.connect();
    for round in 0..5 {
        client.ask("DLOCK.ACQUIRE k EX 60 TOKEN t");
        let mut waiter = server.connect();
        call!(
            client,
            "DLOCK.ACQUIRE",
            "waited for",
            "EX",
            60,
            "TOKEN",
            "t"
        );
        send!(
            waiter,
            "DLOCK.ACQUIRE",
            "waited for",
            "BLOCK",
            0,
            "TOKEN",
            round
        );
        server.wait_for_blocked(1);
        assert_eq!(client.ask("CLIENT PAUSE 60000 WRITE"), "OK");
        check(&mut client, "k");
        client
            .send_raw(b"CLIENT UNPAUSE\r\nDLOCK.RELEASE k t\r\nDLOCK.RELEASE \"waited for\" t\r\n");
        assert_eq!(client.recv(SOON).expect("a reply"), "OK");
        assert_eq!(client.recv(SOON).expect("a reply"), 1);
        assert_eq!(client.recv(SOON).expect("a reply"), 1);
        assert_eq!(waiter.granted().0, round.to_string());
        assert_eq!(call!(client, "DLOCK.RELEASE", "waited for", round), 1);
        eventually("keys without holds to go", SOON, || {
            client.ask("DBSIZE") == 0
        });
    }
}
