//! Certificates that are not trusted, of the server and of a Sentinel.

use std::thread;

use dsync_client::{Client, aio};

use crate::support::{Certificates, LONG, SECOND, Sentinel, eventually};

#[tokio::test]
async fn certificate_that_is_not_trusted_is_final() {
    let (own, other) = (Certificates::make(), Certificates::make());
    let Some((_server, port)) = own.server() else {
        return;
    };
    let trusted = Client::new(own.client("127.0.0.1", port));
    trusted.lock("jobs").acquire().unwrap().release().unwrap();
    // Of another authority, and of another name.
    for address in [
        other.client("127.0.0.1", port),
        own.client("localhost", port),
    ] {
        let tasks = aio::Client::new(address.clone());
        for error in [
            Client::new(address).lock("jobs").acquire().unwrap_err(),
            tasks.lock("jobs").acquire().await.unwrap_err(),
        ] {
            assert!(!error.is_unreachable(), "{error}");
            let shown = error.to_string();
            assert!(shown.contains(&port.to_string()), "{shown}");
            assert!(shown.contains("invalid peer certificate"), "{shown}");
        }
    }
}

#[test]
fn end_of_a_hold_outlives_a_certificate_that_is_not_trusted() {
    let (own, other) = (Certificates::make(), Certificates::make());
    let Some((server, port)) = own.server() else {
        return;
    };
    let client = Client::new(own.client("127.0.0.1", port));
    let hold = client.lock("jobs").lease(30 * SECOND).acquire().unwrap();
    let mut admin = server.connect();
    other.show(&mut admin);
    let released = thread::spawn(move || hold.release());
    let refused = || server.log_text().matches("Error accepting").count();
    eventually("the release is tried again", || refused() > 2);
    own.show(&mut admin);
    released.join().unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinel_whose_certificate_is_not_trusted_is_passed_over() {
    let Some((_server, port)) = Certificates::make().server() else {
        return;
    };
    let sentinel = Sentinel::start();
    let address = || sentinel.primary_behind([format!("rediss://127.0.0.1:{port}")]);
    let lock = Client::new(address()).lock("jobs");
    lock.acquire_for(LONG).unwrap().release().unwrap();
    let lock = aio::Client::new(address()).lock("jobs");
    let hold = lock.acquire_for(LONG).await.unwrap();
    hold.release().await.unwrap();
}
