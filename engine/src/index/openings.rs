//! The keys whose queues may go on at a moment of the wall clock, without any other event: when a pause ends.
//!
//! Few keys have such a moment, so the index keeps it for each of them, and other states have no field for it.

use std::collections::{BTreeMap, BTreeSet};

use crate::heap;
use crate::index::slab::StateId;
use crate::types::UnixMs;

/// Invariant: both have the same pairs.
#[derive(Default)]
pub struct Openings {
    by_moment: BTreeSet<(UnixMs, StateId)>,
    by_state: BTreeMap<StateId, UnixMs>,
}

impl Openings {
    /// Indexes the state under this moment and no other, or removes it.
    pub fn set(&mut self, id: StateId, at: Option<UnixMs>) {
        // Nearly all calls are about states without a moment.
        if at.is_none() && self.by_state.is_empty() {
            return;
        }
        let before = match at {
            Some(at) => self.by_state.insert(id, at),
            None => self.by_state.remove(&id),
        };
        if before != at {
            if let Some(before) = before {
                self.by_moment.remove(&(before, id));
            }
            if let Some(at) = at {
                self.by_moment.insert((at, id));
            }
        }
    }

    /// Returns the earliest moment and its state.
    #[must_use]
    pub fn first(&self) -> Option<(UnixMs, StateId)> {
        self.by_moment.first().copied()
    }

    /// Returns the bytes that the entries of this state take.
    #[must_use]
    pub fn bytes_of(&self, id: StateId) -> usize {
        match self.by_state.contains_key(&id) {
            true => heap::tree_share(size_of::<(UnixMs, StateId)>()) * 2,
            false => 0,
        }
    }

    /// Takes both apart, to be dropped in slices.
    pub fn into_parts(self) -> (BTreeSet<(UnixMs, StateId)>, BTreeMap<StateId, UnixMs>) {
        (self.by_moment, self.by_state)
    }

    #[cfg(debug_assertions)]
    pub fn at(&self, id: StateId) -> Option<UnixMs> {
        self.by_state.get(&id).copied()
    }

    #[cfg(debug_assertions)]
    pub fn check_invariants(&self) {
        let pairs: BTreeSet<_> = self.by_state.iter().map(|(id, at)| (*at, *id)).collect();
        assert_eq!(self.by_moment, pairs, "both have the same pairs");
    }
}
