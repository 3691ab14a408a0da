//! What is asked of a semaphore.

use std::sync::Arc;
use std::time::Duration;

use crate::bounds;
use crate::cancel::Cancel;
use crate::error::Result;
use crate::options::{Options, common_options, limit_words, min_hold_option, min_hold_words};
use crate::progress::{KeyInfo, Progress};
use crate::request::{Family, Request};
use crate::sync::Client;

/// A fair semaphore: at most so many permits are held at a time.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked for until it is acquired"]
pub struct Semaphore<C = Client> {
    pub(crate) client: C,
    pub(crate) options: Options,
    limit: Option<u32>,
    permits: u32,
    lane: Option<String>,
    lane_limit: Option<u32>,
    min_hold: Option<Duration>,
    is_indexed: bool,
}

common_options!(Semaphore);
min_hold_option!(Semaphore);

impl<C> Semaphore<C> {
    pub(crate) fn new(client: C, key: String) -> Self {
        Semaphore {
            client,
            options: Options::new(key),
            limit: None,
            permits: 1,
            lane: None,
            lane_limit: None,
            min_hold: None,
            is_indexed: false,
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

    /// Sets the lane, a text of 1 to 128 bytes. Free permits go to the lane that has the fewest in use; within a lane it is
    /// first come, first served. Those who set none are one lane. Takes a server with dsync 0.4.
    pub fn lane(mut self, lane: impl Into<String>) -> Self {
        self.lane = Some(lane.into());
        self
    }

    /// Sets how many permits the lane may have in use, 1 to 1,000,000. Takes a server with dsync 0.4.
    pub fn lane_limit(mut self, limit: u32) -> Self {
        self.lane_limit = Some(limit);
        self
    }

    /// Asks for an [index](crate::Hold::index): the lowest number from 0 that no other hold of the semaphore has, always
    /// below its limit. It is for one permit. Takes a server with dsync 0.4.
    pub fn index(mut self) -> Self {
        self.is_indexed = true;
        self
    }

    /// How many permits are free, as far as is known; all of them while there is no such semaphore.
    pub(crate) fn free(&self, info: &KeyInfo) -> Option<u64> {
        let unused = self.limit.map(u64::from);
        info.available.or(unused.filter(|_| info.state.is_empty()))
    }

    pub(crate) fn wanted(&self) -> u64 {
        self.permits.into()
    }

    pub(crate) fn request(&self) -> Result<Request> {
        let mut words = limit_words(self.limit)?;
        bounds::count("permits", self.permits)?;
        words.extend(["PERMITS".to_owned(), self.permits.to_string()]);
        if let Some(lane) = &self.lane {
            bounds::lane(lane)?;
            words.extend(["LANE".to_owned(), lane.clone()]);
        }
        if let Some(limit) = self.lane_limit {
            bounds::lane_limit(limit, self.lane.as_deref())?;
            words.extend(["LANELIMIT".to_owned(), limit.to_string()]);
        }
        words.extend(min_hold_words(self.min_hold)?);
        if self.is_indexed {
            bounds::indexed(self.permits)?;
            words.push("INDEX".to_owned());
        }
        self.options.request(Family::Semaphore, words)
    }
}
