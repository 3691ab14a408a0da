//! What only work-once keys have: DONE, FAIL, GET, and giving up.

use std::sync::Arc;

use crate::answer::Answer;
use crate::change::{Change, End};
use crate::families::once::{Completion, Keep};
use crate::hold::Hold;
use crate::queue::wait_queue::WaitQueue;
use crate::types::{Now, Token};
use crate::{Body, Engine, Family, Key, WrongType};

impl Engine {
    /// Returns the answer to a request that must not run: the result, or FAILED if its attempts are used up. It is
    /// FAILED only if no run lives and no request waits, because earlier requests must be answered first. During a delay
    /// it is FAILED at once, because those that wait then may still begin.
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
        let hopeless = once.is_idle() && once.is_exhausted(max_attempts);
        let is_delayed = once.is_delayed();
        let queue = self
            .queues
            .find(key.db, key.name)
            .and_then(|id| self.queues.get(id));
        let has_waiting = || queue.is_some_and(WaitQueue::has_waiting);
        if hopeless && (is_delayed || !has_waiting()) {
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

    /// Completes the work for the current run, or for the run that lapsed last if no other was heard of since. Returns
    /// whether it was accepted; a repeated DONE by the token that completed it is, and changes nothing.
    ///
    /// # Errors
    /// When the key is of another family; likewise for all calls here.
    pub fn complete(
        &mut self,
        key: &mut Key<'_>,
        token: &Token,
        result: Option<Arc<[u8]>>,
        keep: Keep,
        now: Now,
    ) -> Result<bool, WrongType> {
        let Some(Body::Once(once)) = self.body(key, Family::Once)? else {
            return Ok(false);
        };
        let fence = once.runs().by_token(token).map(Hold::fence);
        if once.done().is_some_and(|done| done.token == *token) {
            return Ok(true);
        }
        let displaced = once.displaced_late() == Some(token);
        let displacing = once.unheard_run().filter(|_| displaced).map(Hold::fence);
        let late = once.late() == Some(token);
        if fence.is_none() && !late && displacing.is_none() {
            return Ok(false);
        }
        if fence.is_none()
            && let Some(unheard) = displacing
        {
            // Nobody has heard of this run, so it is as if it had not begun; its client is answered DONE when it asks.
            self.end(key, Family::Once, unheard, End::Undelivered, now);
        }
        let keep_until = keep.until(now.unix());
        let done = Completion {
            token: token.clone(),
            result,
            keep_until,
        };
        let completed = self.decide(key, Family::Once, Change::Complete { fence, done });
        self.settle(key, now);
        Ok(completed.is_ok())
    }

    /// Ends the run of this token as failed, and lets the next in line begin after the delay, if there is one. Returns
    /// whether the token ran.
    ///
    /// # Errors
    /// See [`Engine::complete`].
    pub fn fail(
        &mut self,
        key: &mut Key<'_>,
        token: &Token,
        reason: Arc<[u8]>,
        delay_ms: u64,
        now: Now,
    ) -> Result<bool, WrongType> {
        let run = self
            .body(key, Family::Once)?
            .and_then(|body| body.holds().by_token(token));
        let Some(fence) = run.map(Hold::fence) else {
            return Ok(false);
        };
        let at = now.unix();
        let fail = Change::Fail { fence, at, reason };
        let has_failed = self.decide(key, Family::Once, fail).is_ok();
        if has_failed && delay_ms > 0 {
            let until = Some(at.after_ms(delay_ms));
            // If the state refuses the delay, `decide` logs it and the next run may begin now.
            let _ = self.decide(key, Family::Once, Change::Delay { until });
        }
        self.settle(key, now);
        Ok(has_failed)
    }

    /// Returns the result, if the work is done and the result is still to be kept; otherwise `NotGranted`. It only
    /// looks: an old result that the timer has not forgotten yet is not told, nor one that a replica still has.
    ///
    /// # Errors
    /// See [`Engine::complete`].
    pub fn result(&self, key: &Key<'_>, now: Now) -> Result<Answer, WrongType> {
        let Some(Body::Once(once)) = self.body(key, Family::Once)? else {
            return Ok(Answer::NotGranted);
        };
        let is_kept = |done: &&Completion| !done.keep_until.has_come(now.unix());
        let told = once.done().filter(is_kept).and_then(|_| once.answer_done());
        Ok(told.unwrap_or(Answer::NotGranted))
    }
}
