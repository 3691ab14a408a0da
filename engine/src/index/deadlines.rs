//! The index of leases: for every state at most one moment, and which of them has come.
//!
//! Guaranteed: `schedule` and `cancel` are O(1) and touch at most four links, because every
//! acquire and every release of a lock pays for them. No id comes out before its deadline, nor
//! more than one tick (1.024 ms) after it if asked. Ids come out in the order of their ticks. What
//! a call does is bounded by its budget, whatever the size of the jump in time and however many
//! are due: a call that runs out of budget leaves everything in order, and the next goes on.
//!
//! Deliberately absent: the clock (time is an argument), the exact deadline (the state knows it;
//! here it is rounded up to a tick), the order within one tick, and giving memory back before the end:
//! the price of an index is 12 bytes an id, for the 1,024 neighbours of every id that was
//! ever scheduled, and ids are used again.
//!
//! How: a hierarchical timing wheel. A slot of level 0 is one tick; a slot of level n is all 64
//! slots of the level below. An id is put at the level of the highest digit (base 64) in which its
//! tick differs from the hand, and comes down, at most five times, as the hand gets to its slot.
//! The hand moves only to slots with something in them, which one word a level tells, so an idle
//! month costs no more than an idle millisecond.
//!
//! A million leases must be cheap to remember, so a link stores 32 bits of its tick and no more.
//! They are enough: an id comes down when the hand has reached its slot, and then all digits from
//! that of the slot upwards are the hand's own. The topmost level is used as a ring, so the clock
//! may run for centuries; only the distance to the hand is limited, to 63 turns of level 4 (over
//! two years, `reach`). Rejected: wrapping 32-bit arithmetic, which fails silently when a 30-day
//! lease meets a hand that has rested for three weeks, and 40-bit ticks, a byte more for nothing
//! gained.
//!
//! Rejected as well: a B-tree or a heap, whose O(log n) shows in ACQUIRE at a million locks, and
//! links inside the states, which would make every neighbour a borrow of the store of states.

use crate::index::slab::StateId;

const TICK_US: u64 = 1024;

/// A digit of a tick, and so a level's 64 slots, which one word can mark.
const DIGIT_BITS: u32 = 6;
const DIGITS: u32 = 1 << DIGIT_BITS;
const DIGIT_MASK: u64 = 0x3F;
const LEVELS: u32 = 6;
/// Where the topmost digit starts.
const TOP_SHIFT: u32 = DIGIT_BITS * (LEVELS - 1);
/// What a link stores of a tick.
const LOW_BITS: u64 = 0xFFFF_FFFF;

const CHUNK_BITS: u32 = 10;
const CHUNK: usize = 1 << CHUNK_BITS;

/// A neighbour in a list: an id, or, with the top bit set, the slot that both ends of its list
/// point to. Zero is neither, and marks a link that is in no list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Node(u32);

#[derive(Clone, Copy)]
struct Link {
    /// `Node::NONE` exactly when the id is not scheduled.
    prev: Node,
    next: Node,
    /// The low bits of the tick at which the id is due. Those above are told by the slot: see the
    /// head of this file.
    tick_low: u32,
}

/// A list of ids, by `level * DIGITS + digit`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Slot(u32);

/// The ends of a slot's circular list; the slot itself for an empty one.
#[derive(Clone, Copy)]
struct Ends {
    first: Node,
    last: Node,
}

pub struct Wheel {
    /// No id has a tick below the hand, and the hand is never ahead of the latest time told. What
    /// is due now is in the slot of level 0 under the hand. A slot under the hand on another level
    /// is on its way down; until it is empty the hand stands still, at the first tick of the slot.
    hand: u64,
    /// Bit `s` of word `level` is set exactly when slot `s` of that level has a list.
    occupied: [u64; LEVELS as usize],
    slots: [Ends; (LEVELS * DIGITS) as usize],
    /// By id. A chunk is allocated when the first of its ids is scheduled.
    chunks: Vec<Option<Box<[Link; CHUNK]>>>,
    /// The number of links in a list.
    len: usize,
}

impl Node {
    const NONE: Self = Self(0);
    const SLOT: u32 = 1 << 31;

    const fn of_id(id: StateId) -> Self {
        Self(id.get())
    }

    const fn of_slot(slot: Slot) -> Self {
        Self(Self::SLOT | slot.0)
    }

    const fn slot(self) -> Option<Slot> {
        if self.0 & Self::SLOT == 0 {
            None
        } else {
            Some(Slot(self.0 & !Self::SLOT))
        }
    }

    /// `None` for a slot and for nothing.
    fn id(self) -> Option<StateId> {
        StateId::from_raw(self.0)
    }
}

// An id must never look like a slot.
const _: () = assert!(StateId::MAX < Node::SLOT);
// All digits below the topmost must be in the link.
const _: () = assert!(1 << TOP_SHIFT <= LOW_BITS);

impl Slot {
    /// Where a tick goes on this level.
    const fn on(level: u32, tick: u64) -> Self {
        Self(level * DIGITS + digit_of(tick, level))
    }

