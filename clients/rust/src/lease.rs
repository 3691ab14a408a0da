//! When a hold counts as lost, by the clock of this machine.
//!
//! A server that does not answer is no comfort: when the network is cut, its leases run out all the same, and it serves
//! the next waiter. So a lease is counted from the moment at which the last successful request was *sent*, which is
//! never later than the moment at which the server began to count. The hold counts as lost a margin before that lease is
//! over, so that the work can stop while the hold still lasts.
//!
//! Whoever waits for the loss looks again after a slice of time, because no wait that systems offer goes on while the
//! machine is suspended. Waiting opens no connection, and the lock in here is held for a few instructions only.

use std::process;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::clock::Moment;
use crate::error::Loss;

/// The shortest slice of a wait.
const SHORTEST_SLICE: Duration = Duration::from_millis(50);

/// The lease of one hold. Once it is lost it stays lost, also when a late answer arrives: the work was stopped.
#[derive(Debug)]
pub(crate) struct Lease {
    length: Duration,
    /// The lease without the margin.
    certain: Duration,
    /// How long a wait lasts at most before it looks at the clock again.
    slice: Duration,
    /// The process that got the hold. A child that was forked since has nothing: the parent goes on.
    process: u32,
    state: Mutex<State>,
    /// Told when the hold is lost or over: threads that wait for that, and tasks.
    changed: Condvar,
    #[cfg(feature = "tokio")]
    told: tokio::sync::Notify,
    /// How far the clock of a test has gone while its machine was suspended.
    #[cfg(test)]
    suspended: Mutex<Duration>,
}

#[derive(Debug)]
struct State {
    sent: Moment,
    loss: Option<Loss>,
    /// The holder has given the hold back: from then on nothing counts as a loss.
    is_over: bool,
}

/// What one who waits for the end of a hold finds.
enum Look {
    /// The hold is lost, or given back.
    Ended(Option<Loss>),
    /// The moment until which to wait has come.
    Late,
    /// It is worth looking again after so long.
    In(Duration),
}

impl Lease {
    pub(crate) fn new(length: Duration, margin: Option<Duration>, sent: Moment) -> Lease {
        let usual = default_margin(length);
        let margin = margin.unwrap_or(usual);
        let slice = if margin.is_zero() {
            usual
        } else {
            margin.min(usual)
        };
        Lease {
            length,
            certain: length.saturating_sub(margin),
            slice: slice.max(SHORTEST_SLICE),
            process: process::id(),
            state: Mutex::new(State {
                sent,
                loss: None,
                is_over: false,
            }),
            changed: Condvar::new(),
            #[cfg(feature = "tokio")]
            told: tokio::sync::Notify::new(),
            #[cfg(test)]
            suspended: Mutex::default(),
        }
    }

    /// Whether this process is a child of the one that got the hold. To be asked first: in a child, a lock may stay
    /// locked for ever.
    pub(crate) fn is_of_the_parent(&self) -> bool {
        self.process != process::id()
    }

    #[cfg(not(test))]
    fn now(&self) -> Moment {
        Moment::now()
    }

    #[cfg(test)]
    fn now(&self) -> Moment {
        Moment::now().after(*self.suspended.lock().unwrap())
    }

