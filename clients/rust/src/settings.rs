//! The settings of a client, and the times that all of its requests share.

use std::time::{Duration, Instant};

/// How long a try lasts at most, whatever the server does.
pub(crate) const TRY: Duration = Duration::from_secs(2);

/// How long to wait for an answer that the caller can do without: who holds, or that a request is withdrawn.
const COURTESY: Duration = Duration::from_secs(1);

/// The same after a try, of whose time it is a part.
const COURTESY_OF_TRY: Duration = Duration::from_millis(500);

/// How long one BLOCK lasts. A connection that died without a word is noticed after this and the time for an answer, while
/// a server that took over still keeps the place.
pub(crate) const BLOCK: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
pub struct Settings {
    pub(crate) response_timeout: Duration,
    pub(crate) patience: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            response_timeout: Duration::from_secs(2),
            patience: Duration::from_secs(30),
        }
    }
}

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

/// How hard to try to get an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// How long to wait for a connection, and for the reply beyond what the server may wait.
    pub(crate) response: Duration,
    /// How long to repeat a command from its first failure on.
    pub(crate) patience: Duration,
    /// When to give up in any case.
    pub(crate) give_up_at: Option<Instant>,
}

impl Settings {
    /// For a command that the caller needs an answer to.
    pub(crate) fn effort(&self) -> Effort {
        Effort {
            response: self.response_timeout,
            patience: self.patience,
            give_up_at: None,
        }
    }

    /// For one attempt.
    pub(crate) fn attempt(&self) -> Effort {
        self.effort().with_patience(Duration::ZERO)
    }

    /// For one attempt at what the caller can do without, connecting included.
    pub(crate) fn courtesy(&self, is_try: bool) -> Effort {
        let longest = if is_try { COURTESY_OF_TRY } else { COURTESY };
        Effort {
            response: self.response_timeout.min(longest),
            give_up_at: Some(Instant::now() + longest),
            ..self.attempt()
        }
    }
}

impl Effort {
    pub(crate) fn with_patience(self, patience: Duration) -> Effort {
        Effort { patience, ..self }
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
        first_failure.elapsed() + pause > self.patience || self.give_up_at.is_some_and(is_late)
    }
}
