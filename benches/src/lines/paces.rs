//! A rate whose callers wait: ten calls in any half second, twenty workers that all want to call, beside Redisson's
//! RRateLimiter.
//!
//! Calls are counted by the workers' clock, when they know that they may call. So the span that is looked at is a little
//! shorter than the one that is granted, and a call counts as overtaken only by 25 ms or more: replies of the same moment
//! reach their workers in any order.

use std::time::Duration;

use crate::bench::Bench;
use crate::invalid::Result;
use crate::peers::contest::of_port;
use crate::peers::ports::{SPAN_MS, dsync, redisson_rate};
use crate::peers::visits::{Size, Visit, Visits};
use crate::row::{Row, Samples};
use crate::server::Setting;

const LIMIT: usize = 10;
const MARGIN_US: u64 = 25_000;

/// The most calls in any span, the share of calls that overtook another in percent, the longest wait in milliseconds, calls
/// a second, commands for each.
type Figures = [f64; 5];

pub fn run(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let size = Size {
        workers: bench.size(20, 12),
        permits: Some(LIMIT),
        inside: Duration::from_millis(1),
        length: Duration::from_millis(bench.size(5_000, 1_200)),
    };
    let mut samples: [Samples; 5] = Default::default();
    for pair in 0..bench.pairs() {
        let (ours, theirs) = bench.in_turn(pair, Setting::Plain, |mut side, is_ours| {
            let make = if is_ours {
                dsync::paced
            } else {
                redisson_rate::make
            };
            let (visits, commands) = of_port(make, &mut side, &size)?;
            Ok(figures(&visits, commands, &size))
        })?;
        for (at, samples) in samples.iter_mut().enumerate() {
            samples.push(ours[at], theirs[at]);
        }
    }
    let span_ms = SPAN_MS - MARGIN_US / 1_000;
    let [calls, overtook, longest, rate, commands] = samples;
    let limit = LIMIT as f64;
    let row = |what: &str, unit, samples| {
        Row::new(
            "paces",
            format!("{what}, MINHOLD / RRateLimiter"),
            unit,
            samples,
        )
    };
    let what = format!("most calls in any {span_ms} ms, of {LIMIT} in {SPAN_MS} ms");
    rows.push(row(&what, "", calls).at_most(limit));
    rows.push(row("calls that overtook another", "%", overtook).at_most(0.0));
    rows.push(row("longest wait", "ms", longest));
    let most = limit * 1e3 / SPAN_MS as f64;
    rows.push(row("calls", "/s", rate).at_least(0.99 * most));
    rows.push(row("commands a call", "", commands));
    Ok(())
}

fn figures(visits: &Visits, commands: f64, size: &Size) -> Figures {
    let figures = visits.figures(size.workers, LIMIT);
    [
        most_in_any(visits, SPAN_MS * 1_000 - MARGIN_US) as f64,
        100.0 * overtaking(visits) as f64 / figures.acquisitions as f64,
        figures.wait_ms.longest,
        figures.per_second,
        commands / figures.acquisitions as f64,
    ]
}

fn got(visit: &Visit) -> Option<u64> {
    visit.stay.map(|stay| stay.got_us)
}

/// Returns how many calls the busiest span of this length has.
fn most_in_any(visits: &Visits, span_us: u64) -> usize {
    let mut calls: Vec<u64> = visits.all.iter().filter_map(got).collect();
    calls.sort_unstable();
    let until = |from: u64| calls.partition_point(|call| *call < from + span_us);
    let counts = calls.iter().enumerate().map(|(at, from)| until(*from) - at);
    counts.max().unwrap_or(0)
}

/// Returns how many calls were let in while another, which had asked clearly before, still waited.
fn overtaking(visits: &Visits) -> usize {
    let overtook = |visit: &&Visit| {
        got(visit).is_some_and(|at| {
            visits.all.iter().any(|other| {
                other.asked_us + MARGIN_US <= visit.asked_us
                    && got(other).is_none_or(|got| at + MARGIN_US <= got)
            })
        })
    };
    visits.all.iter().filter(overtook).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::visits::Stay;

    fn visits(times_ms: &[(u64, Option<u64>)]) -> Visits {
        let visit = |&(asked, got): &(u64, Option<u64>)| Visit {
            worker: 0,
            asked_us: asked * 1_000,
            stay: got.map(|got| Stay {
                got_us: got * 1_000,
                left_us: got * 1_000 + 1,
            }),
        };
        Visits {
            begin_us: 0,
            end_us: 1_000_000,
            all: times_ms.iter().map(visit).collect(),
        }
    }

    #[test]
    fn busiest_span_begins_with_a_call_and_leaves_out_its_end() {
        let calls = visits(&[
            (0, Some(0)),
            (0, Some(90)),
            (0, Some(100)),
            (0, Some(189)),
            (0, None),
        ]);
        assert_eq!(most_in_any(&calls, 100_000), 3);
        assert_eq!(most_in_any(&calls, 99_000), 2);
        assert_eq!(most_in_any(&visits(&[]), 100_000), 0);
    }

    #[test]
    fn call_overtakes_who_asked_before_and_gets_in_later_or_never() {
        assert_eq!(overtaking(&visits(&[(0, Some(65)), (25, Some(40))])), 1);
        assert_eq!(overtaking(&visits(&[(0, None), (25, Some(40))])), 1);
        assert_eq!(overtaking(&visits(&[(0, Some(65)), (24, Some(40))])), 0);
        assert_eq!(overtaking(&visits(&[(0, Some(64)), (25, Some(40))])), 0);
        assert_eq!(overtaking(&visits(&[(0, Some(40)), (25, Some(65))])), 0);
    }
}
