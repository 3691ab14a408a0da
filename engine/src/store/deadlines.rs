//! The index of leases: at most one deadline for each state, in a hierarchical timing wheel.
//!
//! Guaranteed: `schedule` and `cancel` are O(1) and touch at most four links, because every acquire and release of a
//! lock pays for them. `pop_due` returns no id before its deadline, and can return it at most one tick (1.024 ms)
//! after. Ids come out in the order of their ticks. The budget bounds the work of a call, however far time has jumped
//! and however many ids are due: a call that uses up its budget leaves the wheel in order, and the next call continues.
//!
//! Deliberately absent: the clock (time is an argument); the exact deadline (the state has it, the wheel rounds up to a
//! tick); and an order within one tick. The index takes 12 bytes for each id of every chunk of 64 ids of which one was
//! scheduled, until [`Wheel::forget_chunk`]. The chunks are those of the states' store, which knows when all ids of one
//! are free.
//!
//! How it works: a slot of level 0 is one tick wide, and a slot of level n as wide as all 64 slots of level n - 1. An
//! id is put on the level of the highest digit (base 64) in which its tick differs from the `hand`, the wheel's current
//! tick. When the hand reaches the slot, the id moves to a lower level, at most five times. The hand stops only at
//! slots that have ids, which one word for each level tells, so an idle month costs no more than an idle millisecond.
//!
//! A link stores only the low 32 bits of its tick, because a million leases must be cheap. These bits are enough: an id
//! moves down when the hand has reached its slot, and from the digit of that slot upwards all its digits are then those
//! of the hand. The topmost level is used as a ring, so the clock may run for centuries. Only the distance of a tick
//! from the hand is limited: to 63 slots of the topmost level, over two years (`reach`).
//!
//! Rejected: wrapping 32-bit arithmetic, which fails silently when a 30-day lease meets a hand that has not moved for
//! three weeks; 40-bit ticks, which cost a byte more and gain nothing; a B-tree or a heap, whose O(log n) shows in
//! ACQUIRE at a million locks; and links inside the states, where each step along a list would borrow the store of
//! states.
//!
//! This is one idea in one file: the wheel and its lists share every field, and neither is of use without the other.

use crate::store::slab::{CHUNK, StateId};

/// A tick of the wheel, in microseconds.
const TICK_US: u64 = 1024;

/// The bits of one digit of a tick. So a level has 64 slots, and one word can mark them.
const DIGIT_BITS: u32 = 6;
const DIGITS: u32 = 1 << DIGIT_BITS;
const DIGIT_MASK: u64 = 0x3F;
const LEVELS: u32 = 6;
/// The lowest bit of the topmost digit.
const TOP_SHIFT: u32 = DIGIT_BITS * (LEVELS - 1);
/// The bits of a tick that a link stores.
const LOW_BITS: u64 = 0xFFFF_FFFF;

/// A node of a slot's circular list: an id or, with the top bit set, the slot itself. Zero is neither, and marks a link
/// that is in no list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Node(u32);

/// Where an id or a slot stands in its list. After the slot comes the first id, and before it the last.
#[derive(Clone, Copy)]
struct Link {
    /// `Node::NONE` exactly when the id is not scheduled.
    prev: Node,
    next: Node,
    /// The low bits of the tick at which the id is due. The slot determines the others: see the header of this file.
    tick_low: u32,
}

/// The number of a slot: `level * DIGITS + digit`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Slot(u32);

pub struct Wheel {
    /// The current tick. No id has a tick below it, and it is never past the latest time that `pop_due` was given. Ids
    /// that are due now are in the slot of level 0 under the hand. If a slot of a higher level is under the hand, its
    /// ids are being moved down; until it is empty the hand stays at the first tick of that slot.
    hand: u64,
    /// Bit `s` of word `level` is set exactly when slot `s` of that level has a list.
    occupied: [u64; LEVELS as usize],
    slots: [Link; (LEVELS * DIGITS) as usize],
    /// The links, by [`StateId::place`]. A chunk is allocated when the first of its ids is scheduled.
    chunks: Vec<Option<Box<[Link; CHUNK]>>>,
}

impl Node {
    const NONE: Self = Self(0);
    const SLOT: u32 = 1 << 31;

    fn of_id(id: StateId) -> Self {
        Self(id.get())
    }

    fn of_slot(slot: Slot) -> Self {
        Self(Self::SLOT | slot.0)
    }

    fn slot(self) -> Option<Slot> {
        (self.0 & Self::SLOT != 0).then_some(Slot(self.0 & !Self::SLOT))
    }

