//! How hard a client tries to get an answer, and how long a request waits.

use std::time::{Duration, Instant};

use crate::times::{ANSWER_WITHIN, RETRY_FOR, TRY_WITHIN, WITHDRAW_TRY_WITHIN, WITHDRAW_WITHIN};

/// How long a request may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitLimit {
    /// It does not wait: a try.
    Try,
    Until(Instant),
    Unlimited,
}

impl WaitLimit {
    /// A wait of no time is a try.
    pub(crate) fn at_most(time: Duration) -> WaitLimit {
        if time.is_zero() {
            return WaitLimit::Try;
        }
        let end = Instant::now().checked_add(time);
        end.map_or(WaitLimit::Unlimited, WaitLimit::Until)
    }

    /// When to give up a server that cannot be reached: when the time is up, but not before a try would.
    pub(crate) fn give_up_at(self, start: Instant) -> Option<Instant> {
        match self {
            WaitLimit::Try => Some(start + TRY_WITHIN - WITHDRAW_TRY_WITHIN),
            WaitLimit::Until(end) => Some(end.max(start + TRY_WITHIN)),
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

/// How hard to try to get an answer.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// How long to wait for a connection, and for the reply beyond what the server may wait.
    pub(crate) response: Duration,
    /// How long to repeat a command from its first failure on.
    pub(crate) retry_for: Duration,
    /// When to give up in any case.
    pub(crate) give_up_at: Option<Instant>,
}

impl Default for Effort {
    fn default() -> Effort {
        Effort {
            response: ANSWER_WITHIN,
            retry_for: RETRY_FOR,
            give_up_at: None,
        }
    }
}

impl Effort {
    /// For one attempt.
    pub(crate) fn once(self) -> Effort {
        self.with_retry_for(Duration::ZERO)
    }

    /// For one attempt at what the caller can do without, as a withdrawal, connecting included.
    pub(crate) fn withdrawal(self, is_try: bool) -> Effort {
        let longest = match is_try {
            true => WITHDRAW_TRY_WITHIN,
            false => WITHDRAW_WITHIN,
        };
        Effort {
            response: self.response.min(longest),
            give_up_at: Some(Instant::now() + longest),
            ..self.once()
        }
    }

    pub(crate) fn with_retry_for(self, retry_for: Duration) -> Effort {
        Effort { retry_for, ..self }
    }

    /// How long to wait for a reply now.
    pub(crate) fn limit(&self) -> Duration {
        self.at_most(self.response)
    }

    /// How long to wait for a connection now.
    pub(crate) fn connect_limit(&self) -> Duration {
        self.at_most(self.response * 2)
    }

    /// How long to wait for a step of connecting now, in a cluster: a quarter of the time for a reply. A node that does not
    /// answer is met several times, when the slots are asked for and when all nodes are greeted. What is waited for
    /// meanwhile, a renewal for example, is for another node.
    pub(crate) fn connect_step_limit(&self) -> Duration {
        self.at_most(self.response / 4)
    }

    pub(crate) fn at_most(&self, time: Duration) -> Duration {
        const SHORTEST: Duration = Duration::from_millis(1);
        let left = self
            .give_up_at
            .map(|end| end.saturating_duration_since(Instant::now()));
        left.map_or(time, |left| left.min(time)).max(SHORTEST)
    }

    /// Whether another attempt, after a pause, would be too late.
    pub(crate) fn is_over(&self, first_failure: Instant, pause: Duration) -> bool {
        let is_late = |end| Instant::now() + pause >= end;
        first_failure.elapsed() + pause > self.retry_for || self.give_up_at.is_some_and(is_late)
    }
}
