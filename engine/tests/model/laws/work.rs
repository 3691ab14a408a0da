//! What must hold of work that is done once: one run at a time, none after the result; who is believed; and
//! nobody is told anything that was not written down before.

use std::sync::Arc;

use crate::model::Name;
use dsync_engine::answer::Answer;
use dsync_engine::change::{Change, End};
use dsync_engine::types::{Claim, Fence, Token};

/// What has been written down about the work of one key.
#[derive(Clone, Default)]
pub struct Work {
    running: Option<Fence>,
    /// Runs that have begun and were not handed back.
    attempts: u64,
    /// The token that was last granted a run: only this one can be believed.
    last: Option<Token>,
    /// That run has lapsed, or its connection has ended, and nothing happened since.
    is_silent: bool,
    /// The result, and until when it must stay.
    done: Option<(Option<Arc<[u8]>>, u64)>,
    /// When a run last began or ended.
    touched_ms: u64,
}

impl Work {
    /// Judges and notes one change.
    pub fn written(&mut self, name: Name, change: &Change, keep_ms: u64, now_ms: u64) {
        let is_over = self.is_over(keep_ms, now_ms);
        let runs = |fence: &Fence| self.running == Some(*fence);
        match change {
            Change::Grant(grant) if grant.claim == Claim::Run => {
                assert!(self.running.is_none(), "{name:?}: one run at a time");
                assert!(self.done.is_none(), "{name:?}: no run after the result");
                self.running = Some(grant.fence);
                self.attempts += 1;
                self.last = Some(grant.token.clone());
                self.is_silent = false;
                self.touched_ms = now_ms;
            }
            Change::End { fence, how, .. } if runs(fence) => {
                self.running = None;
                match how {
                    End::Lapsed | End::Disconnected => self.is_silent = true,
                    End::Released | End::Undelivered => self.attempts -= 1,
                    End::Revoked | End::Done => {}
                }
                self.touched_ms = now_ms;
            }
            Change::Fail { fence, .. } => {
                assert!(runs(fence), "{name:?}: who fails runs");
                self.running = None;
                self.touched_ms = now_ms;
            }
            Change::Complete { fence, done } => {
                let may = match fence {
                    Some(fence) => runs(fence),
                    None => self.running.is_none() && self.is_silent,
                };
                assert!(may, "{name:?}: who says DONE runs, or fell silent");
                let who = Some(&done.token);
                assert_eq!(who, self.last.as_ref(), "{name:?}: who is believed");
                assert!(self.done.is_none(), "{name:?}: done once");
                self.running = None;
                self.is_silent = false;
                self.done = Some((done.result.clone(), done.keep_until.0));
            }
            Change::GiveUp => {
                assert!(
                    self.running.is_none(),
                    "{name:?}: nobody is told FAILED while one runs"
                );
                self.is_silent = false;
            }
            Change::Vanish => assert!(is_over, "{name:?}: what is known of work is kept"),
            _ => {}
        }
    }

    /// Whether what is known has been kept for as long as was promised.
    fn is_over(&self, keep_ms: u64, now_ms: u64) -> bool {
        let kept = self.attempts > 0;
        let until_ms = self.done.as_ref().map(|(_, until_ms)| *until_ms);
        let until_ms = until_ms.unwrap_or(self.touched_ms + keep_ms);
        self.running.is_none() && (!kept || until_ms <= now_ms)
    }

    /// Judges what somebody was told in a call whose changes have been written.
    pub fn told(&self, name: Name, answer: &Answer) {
        match answer {
            Answer::Run { token, attempt, .. } => {
                assert_eq!(*attempt, self.attempts, "{name:?}: the attempt of a run");
                assert_eq!(Some(token), self.last.as_ref(), "{name:?}: who runs");
            }
            Answer::Done { result, attempt } => {
                let done = self.done.as_ref().map(|(result, _)| result);
                assert_eq!(Some(result), done, "{name:?}: the result");
                assert_eq!(*attempt, self.attempts, "{name:?}: the attempt that did it");
            }
            Answer::GivenUp { attempts, .. } => {
                // The next in line may have begun in the same call.
                let failed = self.attempts - u64::from(self.running.is_some());
                assert_eq!(*attempts, failed, "{name:?}: attempts that failed");
                assert!(
                    self.done.is_none() && !self.is_silent,
                    "{name:?}: FAILED after the result, or while one is believed"
                );
            }
            _ => {}
        }
    }
}
