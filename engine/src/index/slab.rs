//! The store of states: values under small integer ids, in fixed chunks.
//!
//! Guaranteed: a value never moves. Growth allocates one more chunk and copies nothing but the
//! directory (24 bytes for 1,024 values), because the server's allocator has no realloc and a
//! `Vec` of a million states would be copied while clients wait. A value costs
//! `size_of::<Option<T>>()` and one bit; with a niche in `T` that is `size_of::<T>()`. An id stays
//! with its value, and after `take` with nobody, until `free` gives it back: so a keyspace value
//! that is freed on another thread can hand in its id late, and meanwhile the id never names a
//! stranger.
//!
//! Deliberately absent: generations in ids. They would cost four bytes a value to detect what
//! reserving prevents.
//!
//! Rejected: a free list threaded through the slots (an enum of value and link has no niche left,
//! and every slot grows), and a stack of free ids (four bytes for each id ever freed). One bit an
//! id tells used from free, which `free` must know anyway to be harmless on an id that is not in
//! use, and finding a zero bit is as fast: see `slot_set`.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use crate::index::slot_set::{SLOTS as CHUNK, SlotSet};

/// The last chunk but one that 31 bits could number, so that no id reaches [`StateId::MAX`].
const MAX_CHUNKS: usize = (1 << 31) / CHUNK - 1;

/// How many chunks without any id in use keep their memory. Enough that a server going back and
/// forth over the border of a chunk does not allocate, few enough that a burst of a million locks
/// does not stay for good.
const SPARE_CHUNKS: usize = 8;

/// The name of one state, as small as a keyspace value can be. Never zero, and below 2^31, so that
/// an index can link states by plain `u32` and has zero and the top bit for its own marks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StateId(NonZeroU32);

impl From<StateId> for NonZeroU32 {
    fn from(id: StateId) -> NonZeroU32 {
        id.0
    }
}

impl StateId {
    pub const MAX: u32 = u32::MAX >> 1;

    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// The id with this number; `None` for zero and past [`StateId::MAX`].
    pub fn from_raw(raw: u32) -> Option<Self> {
        NonZeroU32::new(raw)
            .filter(|raw| raw.get() <= Self::MAX)
            .map(Self)
    }

    /// The chunk and the slot in it.
    const fn place(self) -> (usize, usize) {
        let index = self.get() as usize - 1;
        (index / CHUNK, index % CHUNK)
    }

    fn at(chunk: usize, slot: usize) -> Option<Self> {
        u32::try_from(chunk * CHUNK + slot + 1)
            .ok()
            .and_then(Self::from_raw)
    }
}

struct Chunk<T> {
    /// `CHUNK` slots, or none at all: then no id of the chunk is in use and its memory was given
    /// back. A slot that is not in use is `None`; one that is in use is `None` only while its id is
    /// reserved.
    slots: Box<[Option<T>]>,
    /// In use from `insert` to `free`. Boxed so that growing the directory copies three words a chunk.
    in_use: Box<SlotSet>,
}

pub struct Slab<T> {
    /// Chunk `c` holds the ids from `c * CHUNK + 1` to `(c + 1) * CHUNK`. Never shrinks.
    chunks: Vec<Chunk<T>>,
    /// Exactly the chunks that have slots and an id to give. The lowest gives, so that the others may
    /// empty.
    roomy: BTreeSet<usize>,
    /// Exactly the chunks without slots, each once. They are used again only when no other has
    /// room, so that one lock taken and given back over and over does not allocate each time.
    bare: Vec<usize>,
    /// The number of chunks that have their slots but no id in use; at most `max_spare`.
    spare: usize,
    /// `chunks` never holds more.
    max_chunks: usize,
    /// Constant, like `max_chunks`; both are fields so that tests can make them small.
    max_spare: usize,
}

impl<T> Slab<T> {
    pub const fn new() -> Self {
        Self::with_bounds(MAX_CHUNKS, SPARE_CHUNKS)
    }

    const fn with_bounds(max_chunks: usize, max_spare: usize) -> Self {
        Self {
            chunks: Vec::new(),
            roomy: BTreeSet::new(),
            bare: Vec::new(),
            spare: 0,
            max_chunks,
            max_spare,
        }
    }

    /// Stores the value under an id that is not in use. `None`, and the value is dropped, when
    /// there is no such id.
    #[must_use]
    pub fn insert(&mut self, value: T) -> Option<StateId> {
        let lowest = self.roomy.first().copied();
        let c = lowest.or_else(|| self.open_chunk())?;
        let chunk = &mut self.chunks[c];
        if chunk.in_use.len() == 0 {
            self.spare -= 1;
        }
        let slot = chunk.in_use.claim();
        debug_assert!(slot.is_some(), "a roomy chunk has no free id");
        let slot = slot?;
        debug_assert!(chunk.slots[slot].is_none(), "a free id has a value");
        chunk.slots[slot] = Some(value);
        if chunk.in_use.len() == CHUNK {
            self.roomy.remove(&c);
        }
        StateId::at(c, slot)
    }

    /// `None` as well for a reserved id, and for one that was never given.
    pub fn get(&self, id: StateId) -> Option<&T> {
        let (c, slot) = id.place();
        self.chunks.get(c)?.slots.get(slot)?.as_ref()
    }

