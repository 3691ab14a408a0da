//! The slab at the borders of words and chunks, and long histories against a map.

use super::*;
use crate::store::tests::{XorShift, id};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Returns a slab that may have so many chunks, and keep so many without an id in use.
fn bounded<T>(max_chunks: usize, max_spare: usize) -> Slab<T> {
    Slab {
        max_chunks,
        max_spare,
        ..Slab::default()
    }
}

impl<T> Slab<T> {
    /// Panics unless the comment of every field holds. Walks over all slots.
    fn check_invariants(&self) {
        let (mut roomy, mut bare) = (BTreeSet::new(), BTreeSet::new());
        let mut spare = 0;
        for (c, chunk) in self.chunks.iter().enumerate() {
            let slots = &chunk.slots;
            if slots.capacity() == 0 {
                assert_eq!(chunk.in_use, 0, "chunk {c}: ids in use without slots");
                bare.insert(c);
                continue;
            }
            assert_eq!(slots.capacity(), CHUNK, "chunk {c} would move its values");
            spare += usize::from(chunk.in_use == 0);
            if chunk.in_use != u64::MAX {
                roomy.insert(c);
            }
            for (slot, value) in slots.iter().enumerate() {
                assert!(
                    value.is_none() || chunk.in_use & 1 << slot != 0,
                    "chunk {c}: slot {slot} has a value, but its id is free"
                );
            }
        }
        assert_eq!(self.roomy, roomy, "roomy");
        assert_eq!(self.bare.len(), bare.len(), "bare: each once");
        assert_eq!(self.bare.iter().copied().collect::<BTreeSet<_>>(), bare);
        assert!(spare <= self.max_spare.max(1), "{spare} spare chunks");
        assert!(self.chunks.len() <= self.max_chunks, "too many chunks");
    }
}

#[test]
fn state_ids_leave_zero_and_the_top_bit_free() {
    for (raw, valid) in [
        (0, false),
        (1, true),
        (1024, true),
        (StateId::MAX, true),
        (StateId::MAX + 1, false),
        (u32::MAX, false),
    ] {
        assert_eq!(
            StateId::from_raw(raw).map(StateId::get),
            valid.then_some(raw),
            "{raw}"
        );
    }
    let id = StateId::from_raw(7).expect("a number of an id");
    assert_eq!(NonZeroU32::from(id).get(), 7);
    assert!(StateId::at(MAX_CHUNKS - 1, CHUNK - 1).unwrap().get() < StateId::MAX);
    assert_eq!(size_of::<Option<StateId>>(), 4);
}

#[test]
fn slab_slot_is_no_larger_than_its_value() {
    assert_eq!(size_of::<Option<Box<u64>>>(), size_of::<Box<u64>>());
    let mut slab = Slab::default();
    slab.insert(Box::new(7_u64)).unwrap();
    assert_eq!(
        size_of_val(&slab.chunks[0].slots[..]),
        size_of::<Box<u64>>()
    );
}

#[test]
fn slab_values_never_move() {
    let mut slab = Slab::default();
    let first = slab.insert(0_usize).unwrap();
    let address = std::ptr::from_ref(slab.get(first).unwrap());
    for value in 1..5 * CHUNK {
        slab.insert(value).unwrap();
    }
    assert_eq!(std::ptr::from_ref(slab.get(first).unwrap()), address);
    slab.check_invariants();
}

#[test]
fn ids_run_out_at_the_bound_and_come_back() {
    let mut slab = bounded(2, 0);
    for n in 1..=2 * CHUNK {
        assert_eq!(slab.insert(n).map(|id| id.get() as usize), Some(n));
    }
    assert_eq!(slab.insert(0), None);
    slab.check_invariants();

    // A reserved id is still in use.
    assert_eq!(slab.take(id(77)), Some(77));
    assert_eq!(slab.insert(0), None);
    slab.free(id(77));
    assert_eq!(slab.insert(1), Some(id(77)));
    assert_eq!(slab.insert(0), None);
    slab.check_invariants();
}

#[test]
fn reserved_id_has_no_value_and_is_reused_after_free() {
    let mut slab = Slab::default();
    let a = slab.insert('a').unwrap();
    assert_eq!(slab.take(a), Some('a'));
    assert_eq!(slab.take(a), None);
    assert_eq!(
        (slab.get(a), slab.values_since(StateId::FIRST).count()),
        (None, 0)
    );

    let b = slab.insert('b').unwrap();
    assert_ne!(a, b);
    slab.free(a);
    slab.free(a);
    slab.free(id(5000));
    slab.check_invariants();

    let c = slab.insert('c').unwrap();
    let d = slab.insert('d').unwrap();
    assert_eq!(BTreeSet::from([a, b, c, d]).len(), 3);
    assert_eq!((c, slab.get(b), slab.get(c)), (a, Some(&'b'), Some(&'c')));
    *slab.get_mut(d).unwrap() = 'e';
    assert_eq!(slab.get(d), Some(&'e'));
}

#[test]
fn slab_free_drops_the_value_exactly_once() {
    let witness = Rc::new(());
    let mut slab = Slab::default();
    let ids: Vec<_> = (0..10)
        .map(|_| slab.insert(Rc::clone(&witness)).unwrap())
        .collect();
    drop(slab.take(ids[0]));
    assert_eq!(Rc::strong_count(&witness), 10);
    slab.free(ids[0]);
    slab.free(ids[1]);
    slab.free(ids[1]);
    assert_eq!(Rc::strong_count(&witness), 9);
    drop(slab);
    assert_eq!(Rc::strong_count(&witness), 1);
}

