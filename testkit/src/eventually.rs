//! Waiting for conditions. Every wait has a deadline, and its failure names what did not happen.

use std::thread;
use std::time::{Duration, Instant};

/// The deadline for things that must happen: long enough for a busy machine, short enough that a lost wake-up fails its
/// test and does not hold up the whole run.
pub const SOON: Duration = Duration::from_secs(25);

/// How long [`eventually`] sleeps between two looks: short beside what tests measure, long beside the cost of one
/// request.
const POLL_EVERY: Duration = Duration::from_millis(2);

/// Checks the condition until it holds; panics with `what` if it does not hold in time. The last check comes after the
/// deadline, so that a stall of the machine between two checks does not fail the test.
#[track_caller]
pub fn eventually(what: &str, within: Duration, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + within;
    loop {
        let late = Instant::now() >= deadline;
        if holds() {
            return;
        }
        assert!(!late, "not within {within:?}: {what}");
        thread::sleep(POLL_EVERY);
    }
}
