//! Replicas of two nodes between which a slot moves.
//!
//! The replicas of the source drop the keys that have left, and those of the target have the keys that have arrived,
//! with equal digests. A replica of the target that takes over serves them.

use crate::cluster::cluster_steps::*;
use crate::support::steps::*;
use crate::support::*;

const SOURCE: usize = 0;
const TARGET: usize = 1;
const SOURCE_REPLICA: usize = 3;
const TARGET_REPLICA: usize = 4;
const ALL: [usize; 6] = [0, 1, 2, 3, 4, 5];

/// Waits until the replica has caught up, and asserts that the key has the same digest on both.
#[track_caller]
fn wait_for_the_same(primary: &Server, replica: &Server, key: &str) {
    replica.wait_to_catch_up_with(primary);
    assert_eq!(replica.digest(key), primary.digest(key), "{key}");
}

fn assert_replicas_follow(move_slot: fn(&Cluster, u16)) {
    let cluster = Cluster::builder()
        .with_replicas()
        .config("appendonly", "yes")
        .start();
    let tag = cluster.key_of(SOURCE, "tag");
    // Another slot of the target, by which the test notices the failover.
    let home = cluster.slot(&cluster.key_of(TARGET, "home"));
    let slot = cluster.slot(&tag);
    let key = |family: Family| format!("{{{tag}}}{}", family.prefix());
    let (source, target) = (&cluster[SOURCE], &cluster[TARGET]);
    let mut client = source.connect();
    let held = FAMILIES.map(|family| {
        let granted = client.ask(family.acquire(&key(family), "a", "PX 60000"));
        fence_of(family, &granted, "a")
    });
    let before = FAMILIES.map(|family| source.digest(key(family)));

    move_slot(&cluster, slot);
    let (old, new) = (&cluster[SOURCE_REPLICA], &cluster[TARGET_REPLICA]);
    for (family, before) in FAMILIES.into_iter().zip(before) {
        assert_eq!(target.digest(key(family)), before, "{family:?}");
        wait_for_the_same(target, new, &key(family));
    }
    old.wait_to_catch_up_with(source);
    for server in [source, old] {
        eventually("the end of what has left", SOON, || {
            server.connect().ask("DBSIZE") == 0 && server.info_number("dsync", "dsync_holds") == 0
        });
    }
    assert_eq!(new.info_number("dsync", "dsync_holds"), 4);
    assert_eq!(new.info_number("dsync", "dsync_unapplied_changes"), 0);

    // The replica of the target also follows later changes.
    let mut router = cluster.router_from(SOURCE);
    for family in FAMILIES {
        let renew = format!("{}.RENEW {} a PX 50000", family.prefix(), key(family));
        assert_eq!(router.ask(renew), 1);
        wait_for_the_same(target, new, &key(family));
    }
    cluster.fail_over_to(TARGET_REPLICA, home, &ALL);
    for (family, held) in FAMILIES.into_iter().zip(held) {
        assert!(router.ask(family.check(&key(family), "a")).as_int() > 0);
        let mut waiter = new.waiting(family.acquire(&key(family), "b", "BLOCK 0"));
        assert_eq!(router.ask(family.release(&key(family), "a")), 1);
        assert!(fence_of(family, &waiter.reply(), "b") > held, "{family:?}");
    }
    assert_eq!(router.at(), new.port());
    for node in ALL {
        assert_calm(&cluster[node]);
    }
}

#[test]
fn replicas_follow_slot_moved_key_by_key() {
    assert_replicas_follow(|cluster, slot| {
        let opened = cluster.open_move(slot, SOURCE, TARGET);
        opened.send_all();
        opened.close();
    });
}

#[test]
fn replicas_follow_slot_moved_as_a_whole() {
    if Cluster::can_migrate_atomically() {
        assert_replicas_follow(|cluster, slot| {
            cluster.start_migration(slot, SOURCE, TARGET);
            cluster.wait_for_owner(&ALL, slot, TARGET);
        });
    }
}
