//! The state of one key: what the rules of its family need to know, with its holds. Only [`Body::apply`] changes it.

use crate::Settings;
use crate::address::Address;
use crate::change::{Change, Displaced};
use crate::families::group::WaitGroup;
use crate::families::lock::Lock;
use crate::families::once::Once;
use crate::families::semaphore::Semaphore;
use crate::heap;
use crate::hold::Hold;
use crate::hold_set::HoldSet;
use crate::types::{Claim, Family, Fence, OptionalUnixMs, UnixMs};

mod apply;

pub use apply::Misfit;

/// What one family keeps. The other families have boxes, so that a lock, which is the most frequent, stays small.
#[derive(Clone)]
pub enum Body {
    Lock(Lock),
    Semaphore(Semaphore),
    Group(Box<WaitGroup>),
    Once(Box<Once>),
}

/// The value of one key.
#[derive(Clone)]
pub struct State {
    pub body: Body,
    /// Where the value is, so that a task can find it.
    pub address: Address,
}

// A million locks are a million of these. 1,024 of them fill a size class of the server's allocator exactly.
const _: () = assert!(size_of::<Option<State>>() == 80);

impl Body {
    #[must_use]
    pub fn new(family: Family) -> Body {
        match family {
            Family::Lock => Body::Lock(Lock::default()),
            Family::Semaphore => Body::Semaphore(Semaphore::default()),
            Family::Group => Body::Group(Box::new(WaitGroup::new())),
            Family::Once => Body::Once(Box::new(Once::new())),
        }
    }

    #[must_use]
    pub fn family(&self) -> Family {
        match self {
            Body::Lock(_) => Family::Lock,
            Body::Semaphore(_) => Family::Semaphore,
            Body::Group(_) => Family::Group,
            Body::Once(_) => Family::Once,
        }
    }

    #[must_use]
    pub fn holds(&self) -> &HoldSet {
        match self {
            Body::Lock(lock) => lock.holds(),
            Body::Semaphore(semaphore) => &semaphore.holds,
            Body::Group(group) => &group.members,
            Body::Once(once) => once.runs(),
        }
    }

    /// Drops everything but the holds.
    #[must_use]
    pub fn into_holds(self) -> HoldSet {
        match self {
            Body::Lock(lock) => lock.into_holds(),
            Body::Semaphore(semaphore) => *semaphore.holds,
            Body::Group(group) => group.members,
            Body::Once(once) => once.into_runs(),
        }
    }

    /// Returns the holds; `None` only if there are none.
    pub fn holds_mut(&mut self) -> Option<&mut HoldSet> {
        match self {
            Body::Lock(lock) => Some(lock.holds_mut()),
            Body::Semaphore(semaphore) => Some(&mut semaphore.holds),
            Body::Group(group) => Some(&mut group.members),
            Body::Once(once) => once.runs_mut(),
        }
    }

    /// Adds a hold. There must be room for it: see `HoldSet::insert`.
    #[inline]
    pub fn insert(&mut self, hold: Hold) {
        match self {
            Body::Lock(lock) => lock.holds_mut().insert(hold),
            Body::Semaphore(semaphore) => semaphore.holds.insert(hold),
            Body::Group(group) => group.members.insert(hold),
            Body::Once(once) => once.insert(hold),
        }
    }

    pub fn remove(&mut self, fence: Fence) -> Option<Hold> {
        self.holds_mut()?.remove(fence)
    }

    #[must_use]
    pub fn limit_in_force(&self) -> Option<u32> {
        match self {
            Body::Lock(_) | Body::Once(_) => None,
            Body::Semaphore(semaphore) => semaphore.limit_in_force(),
            Body::Group(group) => group.tally().limit,
        }
    }

    /// Returns how often the limit in force has changed.
    #[must_use]
    pub fn limit_changes(&self) -> u64 {
        match self {
            Body::Lock(_) | Body::Once(_) => 0,
            Body::Semaphore(semaphore) => semaphore.limits().changes,
            Body::Group(group) => group.tally().limit_changes,
        }
    }

    /// Returns the limit that a request last gave.
    #[must_use]
    pub fn limit_asked(&self) -> Option<u32> {
        match self {
            Body::Lock(_) | Body::Once(_) => None,
            Body::Semaphore(semaphore) => semaphore.limits().limit,
            Body::Group(group) => group.tally().limit,
        }
    }

    /// Returns the limit that the queue remembers, in case the key is removed: the one that a request gave last, or the
    /// one in force. A pause by an operator is not remembered.
    #[must_use]
    pub fn limit_to_remember(&self) -> Option<u32> {
        self.limit_asked()
            .or(self.limit_in_force())
            .filter(|limit| *limit >= 1)
    }

