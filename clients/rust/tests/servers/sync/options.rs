//! Who is next and for how long: lanes, rests and indexes.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use dsync_client::{Client, Error, Loss};

use crate::support::{LONG, SECOND, Server};

#[test]
fn index_is_the_lowest_that_is_free() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let slots = client.semaphore("slots").limit(2).index().lease(6 * SECOND);
    let first = slots.acquire().unwrap();
    let second = slots.acquire().unwrap();
    assert_eq!((first.index(), second.index()), (Some(0), Some(1)));
    let waiting = thread::spawn(move || slots.acquire());
    server.wait_for_waiters(1);
    first.release().unwrap();
    let next = waiting.join().unwrap().unwrap();
    assert_eq!(next.index(), Some(0));

    assert_eq!(
        server.ask(format!("DSEM.REVOKE slots {}", second.fence())),
        1
    );
    assert_eq!(second.wait_lost(LONG), Some(Loss::Ended));
    assert_eq!(second.index(), Some(1));
    let plain = client.semaphore("slots").limit(2).acquire().unwrap();
    assert_eq!(plain.index(), None);
}

#[test]
fn token_that_is_called_like_an_answer_gets_its_index() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let slots = client.semaphore("slots").limit(1).index();
    let hold = slots.clone().token("WAITING").acquire().unwrap();
    assert_eq!(hold.index(), Some(0));
    let waiting = thread::spawn(move || slots.token("DONE").acquire());
    server.wait_for_waiters(1);
    hold.release().unwrap();
    assert_eq!(waiting.join().unwrap().unwrap().index(), Some(0));
}

#[test]
fn hold_that_ends_early_rests() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let (tick, pace) = (client.lock("tick"), client.semaphore("pace").limit(1));
    let long = 60 * SECOND;
    tick.clone()
        .min_hold(long)
        .acquire()
        .unwrap()
        .release()
        .unwrap();
    pace.clone()
        .min_hold(long)
        .acquire()
        .unwrap()
        .release()
        .unwrap();
    for refused in [
        tick.try_acquire().unwrap_err(),
        pace.try_acquire().unwrap_err(),
    ] {
        let Error::NotAcquired { holders, .. } = &refused else {
            panic!("{refused:?}");
        };
        let resting = holders[0].resting.unwrap();
        assert!(resting > Duration::ZERO && resting <= long, "{resting:?}");
        let shown = refused.to_string();
        assert!(shown.contains(", ended, rests for another "), "{shown}");
    }
    assert_eq!(server.ask("DEL tick pace"), 2);

    let begun = Instant::now();
    for _ in 0..3 {
        let hold = pace.clone().min_hold(SECOND / 2).acquire().unwrap();
        hold.release().unwrap();
    }
    assert!(begun.elapsed() >= SECOND);
}

#[test]
fn lane_with_fewer_permits_is_next() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let jobs = client.semaphore("jobs").limit(1);
    let first = jobs.clone().lane("flood").acquire().unwrap();
    let served = Arc::new(Mutex::new(Vec::new()));
    let threads: Vec<_> = (0..)
        .zip(["flood", "flood", "flood", "other"])
        .map(|(number, lane)| {
            let (lane, served) = (jobs.clone().lane(lane), Arc::clone(&served));
            let waiting = thread::spawn(move || {
                let hold = lane.acquire().unwrap();
                served.lock().unwrap().push(number);
                hold.release().unwrap();
            });
            server.wait_for_waiters(number + 1);
            waiting
        })
        .collect();
    first.release().unwrap();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(*served.lock().unwrap(), [3, 0, 1, 2]);
}

#[test]
fn lane_has_no_more_permits_than_its_limit() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let jobs = client.semaphore("jobs").limit(5);
    let lane = |name: &str, limit| jobs.clone().lane(name).lane_limit(limit).try_acquire();
    let first = lane("a", 2).unwrap();
    let _others = (lane("a", 2).unwrap(), lane("b", 1).unwrap());
    assert!(matches!(lane("a", 2), Err(Error::NotAcquired { .. })));
    assert!(matches!(lane("b", 1), Err(Error::NotAcquired { .. })));
    first.release().unwrap();
    lane("a", 2).unwrap();
}
