//! How requests wait.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use dsync_client::{Client, Error, Progress};

use crate::support::{LONG, SECOND, Server, eventually};

#[test]
fn fifty_threads_are_served_in_their_order() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let lock = client.lock("jobs").lease(60 * SECOND);
    let first = lock.acquire().unwrap();
    let served = Arc::new(Mutex::new(Vec::new()));
    let threads: Vec<_> = (0..50)
        .map(|number| {
            let (lock, served) = (lock.clone(), Arc::clone(&served));
            let waiting = thread::spawn(move || {
                let hold = lock.acquire().unwrap();
                served.lock().unwrap().push((number, hold.fence()));
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
    let served = served.lock().unwrap();
    assert!(served.is_sorted_by_key(|(number, _)| *number), "{served:?}");
    assert!(served.is_sorted_by_key(|(_, fence)| *fence), "{served:?}");
}

#[test]
fn progress_tells_the_place_and_the_holders() {
    let server = Server::start();
    for protocol in ["", "?protocol=resp3"] {
        let client = Client::open(format!("{}{protocol}", server.url())).unwrap();
        let lock = client.lock("jobs");
        let hold = lock.clone().owner("web-1").acquire().unwrap();
        let ahead = {
            let lock = lock.clone();
            thread::spawn(move || lock.acquire().unwrap().release())
        };
        server.wait_for_waiters(1);
        let told: Arc<Mutex<Vec<Progress>>> = Arc::default();
        let waiting = {
            let told = Arc::clone(&told);
            let lock =
                lock.on_progress(move |progress| told.lock().unwrap().push(progress.clone()));
            thread::spawn(move || lock.acquire().unwrap().release())
        };
        // It is told again and again, not only at the beginning.
        eventually("progress is told twice", || told.lock().unwrap().len() >= 2);
        let fence = hold.fence();
        hold.release().unwrap();
        ahead.join().unwrap().unwrap();
        waiting.join().unwrap().unwrap();
        let told = told.lock().unwrap();
        assert_eq!(told[0].place, 2);
        assert_eq!(told[0].key.state, "exclusive");
        assert_eq!((told[0].key.holder_count, told[0].key.waiter_count), (1, 2));
        assert_eq!(told[0].key.holders[0].fence, fence);
        assert_eq!(told[0].key.holders[0].owner.as_deref(), Some("web-1"));
        assert!(told[0].key.holders[0].lease_left > 20 * SECOND);
        assert!(told[1].waited > told[0].waited);
    }
}

#[test]
fn grant_after_a_wait_longer_than_the_lease_is_not_lost() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let hold = client.lock("jobs").lease(60 * SECOND).acquire().unwrap();
    let waiting = {
        // Shorter than one BLOCK: by the time of the grant, a lease counted from its request would be over.
        let lock = client.lock("jobs").lease(SECOND);
        thread::spawn(move || lock.acquire().unwrap())
    };
    server.wait_for_waiters(1);
    assert_eq!(hold.wait_lost(3 * SECOND), None);
    hold.release().unwrap();
    let granted = waiting.join().unwrap();
    granted.ensure_held().unwrap();
    granted.release().unwrap();
}

#[test]
fn wait_ends_by_a_grant_and_not_at_the_end_of_a_block() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let lock = client.lock("jobs");
    let hold = lock.acquire().unwrap();
    let waiting = {
        let lock = lock.clone();
        thread::spawn(move || lock.acquire_for(LONG).map(|hold| hold.fence()))
    };
    server.wait_for_waiters(1);
    // The connection of the waiting thread is blocked in the server, not asleep.
    eventually("a client is blocked", || {
        server.info("clients", "blocked_clients") == "1"
    });
    hold.release().unwrap();
    assert!(waiting.join().unwrap().is_ok());
}

#[test]
fn wait_goes_on_after_an_operator_has_unblocked_its_client() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let lock = client.lock("jobs").lease(60 * SECOND);
    let hold = lock.acquire().unwrap();
    let waiting = {
        let lock = lock.clone();
        thread::spawn(move || lock.acquire_for(LONG))
    };
    eventually("the client is unblocked", || {
        let clients = server.ask("CLIENT LIST");
        let blocked = clients
            .as_str()
            .lines()
            .find(|line| line.contains(" flags=b "));
        let id = blocked.and_then(|line| line.strip_prefix("id=")?.split(' ').next());
        id.is_some_and(|id| server.ask(format!("CLIENT UNBLOCK {id} ERROR")) == 1)
    });
    eventually("a client is blocked again", || {
        server.info("clients", "blocked_clients") == "1"
    });
    hold.release().unwrap();
    waiting.join().unwrap().unwrap().release().unwrap();
}

#[test]
fn wait_of_no_time_is_a_try_and_takes_no_place() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let hold = client.lock("jobs").acquire().unwrap();
    let lock = client.lock("jobs").on_progress(|_| panic!("it waits"));
    let error = lock.acquire_for(Duration::ZERO).unwrap_err();
    assert!(matches!(error, Error::NotAcquired { .. }), "{error}");
    hold.release().unwrap();
}