#[test]
fn slab_gives_memory_back_after_a_burst() {
    let mut slab = Slab::default();
    let chunks = 4 * SPARE_CHUNKS;
    let ids: Vec<_> = (0..chunks * CHUNK)
        .map(|n| slab.insert(n).unwrap())
        .collect();
    let stripped: Vec<_> = ids.iter().filter_map(|id| slab.free(*id)).collect();
    assert_eq!(
        stripped,
        (SPARE_CHUNKS..chunks).collect::<Vec<_>>(),
        "each chunk that has no memory any more, once"
    );
    slab.check_invariants();
    let kept = |slab: &Slab<usize>| {
        slab.chunks
            .iter()
            .filter(|chunk| chunk.slots.capacity() > 0)
            .count()
    };
    assert_eq!(kept(&slab), SPARE_CHUNKS);
    assert_eq!(slab.get(ids[0]), None);
    assert_eq!(slab.take(ids[chunks * CHUNK - 1]), None);

    // A value that comes and goes uses memory that is there already.
    for n in 0..10 {
        let id = slab.insert(n).unwrap();
        assert_eq!(kept(&slab), SPARE_CHUNKS);
        slab.free(id);
    }
    slab.check_invariants();

    // The second burst uses the same ids.
    for n in 0..chunks * CHUNK {
        assert!(slab.insert(n).unwrap() <= ids[chunks * CHUNK - 1]);
    }
    assert_eq!((slab.chunks.len(), kept(&slab)), (chunks, chunks));
    slab.check_invariants();
}

#[test]
fn walk_in_slices_meets_every_value_once() {
    let mut slab = Slab::default();
    for n in 0..3 * CHUNK {
        slab.insert(n).unwrap();
    }
    // Empty the second chunk. In the others keep the ids at the borders.
    for n in 0..3 * CHUNK {
        let keep = [0, 1, 31, 32, CHUNK - 2, CHUNK - 1].contains(&(n % CHUNK)) && n / CHUNK != 1;
        if !keep {
            slab.free(StateId::at(0, n).unwrap());
        }
    }
    slab.take(id(2)).unwrap();
    let ids_since = |id| slab.values_since(id).map(|(id, _)| id);
    let all: Vec<_> = ids_since(StateId::FIRST).collect();
    assert_eq!(all.len(), 11);
    for n in 1..=all.len() + 1 {
        let (mut met, mut next) = (Vec::new(), StateId::FIRST);
        loop {
            let slice: Vec<_> = ids_since(next).take(n).collect();
            met.extend_from_slice(&slice);
            if slice.len() < n {
                break;
            }
            next = slice[n - 1].next().unwrap();
        }
        assert_eq!(met, all, "slices of {n}");
    }
    assert_eq!(ids_since(id(StateId::MAX)).count(), 0);
    assert_eq!(id(StateId::MAX).next(), None);
}

#[test]
fn slab_histories_agree_with_a_map() {
    const CHUNKS: usize = 3;
    let mut stripped = false;
    for seed in 1..=8 {
        let mut random = XorShift(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
        let mut slab = bounded(CHUNKS, random.below_usize(CHUNKS));
        let mut present = BTreeMap::new();
        let mut reserved = BTreeSet::new();
        // How many of ten steps remove a value, one phase after the other: the slab fills, drains, stays level, and so
        // on.
        for leaving in [2, 9, 5, 1, 9, 6] {
            for step in 0..6000 {
                let id = id(u32::try_from(1 + random.below_usize(CHUNKS * CHUNK + 9)).unwrap());
                if random.below_usize(10) >= leaving {
                    if let Some(id) = slab.insert(step) {
                        assert!(!reserved.contains(&id), "seed {seed}: {id:?} is reserved");
                        assert_eq!(present.insert(id, step), None, "seed {seed}: {id:?}");
                    } else {
                        let in_use = present.len() + reserved.len();
                        assert_eq!(in_use, CHUNKS * CHUNK, "seed {seed}: refused too early");
                    }
                } else if random.below_usize(3) == 0 {
                    let value = present.remove(&id);
                    assert_eq!(slab.take(id), value, "seed {seed}: {id:?}");
                    if value.is_some() {
                        reserved.insert(id);
                    }
                } else {
                    // Mostly an id in use, otherwise the slab would not drain.
                    let value = present.range(id..).map(|(id, _)| *id).next();
                    let late = reserved.range(id..).copied().next();
                    let id = [value, late, Some(id)][random.below_usize(3)].unwrap_or(id);
                    slab.free(id);
                    present.remove(&id);
                    reserved.remove(&id);
                }
                assert_eq!(slab.get(id), present.get(&id), "seed {seed}: {id:?}");
                stripped |= !slab.bare.is_empty();
                if step % 64 == 0 {
                    slab.check_invariants();
                    let values = slab
                        .values_since(StateId::FIRST)
                        .map(|(id, value)| (id, *value));
                    assert!(values.eq(present.clone()), "seed {seed}, step {step}");
                }
            }
        }
    }
    assert!(stripped, "no chunk was ever given back");
}

/// Zero and the top bit are marks, so no id may reach them.
#[test]
fn last_chunk_has_ids_for_all_its_slots() {
    assert!(StateId::at(MAX_CHUNKS - 1, CHUNK - 1).is_some());
    assert!(StateId::at(MAX_CHUNKS, CHUNK - 1).is_none());
}
