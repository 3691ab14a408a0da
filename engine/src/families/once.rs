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
use crate::end::End;
use crate::heap;
use crate::hold::Hold;
use crate::hold_set::HoldSet;
use crate::types::{OptionalUnixMs, Token, UnixMs};

/// Why the last attempt failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    Lapsed,
    Revoked,
    /// The text that FAIL gave.
    Given(Arc<[u8]>),
}

impl Reason {
    /// Returns the reason as clients and INFO show it.
    #[must_use]
    pub fn text(&self) -> Arc<[u8]> {
        match self {
            Reason::Lapsed => Arc::from(b"lapsed".as_slice()),
            Reason::Revoked => Arc::from(b"revoked".as_slice()),
            Reason::Given(text) => Arc::clone(text),
        }
    }
}

/// The completion of the work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The token that completed the work. Its repeated DONE is accepted.
    pub token: Token,
    pub result: Option<Arc<[u8]>>,
    /// [`UnixMs::NEVER`] if the result is kept until the key is removed.
    pub keep_until: UnixMs,
}

/// How long a result is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    ForMs(u64),
    Forever,
}

impl Keep {
    /// Returns the moment until which a result of now is kept.
    #[must_use]
    pub fn until(self, now: UnixMs) -> UnixMs {
        match self {
            Keep::ForMs(ms) => now.after_ms(ms),
            Keep::Forever => UnixMs::NEVER,
        }
    }
}

/// What is known of the work besides the current run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Attempts that have begun and were not handed back.
    pub attempts: u64,
    pub reason: Option<Reason>,
    /// The token of the last run, if that run lapsed or lost its connection. Its DONE is still accepted until another
    /// run is heard of or a client is told FAILED.
    pub late: Option<Token>,
    pub done: Option<Completion>,
    /// The moment of the last change, or the end of a delay if that is later.
    pub touched: UnixMs,
}

#[derive(Clone)]
pub struct Once {
    stage: Stage,
    /// The token of the run before, whose DONE was still accepted when the current run began. It counts while the
    /// current run has not been heard of, and comes back if that run ends undelivered. `None` without a run.
    displaced: Option<Box<Token>>,
    attempts: u64,
    reason: Option<Reason>,
    touched: UnixMs,
    /// When a request was last seen waiting for this key. Not replicated: only the server that decides knows it.
    last_watched: UnixMs,
    pub(crate) paused_until: OptionalUnixMs,
    /// The moment under which the engine has this key in its `retention` index, if it is there.
    pub(crate) retention: OptionalUnixMs,
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

/// The runs of a key that cannot have one.
static NO_RUNS: HoldSet = HoldSet::Empty;

impl Once {
    pub(crate) fn new() -> Once {
        Once {
            stage: Stage::Open(HoldSet::Empty),
            displaced: None,
            attempts: 0,
            reason: None,
            // The first change sets the moment, because a replica must not use its own clock.
            touched: UnixMs(0),
            last_watched: UnixMs(0),
            paused_until: OptionalUnixMs::default(),
            retention: OptionalUnixMs::default(),
        }
    }

    /// Returns the current run, as a set of at most one hold.
    #[must_use]
    pub fn runs(&self) -> &HoldSet {
        match &self.stage {
            Stage::Open(runs) => runs,
            Stage::Late(_) | Stage::Delayed(_) | Stage::Done(_) => &NO_RUNS,
        }
    }

    /// Returns the current run; `None` only if there is none.
    pub(crate) fn runs_mut(&mut self) -> Option<&mut HoldSet> {
        match &mut self.stage {
            Stage::Open(runs) => Some(runs),
            Stage::Late(_) | Stage::Delayed(_) | Stage::Done(_) => None,
        }
    }

    #[must_use]
    pub fn into_runs(self) -> HoldSet {
        match self.stage {
            Stage::Open(runs) => runs,
            Stage::Late(_) | Stage::Delayed(_) | Stage::Done(_) => HoldSet::Empty,
        }
    }

