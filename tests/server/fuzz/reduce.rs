//! Sends a log again, or reduces it: leaves out ever smaller parts of it, as long as the rest still fails.
//!
//! `DSYNC_REPLAY` names the log, `DSYNC_REDUCE=1` reduces it.
//!
//! A failure that depends on how requests meet does not come every time. So a part counts as needed only when the log
//! without it has gone well several times in a row.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::log::{self, Log, LogLine};

/// How often a log must go well before the part that was left out counts as needed.
const TRIES: usize = 3;
const AT_MOST: Duration = Duration::from_secs(3_600);

/// Plays the log that the environment names, and returns whether it names one. `again` is the command that came here.
#[track_caller]
pub fn play_named(again: &str, play: impl Fn(&[LogLine], Option<Log>)) -> bool {
    let Some(path) = std::env::var_os("DSYNC_REPLAY").map(PathBuf::from) else {
        return false;
    };
    let lines = log::read(&path);
    let heading = format!("again: {}", path.display());
    if std::env::var_os("DSYNC_REDUCE").is_some() {
        let shortest = reduce(lines, |lines| play(lines, None));
        let path = path.with_extension("reduced.log");
        log::write(&path, &heading, &shortest).expect("the log is written");
        panic!("{} lines suffice: {}", shortest.len(), path.display());
    }
    let copy = path.with_file_name(format!("replay-{}.log", std::process::id()));
    play(&lines, Some(Log::create(copy, &heading, again, true)));
    true
}

/// Returns the shortest log that was found to fail.
#[track_caller]
fn reduce(mut lines: Vec<LogLine>, play: impl Fn(&[LogLine])) -> Vec<LogLine> {
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
