//! The lease clock: the time that leases run on.
//!
//! It follows the monotonic clock, except that it stands still while the server cannot serve. In one
//! turn of the event loop it advances by at most the sleep that the server asks for and a tenth of a
//! second for work, whatever the turn took: a slow script, a stopped process or a frozen machine must
//! not lapse a hold whose renewal was waiting in the socket. It does not advance at all while writes are
//! paused or refused, for then nobody could renew.
//!
//! It starts at zero with the process, and means nothing outside of it. When the server begins to decide it is
//! put past every moment that was ever a deadline on it, so that those of an earlier term can be told.

/// What a turn may take beyond the sleep it was asked for.
const SLACK_US: u64 = 100_000;

#[derive(Debug)]
pub(super) struct LeaseClock {
    /// What the clock showed at `anchor_us`.
    shown_us: u64,
    /// The monotonic moment that was last accounted for.
    anchor_us: u64,
    /// How much of this turn may still count.
    left_us: u64,
    /// The longest sleep that the server asks for: the period of its cron.
    sleep_us: u64,
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

    /// What it shows at a monotonic moment. Reading it moves nothing.
    pub(super) fn now_us(&self, mono_us: u64) -> u64 {
        self.shown_us + self.counts(mono_us)
    }

    /// Puts the clock forward, if it must be, so that at this monotonic moment it is past what it is given here.
    /// Only while this server decides nothing: then no lease runs by it.
    pub(super) fn go_past(&mut self, mono_us: u64, moment_us: u64) {
        let behind_us = (moment_us + 1).saturating_sub(self.now_us(mono_us));
        self.shown_us += behind_us;
    }

    fn counts(&self, mono_us: u64) -> u64 {
        if self.stands_still {
            return 0;
        }
        mono_us.saturating_sub(self.anchor_us).min(self.left_us)
    }

    /// The work of a turn is done and the server goes to sleep.
    pub(super) fn before_sleep(&mut self, mono_us: u64, stands_still: bool) {
        let step = self.counts(mono_us);
        self.shown_us += step;
        self.left_us -= step;
        self.anchor_us = self.anchor_us.max(mono_us);
        self.stands_still = stands_still;
    }

    /// The server has woken up: a new turn.
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
    fn in_ordinary_turns_it_follows_the_monotonic_clock() {
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
    fn a_stall_counts_for_at_most_the_sleep_and_a_tenth_of_a_second() {
        for stall in [0, 199, 200, 201, 60_000] {
            // In the work of a turn, in its sleep, or in both.
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
    fn while_writes_are_paused_it_stands_still_and_never_goes_back() {
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
    fn put_forward_it_goes_on_from_there_and_is_never_put_back() {
        let mono = 5_000 * MS;
        for (moment, shown) in [(0, 10 * MS), (10 * MS - 1, 10 * MS), (10 * MS, 10 * MS + 1)] {
            let mut clock = clock();
            clock.before_sleep(mono + 3 * MS, false);
            clock.go_past(mono + 10 * MS, moment);
            assert_eq!(clock.now_us(mono + 10 * MS), shown, "past {moment}");
            assert_eq!(clock.now_us(mono + 60 * MS), shown + 50 * MS, "{moment}");
            clock.after_sleep(mono + 260 * MS, false);
            let most = shown + 190 * MS;
            assert_eq!(clock.now_us(mono + 260 * MS), most, "a stall, {moment}");
        }
    }

    #[test]
    fn a_reading_from_before_the_anchor_moves_nothing() {
        let mut clock = clock();
        clock.after_sleep(4_000 * MS, false);
        assert_eq!(clock.now_us(4_500 * MS), 0);
        assert_eq!(clock.now_us(5_001 * MS), MS);
    }
}
