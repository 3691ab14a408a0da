//! A failover that Sentinel carries out.

use dsync_client::Server;
use dsync_client::aio::Client;
use tokio::time::timeout;

use crate::support::{LONG, SECOND, Sentinel};

#[tokio::test(flavor = "multi_thread")]
async fn hold_and_waiters_outlive_a_failover() {
    let sentinel = Sentinel::start();
    let [own, shared] = super::queue::WAITS
        .map(|waits| Client::new(Server::from(sentinel.client())).with_waits(waits));
    let hold = own.lock("jobs").lease(30 * SECOND).acquire().await.unwrap();
    let mut waiting = Vec::new();
    for (count, client) in (1..).zip([own, shared]) {
        let lock = client.lock("jobs").lease(30 * SECOND);
        waiting.push(tokio::spawn(async move {
            let hold = lock.acquire_for(2 * LONG).await.unwrap();
            let fence = hold.fence();
            hold.release().await.unwrap();
            fence
        }));
        // The place has reached the replica.
        sentinel.second.wait_for_waiters(count);
    }
    sentinel.fail_over();
    assert!(timeout(12 * SECOND, hold.lost()).await.is_err());
    let fence = hold.fence();
    hold.release().await.unwrap();
    // In any order: the old primary went on for longer than the new one kept the places.
    for task in waiting {
        assert!(task.await.unwrap() > fence);
    }
    assert_eq!(sentinel.second.info("dsync", "dsync_holds"), "0");
}
