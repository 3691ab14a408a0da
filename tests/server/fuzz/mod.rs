//! A fuzzer: random commands of all families from forty connections, to a primary with replicas and AOFs, with faults.
//! Every reply is checked against the contract, and the servers are compared with each other.
//!
//! - `step`, `log`: the steps of a run, and how a log spells them;
//! - `plan`, `requests`: the next step, at random, from what the run shows (`run_view`);
//! - `driver`, `link`, `words`: one thread sends all requests and reads all replies; `judge` checks each reply;
//! - `meaning`, `replies`, `conditions`: which replies a request may get;
//! - `ledger`, `known_hold`, `doubt`, `seen_fences`, `gates`: which holds certainly live, and which grants that
//!   excludes;
//! - `fleet`: the servers, which are compared, killed, and change roles;
//! - `tally`: how much a run has done;
//! - `finish`: what must be true at the end of a run; `reduce`: the shortest log that still fails.
//!
//! `DSYNC_FUZZ_SECONDS=n` (30), `DSYNC_SEED=n`. `DSYNC_REPLAY=file` sends a log again; with `DSYNC_REDUCE=1` it then
//! looks for the lines of it that matter. `make fuzz` sets these variables.

mod conditions;
mod doubt;
pub mod driver;
mod finish;
mod fleet;
mod gates;
pub mod history;
mod judge;
mod known_hold;
mod ledger;
mod link;
pub mod log;
pub mod meaning;
pub mod plan;
pub mod reduce;
mod replies;
pub mod requests;
pub mod run_view;
mod seen_fences;
pub mod step;
mod tally;
pub mod words;

use std::path::Path;
use std::time::{Duration, Instant};

use driver::Driver;
use fleet::Fleet;
use log::{Log, LogLine};
use plan::{Mix, Plan};
use step::Step;
use tally::Tally;

use crate::support::steadily;

const CONNECTIONS: usize = 40;
const SECONDS: u64 = 30;
const SEED: u64 = 1;
/// The command that sends a log again.
const AGAIN: &str = "make fuzz";

const MIX: Mix = Mix {
    keys: 5,
    ttls: true,
    flushes: true,
    faults: true,
    one_by_one: false,
};

/// How often the servers are compared, and how often the replicas are asked for unapplied changes.
const COMPARE_EVERY: Duration = Duration::from_millis(1_200);
const ASK_EVERY: Duration = Duration::from_millis(250);
/// What happens to the servers as a whole: one after the other, over and over.
const UPHEAVALS: [Step; 7] = [
    Step::Failover,
    Step::Kill,
    Step::Freeze,
    Step::Switch,
    Step::KillReplica,
    Step::Load,
    Step::Resync,
];

/// One run: the servers, the driver that talks to them, and the log.
struct FuzzRun {
    fleet: Fleet,
    driver: Driver,
    tally: Tally,
    log: Option<Log>,
    last_end: Instant,
    asked: Instant,
}

impl FuzzRun {
    #[track_caller]
    fn start(log: Option<Log>) -> FuzzRun {
        let fleet = Fleet::start();
        let driver = Driver::new(fleet.primary(), CONNECTIONS);
        FuzzRun {
            fleet,
            driver,
            tally: Tally::default(),
            log,
            last_end: Instant::now(),
            asked: Instant::now(),
        }
    }

    /// Waits for `pause` after the step before, logs the step, and carries it out.
    #[track_caller]
    fn perform(&mut self, number: u64, pause: Duration, step: Step) {
        self.driver
            .rest(pause.saturating_sub(self.last_end.elapsed()));
        let pause = self.last_end.elapsed();
        let line = LogLine {
            number,
            pause,
            step,
        };
        if let Some(log) = &mut self.log {
            log.remark(self.driver.take_heard());
            log.note(&line);
        }
        self.tally.note(&line.step);
        match &line.step {
            step @ (Step::Send { .. } | Step::Close { .. } | Step::Settle) => {
                self.driver.perform(self.fleet.primary(), number, step);
            }
            step => self.fleet.perform(&mut self.driver, step),
        }
        self.last_end = Instant::now();
        if self.asked.elapsed() >= ASK_EVERY {
            self.fleet.check_applied();
            self.asked = Instant::now();
        }
    }

    /// Writes the last replies to the log.
    fn note_heard(&mut self) {
        if let Some(log) = &mut self.log {
            log.remark(self.driver.take_heard());
        }
    }

    #[track_caller]
    fn finish(mut self) {
        finish::finish(&mut self.fleet, &mut self.driver);
        let counts = self.driver.counts().iter();
        let counts = counts.map(|(what, count)| format!("{what} {count}"));
        eprintln!("answered: {}", counts.collect::<Vec<_>>().join(", "));
        eprintln!("{}", self.tally.line());
        if let Some(log) = self.log.take() {
            log.discard();
        }
    }
}

impl Drop for FuzzRun {
    fn drop(&mut self) {
        self.note_heard();
    }
}

/// Runs random steps for so many seconds.
#[track_caller]
fn run_random_steps(seed: u64, seconds: u64) {
    let server = std::env::var("DSYNC_TEST_SERVER").unwrap_or("redis-server".to_owned());
    let name = format!("target/fuzz/seed-{seed}-{}.log", std::process::id());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let heading = format!("seed {seed}, {seconds} seconds, {server}");
    let mut run = FuzzRun::start(Some(Log::create(path, &heading, AGAIN, false)));
    let mut plan = Plan::new(seed, MIX);
    let start = Instant::now();
    let upheave_every = Duration::from_millis((seconds * 1_000 / 8).clamp(1_000, 5_000));
    let (mut compared, mut upheaved, mut upheavals) = (start, start, 0);
    let mut number = 0;
    while start.elapsed() < Duration::from_secs(seconds) {
        number += 1;
        let (pause, step) = if upheaved.elapsed() >= upheave_every {
            upheaved = Instant::now();
            upheavals += 1;
            (
                Duration::ZERO,
                UPHEAVALS[(upheavals - 1) % UPHEAVALS.len()].clone(),
            )
        } else if compared.elapsed() >= COMPARE_EVERY {
            compared = Instant::now();
            (Duration::ZERO, Step::Compare)
        } else {
            plan.next(&run.driver)
        };
        run.perform(number, pause, step);
    }
    run.finish();
}

/// Carries out the steps of a log again.
#[track_caller]
fn replay(lines: &[LogLine], log: Option<Log>) {
    let mut run = FuzzRun::start(log);
    for line in lines {
        run.perform(line.number, line.pause, line.step.clone());
    }
    run.finish();
}

pub fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn random_commands_and_faults_break_no_guarantee() {
    if !reduce::play_named(AGAIN, replay) {
        let seed = from_environment("DSYNC_SEED").unwrap_or(SEED);
        let seconds = from_environment("DSYNC_FUZZ_SECONDS").unwrap_or(SECONDS);
        steadily(|| run_random_steps(seed, seconds));
    }
}
