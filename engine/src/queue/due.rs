//! The queues that must be visited, in the order in which they became due.
//!
//! An event that concerns all queues of a database, such as a flush, only starts a *sweep*: a walk over the queues that
//! makes a bounded number of them due at a time. There is at most one sweep for each database, and one for all
//! databases together. So many flushes during a sweep need no more memory than one.

use std::collections::BTreeMap;

use crate::types::{Db, QueueId};

/// A walk over all queues in the order of their numbers.
#[derive(Clone, Copy, Default)]
struct Sweep {
    /// The queue that was looked at last.
    after: Option<QueueId>,
    /// A sweep was asked for during this one: begin again from the start at the end.
    again: bool,
}

/// Invariant: the two maps of turns are each other's inverse.
#[derive(Default)]
pub struct Due {
    by_turn: BTreeMap<u64, QueueId>,
    turn_of: BTreeMap<QueueId, u64>,
    last_turn: u64,
    /// The running sweeps, by database; `None` is the sweep over all databases.
    sweeps: BTreeMap<Option<Db>, Sweep>,
}

impl Due {
    /// Makes the queue due, behind all others, unless it is due already.
    pub fn set(&mut self, id: QueueId) {
        if !self.turn_of.contains_key(&id) {
            self.last_turn += 1;
            self.by_turn.insert(self.last_turn, id);
            self.turn_of.insert(id, self.last_turn);
        }
    }

    /// Notes that the queue has been visited.
    pub fn mark_visited(&mut self, id: QueueId) {
        if let Some(turn) = self.turn_of.remove(&id) {
            self.by_turn.remove(&turn);
        }
    }

    #[must_use]
    pub fn contains(&self, id: QueueId) -> bool {
        self.turn_of.contains_key(&id)
    }

    /// Returns the queue that has been due for longest.
    #[must_use]
    pub fn first(&self) -> Option<QueueId> {
        self.by_turn.values().next().copied()
    }

    /// Starts a sweep that makes all queues of the database due.
    pub fn start_sweep(&mut self, db: Option<Db>) {
        let sweep = self.sweeps.entry(db);
        sweep.and_modify(|sweep| sweep.again = true).or_default();
    }

    #[must_use]
    pub fn is_sweeping(&self) -> bool {
        !self.sweeps.is_empty()
    }

    /// Returns whose queues are swept, and which of them the sweep looked at last.
    #[must_use]
    pub fn sweep(&self) -> Option<(Option<Db>, Option<QueueId>)> {
        let (db, sweep) = self.sweeps.first_key_value()?;
        Some((*db, sweep.after))
    }

    /// Notes that the sweep of this database has come to this queue, or to the end.
    pub fn swept(&mut self, db: Option<Db>, at: Option<QueueId>) {
        match self.sweeps.get_mut(&db) {
            Some(sweep) if at.is_some() => sweep.after = at,
            Some(sweep) if sweep.again => *sweep = Sweep::default(),
            _ => drop(self.sweeps.remove(&db)),
        }
    }

    /// Takes the index apart, one entry at a step.
    pub fn into_pieces(self) -> impl Iterator<Item = ()> {
        let by_turn = self.by_turn.into_iter().map(drop);
        by_turn.chain(self.turn_of.into_iter().map(drop))
    }

    /// Panics unless the maps agree with each other.
    #[cfg(debug_assertions)]
    pub fn check_invariants(&self) {
        assert_eq!(self.by_turn.len(), self.turn_of.len());
        let listed = |(turn, id)| self.turn_of.get(id) == Some(turn);
        assert!(self.by_turn.iter().all(listed));
    }

    /// Whether a running sweep will make the queues of this database due.
    #[cfg(debug_assertions)]
    pub fn will_sweep(&self, db: Db) -> bool {
        self.sweeps
            .keys()
            .any(|swept| swept.is_none_or(|swept| swept == db))
    }
}
