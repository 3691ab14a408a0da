//! The clock by which leases are counted. It goes on while the machine is suspended, as the server's leases do.
//!
//! Linux has such a clock, `CLOCK_BOOTTIME`. Elsewhere the time since the last look is the greater of what the monotonic
//! and the wall clock say. So a step of the wall clock can end a hold too early here, and never too late.

use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use crate::signal::lock;

/// A moment of this clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Moment(Duration);

impl Moment {
    pub(crate) fn now() -> Moment {
        Moment(since_boot().unwrap_or_else(greater_of_both))
    }

    /// How much time has passed since an earlier moment; zero since a later one.
    pub(crate) fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment so much later, or the last one that there is.
    pub(crate) fn after(self, time: Duration) -> Moment {
        Moment(self.0.saturating_add(time))
    }

    /// The last multiple of this step that is not later.
    pub(crate) fn floor(self, step: Duration) -> Moment {
        let over = self.0.as_nanos() % step.as_nanos().max(1);
        Moment(self.0 - Duration::from_nanos(u64::try_from(over).unwrap_or(0)))
    }

    #[cfg(test)]
    pub(crate) fn before(self, time: Duration) -> Moment {
        Moment(self.0 - time)
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn since_boot() -> Option<Duration> {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)
        .ok()
        .map(Duration::from)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn since_boot() -> Option<Duration> {
    None
}

fn greater_of_both() -> Duration {
    static BOTH: Mutex<Option<Both>> = Mutex::new(None);
    let (monotonic, wall) = (Instant::now(), SystemTime::now());
    let mut both = lock(&BOTH);
    both.get_or_insert_with(|| Both::new(monotonic, wall))
        .advance(monotonic, wall)
}

/// Two clocks, and how far the faster of the two has gone from look to look.
struct Both {
    monotonic: Instant,
    wall: SystemTime,
    total: Duration,
}

impl Both {
    /// Begins an hour after zero, so that there are moments before the first look.
    fn new(monotonic: Instant, wall: SystemTime) -> Both {
        Both {
            monotonic,
            wall,
            total: Duration::from_secs(3600),
        }
    }

    fn advance(&mut self, monotonic: Instant, wall: SystemTime) -> Duration {
        let by_wall = wall.duration_since(self.wall).unwrap_or_default();
        let by_monotonic = monotonic.saturating_duration_since(self.monotonic);
        self.total += by_wall.max(by_monotonic);
        (self.monotonic, self.wall) = (self.monotonic.max(monotonic), wall);
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[cfg(target_os = "linux")]
    #[test]
    fn clock_of_linux_is_the_one_that_goes_on_in_a_suspension() {
        // The first number of this file is the time since the system was started, with all suspensions.
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        let started = Moment(Duration::from_secs_f64(uptime));
        let now = Moment::now();
        assert!(now.since(started) < 60 * SECOND && started.since(now) < SECOND);
    }

    #[test]
    fn suspension_counts_by_the_wall_clock_and_a_step_back_does_not() {
        let (monotonic, wall) = (Instant::now(), SystemTime::now());
        let mut both = Both::new(monotonic, wall);
        let start = both.advance(monotonic, wall);
        // Suspended for a minute: only the wall clock has gone on.
        let woken = both.advance(monotonic + SECOND, wall + 61 * SECOND);
        assert_eq!(woken - start, 61 * SECOND);
        // The wall clock is set back by an hour: the monotonic clock counts.
        let stepped = wall - 3600 * SECOND;
        let later = both.advance(monotonic + 3 * SECOND, stepped);
        assert_eq!(later - woken, 2 * SECOND);
        // The next suspension counts all the same.
        let again = both.advance(monotonic + 4 * SECOND, stepped + 60 * SECOND);
        assert_eq!(again - later, 60 * SECOND);
    }
}
