//! REPLICAOF: a replica that is promoted, and a primary that is demoted, while clients hold and wait.
//!
//! A demoted primary ends every wait with one answer or by closing the connection. A promoted replica lapses overdue
//! holds after its grace period, serves its own queue, and grants fences above all that the old primary may have given.
//!
//! Not here: FAILOVER (`failover_command`), a killed primary (`sentinel`), a partition (`split_brain`).

use crate::support::steps::*;
use crate::support::*;
use std::time::{Duration, Instant};

/// A primary and its replica, whose link already carries commands without delay.
pub fn pair() -> (Server, Server) {
    pair_with_grace(5_000)
}

pub fn pair_with_grace(ms: u32) -> (Server, Server) {
    let builder = || {
        Server::builder()
            .module_arg("takeover-grace-ms")
            .module_arg(ms)
    };
    let old = builder().start();
    let new = builder().replica_of(&old).start();
    // After the link is up, the primary may take a second until it sends the first command.
    new.wait_to_catch_up_with(&old);
    old.connect().ask("PUBLISH is-anybody there");
    new.wait_to_catch_up_with(&old);
    (old, new)
}

#[track_caller]
pub(super) fn role(server: &Server) -> String {
    server.info("replication", "role")
}

#[test]
fn promoted_replica_lapses_only_after_grace() {
    let (old, new) = pair_with_grace(600);
    let mut client = old.connect();
    client.ask("DLOCK.ACQUIRE due EX 2 TOKEN t");
    client.ask("DLOCK.ACQUIRE renewed EX 2 TOKEN t");
    new.wait_to_catch_up_with(&old);
    // Both leases end while the primary's process is stopped and the replica may not lapse them.
    old.stop();
    eventually("an overdue hold on the replica", SOON, || {
        new.connect().ask("DLOCK.CHECK due t") == 0
    });
    let mut client = new.connect();
    // In one turn, so that the grace cannot end in between.
    let promoted = client.ask_all([
        "REPLICAOF NO ONE",
        "DLOCK.CHECK due t",
        "DLOCK.RENEW renewed t EX 60",
    ]);
    assert_eq!(promoted[0], "OK");
    let left = promoted[1].as_int();
    assert!((1..=600).contains(&left), "{left}");
    assert_eq!(promoted[2], 1, "its token may still renew it");
    let mut waiter = new.connect();
    waiter.begin("DLOCK.ACQUIRE due BLOCK 0 TOKEN w");
    assert_eq!(waiter.granted().0, "w");
    assert!(client.ask("DLOCK.CHECK renewed t").as_int() > 50_000);
    old.cont();
    assert_calm(&new);
}

#[test]
fn replicaof_no_one_on_primary_changes_nothing() {
    let server = Server::start();
    let mut client = server.connect();
    let fence = client.ask("DLOCK.ACQUIRE k PX 700 TOKEN t").grant().1;
    let mut waiter = server.waiting("DLOCK.ACQUIRE k BLOCK 0 TOKEN w");
    assert_eq!(client.ask("REPLICAOF NO ONE"), "OK");
    let next = waiter.granted().1;
    // A promotion would raise the fences; this was none.
    assert!((fence + 1..fence + 1_000_000).contains(&next), "{next}");
    assert_calm(&server);
}

#[test]
fn replica_of_missing_primary_keeps_holds_for_its_promotion() {
    let mut gone = Server::start();
    gone.shutdown();
    let server = Server::builder()
        .module_arg("takeover-grace-ms")
        .module_arg(300)
        .start();
    let mut client = server.connect();
    let fence = client.ask("DLOCK.ACQUIRE k PX 400 TOKEN t").grant().1;
    client.ask("DLOCK.ACQUIRE held EX 60 TOKEN t");
    let waiter = server.waiting("DLOCK.ACQUIRE k BLOCK 0 TOKEN w");
    let follow = format!("REPLICAOF 127.0.0.1 {}", gone.port());
    assert_eq!(client.ask(follow), "OK");
    let end = ended(waiter);
    assert!(matches!(end, Ended::Unblocked | Ended::Closed), "{end:?}");

    let mut client = server.connect();
    let refused = client.ask("DLOCK.ACQUIRE k BLOCK 0 TOKEN w");
    assert!(refused.error().starts_with("READONLY"), "{refused:?}");
    assert!(client.ask("DLOCK.CHECK held t").as_int() > 50_000);
    eventually("an overdue hold", SOON, || {
        client.ask("DLOCK.CHECK k t") == 0
    });
    assert_eq!(client.ask("EXISTS k"), 1, "a replica lapses nothing");

    assert_eq!(client.ask("REPLICAOF NO ONE"), "OK");
    let mut waiter = server.connect();
    waiter.begin("DLOCK.ACQUIRE k BLOCK 0 TOKEN w");
    let next = waiter.granted().1;
    assert!(next > fence + 1_000_000, "a promotion leaps: {next}");
    assert_eq!(client.ask("DLOCK.RELEASE held t"), 1);
    assert_calm(&server);
}