    /// Locks the state, and notes first whether the time is up.
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is a single assignment, so a panic elsewhere leaves the state whole.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_late = self.now().since(state.sent) >= self.certain;
        if is_late && !state.is_over && state.loss.is_none() {
            state.loss = Some(Loss::Unanswered);
            self.tell();
        }
        state
    }

    fn tell(&self) {
        self.changed.notify_all();
        #[cfg(feature = "tokio")]
        self.told.notify_waiters();
    }

    /// Notes that the server has renewed the lease in answer to a request that was sent at this moment.
    pub(crate) fn renewed(&self, sent: Moment) {
        let mut state = self.state();
        // Those who wait need not be told: they look again at the earlier end of the lease.
        state.sent = state.sent.max(sent);
    }

    /// Notes that the server has said that the hold has ended.
    pub(crate) fn ended(&self) {
        let mut state = self.state();
        if !state.is_over && state.loss.is_none() {
            state.loss = Some(Loss::Ended);
        }
        self.tell();
    }

    /// Notes that the holder gives the hold back. Returns why it was lost before, if it was.
    pub(crate) fn over(&self) -> Option<Loss> {
        let mut state = self.state();
        state.is_over = true;
        self.tell();
        state.loss
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state().is_over
    }

    /// Returns how long the hold is certain without another renewal.
    pub(crate) fn left(&self) -> Duration {
        if self.is_of_the_parent() {
            return Duration::ZERO;
        }
        let state = self.state();
        match state.loss {
            Some(_) => Duration::ZERO,
            None => self.certain.saturating_sub(self.now().since(state.sent)),
        }
    }

    /// Returns when the lease is over, the margin included, by a clock that stands still in a suspension: it is right for
    /// a look now.
    pub(crate) fn end(&self) -> Instant {
        let (now, clock) = (Instant::now(), self.now());
        let end = self.state().sent.after(self.length);
        match end.since(clock) {
            Duration::ZERO => now.checked_sub(clock.since(end)).unwrap_or(now),
            left => now + left,
        }
    }

    /// Returns why the hold is lost, `None` while it is not.
    pub(crate) fn loss(&self) -> Option<Loss> {
        if self.is_of_the_parent() {
            return Some(Loss::Forked);
        }
        self.state().loss
    }

    pub(crate) fn length(&self) -> Duration {
        self.length
    }

    /// Returns when the next renewal is due: when a third of the lease has passed since the last one was sent, and after a
    /// failure when a part of what is left has.
    pub(crate) fn renewal_due(&self, has_failed: bool) -> Moment {
        const SOON: Duration = Duration::from_millis(20);
        let left = self.left();
        if has_failed {
            let pause = (left / 8).clamp(SOON, Duration::from_millis(500)).min(left);
            return self.now().after(pause);
        }
        self.state().sent.after(self.length / 3)
    }

    /// Looks at a hold that is waited for, at most until a moment.
    fn look(&self, state: &State, until: Option<Moment>) -> Look {
        if state.is_over || state.loss.is_some() {
            return Look::Ended(state.loss);
        }
        let now = self.now();
        if until.is_some_and(|until| until <= now) {
            return Look::Late;
        }
        let certain = self.certain.saturating_sub(now.since(state.sent));
        let left = until.map_or(certain, |until| until.since(now));
        Look::In(certain.min(left).min(self.slice))
    }

    /// Waits until the hold is lost or given back, at most until a moment. Returns why it is lost.
    pub(crate) fn wait_until(&self, moment: Moment) -> Option<Loss> {
        if self.is_of_the_parent() {
            return Some(Loss::Forked);
        }
        loop {
            let state = self.state();
            let pause = match self.look(&state, Some(moment)) {
                Look::Ended(loss) => return loss,
                Look::Late => return None,
                Look::In(pause) => pause,
            };
            // The clock is read anew after each slice, so it does not matter why the wait has ended.
            drop(self.changed.wait_timeout(state, pause));
        }
    }

    /// Waits until the hold is lost or given back, at most so long. Returns why it is lost.
    pub(crate) fn wait(&self, at_most: Duration) -> Option<Loss> {
        self.wait_until(self.now().after(at_most))
    }
}

#[cfg(feature = "tokio")]
impl Lease {
    /// Waits until the hold is lost, and returns why, or until it was given back.
    pub(crate) async fn lost(&self) -> Option<Loss> {
        self.ended_by(None).await.unwrap_or_default()
    }

