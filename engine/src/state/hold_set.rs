//! The holds of one key: found by fence, by token and by the moment at which the lease runs out.
//!
//! A set with a single hold, as every exclusive lock has, keeps it in place. A second hold moves the set into ordered
//! maps. All operations are then logarithmic, and none copies the set.
//!
//! Deliberately absent: the rule that says who may hold; each family in `families` has its own.
//!
//! Hash maps were rejected for the larger sets: a hash map that grows moves every hold in one step, and all clients
//! would wait for that.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use crate::change::Misfit;
use crate::heap;
use crate::hold::{Grant, Hold, Rest};
use crate::state::options::Options;
use crate::types::{Fence, LeaseUs, Moments, Token};

/// The holds of one key.
#[derive(Clone)]
pub enum HoldSet {
    Few(Option<Hold>),
    Many(Box<Many>),
}

impl Default for HoldSet {
    fn default() -> HoldSet {
        HoldSet::EMPTY
    }
}

/// Invariants: the three maps have the same holds, but for those that rest, which have no token; `by_deadline` has each
/// hold under its own `due`; `options` are those of all holds; `permits` and `heap_bytes` are the sums over the holds.
#[derive(Clone, Default)]
pub struct Many {
    by_fence: BTreeMap<Fence, Hold>,
    by_token: BTreeMap<Token, Fence>,
    /// Ties are broken by the fence: the older hold first.
    by_deadline: BTreeSet<(LeaseUs, Fence)>,
    options: Options,
    permits: u64,
    /// The sum of the bytes on the heap of all holds and of the tokens in `by_token`, so that MEMORY USAGE does not walk
    /// over them.
    heap_bytes: usize,
}

// A size class of the server's allocator.
const _: () = assert!(size_of::<Many>() == 96);

impl Many {
    fn insert(&mut self, hold: Hold) {
        self.permits += u64::from(hold.claim().permits());
        self.heap_bytes += hold.heap_bytes();
        if !hold.is_resting() {
            let token = hold.token();
            self.heap_bytes += token.heap_bytes();
            self.by_token.insert(token, hold.fence());
        }
        self.by_deadline.insert((hold.due, hold.fence()));
        self.options.insert(&hold);
        self.by_fence.insert(hold.fence(), hold);
    }

    fn remove(&mut self, fence: Fence) -> Option<Hold> {
        let hold = self.by_fence.remove(&fence)?;
        if !hold.is_resting() {
            let token = hold.token();
            self.by_token.remove(&token);
            self.heap_bytes -= token.heap_bytes();
        }
        self.by_deadline.remove(&(hold.due, fence));
        self.options.remove(&hold);
        self.permits -= u64::from(hold.claim().permits());
        self.heap_bytes -= hold.heap_bytes();
        Some(hold)
    }
}

impl HoldSet {
    pub(super) const EMPTY: HoldSet = HoldSet::Few(None);

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn len(&self) -> usize {
        let (one, many) = self.parts();
        many.map_or(usize::from(one.is_some()), |many| many.by_fence.len())
    }

    /// Returns the only hold, or the maps of several.
    #[inline(always)]
    fn parts(&self) -> (Option<&Hold>, Option<&Many>) {
        match self {
            HoldSet::Few(hold) => (hold.as_ref(), None),
            HoldSet::Many(many) => (None, Some(many)),
        }
    }

    /// Returns how much of a limit the holds take together.
    pub(crate) fn permits(&self) -> u64 {
        match self {
            HoldSet::Few(None) => 0,
            HoldSet::Few(Some(hold)) => hold.claim().permits().into(),
            HoldSet::Many(many) => many.permits,
        }
    }

    /// Returns how many of the holds rest, and how much of a limit these take.
    pub(crate) fn resting(&self) -> (usize, u64) {
        match self.parts() {
            (one, None) => {
                let resting = one.filter(|hold| hold.is_resting());
                resting.map_or((0, 0), |hold| (1, hold.claim().permits().into()))
            }
            (_, Some(many)) => {
                let holds = many.by_fence.len() - many.by_token.len();
                (holds, many.options.get().map_or(0, |of| of.resting_permits))
            }
        }
    }

    pub fn get(&self, fence: Fence) -> Option<&Hold> {
        match self.parts() {
            (one, None) => one.filter(|hold| hold.fence() == fence),
            (_, Some(many)) => many.by_fence.get(&fence),
        }
    }

    #[inline(always)]
    pub(crate) fn by_token(&self, token: &Token) -> Option<&Hold> {
        match self.parts() {
            (one, None) => one.filter(|hold| hold.has_token(token)),
            (_, Some(many)) => many.by_fence.get(many.by_token.get(token)?),
        }
    }

    /// Returns the oldest hold.
    pub fn first(&self) -> Option<&Hold> {
        let (one, many) = self.parts();
        one.or_else(|| many?.by_fence.values().next())
    }

    /// Returns the hold whose lease runs out first, and when. Holds whose `due` is before `since` do not count.
    #[inline(always)]
    pub(crate) fn earliest(&self, since: LeaseUs) -> Option<(LeaseUs, Fence)> {
        let (one, many) = self.parts();
        if let Some(many) = many {
            return many.by_deadline.range((since, Fence(0))..).next().copied();
        }
        let hold = one.filter(|hold| hold.due >= since)?;
        Some((hold.due, hold.fence()))
    }

