//! Work-once: one run at a time, until a run completes the work.
//!
//! This is `sync.Once` for a fleet, with failover. A run is a hold. How it ends decides about its attempt: the work is
//! done, or the attempt failed and the next waiter tries again, or the run was handed back and the attempt does not
//! count. The result, the number of attempts and the last reason are kept for some time after the last change.

use std::sync::Arc;

use crate::answer::Answer;
use crate::end::End;
use crate::hold::Hold;
use crate::hold_set::HoldSet;
use crate::types::{Token, UnixMs};

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
    pub keep_until: UnixMs,
}

/// What is known of the work besides the current run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Attempts that have begun and were not handed back.
    pub attempts: u64,
    pub reason: Option<Reason>,
    /// The token of the last run, if that run lapsed or lost its connection. Its DONE is still accepted until another
    /// run begins or a client is told FAILED.
    pub late: Option<Token>,
    pub done: Option<Completion>,
    /// The moment of the last change.
    pub touched: UnixMs,
}

impl Record {
    /// Returns the bytes on the heap.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let reason = match &self.reason {
            Some(Reason::Given(text)) => text.len(),
            Some(Reason::Lapsed | Reason::Revoked) | None => 0,
        };
        let result = self.done.as_ref().and_then(|done| done.result.as_deref());
        reason + result.map_or(0, <[u8]>::len)
    }
}

#[derive(Clone)]
pub struct Once {
    /// At most one.
    pub runs: HoldSet,
    record: Record,
    /// When a request was last seen waiting for this key. Not replicated: only the server that decides knows it.
    last_watched: UnixMs,
    /// The moment under which the engine has this key in its `retention` index, if it is there.
    pub retention: Option<UnixMs>,
}

impl Once {
    pub(crate) fn new() -> Once {
        Once {
            runs: HoldSet::Empty,
            record: Record {
                attempts: 0,
                reason: None,
                late: None,
                done: None,
                // The first change sets the moment, because a replica must not use its own clock.
                touched: UnixMs(0),
            },
            last_watched: UnixMs(0),
            retention: None,
        }
    }

    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    pub fn set_record(&mut self, record: Record) {
        self.record = record;
    }

    /// Whether a run may begin: there is no other run, and the work is not done.
    #[must_use]
    pub fn admits(&self) -> bool {
        self.runs.is_empty() && self.record.done.is_none()
    }

    /// Whether a request that allows this many attempts has to give up.
    #[must_use]
    pub fn is_exhausted(&self, max_attempts: Option<u32>) -> bool {
        max_attempts.is_some_and(|max_attempts| self.record.attempts >= u64::from(max_attempts))
    }

    /// Returns the answer to every request once the work is done.
    #[must_use]
    pub fn answer_done(&self) -> Option<Answer> {
        let done = self.record.done.as_ref()?;
        Some(Answer::Done {
            result: done.result.clone(),
            attempt: self.record.attempts,
        })
    }

    /// Notes that a run has begun: the attempt counts, and a DONE by an earlier run is refused from now on.
    pub fn begun(&mut self, at: UnixMs) {
        self.record.attempts = self.record.attempts.saturating_add(1);
        self.record.late = None;
        self.touch(at);
    }

    /// Notes that a run has ended without DONE or FAIL.
    pub fn ended(&mut self, run: &Hold, how: End, at: UnixMs) {
        match how {
            End::Lapsed | End::Disconnected => {
                self.record.late = Some(run.token());
                self.record.reason = Some(Reason::Lapsed);
            }
            End::Revoked => self.record.reason = Some(Reason::Revoked),
            // The worker handed the run back, or never heard of it: the attempt does not count.
            End::Released | End::Undelivered => {
                self.record.attempts = self.record.attempts.saturating_sub(1);
            }
            End::Done => {}
        }
        self.touch(at);
    }

    pub fn failed(&mut self, reason: Arc<[u8]>, at: UnixMs) {
        self.record.reason = Some(Reason::Given(reason));
        self.touch(at);
    }

    /// Notes that a client was told FAILED: a DONE by the run that lapsed last is refused from now on.
    pub fn given_up(&mut self) {
        self.record.late = None;
    }

    pub fn complete(&mut self, done: Completion) {
        self.record.late = None;
        self.record.done = Some(done);
    }

    /// Notes that a request waits for this key.
    pub fn watched(&mut self, at: UnixMs) {
        self.last_watched = self.last_watched.max(at);
    }

    /// Returns until when the record is kept if nothing more happens and nobody waits. Attempts and reasons are kept
    /// as long as results; without either there is nothing to keep.
    #[must_use]
    pub fn retained_until(&self, keep_ms: u64) -> UnixMs {
        match &self.record.done {
            Some(done) => done.keep_until,
            None if self.record.attempts == 0 && self.record.reason.is_none() => UnixMs(0),
            None => self.record.touched.max(self.last_watched).after_ms(keep_ms),
        }
    }

    fn touch(&mut self, at: UnixMs) {
        self.record.touched = self.record.touched.max(at);
    }
}
