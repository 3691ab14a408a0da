//! What only threads can do with a hold and with work.

use std::fmt::Display;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Loss};
use crate::hold::{Hold, Run};
use crate::once::{Bytes, Json};
use crate::options::Once;
use crate::signal::now;
use crate::sync::Client;
use crate::uses::call;

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
    /// Does the work if nobody has done it, and returns its result: this caller's, or the one that another has left. It is
    /// stored as JSON, which reads the same in every language; [`call_bytes`](Self::call_bytes) stores bytes as they are.
    ///
    /// An error of the work is recorded as the reason of a failed attempt and returned, and the next in line begins; with
    /// [`until_done`](Self::until_done) that may be this call. A panic counts as a failed attempt too.
    ///
    /// Returns [`Error::UnusableResult`] where JSON has no such result, or what is stored is none of this type. What is no
    /// JSON, which another program has stored, is read as a text.
    pub fn call<T, E>(&self, mut work: impl FnMut(&Run) -> Result<T, E>) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<Error> + Display,
    {
        now(call(self, Json, |run| attempt(&mut work, run)))
    }

    /// The same as [`call`](Self::call), with a result that is stored as it is.
    pub fn call_bytes<E>(
        &self,
        mut work: impl FnMut(&Run) -> Result<Vec<u8>, E>,
    ) -> Result<Vec<u8>, E>
    where
        E: From<Error> + Display,
    {
        now(call(self, Bytes, |run| attempt(&mut work, run)))
    }
}

fn attempt<O>(work: &mut impl FnMut(&Run) -> O, run: Run) -> Ready<(Run, Result<O, Error>)> {
    let outcome = Ok(work(&run));
    ready((run, outcome))
}
