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
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::bounds;
use crate::clock::Moment;
use crate::confirm::Failure;
use crate::error::{Loss, Result};
use crate::signal::{Signal, Wait, lock};
use crate::times::{LEASE, MARGIN_AT_MOST};

/// The shortest slice of a wait.
const SHORTEST_SLICE: Duration = Duration::from_millis(50);

/// How long a lease is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Terms {
    pub(crate) lease: Duration,
    /// A tenth of the lease, at most two seconds, unless it is given.
    pub(crate) margin: Option<Duration>,
    /// How long after its grant the hold is lost in any case.
    pub(crate) max_hold: Option<Duration>,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms {
            lease: LEASE,
            margin: None,
            max_hold: None,
        }
    }
}

impl Terms {
    pub(crate) fn check(&self) -> Result<()> {
        bounds::time("lease", self.lease, bounds::LEASE)?;
        let (margin, lease) = (self.margin(), self.lease);
        bounds::check("margin", &margin, margin < lease, "less than the lease")?;
        let longest = self.max_hold.unwrap_or(Duration::MAX);
        let bound = "longer than the margin";
        bounds::check("max_hold", &longest, longest > margin, bound)
    }

    /// What a request asks for so long after the grant.
    pub(crate) fn asks(self, held: Duration) -> Asked {
        let left = self.max_hold.map(|time| time.saturating_sub(held));
        let length = left.map_or(self.lease, |left| self.lease.min(left));
        Asked {
            terms: self,
            length,
        }
    }

    fn margin(&self) -> Duration {
        self.margin.unwrap_or_else(|| usual_margin(self.lease))
    }

    /// How long a wait lasts at most before it looks at the clock again.
    fn slice(&self) -> Duration {
        let usual = usual_margin(self.lease);
        let given = self.margin.filter(|margin| !margin.is_zero());
        given
            .map_or(usual, |margin| margin.min(usual))
            .max(SHORTEST_SLICE)
    }
}

/// What a request asks for: the whole lease, or what is left of [`max_hold`](Terms::max_hold).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Asked {
    terms: Terms,
    pub(crate) length: Duration,
}

impl Asked {
    /// For how long after it was sent the hold is certain.
    fn certain(&self) -> Duration {
        self.length.saturating_sub(self.terms.margin())
    }
}

/// The lease of one hold. Once it is lost it stays lost, also when a late answer arrives: the work was stopped.
#[derive(Debug)]
pub(crate) struct Lease {
    /// The process that got the hold. A child that was forked since has nothing: the parent goes on.
    process: u32,
    state: Mutex<State>,
    /// Told when the hold is lost or over.
    changed: Signal,
    /// How far the clock of a test has gone while its machine was suspended.
    #[cfg(test)]
    suspended: Mutex<Duration>,
}

#[derive(Debug)]
struct State {
    /// What renewals ask for.
    wanted: Terms,
    /// When the request that was granted was sent.
    granted: Moment,
    /// What the last request that was answered has asked for, or less while a shorter lease that was asked for since has no
    /// answer: the server may have carried it out.
    asked: Asked,
    /// When the last request that was answered was sent.
    sent: Moment,
    /// When the next renewal is to be sent; `None` while one is on its way.
    due: Option<Moment>,
    /// Whether the last renewal has failed with its connection.
    is_cut_off: bool,
    /// When the holder has asked for a renewal.
    wanted_at: Option<Moment>,
    /// The last renewal that was refused for good: when it was sent, and why.
    refused: Option<(Moment, Failure)>,
    loss: Option<Loss>,
    /// The holder has given the hold back: from then on nothing counts as a loss.
    is_over: bool,
}

impl State {
    fn has_ended(&self) -> bool {
        self.is_over || self.loss.is_some()
    }

    /// How long the hold is certain without another renewal, if it has not ended.
    fn left(&self, now: Moment) -> Duration {
        self.asked.certain().saturating_sub(now.since(self.sent))
    }

    /// Why the hold is lost whose lease is over.
    fn why(&self) -> Loss {
        let is_last = |time| self.sent.after(self.asked.length) >= self.granted.after(time);
        match self.wanted.max_hold {
            Some(time) if is_last(time) => Loss::MaxHold,
            _ => Loss::Unanswered,
        }
    }
}

/// What the one who renews finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Renewal {
    /// The hold has ended.
    Not,
    /// It is to be sent now, and asks for so long.
    Due(Asked),
    /// It is worth looking again after so long.
    In(Duration),
}

/// When a third of the lease is over, or a hundredth of it before: so holds that were asked for at nearly the same time are
/// due at one moment, and are renewed in one write.
fn third(sent: Moment, lease: Duration) -> Moment {
    sent.after(lease / 3).floor(lease / 100)
}

