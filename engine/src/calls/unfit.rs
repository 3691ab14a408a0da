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
    LongLease {
        lease_ms: u64,
        max_ms: u64,
    },
    /// A place is kept for longer, or for less long, than QUEUE allows.
    KeptFor {
        keep_ms: u32,
    },
    LongPause {
        left_ms: u64,
    },
    LongDelay {
        left_ms: u64,
        max_ms: u64,
    },
    /// A result or a tally is kept for longer than a command allows.
    LongKept {
        left_ms: u64,
        max_ms: u64,
    },
    /// A result or a reason is too long.
    LongText {
        bytes: u64,
        max_bytes: u64,
    },
    ManyPlaces {
        places: u64,
        full: FullQueue,
    },
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DAY_MORE: &str = "and a day more for the clock of another server";
        match self {
            Unfit::FenceAhead => {
                f.write_str("a fence in it lies more than a year ahead of this server's clock")
            }
            Unfit::MomentAhead => {
                f.write_str("a moment in it lies more than a year ahead of this server's clock")
            }
            Unfit::Full => f.write_str("there is no room for another key"),
            Unfit::LongLease { lease_ms, max_ms } => write!(
                f,
                "it has a lease of {lease_ms} ms, and dsync.max-lease-ms is {max_ms}"
            ),
            Unfit::KeptFor { keep_ms } => write!(
                f,
                "it keeps a place for {keep_ms} ms, and QUEUE allows {MIN_QUEUE_MS} to {MAX_QUEUE_MS}"
            ),
            Unfit::LongPause { left_ms } => write!(
                f,
                "its pause lasts {left_ms} ms more, and PAUSE allows {MAX_PAUSE_MS}, {DAY_MORE}"
            ),
            Unfit::LongDelay { left_ms, max_ms } => write!(
                f,
                "its delay lasts {left_ms} ms more, and dsync.max-lease-ms is {max_ms}, {DAY_MORE}"
            ),
            Unfit::LongKept { left_ms, max_ms } => write!(
                f,
                "its result or tally is kept for {left_ms} ms more, and {max_ms} is the longest, {DAY_MORE}"
            ),
            Unfit::LongText { bytes, max_bytes } => write!(
                f,
                "its result or reason has {bytes} bytes, and dsync.max-result-bytes is {max_bytes}"
            ),
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
        let pause = body.paused_until().map(|until| until.ms_left(now.unix()));
        if let Some(left_ms) = pause.filter(|left_ms| *left_ms > with_day(MAX_PAUSE_MS)) {
            return Err(Unfit::LongPause { left_ms });
        }
        if let Body::Group(group) = body {
            let tally = group.tally();
            self.check_moment(tally.touched, now)?;
            let displaced = match body.displaced() {
                Some(Displaced::Round(round)) => Some(round.keep_until),
                _ => None,
            };
            if let Some(finished) = tally.finished.or(displaced) {
                check_kept(finished, u64::from(LeaseMs::MAX.0), now)?;
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
        let Body::Once(once) = body else {
            return Ok(());
        };
        if let Some(until) = body.delayed_until() {
            let (left_ms, max_ms) = (until.ms_left(now.unix()), self.settings.max_lease_ms);
            if left_ms > with_day(max_ms) {
                return Err(Unfit::LongDelay { left_ms, max_ms });
            }
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
        check_kept(done.keep_until, MAX_KEEP_MS, now)
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
        let (queue, count) = (self.queues.find(db, name), places.len() as u64);
        let room = self
            .queues
            .check_room_for_loaded(queue, count, self.queue_bounds());
        let places = count;
        room.map_err(|full| Unfit::ManyPlaces { places, full })
    }

    fn check_lease(&self, lease: LeaseMs) -> Result<(), Unfit> {
        let (lease_ms, max_ms) = (u64::from(lease.0), self.settings.max_lease_ms);
        match lease_ms > max_ms {
            true => Err(Unfit::LongLease { lease_ms, max_ms }),
            false => Ok(()),
        }
    }

    fn check_text(&self, text: &[u8]) -> Result<(), Unfit> {
        let (bytes, max_bytes) = (text.len() as u64, self.settings.max_result_bytes);
        match bytes > max_bytes {
            true => Err(Unfit::LongText { bytes, max_bytes }),
            false => Ok(()),
        }
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

fn check_kept(until: UnixMs, max_ms: u64, now: Now) -> Result<(), Unfit> {
    let left_ms = until.ms_left(now.unix());
    match left_ms > with_day(max_ms) {
        true => Err(Unfit::LongKept { left_ms, max_ms }),
        false => Ok(()),
    }
}

/// Returns so many milliseconds, and as many more as the clock of another server may be ahead.
fn with_day(ms: u64) -> u64 {
    ms.saturating_add(CLOCKS_DIFFER_MS)
}
