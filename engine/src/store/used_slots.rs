//! The slots of one chunk that are in use: one bit for each slot. The lowest free slot is found 64 at a time.

/// How many slots a chunk has.
pub const SLOTS: usize = 1 << 10;

/// A set of slots.
#[derive(Default)]
pub struct UsedSlots {
    in_use: [u64; SLOTS / 64],
    /// All words before this one are full, so that nothing is looked for there.
    full_words: usize,
    /// The number of bits that are set.
    count: usize,
}

impl UsedSlots {
    pub const fn len(&self) -> usize {
        self.count
    }

    pub const fn contains(&self, slot: usize) -> bool {
        self.in_use[slot / 64] & 1 << (slot % 64) != 0
    }

    /// Marks the lowest free slot as used, and returns it; `None` if all are in use.
    pub fn claim(&mut self) -> Option<usize> {
        while *self.in_use.get(self.full_words)? == u64::MAX {
            self.full_words += 1;
        }
        let word = self.full_words;
        let bit = self.in_use[word].trailing_ones() as usize;
        self.in_use[word] |= 1 << bit;
        self.count += 1;
        Some(word * 64 + bit)
    }

    /// Marks the slot as free. Returns whether it was in use.
    pub fn release(&mut self, slot: usize) -> bool {
        let was_used = self.contains(slot);
        if was_used {
            self.in_use[slot / 64] &= !(1 << (slot % 64));
            self.full_words = self.full_words.min(slot / 64);
            self.count -= 1;
        }
        was_used
    }

    /// Returns the slots in use from `first` on, in ascending order.
    pub fn used_from(&self, first: usize) -> impl Iterator<Item = usize> {
        (first / 64..SLOTS / 64).flat_map(move |word| {
            let mut bits = self.in_use[word];
            if word == first / 64 {
                bits &= u64::MAX << (first % 64);
            }
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
                bits &= bits - 1;
                Some(word * 64 + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_slots_claims_lowest_free_slot_first() {
        let mut slots = UsedSlots::default();
        for slot in 0..SLOTS {
            assert_eq!((slots.len(), slots.claim()), (slot, Some(slot)));
        }
        assert_eq!(slots.claim(), None);
        let released = [0, 1, 63, 64, 127, 128, SLOTS - 1];
        for slot in released {
            assert!(slots.release(slot) && !slots.release(slot), "{slot}");
        }
        for first in [0, 1, 2, 63, 64, 65, SLOTS - 1] {
            let used = (first..SLOTS).filter(|slot| !released.contains(slot));
            assert!(slots.used_from(first).eq(used), "from {first}");
        }
        for slot in released {
            assert!(!slots.contains(slot));
            assert_eq!(slots.claim(), Some(slot), "the lowest first");
        }
        assert_eq!(slots.len(), SLOTS);
    }
}
