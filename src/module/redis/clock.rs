//! The monotonic clock and the wall clock, both from the standard library.
//!
//! `Instant` is `CLOCK_MONOTONIC` on Linux, which does not move when the wall clock is set. The server's
//! `RM_MonotonicMicroseconds` was rejected, because it can be the raw TSC, which nothing keeps at the right speed.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Microseconds since the first call in this process. Never goes back.
pub(crate) fn monotonic_us() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    micros(START.get_or_init(Instant::now).elapsed())
}

/// Microseconds since 1970 by the wall clock; 0 if the clock is before 1970.
pub(crate) fn unix_us() -> u64 {
    let elapsed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    micros(elapsed)
}

/// Without `as_micros`, which computes with 128 bits. A clock would have to show the year 500,000 to exceed 64.
fn micros(elapsed: Duration) -> u64 {
    let whole_seconds = elapsed.as_secs().saturating_mul(1_000_000);
    whole_seconds.saturating_add(elapsed.subsec_micros().into())
}