    #[must_use]
    pub fn attempts(&self) -> u64 {
        self.attempts
    }

    #[must_use]
    pub fn reason(&self) -> Option<&Reason> {
        self.reason.as_ref()
    }

    /// See [`Record::late`].
    #[must_use]
    pub fn late(&self) -> Option<&Token> {
        match &self.stage {
            Stage::Late(token) => Some(token),
            Stage::Open(_) | Stage::Delayed(_) | Stage::Done(_) => None,
        }
    }

    /// Returns the token of a late run that the current run has displaced.
    #[must_use]
    pub fn displaced(&self) -> Option<&Token> {
        self.displaced.as_deref()
    }

    /// Sets what [`Once::displaced`] returns.
    pub fn set_displaced(&mut self, late: Option<Token>) {
        self.displaced = late.map(Box::new);
    }

    /// Returns the current run, if its client has not been heard of.
    #[must_use]
    pub fn unheard_run(&self) -> Option<&Hold> {
        self.runs().first().filter(|run| run.unheard_ms().is_some())
    }

    /// Returns the record with this late token, for a key whose run has ended undelivered.
    #[must_use]
    pub fn record_with_late(&self, late: Token) -> Record {
        Record {
            late: Some(late),
            ..self.record()
        }
    }

    #[must_use]
    pub fn done(&self) -> Option<&Completion> {
        match &self.stage {
            Stage::Done(done) => Some(done),
            Stage::Open(_) | Stage::Late(_) | Stage::Delayed(_) => None,
        }
    }

    /// Returns the moment before which no run may begin, if the last FAIL asked for one.
    #[must_use]
    pub fn delayed_until(&self) -> Option<UnixMs> {
        match &self.stage {
            Stage::Delayed(until) => Some(*until),
            Stage::Open(_) | Stage::Late(_) | Stage::Done(_) => None,
        }
    }

    #[must_use]
    pub fn is_delayed(&self) -> bool {
        self.delayed_until().is_some()
    }

    /// Returns what other servers and files know of the work, besides the run and a delay.
    #[must_use]
    pub fn record(&self) -> Record {
        Record {
            attempts: self.attempts,
            reason: self.reason.clone(),
            late: self.late().cloned(),
            done: self.done().cloned(),
            touched: self.touched,
        }
    }

    /// Whether the record can belong to this key: a run, a late token and a completion exclude each other.
    #[must_use]
    pub fn accepts(&self, record: &Record) -> bool {
        match (&record.late, &record.done) {
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => self.runs().is_empty(),
            (Some(_), Some(_)) => false,
        }
    }

    /// Takes a record, which ends a delay. [`Once::accepts`] must have returned true for it.
    pub fn set_record(&mut self, record: Record) {
        let Record {
            attempts,
            reason,
            late,
            done,
            touched,
        } = record;
        match (done, late) {
            (Some(done), _) => self.stage = Stage::Done(done),
            (None, Some(token)) => self.stage = Stage::Late(token),
            (None, None) if self.runs().is_empty() => self.stage = Stage::Open(HoldSet::Empty),
            (None, None) => {}
        }
        self.displaced = None;
        self.attempts = attempts;
        self.reason = reason;
        self.touched = touched;
    }

    /// Whether a run may begin: there is no other run and no delay, and the work is not done.
    #[must_use]
    pub fn admits(&self) -> bool {
        self.is_idle() && !self.is_delayed()
    }

    /// Whether nobody runs, and the work is not done.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.runs().is_empty() && self.done().is_none()
    }

    /// Whether a request that allows this many attempts has to give up.
    #[must_use]
    pub fn is_exhausted(&self, max_attempts: Option<u32>) -> bool {
        max_attempts.is_some_and(|max_attempts| self.attempts >= u64::from(max_attempts))
    }

    /// Returns the answer to every request once the work is done.
    #[must_use]
    pub fn answer_done(&self) -> Option<Answer> {
        let done = self.done()?;
        Some(Answer::Done {
            result: done.result.clone(),
            attempt: self.attempts,
        })
    }

