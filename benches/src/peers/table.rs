//! The findings as text: a table of the contests, and one of the crashes.

use super::visits::WaitsMs;
use super::{Crash, Findings, Outcome};
use crate::columns::aligned;
use crate::columns::figure;

/// Nothing where nothing was found.
pub fn text(findings: &Findings) -> String {
    let mut text = String::new();
    if !findings.outcomes.is_empty() {
        let titles = [
            "peer",
            "what",
            "waits by",
            "resource",
            "workers",
            "acquired/s",
            "median wait",
            "99 %",
            "longest",
            "Jain",
            "served",
            "commands each",
            "violations",
        ];
        let rows: Vec<_> = std::iter::once(titles.map(str::to_owned))
            .chain(findings.outcomes.iter().map(outcome))
            .collect();
        text += "\n";
        text += &aligned(&rows, &[4, 5, 6, 7, 8, 9, 10, 11, 12]);
        text += "A + stands behind a wait that was still going on at the end of the contest.\n";
    }
    if !findings.crashes.is_empty() {
        let titles = ["a holder dies inside", "lease", "the next one is in after"];
        let rows: Vec<_> = std::iter::once(titles.map(str::to_owned))
            .chain(findings.crashes.iter().map(crash))
            .collect();
        text += "\n";
        text += &aligned(&rows, &[1, 2]);
        text += "\n";
    }
    text
}

fn outcome(outcome: &Outcome) -> [String; 13] {
    let figures = &outcome.figures;
    let WaitsMs {
        median,
        percentile_99,
        longest,
        is_longest_open,
    } = figures.wait_ms;
    let resource = match outcome.permits {
        None => "lock".to_owned(),
        Some(permits) => format!("{permits} permits"),
    };
    [
        outcome.peer.to_owned(),
        outcome.what.clone(),
        outcome.waiting.to_owned(),
        resource,
        outcome.workers.to_string(),
        figure(figures.per_second),
        duration(median),
        duration(percentile_99),
        format!(
            "{}{}",
            duration(longest),
            if is_longest_open { "+" } else { "" }
        ),
        format!("{:.2}", figures.jain),
        format!("{}/{}", figures.served, outcome.workers),
        format!("{:.1}", outcome.commands_each),
        figures.violations.to_string(),
    ]
}

fn crash(crash: &Crash) -> [String; 3] {
    [
        crash.peer.to_owned(),
        duration(crash.lease_ms as f64),
        match crash.next_after_ms {
            Some(ms) => duration(ms),
            None => format!("not within {}", duration(crash.bound_ms as f64)),
        },
    ]
}

/// Milliseconds in the unit that a reader expects.
pub fn duration(ms: f64) -> String {
    match ms {
        ms if ms >= 1_000.0 => format!("{} s", figure(ms / 1e3)),
        ms if ms >= 1.0 => format!("{} ms", figure(ms)),
        ms => format!("{} µs", figure(ms * 1e3)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_has_the_unit_that_a_reader_expects() {
        let cases = [
            (0.0734, "73.4 µs"),
            (1.0, "1.00 ms"),
            (87.65, "87.7 ms"),
            (1_000.0, "1.00 s"),
            (2_713.0, "2.71 s"),
        ];
        for (ms, text) in cases {
            assert_eq!(duration(ms), text);
        }
    }
}
