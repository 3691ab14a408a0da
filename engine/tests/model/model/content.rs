//! The value of one key: its holds and its scalars.

use super::lanes::Turns;
use super::once::Work;
use super::queue::ModelKeep;
use dsync_engine::answer::Answer;
use dsync_engine::change::{Change, Displaced, End, FinishedRound, Limits, Tally};
use dsync_engine::families::once::Record;
use dsync_engine::types::{Claim, Token, UnixMs};
use dsync_engine::{Family, LaneName, Request};

#[derive(Clone)]
pub struct ModelHold {
    pub fence: u64,
    pub token: Token,
    pub claim: Claim,
    pub index: Option<u32>,
    pub lease_ms: u32,
    /// For how long after the grant its place stays taken, and until when.
    pub min_hold_ms: Option<u32>,
    pub(super) rests_until_us: u64,
    /// Whether it has ended, and its place is still taken. Nobody has its token then.
    pub is_resting: bool,
    pub due_us: u64,
    pub deadline_ms: u64,
    pub granted_ms: u64,
    pub renewed: bool,
    pub owner: Option<Box<[u8]>>,
    pub lane: LaneName,
    pub client: u64,
    pub ephemeral: bool,
    /// How the hold ends at the next tick, once its connection is known to be closed.
    pub ending: Option<End>,
    /// How long the place was kept to which it was granted, until its token is heard from.
    pub unheard_ms: Option<u32>,
    /// The place at which its token waited for it, if the client chose the token.
    pub(super) former_place: Option<FormerSeat>,
    /// Until when that place is kept, if the grant could not be delivered.
    pub(super) vacant_until_us: Option<u64>,
}

/// The place at which a token waited for its hold.
#[derive(Clone)]
pub struct FormerSeat {
    pub(super) rank: u64,
    pub(super) since_us: u64,
    pub(super) keep: Option<ModelKeep>,
    pub(super) bound: Option<u32>,
}

#[derive(Clone)]
pub struct ModelContent {
    pub family: Family,
    pub holds: Vec<ModelHold>,
    /// The turns of the lanes that have holds.
    pub(super) turns: Turns,
    /// The limit that a request last gave.
    pub asked: Option<u32>,
    pub pinned: Option<u32>,
    pub limit_changes: u64,
    pub expected: Option<u32>,
    pub done: u64,
    pub lapsed: u64,
    pub touched_ms: u64,
    pub finished_ms: Option<u64>,
    /// The finished round before this one, while there were only members that nobody was heard of.
    pub displaced: Option<FinishedRound>,
    pub work: Work,
    /// When a visit last found that a request had been waiting.
    pub waited_ms: u64,
    pub paused_until_ms: Option<u64>,
}

impl ModelHold {
    /// Ends the hold, which keeps its place taken until its MINHOLD is over. Returns false if that is so now.
    fn rest(&mut self, how: End, lease_us: u64) -> bool {
        let is_early = matches!(how, End::Released | End::Lapsed | End::Disconnected)
            && self.unheard_ms.is_none();
        let Some(min_hold_ms) = self.min_hold_ms.filter(|_| is_early && !self.is_resting) else {
            return false;
        };
        if self.rests_until_us <= lease_us {
            return false;
        }
        self.is_resting = true;
        self.token = Token::Uuid([0; 16]);
        self.lease_ms = min_hold_ms;
        self.due_us = self.rests_until_us;
        self.deadline_ms = self.granted_ms + u64::from(min_hold_ms);
        (self.client, self.ephemeral) = (0, false);
        (self.ending, self.unheard_ms) = (None, None);
        true
    }
}

impl ModelContent {
    pub(super) fn new(family: Family, at_ms: u64) -> ModelContent {
        ModelContent {
            family,
            holds: Vec::new(),
            turns: Turns::default(),
            asked: None,
            pinned: None,
            limit_changes: 0,
            expected: None,
            done: 0,
            lapsed: 0,
            touched_ms: at_ms,
            finished_ms: None,
            displaced: None,
            work: Work::default(),
            waited_ms: 0,
            paused_until_ms: None,
        }
    }

    pub fn in_force(&self) -> Option<u32> {
        self.pinned.or(self.asked)
    }

    pub fn owed(&self) -> u64 {
        self.expected
            .map_or(0, |jobs| u64::from(jobs).saturating_sub(self.done))
    }

    pub fn permits_held(&self) -> u64 {
        self.holds
            .iter()
            .map(|hold| u64::from(hold.claim.permits()))
            .sum()
    }

    /// The moments until which the key is closed: those of a delay and of a pause.
    pub(super) fn closings(&mut self) -> [&mut Option<u64>; 2] {
        [&mut self.work.delayed_until_ms, &mut self.paused_until_ms]
    }

    pub(super) fn closed_until_ms(&self) -> [Option<u64>; 2] {
        [self.work.delayed_until_ms, self.paused_until_ms]
    }

    /// Until when the key is kept, even if nobody uses it and nothing is left of it.
    pub(super) fn kept_at_least_until_ms(&self) -> Option<u64> {
        self.paused_until_ms
    }

    /// Returns the lowest index that no hold has.
    pub(super) fn free_index(&self) -> Option<u32> {
        let is_free = |n: &u32| self.holds.iter().all(|hold| hold.index != Some(*n));
        (0..).find(is_free)
    }

