//! The lease clock: the time that leases run on.
//!
//! It follows the monotonic clock, but stands still while the server cannot serve. In one turn of the event loop it
//! advances by at most the sleep that the server asked for plus 100 ms for work, however long the turn took: a slow
//! script, a stopped process or a frozen machine must not lapse a hold whose renewal is waiting in the socket. It does
//! not advance at all while writes are paused or refused, because then nobody can renew.
//!
//! It starts at zero with the process and has no meaning outside of it. When the server begins to decide, the clock is
//! put past every deadline that was ever set on it, so that the engine can recognise deadlines of an earlier term.

/// How much of a turn counts in addition to the sleep that the server asked for.
const SLACK_US: u64 = 100_000;

#[derive(Debug)]
pub(super) struct LeaseClock {
    /// The clock's reading at `anchor_us`.
    shown_us: u64,
    /// The monotonic moment up to which time has been counted.
    anchor_us: u64,
    /// How much of the rest of this turn can still count.
    left_us: u64,
    /// The longest sleep that the server asks for: the period of its cron.
    sleep_us: u64,
    /// Writes are paused or refused.
    stands_still: bool,
}

impl LeaseClock {
    pub(super) fn new(mono_us: u64, sleep_us: u64) -> LeaseClock {
        LeaseClock {
            shown_us: 0,
            anchor_us: mono_us,
            left_us: sleep_us + SLACK_US,
            sleep_us,
            stands_still: false,
        }
    }

    pub(super) fn set_sleep(&mut self, sleep_us: u64) {
        self.sleep_us = sleep_us;
    }

    /// The clock's reading at a monotonic moment.
    pub(super) fn now_us(&self, mono_us: u64) -> u64 {
        self.shown_us + self.counts(mono_us)
    }

    /// Puts the clock forward if it is not past `moment_us` at the monotonic moment `mono_us`. To be called only while
    /// this server decides nothing, because then no lease runs on the clock.
    pub(super) fn go_past(&mut self, mono_us: u64, moment_us: u64) {
        let behind_us = (moment_us + 1).saturating_sub(self.now_us(mono_us));
        self.shown_us += behind_us;
    }

    /// How much of the time since `anchor_us` counts.
    fn counts(&self, mono_us: u64) -> u64 {
        if self.stands_still {
            return 0;
        }
        mono_us.saturating_sub(self.anchor_us).min(self.left_us)
    }

    /// Counts the work of a turn. Called when the server goes to sleep.
    pub(super) fn before_sleep(&mut self, mono_us: u64, stands_still: bool) {
        let step = self.counts(mono_us);
        self.shown_us += step;
        self.left_us -= step;
        self.anchor_us = self.anchor_us.max(mono_us);
        self.stands_still = stands_still;
    }

    /// Counts the sleep and begins a new turn. Called when the server has woken up.
    pub(super) fn after_sleep(&mut self, mono_us: u64, stands_still: bool) {
        self.before_sleep(mono_us, stands_still);
        self.left_us = self.sleep_us + SLACK_US;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000;

    fn clock() -> LeaseClock {
        LeaseClock::new(5_000 * MS, 100 * MS)
    }

    #[test]
    fn lease_clock_follows_monotonic_clock_in_ordinary_turns() {
        let mut clock = clock();
        let mut mono = 5_000 * MS;
        for turn in 1..=50 {
            clock.before_sleep(mono + 10 * MS, false);
            mono += 110 * MS;
            clock.after_sleep(mono, false);
            assert_eq!(clock.now_us(mono), turn * 110 * MS);
        }
    }

    #[test]
    fn lease_clock_stall_counts_as_sleep_plus_100_ms_at_most() {
        for stall in [0, 199, 200, 201, 60_000] {
            // The stall is in the work of a turn, in its sleep, or in both.
            for in_work in [0, stall / 2, stall] {
                let mut clock = clock();
                let mono = 5_000 * MS;
                assert_eq!(
                    clock.now_us(mono + stall * MS),
                    stall.min(200) * MS,
                    "{stall}"
                );
                clock.before_sleep(mono + in_work * MS, false);
                clock.after_sleep(mono + stall * MS, false);
                assert_eq!(
                    clock.now_us(mono + stall * MS),
                    stall.min(200) * MS,
                    "{stall} {in_work}"
                );
                let next = mono + (stall + 50) * MS;
                assert_eq!(
                    clock.now_us(next),
                    (stall.min(200) + 50) * MS,
                    "and goes on"
                );
            }
        }
    }

    #[test]
    fn lease_clock_stands_still_while_writes_are_paused() {
        let mut clock = clock();
        let mono = 5_000 * MS;
        clock.before_sleep(mono + 3 * MS, true);
        clock.after_sleep(mono + 103 * MS, true);
        clock.before_sleep(mono + 150 * MS, true);
        assert_eq!(clock.now_us(mono + 200 * MS), 3 * MS);
        clock.after_sleep(mono + 250 * MS, false);
        assert_eq!(clock.now_us(mono + 250 * MS), 3 * MS);
        assert_eq!(clock.now_us(mono + 260 * MS), 13 * MS);
    }

    #[test]
    fn lease_clock_put_forward_runs_on_and_never_goes_back() {
        let mono = 5_000 * MS;
        for (moment, shown) in [(0, 10 * MS), (10 * MS - 1, 10 * MS), (10 * MS, 10 * MS + 1)] {
            let mut clock = clock();
            clock.before_sleep(mono + 3 * MS, false);
            clock.go_past(mono + 10 * MS, moment);
            assert_eq!(clock.now_us(mono + 10 * MS), shown, "past {moment}");
            assert_eq!(clock.now_us(mono + 60 * MS), shown + 50 * MS, "{moment}");
            clock.after_sleep(mono + 260 * MS, false);
            let max_shown = shown + 190 * MS;
            assert_eq!(
                clock.now_us(mono + 260 * MS),
                max_shown,
                "a stall, {moment}"
            );
        }
    }

    #[test]
    fn lease_clock_reading_before_the_anchor_changes_nothing() {
        let mut clock = clock();
        clock.after_sleep(4_000 * MS, false);
        assert_eq!(clock.now_us(4_500 * MS), 0);
        assert_eq!(clock.now_us(5_001 * MS), MS);
    }
}
