//! Who is next and for how long: lanes, rests and indexes.

use std::thread;
use std::time::{Duration, Instant};

use dsync_client::{Client, Error};

use crate::support::{SECOND, Server};

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
