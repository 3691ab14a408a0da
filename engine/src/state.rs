//! The state of one key: the rules of its family with its holds, and the only function that changes it.
//!
//! The server that decides and its replicas both use [`Body::apply`], so their states are equal. `apply` checks every
//! change, because it may come from a file.

use std::fmt;
use std::sync::Arc;

use crate::Settings;
use crate::address::Address;
use crate::change::{Change, End};
use crate::families::group::WaitGroup;
use crate::families::lock::Lock;
use crate::families::once::Once;
use crate::families::semaphore::Semaphore;
use crate::heap;
use crate::hold::Hold;
use crate::hold_set::HoldSet;
use crate::types::{Claim, Family, Fence, OptionalUnixMs, UnixMs};

/// Why a change does not fit the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Misfit {
    /// The change is of another family.
    Family,
    /// Another hold has the fence or the token, or the present holds leave no room for the change.
    Taken,
    /// No hold has this fence.
    NoHold,
    /// There is no room for another state.
    Full,
    /// Changes follow a VANISH.
    Vanished,
    /// A kept place has the token or the number already.
    PlaceTaken,
    /// No kept place has this number.
    NoPlace,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Misfit::Family => "the key is of another family",
            Misfit::Taken => "its fence or its token is taken, or the key is held otherwise",
            Misfit::NoHold => "no hold of the key has its fence",
            Misfit::Full => "there is no room for another key",
            Misfit::Vanished => "the key vanishes, and yet more happens to it",
            Misfit::PlaceTaken => "another kept place has its token or its number",
            Misfit::NoPlace => "no kept place has its number",
        })
    }
}

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

    fn pause(&mut self, until: Option<UnixMs>) {
        let noted = match self {
            Body::Lock(lock) => return lock.pause(until),
            Body::Semaphore(semaphore) => &mut semaphore.paused_until,
            Body::Group(group) => &mut group.paused_until,
            Body::Once(once) => &mut once.paused_until,
        };
        noted.replace(until);
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

    /// Applies one change. Returns the hold that it ended, if any.
    ///
    /// # Errors
    /// If the change does not fit. Then nothing has changed.
    pub fn apply(&mut self, change: &Change) -> Result<Option<Hold>, Misfit> {
        match change {
            Change::Grant(grant) => {
                if grant.claim.family() != self.family() {
                    return Err(Misfit::Family);
                }
                let is_full = match self {
                    Body::Lock(lock) => !lock.admits(grant.claim),
                    Body::Once(once) => !once.admits(),
                    Body::Semaphore(_) | Body::Group(_) => false,
                };
                if is_full || !self.holds().accepts(grant.fence, &grant.token) {
                    return Err(Misfit::Taken);
                }
                match self {
                    Body::Group(group) => group.begin(grant.granted),
                    Body::Once(once) => once.begun(grant.granted),
                    Body::Lock(_) | Body::Semaphore(_) => {}
                }
                self.insert(Hold::new(grant));
            }
            Change::Renew {
                fence,
                lease,
                deadline,
            } => {
                let holds = self.holds_mut().ok_or(Misfit::NoHold)?;
                if !holds.renew(*fence, *lease, *deadline) {
                    return Err(Misfit::NoHold);
                }
            }
            Change::End { fence, how, at } => {
                let ended = self.remove(*fence).ok_or(Misfit::NoHold)?;
                if let Body::Once(once) = self {
                    once.ended(&ended, *how, *at);
                }
                if let Body::Group(group) = self {
                    match how {
                        End::Done => group.count_done(),
                        End::Lapsed | End::Revoked | End::Disconnected => group.count_lost(),
                        End::Released | End::Undelivered => {}
                    }
                    group.touch(*at);
                }
                return Ok(Some(ended));
            }
            Change::Limit(limit) => match self {
                Body::Lock(_) | Body::Once(_) => return Err(Misfit::Family),
                Body::Semaphore(semaphore) => semaphore.ask_limit(*limit),
                Body::Group(group) => group.ask_limit(*limit),
            },
            Change::Pin(limit) => self.semaphore()?.pin(*limit),
            Change::Expect { jobs, at } => self.group()?.expect(*jobs, *at),
            Change::Finish { keep_until } => {
                let group = self.group()?;
                if !group.members.is_empty() {
                    return Err(Misfit::Taken);
                }
                group.finish(*keep_until);
            }
            Change::Limits(limits) => self.semaphore()?.set_limits(*limits),
            Change::Tally(tally) => {
                let group = self.group()?;
                if tally.finished.is_some() && !group.members.is_empty() {
                    return Err(Misfit::Taken);
                }
                group.set_tally(*tally);
            }
            Change::Fail { fence, reason, at } => {
                self.once()?;
                let ended = self.remove(*fence).ok_or(Misfit::NoHold)?;
                self.once()?.failed(Arc::clone(reason), *at);
                return Ok(Some(ended));
            }
            Change::Complete { fence, done } => {
                let has_run = !self.once()?.runs().is_empty();
                let ended = match fence {
                    Some(fence) => Some(self.remove(*fence).ok_or(Misfit::NoHold)?),
                    None if has_run => return Err(Misfit::Taken),
                    None => None,
                };
                self.once()?.complete(done.clone());
                return Ok(ended);
            }
            Change::GiveUp => self.once()?.given_up(),
            Change::Record(record) => {
                let once = self.once()?;
                if !once.accepts(record) {
                    return Err(Misfit::Taken);
                }
                once.set_record(record.clone());
            }
            Change::Delay { until } => {
                let once = self.once()?;
                if !once.accepts_delay() {
                    return Err(Misfit::Taken);
                }
                once.delay(*until);
            }
            Change::Pause { until } => self.pause(*until),
            Change::Unheard { fence, keep_ms } => {
                let holds = self.holds_mut().ok_or(Misfit::NoHold)?;
                if !holds.set_unheard(*fence, *keep_ms) {
                    return Err(Misfit::NoHold);
                }
            }
            // The engine removes the state; there is nothing to change in it.
            Change::Vanish => {}
            // The engine changes the queue.
            Change::Place(_) | Change::Leave { .. } => {}
        }
        Ok(None)
    }

    fn semaphore(&mut self) -> Result<&mut Semaphore, Misfit> {
        match self {
            Body::Semaphore(semaphore) => Ok(semaphore),
            Body::Lock(_) | Body::Group(_) | Body::Once(_) => Err(Misfit::Family),
        }
    }

    fn group(&mut self) -> Result<&mut WaitGroup, Misfit> {
        match self {
            Body::Group(group) => Ok(group),
            Body::Lock(_) | Body::Semaphore(_) | Body::Once(_) => Err(Misfit::Family),
        }
    }

    fn once(&mut self) -> Result<&mut Once, Misfit> {
        match self {
            Body::Once(once) => Ok(once),
            Body::Lock(_) | Body::Semaphore(_) | Body::Group(_) => Err(Misfit::Family),
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
        let all = first.into_iter().chain(grants).chain(last);
        all.chain(later).chain(unheard)
    }

    /// Returns the bytes on the heap.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let own = match self {
            Body::Lock(lock) => lock.heap_bytes(),
            Body::Semaphore(_) => heap::allocated(size_of::<HoldSet>()),
            Body::Group(_) => heap::allocated(size_of::<WaitGroup>()),
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
        }
        if let Body::Group(group) = self {
            assert!(
                group.tally().finished.is_none() || group.members.is_empty(),
                "a finished round has no members"
            );
        }
    }
}
