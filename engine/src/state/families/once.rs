//! Work-once: one run at a time, until a run completes the work.
//!
//! This is `sync.Once` for a fleet, with failover. A run is a hold. How it ends decides about its attempt: the work is
//! done, or the attempt failed and the next waiter tries again, or the run was handed back and the attempt does not
//! count. The result, the number of attempts and the last reason are kept for some time after the last change.
//!
//! A failed run can ask for a delay before the next one. Nobody runs during a delay, so no token can end it or complete
//! the work: it ends when its time is up, or when the key is removed.

use std::sync::Arc;

use crate::answer::Answer;
use crate::change::{Change, Displaced, End, Misfit};
use crate::heap;
use crate::hold::Hold;
use crate::settings::Settings;
use crate::state::families::policy::{Admission, Policy, Retention};
use crate::state::hold_set::HoldSet;
use crate::types::{Claim, Family, Token, UnixMs};

pub use crate::change::{Completion, Reason, Record};

/// How long a result is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    ForMs(u64),
    Forever,
}

impl Keep {
    /// Returns the moment until which a result of now is kept.
    pub fn until(self, now: UnixMs) -> UnixMs {
        match self {
            Keep::ForMs(ms) => now.after_ms(ms),
            Keep::Forever => UnixMs::NEVER,
        }
    }
}

#[derive(Clone, Default)]
pub struct Once {
    stage: Stage,
    /// The token of the run before, whose DONE was still accepted when the current run began. It counts while the
    /// current run has not been heard of, and comes back if that run ends undelivered. `None` without a run.
    pub(crate) displaced: Option<Box<Token>>,
    pub(crate) attempts: u64,
    pub(crate) reason: Option<Reason>,
    /// See [`Record::touched`]. The first change sets it, because a replica must not use its own clock.
    touched: UnixMs,
    pub(in crate::state) retention: Retention,
}

// Results may be kept by the million. The allocators of most servers give 128 bytes for anything above 112.
const _: () = assert!(size_of::<Once>() <= 128);

/// How far the work is. A run, the token of a late one, a delay and a completion exclude each other, so they share their
/// room.
#[derive(Clone)]
enum Stage {
    /// The current run, or none.
    Open(HoldSet),
    /// No run. A DONE with this token is still accepted: see [`Record::late`].
    Late(Token),
    /// No run, and none may begin before this moment, which the last FAIL asked for.
    Delayed(UnixMs),
    Done(Completion),
}

impl Default for Stage {
    fn default() -> Stage {
        Stage::Open(HoldSet::EMPTY)
    }
}

impl Once {
    /// Returns the current run, as a set of at most one hold.
    pub(crate) fn runs(&self) -> &HoldSet {
        match &self.stage {
            Stage::Open(runs) => runs,
            Stage::Late(_) | Stage::Delayed(_) | Stage::Done(_) => &HoldSet::EMPTY,
        }
    }

    /// See [`Record::late`].
    pub fn late(&self) -> Option<&Token> {
        match &self.stage {
            Stage::Late(token) => Some(token),
            _ => None,
        }
    }

    /// Returns the current run, if its client has not been heard of.
    pub(crate) fn unheard_run(&self) -> Option<&Hold> {
        self.runs().first().filter(|run| run.unheard_ms().is_some())
    }

    pub(crate) fn done(&self) -> Option<&Completion> {
        match &self.stage {
            Stage::Done(done) => Some(done),
            _ => None,
        }
    }

    /// Returns the moment before which no run may begin, if the last FAIL asked for one. The delay lasts until it is
    /// ended by a change, even if its moment has passed.
    pub(crate) fn delayed_until(&self) -> Option<UnixMs> {
        match self.stage {
            Stage::Delayed(until) => Some(until),
            _ => None,
        }
    }

    pub(crate) fn is_delayed(&self) -> bool {
        self.delayed_until().is_some()
    }

    /// Returns what other servers and files know of the work, besides the run and a delay.
    pub(crate) fn record(&self) -> Record {
        Record {
            attempts: self.attempts,
            reason: self.reason.clone(),
            late: self.late().cloned(),
            done: self.done().cloned(),
            touched: self.touched,
        }
    }