    /// Returns the permits of the holds that rest.
    pub fn permits_resting(&self) -> u64 {
        let resting = self.holds.iter().filter(|hold| hold.is_resting);
        resting.map(|hold| u64::from(hold.claim.permits())).sum()
    }

    /// Ends a hold, and takes it away unless it rests. Returns it as it was.
    pub(super) fn end(&mut self, fence: u64, how: End, lease_us: u64) -> Option<ModelHold> {
        let at = self.holds.iter().position(|hold| hold.fence == fence)?;
        let before = self.holds[at].clone();
        if !self.holds[at].rest(how, lease_us) {
            self.holds.remove(at);
        }
        Some(before)
    }

    pub(super) fn fits(&self, claim: Claim, limit: Option<u32>) -> bool {
        if self.paused_until_ms.is_some() {
            return false;
        }
        match claim {
            Claim::Exclusive => self.holds.is_empty(),
            Claim::Shared => self.holds.iter().all(|hold| hold.claim == Claim::Shared),
            Claim::Permits(_) | Claim::Indexed => {
                let taken = self.permits_held() + u64::from(claim.permits());
                limit.is_some_and(|limit| taken <= u64::from(limit))
            }
            Claim::Member => limit.is_none_or(|limit| (self.holds.len() as u64) < u64::from(limit)),
            Claim::Run => {
                let is_over = self.work.done.is_some();
                self.holds.is_empty() && !is_over && self.work.delayed_until_ms.is_none()
            }
        }
    }

    pub(super) fn ask(&mut self, limit: u32) {
        let before = (self.in_force(), self.asked);
        self.asked = Some(limit);
        let changed = match self.family {
            Family::Group => before.1.is_some() && before.1 != self.asked,
            _ => before.0.is_some() && before.0 != self.in_force(),
        };
        self.limit_changes += u64::from(changed);
    }

    pub(super) fn pin(&mut self, limit: Option<u32>) {
        let before = self.in_force();
        self.pinned = limit;
        self.limit_changes += u64::from(before.is_some() && before != self.in_force());
    }

    /// Returns the answer to a BEGIN that must not run: the result or, if there is no run and this request allows no
    /// further attempt, FAILED. An earlier request that waits is answered first, except during a delay.
    pub(super) fn work_is_over(&mut self, request: &Request, is_first: bool) -> Option<Answer> {
        let may_fail = is_first || self.work.delayed_until_ms.is_some();
        match self.work.done_answer() {
            None if self.holds.is_empty() && may_fail => self.work.give_up(request.bound),
            done => done,
        }
    }

    /// Notes an ADD or EXPECT, which opens the next round if the last one is over.
    pub(super) fn begin(&mut self, at_ms: u64) {
        if let Some(finished_ms) = self.finished_ms.take() {
            self.displaced = Some(FinishedRound {
                expected: self.expected,
                done: self.done,
                lapsed: self.lapsed,
                keep_until: UnixMs(finished_ms),
            });
            (self.expected, self.done, self.lapsed) = (None, 0, 0);
        }
        self.touched_ms = self.touched_ms.max(at_ms);
    }

    /// Whether a member was ever added to the group, or jobs were expected. Otherwise only a PAUSE has made the key.
    pub(super) fn has_begun(&self) -> bool {
        self.touched_ms > 0
    }

    /// The last member has ended, and nobody was heard of in this round: it is as if it had not begun.
    pub(super) fn bring_round_back(&mut self) {
        if let Some(round) = self.displaced.take() {
            (self.expected, self.done, self.lapsed) = (round.expected, round.done, round.lapsed);
            self.finished_ms = Some(round.keep_until.0);
        }
    }

    /// Returns what is saved of what the holds have displaced: only if none of them was heard of.
    pub fn displaced(&self) -> Option<Change> {
        if self.holds.iter().any(|hold| hold.unheard_ms.is_none()) {
            return None;
        }
        let late = self.work.displaced.clone().map(Displaced::Late);
        let round = self.displaced.map(Displaced::Round);
        late.or(round).map(Change::Displaced)
    }

    /// Returns the changes that only later versions of the format have.
    pub fn later_scalars(&self) -> Vec<Change> {
        let delay = self.work.delayed_until_ms.map(|ms| Some(UnixMs(ms)));
        let pause = self.paused_until_ms.map(|ms| Some(UnixMs(ms)));
        let delay = delay.map(|until| Change::Delay { until });
        let pause = pause.map(|until| Change::Pause { until });
        delay.into_iter().chain(pause).collect()
    }

    /// Returns the change that sets everything else but the holds.
    pub fn scalars(&self) -> Option<Change> {
        match self.family {
            Family::Semaphore => Some(Change::Limits(Limits {
                limit: self.asked,
                pinned: self.pinned,
                changes: self.limit_changes,
            })),
            Family::Group => Some(Change::Tally(Tally {
                limit: self.asked,
                limit_changes: self.limit_changes,
                expected: self.expected,
                done: self.done,
                lapsed: self.lapsed,
                touched: UnixMs(self.touched_ms),
                finished: self.finished_ms.map(UnixMs),
            })),
            Family::Once => Some(Change::Record(Record {
                attempts: self.work.attempts,
                reason: self.work.reason.clone(),
                late: self.work.late.clone(),
                done: self.work.done.clone(),
                touched: UnixMs(self.touched_ms),
            })),
            Family::Lock => None,
        }
    }
}
