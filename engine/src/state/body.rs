//! The state of one key. What all families have beside their holds, such as a pause, is here whole: the field, the change
//! that sets it, what follows from it, and how it is saved. For the rest this file asks the [`Policy`] of the family.
//!
//! What servers share of a state changes by [`Body::apply`], [`Body::load`] and `Body::apply_all` alone. The server that
//! decides and its replicas both use them, so their states are equal.

use std::mem::{replace, take};

use crate::address::Address;
use crate::change::{Change, Limits, Misfit};
use crate::heap;
use crate::hold::Hold;
use crate::settings::Settings;
use crate::state::apply::Apply;
use crate::state::families::group::WaitGroup;
use crate::state::families::lock::Lock;
use crate::state::families::once::Once;
use crate::state::families::policy::{Admission, Policy};
use crate::state::families::semaphore::Semaphore;
use crate::state::hold_set::HoldSet;
use crate::types::{Claim, Family, Fence, UnixMs};

/// What a key has, whatever its family.
#[derive(Clone)]
pub struct Body(Content);

/// A paused value is boxed as a whole: pauses are rare, and the moment has no room beside the hold of a lock.
#[derive(Clone)]
enum Content {
    Open(Value),
    Paused(Box<Paused>),
}

#[derive(Clone)]
struct Paused {
    /// Nobody is granted before this moment.
    until: UnixMs,
    value: Value,
}

/// What one family keeps. The other families have boxes, so that a lock, which is the most frequent, stays small.
#[derive(Clone)]
pub(crate) enum Value {
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

// A million locks are a million of these. 64 of them fill a size class of the server's allocator exactly.
const _: () = assert!(size_of::<Option<State>>() == 80);

/// Evaluates the expression with the [`Policy`] of whichever family the value is of. Unlike `&dyn Policy`, it lets the
/// compiler drop what a lock does not have.
macro_rules! of_family {
    ($value:expr, $family:ident => $result:expr) => {
        match $value {
            Value::Lock($family) => $result,
            Value::Semaphore($family) => $result,
            Value::Group($family) => $result,
            Value::Once($family) => $result,
        }
    };
}

/// The longest pause, in milliseconds: thirty days.
pub const MAX_PAUSE_MS: u64 = 2_592_000_000;

/// What closes a key until a moment of the wall clock.
pub(crate) struct Closing {
    pub(crate) name: &'static str,
    pub(crate) until: UnixMs,
    /// Makes the change that sets the moment. Without one, that change opens the key.
    pub(crate) change: fn(Option<UnixMs>) -> Change,
    /// Returns the longest that a command allows, in milliseconds, behind the words for that bound.
    pub(crate) longest: fn(&Settings) -> (&'static str, u64),
}

/// The parts of a saved state, in their order: that of [`Body::as_changes`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Limits,
    Holds,
    Scalars,
    Delay,
    Pause,
    Unheard,
    Displaced,
    /// The kept places of the name.
    Places,
}

impl Part {
    /// Returns the part that the change is of; `None` if no saved state has such a change.
    pub(crate) fn of(change: &Change) -> Option<Part> {
        Some(match change {
            Change::Limits(_) => Part::Limits,
            Change::Grant(_) => Part::Holds,
            Change::Tally(_) | Change::Record(_) => Part::Scalars,
            Change::Delay { until: Some(_) } => Part::Delay,
            Change::Pause { until: Some(_) } => Part::Pause,
            Change::Unheard { .. } => Part::Unheard,
            Change::Displaced(_) => Part::Displaced,
            Change::Place(_) => Part::Places,
            _ => return None,
        })
    }

    /// Returns the part with the change of [`Body::scalars`].
    pub(crate) fn with_scalars(family: Family) -> Part {
        match family {
            Family::Semaphore => Part::Limits,
            _ => Part::Scalars,
        }
    }
}

impl Body {
    #[inline(always)]
    pub fn new(family: Family) -> Body {
        Body(Content::Open(match family {
            Family::Lock => Value::Lock(Lock::default()),
            Family::Semaphore => Value::Semaphore(Semaphore::default()),
            Family::Group => Value::Group(Box::default()),
            Family::Once => Value::Once(Box::default()),
        }))
    }