impl Lease {
    pub(crate) fn new(terms: Terms, sent: Moment) -> Lease {
        Lease {
            process: process::id(),
            state: Mutex::new(State {
                wanted: terms,
                granted: sent,
                asked: terms.asks(Duration::ZERO),
                sent,
                due: Some(third(sent, terms.lease)),
                is_cut_off: false,
                wanted_at: None,
                refused: None,
                loss: None,
                is_over: false,
            }),
            changed: Signal::default(),
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
        let mut state = lock(&self.state);
        if !state.has_ended() && state.left(self.now()).is_zero() {
            state.loss = Some(state.why());
            self.changed.tell();
        }
        state
    }

    /// Notes that the server has renewed the lease, in answer to a request that was sent at this moment.
    pub(crate) fn renewed(&self, sent: Moment, asked: Asked) {
        let mut state = self.state();
        state.is_cut_off = false;
        if sent >= state.sent {
            (state.sent, state.asked) = (sent, asked);
        }
        let is_wanted_since = state.wanted_at.is_some_and(|wanted| wanted > sent);
        let next = third(sent, state.asked.terms.lease);
        state.due = Some(if is_wanted_since { sent } else { next });
        self.changed.tell();
    }

    /// Has the hold renewed now, with another lease if one is given. Returns a moment: it is done when a request that was
    /// sent later is answered.
    pub(crate) fn want(&self, lease: Option<Duration>) -> Result<Moment> {
        let mut state = self.state();
        let lease = lease.unwrap_or(state.wanted.lease);
        let wanted = Terms {
            lease,
            ..state.wanted
        };
        wanted.check()?;
        let now = self.now();
        (state.wanted, state.wanted_at) = (wanted, Some(now));
        state.due = state.due.map(|_| now);
        Ok(now)
    }

    /// Notes that a renewal which was sent at this moment was refused. A lease that the server does not take counts no more.
    pub(crate) fn refused(&self, sent: Moment, why: Failure) {
        let mut state = self.state();
        state.wanted = state.asked.terms;
        state.refused = Some((sent, why));
        drop(state);
        self.not_renewed(false);
        self.changed.tell();
    }

    /// Notes that a renewal has failed, with its connection or otherwise. Another one is due when a part of what is left is
    /// over.
    pub(crate) fn not_renewed(&self, with_connection: bool) {
        const SOON: Duration = Duration::from_millis(20);
        const LATE: Duration = Duration::from_millis(500);
        let mut state = self.state();
        let now = self.now();
        let left = state.left(now);
        state.is_cut_off = with_connection;
        state.due = Some(now.after((left / 8).clamp(SOON, LATE).min(left)));
    }

    /// Notes that the server has said that the hold has ended.
    pub(crate) fn ended(&self) {
        let mut state = self.state();
        if !state.has_ended() {
            state.loss = Some(Loss::Ended);
        }
        self.changed.tell();
    }

    /// Notes that the holder gives the hold back. Returns why it was lost before, if it was.
    pub(crate) fn over(&self) -> Option<Loss> {
        let mut state = self.state();
        state.is_over = true;
        self.changed.tell();
        state.loss
    }

    /// Returns how long the hold is certain without another renewal; zero when it is lost.
    pub(crate) fn left(&self) -> Duration {
        match self.loss() {
            Some(_) => Duration::ZERO,
            None => self.state().left(self.now()),
        }
    }

    /// Returns when the lease is over, the margin included, by a clock that stands still in a suspension: it is right for
    /// a look now.
    pub(crate) fn end(&self) -> Instant {
        let (now, clock) = (Instant::now(), self.now());
        let state = self.state();
        let end = state.sent.after(state.asked.length);
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
        let state = self.state();
        state.wanted.lease.max(state.asked.terms.lease)
    }

    /// Whether the next renewal needs a new connection.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.state().is_cut_off
    }

    /// Returns whether a renewal is to be sent now. Then it counts as on its way, until [`renewed`](Lease::renewed) or
    /// [`not_renewed`](Lease::not_renewed) tells what came of it.
    pub(crate) fn renewal(&self) -> Renewal {
        if self.is_of_the_parent() {
            return Renewal::Not;
        }
        let mut state = self.state();
        if state.has_ended() {
            return Renewal::Not;
        }
        let due = state.due.map(|due| due.since(self.now()));
        if due == Some(Duration::ZERO) {
            state.due = None;
            let now = self.now();
            let asked = state.wanted.asks(now.since(state.granted));
            let since_sent = Asked {
                length: now.since(state.sent) + asked.length,
                ..asked
            };
            if since_sent.certain() < state.asked.certain() {
                state.asked = since_sent;
                self.changed.tell();
            }
            return Renewal::Due(asked);
        }
        drop(state);
        Renewal::In(self.look_in())
    }

    /// After which time it is worth looking whether a renewal is due.
    pub(crate) fn look_in(&self) -> Duration {
        let state = self.state();
        let slice = state.asked.terms.slice();
        state
            .due
            .map_or(slice, |due| due.since(self.now()).min(slice))
    }

    /// Wait until the hold is lost or given back, at most so long. Returns why it is lost.
    pub(crate) async fn wait<W: Wait>(&self, at_most: Duration) -> Option<Loss> {
        self.wait_until::<W>(at_most, |_| false).await
    }

    /// Wait until a request is answered that was sent after this moment, or the hold is lost. Returns why it was refused, if
    /// it was.
    pub(crate) async fn answered<W: Wait>(&self, since: Moment) -> Option<Failure> {
        let refusal = |state: &State| {
            let refused = state.refused.as_ref().filter(|(sent, _)| *sent >= since);
            refused.map(|(_, why)| why.clone())
        };
        let is_over = |state: &State| state.sent >= since || refusal(state).is_some();
        self.wait_until::<W>(Duration::MAX, is_over).await;
        refusal(&self.state())
    }

    async fn wait_until<W: Wait>(
        &self,
        at_most: Duration,
        is_over: impl Fn(&State) -> bool,
    ) -> Option<Loss> {
        if self.is_of_the_parent() {
            return Some(Loss::Forked);
        }
        let end = self.now().after(at_most);
        loop {
            let seen = self.changed.seen();
            let pause = {
                let (state, now) = (self.state(), self.now());
                if state.has_ended() || end <= now || is_over(&state) {
                    return state.loss;
                }
                // The clock is read anew after each slice: no wait of the system goes on in a suspension.
                let left = state.left(now).min(end.since(now));
                left.min(state.asked.terms.slice())
            };
            W::wait(&self.changed, seen, pause).await;
        }
    }
}

fn usual_margin(lease: Duration) -> Duration {
    (lease / 10).min(MARGIN_AT_MOST)
}

#[cfg(test)]
mod tests;
