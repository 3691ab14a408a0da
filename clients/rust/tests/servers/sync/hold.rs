//! Holds: renewal, loss that the server tells, and how they end.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use dsync_client::{Begun, Claim, Client, Error, Hold, Loss};

use crate::support::{LONG, SECOND, Server};

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

#[test]
fn hold_is_renewed_at_once_and_for_another_lease() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let hold = client.lock("jobs").lease(60 * SECOND).acquire().unwrap();
    let left = || {
        let check = format!("DLOCK.CHECK jobs {}", hold.token());
        server.ask(check).as_int()
    };
    hold.renew_for(600 * SECOND).unwrap();
    assert!(left() > 300_000 && hold.left() > 300 * SECOND);
    hold.renew_for(2 * SECOND).unwrap();
    assert!(left() <= 2_000);
    // The lease of two seconds is the one that is renewed from then on.
    assert_eq!(hold.wait_lost(4 * SECOND), None);
    let refused = hold.renew_for(Duration::ZERO);
    assert!(matches!(refused, Err(Error::InvalidOption { .. })));
    server.ask("DEL jobs");
    assert!(matches!(hold.renew(), Err(Error::HoldLost { .. })));
}

#[test]
fn all_locks_and_semaphores_are_held_or_none() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let claims = || {
        let [last, middle] = ["c", "b"].map(|key| Claim::from(client.lock(key)));
        [last, client.semaphore("a").limit(1).into(), middle]
    };
    let holds = client.all_of(claims()).unwrap();
    let keys: Vec<&str> = holds.iter().map(Hold::key).collect();
    assert_eq!(keys, ["c", "a", "b"]);
    // They were asked for in the order of their names.
    assert!(holds[1].fence() < holds[2].fence() && holds[2].fence() < holds[0].fence());
    drop(holds);
    let other = client.lock("b").acquire().unwrap();
    let refused = client.all_of_for(claims(), SECOND);
    assert!(matches!(refused, Err(Error::NotAcquired { key, .. }) if key == "b"));
    assert_eq!(client.semaphore("a").available().unwrap(), None);
    assert_eq!(client.lock("b").holders().unwrap()[0].fence, other.fence());
    let twice = client.all_of(claims().into_iter().chain(claims()));
    let error = twice.unwrap_err().to_string();
    assert_eq!(error, r#"all_of is of different keys, not "a" twice"#);
}

#[test]
fn free_permits_are_told_without_taking_them() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let api = client.semaphore("api");
    assert_eq!(api.available().unwrap(), None);
    assert_eq!(api.clone().limit(3).available().unwrap(), Some(3));
    let hold = api.clone().limit(3).permits(2).acquire().unwrap();
    assert_eq!(api.available().unwrap(), Some(1));
    assert!(!api.locked().unwrap());
    assert!(api.clone().permits(2).locked().unwrap());
    assert_eq!(api.holders().unwrap()[0].fence, hold.fence());
}