    /// Returns until when nobody is granted, if an operator has paused the key. The pause lasts until it is ended by a
    /// change, even if its moment has passed.
    #[must_use]
    pub fn paused_until(&self) -> Option<UnixMs> {
        match self {
            Body::Lock(lock) => lock.paused_until(),
            Body::Semaphore(semaphore) => semaphore.paused_until.get(),
            Body::Group(group) => group.paused_until.get(),
            Body::Once(once) => once.paused_until.get(),
        }
    }

    /// Returns the moment before which no run may begin, if the last FAIL asked for one. The delay lasts until it is ended
    /// by a change too.
    #[must_use]
    pub fn delayed_until(&self) -> Option<UnixMs> {
        match self {
            Body::Once(once) => once.delayed_until(),
            Body::Lock(_) | Body::Semaphore(_) | Body::Group(_) => None,
        }
    }

    /// Returns the moment at which something that closes the key ends, a delay or a pause, if it is closed. Under this
    /// moment the key is in the `openings` index.
    #[must_use]
    pub fn opens_at(&self) -> Option<UnixMs> {
        let closed = [self.delayed_until(), self.paused_until()];
        closed.into_iter().flatten().min()
    }

    /// Whether a hold with this claim may be granted now: the key is not paused, and the claim fits beside the present
    /// holds, under this limit.
    #[must_use]
    pub fn admits(&self, claim: Claim, limit: Option<u32>) -> bool {
        if self.paused_until().is_some() {
            return false;
        }
        match self {
            Body::Lock(lock) => lock.admits(claim),
            Body::Semaphore(semaphore) => {
                limit.is_some_and(|limit| semaphore.admits(claim.permits(), limit))
            }
            Body::Group(group) => group.admits(limit),
            Body::Once(once) => once.admits(),
        }
    }

    /// Returns until when the key is kept without holds and waiters; `None` for families that keep nothing. A pause
    /// keeps a tally, a record or a result at least until its end.
    #[must_use]
    pub fn retained_until(&self, settings: &Settings) -> Option<UnixMs> {
        let until = match self {
            Body::Lock(_) | Body::Semaphore(_) => return None,
            Body::Group(group) => group.retained_until(settings.group_idle_ms),
            Body::Once(once) => once.retained_until(settings.once_keep_ms),
        };
        Some(self.paused_until().map_or(until, |pause| until.max(pause)))
    }

    /// Returns the moment under which the key is in the `retention` index.
    #[must_use]
    pub fn retention(&self) -> Option<UnixMs> {
        match self {
            Body::Lock(_) | Body::Semaphore(_) => None,
            Body::Group(group) => group.retention.get(),
            Body::Once(once) => once.retention.get(),
        }
    }

    /// Returns the field that has the moment under which the key is in the `retention` index.
    pub(crate) fn retention_mut(&mut self) -> Option<&mut OptionalUnixMs> {
        match self {
            Body::Lock(_) | Body::Semaphore(_) => None,
            Body::Group(group) => Some(&mut group.retention),
            Body::Once(once) => Some(&mut once.retention),
        }
    }

    /// Notes that a request waits for the key, which keeps it longer.
    pub fn watched(&mut self, at: UnixMs) {
        match self {
            Body::Lock(_) | Body::Semaphore(_) => {}
            Body::Group(group) => group.watched(at),
            Body::Once(once) => once.watched(at),
        }
    }

    /// Returns the change that sets everything but the holds: a family's scalars. `None` for a lock, which has none.
    #[must_use]
    pub fn scalars(&self) -> Option<Change> {
        match self {
            Body::Lock(_) => None,
            Body::Semaphore(semaphore) => Some(Change::Limits(semaphore.limits())),
            Body::Group(group) => Some(Change::Tally(group.tally())),
            Body::Once(once) => Some(Change::Record(once.record())),
        }
    }

    /// Returns the changes that set what [`Body::scalars`] leaves out, because only later versions of the format have
    /// it, in the order of their numbers; none for most keys.
    pub fn later_scalars(&self) -> impl Iterator<Item = Change> + use<> {
        let delay = self.delayed_until().map(Some);
        let pause = self.paused_until().map(Some);
        let delay = delay.map(|until| Change::Delay { until });
        let pause = pause.map(|until| Change::Pause { until });
        delay.into_iter().chain(pause)
    }

