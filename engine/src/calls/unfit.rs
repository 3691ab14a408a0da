//! What a payload may bring: nothing that a command would have refused here.
//!
//! Any client that may use RESTORE can make a payload by hand, so a server that decides compares each with the bounds of
//! its commands. Moments that another node wrote may be a day off, because clocks differ.
//!
//! Rejected: to clip what is beyond a bound. The server replicates RESTORE as it came, and a replica, which refuses
//! nothing, would keep what was clipped here.

use thiserror::Error;

use crate::answer::FullQueue;
use crate::change::{Change, ChangeView, Displaced, KeptPlace, Reason};
use crate::engine::Engine;
use crate::saved::Loaded;
use crate::state::Closing;
use crate::term::fences::AHEAD_US;
use crate::types::{Db, LeaseMs, MAX_KEEP_MS, MAX_QUEUE_MS, MIN_QUEUE_MS, Now, UnixMs};

/// How far the clocks of two servers may differ.
const CLOCKS_DIFFER_MS: u64 = 86_400_000;
/// How long the tally of a finished round may be kept: no setting allows more.
const MAX_TALLY_MS: u64 = LeaseMs::MAX.0 as u64;
/// What is said of a bound that is compared with a moment of another clock.
const DAY: &str = "and a day more for the clock of another server";

/// Why a state from elsewhere was refused. Of two numbers, the first is what it has, and the second is the bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Unfit {
    #[error("a fence in it lies more than a year ahead of this server's clock")]
    FenceAhead,
    /// Another moment is more than a year ahead of the clock, and of the last fence.
    #[error("a moment in it lies more than a year ahead of this server's clock")]
    MomentAhead,
    #[error("there is no room for another key")]
    Full,
    #[error("it keeps a place for {0} ms, and QUEUE allows {MIN_QUEUE_MS} to {MAX_QUEUE_MS}")]
    Place(u32),
    #[error("it has a lease of {0} ms, and dsync.max-lease-ms is {1}")]
    Lease(u64, u64),
    #[error("it has a MINHOLD of {0} ms, and dsync.max-lease-ms is {1}")]
    MinHold(u64, u64),
    #[error("its {name} lasts {left_ms} ms more, and {bound} {max}, {DAY}")]
    Closed {
        name: &'static str,
        left_ms: u64,
        bound: &'static str,
        max: u64,
    },
    #[error("its result or tally is kept for {0} ms more, and {1} is the longest, {DAY}")]
    Kept(u64, u64),
    #[error("its result or reason has {0} bytes, and dsync.max-result-bytes is {1}")]
    Text(u64, u64),
    #[error("there is no room for its {places} kept places: {}", bound_of(*full))]
    ManyPlaces { places: u64, full: FullQueue },
}

fn bound_of(full: FullQueue) -> String {
    match full {
        FullQueue::Key(bound) => format!("dsync.max-waiters-per-key is {bound}"),
        FullQueue::Server(bound) => format!("dsync.max-waiters is {bound}"),
        FullQueue::HalfOfKey(bound) => format!("half of dsync.max-waiters-per-key is {bound}"),
        FullQueue::HalfOfServer(bound) => format!("half of dsync.max-waiters is {bound}"),
        FullQueue::Lane(places) => format!("its lane has {places} places"),
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
        let mut changes = loaded.body.changes();
        changes.try_for_each(|change| self.check_change(&change, now))?;
        let mut places = loaded.places.iter();
        places.try_for_each(|place| self.check_place(place, now))?;
        let mut closings = loaded.body.closings().into_iter();
        closings.try_for_each(|closing| self.check_closing(&closing, now))?;
        // Places come only to a name without kept places: see `adopt_places_of`.
        let places = loaded.places.len() as u64;
        if places == 0 || self.queues.find_kept(db, name).is_some() {
            return Ok(());
        }
        let (queue, queues, settings) = (self.queues.find(db, name), &self.queues, &self.settings);
        let check = |kept| queues.check_room(queue, places, kept, settings);
        (check(true).and_then(|()| check(false))).map_err(|full| Unfit::ManyPlaces { places, full })
    }

    fn check_change(&self, change: &ChangeView<'_>, now: Now) -> Result<(), Unfit> {
        let change = match change {
            ChangeView::Other(change) => change,
            ChangeView::Grant(grant) => {
                self.check_leases(grant.lease, grant.rest.after())?;
                self.check_moment(grant.granted, now)?;
                return self.check_moment(grant.deadline, now);
            }
        };
        match change {
            Change::Unheard { keep_ms, .. } => check_keep(*keep_ms),
            Change::Tally(tally) => {
                self.check_moment(tally.touched, now)?;
                let finished = tally.finished.unwrap_or_default();
                check_end(finished, now, MAX_TALLY_MS, Unfit::Kept)
            }
            Change::Displaced(Displaced::Round(round)) => {
                check_end(round.keep_until, now, MAX_TALLY_MS, Unfit::Kept)
            }
            Change::Record(record) => {
                self.check_moment(record.touched, now)?;
                if let Some(Reason::Given(reason)) = &record.reason {
                    self.check_text(reason)?;
                }
                let Some(done) = &record.done else {
                    return Ok(());
                };
                self.check_text(done.result.as_deref().unwrap_or_default())?;
                match done.keep_until {
                    UnixMs::NEVER => Ok(()),
                    end => check_end(end, now, MAX_KEEP_MS, Unfit::Kept),
                }
            }
            _ => Ok(()),
        }
    }

    fn check_place(&self, place: &KeptPlace, now: Now) -> Result<(), Unfit> {
        self.check_leases(place.lease, place.min_hold)?;
        check_keep(place.keep_ms)?;
        self.check_moment(place.since, now)
    }

    fn check_closing(&self, closing: &Closing, now: Now) -> Result<(), Unfit> {
        let (name, (bound, max_ms)) = (closing.name, (closing.longest)(&self.settings));
        check_end(closing.until, now, max_ms, |left_ms, max| Unfit::Closed {
            name,
            left_ms,
            bound,
            max,
        })
    }

    fn check_leases(&self, lease: LeaseMs, min_hold: Option<LeaseMs>) -> Result<(), Unfit> {
        let max_ms = self.settings.max_lease_ms;
        at_most(max_ms, 0, lease.0.into(), Unfit::Lease)?;
        let min_hold_ms = min_hold.map_or(0, |min_hold| min_hold.0.into());
        at_most(max_ms, 0, min_hold_ms, Unfit::MinHold)
    }

    fn check_text(&self, text: &[u8]) -> Result<(), Unfit> {
        let len = text.len() as u64;
        at_most(self.settings.max_result_bytes, 0, len, Unfit::Text)
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
        false => Err(Unfit::Place(keep_ms)),
    }
}

/// Checks that no more than `max_ms` is left until the end. `unfit` gets what is left, and `max_ms`.
fn check_end(
    end: UnixMs,
    now: Now,
    max_ms: u64,
    unfit: impl FnOnce(u64, u64) -> Unfit,
) -> Result<(), Unfit> {
    let left_ms = end.ms_left(now.unix());
    at_most(max_ms, CLOCKS_DIFFER_MS, left_ms, unfit)
}

fn at_most(
    max: u64,
    slack: u64,
    value: u64,
    unfit: impl FnOnce(u64, u64) -> Unfit,
) -> Result<(), Unfit> {
    match value > max.saturating_add(slack) {
        true => Err(unfit(value, max)),
        false => Ok(()),
    }
}
