//! How threads and tasks wait for each other.

use std::future::Future;
use std::pin::pin;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

#[cfg(feature = "tokio")]
use redis::{RedisError, RedisResult};

/// One of the two ways of waiting. Not for other crates.
pub trait Wait {
    /// Wait until something is told that was not seen yet, so long at most.
    fn wait(signal: &Signal, seen: u64, at_most: Duration) -> impl Future<Output = ()> + Send;
}

/// Runs a step of the synchronous half.
pub(crate) fn now<T>(step: impl Future<Output = T>) -> T {
    let mut step = pin!(step);
    loop {
        // Ready at the first look, because all that it waits for blocks this thread.
        if let Poll::Ready(done) = step.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
    }
}

/// Wait so long.
pub(crate) async fn pause<W: Wait>(time: Duration) {
    W::wait(&Signal::default(), 0, time).await;
}

/// Has a task wait at most so long.
#[cfg(feature = "tokio")]
pub(crate) async fn within<T>(
    limit: Duration,
    future: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    let late = |_| RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
    tokio::time::timeout(limit, future).await.map_err(late)?
}

/// Locks a mutex. A panic of a thread that had it is no reason to fail: each change in this crate leaves the value whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells threads and tasks that something has changed.
#[derive(Debug, Default)]
pub struct Signal {
    told: Mutex<u64>,
    threads: Condvar,
    #[cfg(feature = "tokio")]
    tasks: tokio::sync::Notify,
}

impl Signal {
    /// How often it was told: to be asked before the look at what may change.
    pub(crate) fn seen(&self) -> u64 {
        *lock(&self.told)
    }

    pub(crate) fn tell(&self) {
        *lock(&self.told) += 1;
        self.threads.notify_all();
        #[cfg(feature = "tokio")]
        self.tasks.notify_waiters();
    }

    /// Has the thread wait.
    pub(crate) fn block(&self, seen: u64, at_most: Duration) {
        let told = lock(&self.told);
        let _ = self
            .threads
            .wait_timeout_while(told, at_most, |told| *told == seen);
    }

    /// Has the task wait.
    #[cfg(feature = "tokio")]
    pub(crate) async fn notified(&self, seen: u64, at_most: Duration) {
        // Made before the look, so that what is told after the look wakes it.
        let notified = self.tasks.notified();
        if self.seen() == seen {
            let _ = tokio::time::timeout(at_most, notified).await;
        }
    }
}
