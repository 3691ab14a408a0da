//! What must hold for work-once: one run at a time, no run after the result, DONE only by the last run, and no answer
//! about anything that was not recorded as a change before.

use std::sync::Arc;

use crate::model::Name;
use dsync_engine::answer::Answer;
use dsync_engine::change::{Change, End};
use dsync_engine::types::{Claim, Fence, Token};

/// What the changes of one key say about its work.
#[derive(Clone, Default)]
pub struct WorkLaws {
    running: Option<Fence>,
    /// Runs that have begun and were not handed back.
    attempts: u64,
    /// The token of the last run: only its DONE can be accepted.
    last: Option<Token>,
    /// Whether the last run lapsed or lost its connection, and nothing has happened since.
    has_lapsed: bool,
    /// The token of the run that had lapsed when the current one began, until that is heard of.
    displaced: Option<Token>,
    /// The same, after the current run has ended undelivered: the next change must bring it back.
    owed: Option<Token>,
    /// The result, and until when it must be kept.
    done: Option<(Option<Arc<[u8]>>, u64)>,
    /// When a run last began or ended, or the end of the last delay.
    touched_ms: u64,
    /// Until when no run may begin.
    delayed_until_ms: Option<u64>,
}

impl WorkLaws {
    /// Checks one change, and notes it.
    pub fn written(&mut self, name: Name, change: &Change, keep_ms: u64, now_ms: u64) {
        let is_over = self.is_over(keep_ms, now_ms);
        let running = self.running;
        let runs = |fence: &Fence| running == Some(*fence);
        let is_record = matches!(change, Change::Record(_));
        let is_owed = self.owed.is_some();
        assert_eq!(is_record, is_owed, "{name:?}: {change:?} of a late token");
        match change {
            Change::Grant(grant) if grant.claim == Claim::Run => {
                assert!(self.running.is_none(), "{name:?}: one run at a time");
                assert!(self.done.is_none(), "{name:?}: no run after the result");
                assert_eq!(self.delayed_until_ms, None, "{name:?}: no run in a delay");
                self.running = Some(grant.fence);
                self.attempts += 1;
                let before = self.last.replace(grant.token.clone());
                self.displaced = before.filter(|_| self.has_lapsed);
                self.has_lapsed = false;
                self.touched_ms = self.touched_ms.max(now_ms);
            }
            Change::Renew { fence, .. } if runs(fence) => self.displaced = None,
            Change::Record(record) => {
                assert_eq!(record.late, self.owed, "{name:?}: whose DONE is accepted");
                assert_eq!(record.attempts, self.attempts, "{name:?}: attempts");
                self.last = self.owed.take();
                self.has_lapsed = true;
            }
            Change::End { fence, how, .. } if runs(fence) => {
                self.running = None;
                let displaced = self.displaced.take();
                self.owed = displaced.filter(|_| *how == End::Undelivered);
                match how {
                    End::Lapsed | End::Disconnected => self.has_lapsed = true,
                    End::Released | End::Undelivered => self.attempts -= 1,
                    End::Revoked | End::Done | End::Rested => {}
                }
                self.touched_ms = self.touched_ms.max(now_ms);
            }
            Change::Fail { fence, .. } => {
                assert!(runs(fence), "{name:?}: FAIL comes from the current run");
                self.running = None;
                self.touched_ms = self.touched_ms.max(now_ms);
            }
            Change::Complete { fence, done } => {
                let may = match fence {
                    Some(fence) => runs(fence),
                    None => self.running.is_none() && self.has_lapsed,
                };
                assert!(
                    may,
                    "{name:?}: DONE comes from the current run or one that lapsed"
                );
                let who = Some(&done.token);
                assert_eq!(
                    who,
                    self.last.as_ref(),
                    "{name:?}: the token of DONE is the last run's"
                );
                assert!(self.done.is_none(), "{name:?}: done once");
                self.running = None;
                self.has_lapsed = false;
                self.done = Some((done.result.clone(), done.keep_until.0));
            }
            Change::Delay { until: Some(until) } => {
                assert!(self.running.is_none(), "{name:?}: a delay follows a FAIL");
                assert!(until.0 > now_ms, "{name:?}: a delay lasts");
                self.delayed_until_ms = Some(until.0);
                self.touched_ms = until.0;
            }
            Change::Delay { until: None } => {
                let is_over = self.delayed_until_ms.is_some_and(|until| until <= now_ms);
                assert!(is_over, "{name:?}: a delay ends when its time is up");
                self.delayed_until_ms = None;
            }
            Change::GiveUp => {
                assert!(self.running.is_none(), "{name:?}: no FAILED during a run");
                self.has_lapsed = false;
            }
            Change::Vanish => assert!(is_over, "{name:?}: the record is kept"),
            _ => {}
        }
    }

    pub fn is_done(&self) -> bool {
        self.done.is_some()
    }

    /// Returns how many attempts have failed.
    pub fn failed(&self) -> u64 {
        self.attempts - u64::from(self.running.is_some())
    }

    /// Whether the result or the attempts have been kept for as long as promised.
    fn is_over(&self, keep_ms: u64, now_ms: u64) -> bool {
        let kept = self.attempts > 0;
        let until_ms = self.done.as_ref().map(|(_, until_ms)| *until_ms);
        let until_ms = until_ms.unwrap_or(self.touched_ms + keep_ms);
        self.running.is_none() && (!kept || until_ms <= now_ms)
    }

    /// Checks an answer of a call whose changes have been noted.
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
                // The next waiter may have begun a run in the same call.
                assert_eq!(*attempts, self.failed(), "{name:?}: attempts that failed");
                assert!(
                    self.done.is_none() && !self.has_lapsed,
                    "{name:?}: FAILED after the result, or while a DONE would be accepted"
                );
            }
            _ => {}
        }
    }
}
