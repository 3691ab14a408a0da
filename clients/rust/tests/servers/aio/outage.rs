//! Servers that stop, networks that are cut, connections that close, and restarts.

use std::time::Duration;

use dsync_client::aio::Client;
use dsync_client::{Error, Loss};
use tokio::time::timeout;

use crate::support::{LONG, Proxy, SECOND, Server, safe_server};

#[tokio::test(flavor = "multi_thread")]
async fn work_is_cancelled_behind_a_cut_network_before_the_next_waiter_is_served() {
    let server = Server::start();
    let network = Proxy::to(&server);
    let cut_off = Client::open(network.url()).unwrap();
    let lock = cut_off.lock("jobs").lease(4 * SECOND).margin(SECOND);
    let hold = lock.acquire().await.unwrap();
    let fence = hold.fence();
    network.cut();
    let work = tokio::spawn(async move {
        let result = hold.run(std::future::pending::<()>()).await;
        (result, hold)
    });
    let other = Client::open(server.url())
        .unwrap()
        .lock("jobs")
        .acquire_for(LONG)
        .await
        .unwrap();
    assert!(
        work.is_finished(),
        "the next waiter was served before the work was cancelled"
    );
    let (result, hold) = work.await.unwrap();
    assert!(matches!(
        result,
        Err(Error::HoldLost {
            loss: Loss::Unanswered,
            ..
        })
    ));
    assert!(other.fence() > fence);
    network.heal();
    assert!(matches!(hold.release().await, Err(Error::HoldLost { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn hold_and_waiters_outlive_closed_connections() {
    let server = Server::start();
    for waits in super::queue::WAITS {
        let network = Proxy::to(&server);
        let client = Client::open(network.url()).unwrap().with_waits(waits);
        let lock = client.lock("jobs").lease(3 * SECOND);
        let hold = lock.acquire().await.unwrap();
        let waiting = {
            let lock = lock.clone();
            tokio::spawn(async move { lock.acquire().await })
        };
        server.wait_for_waiters(1);
        for _ in 0..3 {
            network.close_all();
            assert!(timeout(SECOND, hold.lost()).await.is_err());
        }
        server.wait_for_waiters(1);
        network.close_all();
        hold.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hold_and_waiter_outlive_a_restart() {
    let mut server = safe_server();
    for waits in super::queue::WAITS {
        let client = Client::open(server.url()).unwrap().with_waits(waits);
        let lock = client.lock("jobs").lease(10 * SECOND);
        let hold = lock.acquire().await.unwrap();
        let waiting = {
            let lock = lock.clone();
            tokio::spawn(async move { lock.acquire().await })
        };
        server.wait_for_waiters(1);
        server.kill9();
        tokio::time::sleep(Duration::from_millis(300)).await;
        server.start_again();
        assert!(timeout(6 * SECOND, hold.lost()).await.is_err());
        server.wait_for_waiters(1);
        let fence = hold.fence();
        hold.release().await.unwrap();
        let next = waiting.await.unwrap().unwrap();
        assert!(next.fence() > fence);
        next.release().await.unwrap();
    }
}

#[tokio::test]
async fn server_that_is_away_is_given_up_when_patience_ends() {
    let mut server = Server::start();
    let client = Client::open(server.url())
        .unwrap()
        .with_retry_for(Duration::from_millis(300));
    client.ping().await.unwrap();
    server.kill9();
    let error = client.lock("jobs").acquire().await.unwrap_err();
    assert!(error.is_unreachable(), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn drop_releases_although_the_connection_was_closed() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let hold = client
        .lock("jobs")
        .lease(3600 * SECOND)
        .acquire()
        .await
        .unwrap();
    server.ask("CLIENT KILL TYPE normal SKIPME yes");
    drop(hold);
    let other = Client::open(server.url()).unwrap();
    other.lock("jobs").acquire_for(LONG).await.unwrap();
}
