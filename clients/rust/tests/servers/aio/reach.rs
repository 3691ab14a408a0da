//! Servers that do not answer: how long a caller waits for them, and what it is told.

use std::time::{Duration, Instant};

use dsync_client::Server as Address;
use dsync_client::aio::Client;
use tokio::time::{sleep, timeout};

use super::queue::WAITS;
use crate::support::{
    LONG, Proxy, SECOND, Sentinel, Server, cluster, wait_until_no_client_is_blocked,
};

/// A try lasts two seconds; the rest is for a busy machine.
const SHORT: Duration = Duration::from_secs(8);

async fn assert_short_try(client: &Client, key: &str, names: &str) {
    let start = Instant::now();
    let error = client.lock(key).try_acquire().await.unwrap_err();
    let took = start.elapsed();
    assert!(took < SHORT, "{took:?}");
    assert!(error.is_unreachable(), "{error}");
    let shown = error.to_string();
    assert!(
        shown.starts_with(&format!("{key:?}: ")) && shown.contains(names),
        "{shown}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn try_is_short_whatever_the_server_does() {
    for waits in WAITS {
        let mut server = Server::start();
        let network = Proxy::to(&server);
        let open = |url: String| Client::open(url).unwrap().with_waits(waits);
        let (direct, far) = (open(server.url()), open(network.url()));
        for client in [&direct, &far] {
            client.ping().await.unwrap();
        }
        let port = server.port().to_string();
        network.cut();
        assert_short_try(&far, "jobs", "127.0.0.1:").await;
        server.stop();
        assert_short_try(&direct, "jobs", &port).await;
        assert_short_try(&open(server.url()), "jobs", &port).await;
        let patient = open(server.url()).with_response_timeout(LONG);
        assert_short_try(&patient.with_retry_for(LONG), "jobs", &port).await;
        server.cont();
        server.kill9();
        assert_short_try(&direct, "jobs", &port).await;
        assert_short_try(&open(server.url()), "jobs", &port).await;
    }
}

/// A try whose reply was overdue waited for the other task, which had the lock of the connection that both share.
#[tokio::test(flavor = "multi_thread")]
async fn try_is_short_while_another_task_connects() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    client.ping().await.unwrap();
    server.stop();
    let trying = {
        let client = client.clone();
        tokio::spawn(async move {
            assert_short_try(&client, "jobs", &server.port().to_string()).await;
            server
        })
    };
    sleep(SECOND / 2).await;
    let hasty = client.clone().with_response_timeout(SECOND / 10);
    assert!(hasty.ping().await.unwrap_err().is_unreachable());
    let patient = client.with_response_timeout(LONG);
    let connecting = tokio::spawn(async move { patient.ping().await });
    let server = trying.await.unwrap();
    connecting.abort();
    server.cont();
}

#[tokio::test(flavor = "multi_thread")]
async fn try_is_short_when_the_primary_that_sentinel_names_has_stopped() {
    let sentinel = Sentinel::start();
    let client = Client::new(sentinel.primary());
    client.ping().await.unwrap();
    sentinel.first.stop();
    let port = sentinel.first.port().to_string();
    assert_short_try(&client, "jobs", &port).await;
    let fresh = Client::new(sentinel.primary());
    let start = Instant::now();
    // Sentinel may have promoted the other by now.
    let _ = fresh.lock("jobs").try_acquire().await;
    assert!(start.elapsed() < SHORT);
    sentinel.first.cont();
}

#[tokio::test(flavor = "multi_thread")]
async fn try_is_short_when_a_node_of_a_cluster_has_stopped() {
    let cluster = cluster();
    let client = Client::new(Address::cluster(cluster.urls()).unwrap());
    let lock = client.lock("jobs");
    lock.acquire().await.unwrap().release().await.unwrap();
    let owner = &cluster.nodes[cluster.owner_of("jobs")];
    owner.stop();
    let port = owner.port().to_string();
    assert_short_try(&client, "jobs", &port).await;
    let fresh = Client::new(Address::cluster(cluster.urls()).unwrap());
    assert_short_try(&fresh, "jobs", &port).await;
    owner.cont();
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_ends_with_its_time_when_the_server_is_away() {
    for waits in WAITS {
        let mut server = Server::start();
        let client = Client::open(server.url()).unwrap().with_waits(waits);
        client.ping().await.unwrap();
        server.kill9();
        let start = Instant::now();
        let error = client
            .lock("jobs")
            .acquire_for(3 * SECOND)
            .await
            .unwrap_err();
        assert!(error.is_unreachable(), "{error}");
        assert!(start.elapsed() < 3 * SECOND + SHORT && start.elapsed() > SECOND);
        let error = client.group("batch").wait_for(SECOND).await.unwrap_err();
        assert!(
            error.to_string().starts_with("\"batch\": 127.0.0.1:"),
            "{error}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_that_was_given_up_leaves_no_hold_when_its_request_arrives_late() {
    let server = Server::start();
    let network = Proxy::to(&server);
    let lock = Client::open(server.url()).unwrap().lock("jobs");
    let hold = lock.acquire().await.unwrap();
    let late = Client::open(network.url()).unwrap();
    let late = late.with_response_timeout(LONG).lock("jobs");
    let late = late.lease(3600 * SECOND);
    let waiting = tokio::spawn(async move { late.acquire().await });
    server.wait_for_waiters(1);
    network.delay("BLOCK");
    wait_until_no_client_is_blocked(&server);
    waiting.abort();
    server.wait_for_waiters(0);
    hold.release().await.unwrap();
    // The server refuses a withdrawn request for two seconds. Then it would grant this one.
    sleep(Duration::from_millis(2_300)).await;
    network.heal();
    sleep(SECOND).await;
    timeout(LONG, lock.acquire()).await.unwrap().unwrap();
}
