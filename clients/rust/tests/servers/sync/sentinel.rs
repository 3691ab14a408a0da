//! A failover that Sentinel carries out.

use std::io::Read;
use std::net::TcpListener;
use std::thread;

use dsync_client::{Client, Server};

use crate::support::{LONG, SECOND, Sentinel};

fn hold_and_waiter_outlive(failover: impl FnOnce(&mut Sentinel)) {
    let mut sentinel = Sentinel::start();
    let client = Client::new(Server::from(sentinel.client()));
    let lock = client.lock("jobs").lease(30 * SECOND);
    let hold = lock.acquire().unwrap();
    let waiting = {
        let lock = lock.clone();
        thread::spawn(move || lock.acquire())
    };
    sentinel.first.wait_for_waiters(1);
    // The grant and the place have reached the replica.
    sentinel.second.wait_for_waiters(1);
    failover(&mut sentinel);
    let fence = hold.fence();
    // The hold lives on the new primary with its old fence, and its renewals arrive there.
    let left = sentinel
        .second
        .ask(format!("DLOCK.CHECK jobs {}", hold.token()))
        .as_int();
    assert!(left > 0);
    assert_eq!(hold.wait_lost(12 * SECOND), None);
    hold.release().unwrap();
    let next = waiting.join().unwrap().unwrap();
    assert!(next.fence() > fence);
    next.release().unwrap();
}

#[test]
fn hold_and_waiter_outlive_a_failover_with_both_alive() {
    hold_and_waiter_outlive(|sentinel| sentinel.fail_over());
}

#[test]
fn hold_and_waiter_outlive_the_death_of_the_primary() {
    hold_and_waiter_outlive(|sentinel| {
        sentinel.first.kill9();
        sentinel.wait_for_promotion();
    });
}

/// Each attempt left a thread behind that waited for it, and never came to the next one.
#[test]
fn sentinel_that_takes_connections_and_never_answers_is_given_up() {
    let sentinel = Sentinel::start();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("redis://{}", silent.local_addr().unwrap());
    let client = Client::new(sentinel.primary_behind([address]));
    let hold = client.lock("jobs").acquire_for(LONG).unwrap();
    hold.release().unwrap();
    let (mut asked, _) = silent.accept().unwrap();
    asked.set_read_timeout(Some(LONG)).unwrap();
    asked.read_to_end(&mut Vec::new()).unwrap();
}
