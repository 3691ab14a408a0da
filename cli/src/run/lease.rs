//! When the lease of the hold ends, counted through suspensions of the machine.
//!
//! The client library tells the end by [`Instant`], which stands still during a suspension. So this looks several times a
//! second, and when the machine was suspended between two looks, it keeps the end that it knew before until the library
//! tells of a later renewal.

use std::time::{Duration, Instant};

use super::clock::Moment;

/// Differences between the two clocks from here on are suspensions, and ends of leases that differ by less are the same.
const NOTICEABLE: Duration = Duration::from_millis(50);

pub struct Lease {
    /// The last look, by both clocks.
    looked: (Moment, Instant),
    end: Moment,
    /// What the library said when a suspension was noticed. It may be of a request that was sent before.
    outdated: Option<Instant>,
}

impl Lease {
    /// Begins with what the library says of a hold that was just granted.
    pub fn new(told_end: Instant) -> Lease {
        let looked = both_clocks();
        Lease {
            looked,
            end: moment_of(told_end, looked),
            outdated: None,
        }
    }

    /// Returns when the lease is over, unless it is renewed. `told_end` is what the library says now.
    pub fn end(&mut self, told_end: Instant) -> Moment {
        self.end_at(told_end, both_clocks())
    }

    fn end_at(&mut self, told_end: Instant, now: (Moment, Instant)) -> Moment {
        let by_instant = now.1.saturating_duration_since(self.looked.1);
        let suspended = now.0.since(self.looked.0).saturating_sub(by_instant);
        self.looked = now;
        if suspended > NOTICEABLE {
            self.outdated = Some(told_end);
        }
        let is_known = self
            .outdated
            .is_some_and(|outdated| told_end <= outdated + NOTICEABLE);
        if !is_known {
            self.outdated = None;
            self.end = moment_of(told_end, now);
        }
        self.end
    }
}

fn moment_of(told_end: Instant, (now, instant): (Moment, Instant)) -> Moment {
    let left = told_end.saturating_duration_since(instant);
    (now + left).before(instant.saturating_duration_since(told_end))
}

/// Reads both clocks at the same time.
fn both_clocks() -> (Moment, Instant) {
    loop {
        let (moment, instant) = (Moment::now(), Instant::now());
        // This thread may have waited for the processor, or the machine was suspended in between.
        if moment.elapsed() < NOTICEABLE / 2 {
            return (moment, instant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn lease_ends_when_the_library_says_and_moves_with_renewals() {
        let (moment, instant) = both_clocks();
        let mut lease = Lease::new(instant + 60 * SECOND);
        let end = lease.end_at(
            instant + 60 * SECOND,
            (moment + 20 * SECOND, instant + 20 * SECOND),
        );
        assert_eq!(end, moment + 60 * SECOND);
        let end = lease.end_at(
            instant + 80 * SECOND,
            (moment + 21 * SECOND, instant + 21 * SECOND),
        );
        assert_eq!(end, moment + 80 * SECOND);
        // An end that is past.
        let end = lease.end_at(
            instant + 80 * SECOND,
            (moment + 90 * SECOND, instant + 90 * SECOND),
        );
        assert_eq!(end, moment + 80 * SECOND);
    }

    #[test]
    fn suspension_counts_until_a_renewal_after_it() {
        let (moment, instant) = both_clocks();
        let told = instant + 60 * SECOND;
        let mut lease = Lease::new(told);
        lease.end_at(told, (moment + SECOND, instant + SECOND));
        // Suspended for 40 s: the library still counts 58 s.
        let end = lease.end_at(told, (moment + 42 * SECOND, instant + 2 * SECOND));
        assert_eq!(end, moment + 60 * SECOND);
        let end = lease.end_at(told, (moment + 43 * SECOND, instant + 3 * SECOND));
        assert_eq!(end, moment + 60 * SECOND);
        let end = lease.end_at(
            told + 4 * SECOND,
            (moment + 44 * SECOND, instant + 4 * SECOND),
        );
        assert_eq!(end, moment + 104 * SECOND);
    }
}
