//! A fuzzer: random commands of all families from forty connections, to a primary with replicas and AOFs, with faults.
//! Every reply is checked against the contract, and the servers are compared with each other.
//!
//! - `step`, `log`: the steps of a run, and how a log spells them;
//! - `plan`, `requests`: the next step, at random, from what the run shows (`run_view`);
//! - `driver`, `link`, `words`: one thread sends all requests and reads all replies; `judge` checks each reply;
//! - `meaning`, `replies`, `conditions`: which replies a request may get;
//! - `ledger`, `known_hold`, `doubt`, `seen_fences`, `gates`: which holds certainly live, and which grants that
//!   excludes;
//! - `upheavals`: what happens to the servers as a whole, and when;
//! - `fleet`: the servers, which are compared, killed, lose power, are cut off, and change roles;
//! - `upgrade`: a run in which the servers get another module, one after the other;
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
mod upgrade;
mod upheavals;
pub mod words;

use std::path::Path;
use std::time::{Duration, Instant};

use driver::Driver;
use fleet::Fleet;
use log::{Log, LogLine};
use plan::{Mix, Plan};
use requests::Version;
use step::Step;
use tally::Tally;
use upheavals::Upheavals;

use crate::support::{module_path, steadily};

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
    strays: true,
    oldest: Version::V0_4_0,
    quits: true,
    one_by_one: false,
};

/// How often the servers are compared, and how often the replicas are asked for unapplied changes.
const COMPARE_EVERY: Duration = Duration::from_millis(1_200);
const ASK_EVERY: Duration = Duration::from_millis(250);
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
    fn start(on_hosts: bool, module: &Path, log: Option<Log>) -> FuzzRun {
        let fleet = Fleet::start(on_hosts, module);
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
    // On the hosts clients connect by Unix sockets, otherwise as most of them do.
    let on_hosts = !seed.is_multiple_of(2);
    let log = Log::create(path, &heading, AGAIN, false);
    let mut run = FuzzRun::start(on_hosts, &module_path(), Some(log));
    let mut plan = Plan::new(seed, MIX);
    let upheave_every = Duration::from_millis((seconds * 1_000 / 12).clamp(1_000, 5_000));
    let mut upheavals = Upheavals::new(seed, run.fleet.means(), upheave_every);
    let start = Instant::now();
    let mut compared = start;
    let mut number = 0;
    while start.elapsed() < Duration::from_secs(seconds) {
        number += 1;
        let (pause, step) = if let Some(step) = upheavals.next() {
            (Duration::ZERO, step)
        } else if compared.elapsed() >= COMPARE_EVERY && !upheavals.is_under_way() {
            compared = Instant::now();
            (Duration::ZERO, Step::Compare)
        } else {
            plan.next(&run.driver)
        };
        run.perform(number, pause, step);
    }
    if let Some(end) = upheavals.finish() {
        run.perform(number + 1, Duration::ZERO, end);
    }
    run.finish();
}

/// Carries out the steps of a log again.
#[track_caller]
fn replay(lines: &[LogLine], log: Option<Log>) {
    let on_hosts = lines
        .iter()
        .any(|line| matches!(line.step, Step::Cut { .. }));
    let mut run = FuzzRun::start(on_hosts, &module_path(), log);
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
