//! What is asked for: the builders that both halves share.
//!
//! A builder says what is wanted and can be used any number of times; each use is a request with a token of its own.
//! How a request waits is up to the half: its methods are in `calls`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::bounds;
use crate::cancel::Cancel;
use crate::error::Result;
use crate::lease::Terms;
use crate::owner::{LONGEST, default_owner};
use crate::progress::Progress;
use crate::request::{Confirm, Ending, Family, Replicas, Request};
use crate::sync::Client;
use crate::times::CONFIRM_AT_MOST;

type ProgressCallback = Arc<dyn Fn(&Progress) + Send + Sync>;

/// The options of all four families. What is not set is not sent: the server's default counts.
#[derive(Clone, Default)]
pub(crate) struct Options {
    pub(crate) family: Family,
    pub(crate) key: String,
    pub(crate) terms: Terms,
    owner: Option<String>,
    token: Option<String>,
    pub(crate) progress: Option<ProgressCallback>,
    pub(crate) cancel: Option<Cancel>,
    replicas: Option<Replicas>,
    within: Option<Duration>,
    disk: bool,
    is_shared: bool,
    pub(crate) limit: Option<u32>,
    pub(crate) permits: Option<u32>,
    lane: Option<String>,
    lane_limit: Option<u32>,
    min_hold: Option<Duration>,
    is_indexed: bool,
    max_attempts: Option<u32>,
    /// Whether a call whose work fails begins again.
    pub(crate) goes_on: bool,
    ending: Ending,
}

impl Options {
    /// Returns a request with these options. The error names the option that no server would take.
    pub(crate) fn request(&self) -> Result<Request> {
        self.terms.check()?;
        if let Some(time) = self.ending.keep {
            bounds::time("keep", time, bounds::KEEP)?;
            let is_in = !self.ending.is_kept_forever;
            bounds::check("keep", &time, is_in, "given without forever only")?;
        }
        bounds::time("retry_delay", self.ending.retry_delay, bounds::RETRY_DELAY)?;
        let is_in = !self.goes_on || self.max_attempts.is_some();
        bounds::check("until_done", &true, is_in, "given with max_attempts only")?;
        let owner = self.owner.clone().unwrap_or_else(default_owner);
        let (length, bound) = (owner.len(), "at most 128 bytes");
        bounds::check("the length of owner", &length, length <= LONGEST, bound)?;
        if let Some(token) = &self.token {
            bounds::name("the length of token", token)?;
        }
        Ok(Request {
            family: self.family,
            key: self.key.clone(),
            token: match &self.token {
                Some(token) => token.clone(),
                None => Uuid::new_v4().to_string(),
            },
            lease: self.terms.asks(Duration::ZERO).length,
            owner,
            words: self.words()?,
            confirm: self.confirm()?,
            ending: self.ending,
        })
    }

    /// The words that only some families have.
    fn words(&self) -> Result<Vec<String>> {
        let mut words = Vec::new();
        for (word, option, count) in [
            ("LIMIT", "limit", self.limit),
            ("PERMITS", "permits", self.permits),
            ("LANELIMIT", "lane_limit", self.lane_limit),
            ("MAX", "max_attempts", self.max_attempts),
        ] {
            if let Some(count) = count {
                bounds::count(option, count)?;
                words.extend([word.to_owned(), count.to_string()]);
            }
        }
        if let Some(lane) = &self.lane {
            bounds::name("the length of lane", lane)?;
            words.extend(["LANE".to_owned(), lane.clone()]);
        }
        if let (Some(limit), None) = (self.lane_limit, &self.lane) {
            bounds::check("lane_limit", &limit, false, "given with a lane only")?;
        }
        if let Some(time) = self.min_hold {
            bounds::time("min_hold", time, bounds::LEASE)?;
            // Rounded up: a place rests no shorter than it was asked for.
            let ms = time.as_nanos().div_ceil(1_000_000);
            words.extend(["MINHOLD".to_owned(), ms.to_string()]);
        }
        if self.is_indexed {
            let permits = self.permits.unwrap_or(1);
            bounds::check("permits", &permits, permits == 1, "1 with an index")?;
            words.push("INDEX".to_owned());
        }
        if self.is_shared {
            words.push("SHARED".to_owned());
        }
        Ok(words)
    }