    /// As [`Slab::get`].
    pub fn get_mut(&mut self, id: StateId) -> Option<&mut T> {
        let (c, slot) = id.place();
        self.chunks.get_mut(c)?.slots.get_mut(slot)?.as_mut()
    }

    /// Removes the value and keeps the id reserved: it is not given again before [`Slab::free`].
    pub fn take(&mut self, id: StateId) -> Option<T> {
        let (c, slot) = id.place();
        self.chunks.get_mut(c)?.slots.get_mut(slot)?.take()
    }

    /// Gives the id back, and drops its value if it still has one. Harmless on an id that is not
    /// in use.
    pub fn free(&mut self, id: StateId) {
        let (c, slot) = id.place();
        let Some(chunk) = self.chunks.get_mut(c) else {
            return;
        };
        if !chunk.in_use.release(slot) {
            return;
        }
        let value = chunk.slots[slot].take();
        if chunk.in_use.len() == CHUNK - 1 {
            self.roomy.insert(c);
        }
        if chunk.in_use.len() == 0 {
            self.spare += 1;
            if self.spare > self.max_spare {
                self.strip_chunk(c);
            }
        }
        // Last, because a destructor is foreign code: if it panics, the slab is already in order.
        drop(value);
    }

    /// All values, ids ascending.
    #[cfg(debug_assertions)]
    pub fn iter(&self) -> impl Iterator<Item = (StateId, &T)> {
        self.values_from(0)
    }

    /// The ids of the next `n` values past `after` (from the first for `None`), ascending. Fewer
    /// than `n` mean the end.
    ///
    /// A walk in slices goes on from the last id it was given, whether or not that is still in
    /// use. It meets once each value that was there all along, and may miss one that was inserted
    /// meanwhile. Gaps cost one comparison for a chunk without ids in use, and one for every 64
    /// ids in the others.
    pub fn ids_after(&self, after: Option<StateId>, n: usize) -> impl Iterator<Item = StateId> {
        // Ids count from one and indexes from zero, so the number of an id is the index of the
        // next.
        let first = after.map_or(0, |id| id.get() as usize);
        self.values_from(first).map(|(id, _)| id).take(n)
    }

    fn values_from(&self, first: usize) -> impl Iterator<Item = (StateId, &T)> {
        let chunks = self.chunks.iter().enumerate().skip(first / CHUNK);
        let used = chunks.filter(|(_, chunk)| chunk.in_use.len() != 0);
        used.flat_map(move |(c, chunk)| {
            let first_slot = first.saturating_sub(c * CHUNK);
            let slots = chunk.in_use.used_from(first_slot);
            slots.filter_map(move |slot| Some((StateId::at(c, slot)?, chunk.slots[slot].as_ref()?)))
        })
    }

    /// Makes one more chunk roomy: one whose memory was given back, or else a new one.
    fn open_chunk(&mut self) -> Option<usize> {
        let c = self.bare.pop().unwrap_or(self.chunks.len());
        if c == self.max_chunks {
            return None;
        }
        if c == self.chunks.len() {
            self.chunks.push(Chunk {
                slots: Box::default(),
                in_use: Box::new(SlotSet::EMPTY),
            });
        }
        self.chunks[c].slots = std::iter::repeat_with(|| None).take(CHUNK).collect();
        self.roomy.insert(c);
        self.spare += 1;
        Some(c)
    }

    /// Gives back the memory of a chunk without any id in use.
    fn strip_chunk(&mut self, c: usize) {
        let chunk = &mut self.chunks[c];
        debug_assert_eq!(chunk.in_use.len(), 0, "chunk {c} is in use");
        chunk.slots = Box::default();
        self.roomy.remove(&c);
        self.bare.push(c);
        self.spare -= 1;
    }

    /// Panics unless every field's comment holds. Walks everything.
    #[cfg(test)]
    fn check_invariants(&self) {
        let (mut roomy, mut bare) = (BTreeSet::new(), BTreeSet::new());
        let mut spare = 0;
        for (c, chunk) in self.chunks.iter().enumerate() {
            let used = chunk.in_use.used_from(0).count();
            assert_eq!(chunk.in_use.len(), used, "chunk {c}: count");
            if chunk.slots.is_empty() {
                assert_eq!(used, 0, "chunk {c}: ids in use without slots");
                bare.insert(c);
                continue;
            }
            assert_eq!(chunk.slots.len(), CHUNK, "chunk {c}: slots");
            spare += usize::from(used == 0);
            if used < CHUNK {
                roomy.insert(c);
            }
            for (slot, value) in chunk.slots.iter().enumerate() {
                assert!(
                    value.is_none() || chunk.in_use.contains(slot),
                    "chunk {c}: slot {slot} has a value, but its id is free"
                );
            }
        }
        assert_eq!(self.roomy, roomy, "roomy");
        assert_eq!(self.bare.len(), bare.len(), "bare: each once");
        assert_eq!(self.bare.iter().copied().collect::<BTreeSet<_>>(), bare);
        assert_eq!(self.spare, spare, "spare");
        assert!(self.spare <= self.max_spare, "{} spare chunks", self.spare);
        assert!(self.chunks.len() <= self.max_chunks, "too many chunks");
    }
}

#[cfg(test)]
mod tests;
