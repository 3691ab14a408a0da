//! The indexes of one semaphore's holds.
//!
//! Guaranteed: the lowest free index is found, and an index comes or goes, in O(log n) steps, with n the runs of
//! neighbours, of which there are no more than indexes.
//!
//! Rejected: a set of the free indexes, because a payload with one high index would make a million entries; and a map of
//! bits, in which the lowest free one is found by a walk.

use std::collections::BTreeMap;

use crate::heap;

/// The runs of neighbours: each under its first index, with the number behind its last. No two runs touch.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Indexes(BTreeMap<u32, u32>);

impl Indexes {
    /// Returns a set of these indexes, built at once; `None` if one of them is there twice.
    pub fn of(mut all: Vec<u32>) -> Option<Indexes> {
        all.sort();
        let runs = all.chunk_by(|before, n| *n <= before + 1);
        let run = |run: &[u32]| {
            let (first, end) = (*run.first()?, run.last()? + 1);
            (run.len() == (end - first) as usize).then_some((first, end))
        };
        runs.map(run).collect::<Option<_>>().map(Indexes)
    }

    /// Returns the lowest number that is not in the set.
    pub fn lowest_free(&self) -> u32 {
        self.0.get(&0).copied().unwrap_or(0)
    }

    pub fn contains(&self, n: u32) -> bool {
        self.run_of(n).is_some()
    }

    fn run_of(&self, n: u32) -> Option<(u32, u32)> {
        let (first, end) = self.0.range(..=n).next_back()?;
        (n < *end).then_some((*first, *end))
    }

    /// Adds an index. Returns false if it was there already.
    pub fn insert(&mut self, n: u32) -> bool {
        if self.contains(n) {
            return false;
        }
        let runs = &mut self.0;
        let end = runs.remove(&(n + 1)).unwrap_or(n + 1);
        let before = runs.range_mut(..n).next_back();
        match before.filter(|(_, before_end)| **before_end == n) {
            Some((_, before_end)) => *before_end = end,
            None => drop(runs.insert(n, end)),
        }
        true
    }

    pub fn remove(&mut self, n: u32) {
        let Some((first, end)) = self.run_of(n) else {
            return;
        };
        self.0.remove(&first);
        self.0.extend((first < n).then_some((first, n)));
        self.0.extend((n + 1 < end).then_some((n + 1, end)));
    }

    /// Takes the set apart, one run at a step.
    pub fn into_pieces(self) -> impl Iterator<Item = (u32, u32)> {
        self.0.into_iter()
    }

    /// Returns the bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        heap::tree(self.0.len(), size_of::<(u32, u32)>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::XorShift;
    use std::collections::BTreeSet;

    /// Indexes come and go at random, compared with a plain set.
    #[test]
    fn runs_have_the_indexes_that_are_in_the_set() {
        let mut random = XorShift(0x9e37_79b9_7f4a_7c15);
        let (mut runs, mut plain) = (Indexes::default(), BTreeSet::new());
        for _ in 0..100_000 {
            let n = random.below(24) as u32;
            match random.below(2) {
                0 => assert_eq!(runs.insert(n), plain.insert(n), "{n} into {plain:?}"),
                _ => {
                    runs.remove(n);
                    plain.remove(&n);
                }
            }
            let lowest = (0..).find(|n| !plain.contains(n));
            assert_eq!(Some(runs.lowest_free()), lowest, "{plain:?}");
            for n in 0..=24 {
                assert_eq!(runs.contains(n), plain.contains(&n), "{n} of {plain:?}");
            }
            let firsts = plain
                .iter()
                .filter(|n| **n == 0 || !plain.contains(&(**n - 1)));
            let pieces = runs.clone().into_pieces().map(|(first, _)| first);
            assert!(pieces.eq(firsts.copied()), "as few runs as possible");
            assert_eq!(runs.0.is_empty(), plain.is_empty());
        }
    }
}
