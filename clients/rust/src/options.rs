//! What is asked for: the builders that both halves share.
//!
//! A builder says what is wanted and can be used any number of times; each use is a request with a token of its own.
//! How a request waits is up to the half: its methods are in `sync` and `aio`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::bounds;
use crate::cancel::Cancel;
use crate::error::Result;
use crate::lease::Terms;
use crate::owner::default_owner;
use crate::progress::Progress;
use crate::request::{Confirm, Family, Replicas, Request, new_token};
use crate::sync::Client;

type ProgressCallback = Arc<dyn Fn(&Progress) + Send + Sync>;

/// What the requests of all four families have.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) key: String,
    pub(crate) lease: Duration,
    pub(crate) margin: Option<Duration>,
    pub(crate) owner: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) progress: Option<ProgressCallback>,
    pub(crate) cancel: Option<Cancel>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) replicas: Option<Replicas>,
    pub(crate) within: Option<Duration>,
    pub(crate) disk: bool,
}

impl Options {
    pub(crate) const DEFAULT_LEASE: Duration = Duration::from_secs(30);

    pub(crate) fn new(key: String) -> Options {
        Options {
            key,
            lease: Options::DEFAULT_LEASE,
            margin: None,
            owner: None,
            token: None,
            progress: None,
            cancel: None,
            max_hold: None,
            replicas: None,
            within: None,
            disk: false,
        }
    }

    /// Returns a request with these options. The error names the option that no server would take.
    pub(crate) fn request(&self, family: Family, words: Vec<String>) -> Result<Request> {
        let terms = self.terms();
        terms.check()?;
        if let Some(owner) = &self.owner {
            bounds::owner(owner)?;
        }
        if let Some(token) = &self.token {
            bounds::token(token)?;
        }
        Ok(Request {
            family,
            key: self.key.clone(),
            token: self.token.clone().unwrap_or_else(new_token),
            lease: terms.longest(),
            owner: self.owner.clone().unwrap_or_else(default_owner),
            words,
            confirm: self.confirm()?,
        })
    }

    pub(crate) fn terms(&self) -> Terms {
        Terms {
            lease: self.lease,
            margin: self.margin,
            max_hold: self.max_hold,
        }
    }

    fn confirm(&self) -> Result<Option<Confirm>> {
        const LONGEST: Duration = Duration::from_millis(500);
        let is_wanted = self.disk || self.replicas.is_some();
        if let Some(within) = self.within {
            bounds::within(within, self.lease, is_wanted)?;
        }
        if let Some(Replicas::Count(count)) = self.replicas {
            bounds::count("replicas", count)?;
        }
        Ok(is_wanted.then(|| Confirm {
            replicas: self.replicas.unwrap_or(Replicas::Count(0)),
            within: self.within.unwrap_or((self.lease / 10).min(LONGEST)),
            disk: self.disk,
        }))
    }
}

