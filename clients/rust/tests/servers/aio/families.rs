//! What locks, semaphores, groups and work-once are for.

use std::time::Duration;

use dsync_client::aio::{Attempt, Begun, Client, Run};
use dsync_client::{Claim, Error, Outcome, Tally};

use crate::support::{SECOND, Server, assert_done};

#[tokio::test]
async fn refused_try_says_who_holds() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let lock = client.lock("nightly");
    let hold = lock.clone().owner("web-1").acquire().await.unwrap();
    let error = lock.try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("held by web-1"), "{error}");
    let fence = hold.fence();
    hold.release().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().fence() > fence);
}

#[tokio::test]
async fn locks_and_semaphores_are_held_together_or_not_at_all() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let lock = || Claim::from(client.lock("b"));
    let permit = || Claim::from(client.semaphore("a").limit(1));
    for hold in client.all_of([lock(), permit()]).await.unwrap() {
        hold.release().await.unwrap();
    }
    let _taken = client.lock("b").acquire().await.unwrap();
    let refused = client.all_of_for([lock(), permit()], SECOND).await;
    assert!(refused.is_err());
    let semaphore = client.semaphore("a").limit(1);
    semaphore.try_acquire().await.unwrap();
}

#[tokio::test]
async fn shared_holds_and_permits_are_held_together() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let readers = client.lock("table").shared();
    let _two = (
        readers.try_acquire().await.unwrap(),
        readers.try_acquire().await.unwrap(),
    );
    assert!(client.lock("table").try_acquire().await.is_err());
    let api = client.semaphore("api").limit(3);
    let _two = api.clone().permits(2).try_acquire().await.unwrap();
    let _one = api.try_acquire().await.unwrap();
    assert!(
        matches!(api.try_acquire().await, Err(Error::NotAcquired { holders, .. }) if holders.len() == 2)
    );
}

#[tokio::test]
async fn group_is_finished_when_as_many_as_expected_are_done() {
    let server = Server::start();
    for waits in super::queue::WAITS {
        let client = Client::open(server.url()).unwrap().with_waits(waits);
        let group = client.group(format!("batch:{waits:?}")).limit(1);
        assert_eq!(group.expect(2).await.unwrap(), 2);
        let first = group.add().await.unwrap();
        assert!(matches!(
            group.try_add().await,
            Err(Error::NotAcquired { .. })
        ));
        assert_eq!(
            group.wait_for(Duration::from_millis(10)).await.unwrap(),
            None
        );
        let waiting = {
            let group = group.clone();
            tokio::spawn(async move { group.wait().await })
        };
        first.done().await.unwrap();
        group.add().await.unwrap().release().await.unwrap();
        group.add().await.unwrap().done().await.unwrap();
        let Tally { done, lapsed, .. } = waiting.await.unwrap().unwrap();
        assert_eq!((done, lapsed), (2, 0));
    }
}

fn begun(begun: Begun) -> Run {
    match begun {
        Begun::Run(run) => run,
        Begun::Done { .. } => panic!("the work is done already"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_is_done_once_and_everybody_gets_the_result() {
    let server = Server::start();
    for waits in super::queue::WAITS {
        let client = Client::open(server.url()).unwrap().with_waits(waits);
        let once = client.once(format!("invoice:{waits:?}")).keep(60 * SECOND);
        let run = begun(once.begin().await.unwrap());
        assert_eq!(
            (run.attempt(), once.result().await.unwrap()),
            (1, Outcome::NotYet)
        );
        let waiting = {
            let once = once.clone();
            let work = |_| async { panic!("a second run") };
            tokio::spawn(async move { once.call_bytes::<Error, _>(work).await })
        };
        server.wait_for_waiters(1);
        run.done(Some(b"in-7")).await.unwrap();
        assert_eq!(waiting.await.unwrap().unwrap(), b"in-7");
        assert_done(&once.result().await.unwrap(), b"in-7");
    }
}

#[tokio::test]
async fn work_that_fails_too_often_is_given_up_with_its_reason() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let once = client.once("invoice").max_attempts(1);
    let work = |attempt: Attempt| async move {
        assert_eq!(attempt.number, 1);
        Err::<String, Box<dyn std::error::Error>>("no disk space".into())
    };
    assert_eq!(
        once.call(work).await.unwrap_err().to_string(),
        "no disk space"
    );
    let Err(Error::WorkFailed {
        reason, attempts, ..
    }) = once.begin().await
    else {
        panic!("the work is not given up");
    };
    assert_eq!((reason.as_str(), attempts), ("no disk space", 1));
}

#[tokio::test]
async fn call_whose_work_fails_goes_on_until_its_attempts_are_over() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let once = |key: &str| client.once(key).max_attempts(3).until_done();
    let work = async |attempt: Attempt, good| -> Result<u64, Box<dyn std::error::Error>> {
        let is_good = attempt.number == good;
        is_good.then_some(good).ok_or("no disk".into())
    };
    assert_eq!(once("a").call(|it| work(it, 3)).await.unwrap(), 3);
    let given_up = once("b").call(|it| work(it, 4)).await.unwrap_err();
    let given_up = given_up.downcast::<Error>().unwrap();
    assert!(matches!(*given_up, Error::WorkFailed { attempts: 3, .. }));
    let cause = std::error::Error::source(&*given_up).unwrap();
    assert_eq!(cause.to_string(), "no disk");
    assert_eq!(once("a").call(|it| work(it, 4)).await.unwrap(), 3);
    assert_done(&once("a").result().await.unwrap(), b"3");
}

#[tokio::test]
async fn work_is_stopped_when_its_run_is_revoked() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let once = client.once("invoice").lease(3 * SECOND);
    let revoke = |fence: u64| server.ask(format!("DONCE.REVOKE invoice {fence}"));
    let work = |attempt: Attempt| {
        assert_eq!(revoke(attempt.fence), 1);
        std::future::pending::<Result<Vec<u8>, Error>>()
    };
    assert!(matches!(once.call(work).await, Err(Error::HoldLost { .. })));
    assert_eq!(begun(once.begin().await.unwrap()).attempt(), 2);
}