    pub(crate) fn value(&self) -> &Value {
        match &self.0 {
            Content::Open(value) => value,
            Content::Paused(paused) => &paused.value,
        }
    }

    pub(super) fn value_mut(&mut self) -> &mut Value {
        match &mut self.0 {
            Content::Open(value) => value,
            Content::Paused(paused) => &mut paused.value,
        }
    }

    /// Returns what a wait group keeps; `None` for another family.
    pub fn group(&self) -> Option<&WaitGroup> {
        match self.value() {
            Value::Group(group) => Some(group),
            _ => None,
        }
    }

    /// Returns what a work-once key keeps; `None` for another family.
    pub fn once(&self) -> Option<&Once> {
        match self.value() {
            Value::Once(once) => Some(once),
            _ => None,
        }
    }

    pub fn family(&self) -> Family {
        of_family!(self.value(), family => family.family())
    }

    pub fn holds(&self) -> &HoldSet {
        of_family!(self.value(), family => family.holds())
    }

    /// Drops everything but the holds.
    pub(crate) fn into_holds(mut self) -> HoldSet {
        self.take_holds()
    }

    /// # Errors
    /// If there are none, and the value has no room for any.
    pub(super) fn holds_mut(&mut self) -> Result<&mut HoldSet, Misfit> {
        of_family!(self.value_mut(), family => family.holds_mut())
    }

    /// Takes the holds out, and leaves everything else as it is.
    pub(super) fn take_holds(&mut self) -> HoldSet {
        self.holds_mut().map(take).unwrap_or_default()
    }

    pub(crate) fn limits(&self) -> Limits {
        of_family!(self.value(), family => family.limits())
    }

    pub fn limit_in_force(&self) -> Option<u32> {
        self.limits().in_force()
    }

    /// Returns the limit that the queue remembers, in case the key is removed: the one that a request gave last, or the
    /// one in force. A pause by an operator is not remembered.
    pub(crate) fn limit_to_remember(&self) -> Option<u32> {
        let limits = self.limits();
        let limit = limits.limit.or(limits.pinned);
        limit.filter(|limit| *limit >= 1)
    }

    /// Returns until when nobody is granted, if an operator has paused the key. The pause lasts until it is ended by a
    /// change, even if its moment has passed.
    pub fn paused_until(&self) -> Option<UnixMs> {
        match &self.0 {
            Content::Open(_) => None,
            Content::Paused(paused) => Some(paused.until),
        }
    }

    /// Applies one change. Returns the hold that it ended, if any.
    ///
    /// # Errors
    /// If the change does not fit. Then nothing has changed.
    pub fn apply(&mut self, change: &Change) -> Result<Option<Hold>, Misfit> {
        match change {
            Change::Pause { until } => self.pause(*until),
            // The engine removes the state, or changes the queue; there is nothing to change here.
            Change::Vanish | Change::Place(_) | Change::Leave { .. } => {}
            _ => return of_family!(self.value_mut(), family => family.apply(change)),
        }
        Ok(None)
    }

    /// Adds the holds of a saved state, which has none yet, in the order of their fences. It builds each tree from sorted
    /// entries, which is much faster than to insert each hold into three trees.
    ///
    /// # Errors
    /// As [`Body::apply`] for the grants of these holds.
    pub fn load(&mut self, holds: Vec<(Fence, Hold)>) -> Result<(), Misfit> {
        of_family!(self.value_mut(), family => family.load(holds))
    }

    /// Sets the moment before which nobody is granted; `None` ends the pause.
    fn pause(&mut self, until: Option<UnixMs>) {
        let value = replace(self.value_mut(), Value::Lock(Lock::default()));
        self.0 = match until {
            Some(until) => Content::Paused(Box::new(Paused { until, value })),
            None => Content::Open(value),
        };
    }

    /// Returns the moment before which no run may begin, if the last FAIL asked for one. The delay lasts until it is ended
    /// by a change too.
    pub fn delayed_until(&self) -> Option<UnixMs> {
        self.once()?.delayed_until()
    }

