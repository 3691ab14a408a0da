//! Work-once: attempts, the last reason, the result, and whose DONE is accepted.

use std::sync::Arc;

use super::{Model, Name, ms};
use dsync_engine::Family;
use dsync_engine::answer::Answer;
use dsync_engine::change::End;
use dsync_engine::families::once::{Completion, Keep, Reason};
use dsync_engine::types::{Now, Token, UnixMs};

/// What is known of the work of one key.
#[derive(Clone, Default)]
pub struct Work {
    /// Runs that have begun and were not handed back.
    pub attempts: u64,
    /// Why the last attempt failed.
    pub reason: Option<Reason>,
    /// The token of the last run if that run lapsed or lost its connection, while its DONE would still be accepted.
    pub late: Option<Token>,
    /// The token that was in `late` when the current run began. Its DONE is accepted until the run is heard of, and it
    /// is late again if the run turns out to be undelivered.
    pub displaced: Option<Token>,
    pub done: Option<Completion>,
    /// Until when a FAIL lets no run begin.
    pub delayed_until_ms: Option<u64>,
}

impl Work {
    /// A new run has begun: unless it is never heard of, a DONE by the run that lapsed is refused from now on.
    pub(super) fn begin(&mut self) {
        self.attempts += 1;
        self.displaced = self.late.take();
    }

    /// The token's run has ended without DONE and without FAIL.
    pub(super) fn end(&mut self, token: &Token, how: End) {
        let displaced = self.displaced.take();
        match how {
            End::Lapsed | End::Disconnected => {
                self.reason = Some(Reason::Lapsed);
                self.late = Some(token.clone());
            }
            End::Revoked => self.reason = Some(Reason::Revoked),
            End::Released => self.attempts -= 1,
            End::Undelivered => {
                self.attempts -= 1;
                self.late = displaced;
            }
            End::Done | End::Rested => panic!("no run ends so"),
        }
    }

    pub(super) fn done_answer(&self) -> Option<Answer> {
        self.done.as_ref().map(|done| Answer::Done {
            result: done.result.clone(),
            attempt: self.attempts,
        })
    }

    /// Returns FAILED if `max_attempts` attempts have failed. From then on a DONE by the run that lapsed is refused,
    /// because a client was told that the work has failed.
    pub(super) fn give_up(&mut self, max_attempts: Option<u32>) -> Option<Answer> {
        if max_attempts.is_none_or(|max_attempts| self.attempts < u64::from(max_attempts)) {
            return None;
        }
        self.late = None;
        let reason = match &self.reason {
            Some(Reason::Lapsed) => b"lapsed".as_slice().into(),
            Some(Reason::Revoked) => b"revoked".as_slice().into(),
            Some(Reason::Given(text)) => Arc::clone(text),
            None => panic!("no attempt fails without a reason"),
        };
        Some(Answer::GivenUp {
            reason,
            attempts: self.attempts,
        })
    }
}

impl Model {
    /// GET of work-once, on a server whose wall clock shows `unix_ms`.
    pub fn result(&self, name: Name, unix_ms: u64) -> Answer {
        let work = self.content(name).map(|content| &content.work);
        let kept = work.filter(|work| {
            let done = work.done.as_ref();
            done.is_some_and(|done| done.keep_until == UnixMs::NEVER || done.keep_until.0 > unix_ms)
        });
        kept.and_then(Work::done_answer)
            .unwrap_or(Answer::NotGranted)
    }

    /// DONE of work-once. Returns whether it is accepted.
    pub fn complete(
        &mut self,
        name: Name,
        token: &Token,
        result: Option<Arc<[u8]>>,
        keep: Keep,
        now: Now,
    ) -> Option<bool> {
        if self.is_other(name, Family::Once) {
            return None;
        }
        let Some(content) = self.content_mut(name) else {
            return Some(false);
        };
        if let Some(done) = &content.work.done {
            return Some(done.token == *token);
        }
        let runs = content.holds.iter().any(|run| run.token == *token);
        let unheard = content.holds.iter().find(|run| run.unheard_ms.is_some());
        if let Some(fence) = unheard.map(|run| run.fence)
            && !runs
            && content.work.displaced.as_ref() == Some(token)
        {
            self.end(name, fence, End::Undelivered, now);
        }
        let content = self.content_mut(name)?;
        let is_late = content.holds.is_empty() && content.work.late.as_ref() == Some(token);
        if !runs && !is_late {
            return Some(false);
        }
        content.holds.clear();
        (content.work.late, content.work.displaced) = (None, None);
        content.work.done = Some(Completion {
            token: token.clone(),
            result,
            keep_until: match keep {
                Keep::ForMs(keep_ms) => UnixMs(ms(now) + keep_ms),
                Keep::Forever => UnixMs::NEVER,
            },
        });
        self.settle(name, now);
        Some(true)
    }

    /// FAIL of work-once. Returns whether the token ran.
    pub fn fail(
        &mut self,
        name: Name,
        token: &Token,
        reason: &[u8],
        delay_ms: u64,
        now: Now,
    ) -> Option<bool> {
        if self.is_other(name, Family::Once) {
            return None;
        }
        let ran = self.hold_of(name, token).is_some();
        if ran && let Some(content) = self.content_mut(name) {
            content.holds.clear();
            content.work.displaced = None;
            content.work.reason = Some(Reason::Given(reason.into()));
            content.touched_ms = content.touched_ms.max(ms(now) + delay_ms);
            content.work.delayed_until_ms = Some(ms(now) + delay_ms).filter(|_| delay_ms > 0);
            self.settle(name, now);
        }
        Some(ran)
    }
}
