//! A comparison of two modules, the one before a redesign and the one after: random requests to both, the same in the
//! same order, each to a server of the same program with an AOF and a replica. Everything that a client, a replica or a
//! file sees must be the same.
//!
//! - `requests`: the steps, from the fuzzer's plan; `duo`: sends them to both sides and compares what comes back;
//! - `side`, `watcher`: one side, and what its clients hear; `at_rest`: what can be seen of it after a burst;
//! - `masks`: what may differ, made equal; `finds`: tests that nothing else is.
//!
//! # What is compared
//!
//! A *burst* is 250 steps in which nothing ends by itself: leases are far longer than the run. A step is sent when the
//! one before has had its effect. After each step: the replies on every connection, closed connections, keyspace
//! events, messages of kept places, and the keys of which clients with WATCH or a cache are told (CLIENT TRACKING).
//! After a burst:
//!
//! - the commands of the replication stream, in their order;
//! - each line of INFO dsync, DSYNC.LOG, DSYNC.CONTENDED and DSYNC.HOLDS of the primary;
//! - for each key in each database, on the primary and on the replica: DUMP, PTTL, TYPE and the INFO of each family;
//!   and the events, modified keys and DSYNC.LOG of the replica;
//! - the commands in the AOF, and those that its rewrite writes.
//!
//! In a *phase of lapses*, one in twelve seconds, everything ends by itself: leases, waits, pauses, delays and a TTL.
//! It is compared when all has ended. At the start, COMMAND DOCS, COMMAND INFO and the names and values of the
//! settings.
//!
//! A packed string is compared as the changes it spells, because it has fences and times inside. That hides no byte:
//! the engine reads each sequence of changes in one form only.
//!
//! # What is masked, and why
//!
//! - Tokens and fences that servers make get a name by the order in which they first appear, so equal ones stay equal.
//! - Moments and durations are rounded up to 100 s, and a duration below 30 s is no more than that, because the two
//!   servers do not act in the same millisecond. All times that requests ask for are multiples of 100 s.
//! - Ids of clients become the numbers of connections. INFO: `*_ms`, `dsync_timer_ticks`, version and commit.
//! - DSYNC.LOG: the numbers of rows, and rows that say that the machine was slow. DSYNC.CONTENDED and DSYNC.HOLDS: the
//!   order of rows, which milliseconds waited and a secret decide.
//! - Which changes of several keys share a transaction in the stream: as many as a tick had time for.
//! - How many modified keys share a push, and how often a step signals the same key. The order of keys in a rewritten
//!   AOF.
//! - In a phase of lapses also every order, because it is luck which of two leases ends first that end together.
//!
//! # What is left out
//!
//! Failovers, restarts, clusters, files of other versions, changed settings and lack of memory: the stories of
//! `replication`, `lifecycle` and `cluster` and the fuzzer are about these. CLIENT PAUSE, DEBUG and scripts that take
//! time, because the clock decides what they do; PSUBSCRIBE of the plan's own clients, because some servers mix
//! messages into replies; DSYNC.HOLDS from a cursor of another server. A connection with EPHEMERAL holds ends when it
//! waits for nothing, alone in its step, because the tick that ends the holds comes before or after the rest of the
//! turn. Memory, how often the timer ran, how long anything took, the lines of the servers' logs, INFO dsync and
//! DSYNC.HOLDS of the replica, which forgets the holds of removed keys bit by bit.
//!
//! Words without a value that only the new module knows, as INDEX: no request has them, and COMMAND DOCS is compared
//! without them.
//!
//! # How to run it
//!
//! `make compare-modules OLD=file`. In `make test` the module is compared with itself for two seconds, which tests the
//! comparison. `DSYNC_OLD_MODULE=file`, `DSYNC_COMPARE_SECONDS=n` (2), `DSYNC_SEED=n` (1); `DSYNC_REPLAY=file` and
//! `DSYNC_REDUCE=1` as for the fuzzer, for a burst.
//!
//! A failure tells the seed, the step, the first difference, and the command that sends the steps of the burst again. A
//! run with the seed that a failure tells begins with the burst, or the phase of lapses, that failed.

mod at_rest;
mod duo;
mod finds;
mod masks;
mod requests;
mod side;
mod watcher;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use duo::Duo;
use masks::difference;

use crate::fuzz::from_environment;
use crate::fuzz::log::{Log, LogLine};
use crate::fuzz::plan::{Mix, Plan};
use crate::fuzz::reduce::play_named;
use crate::fuzz::requests::Version;
use crate::support::*;

