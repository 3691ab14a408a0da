//! How the timer shares the server's time with the clients while more is due than one tick can do.
//!
//! Such ticks come in bursts. Between two ticks of a burst the event loop serves every request that has come, but does
//! not sleep. After a burst the timer rests, because a client that waits for each of its replies would otherwise be
//! answered once a tick. So a request waits for one tick at most, and a million leases that end at once leave the
//! clients a quarter of the server's time.
//!
//! Rejected: a rest after each tick. The server's timers count in milliseconds, so a rest is no shorter than one, and
//! either the ticks would be long or the server would sleep most of the time.

use dsync_engine::types::MonoUs;

/// How many ticks a burst has.
const BURST: u32 = 6;

/// How long the timer rests after a burst, in microseconds.
const REST_US: u64 = 1_000;

#[derive(Default)]
pub(super) struct Pace {
    /// How many ticks of the present burst are over: less than `BURST`.
    ticks: u32,
    /// The timer must not fire before this moment.
    rests_until_us: u64,
}

impl Pace {
    /// Notes that a tick is over, and whether it left work behind. Returns whether the next tick follows without a
    /// sleep of the event loop.
    pub(super) fn tick_is_over(&mut self, now: MonoUs, has_more: bool) -> bool {
        self.ticks += 1;
        if has_more && self.ticks < BURST {
            return true;
        }
        self.ticks = 0;
        if has_more {
            self.rests_until_us = now.0.saturating_add(REST_US);
        }
        false
    }

    /// How many microseconds the timer has still to rest.
    pub(super) fn rest_us(&self, now: MonoUs) -> u64 {
        self.rests_until_us.saturating_sub(now.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timer_rests_after_each_burst_of_a_wave() {
        let mut pace = Pace::default();
        for burst in 0..3 {
            let start_us = burst * 10_000;
            for tick in 1..BURST {
                let now = MonoUs(start_us + u64::from(tick));
                assert_eq!(pace.rest_us(now), 0, "burst {burst}, tick {tick}");
                assert!(pace.tick_is_over(now, true), "burst {burst}, tick {tick}");
            }
            let last = MonoUs(start_us + 5_000);
            assert!(!pace.tick_is_over(last, true), "burst {burst}");
            for (later_us, left_us) in [(0, 1_000), (999, 1), (1_000, 0), (2_000, 0)] {
                let now = MonoUs(last.0 + later_us);
                assert_eq!(pace.rest_us(now), left_us, "burst {burst}, {later_us}");
            }
        }
    }

    #[test]
    fn timer_without_work_left_does_not_rest() {
        let mut pace = Pace::default();
        let now = MonoUs(7);
        for ticks_before in 0..BURST {
            for _ in 0..ticks_before {
                pace.tick_is_over(now, true);
            }
            assert!(!pace.tick_is_over(now, false), "{ticks_before}");
            assert_eq!(pace.rest_us(now), 0, "{ticks_before}");
            assert_eq!(pace.ticks, 0, "the next burst is a whole one");
        }
    }
}
