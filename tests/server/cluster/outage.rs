//! A cluster that is down for a node: a slot that no node serves, or too few primaries within reach.
//!
//! Waiters are answered CLUSTERDOWN. No request is granted and no lease lapses, because no client could renew. When the
//! cluster is back, leases have what was left of them.

use crate::cluster::cluster_steps::*;
use crate::support::steps::*;
use crate::support::*;
use std::time::{Duration, Instant};

/// A lease shorter than the outage, so that it would end if it ran; and long enough for a test on a machine under load,
/// once the cluster is back.
const LEASE_MS: u64 = 2_000;
/// How long the cluster stays down.
const OUTAGE: Duration = Duration::from_millis(2_500);

/// A slot of this node without keys. When it is taken from the node, the node takes the cluster for down.
#[track_caller]
fn spare_slot(cluster: &Cluster, node: usize, key: &str) -> u16 {
    let spare = cluster.slot(&cluster.key_of(node, "spare"));
    assert_ne!(spare, cluster.slot(key));
    spare
}

/// Repeats a request until the node serves again; returns its reply.
#[track_caller]
fn ask_until_served(client: &mut Client, line: &str) -> Reply {
    let mut answer = Reply::Nil;
    eventually("a node that serves again", SOON * 3, || {
        answer = client.ask(line);
        !matches!(&answer, Reply::Error(text) if text.starts_with("CLUSTERDOWN"))
    });
    answer
}

#[test]
fn uncovered_slot_grants_nobody_and_answers_clusterdown() {
    let cluster = Cluster::start();
    let (server, mut client) = (&cluster[0], cluster[0].connect());
    let tag = cluster.key_of(0, "tag");
    let spare = spare_slot(&cluster, 0, &tag);
    let key = |family: Family| format!("{{{tag}}}{}", family.prefix());
    let mut waiting = Vec::new();
    for family in FAMILIES {
        let granted = client.ask(family.acquire(&key(family), "a", "PX 60000"));
        fence_of(family, &granted, "a");
        waiting.push(server.waiting(family.acquire(&key(family), "b", "BLOCK 0")));
    }
    let group = format!("{{{tag}}}group");
    client
        .ask(format!("DWG.ADD {group} TOKEN m PX 60000"))
        .grant();
    waiting.push(server.waiting(format!("DWG.WAIT {group} BLOCK 0")));

    // In one turn: the leases become short, and the cluster goes down. The server notices that after the timers of this
    // turn, so the leases must be longer than it lasts on a slow machine.
    let mut lines: Vec<String> = FAMILIES
        .map(|family| format!("{}.RENEW {} a PX 200", family.prefix(), key(family)))
        .into();
    lines.push(format!("DWG.RENEW {group} m PX 200"));
    lines.push(format!("CLUSTER DELSLOTS {spare}"));
    let done = client.ask_all(&lines);
    assert!(done[..5].iter().all(|renewed| *renewed == 1), "{done:?}");
    for waiter in &mut waiting {
        turned_away(waiter, "CLUSTERDOWN");
    }
    let down_since = Instant::now();
    let told = client.ask(LOCK.check(&key(LOCK), "a"));
    assert!(told.error().starts_with("CLUSTERDOWN"), "{told:?}");
    eventually("the end of the outage", SOON, || {
        assert_eq!(server.info_number("dsync", "dsync_holds"), 5);
        down_since.elapsed() >= Duration::from_millis(500)
    });
    for family in ["lock", "sem", "wg", "once"] {
        let field = |what: &str| server.info_number("dsync", &format!("dsync_{family}_{what}"));
        assert_eq!(
            (field("lapsed"), field("granted_after_wait")),
            (0, 0),
            "{family}"
        );
    }

    // When the cluster is back, the short leases end and new requests are served.
    assert_eq!(client.ask(format!("CLUSTER ADDSLOTS {spare}")), "OK");
    for family in FAMILIES {
        let request = family.acquire(&key(family), "b", "BLOCK 5000");
        let granted = ask_until_served(&mut client, &request);
        fence_of(family, &granted, "b");
    }
    assert_eq!(
        client.ask(format!("DWG.WAIT {group} BLOCK 5000")),
        Reply::Array(vec![Reply::Int(0), Reply::Int(1)])
    );
    assert_calm(server);
}

