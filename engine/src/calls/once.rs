//! What only work-once keys have: DONE, FAIL, and giving up.

use std::sync::Arc;

use crate::answer::Answer;
use crate::change::Change;
use crate::families::once::Completion;
use crate::hold::Hold;
use crate::types::{Now, Token};
use crate::{Body, Engine, Family, Key, WrongType};

impl Engine {
    /// Returns the answer to a request that must not run: the result, or FAILED if its attempts are used up. It is
    /// FAILED only if no run lives and no request waits, because earlier requests must be answered first.
    pub(crate) fn concluded(
        &mut self,
        key: &mut Key<'_>,
        max_attempts: Option<u32>,
    ) -> Option<Answer> {
        let Ok(Some(Body::Once(once))) = self.body(key, Family::Once) else {
            return None;
        };
        if let Some(answer) = once.answer_done() {
            return Some(answer);
        }
        let hopeless = once.admits() && once.is_exhausted(max_attempts);
        let queue = self
            .queues
            .find(key.db, key.name)
            .and_then(|id| self.queues.get(id));
        if hopeless && !queue.is_some_and(super::super::queue::wait_queue::WaitQueue::has_waiting) {
            return Some(self.give_up(key));
        }
        None
    }

    /// Returns FAILED. From then on a DONE by the run that lapsed last is refused, because a client was told that the
    /// work has failed.
    pub(crate) fn give_up(&mut self, key: &mut Key<'_>) -> Answer {
        let late = matches!(
            self.body(key, Family::Once),
            Ok(Some(Body::Once(once))) if once.late().is_some()
        );
        if late {
            let _ = self.decide(key, Family::Once, Change::GiveUp);
        }
        let (reason, attempts) = match self.body(key, Family::Once) {
            Ok(Some(Body::Once(once))) => {
                let reason = once.reason().map(crate::families::once::Reason::text);
                (reason, once.attempts())
            }
            _ => (None, 0),
        };
        Answer::GivenUp {
            reason: reason.unwrap_or_else(|| Arc::from([])),
            attempts,
        }
    }

    /// Completes the work for the current run, or for the run that lapsed last if no other has begun since. Returns
    /// whether it was accepted; a repeated DONE by the token that completed it is.
    ///
    /// # Errors
    /// When the key is of another family; likewise for all calls here.
    pub fn complete(
        &mut self,
        key: &mut Key<'_>,
        token: &Token,
        result: Option<Arc<[u8]>>,
        keep_ms: u64,
        now: Now,
    ) -> Result<bool, WrongType> {
        let Some(Body::Once(once)) = self.body(key, Family::Once)? else {
            return Ok(false);
        };
        let fence = once.runs().by_token(token).map(Hold::fence);
        if once.done().is_some_and(|done| done.token == *token) {
            return Ok(true);
        }
        let late = once.late() == Some(token);
        if fence.is_none() && !late {
            return Ok(false);
        }
        let keep_until = now.unix().after_ms(keep_ms);
        let done = Completion {
            token: token.clone(),
            result,
            keep_until,
        };
        let completed = self.decide(key, Family::Once, Change::Complete { fence, done });
        self.settle(key, now);
        Ok(completed.is_ok())
    }

    /// Ends the run of this token as failed, and lets the next in line begin. Returns whether the token ran.
    ///
    /// # Errors
    /// See [`Engine::complete`].
    pub fn fail(
        &mut self,
        key: &mut Key<'_>,
        token: &Token,
        reason: Arc<[u8]>,
        now: Now,
    ) -> Result<bool, WrongType> {
        let run = self
            .body(key, Family::Once)?
            .and_then(|body| body.holds().by_token(token));
        let Some(fence) = run.map(Hold::fence) else {
            return Ok(false);
        };
        let failed = self.decide(
            key,
            Family::Once,
            Change::Fail {
                fence,
                at: now.unix(),
                reason,
            },
        );
        self.settle(key, now);
        Ok(failed.is_ok())
    }
}