    /// Returns the hold that [`HoldSet::earliest`] names if its lease has run out.
    pub(crate) fn overdue(&self, since: LeaseUs, now: LeaseUs) -> Option<&Hold> {
        match self.parts() {
            (one, None) => one.filter(|hold| (since..=now).contains(&hold.due)),
            (_, Some(many)) => {
                let (due, fence) = self.earliest(since)?;
                many.by_fence.get(&fence).filter(|_| due <= now)
            }
        }
    }

    /// Returns a hold whose `due` is before `since`, without a walk over the others.
    pub(crate) fn first_before(&self, since: LeaseUs) -> Option<&Hold> {
        let (one, many) = self.parts();
        let first = one.or_else(|| many?.by_fence.get(&many?.by_deadline.first()?.1));
        first.filter(|hold| hold.due < since)
    }

    /// Returns the youngest hold.
    pub(crate) fn last(&self) -> Option<&Hold> {
        let (one, many) = self.parts();
        one.or_else(|| many?.by_fence.values().next_back())
    }

    /// Returns all holds, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Hold> {
        let (one, many) = self.parts();
        let many = many.into_iter();
        one.into_iter()
            .chain(many.flat_map(|many| many.by_fence.values()))
    }

    /// Returns the holds with a greater fence than this one, the oldest first, without a walk over the others.
    pub fn after(&self, fence: Fence) -> impl Iterator<Item = &Hold> {
        let (one, many) = self.parts();
        let one = one.filter(|hold| hold.fence() > fence);
        let later = (Excluded(fence), Unbounded);
        let many = many.into_iter();
        let many = many.flat_map(move |many| many.by_fence.range(later));
        one.into_iter().chain(many.map(|(_, hold)| hold))
    }

    /// Whether such a hold could be added: no two holds of a set have the same fence, token or index.
    #[inline(always)]
    pub(crate) fn accepts(&self, grant: &Grant) -> bool {
        let is_taken = grant.index.is_some_and(|n| match self.parts() {
            (one, None) => one.is_some_and(|hold| hold.index() == Some(n)),
            (_, Some(many)) => (many.options.get()).is_some_and(|of| of.indexes.contains(n)),
        });
        let is_known = || grant.rest != Rest::Now && self.by_token(&grant.token).is_some();
        !is_taken && self.get(grant.fence).is_none() && !is_known()
    }

    /// Returns the lowest number that no hold has as its index.
    pub(crate) fn free_index(&self) -> u32 {
        match self.parts() {
            (one, None) => u32::from(one.is_some_and(|hold| hold.index() == Some(0))),
            (_, Some(many)) => (many.options.get()).map_or(0, |of| of.indexes.lowest_free()),
        }
    }

    /// Whether there are holds, and none of them has been heard of.
    pub(crate) fn is_unheard(&self) -> bool {
        !self.is_empty() && self.iter().all(|hold| hold.unheard_ms().is_some())
    }

    /// Adds a hold. [`HoldSet::accepts`] must have returned true for it.
    #[inline(always)]
    pub(super) fn insert(&mut self, hold: Hold) {
        debug_assert!(self.accepts(&hold.to_grant()));
        match self {
            HoldSet::Many(many) => many.insert(hold),
            HoldSet::Few(few @ None) => *few = Some(hold),
            HoldSet::Few(few) => {
                let mut many = Box::<Many>::default();
                few.take().into_iter().for_each(|first| many.insert(first));
                many.insert(hold);
                *self = HoldSet::Many(many);
            }
        }
    }

    /// Makes a set of several holds with rising fences. It builds each tree at once, from sorted entries.
    ///
    /// # Errors
    /// If two holds have the same token or index.
    pub(super) fn of_sorted(holds: Vec<(Fence, Hold)>) -> Result<HoldSet, Misfit> {
        let (mut permits, mut heap_bytes) = (0, 0);
        let mut tokens = Vec::with_capacity(holds.len());
        for (fence, hold) in &holds {
            permits += u64::from(hold.claim().permits());
            heap_bytes += hold.heap_bytes();
            if !hold.is_resting() {
                let token = hold.token();
                heap_bytes += token.heap_bytes();
                tokens.push((token, *fence));
            }
        }
        let live = tokens.len();
        let by_token: BTreeMap<_, _> = tokens.into_iter().collect();
        let options = Options::of(holds.iter().map(|(_, hold)| hold));
        let options = options.filter(|_| by_token.len() == live);
        let deadlines = holds.iter().map(|(fence, hold)| (hold.due, *fence));
        Ok(HoldSet::Many(Box::new(Many {
            options: options.ok_or(Misfit::Taken)?,
            permits,
            heap_bytes,
            by_token,
            by_deadline: deadlines.collect(),
            by_fence: holds.into_iter().collect(),
        })))
    }

    pub(super) fn remove(&mut self, fence: Fence) -> Option<Hold> {
        match self {
            HoldSet::Few(hold) => hold.take_if(|hold| hold.fence() == fence),
            HoldSet::Many(many) => {
                let hold = many.remove(fence);
                if many.by_fence.is_empty() {
                    *self = HoldSet::EMPTY;
                }
                hold
            }
        }
    }

    /// Ends a hold whose place stays taken, and returns it as it was.
    ///
    /// # Errors
    /// If there is no such hold, or nothing is left of it.
    pub(super) fn rest(&mut self, fence: Fence) -> Result<Hold, Misfit> {
        let hold = self.get(fence).ok_or(Misfit::NoHold)?;
        let rested = hold.rested().ok_or(Misfit::Taken)?;
        let ended = self.remove(fence).ok_or(Misfit::NoHold)?;
        self.insert(rested);
        Ok(ended)
    }

    /// Sets the moments of a hold on this server's lease clock. Returns whether there is such a hold.
    #[inline(always)]
    pub(super) fn set_moments(&mut self, fence: Fence, moments: Moments) -> bool {
        let before = self.change(fence, |hold| {
            let before = hold.due;
            hold.set_moments(moments);
            before
        });
        if let (HoldSet::Many(many), Ok(before)) = (self, before) {
            // Remove the old entry before the new one is added: an entry left under an old moment would lapse the
            // hold early, or never.
            many.by_deadline.remove(&(before, fence));
            many.by_deadline.insert((moments.due, fence));
        }
        before.is_ok()
    }

    /// Sets the moments of each hold, and builds the index anew.
    pub(super) fn set_all_moments(&mut self, mut moments: impl FnMut(&Hold) -> Moments) {
        let set = |hold: &mut Hold| {
            hold.set_moments(moments(hold));
            (hold.due, hold.fence())
        };
        match self {
            HoldSet::Few(hold) => drop(hold.as_mut().map(set)),
            HoldSet::Many(many) => many.by_deadline = many.by_fence.values_mut().map(set).collect(),
        }
    }

    /// Changes one hold in place. `change` must not touch fence, token and index, which the set is searched by,
    /// nor the permits. [`HoldSet::set_moments`] mends the index by `due`.
    ///
    /// # Errors
    /// If there is no such hold.
    #[inline(always)]
    pub(super) fn change<R>(
        &mut self,
        fence: Fence,
        change: impl FnOnce(&mut Hold) -> R,
    ) -> Result<R, Misfit> {
        match self {
            HoldSet::Few(hold) => {
                let hold = hold.as_mut().filter(|hold| hold.fence() == fence);
                hold.map(change).ok_or(Misfit::NoHold)
            }
            HoldSet::Many(many) => {
                let hold = many.by_fence.get_mut(&fence).ok_or(Misfit::NoHold)?;
                many.heap_bytes -= hold.heap_bytes();
                let changed = change(hold);
                many.heap_bytes += hold.heap_bytes();
                Ok(changed)
            }
        }
    }

    /// Takes the set apart, one hold or one index entry at a step, so that the caller can pause between steps.
    pub fn into_pieces(self) -> impl Iterator<Item = Option<Hold>> {
        let mut many = Many::default();
        match self {
            HoldSet::Few(hold) => many.by_fence.extend(hold.map(|hold| (hold.fence(), hold))),
            HoldSet::Many(maps) => many = *maps,
        }
        let holds = many.by_fence.into_values().map(Some);
        let tokens = many.by_token.into_iter().map(|_| None);
        let deadlines = many.by_deadline.into_iter().map(|_| None);
        let options = many.options.into_pieces().map(|()| None);
        holds.chain(tokens).chain(deadlines).chain(options)
    }

    /// Returns the bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            HoldSet::Few(hold) => hold.as_ref().map_or(0, Hold::heap_bytes),
            HoldSet::Many(many) => {
                // A tree that has become empty keeps a leaf.
                let tokens = many.by_token.len().max(1);
                let trees = [
                    heap::tree(many.by_fence.len(), size_of::<(Fence, Hold)>()),
                    heap::tree(tokens, size_of::<(Token, Fence)>()),
                    heap::tree(many.by_deadline.len(), size_of::<(LeaseUs, Fence)>()),
                ];
                let trees = trees.iter().sum::<usize>();
                let own = heap::allocated(size_of::<Many>()) + many.options.heap_bytes();
                many.heap_bytes + own + trees
            }
        }
    }

    /// Panics unless the indexes agree with each other.
    #[cfg(debug_assertions)]
    pub fn check_invariants(&self) {
        let HoldSet::Many(many) = self else { return };
        assert!(!many.by_fence.is_empty(), "an empty set takes no box");
        let mut again = Many::default();
        for hold in many.by_fence.values() {
            again.insert(hold.clone());
        }
        assert!(many.by_fence.keys().eq(again.by_fence.keys()), "fences");
        assert_eq!(many.by_token, again.by_token);
        assert_eq!(many.by_deadline, again.by_deadline);
        assert_eq!(many.options, again.options);
        let sums = |many: &Many| (many.permits, many.heap_bytes);
        assert_eq!(sums(many), sums(&again));
    }
}

mod lanes;
#[cfg(test)]
mod tests;
