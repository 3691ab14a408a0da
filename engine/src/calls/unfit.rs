//! What a payload may bring: nothing that a command would have refused here.
//!
//! Any client that may use RESTORE can make a payload by hand, so a server that decides compares each with the bounds of
//! its commands. Moments that another node wrote may be a day off, because clocks differ.
//!
//! Rejected: to clip what is beyond a bound. The server replicates RESTORE as it came, and a replica, which refuses
//! nothing, would keep what was clipped here.

use std::fmt;

use crate::answer::FullQueue;
use crate::change::{Displaced, KeptPlace, Reason};
use crate::engine::Engine;
use crate::hold::Hold;
use crate::saved::Loaded;
use crate::state::Body;
use crate::term::fences::AHEAD_US;
use crate::types::{
    Db, LeaseMs, MAX_KEEP_MS, MAX_PAUSE_MS, MAX_QUEUE_MS, MIN_QUEUE_MS, Now, UnixMs,
};

/// How far the clocks of two servers may differ.
const CLOCKS_DIFFER_MS: u64 = 86_400_000;

/// Why a state from elsewhere was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// A fence is more than a year ahead of the clock.
    FenceAhead,
    /// Another moment is more than a year ahead of the clock, and of the last fence.
    MomentAhead,
    /// There is no room for another state.
    Full,
    /// A place is kept for longer, or for less long, than QUEUE allows.
    KeptFor {
        keep_ms: u32,
    },
    /// Something is more than a command allows.
    Beyond {
        what: Bounded,
        value: u64,
        max: u64,
    },
    ManyPlaces {
        places: u64,
        full: FullQueue,
    },
}

/// What commands bound: a length, or a time. What ends at a moment may last a day more, because clocks differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bounded {
    Lease,
    Pause,
    Delay,
    /// For how long a result or a tally is kept.
    Kept,
    /// A result or a reason, in bytes.
    Text,
}

impl Bounded {
    /// Returns what is said before the value, between it and its bound, and after the bound.
    fn words(self) -> [&'static str; 3] {
        const DAY: &str = ", and a day more for the clock of another server";
        const LONGEST: &str = " is the longest, and a day more for the clock of another server";
        match self {
            Bounded::Lease => ["it has a lease of", "ms, and dsync.max-lease-ms is", ""],
            Bounded::Pause => ["its pause lasts", "ms more, and PAUSE allows", DAY],
            Bounded::Delay => ["its delay lasts", "ms more, and dsync.max-lease-ms is", DAY],
            Bounded::Kept => ["its result or tally is kept for", "ms more, and", LONGEST],
            Bounded::Text => [
                "its result or reason has",
                "bytes, and dsync.max-result-bytes is",
                "",
            ],
        }
    }

    fn at_most(self, max: u64, value: u64) -> Result<(), Unfit> {
        let slack_ms = match self {
            Bounded::Lease | Bounded::Text => 0,
            Bounded::Pause | Bounded::Delay | Bounded::Kept => CLOCKS_DIFFER_MS,
        };
        let what = self;
        match value > max.saturating_add(slack_ms) {
            true => Err(Unfit::Beyond { what, value, max }),
            false => Ok(()),
        }
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::FenceAhead => {
                f.write_str("a fence in it lies more than a year ahead of this server's clock")
            }
            Unfit::MomentAhead => {
                f.write_str("a moment in it lies more than a year ahead of this server's clock")
            }
            Unfit::Full => f.write_str("there is no room for another key"),
            Unfit::KeptFor { keep_ms } => write!(
                f,
                "it keeps a place for {keep_ms} ms, and QUEUE allows {MIN_QUEUE_MS} to {MAX_QUEUE_MS}"
            ),
            Unfit::Beyond { what, value, max } => {
                let [before, between, after] = what.words();
                write!(f, "{before} {value} {between} {max}{after}")
            }
            Unfit::ManyPlaces { places, full } => {
                let (bound, what) = match full {
                    FullQueue::Key { bound } => (bound, "dsync.max-waiters-per-key"),
                    FullQueue::Server { bound } => (bound, "dsync.max-waiters"),
                    FullQueue::HalfOfKey { bound } => (bound, "half of dsync.max-waiters-per-key"),
                    FullQueue::HalfOfServer { bound } => (bound, "half of dsync.max-waiters"),
                };
                write!(
                    f,
                    "there is no room for its {places} kept places: {what} is {bound}"
                )
            }
        }
    }
}

