//! A set of the cluster's slots, one bit for each slot.

use crate::module::redis::hash_slot::SLOTS;

const WORDS: usize = SLOTS as usize / 64;

#[derive(Clone, PartialEq, Eq)]
pub(super) struct SlotBits(Box<[u64; WORDS]>);

impl SlotBits {
    pub(super) fn new() -> SlotBits {
        SlotBits(Box::new([0; WORDS]))
    }

    pub(super) fn all() -> SlotBits {
        SlotBits(Box::new([u64::MAX; WORDS]))
    }

    /// The word and the bit of a slot.
    fn place(slot: u16) -> (usize, u64) {
        let slot = slot % SLOTS;
        (usize::from(slot / 64), 1 << (slot % 64))
    }

    pub(super) fn has(&self, slot: u16) -> bool {
        let (word, bit) = SlotBits::place(slot);
        self.0[word] & bit != 0
    }

    /// Adds the slot. Returns whether it was absent.
    pub(super) fn add(&mut self, slot: u16) -> bool {
        let (word, bit) = SlotBits::place(slot);
        let was_absent = self.0[word] & bit == 0;
        self.0[word] |= bit;
        was_absent
    }

    pub(super) fn remove(&mut self, slot: u16) {
        let (word, bit) = SlotBits::place(slot);
        self.0[word] &= !bit;
    }

    /// The slots of either set.
    pub(super) fn union(&self, other: &SlotBits) -> SlotBits {
        self.combine(other, |here, there| here | there)
    }

    /// The slots of both sets.
    pub(super) fn intersection(&self, other: &SlotBits) -> SlotBits {
        self.combine(other, |here, there| here & there)
    }

    /// The slots of this set that are not in the other.
    pub(super) fn difference(&self, other: &SlotBits) -> SlotBits {
        self.combine(other, |here, there| here & !there)
    }

    /// The slot with the smallest number.
    pub(super) fn first(&self) -> Option<u16> {
        let (at, word) = self.0.iter().enumerate().find(|(_, word)| **word != 0)?;
        u16::try_from(at * 64 + word.trailing_zeros() as usize).ok()
    }

    /// The slots in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = u16> {
        (0..SLOTS).filter(|slot| self.has(*slot))
    }

    fn combine(&self, other: &SlotBits, of_words: impl Fn(u64, u64) -> u64) -> SlotBits {
        let mut combined = SlotBits::new();
        let words = self.0.iter().zip(other.0.iter());
        for (word, (here, there)) in combined.0.iter_mut().zip(words) {
            *word = of_words(*here, *there);
        }
        combined
    }
}
