//! The wait group: members join and end, and rounds finish.
//!
//! A round is over when no member lives, no request is queued to be added and, if a total is expected, that many
//! members are done. Only the server that decides knows its queue. So it decides once that a round is over, and records
//! that as a change of its own.

use crate::end::End;
use crate::heap;
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

/// What a finished round leaves, but for the limit, which is the group's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FinishedRound {
    pub expected: Option<u32>,
    pub done: u64,
    pub lost: u64,
    pub keep_until: UnixMs,
}

#[derive(Clone)]
pub struct WaitGroup {
    pub members: HoldSet,
    pub(crate) paused_until: OptionalUnixMs,
    tally: Tally,
    /// The finished round before the present one, as long as nothing has happened in this one but grants and their ends
    /// as undelivered. It comes back if the last member ends undelivered too. `None` without members.
    displaced: Option<Box<FinishedRound>>,
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
            displaced: None,
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
        self.displaced = None;
    }

    /// Returns the finished round that the members of the present one have displaced.
    #[must_use]
    pub fn displaced(&self) -> Option<FinishedRound> {
        self.displaced.as_deref().copied()
    }

    /// Sets what [`WaitGroup::displaced`] returns.
    pub fn set_displaced(&mut self, round: Option<FinishedRound>) {
        self.displaced = round.map(Box::new);
    }

    /// Returns the tally with this finished round, for a group whose last member has ended undelivered.
    #[must_use]
    pub fn tally_with(&self, round: FinishedRound) -> Tally {
        Tally {
            expected: round.expected,
            done: round.done,
            lost: round.lost,
            finished: Some(round.keep_until),
            ..self.tally
        }
    }

    /// Whether members live, and none of them has been heard of.
    #[must_use]
    pub fn is_unheard(&self) -> bool {
        let mut members = self.members.iter();
        !self.members.is_empty() && members.all(|member| member.unheard_ms().is_some())
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

    /// Notes an ADD or EXPECT: after a finished round it opens the next one, which displaces it.
    pub fn begin(&mut self, at: UnixMs) {
        if let Some(keep_until) = self.tally.finished.take() {
            self.displaced = Some(Box::new(FinishedRound {
                expected: self.tally.expected.take(),
                done: std::mem::take(&mut self.tally.done),
                lost: std::mem::take(&mut self.tally.lost),
                keep_until,
            }));
        }
        self.touch(at);
    }

    pub fn expect(&mut self, jobs: u32, at: UnixMs) {
        self.begin(at);
        self.heard();
        self.tally.expected = Some(jobs);
    }

    /// Notes that the present round is more than members that nobody has heard of.
    pub fn heard(&mut self) {
        self.displaced = None;
    }

    /// Notes that a member has ended. The server that decides brings a displaced round back with a tally.
    pub fn ended(&mut self, how: End, at: UnixMs) {
        match how {
            End::Done => self.count_done(),
            End::Lapsed | End::Revoked | End::Disconnected => self.count_lost(),
            End::Released | End::Undelivered => {}
        }
        if how != End::Undelivered || self.members.is_empty() {
            self.displaced = None;
        }
        self.touch(at);
    }

    /// Returns the bytes on the heap, without those of the members.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match self.displaced {
            Some(_) => heap::allocated(size_of::<FinishedRound>()),
            None => 0,
        }
    }

    fn count_done(&mut self) {
        self.tally.done = self.tally.done.saturating_add(1);
    }

    fn count_lost(&mut self) {
        self.tally.lost = self.tally.lost.saturating_add(1);
    }

    fn touch(&mut self, at: UnixMs) {
        self.tally.touched = self.tally.touched.max(at);
    }
}
