//! What only work-once keys have: DONE and FAIL.

use std::sync::Arc;

use crate::change::{Change, End};
use crate::hold::Hold;
use crate::state::Body;
use crate::state::families::once::{Completion, Keep};
use crate::types::{Family, Token};
use crate::visit::{Visit, WrongType};

impl Visit<'_> {
    /// Completes the work for the current run, or for the run that lapsed last if no other was heard of since. Returns
    /// whether it was accepted; a repeated DONE by the token that completed it is, and changes nothing.
    ///
    /// # Errors
    /// When the key is of another family; likewise for all calls here.
    pub fn complete(
        &mut self,
        token: &Token,
        result: Option<Arc<[u8]>>,
        keep: Keep,
    ) -> Result<bool, WrongType> {
        let Some(once) = self.look().body_of(Family::Once)?.and_then(Body::once) else {
            return Ok(false);
        };
        let fence = once.runs().by_token(token).map(Hold::fence);
        if once.done().is_some_and(|done| done.token == *token) {
            return Ok(true);
        }
        let displaced = once.displaced.as_deref() == Some(token);
        let displacing = once.unheard_run().filter(|_| displaced).map(Hold::fence);
        match (fence, displacing) {
            (Some(_), _) => {}
            // Nobody has heard of this run, so it is as if it had not begun; its client is answered DONE when it asks.
            (None, Some(unheard)) => self.end(unheard, End::Undelivered),
            (None, None) if once.late() == Some(token) => {}
            (None, None) => return Ok(false),
        }
        let done = Completion {
            token: token.clone(),
            result,
            keep_until: keep.until(self.now.unix()),
        };
        Ok(self.decide(Change::Complete { fence, done }).is_ok())
    }

    /// Ends the run of this token as failed, and lets the next in line begin after the delay, if there is one. Returns
    /// whether the token ran.
    pub fn fail(
        &mut self,
        token: &Token,
        reason: Arc<[u8]>,
        delay_ms: u64,
    ) -> Result<bool, WrongType> {
        let Some(fence) = self.look().hold_of(Family::Once, token)?.map(Hold::fence) else {
            return Ok(false);
        };
        let at = self.now.unix();
        let has_failed = self.decide(Change::Fail { fence, at, reason }).is_ok();
        if has_failed && delay_ms > 0 {
            let until = Some(at.after_ms(delay_ms));
            // If the state refuses the delay, `decide` logs it and the next run may begin now.
            let _ = self.decide(Change::Delay { until });
        }
        Ok(has_failed)
    }
}
