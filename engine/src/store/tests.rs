//! What the unit tests of the indexes share; and how ids are reused.

use crate::state::Body;
use crate::store::Store;
use crate::store::slab::StateId;
use crate::types::{Db, Family};

/// A small random generator, the same in every run.
pub struct XorShift(pub u64);

impl XorShift {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound
    }

    pub fn below_usize(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % bound
    }

    pub fn pick(&mut self, choices: &[u64]) -> u64 {
        choices[usize::try_from(self.next() >> 11).unwrap() % choices.len()]
    }

    /// Returns a number below 2^bits. Small numbers are as frequent as large ones: first the number of bits is drawn.
    pub fn magnitude(&mut self, bits: u64) -> u64 {
        let bits = self.below(bits + 1);
        self.below(1 << bits)
    }
}

pub fn id(raw: u32) -> StateId {
    StateId::from_raw(raw).unwrap()
}

/// The server may free a value on another thread, long after it was removed.
#[test]
fn id_of_a_removed_state_is_reserved_until_it_is_freed() {
    let mut store = Store::default();
    let insert = |store: &mut Store| {
        let id = store.insert(Body::new(Family::Lock), Db(0), b"key");
        id.expect("there are ids")
    };
    let id = insert(&mut store);
    store.remove(id);
    assert!(store.get(id).is_none());
    assert_ne!(insert(&mut store), id);
    store.free(id);
    assert_eq!(insert(&mut store), id);
}
