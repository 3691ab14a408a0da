//! What is asked for: the builders that both halves share.
//!
//! A builder says what is wanted and can be used any number of times; each use is a request with a token of its own.
//! How a request waits is up to the half: its methods are in `sync` and `aio`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;

use crate::progress::Progress;
use crate::request::{Family, Request, millis, new_token};
use crate::sync::{Cancel, Client};

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
}

impl Options {
    pub(crate) const DEFAULT_LEASE: Duration = Duration::from_secs(30);

    fn new(key: String) -> Options {
        Options {
            key,
            lease: Options::DEFAULT_LEASE,
            margin: None,
            owner: None,
            token: None,
            progress: None,
            cancel: None,
        }
    }

    fn request(&self, family: Family, words: Vec<String>) -> Request {
        Request {
            family,
            key: self.key.clone(),
            token: self.token.clone().unwrap_or_else(new_token),
            lease: self.lease,
            owner: self.owner.clone(),
            words,
        }
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
            /// Sets the lease: how long the hold lasts without renewal, 1 ms to `dsync.max-lease-ms` (a day). It is renewed
            /// at a third of this. 30 seconds unless set.
            ///
            /// The lease is the time after which others go on when this process dies, and the time that the server may be
            /// out of reach before the hold is lost.
            pub fn lease(mut self, lease: Duration) -> Self {
                self.options.lease = lease;
                self
            }

            /// Sets how long before the end of its lease the hold counts as lost, so that the work can stop while it still
            /// lasts: at most half of the lease. A tenth of the lease, at most two seconds, unless set.
            pub fn margin(mut self, margin: Duration) -> Self {
                self.options.margin = Some(margin);
                self
            }

            /// Sets the text that INFO, errors and other waiters show for this holder, at most 128 bytes: a host and a
            /// process, for example.
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

/// A lock: exclusive, or shared by any number of holders.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked for until it is acquired"]
pub struct Lock<C = Client> {
    pub(crate) client: C,
    pub(crate) options: Options,
    is_shared: bool,
}

common_options!(Lock);

impl<C> Lock<C> {
    pub(crate) fn new(client: C, key: String) -> Self {
        Lock {
            client,
            options: Options::new(key),
            is_shared: false,
        }
    }

    /// Asks for the lock together with other shared holders: a reader's lock.
    pub fn shared(mut self) -> Self {
        self.is_shared = true;
        self
    }

    pub(crate) fn request(&self) -> Request {
        let words = if self.is_shared {
            vec!["SHARED".to_owned()]
        } else {
            Vec::new()
        };
        self.options.request(Family::Lock, words)
    }
}

/// A fair semaphore: at most so many permits are held at a time.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked for until it is acquired"]
pub struct Semaphore<C = Client> {
    pub(crate) client: C,
    pub(crate) options: Options,
    limit: Option<u32>,
    permits: u32,
}

common_options!(Semaphore);

impl<C> Semaphore<C> {
    pub(crate) fn new(client: C, key: String) -> Self {
        Semaphore {
            client,
            options: Options::new(key),
            limit: None,
            permits: 1,
        }
    }

    /// Sets how many permits there are, 1 to 1,000,000. Each request brings the limit along, so that a deployment can
    /// change it; an operator's `DSEM.LIMIT` overrides it. Without it the limit in force applies, and where there is none
    /// the request is an error (`NOLIMIT`).
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Sets how many permits one hold takes, 1 to 1,000,000. One unless set.
    pub fn permits(mut self, permits: u32) -> Self {
        self.permits = permits;
        self
    }

    pub(crate) fn request(&self) -> Request {
        let mut words = limit_words(self.limit);
        words.extend(["PERMITS".to_owned(), self.permits.to_string()]);
        self.options.request(Family::Semaphore, words)
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

    pub(crate) fn request(&self) -> Request {
        self.options.request(Family::Group, limit_words(self.limit))
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

/// Work that is done once by a fleet, however many ask for it.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked for until it is begun"]
pub struct Once<C = Client> {
    pub(crate) client: C,
    pub(crate) options: Options,
    max_attempts: Option<u32>,
    pub(crate) verdict: Verdict,
}

common_options!(Once);

impl<C> Once<C> {
    pub(crate) fn new(client: C, key: String) -> Self {
        Once {
            client,
            options: Options::new(key),
            max_attempts: None,
            verdict: Verdict::default(),
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
        self.verdict.keep = Keep::For(keep);
        self
    }

    /// Keeps the result until the key is removed: for what must never happen twice.
    pub fn keep_forever(mut self) -> Self {
        self.verdict.keep = Keep::Forever;
        self
    }

    /// Sets how long nobody begins again after a failed attempt, at most `dsync.max-lease-ms`. Without it the next in
    /// line begins at once.
    pub fn retry_delay(mut self, delay: Duration) -> Self {
        self.verdict.retry_delay = delay;
        self
    }

    pub(crate) fn request(&self) -> Request {
        let words = self
            .max_attempts
            .map(|max| vec!["MAX".to_owned(), max.to_string()]);
        self.options
            .request(Family::Once, words.unwrap_or_default())
    }
}

/// What DONE and FAIL say besides the result and the reason.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Verdict {
    keep: Keep,
    retry_delay: Duration,
}

impl Verdict {
    pub(crate) fn done(&self, request: &Request, result: Option<&[u8]>) -> Cmd {
        let mut command = request.verb("DONE");
        if let Some(result) = result {
            command.arg("RESULT").arg(result);
        }
        match self.keep {
            Keep::AsTheServerSays => {}
            Keep::For(time) => drop(command.arg("PX").arg(millis(time))),
            Keep::Forever => drop(command.arg("PERSIST")),
        }
        command
    }

    pub(crate) fn fail(&self, request: &Request, reason: &str) -> Cmd {
        let mut command = request.verb("FAIL");
        command.arg("REASON").arg(shortened(reason));
        if !self.retry_delay.is_zero() {
            command.arg("DELAY").arg(millis(self.retry_delay));
        }
        command
    }
}

/// The server refuses a reason above its bound, and then nobody would learn of the failure.
fn shortened(reason: &str) -> &str {
    const MOST: usize = 4096;
    let end = (0..=MOST.min(reason.len()))
        .rev()
        .find(|&end| reason.is_char_boundary(end));
    &reason[..end.unwrap_or(0)]
}

#[derive(Clone, Copy, Debug, Default)]
enum Keep {
    #[default]
    AsTheServerSays,
    For(Duration),
    Forever,
}

fn limit_words(limit: Option<u32>) -> Vec<String> {
    let words = limit.map(|limit| vec!["LIMIT".to_owned(), limit.to_string()]);
    words.unwrap_or_default()
}
