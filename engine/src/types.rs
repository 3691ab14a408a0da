//! The engine's vocabulary. Numbers that could be confused have a newtype each.
//!
//! There are three clocks, and their moments have three types. Leases run on the *lease clock* ([`LeaseUs`]), which
//! stands still while the server cannot serve. Waits run on the plain monotonic clock ([`MonoUs`]). Moments that are
//! saved or replicated are on the wall clock ([`UnixMs`]). A call gets all three in a [`Now`]; the engine itself never
//! asks for the time.

mod token;

use std::num::NonZeroU64;

pub use token::{Token, TokenBuffer, TokenView, new_token_buffer};

/// A database number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Db(pub i32);

/// A connection, by the number that the server gave it. Zero means that this server knows no connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct ClientId(pub u64);

impl ClientId {
    /// For holds that came from a file or from the primary.
    pub const NONE: ClientId = ClientId(0);
}

/// One queued request. A retry that takes over a place gets a new number, so that the old and the new request cannot be
/// confused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WaiterId(pub NonZeroU64);

/// The queue of one name. A server that follows another has queues of kept places only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct QueueId(pub(super) u64);

/// The public number of a hold or of a kept place: strictly increasing over all keys of a server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Fence(pub u64);

impl Fence {
    /// 2^53 - 1, so that fences are exact also in client languages whose numbers are doubles.
    pub const MAX: Fence = Fence((1 << 53) - 1);

    /// Returns the fence read as a wall-clock moment. Fences are normally the clock in microseconds, so this is near
    /// the moment of the grant.
    pub fn unix(self) -> UnixMs {
        UnixMs(self.0 / 1_000)
    }
}

/// The number that a place in a queue drew, like a fence, when it was first taken: the lowest is served first. So ranks
/// are comparable between servers, and a kept place is known by its rank.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rank(pub Fence);

/// A moment on the lease clock, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct LeaseUs(pub u64);

impl LeaseUs {
    /// Returns the moment this many milliseconds later, or the end of the clock if that is earlier.
    pub fn after_ms(self, ms: u64) -> LeaseUs {
        LeaseUs(self.0.saturating_add(ms.saturating_mul(1_000)))
    }

    /// Returns the whole milliseconds since an earlier moment; `None` if that is still to come.
    pub fn ms_since(self, earlier: LeaseUs) -> Option<u64> {
        Some(self.0.checked_sub(earlier.0)? / 1_000)
    }

    /// Returns the milliseconds from `now` to this moment, rounded up; zero once it has come.
    pub fn ms_left(self, now: LeaseUs) -> u64 {
        self.0.saturating_sub(now.0).div_ceil(1_000)
    }
}

/// A moment on the monotonic clock, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct MonoUs(pub u64);

impl MonoUs {
    /// A moment that never comes.
    pub const NEVER: MonoUs = MonoUs(u64::MAX);

    /// Returns the moment this many milliseconds later, or the end of the clock if that is earlier.
    pub fn after_ms(self, ms: u64) -> MonoUs {
        MonoUs(self.0.saturating_add(ms.saturating_mul(1_000)))
    }

    /// Returns the whole milliseconds since an earlier moment.
    pub fn ms_since(self, earlier: MonoUs) -> u64 {
        self.0.saturating_sub(earlier.0) / 1_000
    }
}

/// A wall-clock moment, in milliseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct UnixMs(pub u64);

impl UnixMs {
    /// The last moment that can be written: 48 bits, which last until the year 10889.
    pub const MAX: UnixMs = UnixMs((1 << 48) - 1);

    /// A moment that never comes.
    pub const NEVER: UnixMs = UnixMs::MAX;

    /// Returns the moment this many milliseconds later, at most [`UnixMs::MAX`].
    pub fn after_ms(self, ms: u64) -> UnixMs {
        UnixMs(self.0.saturating_add(ms).min(UnixMs::MAX.0))
    }

    /// Returns the milliseconds from `now` to this moment; zero once it has come.
    pub fn ms_left(self, now: UnixMs) -> u64 {
        self.0.saturating_sub(now.0)
    }

    /// Whether this moment has come. [`UnixMs::NEVER`] has not, whatever the clock says.
    pub fn has_come(self, now: UnixMs) -> bool {
        self <= now && self != UnixMs::NEVER
    }
}

