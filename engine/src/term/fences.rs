//! How fences rise: always past the last one, over all keys, and past every fence that another server may have given
//! for the same key.
//!
//! A fence is the wall clock in microseconds, or the last fence plus one if that is more. So the fences of a server
//! that has lost its data still rise, as long as its clock does.
//!
//! A server that begins to decide leaps, because it may not know all fences: the newest may be lost, or another server
//! may have given them. How far depends on where its data are from, see [`Fences::start`]. Two starts from one file
//! must not give the same fences, although the file tells both the same last fence. So each start also goes past a
//! *line*, which rises from the last fence of the file at a quarter of the clock's speed. A server that gives fewer than
//! 250,000 fences a second stays below it until its clock has caught up. Rejected: a rule that knows only the last
//! fence and the clock, because it fails at the second start from a file; and a fixed distance for each start, because
//! enough starts of an old primary that is cut off then pass the promoted one.
//!
//! A file has its writer's line, see [`Fences::record`]. So all files since a beginning have one line, and who begins
//! later begins higher, whichever of them it has.

use super::record::{Identity, Record};
use crate::types::{Fence, Now, UnixMs};

/// How far ahead of this server's clock a fence, or another moment, from another server may be, and how far the fences of
/// other nodes may take this server's own: a year.
pub const AHEAD_US: u64 = 366 * 86_400 * 1_000_000;

const MINUTE_US: u64 = 60 * 1_000_000;
const HOUR_US: u64 = 60 * MINUTE_US;

/// How much faster the clock runs than the line.
const LINE_SLOWNESS: u64 = 4;

/// How far a beginning leaps past what this server knows.
struct Leap {
    /// Past the last fence, and past the line.
    past_known_us: u64,
    past_clock_us: u64,
}

/// The server goes on from its own file, which it wrote as a primary. The file lacks only what the server itself has
/// given since.
const GO_ON: Leap = Leap {
    past_known_us: 0,
    past_clock_us: HOUR_US,
};

/// The server takes the place of another one, which may still serve, cut off from all others, and may even be started
/// again. So it leaps farther than that one does at a start, for an hour: in that time the line rises by 15 minutes.
const REPLACE: Leap = Leap {
    past_known_us: 20 * MINUTE_US,
    past_clock_us: 2 * HOUR_US,
};

/// The server starts from data that tell of no fence. They may be those of a full synchronisation with a primary that had
/// given none yet, and this server may have been promoted since, past the first fences of that primary.
const REPLACE_UNTOLD: Leap = Leap {
    past_known_us: 0,
    past_clock_us: 2 * HOUR_US + 2 * REPLACE.past_known_us,
};

/// By how much the clocks of two servers may differ.
const CLOCKS_DIFFER_US: u64 = HOUR_US;

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

/// Where the line begins: a fence, and when it was the last one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Anchor {
    fence: Fence,
    unix_us: u64,
}

impl Anchor {
    /// Returns the line at a moment. A fence more than a year ahead of its moment is the work of a wrong clock. There is
    /// no line from such a fence: it would reach far into the future when the clock is right again.
    fn line(self, unix_us: u64) -> u64 {
        if self.fence.0 > self.unix_us.saturating_add(AHEAD_US) {
            return 0;
        }
        self.fence.0 + unix_us.saturating_sub(self.unix_us) / LINE_SLOWNESS
    }
}

