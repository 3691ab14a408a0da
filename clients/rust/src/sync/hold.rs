//! What only threads can do with a hold and with work.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use crate::error::{Error, Loss};
use crate::hold::{Hold, Run};
use crate::once::Begun;
use crate::options::Once;
use crate::signal::now;
use crate::sync::Client;
use crate::uses::record;

impl Hold<Client> {
    /// Waits until the hold is lost, at most so long. Returns why, or `None` when it is not lost by then.
    pub fn wait_lost(&self, at_most: Duration) -> Option<Loss> {
        now(self.shared.lease.wait::<Client>(at_most))
    }

    /// Has a function called in a thread of its own when the hold is lost. It is not called for a hold that was released
    /// first.
    ///
    /// The error says that the operating system did not start the thread.
    pub fn on_lost(&self, callback: impl FnOnce(Loss) + Send + 'static) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let watch = move || {
            // Every hold ends: it is released, or lost when nobody renews it.
            if let Some(loss) = now(shared.lease.wait::<Client>(Duration::MAX)) {
                callback(loss);
            }
        };
        let thread = thread::Builder::new().name("dsync-watch".to_owned());
        thread.spawn(watch).map(drop)
    }
}

impl Once<Client> {
    /// Does the work if nobody has done it, and returns its result: this caller's, or the one that another has left.
    ///
    /// An error of the work is recorded as the reason of a failed attempt and returned; the next in line begins. A panic
    /// counts as a failed attempt too.
    pub fn call<T, E>(&self, work: impl FnOnce(&Run) -> Result<T, E>) -> Result<Vec<u8>, E>
    where
        T: Into<Vec<u8>>,
        E: From<Error> + Display,
    {
        let run = match self.begin()? {
            Begun::Run(run) => run,
            Begun::Done { result, .. } => return Ok(result.unwrap_or_default()),
        };
        let outcome = work(&run);
        now(record(run, outcome))
    }
}
