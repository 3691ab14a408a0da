//! How holds end: what the server refuses, what it cannot take now, and what is repeated.

use std::thread;
use std::time::Duration;

use dsync_client::{Begun, Client, Error, Loss, Run};

use crate::support::{LONG, Proxy, SECOND, Server, eventually, releases_refused};

fn begun(begun: Begun) -> Run {
    match begun {
        Begun::Run(run) => run,
        Begun::Done { .. } => panic!("the work is done already"),
    }
}

#[test]
fn result_that_the_server_refuses_is_a_failed_attempt() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    // The server's bound, and the one that no server exceeds.
    for (key, length) in [("big", 100_000), ("huge", (16 << 20) + 1)] {
        let once = client.once(key).max_attempts(3);
        for attempt in 1..=3 {
            let run = begun(once.begin_for(LONG).unwrap());
            assert_eq!(run.attempt(), attempt);
            let error = run.done(Some(&vec![b'x'; length])).unwrap_err();
            assert!(!error.is_unreachable(), "{error}");
            assert!(error.to_string().contains("bytes"), "{error}");
        }
        let error = once.begin_for(LONG).unwrap_err();
        assert!(
            matches!(&error, Error::WorkFailed { attempts: 3, reason, .. } if reason.contains("was refused")),
            "{error}"
        );
    }
}

#[test]
fn failure_that_the_server_refuses_counts_all_the_same() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    server.ask("CONFIG SET dsync.max-lease-ms 60000");
    let once = client
        .once("work")
        .max_attempts(1)
        .retry_delay(3600 * SECOND);
    begun(once.begin().unwrap()).fail("no disk space").unwrap();
    let error = once.begin_for(LONG).unwrap_err();
    assert!(
        matches!(error, Error::WorkFailed { attempts: 1, .. }),
        "{error}"
    );
}

#[test]
fn release_of_a_hold_whose_key_is_overwritten_says_that_it_was_lost() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let hold = client.lock("jobs").acquire().unwrap();
    server.ask("SET jobs text");
    let error = hold.release().unwrap_err();
    let Error::HoldLost { loss, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(loss, Loss::Ended);
}

#[test]
fn release_is_repeated_for_longer_than_the_lease() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let hold = client.lock("jobs").lease(3 * SECOND).acquire().unwrap();
    server.stop();
    let releasing = thread::spawn(move || hold.release());
    // The lease is over by the client's clock. The server's own stands still, as a promoted one gives it anew.
    thread::sleep(Duration::from_millis(6_500));
    server.cont();
    releasing.join().unwrap().unwrap();
    client.lock("jobs").acquire_for(LONG).unwrap();
}

#[test]
fn dropped_hold_is_released_when_the_server_is_back() {
    let server = Server::start();
    let network = Proxy::to(&server);
    let client = Client::open(network.url()).unwrap();
    let hold = client.lock("jobs").lease(3600 * SECOND).acquire().unwrap();
    network.cut();
    drop(hold);
    // What is on its way is lost.
    network.close_all();
    network.heal();
    let other = Client::open(server.url()).unwrap();
    other.lock("jobs").acquire_for(LONG).unwrap();
}

#[test]
fn lost_hold_that_is_dropped_is_released_once() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let hold = client.lock("jobs").lease(SECOND).acquire().unwrap();
    // It answers READONLY from now on, which passes.
    server.ask("REPLICAOF 127.0.0.1 1");
    assert_eq!(hold.wait_lost(LONG), Some(Loss::Unanswered));
    drop(hold);
    eventually("a release", || releases_refused(&server) > 0);
    thread::sleep(SECOND);
    assert_eq!(releases_refused(&server), 1);
}
