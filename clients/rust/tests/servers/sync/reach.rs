//! Servers that do not answer: how long a caller waits for them, and what it is told.

use std::time::{Duration, Instant};

use dsync_client::{Client, Error, Server as Address};

use crate::support::{
    LONG, Proxy, SECOND, Sentinel, Server, cluster, wait_until_no_client_is_blocked,
};

/// A try lasts two seconds; the rest is for a busy machine.
const SHORT: Duration = Duration::from_secs(8);

fn assert_short_try(client: &Client, key: &str, names: &str) {
    let start = Instant::now();
    let error = client.lock(key).try_acquire().unwrap_err();
    let took = start.elapsed();
    assert!(took < SHORT, "{took:?}");
    assert!(error.is_unreachable(), "{error}");
    let shown = error.to_string();
    assert!(
        shown.starts_with(&format!("{key:?}: ")) && shown.contains(names),
        "{shown}"
    );
}

#[test]
fn try_is_short_whatever_the_server_does() {
    let mut server = Server::start();
    let network = Proxy::to(&server);
    let direct = Client::open(server.url()).unwrap();
    let far = Client::open(network.url()).unwrap();
    for client in [&direct, &far] {
        client.ping().unwrap();
    }
    let port = server.port().to_string();
    network.cut();
    assert_short_try(&far, "jobs", "127.0.0.1:");
    server.stop();
    assert_short_try(&direct, "jobs", &port);
    assert_short_try(&Client::open(server.url()).unwrap(), "jobs", &port);
    let patient = Client::open(server.url()).unwrap();
    let patient = patient.with_response_timeout(LONG).with_retry_for(LONG);
    assert_short_try(&patient, "jobs", &port);
    server.cont();
    server.kill9();
    assert_short_try(&direct, "jobs", &port);
    assert_short_try(&Client::open(server.url()).unwrap(), "jobs", &port);
}

#[test]
fn try_is_short_when_the_primary_that_sentinel_names_has_stopped() {
    let sentinel = Sentinel::start();
    let client = Client::new(sentinel.primary());
    client.ping().unwrap();
    sentinel.first.stop();
    assert_short_try(&client, "jobs", &sentinel.first.port().to_string());
    let fresh = Client::new(sentinel.primary());
    let start = Instant::now();
    // Sentinel may have promoted the other by now.
    let _ = fresh.lock("jobs").try_acquire();
    assert!(start.elapsed() < SHORT);
    sentinel.first.cont();
}

#[test]
fn try_is_short_when_a_node_of_a_cluster_has_stopped() {
    let cluster = cluster();
    let client = Client::new(Address::cluster(cluster.urls()).unwrap());
    drop(client.lock("jobs").acquire().unwrap());
    let owner = &cluster.nodes[cluster.owner_of("jobs")];
    owner.stop();
    let port = owner.port().to_string();
    assert_short_try(&client, "jobs", &port);
    let fresh = Client::new(Address::cluster(cluster.urls()).unwrap());
    assert_short_try(&fresh, "jobs", &port);
    owner.cont();
}

#[test]
fn wait_ends_with_its_time_when_the_server_is_away() {
    let mut server = Server::start();
    let client = Client::open(server.url()).unwrap();
    client.ping().unwrap();
    server.kill9();
    let start = Instant::now();
    let error = client.lock("jobs").acquire_for(3 * SECOND).unwrap_err();
    assert!(error.is_unreachable(), "{error}");
    assert!(start.elapsed() < 3 * SECOND + SHORT && start.elapsed() > SECOND);
    let error = client.group("batch").wait_for(SECOND).unwrap_err();
    assert!(
        error.to_string().starts_with("\"batch\": 127.0.0.1:"),
        "{error}"
    );
}

#[test]
fn wait_that_was_given_up_leaves_no_hold_when_its_request_arrives_late() {
    let server = Server::start();
    let network = Proxy::to(&server);
    let lock = Client::open(server.url()).unwrap().lock("jobs");
    let hold = lock.acquire().unwrap();
    let cancel = dsync_client::Cancel::new();
    let late = Client::open(network.url()).unwrap();
    let late = late.with_response_timeout(LONG).lock("jobs");
    let late = late.lease(3600 * SECOND).cancel(&cancel);
    let waiting = std::thread::spawn(move || late.acquire());
    server.wait_for_waiters(1);
    network.delay("BLOCK");
    wait_until_no_client_is_blocked(&server);
    cancel.cancel();
    server.wait_for_waiters(0);
    hold.release().unwrap();
    // The server refuses a withdrawn request for two seconds. Then it would grant this one.
    std::thread::sleep(Duration::from_millis(2_300));
    network.heal();
    let ended = waiting.join().unwrap();
    assert!(matches!(ended, Err(Error::Cancelled { .. })));
    lock.acquire_for(LONG).unwrap();
}