    const fn level(self) -> u32 {
        self.0 / DIGITS
    }

    const fn digit(self) -> u32 {
        self.0 % DIGITS
    }

    const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Link {
    const UNLINKED: Self = Self {
        prev: Node::NONE,
        next: Node::NONE,
        tick_low: 0,
    };
}

impl Wheel {
    /// An empty wheel whose time starts here.
    pub fn new(now_us: u64) -> Self {
        Self {
            hand: now_us / TICK_US,
            occupied: [0; LEVELS as usize],
            slots: Self::empty_slots(),
            chunks: Vec::new(),
            len: 0,
        }
    }

    /// Makes the id due at its deadline, instead of any earlier one it had. A deadline that has
    /// passed is due at once, behind what is due already.
    ///
    /// A deadline more than two years after the latest `pop_due` is out of reach: its id comes out
    /// after two years and has to be scheduled again. No lease is longer than 30 days.
    pub fn schedule(&mut self, id: StateId, deadline_us: u64) {
        // Up: the tick is due when its first microsecond has come, and by then the deadline must
        // have passed.
        let tick = deadline_us.div_ceil(TICK_US).clamp(self.hand, self.reach());
        let chunk = id.get() as usize >> CHUNK_BITS;
        if chunk >= self.chunks.len() {
            self.chunks.resize_with(chunk + 1, || None);
        }
        let links = self.chunks[chunk].get_or_insert_with(|| Box::new([Link::UNLINKED; CHUNK]));
        if links[id.get() as usize & (CHUNK - 1)].prev != Node::NONE {
            self.unlink(id);
        }
        self.link(id, tick);
    }

    /// Makes the id never due. Harmless if it was not scheduled.
    pub fn cancel(&mut self, id: StateId) {
        if self.contains(id) {
            self.unlink(id);
        }
    }

    pub fn contains(&self, id: StateId) -> bool {
        self.link_of(id).is_some_and(|link| link.prev != Node::NONE)
    }

    /// Takes out one id whose deadline has passed.
    ///
    /// Each id that is moved, down a level or out, costs one of the budget. `None` with something
    /// left of the budget means that nothing is due; with nothing left, call again with a new one.
    /// Time that stands still is fine, time that goes back finds nothing due until it has caught
    /// up.
    #[must_use]
    pub fn pop_due(&mut self, now_us: u64, budget: &mut u32) -> Option<StateId> {
        let now_tick = now_us / TICK_US;
        if now_tick < self.hand {
            return None;
        }
        while *budget > 0 {
            let Some((tick, slot)) = self.earliest().filter(|(tick, _)| *tick <= now_tick) else {
                // Nothing between here and now: what comes next starts from as near as possible.
                self.hand = now_tick;
                return None;
            };
            debug_assert!(
                self.hand <= tick,
                "the hand goes back from {} to {tick}",
                self.hand
            );
            self.hand = tick;
            *budget -= 1;
            let first = self.slots[slot.index()].first.id();
            let id = first.expect("an occupied slot has a first id");
            let tick_low = self.unlink(id);
            if slot.level() == 0 {
                return Some(id);
            }
            // The hand is in the id's slot, so their higher digits agree.
            self.link(id, self.hand & !LOW_BITS | u64::from(tick_low));
        }
        None
    }

    /// A moment at which to call `pop_due` again, if anything is scheduled: never later than the
    /// first id is due, and exact within the last 64 ticks. From further away the first id has to
    /// come down first, at most five times.
    pub fn next_due_us(&self) -> Option<u64> {
        self.earliest()
            .map(|(tick, _)| tick.saturating_mul(TICK_US))
    }

    /// The number of ids scheduled.
    #[cfg(test)]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// The memory of a wheel that is no longer needed, a chunk of ids a piece.
    pub fn into_chunks(self) -> impl ExactSizeIterator + Send + 'static {
        self.chunks.into_iter()
    }

    fn empty_slots() -> [Ends; (LEVELS * DIGITS) as usize] {
        let none = Ends {
            first: Node::NONE,
            last: Node::NONE,
        };
        let mut slots = [none; (LEVELS * DIGITS) as usize];
        for (slot, ends) in (0..).map(Slot).zip(&mut slots) {
            ends.first = Node::of_slot(slot);
            ends.last = Node::of_slot(slot);
        }
        slots
    }

    /// The last tick that a link can stand for: one turn of the ring ahead of the hand, less the
    /// slot under it.
    const fn reach(&self) -> u64 {
        (((self.hand >> TOP_SHIFT) + DIGITS as u64) << TOP_SHIFT) - 1
    }

    /// The slot for a tick from the hand to `reach`.
    #[inline]
    fn slot_of(&self, tick: u64) -> Slot {
        debug_assert!(
            (self.hand..=self.reach()).contains(&tick),
            "{tick} is out of reach"
        );
        let highest = ((tick ^ self.hand) | 1).ilog2() / DIGIT_BITS;
        // A difference above the topmost digit is a wrap of the ring.
        Slot::on(highest.min(LEVELS - 1), tick)
    }

