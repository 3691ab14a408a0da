//! Primaries that change places while threads wait: planned, moved slots, and a primary that freezes.

use std::thread::{self, JoinHandle};
use std::time::Instant;

use dsync_client::{Client, Server as Address};

use crate::support::{
    LONG, Proxy, SECOND, Sentinel, Server, cluster, cluster_with_replicas, eventually,
};

/// Waits for a lock, and gives it back. Returns its fence.
fn wait_for(client: &Client, key: &str) -> JoinHandle<u64> {
    let lock = client.lock(key).lease(30 * SECOND);
    thread::spawn(move || {
        let hold = lock.acquire_for(2 * LONG).unwrap();
        let fence = hold.fence();
        hold.release().unwrap();
        fence
    })
}

#[test]
fn waiter_is_served_soon_after_a_planned_failover() {
    let first = Server::start();
    let second = Server::builder().replica_of(&first).start();
    let name = Proxy::to(&first);
    let client = Client::open(name.url()).unwrap();
    let hold = client.lock("job").lease(60 * SECOND).acquire().unwrap();
    let waiting = wait_for(&client, "job");
    second.wait_for_waiters(1);
    name.lead_to(&second);
    first.ask("FAILOVER");
    eventually("the replica is promoted", || second.is_primary());
    let fence = hold.fence();
    let start = Instant::now();
    hold.release().unwrap();
    assert!(waiting.join().unwrap() > fence);
    assert!(start.elapsed() < 5 * SECOND, "{:?}", start.elapsed());
}

#[test]
fn waiter_is_served_soon_after_a_planned_failover_of_a_cluster() {
    let (cluster, _, replica) = cluster_with_replicas("job");
    let replica = &cluster.nodes[replica];
    let client = Client::new(Address::cluster(cluster.urls()).unwrap());
    let hold = client.lock("job").lease(60 * SECOND).acquire().unwrap();
    let waiting = wait_for(&client, "job");
    replica.wait_for_waiters(1);
    replica.ask("CLUSTER FAILOVER");
    eventually("the replica is promoted", || replica.is_primary());
    let fence = hold.fence();
    let start = Instant::now();
    hold.release().unwrap();
    assert!(waiting.join().unwrap() > fence);
    assert!(start.elapsed() < 5 * SECOND, "{:?}", start.elapsed());
}

#[test]
fn waiter_is_served_soon_after_a_slot_has_moved() {
    let cluster = cluster();
    let client = Client::new(Address::cluster(cluster.urls()).unwrap());
    let hold = client.lock("job").lease(60 * SECOND).acquire().unwrap();
    let from = cluster.owner_of("job");
    let waiting = wait_for(&client, "job");
    cluster.nodes[from].wait_for_waiters(1);
    cluster.move_slot_of("job", (from + 1) % 3);
    let fence = hold.fence();
    let start = Instant::now();
    hold.release().unwrap();
    assert!(waiting.join().unwrap() > fence);
    assert!(start.elapsed() < 5 * SECOND, "{:?}", start.elapsed());
}

#[test]
fn waiter_is_served_when_the_primary_freezes_in_a_cluster() {
    let (cluster, owner, replica) = cluster_with_replicas("job");
    let replica = &cluster.nodes[replica];
    let client = Client::new(Address::cluster(cluster.urls()).unwrap());
    let hold = client.lock("job").lease(20 * SECOND).acquire().unwrap();
    let waiting = wait_for(&client, "job");
    replica.wait_for_waiters(1);
    let frozen = &cluster.nodes[owner];
    frozen.stop();
    let fence = hold.fence();
    let start = Instant::now();
    hold.release().unwrap();
    assert!(waiting.join().unwrap() > fence);
    // By the replica, while the old primary is still frozen.
    assert!(replica.is_primary());
    assert!(start.elapsed() < LONG, "{:?}", start.elapsed());
    frozen.cont();
}

#[test]
fn waiter_is_served_when_the_primary_freezes_behind_sentinel() {
    let sentinel = Sentinel::start();
    let client = Client::new(sentinel.primary());
    let hold = client.lock("job").lease(20 * SECOND).acquire().unwrap();
    let waiting = wait_for(&client, "job");
    sentinel.second.wait_for_waiters(1);
    sentinel.first.stop();
    let fence = hold.fence();
    let start = Instant::now();
    hold.release().unwrap();
    assert!(waiting.join().unwrap() > fence);
    assert!(start.elapsed() < LONG, "{:?}", start.elapsed());
    sentinel.first.cont();
}
