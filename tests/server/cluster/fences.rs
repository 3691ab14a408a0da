//! Fences across the nodes of a cluster.
//!
//! A later hold of a key has the higher fence, also when the key's slot has moved in between and no state of the key
//! was left to move with it. The nodes tell each other their last fences. All nodes of a test start two hours ahead of
//! the same clock; a promoted node is farther ahead.

use crate::cluster::cluster_steps::*;
use crate::support::data_files::{append_changes, grant_by_hand, with_safe_aof};
use crate::support::steps::*;
use crate::support::*;

/// Acquires and releases the key at its node, which keeps no state of it; returns the fence.
#[track_caller]
fn acquire_and_release(router: &mut Router, key: &str) -> u64 {
    let fence = fence_of(LOCK, &router.ask(LOCK.acquire(key, "t", "")), "t");
    assert_eq!(router.ask(LOCK.release(key, "t")), 1);
    fence
}

/// How often the node's server has listed the nodes, for the module or for a client.
fn looks(node: &Server) -> u64 {
    let stats = node.info_section("commandstats");
    let line = stats
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_cluster|nodes:calls="));
    let calls = line.and_then(|line| line.split(',').next());
    calls.map_or(0, |calls| calls.parse().expect("a number"))
}

/// Waits until the node has looked at its slots. An order of slots makes it look in its next cron.
#[track_caller]
fn wait_for_look(node: &Server) {
    let before = looks(node);
    let what = "the node to look at its slots";
    eventually(what, SOON, || looks(node) > before);
}

#[test]
fn empty_slot_keeps_fence_order_when_it_moves() {
    let cluster = Cluster::start();
    let key = cluster.key_of(0, "k");
    let slot = cluster.slot(&key);
    let mut router = cluster.router_from(0);
    let mut last = acquire_and_release(&mut router, &key);
    // Each direction between two of three nodes, twice: the node that was started last is ahead.
    for (from, to) in [(0, 1), (1, 2), (2, 0), (0, 2), (2, 1), (1, 0)].repeat(2) {
        cluster.move_empty(slot, from, to);
        let fence = acquire_and_release(&mut router, &key);
        assert!(
            fence > last,
            "{fence} at node {to} follows {last} at node {from}"
        );
        last = fence;
    }
}

#[test]
fn key_made_anew_at_importing_node_has_higher_fence() {
    let cluster = Cluster::start();
    let key = cluster.key_of(0, "k");
    let slot = cluster.slot(&key);
    let mut router = cluster.router_from(0);
    for (from, to) in [(0, 1), (1, 2), (2, 0), (0, 2), (2, 1), (1, 0)] {
        let before = acquire_and_release(&mut router, &key);
        let opened = cluster.open_move(slot, from, to);
        // The source has no such key, so it answers ASK: the request goes to the target.
        let fence = acquire_and_release(&mut router, &key);
        assert!(
            fence > before,
            "{fence} at node {to} follows {before} at node {from}"
        );
        opened.close();
        let after = acquire_and_release(&mut router, &key);
        assert!(after > fence, "{after} follows {fence} at node {to}");
    }
}

#[test]
fn fences_of_promoted_node_are_followed_at_every_node() {
    // A short node timeout: before a failover, all nodes must know how the one before it ended.
    let builder = Cluster::builder().with_replicas();
    let cluster = builder.node_timeout_ms(2_000).start();
    let all: Vec<usize> = (0..cluster.len()).collect();
    let (staying, key) = (cluster.key_of(0, "staying"), cluster.key_of(0, "k"));
    let (home, slot) = (cluster.slot(&staying), cluster.slot(&key));
    assert_ne!(home, slot);
    let mut router = cluster.router_from(0);
    let mut last = acquire_and_release(&mut router, &key);
    // Each promotion raises the fences by more than ten minutes: no other node gets there by itself.
    let mut serving = 0;
    for promoted in [3, 0] {
        cluster.fail_over_to(promoted, home, &all);
        cluster[serving].wait_for_sync();
        serving = promoted;
        for to in [1, 2] {
            let promoted = acquire_and_release(&mut router, &key);
            assert!(promoted > last, "{promoted} follows {last}");
            cluster.move_empty(slot, serving, to);
            let there = acquire_and_release(&mut router, &key);
            assert!(there > promoted, "{there} at node {to} follows {promoted}");
            cluster.move_empty(slot, to, serving);
            last = acquire_and_release(&mut router, &key);
            assert!(last > there, "{last} at home follows {there} at node {to}");
        }
    }
    for node in all {
        assert_calm(&cluster[node]);
    }
}

