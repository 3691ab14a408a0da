//! Fences across the nodes of a cluster.
//!
//! The promise: whoever holds a key after another has the greater fence, also when the key's slot has
//! moved in between and nothing of the key was left to move along. The nodes tell one another; a promoted
//! node, whose fences are an hour ahead of the clock, is followed by others that were started by the same
//! clock.

use crate::cluster::steps::*;
use crate::support::steps::*;
use crate::support::*;

/// Acquires and releases, wherever the key is: nothing of it is left.
#[track_caller]
fn pass(router: &mut Router, key: &str) -> u64 {
    let fence = fence_of(LOCK, &router.ask(LOCK.acquire(key, "t", "")), "t");
    assert_eq!(router.ask(LOCK.release(key, "t")), 1);
    fence
}

#[test]
fn empty_slot_keeps_fence_order_when_it_moves() {
    let cluster = Cluster::start();
    let key = cluster.key_of(0, "k");
    let slot = cluster.slot(&key);
    let mut router = cluster.router_from(0);
    let mut last = pass(&mut router, &key);
    // Every way between two of three nodes, twice: one of them was started last, and is ahead.
    for (from, to) in [(0, 1), (1, 2), (2, 0), (0, 2), (2, 1), (1, 0)].repeat(2) {
        cluster.move_empty(slot, from, to);
        let fence = pass(&mut router, &key);
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
        let before = pass(&mut router, &key);
        let opened = cluster.open_move(slot, from, to);
        // Absent here, so whoever asks is sent there for this once.
        let fence = pass(&mut router, &key);
        assert!(
            fence > before,
            "{fence} at node {to} follows {before} at node {from}"
        );
        opened.close();
        let after = pass(&mut router, &key);
        assert!(after > fence, "{after} follows {fence} at node {to}");
    }
}

#[test]
fn fences_of_promoted_node_are_followed_at_every_node() {
    // Less patient than others: the next failover needs all to know how the last one ended.
    let builder = Cluster::builder().with_replicas();
    let cluster = builder.node_timeout_ms(2_000).start();
    let all: Vec<usize> = (0..cluster.len()).collect();
    let (staying, key) = (cluster.key_of(0, "staying"), cluster.key_of(0, "k"));
    let (home, slot) = (cluster.slot(&staying), cluster.slot(&key));
    assert_ne!(home, slot);
    let mut router = cluster.router_from(0);
    let mut last = pass(&mut router, &key);
    // Each promotion leaps at least a minute past all that was given: no other node gets there by itself.
    let mut serving = 0;
    for promoted in [3, 0] {
        cluster.fail_over_to(promoted, home, &all);
        cluster[serving].wait_for_sync();
        serving = promoted;
        for to in [1, 2] {
            let promoted = pass(&mut router, &key);
            assert!(promoted > last, "{promoted} follows {last}");
            cluster.move_empty(slot, serving, to);
            let there = pass(&mut router, &key);
            assert!(there > promoted, "{there} at node {to} follows {promoted}");
            cluster.move_empty(slot, to, serving);
            last = pass(&mut router, &key);
            assert!(last > there, "{last} at home follows {there} at node {to}");
        }
    }
    for node in all {
        assert_calm(&cluster[node]);
    }
}

/// A promoted node takes all slots that it finds when it first looks, a moment after its promotion, for slots
/// that it has decided about. One that went away and came back before that look is not among them.
#[test]
fn slot_returning_before_promoted_node_looks_is_new() {
    let builder = Cluster::builder().with_replicas();
    let cluster = builder.node_timeout_ms(2_000).start();
    let all: Vec<usize> = (0..cluster.len()).collect();
    let (staying, key) = (cluster.key_of(0, "staying"), cluster.key_of(0, "k"));
    let (home, slot) = (cluster.slot(&staying), cluster.slot(&key));
    let mut router = cluster.router_from(0);
    pass(&mut router, &key);
    cluster.fail_over_to(3, home, &all);
    cluster[0].wait_for_sync();
    let mut node = cluster[0].connect();
    // A node looks in its cron, which now sleeps for a second.
    assert_eq!(call!(node, "CONFIG", "SET", "hz", 1), "OK");
    cluster.fail_over_to(0, home, &all);
    let before = pass(&mut router, &key);
    cluster.move_empty(slot, 0, 1);
    let there = pass(&mut router, &key);
    assert!(there > before, "{there} at node 1 follows {before}");
    cluster.move_empty(slot, 1, 0);
    // The cron is overdue after this, so the node looks before it reads the next command.
    assert_eq!(call!(node, "DEBUG", "SLEEP", "1.1"), "OK");
    let back = pass(&mut router, &key);
    assert!(back > there, "{back} at home follows {there} at node 1");
}

/// The story: node 0 was promoted twice, so its fences are ahead of those that one promotion leaps to. It gives a
/// slot to node 1, which dies before it grants anything there. The replica of node 1 has seen no fence of the slot.
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
    let before = pass(&mut router, &key);
    cluster.move_empty(slot, 0, 1);
    cluster.fail_over_to(4, slot, &all);
    // The cron is overdue after this: the node looks at its slots, and takes them for its own.
    assert_eq!(call!(cluster[4].connect(), "DEBUG", "SLEEP", "0.2"), "OK");
    let after = pass(&mut router, &key);
    assert!(
        after > before,
        "{after} at node 4 follows {before} at node 0"
    );
}
