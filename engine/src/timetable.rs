//! Subjects with one moment each: found by their subject, and in the order of their moments.

use std::collections::{BTreeMap, BTreeSet};

use crate::heap;

/// Invariant: both have the same entries.
pub struct Timetable<S, M, V = ()> {
    by_moment: BTreeSet<(M, S)>,
    by_subject: BTreeMap<S, (M, V)>,
}

impl<S, M, V> Default for Timetable<S, M, V> {
    fn default() -> Self {
        Timetable {
            by_moment: BTreeSet::new(),
            by_subject: BTreeMap::new(),
        }
    }
}

impl<S: Copy + Ord, M: Copy + Ord, V> Timetable<S, M, V> {
    /// The bytes of one entry.
    pub fn entry_bytes() -> usize {
        heap::tree_share(size_of::<(M, S)>()) + heap::tree_share(size_of::<(S, (M, V))>())
    }

    /// Returns the earliest moment, and its subject.
    pub fn first(&self) -> Option<(M, S)> {
        self.by_moment.first().copied()
    }

    /// Returns the latest moment, and its subject.
    pub fn last(&self) -> Option<(M, S)> {
        self.by_moment.last().copied()
    }

    /// Returns the moment of the subject, and what is noted beside it.
    pub fn get(&self, subject: S) -> Option<&(M, V)> {
        self.by_subject.get(&subject)
    }

    /// Gives the subject this moment instead of the one that it may have had.
    pub fn set(&mut self, subject: S, moment: M, note: V) {
        let before = self.by_subject.insert(subject, (moment, note));
        let before = before.map(|(before, _)| before);
        if before != Some(moment) {
            if let Some(before) = before {
                self.by_moment.remove(&(before, subject));
            }
            self.by_moment.insert((moment, subject));
        }
    }

    /// Removes the subject. Returns what was noted beside its moment.
    #[inline(always)]
    pub fn remove(&mut self, subject: S) -> Option<V> {
        let (moment, note) = self.by_subject.remove(&subject)?;
        self.by_moment.remove(&(moment, subject));
        Some(note)
    }

    /// Takes the table apart, one entry at a step.
    pub fn into_pieces(self) -> impl Iterator<Item = ()> {
        let by_moment = self.by_moment.into_iter().map(drop);
        by_moment.chain(self.by_subject.into_iter().map(drop))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<S: Copy + Ord, M: Copy + Ord, V> Timetable<S, M, V> {
        /// Panics unless both parts agree.
        fn check_invariants(&self) {
            let entries = self.by_subject.iter();
            let entries = entries.map(|(subject, (at, _))| (*at, *subject));
            assert!(self.by_moment == entries.collect(), "moments");
        }
    }

    #[test]
    fn timetable_has_the_last_moment_of_each_subject() {
        let mut table = Timetable::default();
        for (subject, moment, note) in [(1, 30, 'a'), (2, 20, 'b'), (1, 10, 'c'), (2, 20, 'd')] {
            table.set(subject, moment, note);
            table.check_invariants();
        }
        assert_eq!(
            (table.first(), table.last()),
            (Some((10, 1)), Some((20, 2)))
        );
        assert_eq!(
            (table.get(1), table.get(2)),
            (Some(&(10, 'c')), Some(&(20, 'd')))
        );
        assert_eq!((table.remove(1), table.remove(1)), (Some('c'), None));
        table.check_invariants();
        assert_eq!((table.first(), table.get(1)), (Some((20, 2)), None));
        assert_eq!(table.into_pieces().count(), 2);
    }
}