    /// Returns what the present holds have displaced, and what comes back if they all end undelivered.
    #[must_use]
    pub fn displaced(&self) -> Option<Displaced> {
        match self {
            Body::Lock(_) | Body::Semaphore(_) => None,
            Body::Group(group) => group.displaced().map(Displaced::Round),
            Body::Once(once) => once.displaced().cloned().map(Displaced::Late),
        }
    }

    /// Sets what [`Body::displaced`] returns. It must be of the family.
    pub(crate) fn set_displaced(&mut self, displaced: Option<Displaced>) {
        match (self, displaced) {
            (Body::Group(group), Some(Displaced::Round(round))) => group.set_displaced(Some(round)),
            (Body::Group(group), _) => group.set_displaced(None),
            (Body::Once(once), Some(Displaced::Late(token))) => once.set_displaced(Some(token)),
            (Body::Once(once), _) => once.set_displaced(None),
            (Body::Lock(_) | Body::Semaphore(_), _) => {}
        }
    }

    /// Returns the change that brings back what the last hold displaced, now that it has ended undelivered. `None` while
    /// other holds live.
    pub(crate) fn brought_back(&self, displaced: Displaced) -> Option<Change> {
        if !self.holds().is_empty() {
            return None;
        }
        match (self, displaced) {
            (Body::Group(group), Displaced::Round(round)) => {
                Some(Change::Tally(group.tally_with(round)))
            }
            (Body::Once(once), Displaced::Late(token)) => {
                Some(Change::Record(once.record_with_late(token)))
            }
            _ => None,
        }
    }

    /// Whether there are holds, and none of them has been heard of. Only then [`Body::displaced`] is saved: another
    /// server, or this one after a restart, ends no other hold as undelivered.
    fn is_unheard(&self) -> bool {
        match self {
            Body::Lock(_) | Body::Semaphore(_) => false,
            Body::Group(group) => group.is_unheard(),
            Body::Once(once) => once.unheard_run().is_some(),
        }
    }

    /// Returns the changes that make a new state equal to this one, for a saved state: first the scalars, then the
    /// holds, oldest first. For groups and work-once keys the scalars come last, because a grant changes them. What only
    /// later versions of the format have comes at the end.
    pub fn as_changes(&self) -> impl Iterator<Item = Change> {
        let (first, last) = match self {
            Body::Lock(_) => (None, None),
            Body::Semaphore(_) => (self.scalars(), None),
            Body::Group(_) | Body::Once(_) => (None, self.scalars()),
        };
        let grants = self
            .holds()
            .iter()
            .map(|hold| Change::Grant(hold.to_grant()));
        let later = self.later_scalars();
        let unheard = self.holds().iter().filter_map(|hold| {
            Some(Change::Unheard {
                fence: hold.fence(),
                keep_ms: hold.unheard_ms()?,
            })
        });
        let displaced = self.displaced().filter(|_| self.is_unheard());
        let all = first.into_iter().chain(grants).chain(last);
        let all = all.chain(later).chain(unheard);
        all.chain(displaced.map(Change::Displaced))
    }

    /// Returns the bytes on the heap.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let own = match self {
            Body::Lock(lock) => lock.heap_bytes(),
            Body::Semaphore(_) => heap::allocated(size_of::<HoldSet>()),
            Body::Group(group) => heap::allocated(size_of::<WaitGroup>()) + group.heap_bytes(),
            Body::Once(once) => heap::allocated(size_of::<Once>()) + once.heap_bytes(),
        };
        own + self.holds().heap_bytes()
    }

    /// Panics unless the holds obey the rules of the family.
    #[cfg(debug_assertions)]
    pub fn check_invariants(&self) {
        self.holds().check_invariants();
        let family = self.family();
        assert!(
            self.holds()
                .iter()
                .all(|hold| hold.claim().family() == family),
            "claims of the family"
        );
        if let Body::Lock(lock) = self {
            let exclusive = lock
                .holds()
                .iter()
                .any(|hold| hold.claim() == Claim::Exclusive);
            assert!(
                !exclusive || lock.holds().len() == 1,
                "an exclusive hold is alone"
            );
        }
        if let Body::Once(once) = self {
            assert!(once.runs().len() <= 1, "one run");
            assert!(
                once.displaced().is_none() || once.runs().len() == 1,
                "a run displaces"
            );
        }
        if let Body::Group(group) = self {
            assert!(
                group.tally().finished.is_none() || group.members.is_empty(),
                "a finished round has no members"
            );
            let tally = group.tally();
            let has_ended = tally.expected.is_some() || tally.done > 0 || tally.lost > 0;
            assert!(
                group.displaced().is_none() || !group.members.is_empty() && !has_ended,
                "members alone displace"
            );
        }
    }
}
