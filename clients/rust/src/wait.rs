//! How long a request may wait, and what it comes to: what both halves share of waiting.

use std::time::{Duration, Instant};

use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::request::Grant;
use crate::settings::TRY;

/// How long one BLOCK lasts. A connection that died without a word is noticed after this and the time for an answer, while
/// a server that took over still keeps the place.
pub(crate) const BLOCK: Duration = Duration::from_secs(2);

/// How long a request may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitLimit {
    /// It does not wait: a try.
    Try,
    Until(Instant),
    Unlimited,
}

impl WaitLimit {
    pub(crate) fn at_most(time: Duration) -> WaitLimit {
        let end = Instant::now().checked_add(time);
        end.map_or(WaitLimit::Unlimited, WaitLimit::Until)
    }

    /// When to give up a server that cannot be reached: when the time is up, but not before a try would.
    pub(crate) fn give_up_at(self, start: Instant) -> Option<Instant> {
        match self {
            WaitLimit::Try => Some(start + TRY),
            WaitLimit::Until(end) => Some(end.max(start + TRY)),
            WaitLimit::Unlimited => None,
        }
    }

    /// How much of this time is left; `None` when there is not a whole millisecond.
    pub(crate) fn left(self, of: Duration) -> Option<Duration> {
        match self {
            WaitLimit::Try => None,
            WaitLimit::Unlimited => Some(of),
            WaitLimit::Until(end) => {
                let left = end.saturating_duration_since(Instant::now());
                (left >= Duration::from_millis(1)).then_some(left.min(of))
            }
        }
    }
}

/// How a request that has ended so is to be withdrawn, because it may still be queued, or may even hold by now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Withdrawal {
    /// The server knows nothing of the request. An error of the server says that the request has changed nothing; the token
    /// may then be that of an older hold, which is not to be released.
    Not,
    /// The server answers, so the caller can wait for it.
    Now,
    /// The server does not answer, and the caller has waited long enough.
    InBackground,
}

impl Withdrawal {
    pub(crate) fn of(limit: WaitLimit, verdict: &Result<Verdict>) -> Withdrawal {
        match verdict {
            Err(Error::NotAcquired { .. }) if limit != WaitLimit::Try => Withdrawal::Now,
            Err(Error::Cancelled { .. }) => Withdrawal::Now,
            Err(error) if error.is_unreachable() => Withdrawal::InBackground,
            _ => Withdrawal::Not,
        }
    }
}

/// What a request has come to.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The moment is that at which the granted request was sent.
    Granted { grant: Grant, sent: Moment },
    Done {
        result: Option<Vec<u8>>,
        attempt: u64,
    },
}
