//! The size of a contest, what its workers noted, and the figures that follow: rates, waits, fairness, violations.
//!
//! All moments are microseconds of one monotonic clock of this machine, which all processes share. Nothing here asks a
//! clock or a server.

use std::time::Duration;

use serde::Serialize;

use crate::statistics::{jain, largest, median, percentile};

/// The size of a contest.
pub struct Size {
    pub workers: usize,
    /// None for a lock.
    pub permits: Option<usize>,
    pub inside: Duration,
    pub length: Duration,
}

/// One time that a worker asked for the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    pub worker: usize,
    pub asked_us: u64,
    /// None where the worker still waited when the contest ended.
    pub stay: Option<Stay>,
}

/// From the moment when the worker knew that it had the resource, to the moment before it began to give it back. So
/// two stays that overlap are two workers inside at once, however late replies were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stay {
    pub got_us: u64,
    pub left_us: u64,
}

/// All visits of a contest. Nobody asks after `end_us`; who is inside then leaves later, and is counted.
#[derive(Debug)]
pub struct Visits {
    pub begin_us: u64,
    pub end_us: u64,
    pub all: Vec<Visit>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    pub acquisitions: usize,
    pub per_second: f64,
    pub wait_ms: WaitsMs,
    /// Jain's index of the workers' acquisitions.
    pub jain: f64,
    /// How many workers got in at all.
    pub served: usize,
    /// How often a worker came in while the resource was already full.
    pub violations: usize,
}

/// Waits from asking to getting. A wait that was still going on at the end counts with the time until then: left out,
/// those who never got in would improve the figures.
#[derive(Clone, Debug, Serialize)]
pub struct WaitsMs {
    pub median: f64,
    pub percentile_99: f64,
    pub longest: f64,
    /// Whether the longest wait was still going on at the end.
    pub is_longest_open: bool,
}

impl Visits {
    /// The figures of `workers` workers and a resource that has room for `permits` of them.
    pub fn figures(&self, workers: usize, permits: usize) -> Figures {
        let mut shares = vec![0.0; workers];
        for visit in self.all.iter().filter(|visit| self.is_over(visit)) {
            shares[visit.worker] += 1.0;
        }
        let acquisitions = shares.iter().sum::<f64>() as usize;
        Figures {
            acquisitions,
            per_second: acquisitions as f64 / (self.end_us - self.begin_us) as f64 * 1e6,
            wait_ms: self.waits_ms(),
            jain: jain(&shares),
            served: shares.iter().filter(|&&share| share > 0.0).count(),
            violations: self.violations(permits),
        }
    }

    fn stays(&self) -> impl Iterator<Item = Stay> {
        self.all.iter().filter_map(|visit| visit.stay)
    }

    /// Whether the worker came in before the end.
    fn is_over(&self, visit: &Visit) -> bool {
        visit.stay.is_some_and(|stay| stay.got_us <= self.end_us)
    }

    fn waits_ms(&self) -> WaitsMs {
        let wait_ms = |visit: &Visit| {
            let until = visit.stay.map_or(self.end_us, |stay| stay.got_us);
            until.min(self.end_us).saturating_sub(visit.asked_us) as f64 / 1e3
        };
        let of = |is_over: bool| -> Vec<f64> {
            let visits = self.all.iter();
            visits
                .filter(|visit| self.is_over(visit) == is_over)
                .map(wait_ms)
                .collect()
        };
        let (over, open) = (of(true), of(false));
        let all = [over.as_slice(), &open].concat();
        WaitsMs {
            median: median(&all),
            percentile_99: percentile(&all, 99.0),
            longest: largest(&all),
            is_longest_open: !open.is_empty() && largest(&open) >= largest(&all),
        }
    }

    /// Goes through all comings and goings in their order. At the same moment goings come first, for the clock is too
    /// coarse to call that a violation.
    fn violations(&self, permits: usize) -> usize {
        let mut turns: Vec<(u64, bool)> = self
            .stays()
            // A stay of no length would go before it came.
            .filter(|stay| stay.got_us < stay.left_us)
            .flat_map(|stay| [(stay.got_us, true), (stay.left_us, false)])
            .collect();
        turns.sort_unstable();
        let (mut inside, mut violations) = (0_usize, 0);
        for (_, is_coming) in turns {
            if is_coming {
                violations += usize::from(inside >= permits);
                inside += 1;
            } else {
                inside -= 1;
            }
        }
        violations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(worker: usize, asked_us: u64, got_us: u64, left_us: u64) -> Visit {
        Visit {
            worker,
            asked_us,
            stay: Some(Stay { got_us, left_us }),
        }
    }

    fn open(worker: usize, asked_us: u64) -> Visit {
        Visit {
            worker,
            asked_us,
            stay: None,
        }
    }

    fn visits(all: &[Visit]) -> Visits {
        Visits {
            begin_us: 1_000,
            end_us: 101_000,
            all: all.to_vec(),
        }
    }

    #[test]
    fn violation_is_a_coming_while_the_resource_is_full() {
        let stays = [
            visit(0, 0, 10, 20),
            visit(1, 0, 19, 30),
            visit(2, 0, 29, 40),
        ];
        assert_eq!(visits(&stays).violations(1), 2);
        assert_eq!(visits(&stays).violations(2), 0);
        let three = [stays[0], visit(1, 0, 11, 12), visit(2, 0, 11, 12)];
        assert_eq!(visits(&three).violations(1), 2);
        assert_eq!(visits(&three).violations(2), 1);
        assert_eq!(visits(&three).violations(3), 0);
    }

    #[test]
    fn coming_at_the_moment_of_a_going_is_no_violation() {
        assert_eq!(
            visits(&[visit(1, 0, 20, 30), visit(0, 0, 10, 20)]).violations(1),
            0
        );
    }

    #[test]
    fn worker_that_never_got_in_counts_in_waits_and_shares() {
        let figures = visits(&[
            visit(0, 1_000, 2_000, 3_000),
            visit(0, 3_000, 5_000, 6_000),
            open(1, 1_000),
        ])
        .figures(2, 1);
        assert_eq!(figures.acquisitions, 2);
        assert_eq!(figures.per_second, 20.0);
        assert_eq!(figures.wait_ms.median, 2.0);
        assert_eq!(figures.wait_ms.longest, 100.0);
        assert!(figures.wait_ms.is_longest_open);
        assert_eq!((figures.jain, figures.served), (0.5, 1));
    }

    #[test]
    fn coming_after_the_end_counts_as_a_wait_until_the_end() {
        let figures = visits(&[visit(0, 1_000, 101_001, 102_000)]).figures(1, 1);
        assert_eq!((figures.acquisitions, figures.served), (0, 0));
        assert_eq!(figures.wait_ms.longest, 100.0);
        assert!(figures.wait_ms.is_longest_open);
    }

    #[test]
    fn longest_wait_that_ended_is_not_open() {
        let figures = visits(&[visit(0, 1_000, 91_000, 92_000), open(1, 92_000)]).figures(2, 1);
        assert_eq!(figures.wait_ms.longest, 90.0);
        assert!(!figures.wait_ms.is_longest_open);
    }
}
