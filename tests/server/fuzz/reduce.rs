//! Reduces a failing log: leaves out ever smaller parts of it, as long as the rest still fails.
//!
//! A failure that depends on how requests meet does not come every time. So a part counts as needed only when the log
//! without it has gone well several times in a row.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::log::LogLine;

/// How often a log must go well before the part that was left out counts as needed.
const TRIES: usize = 3;
const AT_MOST: Duration = Duration::from_secs(3_600);

/// Returns the shortest log that was found to fail.
#[track_caller]
pub fn reduce(mut lines: Vec<LogLine>, play: impl Fn(&[LogLine])) -> Vec<LogLine> {
    let start = Instant::now();
    let fails = |lines: &[LogLine]| {
        (0..TRIES).any(|_| catch_unwind(AssertUnwindSafe(|| play(lines))).is_err())
    };
    assert!(fails(&lines), "the log goes well, {TRIES} times in a row");
    // Large parts first, from the beginning: the last lines matter most for a failure.
    let mut size = lines.len() / 2;
    while size > 0 {
        let mut at = 0;
        while at < lines.len() && start.elapsed() < AT_MOST {
            let until = lines.len().min(at + size);
            let mut shorter = lines[..at].to_vec();
            shorter.extend_from_slice(&lines[until..]);
            if fails(&shorter) {
                eprintln!("{} lines still fail", shorter.len());
                lines = shorter;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    without_pauses(lines, fails)
}

/// Returns the lines without their pauses, if they still fail.
fn without_pauses(lines: Vec<LogLine>, fails: impl Fn(&[LogLine]) -> bool) -> Vec<LogLine> {
    let at_once = lines.iter().cloned().map(|line| LogLine {
        pause: Duration::ZERO,
        ..line
    });
    let at_once: Vec<LogLine> = at_once.collect();
    if fails(&at_once) { at_once } else { lines }
}
