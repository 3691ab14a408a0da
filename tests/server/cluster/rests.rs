//! A hold that rests (MINHOLD) in a cluster: its place stays taken after a failover, and after its slot has moved.

use crate::support::steps::*;
use crate::support::*;

const PRIMARY: usize = 0;
const REPLICA: usize = 3;
const TARGET: usize = 1;

/// Lets a hold of the semaphore rest beside one that is held, and queues `next` for a place. Returns the fence of the rest.
#[track_caller]
fn rest_and_queue(client: &mut Client, key: &str, min_hold_ms: u64) -> u64 {
    let ask = format!("DSEM.ACQUIRE {key} LIMIT 2 EX 1000 MINHOLD {min_hold_ms} TOKEN");
    let (_, fence) = client.ask(format!("{ask} rests")).grant();
    client.ask(format!("{ask} held")).grant();
    assert_eq!(client.ask(format!("DSEM.RELEASE {key} rests")), 1);
    let place = client.ask(format!("{ask} next QUEUE 60000"));
    assert_eq!(place.as_array()[0], "WAITING", "{place:?}");
    fence
}

/// The rest is there, with its old fence; no token has it; and `next` is granted when it ends.
#[track_caller]
fn expect_rest(server: &Server, key: &str, fence: u64) {
    let mut client = server.connect();
    let info = client.ask(format!("DSEM.INFO {key}"));
    assert_eq!(*info.field("resting"), 1);
    let row = &info.field("first-holders").as_array()[0];
    assert_eq!(*row.field("fence"), fence as i64);
    let left = row.field("resting-ms").as_int();
    assert!((1..=600_000).contains(&left), "{left}");
    assert_eq!(client.ask(format!("DSEM.RELEASE {key} rests")), 0);
    let next = format!("DSEM.ACQUIRE {key} EX 1000 MINHOLD 600000 TOKEN next QUEUE 60000");
    assert_eq!(client.ask(&next).as_array()[0], "WAITING");
    assert_eq!(client.ask(format!("DSEM.REVOKE {key} {fence}")), 1);
    assert_eq!(client.ask(&next).grant().0, "next");
    // The MINHOLD of the place has come too.
    assert_eq!(client.ask(format!("DSEM.RELEASE {key} next")), 1);
    assert_eq!(*client.ask(format!("DSEM.INFO {key}")).field("resting"), 1);
}

#[test]
fn rest_is_there_after_failover() {
    let cluster = Cluster::builder().with_replicas().start();
    let key = cluster.key_of(PRIMARY, "sem");
    let fence = rest_and_queue(&mut cluster[PRIMARY].connect(), &key, 600_000);
    cluster[REPLICA].wait_to_catch_up_with(&cluster[PRIMARY]);
    cluster.fail_over_to(REPLICA, cluster.slot(&key), &[0, 1, 2, 3, 4, 5]);
    expect_rest(&cluster[REPLICA], &key, fence);
    let old = &cluster[PRIMARY];
    old.wait_to_catch_up_with(&cluster[REPLICA]);
    assert_eq!(old.info_number("dsync", "dsync_unapplied_changes"), 0);
    assert_eq!(old.info_number("dsync", "dsync_resting"), 1, "as before it");
}

#[test]
fn rest_moves_with_its_slot() {
    let cluster = Cluster::start();
    let key = cluster.key_of(PRIMARY, "sem");
    let fence = rest_and_queue(&mut cluster[PRIMARY].connect(), &key, 600_000);
    cluster.move_slot_of(&key, TARGET);
    expect_rest(&cluster[TARGET], &key, fence);
    eventually("no rest at the source", SOON, || {
        cluster[PRIMARY].info_number("dsync", "dsync_resting") == 0
    });
    assert_calm(&cluster[PRIMARY]);
    assert_calm(&cluster[TARGET]);
}

/// The target ends the rest by its own lease clock, and grants the place that has come with the key.
#[test]
fn rest_that_moved_ends_at_the_target() {
    let cluster = Cluster::start();
    let key = cluster.key_of(PRIMARY, "sem");
    rest_and_queue(&mut cluster[PRIMARY].connect(), &key, 500);
    cluster.move_slot_of(&key, TARGET);
    let next = format!("DSEM.ACQUIRE {key} EX 1000 TOKEN next BLOCK 0");
    let mut client = cluster[TARGET].connect();
    client.begin(next);
    assert_eq!(client.granted().0, "next");
    assert_calm(&cluster[TARGET]);
}