/// A promoted node looks at its slots for the first time a moment after its promotion, and takes those that it finds
/// for slots that it has decided about. A slot that left and came back before that look must still count as new.
#[test]
fn slot_returning_before_promoted_node_looks_is_new() {
    let builder = Cluster::builder().with_replicas();
    let cluster = builder.node_timeout_ms(2_000).start();
    let all: Vec<usize> = (0..cluster.len()).collect();
    let (staying, key) = (cluster.key_of(0, "staying"), cluster.key_of(0, "k"));
    let (home, slot) = (cluster.slot(&staying), cluster.slot(&key));
    let mut router = cluster.router_from(0);
    acquire_and_release(&mut router, &key);
    cluster.fail_over_to(3, home, &all);
    cluster[0].wait_for_sync();
    let mut node = cluster[0].connect();
    // A node looks at its slots in its cron, which runs only once a second with this setting.
    assert_eq!(node.ask("CONFIG SET hz 1"), "OK");
    cluster.fail_over_to(0, home, &all);
    // A node hears its own announcement at once.
    let heard_at = |node: usize| cluster[node].info_number("dsync", "dsync_heard_fence");
    let what = "node 1 to hear what the promoted node announced";
    eventually(what, SOON, || heard_at(1) >= heard_at(0));
    let before = acquire_and_release(&mut router, &key);
    cluster.move_empty(slot, 0, 1);
    let there = acquire_and_release(&mut router, &key);
    assert!(there > before, "{there} at node 1 follows {before}");
    cluster.move_empty(slot, 1, 0);
    wait_for_look(&cluster[0]);
    let back = acquire_and_release(&mut router, &key);
    assert!(back > there, "{back} at home follows {there} at node 1");
}

/// Node 0 was promoted twice, so its fences are higher than those after one promotion. It gives a slot to node 1, which
/// fails over before it grants anything there: the replica of node 1 has seen no fence of the slot.
#[test]
fn unused_slot_keeps_fence_order_over_failover_of_owner() {
    let builder = Cluster::builder().with_replicas();
    let cluster = builder.node_timeout_ms(2_000).start();
    let all: Vec<usize> = (0..cluster.len()).collect();
    let (staying, key) = (cluster.key_of(0, "staying"), cluster.key_of(0, "k"));
    let (home, slot) = (cluster.slot(&staying), cluster.slot(&key));
    for (promoted, primary) in [(3, 0), (0, 3)] {
        cluster.fail_over_to(promoted, home, &all);
        cluster[primary].wait_for_sync();
    }
    let mut router = cluster.router_from(0);
    let before = acquire_and_release(&mut router, &key);
    cluster.move_empty(slot, 0, 1);
    cluster.fail_over_to(4, slot, &all);
    // After this sleep the cron is overdue: the node looks at its slots, and takes them for slots it has decided about.
    assert_eq!(cluster[4].connect().ask("DEBUG SLEEP 0.2"), "OK");
    let after = acquire_and_release(&mut router, &key);
    assert!(
        after > before,
        "{after} at node 4 follows {before} at node 0"
    );
}

/// A payload of a lock with a fence that is a hundred days ahead of the clock.
#[track_caller]
fn payload_far_ahead() -> Vec<u8> {
    let mut server = with_safe_aof(false).start();
    server.kill9();
    let far = unix_us() + 100 * 86_400_000_000;
    append_changes(&server, "far", "lock", &[&grant_by_hand(far)]);
    server.start_again();
    server.connect().ask("DUMP far").as_bytes().to_vec()
}