    /// Whether a run may begin: there is no other run and no delay, and the work is not done.
    pub(crate) fn may_begin(&self) -> bool {
        self.is_idle() && !self.is_delayed()
    }

    /// Whether nobody runs, and the work is not done.
    pub(crate) fn is_idle(&self) -> bool {
        self.runs().is_empty() && self.done().is_none()
    }

    /// Returns the answer to every request once the work is done.
    pub(crate) fn answer_done(&self) -> Option<Answer> {
        let done = self.done()?;
        Some(Answer::Done {
            result: done.result.clone(),
            attempt: self.attempts,
        })
    }

    /// Returns the answer to a request that has to give up.
    pub(crate) fn answer_given_up(&self) -> Answer {
        let reason = self.reason.as_ref().map(Reason::text);
        Answer::GivenUp {
            reason: reason.unwrap_or_else(|| Arc::from([])),
            attempts: self.attempts,
        }
    }

    /// Takes a record, which ends a delay. It fits if the key has at most one of a live run, a late token and a completion
    /// then.
    fn set_record(&mut self, record: &Record) -> Result<(), Misfit> {
        let has_run = !self.runs().is_empty();
        self.stage = match (&record.late, &record.done) {
            (None, None) => Stage::Open(self.holds_mut().map(std::mem::take).unwrap_or_default()),
            (Some(late), None) if !has_run => Stage::Late(late.clone()),
            (None, Some(done)) if !has_run => Stage::Done(done.clone()),
            _ => return Err(Misfit::Taken),
        };
        self.displaced = None;
        self.attempts = record.attempts;
        self.reason.clone_from(&record.reason);
        self.touched = record.touched;
        Ok(())
    }

    fn touch(&mut self, at: UnixMs) {
        self.touched = self.touched.max(at);
    }
}

impl Policy for Once {
    const FAMILY: Family = Family::Once;

    fn holds(&self) -> &HoldSet {
        self.runs()
    }

    fn holds_mut(&mut self) -> Result<&mut HoldSet, Misfit> {
        match &mut self.stage {
            Stage::Open(runs) => Ok(runs),
            _ => Err(Misfit::NoHold),
        }
    }

    fn admits(&self, _claim: Claim, _limit: Option<u32>) -> bool {
        self.may_begin()
    }

    /// Earlier requests are answered before FAILED is told. During a delay it is told at once, and no late run is left
    /// whose DONE it must refuse.
    fn told_instead(&self, max_attempts: Option<u32>) -> Option<Admission> {
        if let Some(answer) = self.answer_done() {
            return Some(Admission::Never(answer));
        }
        let is_exhausted = max_attempts.is_some_and(|most| self.attempts >= u64::from(most));
        match is_exhausted && self.is_idle() {
            true if self.is_delayed() => Some(Admission::Never(self.answer_given_up())),
            true => Some(Admission::GiveUp),
            false => None,
        }
    }

    fn free_capacity(&self) -> u64 {
        u64::from(self.may_begin())
    }

    /// Attempts and reasons are kept as long as results; without either there is nothing to keep.
    fn retained_until(&self, settings: &Settings) -> Option<UnixMs> {
        Some(match self.done() {
            Some(done) => done.keep_until,
            None if self.attempts == 0 && self.reason.is_none() && !self.is_delayed() => UnixMs(0),
            None => (self.retention).idle_until(self.touched, settings.once_keep_ms),
        })
    }

    /// A run begins, so the attempt counts. It displaces the token of a late one.
    fn granted(&mut self, at: UnixMs) {
        self.displaced = match std::mem::take(&mut self.stage) {
            Stage::Late(token) => Some(Box::new(token)),
            _ => None,
        };
        self.attempts = self.attempts.saturating_add(1);
        self.touch(at);
    }

    /// The current run was heard of: a DONE by an earlier run is refused from now on.
    fn renewed(&mut self) {
        self.displaced = None;
    }

