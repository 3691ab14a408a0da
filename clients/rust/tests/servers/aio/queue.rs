//! How tasks wait, and give up.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dsync_client::aio::{Client, Waits};
use dsync_client::{Error, Progress};
use tokio::time::timeout;

use crate::support::{LONG, SECOND, Server, eventually};

pub const WAITS: [Waits; 2] = [Waits::OwnConnection, Waits::SharedConnection];

#[tokio::test(flavor = "multi_thread")]
async fn fifty_tasks_are_served_in_their_order() {
    let server = Server::start();
    for waits in WAITS {
        let client = Client::open(server.url()).unwrap().with_waits(waits);
        let lock = client.lock("jobs").lease(60 * SECOND);
        let first = lock.acquire().await.unwrap();
        let served = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for number in 0..50 {
            let (lock, served) = (lock.clone(), Arc::clone(&served));
            tasks.push(tokio::spawn(async move {
                let hold = lock.acquire().await.unwrap();
                served.lock().unwrap().push((number, hold.fence()));
                hold.release().await.unwrap();
            }));
            server.wait_for_waiters(number + 1);
        }
        let connections: usize = server.info("clients", "connected_clients").parse().unwrap();
        match waits {
            Waits::SharedConnection => assert!(connections < 10, "{connections}"),
            _ => assert!(connections > 50, "{connections}"),
        }
        first.release().await.unwrap();
        for task in tasks {
            task.await.unwrap();
        }
        let served = served.lock().unwrap();
        assert!(served.is_sorted_by_key(|(number, _)| *number), "{served:?}");
        assert!(served.is_sorted_by_key(|(_, fence)| *fence), "{served:?}");
    }
}

fn asked(server: &Server) -> String {
    server.info("commandstats", "cmdstat_DLOCK.ACQUIRE")
}

#[tokio::test(flavor = "multi_thread")]
async fn turn_on_a_shared_connection_is_announced_and_not_polled_for() {
    let server = Server::start();
    let client = Client::open(server.url())
        .unwrap()
        .with_waits(Waits::SharedConnection);
    let lock = client.lock("jobs").lease(60 * SECOND);
    let mut soonest = LONG;
    for _ in 0..4 {
        let hold = lock.acquire().await.unwrap();
        let waiting = {
            let lock = lock.clone();
            tokio::spawn(async move { lock.acquire().await })
        };
        eventually("the waiter listens", || {
            server.ask("PUBSUB CHANNELS dsync:*").as_array().len() == 1
        });
        // It asks again by itself every 1.67 s, so not soon after it has just done so.
        let before = asked(&server);
        eventually("the waiter asks by itself", || asked(&server) != before);
        let before = asked(&server);
        eventually("and once more", || asked(&server) != before);
        let released = Instant::now();
        hold.release().await.unwrap();
        let next = timeout(LONG, waiting).await.expect("a grant").unwrap();
        soonest = soonest.min(released.elapsed());
        next.unwrap().release().await.unwrap();
        // Nothing is listened to any more.
        eventually("the waiter has stopped to listen", || {
            server.ask("PUBSUB CHANNELS dsync:*").as_array().is_empty()
        });
    }
    assert!(soonest < SECOND, "{soonest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_subscription_is_made_anew() {
    let server = Server::start();
    let client = Client::open(server.url())
        .unwrap()
        .with_waits(Waits::SharedConnection);
    let lock = client.lock("jobs").lease(60 * SECOND);
    let hold = lock.acquire().await.unwrap();
    let waiting = {
        let lock = lock.clone();
        tokio::spawn(async move { lock.acquire().await })
    };
    let listens = || server.ask("PUBSUB CHANNELS dsync:*").as_array().len() == 1;
    eventually("the waiter listens", listens);
    server.ask("CLIENT KILL TYPE pubsub");
    eventually("the waiter listens again", listens);
    hold.release().await.unwrap();
    timeout(LONG, waiting)
        .await
        .expect("a grant")
        .unwrap()
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_wait_leaves_the_queue() {
    let server = Server::start();
    for waits in WAITS {
        let client = Client::open(server.url()).unwrap().with_waits(waits);
        let lock = client.lock("jobs").lease(60 * SECOND);
        let hold = lock.acquire().await.unwrap();
        let waiting = {
            let lock = lock.clone();
            tokio::spawn(async move { lock.acquire().await })
        };
        server.wait_for_waiters(1);
        let releases = server.find_info("commandstats", "cmdstat_DLOCK.RELEASE");
        waiting.abort();
        server.wait_for_waiters(0);
        // By the dropped future, and not because the place was no longer kept.
        assert_ne!(
            server.find_info("commandstats", "cmdstat_DLOCK.RELEASE"),
            releases
        );
        // As select! and timeout drop it.
        assert!(
            timeout(Duration::from_millis(100), lock.acquire())
                .await
                .is_err()
        );
        server.wait_for_waiters(0);
        eventually("nobody listens for a turn", || {
            server.ask("PUBSUB CHANNELS dsync:*").as_array().is_empty()
        });
        hold.release().await.unwrap();
        lock.acquire_for(LONG)
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_that_runs_out_leaves_the_queue_and_says_who_holds() {
    let server = Server::start();
    for waits in WAITS {
        let client = Client::open(server.url()).unwrap().with_waits(waits);
        let lock = client.lock("jobs");
        let hold = lock.clone().owner("web-1").acquire().await.unwrap();
        let error = lock
            .acquire_for(Duration::from_millis(200))
            .await
            .unwrap_err();
        assert!(
            matches!(&error, Error::NotAcquired { holders, .. } if holders[0].fence == hold.fence())
        );
        assert_eq!(server.waiters(), 0);
        hold.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_tells_the_place_and_the_holders() {
    let server = Server::start();
    for waits in WAITS {
        let client = Client::open(server.url()).unwrap().with_waits(waits);
        let lock = client.lock("jobs");
        let hold = lock.clone().owner("web-1").acquire().await.unwrap();
        let told: Arc<Mutex<Vec<Progress>>> = Arc::default();
        let waiting = {
            let told = Arc::clone(&told);
            let lock =
                lock.on_progress(move |progress| told.lock().unwrap().push(progress.clone()));
            tokio::spawn(async move { lock.acquire().await })
        };
        eventually("progress is told twice", || told.lock().unwrap().len() >= 3);
        hold.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
        let told = told.lock().unwrap();
        assert_eq!((told[0].place, told[0].key.waiter_count), (1, 1));
        assert_eq!(told[0].key.holders[0].owner.as_deref(), Some("web-1"));
        assert!(told[2].waited > told[0].waited + SECOND);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn grant_after_a_wait_longer_than_the_lease_is_not_lost() {
    let server = Server::start();
    for waits in WAITS {
        let client = Client::open(server.url()).unwrap().with_waits(waits);
        let hold = client
            .lock("jobs")
            .lease(60 * SECOND)
            .acquire()
            .await
            .unwrap();
        let waiting = {
            let lock = client.lock("jobs").lease(SECOND);
            tokio::spawn(async move { lock.acquire().await })
        };
        server.wait_for_waiters(1);
        assert!(timeout(3 * SECOND, hold.lost()).await.is_err());
        hold.release().await.unwrap();
        let granted = waiting.await.unwrap().unwrap();
        granted.ensure_held().unwrap();
        granted.release().await.unwrap();
    }
}