const CONNECTIONS: usize = 12;
/// How many steps a burst has.
const BURST: u64 = 250;
/// A burst ends after this time, so that a slow machine moves no time by as much as it is rounded to.
const BURST_WITHIN: Duration = Duration::from_secs(30);
/// How often everything is left to lapse.
const LAPSES_EVERY: Duration = Duration::from_secs(12);
/// How often a phase of lapses is tried: a stall of the machine makes a difference once, a change of the module always.
const LAPSES_TRIED: u32 = 5;

const MIX: Mix = Mix {
    keys: 6,
    ttls: false,
    flushes: true,
    faults: false,
    strays: false,
    oldest: Version::V0_4_0,
    quits: false,
    one_by_one: false,
};

/// The two files.
struct Modules {
    old: PathBuf,
    new: PathBuf,
}

impl Modules {
    #[track_caller]
    fn from_environment() -> Modules {
        let old = std::env::var_os("DSYNC_OLD_MODULE").map_or_else(module_path, PathBuf::from);
        let old = old.canonicalize();
        Modules {
            old: old.unwrap_or_else(|error| panic!("no module to compare with: {error}")),
            new: module_path(),
        }
    }

    /// The command that compares them.
    fn command(&self) -> String {
        format!("make compare-modules OLD={}", self.old.display())
    }

    #[track_caller]
    fn start(&self, connections: usize) -> Duo {
        Duo::start(&self.old, &self.new, connections)
    }

    #[track_caller]
    fn compare(&self, seed: u64, time: Duration) {
        let start = Instant::now();
        let mut duo = self.start(CONNECTIONS);
        let (mut steps, mut lapses) = (0, 0);
        for bursts in 1.. {
            // So a run with the seed of a burst that fails begins with this burst.
            let seed = seed.wrapping_add(bursts - 1);
            steps += self.compare_burst(&mut duo, seed);
            if start.elapsed() >= LAPSES_EVERY * lapses {
                lapses += 1;
                self.compare_lapses(seed);
            }
            if start.elapsed() >= time {
                eprintln!(
                    "{bursts} bursts, {steps} steps and {lapses} phases of lapses were the same"
                );
                return;
            }
        }
    }

    /// Compares the effects of random steps; returns their number.
    #[track_caller]
    fn compare_burst(&self, duo: &mut Duo, seed: u64) -> u64 {
        let name = format!("target/differential/seed-{seed}-{}.log", std::process::id());
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        let heading = format!("SEED={seed}");
        duo.begin(Some(Log::create(path, &heading, &self.command(), false)));
        let mut plan = Plan::new(seed, MIX);
        let start = Instant::now();
        let mut steps = 0;
        for line in 1..=BURST {
            let (_, step) = plan.next(duo);
            if let Some(step) = requests::without_clock(step, duo) {
                duo.perform(line, &step);
                steps += 1;
            }
            if start.elapsed() > BURST_WITHIN {
                break;
            }
        }
        duo.end_burst();
        steps
    }

    #[track_caller]
    fn compare_lapses(&self, seed: u64) {
        let steps = requests::lapsing(seed);
        for tried in 1..=LAPSES_TRIED {
            let mut duo = self.start(requests::LAPSING);
            let (old, new) = duo.let_lapse(&steps);
            if difference(&old, &new).is_none() {
                return;
            }
            if tried == LAPSES_TRIED {
                let steps: String = steps.iter().map(|step| format!("    {step}\n")).collect();
                let what = format!("a phase of lapses, SEED={seed}, of these steps:\n{steps}");
                duo.expect_same(&what, &old, &new);
            }
        }
    }

    /// Sends the steps of a burst again.
    #[track_caller]
    fn replay(&self, lines: &[LogLine], log: Option<Log>) {
        let mut duo = self.start(CONNECTIONS);
        duo.begin(log);
        for line in lines {
            duo.perform(line.number, &line.step);
        }
        duo.end_burst();
    }
}

#[test]
fn old_and_new_module_show_the_same() {
    let modules = Modules::from_environment();
    if !play_named(&modules.command(), |lines, log| modules.replay(lines, log)) {
        let seconds = from_environment("DSYNC_COMPARE_SECONDS").unwrap_or(2);
        let seed = from_environment("DSYNC_SEED").unwrap_or(1);
        steadily(|| modules.compare(seed, Duration::from_secs(seconds)));
    }
}