    /// The run has ended without DONE or FAIL. The server that decides brings a displaced token back with a record.
    fn ended(&mut self, run: &Hold, how: End, at: UnixMs) {
        self.displaced = None;
        match how {
            End::Lapsed | End::Disconnected => {
                self.stage = Stage::Late(run.token());
                self.reason = Some(Reason::Lapsed);
            }
            End::Revoked => self.reason = Some(Reason::Revoked),
            // The worker handed the run back, or never heard of it: the attempt does not count.
            End::Released | End::Undelivered => {
                self.attempts = self.attempts.saturating_sub(1);
            }
            End::Done | End::Rested => {}
        }
        self.touch(at);
    }

    fn apply_own(&mut self, change: &Change) -> Result<Option<Hold>, Misfit> {
        match change {
            Change::Fail { fence, reason, at } => {
                let run = self.remove(*fence)?;
                self.displaced = None;
                self.reason = Some(Reason::Given(Arc::clone(reason)));
                self.touch(*at);
                return Ok(Some(run));
            }
            Change::Complete { fence, done } => {
                let run = match fence {
                    Some(fence) => Some(self.remove(*fence)?),
                    None if !self.runs().is_empty() => return Err(Misfit::Taken),
                    None => None,
                };
                self.displaced = None;
                self.stage = Stage::Done(done.clone());
                return Ok(run);
            }
            // A client was told FAILED: a DONE by the run that lapsed last is refused from now on.
            Change::GiveUp if self.late().is_some() => self.stage = Stage::default(),
            Change::GiveUp => {}
            Change::Record(record) => self.set_record(record)?,
            // A delay begins and ends while nobody runs, no DONE of an earlier run is accepted, and the work is not done.
            // Attempts and reason are kept as long after it as after any change: the next attempt still finds them.
            Change::Delay { until } if self.is_idle() && self.late().is_none() => {
                self.stage = until.map_or(Stage::default(), Stage::Delayed);
                self.touch(until.unwrap_or(UnixMs(0)));
            }
            // A saved state can say that the present run has displaced a token, and was not heard of.
            Change::Displaced(Displaced::Late(token))
                if self.displaced.is_none() && self.unheard_run().is_some() =>
            {
                self.displaced = Some(Box::new(token.clone()));
            }
            Change::Delay { .. } | Change::Displaced(Displaced::Late(_)) => {
                return Err(Misfit::Taken);
            }
            _ => return Err(Misfit::Family),
        }
        Ok(None)
    }

    fn heap_bytes(&self) -> usize {
        let reason = match &self.reason {
            Some(Reason::Given(text)) => shared_bytes(text),
            Some(Reason::Lapsed | Reason::Revoked) | None => 0,
        };
        let token = self.late().or(self.done().map(|done| &done.token));
        let result = self.done().and_then(|done| done.result.as_ref());
        let displaced = self.displaced.as_deref().map_or(0, |token| {
            heap::allocated(size_of::<Token>()) + token.heap_bytes()
        });
        let texts = token.map_or(0, Token::heap_bytes) + result.map_or(0, shared_bytes);
        heap::allocated(size_of::<Once>()) + reason + displaced + texts
    }

    #[cfg(debug_assertions)]
    fn check_invariants(&self) {
        assert!(self.runs().len() <= 1, "one run");
        let displaces = self.displaced.is_some();
        assert!(!displaces || self.runs().len() == 1, "a run displaces");
    }
}

/// Returns the bytes of a text with its two counts of references.
fn shared_bytes(text: &Arc<[u8]>) -> usize {
    heap::allocated(2 * size_of::<usize>() + text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_and_a_reason_are_kept_each() {
        let settings = Settings::default();
        assert_eq!(Once::default().retained_until(&settings), Some(UnixMs(0)));
        for (attempts, reason) in [(1, None), (0, Some(Reason::Revoked))] {
            let once = Once {
                attempts,
                reason,
                ..Once::default()
            };
            let until = Some(UnixMs(settings.once_keep_ms));
            assert_eq!(once.retained_until(&settings), until, "{attempts}");
        }
    }

    #[test]
    fn token_that_is_displaced_is_counted() {
        let before = Once::default().heap_bytes();
        let token = [b't'; 100];
        let token = Token::parse(&token).expect("legal");
        let text = token.heap_bytes();
        let once = Once {
            displaced: Some(Box::new(token)),
            ..Once::default()
        };
        let boxed = heap::allocated(size_of::<Token>());
        assert_eq!(once.heap_bytes(), before + boxed + text);
    }
}