    /// The first tick of the slot that the hand must turn to next, and the slot. One tick may
    /// start slots of several levels while one of them is on its way down: the lowest level comes
    /// first, so that what is due goes out.
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

    /// Puts an id that is in no list at the end of its slot's.
    fn link(&mut self, id: StateId, tick: u64) {
        let slot = self.slot_of(tick);
        let node = Node::of_id(id);
        let last = std::mem::replace(&mut self.slots[slot.index()].last, node);
        self.set_next(last, node);
        let link = self.link_mut(node);
        debug_assert_eq!(link.prev, Node::NONE, "{id:?} is linked twice");
        *link = Link {
            prev: last,
            next: Node::of_slot(slot),
            tick_low: (tick & LOW_BITS) as u32,
        };
        self.occupied[slot.level() as usize] |= 1 << slot.digit();
        self.len += 1;
    }

    /// Takes an id out of the list it is in, and answers the low bits of its tick.
    fn unlink(&mut self, id: StateId) -> u32 {
        let Link {
            prev,
            next,
            tick_low,
        } = std::mem::replace(self.link_mut(Node::of_id(id)), Link::UNLINKED);
        debug_assert_ne!(prev, Node::NONE, "{id:?} is not linked");
        self.set_next(prev, next);
        self.set_prev(next, prev);
        // Only the slot can be on both sides, and then the id was alone.
        if prev == next
            && let Some(slot) = prev.slot()
        {
            self.occupied[slot.level() as usize] &= !(1 << slot.digit());
        }
        self.len -= 1;
        tick_low
    }

    fn set_next(&mut self, node: Node, next: Node) {
        match node.slot() {
            Some(slot) => self.slots[slot.index()].first = next,
            None => self.link_mut(node).next = next,
        }
    }

    fn set_prev(&mut self, node: Node, prev: Node) {
        match node.slot() {
            Some(slot) => self.slots[slot.index()].last = prev,
            None => self.link_mut(node).prev = prev,
        }
    }

    /// `None` if no id of its chunk was ever scheduled.
    fn link_of(&self, id: StateId) -> Option<&Link> {
        let index = id.get() as usize;
        let links = self.chunks.get(index >> CHUNK_BITS)?.as_ref()?;
        Some(&links[index & (CHUNK - 1)])
    }

    /// The link of an id whose chunk is there: one that is in a list, or about to be.
    #[inline]
    fn link_mut(&mut self, node: Node) -> &mut Link {
        let index = node.0 as usize;
        let links = self.chunks[index >> CHUNK_BITS].as_mut();
        &mut links.expect("a linked id has a chunk")[index & (CHUNK - 1)]
    }

    /// Panics unless every field's comment holds. Walks everything.
    #[cfg(debug_assertions)]
    pub fn check_invariants(&self) {
        let mut listed = 0;
        for (slot, ends) in (0..).map(Slot).zip(&self.slots) {
            let (level, digit) = (slot.level(), slot.digit());
            let has_list = self.occupied[level as usize] >> digit & 1 != 0;
            assert_eq!(ends.first.id().is_some(), has_list, "{slot:?}: occupied");

            let shift = DIGIT_BITS * level;
            let under_hand = digit_of(self.hand, level);
            let ahead = (DIGITS + digit - under_hand) % DIGITS;
            let first_tick = ((self.hand >> shift) + u64::from(ahead)) << shift;
            let is_ahead = level == LEVELS - 1 || digit >= under_hand;
            assert!(!has_list || is_ahead, "{slot:?}: the hand has passed");
            let waited = first_tick >= self.hand;
            assert!(!has_list || waited, "{slot:?}: the hand moved on early");

            let mut prev = Node::of_slot(slot);
            let mut node = ends.first;
            while let Some(id) = node.id() {
                let link = self.link_of(id).expect("a linked id has a chunk");
                assert_eq!(link.prev, prev, "{slot:?}: {id:?}: prev");
                let tick_low = u64::from(link.tick_low);
                let tick = first_tick + (tick_low & ((1 << shift) - 1));
                assert_eq!(tick & LOW_BITS, tick_low, "{slot:?}: {id:?}: tick");
                let in_reach = (self.hand..=self.reach()).contains(&tick);
                assert!(in_reach, "{slot:?}: {id:?}: {tick} out of reach");
                assert!(ahead == 0 || self.slot_of(tick) == slot, "{slot:?}: {tick}");
                listed += 1;
                assert!(listed <= self.len, "{slot:?}: a cycle, or len is short");
                (prev, node) = (node, link.next);
            }
            assert_eq!(node, Node::of_slot(slot), "{slot:?}: end of the list");
            assert_eq!(ends.last, prev, "{slot:?}: last");
        }
        let linked = self.chunks.iter().flatten().flat_map(|links| links.iter());
        let linked = linked.filter(|link| link.prev != Node::NONE).count();
        assert_eq!((self.len, self.len), (listed, linked), "len");
    }
}

/// The digit of a tick that counts on this level.
const fn digit_of(tick: u64, level: u32) -> u32 {
    ((tick >> (DIGIT_BITS * level)) & DIGIT_MASK) as u32
}

#[cfg(test)]
mod tests;
