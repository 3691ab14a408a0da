//! Which queues want a visit, in the order in which they became due.
//!
//! What concerns all queues of a database at once, a flush for one, only starts a *sweep*: a walk over the
//! queues that makes them due a bounded number at a time. There is one sweep a database and one for all of
//! them, so however many flushes come while a sweep is on, there is no more to remember.

use std::collections::BTreeMap;

use crate::types::{Db, QueueId};

/// A walk over all queues in the order of their numbers.
#[derive(Clone, Copy, Default)]
struct Sweep {
    /// The queue that was looked at last.
    after: Option<QueueId>,
    /// It was asked for again on the way: from the start once more when it gets to the end.
    again: bool,
}

/// Invariant: the two maps of turns are each other's inverse.
#[derive(Default)]
pub struct Due {
    by_turn: BTreeMap<u64, QueueId>,
    turn_of: BTreeMap<QueueId, u64>,
    last_turn: u64,
    /// By the database whose queues are meant; all of them without one.
    sweeps: BTreeMap<Option<Db>, Sweep>,
}

impl Due {
    /// Puts the queue last, unless it is due already.
    pub fn set(&mut self, id: QueueId) {
        if !self.turn_of.contains_key(&id) {
            self.last_turn += 1;
            self.by_turn.insert(self.last_turn, id);
            self.turn_of.insert(id, self.last_turn);
        }
    }

    /// The queue has been visited.
    pub fn mark_visited(&mut self, id: QueueId) {
        if let Some(turn) = self.turn_of.remove(&id) {
            self.by_turn.remove(&turn);
        }
    }

    #[must_use]
    pub fn contains(&self, id: QueueId) -> bool {
        self.turn_of.contains_key(&id)
    }

    /// The queue that has been due for longest.
    #[must_use]
    pub fn first(&self) -> Option<QueueId> {
        self.by_turn.values().next().copied()
    }

    /// All queues of the database are to be made due.
    pub fn start_sweep(&mut self, db: Option<Db>) {
        let sweep = self.sweeps.entry(db);
        sweep.and_modify(|sweep| sweep.again = true).or_default();
    }

    #[must_use]
    pub fn is_sweeping(&self) -> bool {
        !self.sweeps.is_empty()
    }

    /// Whose queues are swept, and which of them was looked at last.
    #[must_use]
    pub fn sweep(&self) -> Option<(Option<Db>, Option<QueueId>)> {
        let (db, sweep) = self.sweeps.first_key_value()?;
        Some((*db, sweep.after))
    }

    /// The sweep of this database has come to this queue, or to the end.
    pub fn swept(&mut self, db: Option<Db>, at: Option<QueueId>) {
        match self.sweeps.get_mut(&db) {
            Some(sweep) if at.is_some() => sweep.after = at,
            Some(sweep) if sweep.again => *sweep = Sweep::default(),
            _ => drop(self.sweeps.remove(&db)),
        }
    }

    /// Takes it apart, a queue a step.
    pub fn into_pieces(self) -> impl Iterator<Item = ()> {
        let by_turn = self.by_turn.into_iter().map(drop);
        by_turn.chain(self.turn_of.into_iter().map(drop))
    }

    /// The maps agree with each other.
    #[cfg(debug_assertions)]
    pub fn check_invariants(&self) {
        assert_eq!(self.by_turn.len(), self.turn_of.len());
        let listed = |(turn, id)| self.turn_of.get(id) == Some(turn);
        assert!(self.by_turn.iter().all(listed));
    }

    /// Whether a queue of this database becomes due by itself.
    #[cfg(debug_assertions)]
    pub fn will_sweep(&self, db: Db) -> bool {
        self.sweeps
            .keys()
            .any(|swept| swept.is_none_or(|swept| swept == db))
    }
}
