//! Who is next and for how long: lanes, rests and indexes.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use dsync_client::aio::Client;
use dsync_client::{Error, Loss};
use tokio::time::timeout;

use super::queue::WAITS;
use crate::support::{LONG, SECOND, Server};

#[tokio::test(flavor = "multi_thread")]
async fn index_is_the_lowest_that_is_free() {
    let server = Server::start();
    for waits in WAITS {
        let client = Client::open(server.url()).unwrap().with_waits(waits);
        let key = format!("slots:{waits:?}");
        let slots = client.semaphore(&key).limit(2).index().lease(6 * SECOND);
        let first = slots.acquire().await.unwrap();
        let second = slots.acquire().await.unwrap();
        assert_eq!((first.index(), second.index()), (Some(0), Some(1)));
        let waiting = tokio::spawn(async move { slots.acquire().await });
        server.wait_for_waiters(1);
        first.release().await.unwrap();
        let next = waiting.await.unwrap().unwrap();
        assert_eq!(next.index(), Some(0));

        let revoke = format!("DSEM.REVOKE {key} {}", second.fence());
        assert_eq!(server.ask(revoke), 1);
        assert_eq!(timeout(LONG, second.lost()).await, Ok(Loss::Ended));
        assert_eq!(second.index(), Some(1));
        let plain = client.semaphore(&key).limit(2).acquire().await.unwrap();
        assert_eq!(plain.index(), None);
    }
}

#[tokio::test]
async fn hold_that_ends_early_rests() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let (tick, pace) = (client.lock("tick"), client.semaphore("pace").limit(1));
    let hold = tick.clone().min_hold(60 * SECOND).acquire().await.unwrap();
    hold.release().await.unwrap();
    let refused = tick.try_acquire().await.unwrap_err();
    assert!(
        matches!(&refused, Error::NotAcquired { holders, .. } if holders[0].resting.is_some()),
        "{refused}"
    );
    let begun = Instant::now();
    for _ in 0..3 {
        let hold = pace.clone().min_hold(SECOND / 2).acquire().await.unwrap();
        hold.release().await.unwrap();
    }
    assert!(begun.elapsed() >= SECOND);
}

#[tokio::test(flavor = "multi_thread")]
async fn lane_with_fewer_permits_is_next_and_has_its_limit() {
    let server = Server::start();
    for waits in WAITS {
        let client = Client::open(server.url()).unwrap().with_waits(waits);
        let jobs = client.semaphore(format!("jobs:{waits:?}")).limit(2);
        let flood = jobs.clone().lane("flood").lane_limit(1);
        let first = flood.acquire().await.unwrap();
        assert!(matches!(
            flood.try_acquire().await,
            Err(Error::NotAcquired { .. })
        ));
        let other = jobs.clone().lane("other").acquire().await.unwrap();
        let served = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for (number, lane) in (0..).zip(["flood", "flood", "third"]) {
            let (lane, served) = (jobs.clone().lane(lane).lane_limit(1), Arc::clone(&served));
            tasks.push(tokio::spawn(async move {
                let hold = lane.acquire().await.unwrap();
                served.lock().unwrap().push(number);
                hold.release().await.unwrap();
            }));
            server.wait_for_waiters(number + 1);
        }
        first.release().await.unwrap();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*served.lock().unwrap(), [2, 0, 1]);
        other.release().await.unwrap();
    }
}
