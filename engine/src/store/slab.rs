//! The store of states: values under small integer ids, in chunks of fixed size.
//!
//! Guaranteed: a value never moves. To grow, the slab allocates one more chunk and copies only its list of chunks (32
//! bytes for 64 values). A `Vec` of a million states would be copied while clients wait, because the server's
//! allocator has no realloc. A value costs `size_of::<Option<T>>()` and one bit; if `T` has a niche that is
//! `size_of::<T>()`. After `take` an id stays reserved until `free`. So when the server frees a value on another
//! thread, it can give the id back late, and until then the id never names another state.
//!
//! Deliberately absent: generations in ids. They would cost four bytes a value, to detect what reserved ids prevent.
//!
//! Rejected: a free list through the slots (an enum of value and link has no niche left, so every slot would grow), and
//! a stack of free ids (four bytes for each id that was ever freed). One bit for each id is needed anyway, so that
//! `free` does nothing to an id that is not in use, and in one word for a chunk a zero bit is found as fast.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

/// How many ids a chunk has: as many as a word has bits.
pub const CHUNK: usize = u64::BITS as usize;

/// The most chunks that 31 bits can number, less one, so that no id reaches [`StateId::MAX`].
const MAX_CHUNKS: usize = (1 << 31) / CHUNK - 1;

/// A chunk whose last id is freed keeps its memory unless more chunks than these have a free id. It is enough that a
/// server whose number of keys goes up and down by 8,000 does not allocate each time, and few enough that the memory of
/// a million locks is given back.
const SPARE_CHUNKS: usize = 128;

/// The id of one state, small enough to be the value in the keyspace. It is never zero and below 2^31. So an index can
/// link states by plain `u32` numbers, and use zero and the top bit as marks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StateId(NonZeroU32);

impl From<StateId> for NonZeroU32 {
    fn from(id: StateId) -> NonZeroU32 {
        id.0
    }
}

impl StateId {
    pub const MAX: u32 = u32::MAX >> 1;
    pub const FIRST: StateId = StateId(NonZeroU32::MIN);

    pub fn get(self) -> u32 {
        self.0.get()
    }

    /// Returns the id with this number; `None` for zero and for numbers above [`StateId::MAX`].
    pub fn from_raw(raw: u32) -> Option<Self> {
        let number = NonZeroU32::new(raw)?;
        (raw <= Self::MAX).then_some(Self(number))
    }

    /// Returns the id behind this one, if there is one.
    pub fn next(self) -> Option<Self> {
        Self::from_raw(self.get() + 1)
    }

    /// Returns the chunk of the id, and the slot in the chunk.
    pub fn place(self) -> (usize, usize) {
        let index = self.get() as usize - 1;
        (index / CHUNK, index % CHUNK)
    }

    fn at(chunk: usize, slot: usize) -> Option<Self> {
        let raw = u32::try_from(chunk * CHUNK + slot + 1).ok()?;
        Self::from_raw(raw)
    }
}

struct Chunk<T> {
    /// The slots that were used so far, with room for all from the first on; without memory if it was given back because
    /// no id of the chunk was in use. A slot whose id is free is `None`; a slot whose id is in use is `None` only while
    /// the id is reserved.
    slots: Vec<Option<T>>,
    /// The ids in use, from `insert` to `free`: one bit for each.
    in_use: u64,
}

pub struct Slab<T> {
    /// Chunk `c` holds the ids from `c * CHUNK + 1` to `(c + 1) * CHUNK`. Never shrinks.
    chunks: Vec<Chunk<T>>,
    /// Exactly the chunks that have slots and a free id. New ids come from the lowest, so that the others can become
    /// empty.
    roomy: BTreeSet<usize>,
    /// Exactly the chunks without slots, each once. One is used again only if no chunk in `roomy` is left, so that a
    /// lock which comes and goes does not allocate each time.
    bare: Vec<usize>,
    /// The most chunks that `chunks` may have.
    max_chunks: usize,
    /// Never changes, nor does `max_chunks`; both are fields so that tests can make them small.
    max_spare: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            chunks: Vec::new(),
            roomy: BTreeSet::new(),
            bare: Vec::new(),
            max_chunks: MAX_CHUNKS,
            max_spare: SPARE_CHUNKS,
        }
    }
}

