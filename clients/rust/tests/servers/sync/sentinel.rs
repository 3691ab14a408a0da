//! A failover that Sentinel carries out.

use std::io::Read;
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use dsync_client::{Client, Error};

use crate::support::{
    LONG, SECOND, Sentinel, Server, primary_of, refusing_sentinel, wait_for_connections,
};

fn hold_and_waiter_outlive(failover: impl FnOnce(&mut Sentinel)) {
    let mut sentinel = Sentinel::start();
    let client = Client::new(sentinel.primary());
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

fn refusing<const N: usize>() -> [Server; N] {
    std::array::from_fn(|_| refusing_sentinel())
}

fn says_that_a_sentinel_refuses(error: &Error, sentinel: &Server) {
    let said = format!("the Sentinel at 127.0.0.1:{}: ", sentinel.port());
    let shown = error.to_string();
    assert!(shown.contains(&said) && shown.contains("NOAUTH"), "{shown}");
}

#[test]
fn no_sentinel_is_an_error() {
    assert!(dsync_client::Server::sentinel([""; 0], "locks", "redis://primary").is_err());
}

#[test]
fn sentinel_that_refuses_is_passed_over() {
    let (sentinel, [other]) = (Sentinel::start(), refusing());
    let client = Client::new(sentinel.primary_behind([other.url()]));
    let hold = client.lock("jobs").acquire_for(LONG).unwrap();
    hold.release().unwrap();
}

#[test]
fn refusal_of_all_sentinels_is_final() {
    let sentinels: [Server; 2] = refusing();
    let client = Client::new(primary_of(sentinels.each_ref().map(Server::url)));
    let error = client.lock("jobs").acquire().unwrap_err();
    says_that_a_sentinel_refuses(&error, &sentinels[0]);
    assert!(matches!(&error, Error::Redis(it) if it.code() == Some("NOAUTH")));
    assert!(!error.is_unreachable());
}

#[test]
fn refusal_passes_while_other_sentinels_are_not_reached() {
    let [sentinel] = refusing();
    let client = Client::new(primary_of([
        sentinel.url(),
        "redis://127.0.0.1:1".to_owned(),
    ]));
    let client = client.with_retry_for(Duration::from_millis(300));
    let error = client.lock("jobs").acquire().unwrap_err();
    says_that_a_sentinel_refuses(&error, &sentinel);
    assert!(error.is_unreachable());
}

#[test]
fn end_of_a_hold_outlives_the_refusals_of_all_sentinels() {
    let sentinel = Sentinel::start();
    let client = Client::new(sentinel.primary());
    let hold = client.lock("jobs").acquire_for(LONG).unwrap();
    let mut admin = sentinel.connect();
    admin.ask("ACL SETUSER default resetpass >secret");
    sentinel.first.ask("CLIENT KILL TYPE normal");
    let released = thread::spawn(move || hold.release());
    wait_for_connections(&mut admin, 2);
    admin.ask("ACL SETUSER default nopass");
    released.join().unwrap().unwrap();
}
