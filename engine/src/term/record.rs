//! What a file says of the fences of the server that wrote it.
//!
//! A file has two numbers of ours: in front of the keys the last fence, and behind them the packed record, which is
//! below the last fence. dsync 0.2.0 to 0.4.0 read both as fences that they must go past, so the second one changes
//! nothing for them. Rejected: a field behind the first number, which those versions refuse.
//!
//! | bits of the packed record | |
//! |---|---|
//! | 18 to 49 | how far the last fence was ahead of the wall clock, in units of 8,192 µs |
//! | 17 | 1 if the writer was a primary |
//! | 16 | 1 if fences were used: without, the last fence is only a leap that nobody has seen |
//! | 0 to 15 | the identity of the writer |
//!
//! Where the last fence was behind the clock, the record says that it was not ahead: the clock alone decides then.

use crate::types::{Fence, Now};

const IDENTITY_BITS: u32 = 16;
const USED: u64 = 1 << IDENTITY_BITS;
const AS_PRIMARY: u64 = 1 << (IDENTITY_BITS + 1);
const AHEAD_SHIFT: u32 = IDENTITY_BITS + 2;
const UNIT_US: u64 = 8_192;
/// More than a year, see [`super::fences::AHEAD_US`].
const MOST_UNITS: u64 = (1 << 32) - 1;

/// Which server this is, as a hash of 16 bits: the same over all its starts. Two servers have the same one by chance
/// in one case of 65,536.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Identity(u32);

impl Identity {
    /// Takes the 16 bits from a hash of 32.
    pub fn from_hash(hash: u32) -> Identity {
        Identity(hash >> (u32::BITS - IDENTITY_BITS))
    }
}

/// The last fence of a server at a moment, with who that was and as what.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Record {
    pub last: Fence,
    /// The wall clock when `last` was the last fence, to a few milliseconds; never later than `last`.
    pub written_us: u64,
    pub by: Identity,
    /// Whether the server decided when it wrote the file.
    pub as_primary: bool,
    /// Whether a fence was given or heard of. If not, `last` is only a leap.
    pub is_used: bool,
}

impl Record {
    pub fn new(last: Fence, now: Now, by: Identity, as_primary: bool) -> Record {
        let ahead_us = last.0.saturating_sub(now.unix_us);
        let units = (ahead_us.saturating_add(UNIT_US / 2) / UNIT_US).min(MOST_UNITS);
        Record {
            last,
            written_us: last.0.saturating_sub(units * UNIT_US),
            by,
            as_primary,
            is_used: true,
        }
    }

    /// Returns the number to write behind the keys. It is the last fence, and says nothing, if that is not above the
    /// packed record: the fence is then little more than half of the clock, so one of the two is wrong.
    pub fn pack(&self) -> Fence {
        let role = if self.as_primary { AS_PRIMARY } else { 0 };
        let used = if self.is_used { USED } else { 0 };
        let units = (self.last.0 - self.written_us) / UNIT_US;
        let packed = Fence(units << AHEAD_SHIFT | role | used | u64::from(self.by.0));
        packed.min(self.last)
    }

    /// Reads the number behind the keys of a file with this last fence. Returns `None` if the number says nothing.
    pub fn unpack(packed: Fence, last: Fence) -> Option<Record> {
        (packed < last).then(|| Record {
            last,
            written_us: last
                .0
                .saturating_sub((packed.0 >> AHEAD_SHIFT).min(MOST_UNITS) * UNIT_US),
            by: Identity((packed.0 & (USED - 1)) as u32),
            as_primary: packed.0 & AS_PRIMARY != 0,
            is_used: packed.0 & USED != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{LeaseUs, MonoUs};

    fn at(unix_us: u64) -> Now {
        Now {
            lease: LeaseUs(0),
            mono: MonoUs(0),
            unix_us,
            may_write: true,
        }
    }

    #[test]
    fn record_comes_back_from_one_number_below_the_last_fence() {
        let last = Fence(1_795_361_039_841_625);
        for ahead_us in [0, 1, 3 * 3_600_000_000, 366 * 86_400_000_000] {
            for hash in [0, 1 << 16, u32::MAX] {
                for (as_primary, is_used) in [(false, true), (true, true), (true, false)] {
                    let by = Identity::from_hash(hash);
                    let unix_us = last.0 - ahead_us;
                    let record = Record {
                        is_used,
                        ..Record::new(last, at(unix_us), by, as_primary)
                    };
                    let packed = record.pack();
                    assert!(packed < last, "{record:?}");
                    assert!(record.written_us.abs_diff(unix_us) <= UNIT_US / 2);
                    assert_eq!(Record::unpack(packed, last), Some(record));
                }
            }
        }
    }

    #[test]
    fn fence_that_no_clock_gives_leaves_little_to_read() {
        let clock = at(1_795_361_039_000_000);
        let low = Record::new(Fence(7), clock, Identity(9), true);
        assert_eq!(low.pack(), Fence(7));
        assert_eq!(Record::unpack(low.pack(), Fence(7)), None);
        let none = Record::new(Fence(0), clock, Identity(1), true);
        assert_eq!(Record::unpack(none.pack(), none.last), None);
        // Behind the clock, and so far ahead of it that the distance has no room.
        let behind = Record::new(Fence(clock.unix_us - 1), clock, Identity(1), true);
        assert_eq!(behind.written_us, behind.last.0);
        let ahead = Record::new(Fence::MAX, clock, Identity(1), true);
        assert_eq!(Record::unpack(ahead.pack(), ahead.last), Some(ahead));
        const { assert!(crate::term::fences::AHEAD_US < MOST_UNITS * UNIT_US) };
    }
}