impl<T> Slab<T> {
    /// Stores the value under a free id, and returns the id. If no id is free, drops the value and returns `None`.
    #[must_use]
    pub fn insert(&mut self, value: T) -> Option<StateId> {
        let lowest = self.roomy.first().copied();
        let c = lowest.or_else(|| self.open_chunk())?;
        let chunk = &mut self.chunks[c];
        let slot = chunk.in_use.trailing_ones() as usize;
        match chunk.slots.get_mut(slot) {
            Some(free) => {
                debug_assert!(free.is_none(), "a free id has a value");
                *free = Some(value);
            }
            None => chunk.slots.push(Some(value)),
        }
        chunk.in_use |= 1 << slot;
        if chunk.in_use == u64::MAX {
            self.roomy.remove(&c);
        }
        StateId::at(c, slot)
    }

    /// Returns the value; `None` for an id that is free or reserved.
    pub fn get(&self, id: StateId) -> Option<&T> {
        let (c, slot) = id.place();
        self.chunks.get(c)?.slots.get(slot)?.as_ref()
    }

    /// As [`Slab::get`].
    pub fn get_mut(&mut self, id: StateId) -> Option<&mut T> {
        let (c, slot) = id.place();
        self.chunks.get_mut(c)?.slots.get_mut(slot)?.as_mut()
    }

    /// Removes the value and returns it. The id stays reserved: `insert` does not use it before [`Slab::free`].
    pub fn take(&mut self, id: StateId) -> Option<T> {
        let (c, slot) = id.place();
        self.chunks.get_mut(c)?.slots.get_mut(slot)?.take()
    }

    /// Makes the id free, and drops its value if it still has one. Does nothing to an id that is not in use. Returns
    /// the number of the id's chunk if the chunk has given back its memory, because that was its last id.
    pub fn free(&mut self, id: StateId) -> Option<usize> {
        let (c, slot) = id.place();
        let value = self.take(id);
        let chunk = self.chunks.get_mut(c)?;
        if chunk.in_use & 1 << slot == 0 {
            return None;
        }
        if chunk.in_use == u64::MAX {
            self.roomy.insert(c);
        }
        chunk.in_use &= !(1 << slot);
        let gives_back = chunk.in_use == 0 && self.roomy.len() > self.max_spare;
        if gives_back {
            chunk.slots = Vec::new();
            self.roomy.remove(&c);
            self.bare.push(c);
        }
        // Drop the value last: if its destructor panics, the slab is already in order.
        drop(value);
        gives_back.then_some(c)
    }

    /// Returns the values from this id on, in ascending order of their ids.
    ///
    /// A walk in slices continues from the id behind the last one it got, whether or not that is in use. It meets each
    /// value that was there all the time exactly once, and may miss one that was inserted meanwhile. It costs one
    /// comparison for each chunk without ids in use, and one for each id of the others.
    pub fn values_since(&self, id: StateId) -> impl Iterator<Item = (StateId, &T)> {
        let (first, first_slot) = id.place();
        let chunks = self.chunks.iter().enumerate().skip(first);
        let used = chunks.filter(|(_, chunk)| chunk.in_use != 0);
        used.flat_map(move |(c, chunk)| {
            let from = if c == first { first_slot } else { 0 };
            (from..CHUNK).filter_map(move |slot| {
                Some((StateId::at(c, slot)?, chunk.slots.get(slot)?.as_ref()?))
            })
        })
    }

    /// Adds a chunk to `roomy`: one whose memory was given back or, if there is none, a new one. Returns `None` if
    /// there are `max_chunks` already.
    fn open_chunk(&mut self) -> Option<usize> {
        let c = self.bare.pop().unwrap_or(self.chunks.len());
        if c == self.max_chunks {
            return None;
        }
        let slots = Vec::with_capacity(CHUNK);
        let chunk = Chunk { slots, in_use: 0 };
        match self.chunks.get_mut(c) {
            Some(bare) => *bare = chunk,
            None => self.chunks.push(chunk),
        }
        self.roomy.insert(c);
        Some(c)
    }
}

#[cfg(test)]
mod tests;