#[test]
fn leases_stand_still_while_slot_is_uncovered() {
    let cluster = Cluster::start();
    let (server, mut client) = (&cluster[0], cluster[0].connect());
    let key = cluster.key_of(0, "k");
    let spare = spare_slot(&cluster, 0, &key);
    client.ask(LOCK.acquire(&key, "a", "PX 60000"));
    let renew = format!("DLOCK.RENEW {key} a PX {LEASE_MS}");
    let done = client.ask_all([renew, format!("CLUSTER DELSLOTS {spare}")]);
    assert_eq!(done[0], 1);
    let down_since = Instant::now();
    at(down_since + OUTAGE);
    assert_eq!(server.info_number("dsync", "dsync_holds"), 1);
    assert_eq!(client.ask(format!("CLUSTER ADDSLOTS {spare}")), "OK");
    let left = ask_until_served(&mut client, &LOCK.check(&key, "a")).as_int();
    assert!(left > 0, "the lease ran on: {left} ms left");
    let mut waiter = server.waiting(LOCK.acquire(&key, "b", "BLOCK 0"));
    fence_of(LOCK, &waiter.reply(), "b");
    assert_calm(server);
}

#[test]
fn leases_stand_still_without_majority() {
    let cluster = Cluster::builder().node_timeout_ms(1_000).start();
    let (server, mut client) = (&cluster[0], cluster[0].connect());
    let key = cluster.key_of(0, "k");
    let renew = format!("DLOCK.RENEW {key} a PX {LEASE_MS}");
    let granted = client.ask(LOCK.acquire(&key, "a", "PX 60000"));
    let fence = fence_of(LOCK, &granted, "a");
    let mut waiter = server.waiting(LOCK.acquire(&key, "b", "BLOCK 0"));

    cluster[1].stop();
    cluster[2].stop();
    // The holder renews until the node notices that it cannot reach the majority.
    eventually("the node to miss the others", SOON, || {
        let renewed = client.ask(&renew);
        renewed != 1 && renewed.error().starts_with("CLUSTERDOWN")
    });
    let down_since = Instant::now();
    turned_away(&mut waiter, "CLUSTERDOWN");
    at(down_since + OUTAGE);
    assert_eq!(server.info_number("dsync", "dsync_lock_lapsed"), 0);
    assert_eq!(
        server.info_number("dsync", "dsync_lock_granted_after_wait"),
        0
    );

    cluster[1].cont();
    cluster[2].cont();
    let left = ask_until_served(&mut client, &LOCK.check(&key, "a"));
    assert_eq!(client.ask(&renew), 1, "there was left: {left:?}");
    let mut waiter = server.waiting(LOCK.acquire(&key, "b", "BLOCK 0"));
    assert_eq!(client.ask(LOCK.release(&key, "a")), 1);
    assert!(fence_of(LOCK, &waiter.reply(), "b") > fence);
    for node in 0..3 {
        assert_calm(&cluster[node]);
    }
}

#[test]
fn dead_primary_without_replica_ends_waits_of_other_nodes() {
    let mut cluster = Cluster::builder().node_timeout_ms(1_000).start();
    let key = cluster.key_of(0, "k");
    let mut client = cluster[0].connect();
    client.ask(LOCK.acquire(&key, "a", "PX 60000"));
    let mut waiter = cluster[0].waiting(LOCK.acquire(&key, "b", "BLOCK 0"));
    cluster[2].kill9();
    turned_away(&mut waiter, "CLUSTERDOWN");
    cluster.wait_until_down(&[0, 1]);
    cluster[2].start_again();
    cluster.wait_until_ok(&[0, 1, 2]);
    let mut waiter = cluster[0].waiting(LOCK.acquire(&key, "b", "BLOCK 0"));
    assert_eq!(client.ask(LOCK.release(&key, "a")), 1);
    fence_of(LOCK, &waiter.reply(), "b");
    assert_calm(&cluster[0]);
}
