//! How long a request may wait.

use std::time::{Duration, Instant};

use crate::settings::{COURTESY_OF_TRY, TRY};

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
            WaitLimit::Try => Some(start + TRY - COURTESY_OF_TRY),
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
