//! The wait group: members join and end, and rounds finish.
//!
//! A round is over when no member lives, no request is queued to be added and, if a total is expected, that many
//! members are done. Only the server that decides knows its queue. So it decides once that a round is over, and records
//! that as a change of its own.

use crate::hold_set::HoldSet;
use crate::types::{OptionalUnixMs, UnixMs};

/// What a wait group keeps besides its members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tally {
    pub limit: Option<u32>,
    pub limit_changes: u64,
    pub expected: Option<u32>,
    /// Members of this round that ended by DONE.
    pub done: u64,
    /// Members of this round that were lost: lapsed, revoked, or gone with their connection.
    pub lost: u64,
    /// The moment of the last change.
    pub touched: UnixMs,
    /// Set once the round has finished: until when its tally is kept.
    pub finished: Option<UnixMs>,
}

#[derive(Clone)]
pub struct WaitGroup {
    pub members: HoldSet,
    pub(crate) paused_until: OptionalUnixMs,
    tally: Tally,
    /// When a request was last seen waiting for this group. Not replicated: only the server that decides knows it.
    last_watched: UnixMs,
    /// The moment under which the engine has this group in its `retention` index, if it is there.
    pub(crate) retention: OptionalUnixMs,
}

impl WaitGroup {
    #[must_use]
    pub fn new() -> WaitGroup {
        WaitGroup {
            members: HoldSet::Empty,
            paused_until: OptionalUnixMs::default(),
            tally: Tally {
                limit: None,
                limit_changes: 0,
                expected: None,
                done: 0,
                lost: 0,
                // The first change sets the moment, because a replica must not use its own clock.
                touched: UnixMs(0),
                finished: None,
            },
            last_watched: UnixMs(0),
            retention: OptionalUnixMs::default(),
        }
    }

    /// Notes that a request waits for this group.
    pub fn watched(&mut self, at: UnixMs) {
        self.last_watched = self.last_watched.max(at);
    }

    /// Returns until when the group is kept if nothing more happens and no request waits.
    #[must_use]
    pub fn retained_until(&self, idle_ms: u64) -> UnixMs {
        if !self.has_begun() {
            return UnixMs(0);
        }
        let idle = self.tally.touched.max(self.last_watched).after_ms(idle_ms);
        self.tally.finished.unwrap_or(idle)
    }

    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    pub fn set_tally(&mut self, tally: Tally) {
        self.tally = tally;
    }

    /// Whether one more member may join: fewer than `limit` live, or there is no limit.
    #[must_use]
    pub fn admits(&self, limit: Option<u32>) -> bool {
        limit.is_none_or(|limit| self.members.len() < limit as usize)
    }

    pub fn ask_limit(&mut self, limit: u32) {
        if self.tally.limit.is_some_and(|before| before != limit) {
            self.tally.limit_changes = self.tally.limit_changes.saturating_add(1);
        }
        self.tally.limit = Some(limit);
    }

    /// Returns how many of the expected jobs are not done yet.
    #[must_use]
    pub fn owed(&self) -> u64 {
        let expected = self.tally.expected.map_or(0, u64::from);
        expected.saturating_sub(self.tally.done)
    }

    /// Whether anything was ever added or expected. Otherwise only a PAUSE has made the key, and nobody is told that a
    /// round has finished.
    fn has_begun(&self) -> bool {
        self.tally.touched != UnixMs(0)
    }

    /// Whether the round can be finished now. `queued` says that a request waits to be added.
    #[must_use]
    pub fn is_over(&self, queued: bool) -> bool {
        let is_open = self.has_begun() && self.tally.finished.is_none();
        is_open && self.members.is_empty() && !queued && self.owed() == 0
    }

    /// Whether a WAIT is answered at once: the round has finished, or none has begun. `queued` as for
    /// [`WaitGroup::is_over`].
    #[must_use]
    pub fn has_nothing_to_wait_for(&self, queued: bool) -> bool {
        self.tally.finished.is_some() || !self.has_begun() && !queued
    }

    pub fn finish(&mut self, keep_until: UnixMs) {
        self.tally.finished = Some(keep_until);
    }

    /// Notes an ADD or EXPECT: after a finished round it opens the next one.
    pub fn begin(&mut self, at: UnixMs) {
        if self.tally.finished.take().is_some() {
            self.tally.expected = None;
            self.tally.done = 0;
            self.tally.lost = 0;
        }
        self.touch(at);
    }

    pub fn expect(&mut self, jobs: u32, at: UnixMs) {
        self.begin(at);
        self.tally.expected = Some(jobs);
    }

    pub fn count_done(&mut self) {
        self.tally.done = self.tally.done.saturating_add(1);
    }

    pub fn count_lost(&mut self) {
        self.tally.lost = self.tally.lost.saturating_add(1);
    }

    pub fn touch(&mut self, at: UnixMs) {
        self.tally.touched = self.tally.touched.max(at);
    }
}
