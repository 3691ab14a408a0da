//! What only tasks can do with a hold and with work.

use std::fmt::Display;
use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use crate::aio::{Begun, Client};
use crate::error::{Error, Loss};
use crate::hold::Hold;
use crate::options::Once;
use crate::uses::record;

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
    /// Does the work if nobody has done it, and returns its result: this caller's, or the one that another has left.
    ///
    /// The work is given its attempt and its fence. It is dropped at its next await when the run is lost. An error of the
    /// work is recorded as the reason of a failed attempt and returned; the next in line begins. A panic counts as a failed
    /// attempt too.
    pub async fn call<T, E, F>(&self, work: impl FnOnce(Attempt) -> F) -> Result<Vec<u8>, E>
    where
        T: Into<Vec<u8>>,
        E: From<Error> + Display,
        F: Future<Output = Result<T, E>>,
    {
        let run = match self.begin().await? {
            Begun::Run(run) => run,
            Begun::Done { result, .. } => return Ok(result.unwrap_or_default()),
        };
        let attempt = Attempt {
            number: run.attempt(),
            fence: run.fence(),
        };
        let outcome = run.run(work(attempt)).await?;
        record(run, outcome).await
    }
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