#[test]
fn promoted_replica_serves_at_once_with_higher_fences() {
    let mut primary = Server::start();
    let replica = Server::builder()
        .module_arg("takeover-grace-ms")
        .module_arg(300)
        .replica_of(&primary)
        .start();
    let mut client = primary.connect();
    let fence = client.ask("DLOCK.ACQUIRE lasting EX 60 TOKEN t").grant().1;
    client.ask("DLOCK.ACQUIRE due PX 900 TOKEN t");
    client.ask("DLOCK.ACQUIRE free TOKEN t");
    client.ask("DLOCK.RELEASE free t");
    client.ask("DSEM.ACQUIRE s LIMIT 2 EX 60 TOKEN t");
    client.ask("DWG.ADD g EX 60 TOKEN t");
    replica.wait_to_catch_up_with(&primary);
    // The replica never learns of these grants.
    replica.stop();
    let mut lost = 0;
    for n in 0..100 {
        lost = client.ask(format!("DLOCK.ACQUIRE lost{n}")).grant().1;
    }
    let since = Instant::now();
    primary.kill9();
    at(since + Duration::from_millis(1_000));
    replica.cont();

    let mut client = replica.connect();
    assert_eq!(client.ask("REPLICAOF NO ONE"), "OK");
    let mut waiter = replica.connect();
    waiter.begin("DLOCK.ACQUIRE due BLOCK 0 TOKEN w");
    let new = client.ask("DLOCK.ACQUIRE free").grant().1;
    assert!(
        new > lost && lost > fence,
        "{new} outranks what was lost, {lost}"
    );
    assert!(
        new > unix_us() + 3_590_000_000,
        "not above the fences that a restarted old primary grants: {new}"
    );
    assert_eq!(waiter.granted().0, "w");
    assert!(client.ask("DLOCK.CHECK lasting t").as_int() > 50_000);
    assert!(client.ask("DSEM.ACQUIRE s TOKEN u").grant().1 > new);
    assert!(client.ask("DSEM.ACQUIRE s TOKEN v").is_nil());
    let mut watcher = replica.connect();
    watcher.begin("DWG.WAIT g BLOCK 0");
    replica.wait_for_blocked(1);
    assert_eq!(client.ask("DWG.DONE g t"), 1);
    let finished = watcher.recv(SOON).expect("the round finishes");
    assert_eq!(finished.as_array(), [Reply::Int(1), Reply::Int(0)]);
    assert_calm(&replica);
}

#[test]
fn demoted_primary_ends_waits_and_can_be_promoted_again() {
    let first = Server::builder()
        .module_arg("takeover-grace-ms")
        .module_arg(0)
        .start();
    let second = Server::builder().replica_of(&first).start();
    for round in 0..3 {
        let mut client = first.connect();
        let token = format!("t{round}");
        client.ask(format!("DLOCK.ACQUIRE k PX 2500 TOKEN {token}"));
        client.ask(format!("DSEM.ACQUIRE s LIMIT 1 TOKEN {token}"));
        client.ask(format!("DWG.ADD g TOKEN {token}"));
        let mut waiters: Vec<_> = (0..6).map(|_| first.connect()).collect();
        for (n, waiter) in waiters.iter_mut().enumerate() {
            match n % 3 {
                0 => send!(waiter, "DLOCK.ACQUIRE", "k", "BLOCK", 0, "TOKEN", n),
                1 => waiter.begin("DSEM.ACQUIRE s BLOCK 0"),
                _ => waiter.begin("DWG.WAIT g BLOCK 30000"),
            }
        }
        first.wait_for_blocked(6);
        second.wait_to_catch_up_with(&first);
        assert_eq!(second.connect().ask("REPLICAOF NO ONE"), "OK");
        assert_eq!(
            client.ask(format!("REPLICAOF 127.0.0.1 {}", second.port())),
            "OK"
        );
        let ends: Vec<Ended> = waiters.into_iter().map(ended).collect();
        assert!(
            ends.iter()
                .all(|end| matches!(end, Ended::Unblocked | Ended::Closed)),
            "{ends:?}"
        );
        first.wait_for_blocked(0);
        first.wait_for_sync();
        assert_eq!(first.digest("k"), second.digest("k"));
        // A replica has no queue, and lapses nothing.
        let mut client = first.connect();
        assert_eq!(
            client.ask("DLOCK.INFO k").field("waiters"),
            &"unknown on a replica"
        );
        assert_eq!(second.connect().ask(format!("DLOCK.RELEASE k {token}")), 1);
        first.wait_to_catch_up_with(&second);
        assert_eq!(client.ask("EXISTS k"), 0);
        // Both change their roles back.
        assert_eq!(client.ask("REPLICAOF NO ONE"), "OK");
        assert_eq!(
            second
                .connect()
                .ask(format!("REPLICAOF 127.0.0.1 {}", first.port())),
            "OK"
        );
        second.wait_for_sync();
        assert_eq!(*client.ask("DSEM.INFO s").field("waiters"), 0);
        let (_, fence) = client.ask("DLOCK.ACQUIRE k PX 50 TOKEN again").grant();
        let mut waiter = first.connect();
        waiter.begin("DLOCK.ACQUIRE k BLOCK 0 TOKEN next");
        assert!(
            waiter.granted().1 > fence,
            "the promoted one lapses and serves"
        );
        client.ask("FLUSHALL");
    }
    assert_calm(&first);
    assert_calm(&second);
}
