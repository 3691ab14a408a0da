//! The two clocks. Both are the standard library's, safe and without a call into the server:
//! `Instant` is `CLOCK_MONOTONIC` on Linux, which no wall-clock step moves;
//! `RM_MonotonicMicroseconds` may be the raw TSC, whose drift nobody corrects.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Microseconds since the first call in this process, never going back.
pub(crate) fn monotonic_us() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let elapsed = START.get_or_init(Instant::now).elapsed();
    u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
}

/// Microseconds of the wall clock since 1970; 0 if the clock stands before that.
pub(crate) fn unix_us() -> u64 {
    let elapsed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
}