impl Engine {
    /// Checks a state that comes from a payload and will be stored under this name.
    ///
    /// # Errors
    /// For the first thing in it that no command would make here.
    pub(super) fn check_bounds(
        &self,
        loaded: &Loaded,
        db: Db,
        name: &[u8],
        now: Now,
    ) -> Result<(), Unfit> {
        let Loaded { body, places } = loaded;
        self.check_once(body, now)?;
        let mut holds = body.holds().iter();
        holds.try_for_each(|hold| self.check_hold(hold, now))?;
        if let Some(until) = body.paused_until() {
            Bounded::Pause.at_most(MAX_PAUSE_MS, until.ms_left(now.unix()))?;
        }
        if let Some(group) = body.group() {
            let tally = group.tally();
            self.check_moment(tally.touched, now)?;
            let displaced = match body.displaced() {
                Some(Displaced::Round(round)) => Some(round.keep_until),
                _ => None,
            };
            if let Some(finished) = tally.finished.or(displaced) {
                let max_ms = u64::from(LeaseMs::MAX.0);
                Bounded::Kept.at_most(max_ms, finished.ms_left(now.unix()))?;
            }
        }
        self.check_queued(places, db, name, now)
    }

    fn check_hold(&self, hold: &Hold, now: Now) -> Result<(), Unfit> {
        self.check_lease(hold.lease)?;
        if let Some(keep_ms) = hold.unheard_ms() {
            check_keep(keep_ms)?;
        }
        self.check_moment(hold.granted(), now)?;
        self.check_moment(hold.deadline(), now)
    }

    fn check_once(&self, body: &Body, now: Now) -> Result<(), Unfit> {
        let Some(once) = body.once() else {
            return Ok(());
        };
        if let Some(until) = body.delayed_until() {
            let max_ms = self.settings.max_lease_ms;
            Bounded::Delay.at_most(max_ms, until.ms_left(now.unix()))?;
        }
        let record = once.record();
        self.check_moment(record.touched, now)?;
        if let Some(Reason::Given(reason)) = &record.reason {
            self.check_text(reason)?;
        }
        let Some(done) = &record.done else {
            return Ok(());
        };
        if let Some(result) = &done.result {
            self.check_text(result)?;
        }
        if done.keep_until == UnixMs::NEVER {
            return Ok(());
        }
        Bounded::Kept.at_most(MAX_KEEP_MS, done.keep_until.ms_left(now.unix()))
    }

    /// Checks each of the places, and that there is room for all of them.
    fn check_queued(
        &self,
        places: &[KeptPlace],
        db: Db,
        name: &[u8],
        now: Now,
    ) -> Result<(), Unfit> {
        for place in places {
            self.check_lease(place.lease)?;
            check_keep(place.keep_ms)?;
            self.check_moment(place.since, now)?;
        }
        // They come only to a name without kept places: see `adopt_places_of`.
        if self.queues.find_kept(db, name).is_some() {
            return Ok(());
        }
        let (queue, bounds) = (self.queues.find(db, name), self.queue_bounds());
        let places = places.len() as u64;
        let room = (self.queues).check_room_for_loaded(queue, places, bounds);
        room.map_err(|full| Unfit::ManyPlaces { places, full })
    }

    fn check_lease(&self, lease: LeaseMs) -> Result<(), Unfit> {
        Bounded::Lease.at_most(self.settings.max_lease_ms, lease.0.into())
    }

    fn check_text(&self, text: &[u8]) -> Result<(), Unfit> {
        Bounded::Text.at_most(self.settings.max_result_bytes, text.len() as u64)
    }

    /// Checks that a moment is at most a year ahead. A server whose own fences are ahead of its clock, because the clock
    /// was set back, compares with the last fence.
    fn check_moment(&self, moment: UnixMs, now: Now) -> Result<(), Unfit> {
        let latest = now.unix().max(self.term.fences.last().unix());
        match moment > latest.after_ms(AHEAD_US / 1_000) {
            true => Err(Unfit::MomentAhead),
            false => Ok(()),
        }
    }
}

fn check_keep(keep_ms: u32) -> Result<(), Unfit> {
    match (MIN_QUEUE_MS..=MAX_QUEUE_MS).contains(&u64::from(keep_ms)) {
        true => Ok(()),
        false => Err(Unfit::KeptFor { keep_ms }),
    }
}