    /// Returns `None` for a slot and for `NONE`.
    fn id(self) -> Option<StateId> {
        StateId::from_raw(self.0)
    }
}

// An id must never look like a slot.
const _: () = assert!(StateId::MAX < Node::SLOT);
// All digits below the topmost must be in the link.
const _: () = assert!(1 << TOP_SHIFT <= LOW_BITS);

impl Slot {
    /// Returns the slot of a tick on this level.
    fn on(level: u32, tick: u64) -> Self {
        Self(level * DIGITS + digit_of(tick, level))
    }

    fn level(self) -> u32 {
        self.0 / DIGITS
    }

    fn digit(self) -> u32 {
        self.0 % DIGITS
    }

    fn index(self) -> usize {
        self.0 as usize
    }
}

impl Link {
    const UNLINKED: Self = Self::to(Node::NONE);

    /// Returns a link to the same node on both sides.
    const fn to(node: Node) -> Self {
        Self {
            prev: node,
            next: node,
            tick_low: 0,
        }
    }
}

impl Default for Wheel {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Wheel {
    /// Makes an empty wheel whose time starts now.
    pub fn new(now_us: u64) -> Self {
        Self {
            hand: now_us / TICK_US,
            occupied: [0; LEVELS as usize],
            slots: std::array::from_fn(|slot| Link::to(Node::of_slot(Slot(slot as u32)))),
            chunks: Vec::new(),
        }
    }

    /// Makes the id due at this deadline, and at no other that it had before. A deadline in the past is due at once,
    /// behind the ids that are due already.
    ///
    /// A deadline more than two years after the latest `pop_due` is out of reach: its id comes out after two years, and
    /// the caller has to schedule it again. No lease is longer than 30 days.
    ///
    /// Returns when to call `pop_due` for this id: see [`Wheel::next_due_us`].
    pub fn schedule(&mut self, id: StateId, deadline_us: u64) -> u64 {
        // Round up: a tick is due from its first microsecond on, and the deadline must have passed by then.
        let tick = deadline_us.div_ceil(TICK_US).clamp(self.hand, self.reach());
        self.cancel(id);
        let (chunk, _) = id.place();
        if chunk >= self.chunks.len() {
            self.chunks.resize_with(chunk + 1, || None);
        }
        let slot = self.link(id, tick);
        let shift = DIGIT_BITS * slot.level();
        (tick >> shift << shift).saturating_mul(TICK_US)
    }

    /// Removes the id. Does nothing if it was not scheduled.
    pub fn cancel(&mut self, id: StateId) {
        if self.contains(id) {
            self.unlink(id);
        }
    }

    pub fn contains(&self, id: StateId) -> bool {
        self.link_of(id).is_some_and(|link| link.prev != Node::NONE)
    }

    /// Removes one id whose deadline has passed, and returns it.
    ///
    /// Each id that moves, to a lower level or out of the wheel, costs one of the budget. `None` with budget left means
    /// that nothing is due; with no budget left, call again with a new one. Time may stand still. While it is behind
    /// the hand, nothing is due.
    #[must_use]
    pub fn pop_due(&mut self, now_us: u64, budget: &mut u32) -> Option<StateId> {
        let now_tick = now_us / TICK_US;
        if now_tick < self.hand {
            return None;
        }
        while *budget > 0 {
            let Some((tick, slot)) = self.earliest().filter(|(tick, _)| *tick <= now_tick) else {
                // Nothing is due up to now. Move the hand to now, so that later ids start on low levels.
                self.hand = now_tick;
                return None;
            };
            debug_assert!(self.hand <= tick, "the hand goes back to {tick}");
            self.hand = tick;
            *budget -= 1;
            // The slot is marked as occupied, so it has a first id.
            let id = self.slots[slot.index()].next.id()?;
            let tick_low = self.unlink(id);
            if slot.level() == 0 {
                return Some(id);
            }
            // The hand is at the id's slot, so the higher digits of the tick are those of the hand.
            self.link(id, self.hand & !LOW_BITS | u64::from(tick_low));
        }
        None
    }

    /// Returns when to call `pop_due` again, if anything is scheduled: never after the first id is due, and exactly
    /// then if that is at most 64 ticks away. An id that is further away has to move down first, at most five times.
    pub fn next_due_us(&self) -> Option<u64> {
        self.earliest()
            .map(|(tick, _)| tick.saturating_mul(TICK_US))
    }

    /// Gives back the memory of a chunk of ids. None of them may be scheduled.
    pub fn forget_chunk(&mut self, chunk: usize) {
        if let Some(links) = self.chunks.get_mut(chunk) {
            let mut linked = links.iter().flat_map(|links| links.iter());
            debug_assert!(
                linked.all(|link| link.prev == Node::NONE),
                "{chunk}: linked"
            );
            *links = None;
        }
    }

