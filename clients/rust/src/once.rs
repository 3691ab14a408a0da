//! Work that is done once: what is asked for, and what it has come to.

use std::sync::Arc;
use std::time::Duration;

use crate::cancel::Cancel;
use crate::ending::{Ending, Keep};
use crate::error::Result;
use crate::hold::Run;
use crate::options::{Options, common_options, count_words};
use crate::progress::Progress;
use crate::request::{Family, Request};
use crate::sync::Client;

/// Work that is done once by a fleet, however many ask for it.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked for until it is begun"]
pub struct Once<C = Client> {
    pub(crate) client: C,
    pub(crate) options: Options,
    max_attempts: Option<u32>,
    pub(crate) ending: Ending,
}

common_options!(Once);

impl<C> Once<C> {
    pub(crate) fn new(client: C, key: String) -> Self {
        Once {
            client,
            options: Options::new(key),
            max_attempts: None,
            ending: Ending::default(),
        }
    }

    /// Sets how many attempts are made in all, whoever makes them, 1 to 1,000,000. Then the work is given up, and
    /// beginning it is [`Error::WorkFailed`](crate::Error::WorkFailed). Without it there is no end of attempts.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// Sets how long the result is kept, 1 ms to ten years; after that the work may be done again. Unless set, the
    /// server's `dsync.once-keep-ms` applies: a day.
    pub fn keep(mut self, keep: Duration) -> Self {
        self.ending.keep = Keep::For(keep);
        self
    }

    /// Keeps the result until the key is removed: for what must never happen twice.
    pub fn keep_forever(mut self) -> Self {
        self.ending.keep = Keep::Forever;
        self
    }

    /// Sets how long nobody begins again after a failed attempt, at most `dsync.max-lease-ms`. Without it the next in
    /// line begins at once, and also where the server refuses the delay.
    pub fn retry_delay(mut self, delay: Duration) -> Self {
        self.ending.retry_delay = delay;
        self
    }

    pub(crate) fn request(&self) -> Result<Request> {
        let words = count_words("MAX", "max_attempts", self.max_attempts)?;
        self.ending.check()?;
        self.options.request(Family::Once, words)
    }
}

/// What has become of work that is done once.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// Nobody has done it: it was not begun, is under way, or is to be tried again.
    NotYet,
    /// It is done.
    Done {
        /// The result, `None` when the worker gave none.
        result: Option<Vec<u8>>,
        /// Which attempt succeeded.
        attempt: u64,
    },
    /// It was given up after as many attempts as [`Once::max_attempts`] allows.
    Failed {
        /// The reason of the last failure, as the worker gave it.
        reason: String,
        /// How many attempts were made.
        attempts: u64,
    },
}

/// What beginning work has come to.
#[derive(Debug)]
pub enum Begun<R = Run> {
    /// This process is to do the work.
    Run(R),
    /// The work is done already.
    Done {
        /// The result, `None` when the worker gave none.
        result: Option<Vec<u8>>,
        /// Which attempt succeeded.
        attempt: u64,
    },
}
