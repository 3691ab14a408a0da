//! Holds: renewal, work that is cancelled, and how holds end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dsync_client::aio::{Begun, Client};
use dsync_client::{Error, Loss};
use tokio::time::timeout;

use crate::support::{LONG, SECOND, Server};

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_is_dropped_when_its_hold_is_revoked() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let hold = client
        .lock("jobs")
        .lease(3 * SECOND)
        .acquire()
        .await
        .unwrap();
    let lost = tokio::spawn(hold.lost());
    let is_dropped = Arc::new(AtomicBool::new(false));
    let guard = SetOnDrop(Arc::clone(&is_dropped));
    let revoke = format!("DLOCK.REVOKE jobs {}", hold.fence());
    server.ask(&revoke);
    let work = async move {
        let _guard = guard;
        std::future::pending::<()>().await;
    };
    let error = timeout(LONG, hold.run(work)).await.unwrap().unwrap_err();
    assert!(matches!(
        error,
        Error::HoldLost {
            loss: Loss::Ended,
            ..
        }
    ));
    assert!(is_dropped.load(Ordering::SeqCst));
    assert_eq!(lost.await.unwrap(), Loss::Ended);
    assert!(matches!(hold.release().await, Err(Error::HoldLost { .. })));
}

#[tokio::test]
async fn work_that_ends_gives_its_result() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let hold = client.lock("jobs").acquire().await.unwrap();
    assert_eq!(hold.run(async { 7 }).await.unwrap(), 7);
    let lost = hold.lost();
    hold.release().await.unwrap();
    // A hold that was released is never lost.
    assert!(timeout(SECOND, lost).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_hold_is_released() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let lock = client.lock("jobs").lease(3600 * SECOND);
    drop(lock.acquire().await.unwrap());
    lock.acquire_for(LONG).await.unwrap();
}

/// The tasks that are to release what `main` drops at its end are dropped with the runtime, most of them before they began.
#[test]
fn hold_dropped_at_the_end_of_its_runtime_is_released() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let (lock, once) = (client.lock("jobs"), client.once("invoice"));
    let runtime = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap()
    };
    runtime().block_on(async {
        let _hold = lock.acquire().await.unwrap();
        let _run = once.begin().await.unwrap();
    });
    let left = runtime().block_on(async {
        assert!(!lock.locked().await.unwrap(), "the lock is held");
        assert!(matches!(once.try_begin().await, Ok(Begun::Run(_))));
        lock.acquire().await.unwrap()
    });
    // No runtime is left that could have a task.
    drop(left);
    let other = dsync_client::Client::open(server.url()).unwrap();
    assert!(!other.lock("jobs").locked().unwrap(), "the lock is held");
}

#[tokio::test(flavor = "multi_thread")]
async fn panic_in_the_work_releases_the_lock_and_fails_the_run() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let lock = client.lock("jobs").lease(3600 * SECOND);
    let once = client.once("invoice").lease(3600 * SECOND).max_attempts(1);
    let work = {
        let (lock, once) = (lock.clone(), once.clone());
        async move {
            let _hold = lock.acquire().await.unwrap();
            let Begun::Run(_run) = once.begin().await.unwrap() else {
                return;
            };
            panic!("a bug of the work");
        }
    };
    assert!(tokio::spawn(work).await.is_err());
    lock.acquire_for(LONG).await.unwrap();
    let error = once.begin_for(LONG).await.unwrap_err();
    assert!(matches!(error, Error::WorkFailed { reason, .. } if reason == "the worker panicked"));
}