    /// Waits until the hold is lost or given back, at most until a moment. Returns `None` when it is neither by then.
    pub(crate) async fn ended_by(&self, moment: Option<Moment>) -> Option<Option<Loss>> {
        if self.is_of_the_parent() {
            return Some(Some(Loss::Forked));
        }
        loop {
            // Made before the look, so that what happens after the look is told.
            let told = self.told.notified();
            let look = self.look(&self.state(), moment);
            match look {
                Look::Ended(loss) => return Some(loss),
                Look::Late => return None,
                Look::In(pause) => drop(tokio::time::timeout(pause, told).await),
            }
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
    use std::sync::Arc;
    use std::sync::mpsc;
    use std::thread;

    const SECOND: Duration = Duration::from_secs(1);

    /// After so long, a thread or a task that was started waits.
    const WAITS: Duration = Duration::from_millis(500);

    fn lease_sent_before(length: Duration, margin: Duration, since: Duration) -> Lease {
        Lease::new(length, Some(margin), Moment::now().before(since))
    }

    impl Lease {
        /// The machine sleeps so long: its monotonic clock stands still, and no wait of the system goes on.
        fn suspend(&self, time: Duration) {
            *self.suspended.lock().unwrap() += time;
        }
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
        lease.renewed(Moment::now());
        assert_eq!(lease.loss(), Some(Loss::Unanswered));
        assert!(lease.left().is_zero());
    }

    #[test]
    fn renewal_moves_the_end_and_never_back() {
        let lease = lease_sent_before(60 * SECOND, SECOND, 50 * SECOND);
        lease.renewed(Moment::now());
        assert!(lease.left() > 40 * SECOND);
        lease.renewed(Moment::now().before(50 * SECOND));
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
    }

    #[test]
    fn renewal_is_due_at_a_third_of_the_lease() {
        let lease = lease_sent_before(60 * SECOND, SECOND, 5 * SECOND);
        let next = lease.renewal_due(false).since(Moment::now());
        assert!(next <= 15 * SECOND && next > 10 * SECOND);
        assert!(lease.renewal_due(true).since(Moment::now()) <= SECOND);
    }

    #[test]
    fn loss_is_told_to_a_thread_when_the_machine_goes_on_after_a_suspension() {
        let lease = lease_sent_before(600 * SECOND, 2 * SECOND, Duration::ZERO);
        let lease = Arc::new(lease);
        let (tell, told) = mpsc::channel();
        let watching = Arc::clone(&lease);
        thread::spawn(move || tell.send(watching.wait(3600 * SECOND)));
        thread::sleep(WAITS);
        lease.suspend(900 * SECOND);
        // Long before the 600 s that the waits of the system would still last.
        let loss = told.recv_timeout(60 * SECOND);
        assert_eq!(loss, Ok(Some(Loss::Unanswered)));
        assert!(lease.end() <= Instant::now());
    }

    #[test]
    fn renewal_that_is_due_after_a_suspension_is_made_at_once() {
        let lease = lease_sent_before(600 * SECOND, 2 * SECOND, Duration::ZERO);
        let lease = Arc::new(lease);
        let (tell, told) = mpsc::channel();
        let renewing = Arc::clone(&lease);
        thread::spawn(move || tell.send(renewing.wait_until(renewing.renewal_due(false))));
        thread::sleep(WAITS);
        lease.suspend(300 * SECOND);
        assert_eq!(told.recv_timeout(60 * SECOND), Ok(None));
    }

    #[cfg(feature = "tokio")]
    #[tokio::test(flavor = "multi_thread")]
    async fn loss_is_told_to_a_task_when_the_machine_goes_on_after_a_suspension() {
        let lease = lease_sent_before(600 * SECOND, 2 * SECOND, Duration::ZERO);
        let lease = Arc::new(lease);
        let watching = Arc::clone(&lease);
        let task = tokio::spawn(async move { watching.lost().await });
        tokio::time::sleep(WAITS).await;
        lease.suspend(900 * SECOND);
        let loss = tokio::time::timeout(60 * SECOND, task).await;
        assert_eq!(loss.unwrap().unwrap(), Some(Loss::Unanswered));
    }

    #[test]
    fn child_of_a_fork_holds_nothing() {
        let mut lease = lease_sent_before(60 * SECOND, SECOND, Duration::ZERO);
        lease.process = lease.process.wrapping_add(1);
        // In a child, the thread that held this lock does not exist.
        let _locked = lease.state.lock().unwrap();
        assert_eq!(lease.loss(), Some(Loss::Forked));
        assert_eq!(lease.wait(60 * SECOND), Some(Loss::Forked));
        assert!(lease.left().is_zero());
    }
}
