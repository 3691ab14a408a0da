//! Runs a test again that failed while the machine stood still or a clock was set. Leases end by the wall clock of the
//! servers, deadlines of a test by its monotonic clock, so such a failure says nothing about the module. A failure
//! without such an event counts at once.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

const SAMPLE_EVERY: Duration = Duration::from_millis(50);
/// Between two samples: the machine stood still, or this process did.
const GAP: Duration = Duration::from_secs(5);
/// Between the clocks, since the run began: one of them was set, or stood still with the machine.
const APART: Duration = Duration::from_millis(500);
const TRIES: u32 = 3;

/// The monotonic clock and the wall clock, each since a moment of its own.
type Sample = [Duration; 2];

/// Carries out `run`. If it panics and the clocks jumped meanwhile, it runs again, three times at most.
pub fn steadily(run: impl Fn()) {
    let start = Instant::now();
    let wall = || SystemTime::UNIX_EPOCH.elapsed().expect("it is after 1970");
    steadily_by(|| [start.elapsed(), wall()], run);
}

fn steadily_by(clocks: impl Fn() -> Sample + Sync, run: impl Fn()) {
    for tried in 1.. {
        let first = clocks();
        let (ended, jump) = thread::scope(|scope| {
            let (running, ends) = channel();
            let watcher = scope.spawn(|| watch(&clocks, first, ends));
            let ended = catch_unwind(AssertUnwindSafe(&run));
            drop(running);
            (ended, watcher.join().expect("the watcher ends well"))
        });
        match (ended, jump) {
            (Ok(()), _) => return,
            (Err(_), Some(jump)) if tried < TRIES => eprintln!("{jump}, so the test runs again"),
            (Err(panic), _) => resume_unwind(panic),
        }
    }
}

/// Samples the clocks until the run ends, and once more. Returns the last jump.
fn watch(clocks: impl Fn() -> Sample, first: Sample, ends: Receiver<()>) -> Option<String> {
    let (mut last, mut jump) = (first, None);
    loop {
        let is_over = ends.recv_timeout(SAMPLE_EVERY) != Err(RecvTimeoutError::Timeout);
        let now = clocks();
        let gap = now[0] - last[0];
        let apart = (now[0] + first[1]).abs_diff(now[1] + first[0]);
        if gap > GAP {
            jump = Some(format!("the machine stood still for {gap:?}"));
        } else if apart > APART {
            jump = Some(format!("the clocks advanced by {apart:?} apart"));
        }
        if is_over {
            return jump;
        }
        last = now;
    }
}

/// Returns how many runs there are where the first `failing` of them fail, each after the clocks jumped by so many
/// milliseconds; and whether the last one went well.
fn runs(failing: u32, jump_ms: [u64; 2]) -> (u32, bool) {
    let failed = AtomicU32::new(0);
    let clock = |ms: u64| Duration::from_millis(ms) * failed.load(SeqCst);
    let clocks = || [clock(jump_ms[0]) + GAP, clock(jump_ms[1]) + 2 * GAP];
    let count = AtomicU32::new(0);
    let run = || {
        if count.fetch_add(1, SeqCst) < failing {
            failed.fetch_add(1, SeqCst);
            panic!("as this test wants it");
        }
    };
    let is_well = catch_unwind(AssertUnwindSafe(|| steadily_by(clocks, run))).is_ok();
    (count.into_inner(), is_well)
}

#[test]
fn run_that_fails_runs_again_if_the_clocks_jumped() {
    for jump_ms in [[5_001, 5_001], [0, 501], [501, 0]] {
        assert_eq!(runs(0, jump_ms), (1, true), "{jump_ms:?}");
        assert_eq!(runs(1, jump_ms), (2, true), "{jump_ms:?}");
        assert_eq!(runs(9, jump_ms), (TRIES, false), "{jump_ms:?}");
    }
    for jump_ms in [[0, 0], [5_000, 5_000], [0, 500], [500, 0]] {
        assert_eq!(runs(1, jump_ms), (1, false), "{jump_ms:?}");
    }
}
