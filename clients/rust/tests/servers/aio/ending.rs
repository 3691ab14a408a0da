//! How holds end: what the server refuses, what it cannot take now, and what is repeated.

use std::time::Duration;

use dsync_client::aio::{Begun, Client, Run};
use dsync_client::{Error, Loss};
use tokio::time::sleep;

use crate::support::{LONG, Proxy, SECOND, Server, eventually, releases_refused};

fn begun(begun: Begun) -> Run {
    match begun {
        Begun::Run(run) => run,
        Begun::Done { .. } => panic!("the work is done already"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_that_the_server_refuses_counts_all_the_same() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    server.ask("CONFIG SET dsync.max-lease-ms 60000");
    let once = client
        .once("work")
        .max_attempts(1)
        .retry_delay(3600 * SECOND);
    let run = begun(once.begin().await.unwrap());
    run.fail("no disk space").await.unwrap();
    let error = once.begin_for(LONG).await.err().unwrap();
    assert!(
        matches!(error, Error::WorkFailed { attempts: 1, .. }),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn done_whose_future_is_dropped_is_told_all_the_same() {
    let server = Server::start();
    let network = Proxy::to(&server);
    let client = Client::open(network.url()).unwrap();
    let once = client.once("work").lease(6 * SECOND);
    let run = begun(once.begin().await.unwrap());
    network.cut();
    let telling = run.done(Some(b"in-7"));
    assert!(tokio::time::timeout(SECOND, telling).await.is_err());
    // What is on its way is lost.
    sleep(3 * SECOND).await;
    network.close_all();
    network.heal();
    let Begun::Done { result, attempt } = once.begin_for(LONG).await.unwrap() else {
        panic!("finished work is done again");
    };
    assert_eq!((result, attempt), (Some(b"in-7".to_vec()), 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn release_of_a_hold_whose_key_is_overwritten_says_that_it_was_lost() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let hold = client.lock("jobs").acquire().await.unwrap();
    server.ask("SET jobs text");
    let error = hold.release().await.unwrap_err();
    let Error::HoldLost { loss, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(loss, Loss::Ended);
}

#[tokio::test(flavor = "multi_thread")]
async fn release_is_repeated_for_longer_than_the_lease() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let hold = client
        .lock("jobs")
        .lease(3 * SECOND)
        .acquire()
        .await
        .unwrap();
    server.stop();
    let releasing = tokio::spawn(hold.release());
    // The lease is over by the client's clock. The server's own stands still, as a promoted one gives it anew.
    sleep(Duration::from_millis(6_500)).await;
    server.cont();
    releasing.await.unwrap().unwrap();
    client.lock("jobs").acquire_for(LONG).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn hold_of_an_aborted_task_is_released_also_by_a_server_that_was_away() {
    let server = Server::start();
    let network = Proxy::to(&server);
    let client = Client::open(network.url()).unwrap();
    let lock = client.lock("jobs").lease(3600 * SECOND);
    let (tell, told) = tokio::sync::oneshot::channel();
    let working = {
        let lock = lock.clone();
        tokio::spawn(async move {
            let hold = lock.acquire().await.unwrap();
            tell.send(()).unwrap();
            hold.run(std::future::pending::<()>()).await
        })
    };
    told.await.unwrap();
    network.cut();
    working.abort();
    // What is on its way is lost.
    sleep(4 * SECOND).await;
    network.close_all();
    network.heal();
    lock.acquire_for(LONG).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_hold_that_is_dropped_is_released_once() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let lock = client.lock("jobs").lease(SECOND);
    let hold = lock.acquire().await.unwrap();
    // It answers READONLY from now on, which passes.
    server.ask("REPLICAOF 127.0.0.1 1");
    assert_eq!(hold.lost().await, Loss::Unanswered);
    drop(hold);
    eventually("a release", || releases_refused(&server) > 0);
    sleep(SECOND).await;
    assert_eq!(releases_refused(&server), 1);
}
