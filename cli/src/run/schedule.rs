//! When a command is stopped whose hold is lost: SIGTERM, a grace, SIGKILL, all before the lease is over.
//!
//! A lease is counted from the moment at which the last answered request was sent, so it is over here no later than at
//! the server, and when the next holder begins, the command of this one is dead:
//!
//! ```text
//! renewal sent                              SIGTERM        SIGKILL   end of the lease
//! |------------- lease - grace - reserve ------|--- grace ---|--- reserve ---|
//! ```
//!
//! A lease is renewed at a third. To be told before half of it is over would leave too little time for a second
//! attempt, so grace and reserve take half of the lease at most, and a longer grace is refused.

use std::time::Duration;

use super::clock::Moment;
use crate::duration::short;

const LONGEST_DEFAULT_GRACE: Duration = Duration::from_secs(10);
const LONGEST_RESERVE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// Between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Between SIGKILL and the end of the lease: for the kernel, and for clocks that run at different speeds.
    pub reserve: Duration,
}

impl Schedule {
    /// Plans for a lease. The error says which graces fit.
    pub fn of(lease: Duration, grace: Option<Duration>) -> Result<Schedule, String> {
        let reserve = (lease / 10).min(LONGEST_RESERVE);
        let longest = lease * 2 / 5;
        let grace = grace.unwrap_or_else(|| (lease / 5).min(LONGEST_DEFAULT_GRACE));
        if grace > longest {
            return Err(format!(
                "--grace {} does not fit into --lease {}: it is at most {}, two fifths of the lease, because SIGKILL comes \
                 before the lease is over. Take a longer lease or a shorter grace",
                short(grace),
                short(lease),
                short(longest)
            ));
        }
        Ok(Schedule { grace, reserve })
    }

    /// How long before the end of its lease the hold counts as lost.
    pub fn margin(self) -> Duration {
        self.grace + self.reserve
    }

    /// When to send SIGKILL after SIGTERM was sent. At once if the lease is over: this process may have slept through
    /// it.
    pub fn kill_at(self, terminated: Moment, lease_end: Moment) -> Moment {
        let latest = lease_end.before(self.reserve);
        (terminated + self.grace).min(latest).max(terminated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn default_grace_is_a_fifth_and_at_most_ten_seconds() {
        let cases = [
            (1, 200, 100),
            (10, 2000, 1000),
            (30, 6000, 2000),
            (60, 10_000, 2000),
            (3600, 10_000, 2000),
        ];
        for (lease, grace, reserve) in cases {
            let schedule = Schedule::of(Duration::from_secs(lease), None).unwrap();
            assert_eq!(schedule.grace, Duration::from_millis(grace), "{lease}");
            assert_eq!(schedule.reserve, Duration::from_millis(reserve), "{lease}");
        }
    }

    #[test]
    fn grace_that_leaves_less_than_half_of_the_lease_is_refused() {
        for lease in [1, 7, 30, 86_400] {
            let lease = Duration::from_secs(lease);
            let longest = lease * 2 / 5;
            let schedule = Schedule::of(lease, Some(longest)).unwrap();
            assert!(schedule.margin() <= lease / 2, "{lease:?}");
            let message =
                Schedule::of(lease, Some(longest + Duration::from_millis(1))).unwrap_err();
            assert!(message.contains("at most"), "{message}");
        }
        assert!(Schedule::of(SECOND, Some(Duration::ZERO)).is_ok());
    }

    #[test]
    fn kill_comes_a_grace_after_termination_and_before_the_lease_is_over() {
        let now = Moment::now();
        let schedule = Schedule::of(60 * SECOND, None).unwrap();
        // Told in time: the whole grace.
        assert_eq!(schedule.kill_at(now, now + 12 * SECOND), now + 10 * SECOND);
        // The server says that the hold has ended, long before the lease is over here: the grace, not more.
        assert_eq!(schedule.kill_at(now, now + 50 * SECOND), now + 10 * SECOND);
        // Told late: what is left without the reserve.
        assert_eq!(schedule.kill_at(now, now + 7 * SECOND), now + 5 * SECOND);
        // Told after the end: at once.
        assert_eq!(schedule.kill_at(now, now + SECOND), now);
        assert_eq!(schedule.kill_at(now, now.before(9 * SECOND)), now);
    }
}