/// What this server knows about the fences that were given so far.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Fences {
    /// The highest fence that this server gave, or saw in a change or a state from another server.
    last: Fence,
    /// The line begins at the last fence of the data that this server has loaded, or of its own last beginning. `None` if
    /// those data tell of no fence.
    anchor: Option<Anchor>,
    /// What the data that this server has loaded say of their writer.
    record: Option<Record>,
    /// Data are being loaded.
    is_loading: bool,
    /// Data were loaded.
    has_loaded: bool,
    /// A fence was given or heard of, so that there is something to save.
    is_used: bool,
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
        self.is_used = true;
        self.last = Fence((self.last.0 + 1).max(now.unix_us).min(Fence::MAX.0));
        self.last
    }

    /// Makes all later fences higher than this one, which another server gave or a file has: also if it is far ahead of
    /// the clock, because a client holds with it. [`Fences::take_ahead`] reports the first such fence.
    pub fn adopt(&mut self, fence: Fence, now: Now) {
        if is_ahead(fence, now) && !is_ahead(self.last, now) {
            self.ahead = Some(fence);
        }
        self.is_used = true;
        self.last = self.last.max(fence);
        if self.is_loading {
            self.anchor.get_or_insert(Anchor {
                fence,
                unix_us: now.unix_us,
            });
        }
    }

    /// [`Fences::adopt`] for a grant that was made at this moment. The grants of an AOF go on where its record ends, so
    /// a grant above the line raises it.
    pub fn adopt_grant(&mut self, fence: Fence, granted: UnixMs, now: Now) {
        let unix_us = granted.0.saturating_mul(1_000);
        let is_above = |anchor: Anchor| fence.0 > anchor.line(unix_us);
        if self.is_loading && self.anchor.is_none_or(is_above) {
            self.anchor = Some(Anchor { fence, unix_us });
        }
        self.adopt(fence, now);
    }

    /// Notes that the data are replaced by those of a file or a primary. What the data before said of their writer counts
    /// no more.
    pub fn loading_started(&mut self) {
        self.is_loading = true;
        (self.record, self.anchor) = (None, None);
    }

    /// Takes over the record of the data that are being loaded.
    pub fn adopt_record(&mut self, record: Record, now: Now) {
        let was_used = self.is_used;
        self.adopt(record.last, now);
        self.is_used = was_used || record.is_used;
        self.record = Some(record);
        self.anchor = Some(Anchor {
            fence: record.last,
            unix_us: record.written_us,
        });
    }

    pub fn loading_ended(&mut self) {
        self.is_loading = false;
        self.has_loaded = true;
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
    pub fn to_save(&self) -> Fence {
        self.last.max(self.heard)
    }

    /// Returns what a file has to say of the fences so far. The line from there is that of this server: where it is above
    /// the last fence, the record is dated back to when it was not.
    pub fn record(&self, now: Now, by: Identity, as_primary: bool) -> Record {
        let last = self.to_save();
        let above_us = self.line(now).saturating_sub(last.0);
        let unix_us = now
            .unix_us
            .saturating_sub(above_us.saturating_mul(LINE_SLOWNESS));
        let is_used = self.is_used;
        Record {
            is_used,
            ..Record::new(last, Now { unix_us, ..now }, by, as_primary)
        }
    }

    /// Returns the line at this moment, 0 if there is none.
    fn line(&self, now: Now) -> u64 {
        self.anchor.map_or(0, |anchor| anchor.line(now.unix_us))
    }

    /// Returns whether a fence was ever given or heard of. If not, a file without any of ours loses nothing.
    pub fn is_used(&self) -> bool {
        self.is_used
    }

    /// Returns, once, a fence that was accepted although it is more than a year ahead of the clock.
    pub fn take_ahead(&mut self) -> Option<Fence> {
        self.ahead.take()
    }

    /// Begins to decide after a start: leaps past the fences that are not in the data, because they were lost.
    ///
    /// From its own file, which it wrote as a primary, the server only goes on. From any other file, or without one, it
    /// may replace a server that it does not know. A file without a record counts as another server's.
    pub fn start(&mut self, me: Identity, now: Now) {
        let goes_on = (self.record).is_some_and(|record| record.as_primary && record.by == me);
        if goes_on {
            return self.begin(GO_ON, now);
        }
        let Some(anchor) = &mut self.anchor else {
            let is_untold = self.has_loaded;
            return self.begin(if is_untold { REPLACE_UNTOLD } else { REPLACE }, now);
        };
        // Another server's clock, or one that this server has gone by as a replica, may have been ahead of its own. So
        // the line may have begun earlier.
        anchor.unix_us = anchor.unix_us.saturating_sub(CLOCKS_DIFFER_US);
        self.begin(REPLACE, now);
    }

    /// Begins to decide after a promotion: leaps past the fences of the old primary that this server has not seen.
    pub fn promote(&mut self, now: Now) {
        if !self.is_used {
            // The old primary has given no fence either, so what is known of are leaps that nobody has seen.
            (self.last, self.anchor) = (Fence(0), None);
        }
        self.begin(REPLACE, now);
    }

    fn begin(&mut self, leap: Leap, now: Now) {
        let known = self.last.0.max(self.line(now));
        let past_known = known.saturating_add(leap.past_known_us);
        let past_clock = now.unix_us.saturating_add(leap.past_clock_us);
        self.last = Fence(past_known.max(past_clock).min(Fence::MAX.0));
        self.anchor = Some(Anchor {
            fence: self.last,
            unix_us: now.unix_us,
        });
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
        self.is_used = true;
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

    /// Some 20 hours: a distance from the clock that a record tells exactly.
    const EXACT_US: u64 = (20 * HOUR_US).next_multiple_of(1 << 13);

    fn own_file(last: Fence, unix_us: u64) -> Record {
        Record::new(last, at(unix_us), Identity::default(), true)
    }

    /// The old primary may be started again, from its own file, as often as it likes.
    #[test]
    fn restarted_primary_stays_below_promoted_one_for_an_hour() {
        for served_us in [0, MINUTE_US, 3 * HOUR_US] {
            let began = 10_000 * HOUR_US;
            let mut old = Fences::default();
            old.start(Identity::default(), at(began));
            let cut = began + served_us;
            let known = old.next(at(cut));
            let mut new = Fences::default();
            new.adopt_record(own_file(known, cut), at(cut));
            new.promote(at(cut));
            for starts in 1..=9 {
                let now = cut + starts * 6 * MINUTE_US;
                let mut again = Fences::default();
                again.adopt_record(own_file(old.last(), now), at(now));
                again.start(Identity::default(), at(now));
                old = again;
            }
            let late = old.next(at(cut + HOUR_US));
            assert!(
                late < new.last(),
                "{served_us} µs: {late:?} of the old side"
            );
        }
    }

    /// A file that was saved right after a promotion has a last fence two hours ahead of the clock.
    #[test]
    fn second_start_from_one_file_gives_higher_fences_than_the_first() {
        let saved = 10_000 * HOUR_US;
        for ahead_us in [0, HOUR_US, 2 * HOUR_US] {
            let record = own_file(Fence(saved + ahead_us), saved);
            let mut given = Fence(0);
            for start in 1..=20 {
                let now = at(saved + start * 15 * MINUTE_US);
                let mut fences = Fences::default();
                fences.adopt_record(record, now);
                fences.start(Identity::default(), now);
                for _ in 0..1_000 {
                    let fence = fences.next(now);
                    assert!(fence > given, "{ahead_us} µs, start {start}");
                    given = fence;
                }
            }
        }
    }

    #[test]
    fn start_leaps_as_the_writer_of_its_file_demands() {
        let (saved, clock) = (10_000 * HOUR_US, 10_008 * HOUR_US);
        let last = Fence(saved + EXACT_US);
        let (me, other) = (Identity::default(), Identity::from_hash(u32::MAX));
        for (by, as_primary, line_us) in [
            (me, true, 2 * HOUR_US),
            (me, false, 2 * HOUR_US + 35 * MINUTE_US),
            (other, true, 2 * HOUR_US + 35 * MINUTE_US),
            (other, false, 2 * HOUR_US + 35 * MINUTE_US),
        ] {
            let mut fences = Fences::default();
            fences.adopt_record(Record::new(last, at(saved), by, as_primary), at(clock));
            fences.start(me, at(clock));
            assert_eq!(
                fences.last(),
                Fence(last.0 + line_us),
                "{by:?} {as_primary}"
            );
        }
        let mut none = Fences::default();
        none.start(me, at(clock));
        assert_eq!(none.last(), Fence(clock + 2 * HOUR_US));
        let mut unused = Fences::default();
        unused.loading_started();
        unused.loading_ended();
        unused.start(me, at(clock));
        let untold_us = 2 * HOUR_US + 40 * MINUTE_US;
        assert_eq!(unused.last(), Fence(clock + untold_us));
        unused.promote(at(clock));
        assert_eq!(
            unused.last(),
            Fence(clock + 2 * HOUR_US),
            "nobody saw a fence"
        );
        let mut of_old_version = Fences::default();
        of_old_version.loading_started();
        of_old_version.adopt(last, at(clock));
        of_old_version.loading_ended();
        of_old_version.start(me, at(clock));
        assert_eq!(of_old_version.last(), Fence(last.0 + 35 * MINUTE_US));
    }

    #[test]
    fn wrong_clock_of_a_file_takes_no_fence_years_ahead() {
        let now = at(500_000 * HOUR_US);
        let mut fences = Fences::default();
        fences.adopt_record(own_file(Fence(now.unix_us), 0), now);
        fences.start(Identity::default(), now);
        assert_eq!(fences.last(), Fence(now.unix_us + HOUR_US));
    }

    #[test]
    fn grants_of_an_aof_move_the_line() {
        let saved = 10_000 * HOUR_US;
        let now = at(saved + 5 * HOUR_US);
        let granted = Fence(saved + 20 * HOUR_US);
        for is_loaded in [true, false] {
            let mut fences = Fences::default();
            fences.loading_started();
            fences.adopt_record(own_file(Fence(saved), saved), now);
            if !is_loaded {
                fences.loading_ended();
            }
            fences.adopt_grant(granted, UnixMs((saved + HOUR_US) / 1_000), now);
            fences.start(Identity::default(), now);
            let line_us = if is_loaded { HOUR_US } else { 0 };
            assert_eq!(
                fences.last(),
                Fence(granted.0 + line_us),
                "loaded: {is_loaded}"
            );
        }
    }

    #[test]
    fn grant_below_the_line_leaves_it() {
        let (saved, now) = (10_000 * HOUR_US, at(10_005 * HOUR_US));
        let last = saved + (20 * HOUR_US).next_multiple_of(1 << 13);
        let mut fences = Fences::default();
        fences.loading_started();
        fences.adopt_record(own_file(Fence(last), saved), now);
        let granted = UnixMs((saved + 4 * HOUR_US) / 1_000);
        fences.adopt_grant(Fence(last + 1), granted, now);
        fences.start(Identity::default(), now);
        assert_eq!(fences.last(), Fence(last + 5 * HOUR_US / LINE_SLOWNESS));
    }

    #[test]
    fn fences_are_used_once_one_was_given_adopted_or_heard() {
        let now = at(10_000 * HOUR_US);
        let mut fences = Fences::default();
        fences.start(Identity::default(), now);
        assert!(!fences.is_used(), "a leap gives nothing");
        fences.next(now);
        assert!(fences.is_used());
        let mut fences = Fences::default();
        fences.adopt(Fence(1), now);
        assert!(fences.is_used());
        let mut fences = Fences::default();
        fences.hear(announced(Fence(1)), now);
        assert!(fences.is_used());
    }

    /// The old primary was itself promoted moments ago. Its fences are ahead of both clocks, so only the line rises.
    #[test]
    fn primary_promoted_twice_stays_below_the_next_for_an_hour() {
        let began = 10_000 * HOUR_US;
        let mut old = Fences::default();
        old.promote(at(began));
        let file = own_file(old.last(), began);
        let mut new = Fences::default();
        new.adopt_record(file, at(began));
        new.promote(at(began));
        for minutes in [1, 30, 59] {
            let now = at(began + minutes * MINUTE_US);
            let mut again = Fences::default();
            again.adopt_record(file, now);
            again.start(Identity::default(), now);
            assert!(again.next(now) < new.last(), "after {minutes} minutes");
        }
    }

    #[test]
    fn second_promotion_goes_past_the_line_of_the_first() {
        let began = 10_000 * HOUR_US;
        let mut fences = Fences::default();
        fences.adopt_record(own_file(Fence(began + EXACT_US), began), at(began));
        fences.promote(at(began));
        let first = fences.last();
        assert_eq!(first, Fence(began + EXACT_US + 20 * MINUTE_US));
        fences.promote(at(began + HOUR_US));
        assert_eq!(fences.last(), Fence(first.0 + 35 * MINUTE_US));
    }

    #[test]
    fn record_of_replaced_data_counts_no_more() {
        let now = at(10_000 * HOUR_US);
        let mut fences = Fences::default();
        fences.adopt_record(own_file(Fence(now.unix_us), now.unix_us), now);
        assert_eq!(fences.last(), Fence(now.unix_us));
        fences.loading_started();
        fences.adopt(Fence(now.unix_us + HOUR_US), now);
        fences.start(Identity::default(), now);
        assert_eq!(fences.last(), Fence(now.unix_us + 2 * HOUR_US));
    }

    /// Only a fence more than a year ahead of its moment has no line.
    #[test]
    fn line_begins_at_a_fence_a_year_ahead_and_at_none_farther() {
        let written = 10_000 * HOUR_US;
        for (ahead_us, line_us) in [
            (AHEAD_US, HOUR_US / LINE_SLOWNESS),
            (AHEAD_US + (1 << 13), 0),
        ] {
            let now = at(written + HOUR_US);
            let last = Fence(written + ahead_us);
            let mut fences = Fences::default();
            fences.adopt_record(own_file(last, written), now);
            fences.start(Identity::default(), now);
            assert_eq!(fences.last(), Fence(last.0 + line_us), "{ahead_us}");
        }
    }

    /// A key that was written anew stands behind newer ones in an AOF.
    #[test]
    fn grant_not_above_the_record_leaves_the_line() {
        let saved = 10_000 * HOUR_US;
        let now = at(saved + 5 * HOUR_US);
        let last = Fence(saved + EXACT_US);
        for granted in [last, Fence(last.0 - 1)] {
            let mut fences = Fences::default();
            fences.loading_started();
            fences.adopt_record(own_file(last, saved), now);
            fences.adopt_grant(granted, UnixMs((saved + HOUR_US) / 1_000), now);
            fences.start(Identity::default(), now);
            let line = Fence(last.0 + 5 * HOUR_US / LINE_SLOWNESS);
            assert_eq!(fences.last(), line, "{granted:?}");
        }
    }
}
