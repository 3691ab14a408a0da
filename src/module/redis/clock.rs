//! The monotonic clock and the wall clock, both from the system.
//!
//! `CLOCK_MONOTONIC` does not move when the wall clock is set. The server's `RM_MonotonicMicroseconds` was rejected,
//! because it can be the raw TSC, which nothing keeps at the right speed; so were `Instant` and `SystemTime`, which take
//! 120 instructions more for the two clocks of each request, because they compute with seconds and nanoseconds.

use std::sync::OnceLock;

/// Microseconds since the first call in this process. Never goes back.
pub(crate) fn monotonic_us() -> u64 {
    static START: OnceLock<u64> = OnceLock::new();
    let now_us = read(libc::CLOCK_MONOTONIC);
    // Another thread may have made the first call after this one read the clock.
    now_us.saturating_sub(*START.get_or_init(|| now_us))
}

/// Microseconds since 1970 by the wall clock; 0 if the clock is before 1970.
pub(crate) fn unix_us() -> u64 {
    read(libc::CLOCK_REALTIME)
}

/// Whole microseconds; 0 if the clock shows less.
fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: clock_gettime writes one timespec through the pointer, and keeps nothing. Every system that has the
    // server's programs has both clocks, so it does not fail; if it did, the time would stay 0.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    // No clock shows so many seconds that this is more than 64 bits have.
    let seconds = time.tv_sec.max(0).cast_unsigned();
    seconds.wrapping_mul(1_000_000) + time.tv_nsec.cast_unsigned() / 1_000
}
