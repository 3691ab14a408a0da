//! What only tasks can do with a hold and with work.

use std::fmt::Display;
use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::aio::{Client, Run};
use crate::error::{Error, Loss};
use crate::hold::Hold;
use crate::once::{Bytes, Json};
use crate::options::Once;
use crate::uses::call;

impl Hold<Client> {
    /// Waits until the hold is lost, and returns why. Never ends if the hold is released first. The future lives on its own:
    /// other tasks may have it, and any number of them.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + 'static {
        let shared = Arc::clone(&self.shared);
        async move {
            if let Some(loss) = shared.lease.wait::<Client>(Duration::MAX).await {
                return loss;
            }
            drop(shared);
            pending().await
        }
    }

    /// Runs the work until it is done or the hold is lost. When the hold is lost, the work is dropped at its next await
    /// and [`Error::HoldLost`] is returned. What the work has spawned goes on: give it [`lost`](Hold::lost).
    pub async fn run<F: Future>(&self, work: F) -> crate::Result<F::Output> {
        tokio::select! {
            biased;
            loss = self.lost() => Err(self.lost_by(loss)),
            output = work => Ok(output),
        }
    }
}

impl Once<Client> {
    /// Does the work if nobody has done it, and returns its result: this caller's, or the one that another has left. It is
    /// stored as JSON, which reads the same in every language; [`call_bytes`](Self::call_bytes) stores bytes as they are.
    ///
    /// The work is given its attempt and its fence. It is dropped at its next await when the run is lost. An error of the
    /// work is recorded as the reason of a failed attempt and returned, and the next in line begins; with
    /// [`until_done`](Self::until_done) that may be this call. A panic counts as a failed attempt too.
    ///
    /// Returns [`Error::UnusableResult`] where JSON has no such result, or what is stored is none of this type. What is no
    /// JSON, which another program has stored, is read as a text.
    pub async fn call<T, E, F>(&self, mut work: impl FnMut(Attempt) -> F) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<Error> + Display,
        F: Future<Output = Result<T, E>>,
    {
        let attempt = |run| {
            let work = work(Attempt::of(&run));
            attempt(run, work)
        };
        call(self, Json, attempt).await
    }

    /// The same as [`call`](Self::call), with a result that is stored as it is.
    pub async fn call_bytes<E, F>(&self, mut work: impl FnMut(Attempt) -> F) -> Result<Vec<u8>, E>
    where
        E: From<Error> + Display,
        F: Future<Output = Result<Vec<u8>, E>>,
    {
        let attempt = |run| {
            let work = work(Attempt::of(&run));
            attempt(run, work)
        };
        call(self, Bytes, attempt).await
    }
}

async fn attempt<F: Future>(run: Run, work: F) -> (Run, crate::Result<F::Output>) {
    let outcome = run.run(work).await;
    (run, outcome)
}

/// What [`Once::call`] tells the work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Attempt {
    /// Which attempt this is; 1 is the first. From 2 on, an earlier worker failed or died, perhaps half-way.
    pub number: u64,
    /// The fence of the run.
    pub fence: u64,
}

impl Attempt {
    fn of(run: &Run) -> Attempt {
        Attempt {
            number: run.attempt(),
            fence: run.fence(),
        }
    }
}