    /// Adds a run, which displaces the token of a late one.
    pub fn insert(&mut self, run: Hold) {
        let before = std::mem::replace(&mut self.stage, Stage::Open(HoldSet::One(run)));
        self.displaced = match before {
            Stage::Late(token) => Some(Box::new(token)),
            Stage::Open(_) | Stage::Delayed(_) | Stage::Done(_) => None,
        };
    }

    /// Notes that a run has begun: the attempt counts.
    pub fn begun(&mut self, at: UnixMs) {
        self.attempts = self.attempts.saturating_add(1);
        self.touch(at);
    }

    /// Notes that the current run was heard of: a DONE by an earlier run is refused from now on.
    pub fn heard(&mut self) {
        self.displaced = None;
    }

    /// Notes that a run has ended without DONE or FAIL. The server that decides brings a displaced token back with a
    /// record.
    pub fn ended(&mut self, run: &Hold, how: End, at: UnixMs) {
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
            End::Done => {}
        }
        self.touch(at);
    }

    pub fn failed(&mut self, reason: Arc<[u8]>, at: UnixMs) {
        self.displaced = None;
        self.reason = Some(Reason::Given(reason));
        self.touch(at);
    }

    /// Notes that a client was told FAILED: a DONE by the run that lapsed last is refused from now on.
    pub fn given_up(&mut self) {
        if self.late().is_some() {
            self.stage = Stage::Open(HoldSet::Empty);
        }
    }

    pub fn complete(&mut self, done: Completion) {
        self.displaced = None;
        self.stage = Stage::Done(done);
    }

    /// Whether a delay can begin or end here: nobody runs, no DONE of an earlier run is accepted, and the work is not
    /// done.
    #[must_use]
    pub fn accepts_delay(&self) -> bool {
        self.is_idle() && self.late().is_none()
    }

    /// Lets no run begin before this moment; without a moment, ends the delay. The attempts and the reason are kept as
    /// long after the delay as after any change, so that the next attempt still finds them.
    pub fn delay(&mut self, until: Option<UnixMs>) {
        self.stage = match until {
            Some(until) => Stage::Delayed(until),
            None => Stage::Open(HoldSet::Empty),
        };
        if let Some(until) = until {
            self.touch(until);
        }
    }

    /// Notes that a request waits for this key.
    pub fn watched(&mut self, at: UnixMs) {
        self.last_watched = self.last_watched.max(at);
    }

    /// Returns until when the record is kept if nothing more happens and nobody waits. Attempts and reasons are kept
    /// as long as results; without either there is nothing to keep.
    #[must_use]
    pub fn retained_until(&self, keep_ms: u64) -> UnixMs {
        match self.done() {
            Some(done) => done.keep_until,
            None if self.attempts == 0 && self.reason.is_none() => UnixMs(0),
            None => self.touched.max(self.last_watched).after_ms(keep_ms),
        }
    }

    /// Returns the bytes on the heap, without those of the run.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let reason = match &self.reason {
            Some(Reason::Given(text)) => shared_bytes(text),
            Some(Reason::Lapsed | Reason::Revoked) | None => 0,
        };
        let token = self.late().or(self.done().map(|done| &done.token));
        let result = self.done().and_then(|done| done.result.as_ref());
        let displaced = self.displaced();
        let displaced = displaced.map_or(0, |token| {
            heap::allocated(size_of::<Token>()) + token.heap_bytes()
        });
        reason + displaced + token.map_or(0, Token::heap_bytes) + result.map_or(0, shared_bytes)
    }

    fn touch(&mut self, at: UnixMs) {
        self.touched = self.touched.max(at);
    }
}

/// Returns the bytes of a text with its two counts of references.
fn shared_bytes(text: &Arc<[u8]>) -> usize {
    heap::allocated(2 * size_of::<usize>() + text.len())
}