impl fmt::Debug for Options {
    /// Leaves out the token, which is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("key", &self.key)
            .field("lease", &self.lease)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

macro_rules! common_options {
    ($type:ident) => {
        impl<C> $type<C> {
            /// Sets the lease: how long the hold lasts without renewal, 1 ms to `dsync.max-lease-ms` (a day unless an
            /// operator sets another, at most 30 days). It is renewed at a third of this. 30 seconds unless set.
            ///
            /// The lease is the time after which others go on when this process dies, and the time that the server may be
            /// out of reach before the hold is lost.
            pub fn lease(mut self, lease: Duration) -> Self {
                self.options.lease = lease;
                self
            }

            /// Sets how long before the end of its lease the hold counts as lost, so that the work can stop while it still
            /// lasts: less than the lease. A tenth of the lease, at most two seconds, unless set.
            pub fn margin(mut self, margin: Duration) -> Self {
                self.options.margin = Some(margin);
                self
            }

            /// Sets after how long the hold is lost, counted from its grant, however often it is renewed: longer than the
            /// margin.
            pub fn max_hold(mut self, time: Duration) -> Self {
                self.options.max_hold = Some(time);
                self
            }

            /// Wants each grant, each renewal and each DONE confirmed by so many replicas (WAIT), 1 to 1,000,000. What they
            /// do not confirm is asked again; when the time is up, it is
            /// [`Error::NotConfirmed`](crate::Error::NotConfirmed).
            pub fn replicas(mut self, count: u32) -> Self {
                self.options.replicas = Some(crate::request::Replicas::Count(count));
                self
            }

            /// Wants them confirmed by as many replicas as the primary has attached when it answers (ROLE), at least one.
            pub fn replicas_all(mut self) -> Self {
                self.options.replicas = Some(crate::request::Replicas::All);
                self
            }

            /// Sets how long the server waits for each confirmation: 1 ms to the lease. A tenth of the lease, at most half a
            /// second, unless set.
            pub fn within(mut self, time: Duration) -> Self {
                self.options.within = Some(time);
                self
            }

            /// Wants them synced to the disk of the primary, and of as many replicas as [`replicas`](Self::replicas) says
            /// (WAITAOF). Takes Redis 7.2 or newer with `appendonly yes`.
            pub fn disk(mut self) -> Self {
                self.options.disk = true;
                self
            }

            /// Sets the text that INFO, errors and other waiters show for this holder, at most 128 bytes. `user@host:pid`
            /// unless set; with an empty text, nobody is told.
            pub fn owner(mut self, owner: impl Into<String>) -> Self {
                self.options.owner = Some(owner.into());
                self
            }

            /// Sets the token, 1 to 128 bytes, in place of a new random one for each request. Use a token for one request
            /// only.
            pub fn token(mut self, token: impl Into<String>) -> Self {
                self.options.token = Some(token.into());
                self
            }

            /// Sets what is called while a request waits: when it begins to wait, and then every two seconds. The callback
            /// runs between two requests to the server, so it must not take long.
            pub fn on_progress(
                mut self,
                callback: impl Fn(&Progress) + Send + Sync + 'static,
            ) -> Self {
                self.options.progress = Some(Arc::new(callback));
                self
            }

            /// Returns the key.
            pub fn key(&self) -> &str {
                &self.options.key
            }
        }

        impl $type<Client> {
            /// Sets the handle that can end the waits of this builder's requests.
            pub fn cancel(mut self, cancel: &Cancel) -> Self {
                self.options.cancel = Some(cancel.clone());
                self
            }
        }
    };
}

/// The option of locks and semaphores.
macro_rules! min_hold_option {
    ($type:ident) => {
        impl<C> $type<C> {
            /// Sets for how long after its grant a hold that ends earlier keeps its place taken: it *rests*. 1 ms to
            /// `dsync.max-lease-ms`. Takes a server with dsync 0.4.
            pub fn min_hold(mut self, time: Duration) -> Self {
                self.min_hold = Some(time);
                self
            }
        }
    };
}

pub(crate) use {common_options, min_hold_option};

/// A lock: exclusive, or shared by any number of holders.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked for until it is acquired"]
pub struct Lock<C = Client> {
    pub(crate) client: C,
    pub(crate) options: Options,
    is_shared: bool,
    min_hold: Option<Duration>,
}

common_options!(Lock);
min_hold_option!(Lock);

impl<C> Lock<C> {
    pub(crate) fn new(client: C, key: String) -> Self {
        Lock {
            client,
            options: Options::new(key),
            is_shared: false,
            min_hold: None,
        }
    }

    /// Asks for the lock together with other shared holders: a reader's lock.
    pub fn shared(mut self) -> Self {
        self.is_shared = true;
        self
    }

    pub(crate) fn request(&self) -> Result<Request> {
        let mut words = min_hold_words(self.min_hold)?;
        if self.is_shared {
            words.push("SHARED".to_owned());
        }
        self.options.request(Family::Lock, words)
    }
}

/// A wait group: members that work, and those who wait until all are done.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked for until a member is added"]
pub struct Group<C = Client> {
    pub(crate) client: C,
    pub(crate) options: Options,
    limit: Option<u32>,
}

common_options!(Group);

impl<C> Group<C> {
    pub(crate) fn new(client: C, key: String) -> Self {
        Group {
            client,
            options: Options::new(key),
            limit: None,
        }
    }

    /// Sets how many members may be at work at a time, 1 to 1,000,000: `add` waits until there are fewer. The limit stays
    /// with the group. Without one ever given, any number may.
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = Some(limit);
        self
    }

    pub(crate) fn request(&self) -> Result<Request> {
        let words = limit_words(self.limit)?;
        self.options.request(Family::Group, words)
    }
}

/// What a finished round of a group has counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Tally {
    /// How many members were done.
    pub done: u64,
    /// How many were lost: their leases lapsed, or an operator revoked them.
    pub lapsed: u64,
}

pub(crate) fn min_hold_words(time: Option<Duration>) -> Result<Vec<String>> {
    let Some(time) = time else {
        return Ok(Vec::new());
    };
    bounds::time("min_hold", time, bounds::LEASE)?;
    // Rounded up: a place rests no shorter than it was asked for.
    let ms = time.as_nanos().div_ceil(1_000_000);
    Ok(vec!["MINHOLD".to_owned(), ms.to_string()])
}

pub(crate) fn limit_words(limit: Option<u32>) -> Result<Vec<String>> {
    count_words("LIMIT", "limit", limit)
}

pub(crate) fn count_words(
    word: &str,
    option: &'static str,
    count: Option<u32>,
) -> Result<Vec<String>> {
    let Some(count) = count else {
        return Ok(Vec::new());
    };
    bounds::count(option, count)?;
    Ok(vec![word.to_owned(), count.to_string()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_is_no_shorter_than_it_was_asked_for() {
        for (micros, ms) in [(1_000, "1"), (1_001, "2"), (55_000_000, "55000")] {
            let time = Duration::from_micros(micros);
            assert_eq!(min_hold_words(Some(time)).unwrap(), ["MINHOLD", ms]);
        }
    }
}