    /// Returns the bytes that the index takes for the id.
    pub fn bytes_of(&self, id: StateId) -> usize {
        self.link_of(id).map_or(0, size_of_val)
    }

    /// Takes the wheel apart into its chunks, so that the caller can drop them one by one.
    pub fn into_chunks(self) -> impl ExactSizeIterator + Send + 'static {
        self.chunks.into_iter()
    }

    /// Returns the last tick that can be scheduled: one turn of the topmost ring ahead of the hand, less the slot under
    /// it.
    fn reach(&self) -> u64 {
        (((self.hand >> TOP_SHIFT) + DIGITS as u64) << TOP_SHIFT) - 1
    }

    /// Returns the slot for a tick between the hand and `reach`.
    #[inline]
    fn slot_of(&self, tick: u64) -> Slot {
        debug_assert!(
            (self.hand..=self.reach()).contains(&tick),
            "{tick} is out of reach"
        );
        let highest = ((tick ^ self.hand) | 1).ilog2() / DIGIT_BITS;
        // Where the ticks differ above the topmost digit, the tick is in the next turn of the ring.
        Slot::on(highest.min(LEVELS - 1), tick)
    }

    /// Returns the slot that the hand must go to next, and its first tick. Slots of several levels can start at the
    /// same tick; the lowest level comes first, so that ids which are due come out before others move down.
    fn earliest(&self) -> Option<(u64, Slot)> {
        let mut earliest: Option<(u64, Slot)> = None;
        for (level, occupied) in (0..).zip(self.occupied) {
            if occupied == 0 {
                continue;
            }
            let shift = DIGIT_BITS * level;
            let ahead = occupied
                .rotate_right(digit_of(self.hand, level))
                .trailing_zeros();
            let tick = ((self.hand >> shift) + u64::from(ahead)) << shift;
            if earliest.is_none_or(|(first, _)| tick < first) {
                earliest = Some((tick, Slot::on(level, tick)));
            }
        }
        earliest
    }

    /// Appends an id that is in no list to the list of its slot, which it returns.
    fn link(&mut self, id: StateId, tick: u64) -> Slot {
        let slot = self.slot_of(tick);
        let node = Node::of_id(id);
        let last = std::mem::replace(&mut self.slots[slot.index()].prev, node);
        self.link_mut(last).next = node;
        let link = self.link_mut(node);
        debug_assert_eq!(link.prev, Node::NONE, "{id:?} is linked twice");
        *link = Link {
            prev: last,
            next: Node::of_slot(slot),
            tick_low: (tick & LOW_BITS) as u32,
        };
        self.occupied[slot.level() as usize] |= 1 << slot.digit();
        slot
    }

    /// Removes an id from its list. Returns the low bits of its tick.
    fn unlink(&mut self, id: StateId) -> u32 {
        let Link {
            prev,
            next,
            tick_low,
        } = std::mem::replace(self.link_mut(Node::of_id(id)), Link::UNLINKED);
        debug_assert_ne!(prev, Node::NONE, "{id:?} is not linked");
        self.link_mut(prev).next = next;
        self.link_mut(next).prev = prev;
        // If both neighbours are the same slot, the id was alone in its list.
        if prev == next
            && let Some(slot) = prev.slot()
        {
            self.occupied[slot.level() as usize] &= !(1 << slot.digit());
        }
        tick_low
    }

    /// Returns `None` if no id of the chunk has been scheduled since the chunk was last forgotten.
    fn link_of(&self, id: StateId) -> Option<&Link> {
        let (chunk, slot) = id.place();
        let links = self.chunks.get(chunk)?.as_ref()?;
        Some(&links[slot])
    }

    /// Returns the link of a slot, or of an id whose chunk is in the list. Allocates the chunk for its first id.
    #[inline]
    fn link_mut(&mut self, node: Node) -> &mut Link {
        if let Some(slot) = node.slot() {
            return &mut self.slots[slot.index()];
        }
        // As `StateId::place` has it.
        let index = node.0 as usize - 1;
        let links =
            self.chunks[index / CHUNK].get_or_insert_with(|| Box::new([Link::UNLINKED; CHUNK]));
        &mut links[index % CHUNK]
    }
}

/// Returns the digit of a tick for this level.
fn digit_of(tick: u64, level: u32) -> u32 {
    ((tick >> (DIGIT_BITS * level)) & DIGIT_MASK) as u32
}

#[cfg(test)]
mod tests;
