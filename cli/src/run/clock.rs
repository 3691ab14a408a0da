//! Moments by a clock that also runs while the machine is suspended, as the server's does.
//!
//! [`Instant`] stands still meanwhile, so a lease that is counted by it alone ends too late. Waits end by that
//! clock too: one that must not come late after a suspension is made in slices.

use std::ops::Add;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

// Elsewhere CLOCK_MONOTONIC is the best there is; on macOS it counts a suspension.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

/// A time since the machine was started.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Moment(Duration);

impl Moment {
    pub fn now() -> Moment {
        // Both clocks exist wherever this compiles.
        Moment(clock_gettime(CLOCK).map_or(Duration::ZERO, Duration::from))
    }

    /// Returns the moment that an instant of this look is.
    pub fn of(instant: Instant) -> Moment {
        let (now, by_instant) = (Moment::now(), Instant::now());
        (now + instant.saturating_duration_since(by_instant))
            .before(by_instant.saturating_duration_since(instant))
    }

    /// Returns how long ago this was, zero if it is to come.
    pub fn elapsed(self) -> Duration {
        Moment::now().since(self)
    }

    /// Returns how long it is until this moment, zero if it is past.
    pub fn left(self) -> Duration {
        self.since(Moment::now())
    }

    pub fn is_past(self) -> bool {
        self <= Moment::now()
    }

    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    pub fn before(self, time: Duration) -> Moment {
        Moment(self.0.saturating_sub(time))
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, time: Duration) -> Moment {
        Moment(self.0.saturating_add(time))
    }
}
