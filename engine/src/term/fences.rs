//! How fences rise: always past the last one, over all keys, and past every fence that another server may have given
//! for the same key.
//!
//! A fence is the wall clock in microseconds, or the last fence plus one if that is more. So the fences of a server
//! that has lost its data still rise, as long as its clock does.

use crate::types::{Fence, Now};

/// How far ahead of this server's clock a fence, or another moment, from another server may be, and how far the fences of
/// other nodes may take this server's own: a year.
pub const AHEAD_US: u64 = 366 * 86_400 * 1_000_000;

const MINUTE_US: u64 = 60 * 1_000_000;
const HOUR_US: u64 = 60 * MINUTE_US;

/// Why a server begins to decide. It then leaps past all fences that it knows, because it may not know all: the newest
/// may have been lost, or another server whose clock is ahead may have given them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beginning {
    /// The server was started, with its own data or with none.
    Start,
    /// The server was promoted. The old primary may still serve, cut off from all others, and may even be started
    /// again. So a promotion leaps farther than a start.
    Promotion,
}

impl Beginning {
    /// Returns how far to leap past the last fence, and how far past the clock.
    fn leaps_us(self) -> (u64, u64) {
        match self {
            Beginning::Start => (MINUTE_US, HOUR_US),
            Beginning::Promotion => (10 * MINUTE_US, 2 * HOUR_US),
        }
    }
}

/// Whether the fence is more than a year ahead of the clock.
pub fn is_ahead(fence: Fence, now: Now) -> bool {
    fence.0 > now.unix_us.saturating_add(AHEAD_US)
}

/// What the nodes of a cluster tell each other about their fences.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Announcement {
    /// The last fence of the node.
    pub last: Fence,
    /// The highest last fence that other nodes have told it of.
    pub heard: Fence,
    /// The highest base that the node knows. The base of a node is its last fence less the distance that it leapt, so a
    /// leap does not change it, and it does no harm if the others miss the leap.
    pub base: Fence,
}

/// What this server knows about the fences that were given so far.
#[derive(Default)]
pub struct Fences {
    /// The highest fence that this server gave, or saw in a change or a state from another server.
    last: Fence,
    /// A fence from another server that is far ahead of the clock, until the caller has taken it for the log.
    ahead: Option<Fence>,
    /// The highest last fence of another node of the cluster.
    heard: Fence,
    /// The highest base of a node of the cluster, this one included.
    base: Fence,
    /// The last fence that this server has announced. The other nodes repeat it.
    told: Fence,
}

impl Fences {
    /// Returns the last fence that this server gave or saw.
    pub fn last(&self) -> Fence {
        self.last
    }

    /// Returns the fence of the next grant: past every earlier one, and past those that a server which lost its data
    /// may have given before this moment.
    pub fn next(&mut self, now: Now) -> Fence {
        self.last = Fence((self.last.0 + 1).max(now.unix_us).min(Fence::MAX.0));
        self.last
    }

    /// Makes all later fences higher than this one, which another server gave or a file has: also if it is far ahead of
    /// the clock, because a client holds with it. [`Fences::take_ahead`] reports the first such fence.
    pub fn adopt(&mut self, fence: Fence, now: Now) {
        if is_ahead(fence, now) && !is_ahead(self.last, now) {
            self.ahead = Some(fence);
        }
        self.last = self.last.max(fence);
    }

    /// Whether to believe that another node of the cluster gave this fence.
    fn is_near(&self, fence: Fence, now: Now) -> bool {
        !is_ahead(fence, now) || fence <= self.last
    }

    /// Leaps past the fence, but no farther than a year past the clock: the other nodes would not believe it.
    fn go_past(&mut self, fence: Fence, distance_us: u64, now: Now) {
        if fence > Fence(0) {
            let least = fence.0.saturating_add(distance_us);
            let farthest = now.unix_us.saturating_add(AHEAD_US);
            self.last = self.last.max(Fence(least.min(farthest).min(Fence::MAX.0)));
        }
    }

    /// Returns the highest fence that the announcements of the cluster's nodes tell of.
    pub fn highest_heard(&self) -> Fence {
        self.heard.max(self.base)
    }

    /// Returns the last fence to save. A server that starts with it has also not forgotten what it had heard.
    ///
    /// Each start leaps a minute past what was saved, and the other nodes hear of that and save it in turn. So the
    /// fences of a cluster rise by a minute at most for each start of a node.
    pub fn to_save(&self) -> Fence {
        self.last.max(self.heard)
    }

    /// Returns, once, a fence that was accepted although it is more than a year ahead of the clock.
    pub fn take_ahead(&mut self) -> Option<Fence> {
        self.ahead.take()
    }

    /// Leaps ahead, so that later fences are past those that this server does not know.
    pub fn leap(&mut self, beginning: Beginning, now: Now) {
        let (past_last, past_clock) = beginning.leaps_us();
        let last = (self.last.0 + past_last).max(now.unix_us.saturating_add(past_clock));
        self.last = Fence(last.min(Fence::MAX.0));
    }

