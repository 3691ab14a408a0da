//! Servers that stop, networks that are cut, connections that close, and restarts.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use dsync_client::{Client, Error, Loss};

use crate::support::{LONG, Proxy, SECOND, Server, eventually, safe_server};

#[test]
fn hold_outlives_a_stop_shorter_than_its_lease() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let hold = client.lock("jobs").lease(12 * SECOND).acquire().unwrap();
    server.stop();
    // Renewals are due at 4 s, and go unanswered.
    assert_eq!(hold.wait_lost(6 * SECOND), None);
    server.cont();
    assert_eq!(hold.wait_lost(7 * SECOND), None);
    hold.release().unwrap();
}

#[test]
fn next_waiter_is_served_behind_a_cut_network_after_the_loss_is_told() {
    let server = Server::start();
    let network = Proxy::to(&server);
    let cut_off = Client::open(network.url()).unwrap();
    let hold = cut_off
        .lock("jobs")
        .lease(4 * SECOND)
        .margin(SECOND)
        .acquire()
        .unwrap();
    let (tell, told) = mpsc::channel();
    hold.on_lost(move |_| tell.send(()).unwrap()).unwrap();
    network.cut();
    let other = Client::open(server.url())
        .unwrap()
        .lock("jobs")
        .acquire_for(LONG)
        .unwrap();
    // The holder knew before the server gave the lock away.
    assert_eq!(told.try_recv(), Ok(()));
    assert!(other.fence() > hold.fence());
    network.heal();
    assert!(matches!(
        hold.release(),
        Err(Error::HoldLost {
            loss: Loss::Unanswered,
            ..
        })
    ));
    other.release().unwrap();
}

#[test]
fn hold_and_waiter_outlive_closed_connections() {
    let server = Server::start();
    let network = Proxy::to(&server);
    let client = Client::open(network.url()).unwrap();
    let lock = client.lock("jobs").lease(3 * SECOND);
    let hold = lock.acquire().unwrap();
    let waiting = {
        let lock = lock.clone();
        thread::spawn(move || lock.acquire())
    };
    server.wait_for_waiters(1);
    for _ in 0..3 {
        network.close_all();
        assert_eq!(hold.wait_lost(SECOND), None);
    }
    server.wait_for_waiters(1);
    network.close_all();
    hold.release().unwrap();
    waiting.join().unwrap().unwrap().release().unwrap();
}

#[test]
fn hold_and_waiter_outlive_a_restart() {
    let mut server = safe_server();
    let client = Client::open(server.url()).unwrap();
    let lock = client.lock("jobs").lease(10 * SECOND);
    let hold = lock.acquire().unwrap();
    let waiting = {
        let lock = lock.clone();
        thread::spawn(move || lock.acquire())
    };
    server.wait_for_waiters(1);
    server.kill9();
    thread::sleep(Duration::from_millis(300));
    server.start_again();
    assert_eq!(hold.wait_lost(11 * SECOND), None);
    server.wait_for_waiters(1);
    let fence = hold.fence();
    hold.release().unwrap();
    assert!(waiting.join().unwrap().unwrap().fence() > fence);
}

#[test]
fn release_is_repeated_until_the_server_is_back() {
    let mut server = safe_server();
    let client = Client::open(server.url()).unwrap();
    let hold = client.lock("jobs").lease(30 * SECOND).acquire().unwrap();
    server.kill9();
    let releasing = thread::spawn(move || hold.release());
    thread::sleep(Duration::from_millis(300));
    server.start_again();
    releasing.join().unwrap().unwrap();
    client.lock("jobs").try_acquire().unwrap();
}

#[test]
fn request_is_repeated_until_a_replica_is_promoted() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    server.ask("REPLICAOF 127.0.0.1 1");
    let lock = client.lock("jobs");
    let asking = thread::spawn(move || lock.acquire_for(LONG));
    eventually("the replica has refused the request", || {
        server
            .find_info("errorstats", "errorstat_READONLY")
            .is_some()
    });
    server.ask("REPLICAOF NO ONE");
    asking.join().unwrap().unwrap().release().unwrap();
}

#[test]
fn drop_releases_although_all_idle_connections_were_closed() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let hold = client.lock("jobs").lease(3600 * SECOND).acquire().unwrap();
    server.ask("CLIENT KILL TYPE normal SKIPME yes");
    drop(hold);
    let other = Client::open(server.url()).unwrap();
    other.lock("jobs").try_acquire().unwrap();
}