    fn confirm(&self) -> Result<Option<Confirm>> {
        let is_wanted = self.disk || self.replicas.is_some();
        if let Some(within) = self.within {
            bounds::within(within, self.terms.lease, is_wanted)?;
        }
        if let Some(Replicas::Count(count)) = self.replicas {
            bounds::count("replicas", count)?;
        }
        Ok(is_wanted.then(|| Confirm {
            replicas: self.replicas.unwrap_or(Replicas::Count(0)),
            within: self
                .within
                .unwrap_or((self.terms.lease / 10).min(CONFIRM_AT_MOST)),
            disk: self.disk,
        }))
    }
}

impl fmt::Debug for Options {
    /// Leaves out the token, which is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("key", &self.key)
            .field("lease", &self.terms.lease)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

macro_rules! builders {
    ($($(#[$doc:meta])+ $type:ident)+) => {$(
        $(#[$doc])+
        #[derive(Clone, Debug)]
        #[must_use = "a builder asks for nothing by itself"]
        pub struct $type<C = Client> {
            pub(crate) client: C,
            pub(crate) options: Options,
        }

        impl<C> $type<C> {
            pub(crate) fn new(client: C, key: String) -> Self {
                let family = Family::$type;
                let options = Options { family, key, ..Options::default() };
                $type { client, options }
            }

            /// Sets the lease: how long the hold lasts without renewal, 1 ms to `dsync.max-lease-ms` (a day unless an
            /// operator sets another, at most 30 days). It is renewed at a third of this. 30 seconds unless set.
            ///
            /// The lease is the time after which others go on when this process dies, and the time that the server may be
            /// out of reach before the hold is lost.
            pub fn lease(mut self, lease: Duration) -> Self {
                self.options.terms.lease = lease;
                self
            }

            /// Sets how long before the end of its lease the hold counts as lost, so that the work can stop while it still
            /// lasts: less than the lease. A tenth of the lease, at most two seconds, unless set.
            pub fn margin(mut self, margin: Duration) -> Self {
                self.options.terms.margin = Some(margin);
                self
            }

            /// Sets after how long the hold is lost, counted from its grant, however often it is renewed: longer than the
            /// margin.
            pub fn max_hold(mut self, time: Duration) -> Self {
                self.options.terms.max_hold = Some(time);
                self
            }

            /// Wants each grant, each renewal and each DONE confirmed by so many replicas (WAIT), 1 to 1,000,000. What they
            /// do not confirm is asked again; when the time is up, it is
            /// [`Error::NotConfirmed`](crate::Error::NotConfirmed).
            pub fn replicas(mut self, count: u32) -> Self {
                self.options.replicas = Some(Replicas::Count(count));
                self
            }

            /// Wants them confirmed by as many replicas as the primary has attached when it answers (ROLE), at least one.
            pub fn replicas_all(mut self) -> Self {
                self.options.replicas = Some(Replicas::All);
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
    )+};
}

builders! {
    /// A lock: exclusive, or shared by any number of holders.
    Lock
    /// A fair semaphore: at most so many permits are held at a time.
    Semaphore
    /// A wait group: members that work, and those who wait until all are done.
    Group
    /// Work that is done once by a fleet, however many ask for it.
    Once
}

impl<C> Lock<C> {
    /// Asks for the lock together with other shared holders: a reader's lock.
    pub fn shared(mut self) -> Self {
        self.options.is_shared = true;
        self
    }

    /// Sets for how long after its grant a hold that ends earlier keeps its place taken: it *rests*. 1 ms to
    /// `dsync.max-lease-ms`. Takes a server with dsync 0.4.
    pub fn min_hold(mut self, time: Duration) -> Self {
        self.options.min_hold = Some(time);
        self
    }
}

impl<C> Semaphore<C> {
    /// Sets how many permits there are, 1 to 1,000,000. Each request brings the limit along, so that a deployment can
    /// change it; an operator's `DSEM.LIMIT` overrides it. Without it the limit in force applies, and where there is none
    /// the request is an error (`NOLIMIT`).
    pub fn limit(mut self, limit: u32) -> Self {
        self.options.limit = Some(limit);
        self
    }

    /// Sets how many permits one hold takes, 1 to 1,000,000. One unless set.
    pub fn permits(mut self, permits: u32) -> Self {
        self.options.permits = Some(permits);
        self
    }

    /// Sets the lane, a text of 1 to 128 bytes. Free permits go to the lane that has the fewest in use; within a lane it is
    /// first come, first served. Those who set none are one lane. Takes a server with dsync 0.4.
    pub fn lane(mut self, lane: impl Into<String>) -> Self {
        self.options.lane = Some(lane.into());
        self
    }

    /// Sets how many permits the lane may have in use, 1 to 1,000,000. Takes a server with dsync 0.4.
    pub fn lane_limit(mut self, limit: u32) -> Self {
        self.options.lane_limit = Some(limit);
        self
    }

    /// Asks for an [index](crate::Hold::index): the lowest number from 0 that no other hold of the semaphore has, always
    /// below its limit. It is for one permit. Takes a server with dsync 0.4.
    pub fn index(mut self) -> Self {
        self.options.is_indexed = true;
        self
    }

    /// Sets for how long after its grant a hold that ends earlier keeps its place taken: it *rests*. 1 ms to
    /// `dsync.max-lease-ms`. Takes a server with dsync 0.4.
    pub fn min_hold(mut self, time: Duration) -> Self {
        self.options.min_hold = Some(time);
        self
    }
}

impl<C> Group<C> {
    /// Sets how many members may be at work at a time, 1 to 1,000,000: `add` waits until there are fewer. The limit stays
    /// with the group. Without one ever given, any number may.
    pub fn limit(mut self, limit: u32) -> Self {
        self.options.limit = Some(limit);
        self
    }
}

impl<C> Once<C> {
    /// Sets how many attempts are made in all, whoever makes them, 1 to 1,000,000. Then the work is given up, and
    /// beginning it is [`Error::WorkFailed`](crate::Error::WorkFailed). Without it there is no end of attempts.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.options.max_attempts = Some(attempts);
        self
    }

    /// Sets how long the result is kept, 1 ms to ten years; after that the work may be done again. Unless set, the
    /// server's `dsync.once-keep-ms` applies: a day.
    pub fn keep(mut self, keep: Duration) -> Self {
        self.options.ending.keep = Some(keep);
        self
    }

    /// Keeps the result until the key is removed: for what must never happen twice.
    pub fn forever(mut self) -> Self {
        self.options.ending.is_kept_forever = true;
        self
    }

    /// Has the [`call`](Once::call) whose work fails begin again, in line behind those who wait, until the work is done or
    /// the attempts are over: then it returns [`Error::WorkFailed`](crate::Error::WorkFailed), caused by the last error.
    /// It needs [`max_attempts`](Self::max_attempts).
    pub fn until_done(mut self) -> Self {
        self.options.goes_on = true;
        self
    }

    /// Sets how long nobody begins again after a failed attempt, at most `dsync.max-lease-ms`. Without it the next in
    /// line begins at once, and also where the server refuses the delay.
    pub fn retry_delay(mut self, delay: Duration) -> Self {
        self.options.ending.retry_delay = delay;
        self
    }
}

/// A lock or a semaphore, for [`all_of`](Client::all_of).
#[derive(Clone, Debug)]
pub struct Claim<C = Client> {
    pub(crate) client: C,
    pub(crate) options: Options,
}

impl<C> From<Lock<C>> for Claim<C> {
    fn from(Lock { client, options }: Lock<C>) -> Self {
        Claim { client, options }
    }
}

impl<C> From<Semaphore<C>> for Claim<C> {
    fn from(Semaphore { client, options }: Semaphore<C>) -> Self {
        Claim { client, options }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_is_no_shorter_than_it_was_asked_for() {
        for (micros, ms) in [(1_000, "1"), (1_001, "2"), (55_000_000, "55000")] {
            let lock = Lock::new((), String::new()).min_hold(Duration::from_micros(micros));
            assert_eq!(lock.options.words().unwrap(), ["MINHOLD", ms]);
        }
    }
}
