//! The lease clock: the time that leases run on.
//!
//! It follows the monotonic clock, but stands still while the server cannot serve:
//! - From one run of the server's cron to the next it advances by at most the cron's period plus 100 ms for work. A
//!   slow script, a stopped process or a frozen machine keeps the cron from running, and must not lapse a hold whose
//!   renewal is waiting in the socket.
//! - The time between two readings does not count if writes were paused or refused at either of them, because then
//!   nobody could renew. The cron reads the clock too. So at most a pause shorter than the cron's period can pass
//!   unseen, and counts like a stall of its length.
//!
//! It starts at zero with the process and has no meaning outside of it. When the server begins to decide, the clock is
//! put past every deadline that was ever set on it, so that the engine can recognise deadlines of an earlier term.
//!
//! Rejected: to count every turn of the event loop by the server's events before and after its sleep. For these the
//! server makes two contexts in each turn, which costs a PING of anybody half as much again.

/// How much of a period of the cron counts in addition to its length.
const SLACK_US: u64 = 100_000;

/// The shortest time of standing still that operators are told of.
const STALL_US: u64 = 100_000;

#[derive(Debug)]
pub(super) struct LeaseClock {
    /// The last reading.
    shown_us: u64,
    /// The monotonic moment of the last reading.
    read_us: u64,
    /// How much of the time until the cron's next run can still count.
    left_us: u64,
    /// The period of the server's cron.
    period_us: u64,
    /// Writes were paused or refused at the last reading.
    held_up: bool,
    /// How long the clock has stood still since the last run of the cron that found it running.
    stood_still_us: u64,
}

impl LeaseClock {
    pub(super) fn new(mono_us: u64, period_us: u64) -> LeaseClock {
        LeaseClock {
            shown_us: 0,
            read_us: mono_us,
            left_us: period_us + SLACK_US,
            period_us,
            held_up: false,
            stood_still_us: 0,
        }
    }

    pub(super) fn set_period(&mut self, period_us: u64) {
        self.period_us = period_us;
    }

    /// Returns the clock's reading at a monotonic moment. `held_up` says that writes are paused or refused then.
    pub(super) fn read(&mut self, mono_us: u64, held_up: bool) -> u64 {
        let was_held_up = std::mem::replace(&mut self.held_up, held_up);
        let passed_us = mono_us.saturating_sub(self.read_us);
        let counts = !held_up && !was_held_up;
        let step = if counts {
            passed_us.min(self.left_us)
        } else {
            0
        };
        self.shown_us += step;
        self.left_us -= step;
        self.stood_still_us += passed_us - step;
        self.read_us = self.read_us.max(mono_us);
        self.shown_us
    }

    /// Called when the server's cron runs: the server serves, so the time until the next run can count. Returns for how
    /// long the clock stood still, if that was long and is over.
    pub(super) fn begin_period(&mut self, mono_us: u64, held_up: bool) -> Option<u64> {
        self.read(mono_us, held_up);
        self.left_us = self.period_us + SLACK_US;
        if held_up {
            return None;
        }
        let stood_still_us = std::mem::take(&mut self.stood_still_us);
        (stood_still_us >= STALL_US).then_some(stood_still_us)
    }

