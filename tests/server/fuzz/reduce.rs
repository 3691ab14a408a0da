//! The lines of a log that matter: ever smaller parts of it are left out, as long as what is left still fails.
//!
//! A failure that depends on how requests meet does not come every time, so a part is only known to matter
//! when the log has gone well without it several times in a row.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::log::LogLine;

/// How often a log is sent before it is believed to go well.
const TRIES: usize = 3;
const AT_MOST: Duration = Duration::from_secs(3_600);

/// The shortest log that was found to fail.
#[track_caller]
pub fn reduce(mut lines: Vec<LogLine>, play: impl Fn(&[LogLine])) -> Vec<LogLine> {
    let start = Instant::now();
    let fails = |lines: &[LogLine]| {
        (0..TRIES).any(|_| catch_unwind(AssertUnwindSafe(|| play(lines))).is_err())
    };
    assert!(fails(&lines), "the log goes well, {TRIES} times in a row");
    // What happened last matters most: the longest beginning that can go, goes first.
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

/// The same without the pauses, if it still fails.
fn without_pauses(lines: Vec<LogLine>, fails: impl Fn(&[LogLine]) -> bool) -> Vec<LogLine> {
    let at_once = lines.iter().cloned().map(|line| LogLine {
        pause: Duration::ZERO,
        ..line
    });
    let at_once: Vec<LogLine> = at_once.collect();
    if fails(&at_once) { at_once } else { lines }
}
