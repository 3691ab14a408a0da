//! How long a request may wait, and what it comes to: what both halves share of waiting.

use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// How long one BLOCK lasts, so that a connection that died without a word is noticed soon.
const BLOCK: Duration = Duration::from_secs(5);

/// How long one BLOCK lasts when something is to be done in between: to tell the progress of the wait, for example.
pub(crate) const SHORT_BLOCK: Duration = Duration::from_secs(2);

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
    pub(crate) fn next_block(self, is_short: bool) -> Option<Duration> {
        self.left(if is_short { SHORT_BLOCK } else { BLOCK })
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

/// Whether a request that has ended so may still be queued, or may even hold by now. An error of the server says that the
/// request has changed nothing; the token may then be that of an older hold, which is not to be released.
pub(crate) fn is_to_be_withdrawn(limit: WaitLimit, verdict: &Result<Verdict>) -> bool {
    match verdict {
        Err(Error::NotAcquired { .. }) => limit != WaitLimit::Try,
        Err(Error::Cancelled { .. }) => true,
        Err(error) => error.is_unreachable(),
        Ok(_) => false,
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
