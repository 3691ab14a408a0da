//! A program may end its runtime while its tasks hold something. The runtime then takes no task any more and drops it.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use super::{Client, Hold};
use crate::aio::together::Together;
use crate::call::Call;
use crate::clock::Moment;
use crate::effort::Effort;
use crate::request::{Command, Grant};
use crate::server::Server;

/// Returns what a function returns to a thread whose runtime has ended. A function that waits for ever fails the test.
fn after_the_runtime<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> T {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.enable_time().build().unwrap();
    let handle = runtime.handle().clone();
    drop(runtime);
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let _within = handle.enter();
        tell.send(what())
    });
    told.recv_timeout(Duration::from_secs(10)).expect("an end")
}

fn nowhere() -> Server {
    Server::at("redis://127.0.0.1:1").unwrap()
}

/// The task was dropped while the list of holds was locked, and wanted to lock it.
#[test]
fn hold_that_no_task_renews_lasts_for_its_lease() {
    after_the_runtime(|| {
        let client = Client::new(nowhere());
        let options = client.lock("k").options;
        let grant = Grant {
            fence: 1,
            attempt: 1,
            index: None,
        };
        let request = options.request().unwrap();
        let hold = Hold::new(&client, options.terms, request, grant, Moment::now());
        assert!(!hold.is_lost());
    });
}

#[test]
fn confirmed_request_that_no_task_sends_fails() {
    let is_failed = after_the_runtime(|| {
        let together = Arc::new(Together::new(nowhere()));
        let (ping, effort) = (Command::of_server("PING"), Effort::default().once());
        let call = Call::new(&ping, effort);
        let mut sent = pin!(together.attempt(&call));
        let poll = sent.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        matches!(poll, Poll::Ready(Err(_)))
    });
    assert!(is_failed);
}
