//! How long a request may wait, and what it comes to: what both halves share of waiting.

use std::time::{Duration, Instant};

/// How long one BLOCK lasts. The progress is told in between.
const BLOCK: Duration = Duration::from_secs(2);

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

    /// How long the next BLOCK may last; `None` when the time is up.
    pub(crate) fn next_block(self) -> Option<Duration> {
        self.left(BLOCK)
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

/// What a request has come to.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The moment is that at which the granted request was sent.
    Granted {
        fence: u64,
        attempt: u64,
        sent: Instant,
    },
    Done {
        result: Option<Vec<u8>>,
        attempt: u64,
    },
}
