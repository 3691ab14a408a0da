//! The wait group: members join and end, and rounds finish.
//!
//! A round is over when no member lives, no request is queued to be added and, if a total is expected, that many
//! members are done. Only the server that decides knows its queue. So it decides once that a round is over, and records
//! that as a change of its own.

use crate::answer::Answer;
use crate::change::{Change, Displaced, End, FinishedRound, Limits, Misfit, Tally};
use crate::heap;
use crate::hold::Hold;
use crate::settings::Settings;
use crate::state::families::policy::{Policy, Retention};
use crate::state::hold_set::HoldSet;
use crate::types::{Claim, Family, UnixMs};

#[derive(Clone, Default)]
pub struct WaitGroup {
    members: HoldSet,
    pub tally: Tally,
    /// The finished round before the present one, as long as nothing has happened in this one but grants and their ends
    /// as undelivered. It comes back if the last member ends undelivered too. `None` without members.
    pub(in crate::state) displaced: Option<Box<FinishedRound>>,
    pub(in crate::state) retention: Retention,
}

impl WaitGroup {
    /// Whether the round can be finished now, if no request waits to be added.
    pub(crate) fn is_over(&self) -> bool {
        let is_open = self.has_begun() && self.tally.finished.is_none();
        is_open && self.members.is_empty() && self.tally.owed() == 0
    }

    /// Whether a WAIT is answered at once: the round has finished, or none has begun. `queued` says that a request waits
    /// to be added.
    pub(crate) fn has_nothing_to_wait_for(&self, queued: bool) -> bool {
        self.tally.finished.is_some() || !self.has_begun() && !queued
    }

    /// Returns the answer to those that wait for the round.
    pub(crate) fn answer_finished(&self) -> Answer {
        Answer::Finished {
            done: self.tally.done,
            lapsed: self.tally.lapsed,
        }
    }

    /// Whether anything was ever added or expected. Otherwise only a PAUSE has made the key, and nobody is told that a
    /// round has finished.
    fn has_begun(&self) -> bool {
        self.tally.touched != UnixMs(0)
    }

    /// Whether the present round is members and nothing else: none has ended but undelivered, and no total is expected.
    fn is_new(&self) -> bool {
        let tally = &self.tally;
        tally.expected.is_none() && tally.done == 0 && tally.lapsed == 0
    }

    fn touch(&mut self, at: UnixMs) {
        self.tally.touched = self.tally.touched.max(at);
    }
}

impl Policy for WaitGroup {
    const FAMILY: Family = Family::Group;

    fn holds(&self) -> &HoldSet {
        &self.members
    }

    fn holds_mut(&mut self) -> Result<&mut HoldSet, Misfit> {
        Ok(&mut self.members)
    }

    fn admits(&self, _claim: Claim, limit: Option<u32>) -> bool {
        limit.is_none_or(|limit| self.members.len() < limit as usize)
    }

    fn free_capacity(&self) -> u64 {
        let members = self.members.len() as u64;
        let limit = self.tally.limit.map(u64::from);
        limit.map_or(u64::MAX, |limit| limit.saturating_sub(members))
    }

    fn limits(&self) -> Limits {
        Limits {
            limit: self.tally.limit,
            pinned: None,
            changes: self.tally.limit_changes,
        }
    }

    fn retained_until(&self, settings: &Settings) -> Option<UnixMs> {
        if !self.has_begun() {
            return Some(UnixMs(0));
        }
        let (touched, idle_ms) = (self.tally.touched, settings.group_idle_ms);
        let idle = self.retention.idle_until(touched, idle_ms);
        Some(self.tally.finished.unwrap_or(idle))
    }

    /// After a finished round, an ADD or EXPECT opens the next one, which displaces it.
    fn granted(&mut self, at: UnixMs) {
        if let Some(keep_until) = self.tally.finished.take() {
            self.displaced = Some(Box::new(FinishedRound {
                expected: self.tally.expected.take(),
                done: std::mem::take(&mut self.tally.done),
                lapsed: std::mem::take(&mut self.tally.lapsed),
                keep_until,
            }));
        }
        self.touch(at);
    }

    /// From now on the present round is more than members that nobody has heard of.
    fn renewed(&mut self) {
        self.displaced = None;
    }

    /// The server that decides brings a displaced round back with a tally.
    fn ended(&mut self, _member: &Hold, how: End, at: UnixMs) {
        let count = match how {
            End::Done => Some(&mut self.tally.done),
            End::Lapsed | End::Revoked | End::Disconnected => Some(&mut self.tally.lapsed),
            End::Released | End::Undelivered | End::Rested => None,
        };
        if let Some(count) = count {
            *count = count.saturating_add(1);
        }
        if how != End::Undelivered || self.members.is_empty() {
            self.displaced = None;
        }
        self.touch(at);
    }

    fn apply_own(&mut self, change: &Change) -> Result<Option<Hold>, Misfit> {
        match change {
            Change::Limit(limit) => {
                let mut limits = self.limits();
                limits.set(Some(*limit), None);
                (self.tally.limit, self.tally.limit_changes) = (limits.limit, limits.changes);
            }
            Change::Expect { jobs, at } => {
                self.granted(*at);
                self.displaced = None;
                self.tally.expected = Some(*jobs);
            }
            Change::Finish { keep_until } if self.members.is_empty() => {
                self.tally.finished = Some(*keep_until);
            }
            Change::Tally(tally) if tally.finished.is_none() || self.members.is_empty() => {
                self.tally = *tally;
                self.displaced = None;
            }
            // A saved state can say that the present members have displaced a round, and nothing else has happened.
            Change::Displaced(Displaced::Round(round))
                if self.displaced.is_none() && self.is_new() && self.members.is_unheard() =>
            {
                self.displaced = Some(Box::new(*round));
            }
            Change::Finish { .. } | Change::Tally(_) | Change::Displaced(Displaced::Round(_)) => {
                return Err(Misfit::Taken);
            }
            _ => return Err(Misfit::Family),
        }
        Ok(None)
    }

    fn heap_bytes(&self) -> usize {
        let displaced = self.displaced.as_ref();
        let displaced = displaced.map_or(0, |_| heap::allocated(size_of::<FinishedRound>()));
        heap::allocated(size_of::<WaitGroup>()) + displaced
    }

    #[cfg(debug_assertions)]
    fn check_invariants(&self) {
        let is_empty = self.members.is_empty();
        let is_finished = self.tally.finished.is_some();
        assert!(!is_finished || is_empty, "a finished round has no members");
        let displaces = self.displaced.is_some();
        assert!(
            !displaces || !is_empty && self.is_new(),
            "members alone displace"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_is_new_until_something_has_ended_or_is_expected() {
        let group = WaitGroup::default();
        assert!(group.is_new());
        for (expected, done, lapsed) in [(Some(3), 0, 0), (None, 1, 0), (None, 0, 1)] {
            let mut group = group.clone();
            group.tally.expected = expected;
            (group.tally.done, group.tally.lapsed) = (done, lapsed);
            assert!(!group.is_new(), "{expected:?} {done} {lapsed}");
        }
    }

    #[test]
    fn round_that_is_displaced_is_counted() {
        let mut group = WaitGroup::default();
        let before = group.heap_bytes();
        group.displaced = Some(Box::new(FinishedRound {
            expected: None,
            done: 1,
            lapsed: 0,
            keep_until: UnixMs(1),
        }));
        let round = heap::allocated(size_of::<FinishedRound>());
        assert_eq!(group.heap_bytes(), before + round);
    }
}