    /// Returns what to announce. `distance_us` is how far this server has leapt past the base that it knew.
    pub fn announce(&mut self, distance_us: u64) -> Announcement {
        self.told = self.last;
        // This node must leap past its own base as well if a slot that it gave away comes back.
        let base = Fence(self.last.0.saturating_sub(distance_us));
        self.base = self.base.max(base);
        Announcement {
            last: self.last,
            heard: self.heard,
            base: self.base,
        }
    }

    /// Notes what a node of the cluster announced.
    pub fn hear(&mut self, announced: Announcement, now: Now) {
        self.hear_base(announced.base, now);
        let is_near = |fence: &Fence| self.is_near(*fence, now);
        // A node repeats to this one its own fence. To leap past that would have no end.
        let repeated = Some(announced.heard).filter(|fence| *fence > self.told);
        let heard = [Some(announced.last), repeated].into_iter().flatten();
        let heard = heard.filter(is_near).max().unwrap_or_default();
        self.heard = self.heard.max(heard);
    }

    /// Notes a base. One that is too far ahead is ignored.
    pub fn hear_base(&mut self, base: Fence, now: Now) {
        if self.is_near(base, now) {
            self.base = self.base.max(base);
        }
    }

    /// Makes later fences higher than the highest base, by this distance. To repeat it changes nothing, also if several
    /// nodes do it in turn, because no leap raises a base.
    pub fn leap_past_base(&mut self, distance_us: u64, now: Now) {
        self.go_past(self.base, distance_us, now);
    }

    /// Makes later fences higher than those of all other nodes, by this distance. Nodes that do it in turn drive each
    /// other ahead, so it needs a reason that cannot be repeated at will.
    pub fn leap_past_heard(&mut self, distance_us: u64, now: Now) {
        self.go_past(self.heard, distance_us, now);
    }

    /// Makes later fences higher than those of a node that follows this one's, by this distance. Like
    /// [`Fences::leap_past_heard`], it needs a reason that cannot be repeated at will.
    pub fn leap_past_own(&mut self, distance_us: u64, now: Now) {
        self.go_past(self.last, distance_us, now);
    }

    /// Returns whether another node has told of a fence that this server has not gone past.
    pub fn is_behind_heard(&self) -> bool {
        self.heard > Fence(0) && self.heard >= self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{LeaseUs, MonoUs};

    fn at(unix_us: u64) -> Now {
        Now {
            lease: LeaseUs(0),
            mono: MonoUs(0),
            unix_us,
            may_write: true,
        }
    }

    fn announced(last: Fence) -> Announcement {
        Announcement {
            last,
            heard: Fence(0),
            base: Fence(0),
        }
    }

    #[test]
    fn server_is_behind_until_it_has_gone_past_what_it_heard() {
        let now = at(10_000 * HOUR_US);
        let mut fences = Fences::default();
        assert!(!fences.is_behind_heard(), "nobody has told of any");
        let last = fences.next(now);
        fences.hear(announced(Fence(last.0 - 1)), now);
        assert!(!fences.is_behind_heard());
        fences.hear(announced(last), now);
        assert!(fences.is_behind_heard(), "the same");
        fences.hear(announced(Fence(last.0 + 1)), now);
        assert!(fences.is_behind_heard());
        fences.leap_past_heard(1, now);
        assert!(!fences.is_behind_heard());
    }

    #[test]
    fn leap_past_own_fences_is_as_far_as_asked() {
        let now = at(10_000 * HOUR_US);
        let mut fences = Fences::default();
        fences.leap_past_own(HOUR_US, now);
        assert_eq!(fences.last(), Fence(0), "it has given none");
        let last = fences.next(now);
        fences.leap_past_own(HOUR_US, now);
        assert_eq!(fences.last(), Fence(last.0 + HOUR_US));
    }

    /// A start used to leap as far as a promotion. An old primary that was cut off and then restarted gave fences above
    /// those of the server that had been promoted in its place.
    #[test]
    fn fences_of_restarted_primary_stay_below_promoted_one() {
        // The old primary itself may have been started or promoted at any time before.
        for before in [None, Some(Beginning::Start), Some(Beginning::Promotion)] {
            for served_us in [0, MINUTE_US, 3 * HOUR_US] {
                let began = 10_000 * HOUR_US;
                let mut old = Fences::default();
                if let Some(before) = before {
                    old.leap(before, at(began));
                }
                let cut = began + served_us;
                let known = old.next(at(cut));
                let mut new = Fences::default();
                new.adopt(known, at(cut));
                new.leap(Beginning::Promotion, at(cut));
                for starts in 1..=9 {
                    old.leap(Beginning::Start, at(cut + starts * 6 * MINUTE_US));
                }
                let late = old.next(at(cut + HOUR_US));
                assert!(
                    late < new.last(),
                    "{before:?}, then {served_us} µs: {late:?} of the old side"
                );
            }
        }
    }
}
