//! Counts the instructions that a server executes, with valgrind's callgrind, so that two counts of the same work
//! agree.
//!
//! callgrind writes what it has counted into a file whenever the server begins to carry out DEBUG. So the count of some
//! work is the difference of two files: that between two DEBUGs with the work between them, and that between two
//! without.
//!
//! A slow server does more of what it does by the clock. So its cron is paused, besides what [`crate::valgrind`] sets.
//! What the server is sent must not depend on the clock either: [`await_sleep`] separates two turns of its event loop,
//! and what arrives while its process is stopped is read in one turn.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use dsync_testkit::process;

use crate::bench::Side;
use crate::invalid::{Context, Invalid, Result};

const PATIENCE: Duration = Duration::from_secs(60);

/// The server's timers count in milliseconds, so one that fires after the next turn ends a shorter sleep.
const SLEEP: Duration = Duration::from_millis(3);

/// Returns how many instructions the server executes for the work, in all its threads, and keeps callgrind's file about
/// it. Once in a server's life, which began with a [`mark`].
pub fn count(
    side: &mut Side,
    kept: &Path,
    work: impl FnOnce(&mut Side) -> Result<()>,
) -> Result<f64> {
    mark(side)?;
    mark(side)?;
    work(side)?;
    mark(side)?;
    let (empty, full) = (dump(side, 3), dump(side, 4));
    fs::copy(&full, kept).context(kept.display())?;
    Ok(total(&full)? - total(&empty)?)
}

/// Pauses the server's cron, and lets callgrind write a file.
pub fn mark(side: &mut Side) -> Result<()> {
    await_sleep(side.server.id())?;
    side.control.ok("DEBUG PAUSE-CRON 1")?;
    await_sleep(side.server.id())
}

/// The shells before the server have been the same process, and so has valgrind.
fn dump(side: &Side, number: u32) -> PathBuf {
    let name = format!("callgrind.{}.{number}", side.server.id());
    side.server.directory().join(name)
}

fn total(path: &Path) -> Result<f64> {
    let text = fs::read_to_string(path).context(path.display())?;
    text.lines()
        .find_map(|line| line.strip_prefix("totals: ")?.parse().ok())
        .context(format!("{} has no total", path.display()))
}

/// Returns once the main thread has slept for [`SLEEP`].
pub fn await_sleep(id: u32) -> Result<()> {
    let (mut asleep_since, mut last_run) = (Instant::now(), String::new());
    eventually("a server does not come to rest", || {
        let state = process::state(id).context("a server has no state")?;
        let run = run(id)?;
        if state != 'S' || run != last_run {
            (asleep_since, last_run) = (Instant::now(), run);
        }
        Ok(asleep_since.elapsed() >= SLEEP)
    })
}

fn eventually(failure: &str, mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
    let begin = Instant::now();
    while !condition()? {
        if begin.elapsed() > PATIENCE {
            return Err(Invalid::new(failure));
        }
        sleep(Duration::from_micros(500));
    }
    Ok(())
}

/// For how long the main thread has run, and how often.
fn run(id: u32) -> Result<String> {
    let path = format!("/proc/{id}/task/{id}/schedstat");
    fs::read_to_string(&path).context(path)
}