    /// Calls `each` with what closes the key, a delay and a pause, in the order in which they end and are saved. Not an
    /// iterator, because every visit asks, and nearly every key is open.
    #[inline(always)]
    fn for_each_closing(&self, mut each: impl FnMut(Closing)) {
        if let Some(until) = self.delayed_until() {
            each(Closing {
                name: "delay",
                until,
                change: |until| Change::Delay { until },
                longest: |settings| ("dsync.max-lease-ms is", settings.max_lease_ms),
            });
        }
        if let Some(until) = self.paused_until() {
            each(Closing {
                name: "pause",
                until,
                change: |until| Change::Pause { until },
                longest: |_| ("PAUSE allows", MAX_PAUSE_MS),
            });
        }
    }

    pub(crate) fn closings(&self) -> Vec<Closing> {
        let mut all = Vec::new();
        self.for_each_closing(|closing| all.push(closing));
        all
    }

    /// Returns the moment at which something that closes the key ends, if it is closed. Under this moment the key is in
    /// the `openings` index.
    pub fn opens_at(&self) -> Option<UnixMs> {
        let mut first = None;
        self.for_each_closing(|Closing { until, .. }| {
            first = Some(first.map_or(until, |first| until.min(first)));
        });
        first
    }

    /// Returns what becomes of a request that nobody is before. It may be granted now if the key is not paused, and the
    /// claim fits beside the present holds, under this limit. A pause holds back grants, and no other answers.
    pub(crate) fn admission(
        &self,
        claim: Claim,
        limit: Option<u32>,
        bound: Option<u32>,
    ) -> Admission {
        let is_open = self.paused_until().is_none();
        of_family!(self.value(), family => match family.told_instead(bound) {
            Some(told) => told,
            None if is_open && family.admits(claim, limit) => Admission::Now,
            None => Admission::Later,
        })
    }

    /// Returns how much could be granted now to a request that does not wait, if nobody waits: 0 if it would be refused,
    /// and a larger number for more capacity.
    pub(crate) fn free_capacity(&self) -> u64 {
        match self.paused_until() {
            Some(_) => 0,
            None => of_family!(self.value(), family => family.free_capacity()),
        }
    }

    /// Returns until when the key is kept without holds and waiters; `None` if nothing keeps it. A pause keeps a tally, a
    /// record or a result at least until its end.
    pub(crate) fn retained_until(&self, settings: &Settings) -> Option<UnixMs> {
        let until = of_family!(self.value(), family => family.retained_until(settings))?;
        Some(self.paused_until().map_or(until, |pause| until.max(pause)))
    }

    /// Whether something keeps the key: a hold, a pause, a pinned limit, or what is still retained. `waited` says that
    /// requests wait for it.
    #[inline(always)]
    pub(crate) fn outlives_use(&self, settings: &Settings, waited: bool, now: UnixMs) -> bool {
        // The first that waits for a lock makes a new one.
        let is_waited_for = waited && self.family() != Family::Lock;
        let until = || self.retained_until(settings);
        let is_retained = || until().is_some_and(|until| !until.has_come(now));
        !self.holds().is_empty() || self.paused_until().is_some() || is_waited_for || is_retained()
    }

    /// Whether the work is done, or the round has finished. Later requests do not keep such a key longer.
    pub(crate) fn is_concluded(&self) -> bool {
        let is_done = self.once().is_some_and(|once| once.done().is_some());
        is_done || (self.group()).is_some_and(|group| group.tally.finished.is_some())
    }

    /// Returns the moment under which the key is in the `retention` index.
    pub(crate) fn retention(&self) -> Option<UnixMs> {
        match self.value() {
            Value::Group(group) => group.retention.noted,
            Value::Once(once) => once.retention.noted,
            Value::Lock(_) | Value::Semaphore(_) => None,
        }
    }

    /// Returns the bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        let paused = self.paused_until();
        let paused = paused.map_or(0, |_| heap::allocated(size_of::<Paused>()));
        let value = of_family!(self.value(), family => family.heap_bytes());
        paused + value + self.holds().heap_bytes()
    }

    /// Panics unless the holds obey the rules of the family.
    #[cfg(debug_assertions)]
    pub fn check_invariants(&self) {
        self.holds().check_invariants();
        let mut families = self.holds().iter().map(|hold| hold.claim().family());
        let of_family = families.all(|family| family == self.family());
        assert!(of_family, "claims of the family");
        of_family!(self.value(), family => family.check_invariants());
    }
}
