//! Primaries that change places while threads wait: planned, moved slots, and a primary that freezes.

use std::thread::{self, JoinHandle};
use std::time::Instant;

use dsync_client::Client;

use crate::support::{LONG, Proxy, SECOND, Server, eventually};

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
