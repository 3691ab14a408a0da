//! How fences rise: one by one along all keys, in step with the clock, and past every fence of another server
//! that may have been given for the same key.
//!
//! A fence is the clock in microseconds where the clock is ahead of the last fence. So the fences of a server that
//! has lost its memory still rise, as long as its clock does.

use crate::Engine;
use crate::types::{Fence, Now};

/// How far ahead of the clock a fence from elsewhere may be: a year.
const FENCE_AHEAD_US: u64 = 366 * 86_400 * 1_000_000;

const MINUTE_US: u64 = 60 * 1_000_000;
const HOUR_US: u64 = 60 * MINUTE_US;

/// Why a server begins to decide. It goes past the fences it knows, for it does not know all: the newest
/// may have been lost, or given by a clock that is ahead of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beginning {
    /// It started, with its own data or with none.
    Start,
    /// It took over from another, which may go on, cut off from everybody else, and may even be started
    /// again: so a promotion goes farther than a start.
    Promotion,
}

impl Beginning {
    /// How far past the last fence, and past the clock.
    fn leaps_us(self) -> (u64, u64) {
        match self {
            Beginning::Start => (MINUTE_US, HOUR_US),
            Beginning::Promotion => (10 * MINUTE_US, 2 * HOUR_US),
        }
    }
}

/// Whether no clock that is right to a year can have given this fence.
pub(crate) fn is_ahead(fence: Fence, now: Now) -> bool {
    fence.0 > now.unix_us.saturating_add(FENCE_AHEAD_US)
}

/// The fences that this server has given and knows of.
#[derive(Default)]
pub(crate) struct Fences {
    /// Given here, or seen in what was decided elsewhere.
    last: Fence,
    /// A fence from elsewhere that is far ahead of the clock, until the caller has been told.
    ahead: Option<Fence>,
    /// The highest fence that was told of in a cluster: the nodes tell less than their last, by what a leap past
    /// it would add.
    heard: Fence,
}

impl Fences {
    pub(crate) fn last(&self) -> Fence {
        self.last
    }

    /// The fence of the next grant: past every earlier one, and past those that a server with a
    /// lost memory may have given before this moment.
    pub(crate) fn next(&mut self, now: Now) -> Fence {
        self.last = Fence((self.last.0 + 1).max(now.unix_us).min(Fence::MAX.0));
        self.last
    }

    /// Goes past a fence that was given elsewhere. One that is far ahead of the clock is believed as well,
    /// for somebody holds by it: the fences to come lie behind it, and the first of its kind is told of by
    /// [`Engine::take_fence_ahead`].
    pub(crate) fn adopt(&mut self, fence: Fence, now: Now) {
        if is_ahead(fence, now) && !is_ahead(self.last, now) {
            self.ahead = Some(fence);
        }
        self.last = self.last.max(fence);
    }
}

impl Engine {
    /// The last fence given or seen.
    #[must_use]
    pub fn last_fence(&self) -> Fence {
        self.fences.last
    }

    /// The highest fence that was told of in a cluster.
    #[must_use]
    pub fn heard_fence(&self) -> Fence {
        self.fences.heard
    }

    /// A fence that was believed though it lies more than a year ahead of the clock, once.
    pub fn take_fence_ahead(&mut self) -> Option<Fence> {
        self.fences.ahead.take()
    }

    /// The last fence as it was saved in this server's own file, or by its primary.
    pub fn adopt_last_fence(&mut self, last: Fence, now: Now) {
        self.fences.adopt(last, now);
    }

    /// The fences to come leave room for those that this server does not know of.
    pub fn leap_fences(&mut self, beginning: Beginning, now: Now) {
        let (past_last, past_clock) = beginning.leaps_us();
        let last = (self.fences.last.0 + past_last).max(now.unix_us.saturating_add(past_clock));
        self.fences.last = Fence(last.min(Fence::MAX.0));
    }

    /// A node of the cluster has told of its last fence. Ones too far ahead are not believed.
    pub fn hear_fence(&mut self, fence: Fence, now: Now) {
        if !is_ahead(fence, now) || fence <= self.fences.last {
            self.fences.heard = self.fences.heard.max(fence);
        }
    }

    /// Keys that another node had are this server's from now on: the fences to come lie this far behind
    /// those that were heard of.
    pub fn leap_past_heard(&mut self, distance_us: u64) {
        let fences = &mut self.fences;
        if fences.heard > Fence(0) {
            let least = fences.heard.0.saturating_add(distance_us);
            fences.last = fences.last.max(Fence(least.min(Fence::MAX.0)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{LeaseUs, MonoUs};

    fn at(unix_us: u64) -> Now {
        Now {
            lease: LeaseUs(0),
            mono: MonoUs(0),
            unix_us,
            may_write: true,
        }
    }

    /// Both sides of a cut began an hour ahead of the clock, the old one later: it had been started again,
    /// and what it gave from then on outranked the one that had been promoted in its place.
    #[test]
    fn a_primary_that_starts_again_stays_below_the_one_promoted_in_its_place() {
        // It may itself have been started, or promoted, at any time before.
        for before in [None, Some(Beginning::Start), Some(Beginning::Promotion)] {
            for served_us in [0, MINUTE_US, 3 * HOUR_US] {
                let began = 10_000 * HOUR_US;
                let mut old = Engine::default();
                if let Some(before) = before {
                    old.leap_fences(before, at(began));
                }
                let cut = began + served_us;
                let known = old.fences.next(at(cut));
                let mut new = Engine::default();
                new.adopt_last_fence(known, at(cut));
                new.leap_fences(Beginning::Promotion, at(cut));
                for starts in 1..=9 {
                    old.leap_fences(Beginning::Start, at(cut + starts * 6 * MINUTE_US));
                }
                let late = old.fences.next(at(cut + HOUR_US));
                assert!(
                    late < new.last_fence(),
                    "{before:?}, then {served_us} µs: {late:?} of the old side"
                );
            }
        }
    }
}
