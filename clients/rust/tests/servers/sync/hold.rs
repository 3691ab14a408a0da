//! Holds: renewal, loss that the server tells, and how they end.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use dsync_client::{Begun, Client, Error, Loss};

use crate::support::{LONG, SECOND, Server};

#[test]
fn hold_is_renewed_beyond_its_lease() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let hold = client.lock("jobs").lease(2 * SECOND).acquire().unwrap();
    assert_eq!(hold.wait_lost(5 * SECOND), None);
    assert!(!hold.left().is_zero());
    let left = server
        .ask(format!("DLOCK.CHECK jobs {}", hold.token()))
        .as_int();
    assert!(left > 0);
    assert_eq!(server.info("dsync", "dsync_lock_lapsed"), "0");
    hold.release().unwrap();
}

#[test]
fn revoked_hold_is_told_as_lost() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let hold = client.lock("jobs").lease(3 * SECOND).acquire().unwrap();
    let (tell, told) = mpsc::channel();
    hold.on_lost(move |loss| tell.send(loss).unwrap()).unwrap();
    server.ask(format!("DLOCK.REVOKE jobs {}", hold.fence()));
    assert_eq!(told.recv_timeout(LONG), Ok(Loss::Ended));
    assert_eq!(hold.loss(), Some(Loss::Ended));
    assert!(hold.left().is_zero());
    assert!(matches!(
        hold.ensure_held(),
        Err(Error::HoldLost {
            loss: Loss::Ended,
            ..
        })
    ));
    assert!(matches!(hold.release(), Err(Error::HoldLost { .. })));
}

#[test]
fn hold_whose_key_is_overwritten_is_told_as_lost() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let hold = client.lock("jobs").lease(3 * SECOND).acquire().unwrap();
    server.ask("SET jobs text");
    assert_eq!(hold.wait_lost(LONG), Some(Loss::Ended));
}

#[test]
fn release_of_a_hold_that_has_ended_is_an_error() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let hold = client.lock("jobs").acquire().unwrap();
    server.ask("DEL jobs");
    assert!(matches!(
        hold.release(),
        Err(Error::HoldLost {
            loss: Loss::Ended,
            ..
        })
    ));
}

#[test]
fn released_hold_is_not_told_as_lost() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let hold = client.lock("jobs").lease(SECOND).acquire().unwrap();
    let (tell, told) = mpsc::channel::<Loss>();
    hold.on_lost(move |loss| tell.send(loss).unwrap()).unwrap();
    hold.release().unwrap();
    // The watching thread ends, and drops its end of the channel.
    let ended = told.recv_timeout(LONG);
    assert_eq!(ended, Err(mpsc::RecvTimeoutError::Disconnected));
}

#[test]
fn panic_in_the_work_releases_the_lock_and_fails_the_run() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let lock = client.lock("jobs").lease(3600 * SECOND);
    let once = client.once("invoice").lease(3600 * SECOND).max_attempts(1);
    let work = {
        let (lock, once) = (lock.clone(), once.clone());
        move || {
            let _hold = lock.acquire().unwrap();
            let Begun::Run(_run) = once.begin().unwrap() else {
                return;
            };
            panic!("a bug of the work");
        }
    };
    assert!(thread::spawn(work).join().is_err());
    lock.try_acquire().unwrap();
    let error = once.try_begin().unwrap_err();
    assert!(matches!(error, Error::WorkFailed { reason, .. } if reason == "the worker panicked"));
}

#[test]
fn margin_tells_the_loss_earlier() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let hold = client
        .lock("jobs")
        .lease(60 * SECOND)
        .margin(20 * SECOND)
        .acquire()
        .unwrap();
    assert!(hold.left() <= 40 * SECOND && hold.left() > 20 * SECOND);
    let hold = client.lock("other").lease(60 * SECOND).acquire().unwrap();
    assert!(hold.left() > 50 * SECOND && hold.left() <= Duration::from_secs(58));
}