/// Takes the fences of the owner of this key a hundred days ahead of the clock.
#[track_caller]
fn go_far_ahead(node: &Server, key: &str) {
    let mut client = node.connect();
    let restored = call!(client, "RESTORE", key, 0, payload_far_ahead());
    assert_eq!(restored, "OK");
    assert_eq!(client.ask(format!("DEL {key}")), 1);
}

/// Waits until the node has heard of this fence.
#[track_caller]
fn wait_until_heard(node: &Server, fence: u64) {
    eventually("a node to hear of a fence", SOON, || {
        node.info_number("dsync", "dsync_heard_fence") >= fence
    });
}

/// The node had given fences far ahead, has saved nothing, and is started again. The others had heard of them.
#[test]
fn restarted_node_goes_past_its_own_fences_that_others_have_heard() {
    let builder = Cluster::builder().config("save", "''");
    let mut cluster = builder.node_timeout_ms(20_000).start();
    let key = cluster.key_of(0, "k");
    go_far_ahead(&cluster[0], &key);
    let mut router = cluster.router_from(0);
    let before = acquire_and_release(&mut router, &key);
    wait_until_heard(&cluster[1], before);
    cluster[0].kill9();
    cluster[0].start_again();
    cluster.wait_until_ok(&[0]);
    // The node's own announcement counts as heard, so wait for what it was told.
    wait_until_heard(&cluster[0], before);
    let after = acquire_and_release(&mut cluster.router_from(0), &key);
    assert!(after > before, "{after} follows {before}");
    // Each other node's first message counts, and no more.
    wait_until_heard(&cluster[2], after);
    let again = acquire_and_release(&mut cluster.router_from(0), &key);
    assert!(again - after < 60_000_000, "{again} follows {after}");
}

/// A replica that is started again calls itself a primary until its first cron. It does not begin as one.
#[test]
fn restarted_replica_of_a_cluster_does_not_leap() {
    let mut cluster = Cluster::builder().with_replicas().start();
    let key = cluster.key_of(0, "k");
    acquire_and_release(&mut cluster.router_from(0), &key);
    cluster[3].wait_to_catch_up_with(&cluster[0]);
    assert_eq!(cluster[3].connect().ask("SAVE"), "OK");
    cluster[3].kill9();
    cluster[3].start_again();
    cluster[3].wait_for_sync();
    let last = |node: usize| cluster[node].info_number("dsync", "dsync_last_fence");
    let ahead = last(3).saturating_sub(last(0));
    assert!(ahead < 60_000_000, "the replica is {ahead} µs ahead");
}

/// The last fence of the lock is higher than the number of the place that waits behind it. The lock rests, its slot moves,
/// and the place is granted at the end of the pause, by no client's command.
#[test]
fn place_granted_after_its_slot_moved_has_higher_fence() {
    let cluster = Cluster::start();
    let key = cluster.key_of(0, "k");
    go_far_ahead(&cluster[0], &cluster.key_of(0, "other"));
    let mut client = cluster[0].connect();
    client.ask(format!("DLOCK.ACQUIRE {key} TOKEN a")).grant();
    let request = |token| format!("DLOCK.ACQUIRE {key} EX 60 TOKEN {token} QUEUE 60000");
    for token in ["b", "c"] {
        assert_eq!(client.ask(request(token)).as_array()[0], "WAITING");
    }
    assert_eq!(client.ask(LOCK.release(&key, "a")), 1);
    let before = fence_of(LOCK, &client.ask(request("b")), "b");
    let paused = client.ask(format!("DLOCK.PAUSE {key} 2000"));
    assert!(!paused.is_error(), "{paused:?}");
    assert_eq!(client.ask(LOCK.release(&key, "b")), 1);
    wait_until_heard(&cluster[1], before);
    cluster.move_slot_of(&key, 1);
    let mut client = cluster[1].connect();
    eventually("the end of the pause", SOON, || {
        client.ask(LOCK.check(&key, "c")).as_int() > 0
    });
    let after = fence_of(LOCK, &client.ask(request("c")), "c");
    assert!(after > before, "{after} follows {before}");
}