/// The moments of a hold on the lease clock of one server.
#[derive(Clone, Copy, Default)]
pub struct Moments {
    /// When the lease runs out.
    pub due: LeaseUs,
    /// Until when the place stays taken after an early end, with MINHOLD. 0 without one, or if that moment stays.
    pub rests_until: LeaseUs,
}

/// How long a hold lasts unless renewed, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LeaseMs(pub u32);

impl LeaseMs {
    /// The longest lease that any setting can allow: thirty days.
    pub const MAX: LeaseMs = LeaseMs(2_592_000_000);
}

/// The time of one call, on every clock.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    pub lease: LeaseUs,
    pub mono: MonoUs,
    /// The wall clock in microseconds since 1970. Fences are made from it.
    pub unix_us: u64,
    /// Whether the server takes writes now. While it does not, no hold begins or ends, and waiters can only leave the
    /// queue.
    pub may_write: bool,
}

impl Now {
    pub fn unix(&self) -> UnixMs {
        UnixMs((self.unix_us / 1_000).min(UnixMs::MAX.0))
    }
}

/// The four kinds of keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Family {
    Lock = 0,
    Semaphore = 1,
    Group = 2,
    Once = 3,
}

impl Family {
    /// In the order of their numbers.
    pub const ALL: [Family; 4] = [Family::Lock, Family::Semaphore, Family::Group, Family::Once];

    /// The number of the family in packed strings and among the server's types.
    pub const fn number(self) -> u8 {
        self as u8
    }

    pub fn of_number(number: u8) -> Option<Family> {
        Family::ALL.get(usize::from(number)).copied()
    }

    /// Whether a hold may have a MINHOLD, and rest.
    pub(crate) fn has_rests(self) -> bool {
        matches!(self, Family::Lock | Family::Semaphore)
    }
}

/// What a request asks for, and what its hold then has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// A lock, with no other hold beside it.
    Exclusive,
    /// A lock, beside any number of other shared holds.
    Shared,
    /// This many of a semaphore's permits.
    Permits(u32),
    /// One of a semaphore's permits, with an index: the lowest number that no other hold of the semaphore has.
    Indexed,
    /// One membership of a wait group.
    Member,
    /// A run of work that is done once.
    Run,
}

impl Claim {
    /// The family whose keys grant such claims.
    pub fn family(self) -> Family {
        match self {
            Claim::Exclusive | Claim::Shared => Family::Lock,
            Claim::Permits(_) | Claim::Indexed => Family::Semaphore,
            Claim::Member => Family::Group,
            Claim::Run => Family::Once,
        }
    }

    /// How much of a limit the claim takes.
    pub fn permits(self) -> u32 {
        match self {
            Claim::Permits(n) => n,
            _ => 1,
        }
    }
}

/// When a lane came, was last granted, or last had a hold end: the lowest is the oldest. A number of this server alone;
/// 0 if this server does not know.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Turn(pub u64);

/// How many permits the holds of a lane take, and its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InUse {
    pub permits: u64,
    pub turn: Turn,
}

/// The largest limit, number of permits and number of expected jobs.
pub const MAX_PERMITS: u32 = 1_000_000;
/// How long a request may keep its place without a connection, in milliseconds.
pub const MIN_QUEUE_MS: u64 = 1_000;
/// See [`MIN_QUEUE_MS`].
pub const MAX_QUEUE_MS: u64 = 60_000;
/// The longest time for which a result is kept that does not stay until it is removed, in milliseconds: ten years.
pub const MAX_KEEP_MS: u64 = 315_360_000_000;
/// The longest result and reason that any setting can allow, in bytes.
pub const MAX_RESULT_LEN: usize = 16 << 20;
/// The longest owner text, in bytes.
pub const MAX_OWNER_LEN: usize = 128;
/// The longest name of a lane, in bytes.
pub const MAX_LANE_LEN: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    /// Every file and every replica must agree on them.
    #[test]
    fn last_fence_and_last_moment_are_those_that_can_be_written() {
        assert_eq!(Fence::MAX, Fence(9_007_199_254_740_991));
        assert_eq!(UnixMs::MAX, UnixMs(281_474_976_710_655));
    }

    #[test]
    fn lease_ms_left_is_rounded_up() {
        for (now, left) in [
            (0, 2),
            (1, 2),
            (999, 2),
            (1_000, 1),
            (1_999, 1),
            (2_000, 0),
            (9_999, 0),
        ] {
            assert_eq!(LeaseUs(2_000).ms_left(LeaseUs(now)), left, "at {now}");
        }
    }
}
