//! Callers that give up leave nothing in the queue.

use std::thread;
use std::time::{Duration, Instant};

use dsync_client::{Cancel, Client, Error};

use crate::support::{LONG, SECOND, Server, eventually};

#[test]
fn cancel_ends_all_waits_of_its_handle_at_once() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let lock = client.lock("jobs");
    let _hold = lock.acquire().unwrap();
    let cancel = Cancel::new();
    let threads: Vec<_> = (0..3)
        .map(|number| {
            let lock = lock.clone().cancel(&cancel);
            let thread = thread::spawn(move || lock.acquire());
            server.wait_for_waiters(number + 1);
            thread
        })
        .collect();
    let start = Instant::now();
    cancel.cancel();
    for thread in threads {
        assert!(matches!(
            thread.join().unwrap(),
            Err(Error::Cancelled { .. })
        ));
    }
    assert!(start.elapsed() < LONG);
    assert_eq!(server.waiters(), 0);
    // The handle ends later waits too.
    assert!(matches!(
        lock.clone().cancel(&cancel).acquire(),
        Err(Error::Cancelled { .. })
    ));
    assert_eq!(server.waiters(), 0);
}

#[test]
fn cancel_ends_a_wait_for_a_group() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let cancel = Cancel::new();
    let group = client.group("batch").cancel(&cancel);
    let _member = group.add().unwrap();
    let waiting = {
        let group = group.clone();
        thread::spawn(move || group.wait())
    };
    server.wait_for_waiters(1);
    cancel.cancel();
    assert!(matches!(
        waiting.join().unwrap(),
        Err(Error::Cancelled { .. })
    ));
}

#[test]
fn cancel_ends_a_wait_for_a_server_that_is_away() {
    let mut server = Server::start();
    let client = Client::open(server.url())
        .unwrap()
        .with_retry_for(3600 * SECOND);
    let lock = client.lock("jobs");
    let hold = lock.acquire().unwrap();
    let cancel = Cancel::new();
    let waiting = {
        let lock = lock.clone().cancel(&cancel);
        thread::spawn(move || lock.acquire())
    };
    server.wait_for_waiters(1);
    server.kill9();
    cancel.cancel();
    assert!(matches!(
        waiting.join().unwrap(),
        Err(Error::Cancelled { .. })
    ));
    drop(hold);
}

#[test]
fn server_that_is_away_is_given_up_when_patience_ends() {
    let mut server = Server::start();
    let client = Client::open(server.url())
        .unwrap()
        .with_retry_for(Duration::from_millis(300));
    client.ping().unwrap();
    server.kill9();
    let error = client.lock("jobs").acquire().unwrap_err();
    assert!(error.is_unreachable(), "{error:?}");
    assert!(client.ping().unwrap_err().is_unreachable());
}

#[test]
fn panic_of_the_progress_callback_leaves_the_queue() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let lock = client.lock("jobs");
    let _hold = lock.acquire().unwrap();
    let lock = lock.on_progress(|_| panic!("a bug of the caller"));
    assert!(thread::spawn(move || lock.acquire()).join().is_err());
    eventually("nobody waits", || server.waiters() == 0);
}

#[test]
fn refused_request_does_not_release_the_hold_of_its_token() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let lock = client.lock("jobs").token("mine");
    let hold = lock.acquire().unwrap();
    let error = lock.clone().shared().acquire().unwrap_err();
    assert!(matches!(error, Error::Redis(error) if error.code() == Some("MISMATCH")));
    let left = server.ask("DLOCK.CHECK jobs mine").as_int();
    assert!(left > 0);
    hold.release().unwrap();
}

#[test]
fn request_that_was_cancelled_before_does_not_release_the_hold_of_its_token() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let lock = client.lock("jobs").token("mine");
    let hold = lock.acquire().unwrap();
    let cancel = Cancel::new();
    cancel.cancel();
    let error = lock.clone().cancel(&cancel).acquire().unwrap_err();
    assert!(matches!(error, Error::Cancelled { .. }));
    hold.release().unwrap();
}
