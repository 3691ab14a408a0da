//! Primaries that change places while tasks wait: planned, moved slots, and a primary that freezes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use dsync_client::aio::{Begun, Client, Hold, Waits};
use dsync_client::{Error, Server as Address};
use tokio::task::JoinHandle;

use super::queue::WAITS;
use crate::support::{LONG, Proxy, SECOND, Server, assert_done, cluster, eventually};

/// Waits for a lock, and gives it back. Returns its fence.
fn wait_for(client: &Client, key: &str) -> JoinHandle<u64> {
    let lock = client.lock(key).lease(30 * SECOND);
    tokio::spawn(async move {
        let hold = lock.acquire_for(2 * LONG).await.unwrap();
        let fence = hold.fence();
        hold.release().await.unwrap();
        fence
    })
}

async fn hold(client: &Client, key: &str) -> Hold {
    let lock = client.lock(key).lease(60 * SECOND);
    lock.acquire().await.unwrap()
}

async fn assert_served_within(time: std::time::Duration, hold: Hold, waiting: JoinHandle<u64>) {
    let (fence, start) = (hold.fence(), Instant::now());
    hold.release().await.unwrap();
    assert!(waiting.await.unwrap() > fence);
    assert!(start.elapsed() < time, "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn waiter_is_served_soon_after_a_planned_failover() {
    for waits in WAITS {
        let first = Server::start();
        let second = Server::builder().replica_of(&first).start();
        let name = Proxy::to(&first);
        let client = Client::open(name.url()).unwrap().with_waits(waits);
        let hold = hold(&client, "job").await;
        let waiting = wait_for(&client, "job");
        second.wait_for_waiters(1);
        name.lead_to(&second);
        first.ask("FAILOVER");
        eventually("the replica is promoted", || second.is_primary());
        assert_served_within(5 * SECOND, hold, waiting).await;
    }
}

/// The server tells of each subscription that ends with a moved slot. That was taken for the reply to a request: a result
/// was lost and the work done again, or a hold was granted that nobody had.
#[tokio::test(flavor = "multi_thread")]
async fn slots_that_move_while_requests_wait_spoil_no_reply() {
    const WORKERS: usize = 12;
    let cluster = cluster();
    let address = Address::cluster(cluster.urls()).unwrap();
    let client = Client::new(address).with_waits(Waits::SharedConnection);
    let is_over = Arc::new(AtomicBool::new(false));
    let mut workers = Vec::new();
    for worker in 0..WORKERS {
        let (client, is_over) = (client.clone(), Arc::clone(&is_over));
        workers.push(tokio::spawn(async move {
            let (mut rounds, mut last) = (0, 0);
            while !is_over.load(Ordering::SeqCst) {
                let lock = client.lock("{job}:lock").lease(30 * SECOND);
                let hold = lock.acquire_for(2 * LONG).await?;
                assert!(hold.fence() > last);
                last = hold.fence();
                hold.release().await?;
                let once = client.once(format!("{{job}}:{worker}:{rounds}"));
                let Begun::Run(run) = once.begin_for(LONG).await? else {
                    panic!("nobody else does this work");
                };
                assert_eq!(run.attempt(), 1);
                run.done(Some(b"r")).await?;
                assert_done(&once.result().await?, b"r");
                rounds += 1;
            }
            Ok::<usize, Error>(rounds)
        }));
    }
    for _ in 0..8 {
        tokio::time::sleep(SECOND / 4).await;
        let from = cluster.owner_of("{job}:lock");
        cluster.move_slot_of("{job}:lock", (from + 1) % 3);
    }
    is_over.store(true, Ordering::SeqCst);
    for worker in workers {
        assert!(worker.await.unwrap().unwrap() > 0);
    }
    let held = |node: &Server| node.info_number("dsync", "dsync_lock_holds");
    let holds = || cluster.nodes.iter().map(held).sum::<u64>();
    eventually("no hold is left behind", || holds() == 0);
}