    /// Puts the clock forward if it is not past `moment_us` at the monotonic moment `mono_us`. To be called only while
    /// this server decides nothing, because then no lease runs on the clock.
    pub(super) fn go_past(&mut self, mono_us: u64, moment_us: u64) {
        let shown_us = self.read(mono_us, self.held_up);
        self.shown_us = shown_us.max(moment_us + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000;
    const START: u64 = 5_000 * MS;

    fn clock() -> LeaseClock {
        LeaseClock::new(START, 100 * MS)
    }

    #[test]
    fn lease_clock_follows_monotonic_clock_while_cron_runs_in_time() {
        let mut clock = clock();
        for period in 1..=50 {
            let mono = START + period * 110 * MS;
            assert_eq!(
                clock.read(mono - 60 * MS, false),
                (period * 110 - 60) * MS,
                "between two runs"
            );
            clock.begin_period(mono, false);
            assert_eq!(clock.read(mono, false), period * 110 * MS);
        }
    }

    #[test]
    fn lease_clock_stall_counts_as_a_period_plus_100_ms_at_most() {
        for stall in [0, 199, 200, 201, 60_000] {
            // The clock may be read during the stall, by whatever runs last before the cron.
            for read_at in [0, stall / 2, stall] {
                let mut clock = clock();
                let case = format!("{stall} ms, read after {read_at}");
                let shown = clock.read(START + read_at * MS, false);
                assert_eq!(shown, read_at.min(200) * MS, "{case}");
                clock.begin_period(START + stall * MS, false);
                let shown = clock.read(START + stall * MS, false);
                assert_eq!(shown, stall.min(200) * MS, "{case}");
                let shown = clock.read(START + (stall + 50) * MS, false);
                assert_eq!(shown, (stall.min(200) + 50) * MS, "{case}: it goes on");
            }
        }
    }

    #[test]
    fn lease_clock_stands_still_between_readings_that_see_a_pause() {
        let mut clock = clock();
        assert_eq!(clock.read(START + 3 * MS, false), 3 * MS);
        // The pause began at some moment before this reading.
        assert_eq!(clock.read(START + 60 * MS, true), 3 * MS, "its beginning");
        clock.begin_period(START + 100 * MS, true);
        assert_eq!(clock.read(START + 180 * MS, true), 3 * MS, "during it");
        assert_eq!(clock.read(START + 200 * MS, false), 3 * MS, "its end");
        assert_eq!(clock.read(START + 210 * MS, false), 13 * MS);
    }

    #[test]
    fn lease_clock_reports_a_stall_of_100_ms_beyond_what_counts() {
        for (stall, reported) in [
            (200, None),
            (299, None),
            (300, Some(100)),
            (60_000, Some(59_800)),
        ] {
            let mut clock = clock();
            // Whatever runs before the cron may read the clock.
            clock.read(START + stall * MS / 2, false);
            let stood_still = clock.begin_period(START + stall * MS, false);
            assert_eq!(stood_still, reported.map(|ms: u64| ms * MS), "{stall} ms");
            let next = clock.begin_period(START + (stall + 110) * MS, false);
            assert_eq!(next, None, "{stall} ms: once");
        }
    }

    #[test]
    fn lease_clock_reports_a_pause_as_a_whole_when_it_is_over() {
        let mut clock = clock();
        assert_eq!(clock.begin_period(START + 100 * MS, true), None);
        for period in 2..10 {
            assert_eq!(clock.begin_period(START + period * 100 * MS, true), None);
        }
        let stood_still = clock.begin_period(START + 1_000 * MS, false);
        assert_eq!(stood_still, Some(1_000 * MS));
        assert_eq!(clock.begin_period(START + 1_100 * MS, false), None);
    }

    #[test]
    fn lease_clock_put_forward_runs_on_and_never_goes_back() {
        for (moment, shown) in [(0, 10 * MS), (10 * MS - 1, 10 * MS), (10 * MS, 10 * MS + 1)] {
            let mut clock = clock();
            clock.go_past(START + 10 * MS, moment);
            let read = clock.read(START + 10 * MS, false);
            assert_eq!(read, shown, "past {moment}");
            let read = clock.read(START + 60 * MS, false);
            assert_eq!(read, shown + 50 * MS, "{moment}");
            clock.begin_period(START + 260 * MS, false);
            let read = clock.read(START + 260 * MS, false);
            assert_eq!(read, shown + 190 * MS, "a stall, {moment}");
        }
    }

    #[test]
    fn lease_clock_reading_before_the_last_changes_nothing() {
        let mut clock = clock();
        clock.begin_period(4_000 * MS, false);
        assert_eq!(clock.read(4_500 * MS, false), 0);
        assert_eq!(clock.read(5_001 * MS, false), MS);
    }
}
