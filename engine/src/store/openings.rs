//! When the queues of closed keys may go on.
//!
//! A key is closed until a moment of the wall clock: during a PAUSE, and during a DELAY of work-once. Few keys are closed
//! at a time, so their moments are kept here: a field in every state would cost all the others.

use std::collections::{BTreeMap, BTreeSet};

use crate::heap;
use crate::store::slab::StateId;
use crate::types::UnixMs;

/// Invariant: both have the same entries.
#[derive(Default)]
pub struct Openings {
    by_moment: BTreeSet<(UnixMs, StateId)>,
    moment_of: BTreeMap<StateId, UnixMs>,
}

impl Openings {
    /// The bytes of one entry.
    #[must_use]
    pub fn entry_bytes() -> usize {
        2 * heap::tree_share(size_of::<(UnixMs, StateId)>())
    }

    /// Notes when the queue of this state may go on; `None` if the state is not closed.
    pub fn set(&mut self, id: StateId, moment: Option<UnixMs>) {
        // No key is closed on most servers, and every call on a key comes here.
        if moment.is_none() && self.moment_of.is_empty() {
            return;
        }
        let before = match moment {
            Some(moment) => self.moment_of.insert(id, moment),
            None => self.moment_of.remove(&id),
        };
        if before == moment {
            return;
        }
        if let Some(before) = before {
            self.by_moment.remove(&(before, id));
        }
        if let Some(moment) = moment {
            self.by_moment.insert((moment, id));
        }
    }

    /// Returns the earliest moment, and its state.
    #[must_use]
    pub fn first(&self) -> Option<(UnixMs, StateId)> {
        self.by_moment.first().copied()
    }

    /// Takes the index apart, one entry at a step.
    pub fn into_pieces(self) -> impl Iterator<Item = ()> + Send + 'static {
        let by_moment = self.by_moment.into_iter().map(drop);
        by_moment.chain(self.moment_of.into_iter().map(drop))
    }

    #[cfg(debug_assertions)]
    #[must_use]
    pub fn of(&self, id: StateId) -> Option<UnixMs> {
        self.moment_of.get(&id).copied()
    }

    /// Panics unless both parts agree.
    #[cfg(debug_assertions)]
    pub fn check_invariants(&self) {
        let entries: BTreeSet<_> = self.moment_of.iter().map(|(id, at)| (*at, *id)).collect();
        assert_eq!(self.by_moment, entries, "openings");
    }
}
