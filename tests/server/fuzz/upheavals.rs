//! What happens to the servers as a whole: one kind after the other in a random order, each as often as the others.
//!
//! Some upheavals last: while a host is cut off, or while the primary syncs its AOF only each second, clients go on. No
//! other one begins then, and the servers are not compared.

use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use super::step::Step;

const SECOND_MS: i64 = 1_000;
const MINUTE_MS: i64 = 60 * SECOND_MS;
const HOUR_MS: i64 = 60 * MINUTE_MS;

/// What the servers of a run can suffer: it depends on the machine.
#[derive(Clone, Copy, Debug)]
pub struct Means {
    /// Their disks forget what is not synced.
    pub disks: bool,
    /// Their wall clock can be set.
    pub clock: bool,
    /// How many hosts can be cut off.
    pub hosts: usize,
}

#[derive(Clone, Copy)]
enum Kind {
    Failover,
    Switch,
    Kill,
    Load,
    Freeze,
    KillReplica,
    Resync,
    /// The power fails while each write is synced before its reply.
    PowerLoss,
    /// The power fails while writes are synced each second.
    LazyPowerLoss,
    Clock,
    Partition,
}

const ALWAYS: [Kind; 7] = [
    Kind::Failover,
    Kind::Switch,
    Kind::Kill,
    Kind::Load,
    Kind::Freeze,
    Kind::KillReplica,
    Kind::Resync,
];

pub struct Upheavals {
    rng: StdRng,
    means: Means,
    every: Duration,
    due: Instant,
    /// Those that are still to come before each may come again.
    left: Vec<Kind>,
    /// The step that ends the one that lasts, and when.
    end: Option<(Instant, Step)>,
}

impl Upheavals {
    pub fn new(seed: u64, means: Means, every: Duration) -> Upheavals {
        Upheavals {
            // Another sequence than that of the plan.
            rng: StdRng::seed_from_u64(!seed),
            means,
            every,
            due: Instant::now() + every,
            left: Vec::new(),
            end: None,
        }
    }

    /// Returns the next step, if it is time.
    pub fn next(&mut self) -> Option<Step> {
        let now = Instant::now();
        if self.is_under_way() {
            return self.end.take_if(|(at, _)| *at <= now).map(|(_, end)| end);
        }
        if now < self.due {
            return None;
        }
        self.due = now + self.every;
        if self.left.is_empty() {
            self.left = self.kinds();
            self.left.shuffle(&mut self.rng);
        }
        let kind = self.left.pop()?;
        Some(self.begin(kind))
    }

    pub fn is_under_way(&self) -> bool {
        self.end.is_some()
    }

    /// Returns the step that ends what lasts, before its time.
    pub fn finish(&mut self) -> Option<Step> {
        self.end.take().map(|(_, end)| end)
    }

    fn kinds(&self) -> Vec<Kind> {
        let mut kinds = ALWAYS.to_vec();
        if self.means.disks {
            kinds.extend([Kind::PowerLoss, Kind::LazyPowerLoss]);
        }
        if self.means.clock {
            kinds.push(Kind::Clock);
        }
        if self.means.hosts > 0 {
            kinds.push(Kind::Partition);
        }
        kinds
    }

    fn begin(&mut self, kind: Kind) -> Step {
        match kind {
            Kind::Failover => Step::Failover,
            Kind::Switch => Step::Switch,
            Kind::Kill => Step::Kill,
            Kind::Load => Step::Load,
            Kind::Freeze => Step::Freeze,
            Kind::KillReplica => Step::KillReplica,
            Kind::Resync => Step::Resync,
            Kind::PowerLoss => self.power_loss(false),
            Kind::LazyPowerLoss => {
                let loss = self.power_loss(true);
                self.lasts(300..4_000, loss);
                Step::operator(&["CONFIG SET appendfsync everysec"])
            }
            Kind::Clock => self.clock(),
            Kind::Partition => {
                self.lasts(50..3_000, Step::Join);
                // Any of the hosts, one at least. Those that are cut off do not reach each other either.
                let some = self.rng.random_range(1..1 << self.means.hosts);
                let hosts = (0..self.means.hosts).filter(|host| some >> host & 1 == 1);
                Step::Cut {
                    hosts: hosts.collect(),
                }
            }
        }
    }

    fn lasts(&mut self, ms: std::ops::Range<u64>, end: Step) {
        let lasting = Duration::from_millis(self.rng.random_range(ms));
        self.end = Some((Instant::now() + lasting, end));
    }

    /// A disk often has nothing of what was not synced, and sometimes a part.
    fn power_loss(&mut self, everysec: bool) -> Step {
        let kept = self.rng.random_range(-100_i32..=100).max(0);
        Step::PowerLoss {
            kept_per_cent: kept.unsigned_abs(),
            everysec,
        }
    }

    /// The clock is seconds, minutes, hours or days wrong, either way, or right again.
    fn clock(&mut self) -> Step {
        let unit = [SECOND_MS, MINUTE_MS, HOUR_MS, 24 * HOUR_MS, 0];
        let unit = unit[self.rng.random_range(0..unit.len())];
        Step::Clock {
            ms: unit * self.rng.random_range(-50..=50),
        }
    }
}
