//! When a hold counts as lost, by the monotonic clock of this process.
//!
//! A server that does not answer is no comfort: when the network is cut, its leases run out all the same, and it serves
//! the next waiter. So a lease is counted from the moment at which the last successful request was *sent*, which is
//! never later than the moment at which the server began to count. The hold counts as lost a margin before that lease is
//! over, so that the work can stop while the hold still lasts.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Loss;

/// The lease of one hold. Once it is lost it stays lost, also when a late answer arrives: the work was stopped.
#[derive(Debug)]
pub(crate) struct Lease {
    length: Duration,
    /// The lease without the margin.
    certain: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    sent: Instant,
    loss: Option<Loss>,
    /// The holder has given the hold back: from then on nothing counts as a loss.
    is_over: bool,
}

impl Lease {
    pub(crate) fn new(length: Duration, margin: Option<Duration>, sent: Instant) -> Lease {
        let margin = margin.unwrap_or_else(|| default_margin(length));
        Lease {
            length,
            certain: length.saturating_sub(margin.min(length / 2)),
            state: Mutex::new(State {
                sent,
                loss: None,
                is_over: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Locks the state, and notes first whether the time is up.
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is a single assignment, so a panic elsewhere leaves the state whole.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.is_over && state.loss.is_none() && state.sent.elapsed() >= self.certain {
            state.loss = Some(Loss::Unanswered);
            self.changed.notify_all();
        }
        state
    }

    /// Notes that the server has renewed the lease in answer to a request that was sent at this moment.
    pub(crate) fn renewed(&self, sent: Instant) {
        let mut state = self.state();
        state.sent = state.sent.max(sent);
        // Without this a wait would sleep until the earlier end of the lease, which is harmless, and then go on.
        drop(state);
    }

    /// Notes that the server has said that the hold has ended.
    pub(crate) fn ended(&self) {
        let mut state = self.state();
        if !state.is_over && state.loss.is_none() {
            state.loss = Some(Loss::Ended);
        }
        self.changed.notify_all();
    }

    /// Notes that the holder gives the hold back. Returns why it was lost before, if it was.
    pub(crate) fn over(&self) -> Option<Loss> {
        let mut state = self.state();
        state.is_over = true;
        self.changed.notify_all();
        state.loss
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state().is_over
    }

    /// Returns how long the hold is certain without another renewal.
    pub(crate) fn left(&self) -> Duration {
        let state = self.state();
        match state.loss {
            Some(_) => Duration::ZERO,
            None => self.certain.saturating_sub(state.sent.elapsed()),
        }
    }

    /// Returns when the lease is over, the margin included.
    pub(crate) fn end(&self) -> Instant {
        let sent = self.state().sent;
        // A lease that never ends by this clock is certainly over later than a day, the longest that servers give.
        sent.checked_add(self.length)
            .unwrap_or_else(|| sent + Duration::from_secs(86_400))
    }

    /// Returns why the hold is lost, `None` while it is not.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.state().loss
    }

    pub(crate) fn length(&self) -> Duration {
        self.length
    }

    /// Returns how long to wait before the next renewal: until a third of the lease has passed since the last one was
    /// sent, and after a failure a part of what is left.
    pub(crate) fn renewal_in(&self, has_failed: bool) -> Duration {
        const SOON: Duration = Duration::from_millis(20);
        let left = self.left();
        if has_failed {
            return (left / 8).clamp(SOON, Duration::from_millis(500)).min(left);
        }
        let since = self.state().sent.elapsed();
        (self.length / 3).saturating_sub(since)
    }

    /// Waits until the hold is lost or given back, at most so long. Returns why it is lost.
    pub(crate) fn wait(&self, at_most: Duration) -> Option<Loss> {
        let start = Instant::now();
        loop {
            let mut state = self.state();
            if state.is_over || state.loss.is_some() {
                return state.loss;
            }
            let waited = start.elapsed();
            if waited >= at_most {
                return None;
            }
            let certain = self.certain.saturating_sub(state.sent.elapsed());
            let pause = certain.min(at_most - waited);
            state = match self.changed.wait_timeout(state, pause) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
            drop(state);
        }
    }
}

/// A tenth of the lease, at most two seconds.
fn default_margin(lease: Duration) -> Duration {
    (lease / 10).min(Duration::from_secs(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn lease_sent_before(length: Duration, margin: Duration, since: Duration) -> Lease {
        Lease::new(length, Some(margin), Instant::now() - since)
    }

    #[test]
    fn lease_counts_from_the_sent_request_and_ends_a_margin_earlier() {
        let lease = lease_sent_before(60 * SECOND, SECOND, 50 * SECOND);
        assert!(lease.left() <= 9 * SECOND && lease.left() > SECOND);
        assert_eq!(lease.loss(), None);
        let lease = lease_sent_before(60 * SECOND, 10 * SECOND, 50 * SECOND);
        assert_eq!(lease.loss(), Some(Loss::Unanswered));
        assert!(lease.left().is_zero());
    }

    #[test]
    fn lost_lease_stays_lost_when_a_late_answer_arrives() {
        let lease = lease_sent_before(60 * SECOND, SECOND, 59 * SECOND);
        lease.renewed(Instant::now());
        assert_eq!(lease.loss(), Some(Loss::Unanswered));
        assert!(lease.left().is_zero());
    }

    #[test]
    fn renewal_moves_the_end_and_never_back() {
        let lease = lease_sent_before(60 * SECOND, SECOND, 50 * SECOND);
        lease.renewed(Instant::now());
        assert!(lease.left() > 40 * SECOND);
        lease.renewed(Instant::now() - 50 * SECOND);
        assert!(lease.left() > 40 * SECOND);
        let end = lease.end();
        assert!(end > Instant::now() + 50 * SECOND && end <= Instant::now() + 60 * SECOND);
        lease.ended();
        assert_eq!(lease.loss(), Some(Loss::Ended));
    }

    #[test]
    fn lease_that_is_given_back_is_not_lost_later() {
        let lease = lease_sent_before(60 * SECOND, SECOND, Duration::ZERO);
        assert_eq!(lease.over(), None);
        lease.ended();
        assert_eq!(lease.loss(), None);
        assert_eq!(lease.wait(60 * SECOND), None);
    }

    #[test]
    fn default_margin_is_a_tenth_and_at_most_two_seconds() {
        assert_eq!(default_margin(10 * SECOND), SECOND);
        assert_eq!(default_margin(60 * SECOND), 2 * SECOND);
        // A margin never takes more than half of the lease.
        let lease = lease_sent_before(60 * SECOND, 90 * SECOND, Duration::ZERO);
        assert_eq!(lease.loss(), None);
    }

    #[test]
    fn renewal_is_due_at_a_third_of_the_lease() {
        let lease = lease_sent_before(60 * SECOND, SECOND, 5 * SECOND);
        let next = lease.renewal_in(false);
        assert!(next <= 15 * SECOND && next > 10 * SECOND);
        assert!(lease.renewal_in(true) <= SECOND);
    }
}
