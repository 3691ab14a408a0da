//! A tenant floods a semaphore of ten permits with 1,000 requests, and three others send twenty each: how long the others
//! wait, and how long all of it takes.
//!
//! The flood's requests come at once, the others' a little later, one every 40 ms from each. A job takes 20 ms. Ours
//! says LANE. Theirs are dsync without LANE, which is first come, first served; dsync with a second semaphore for each
//! tenant, which caps a tenant at half of the permits; and a limiter that polls.
//!
//! Absent on purpose: shares and the use of permits. A simulation in the engine's tests has them exactly
//! (`engine/src/queue/lanes/figures.rs`).

use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use crate::bench::{Bench, Side};
use crate::invalid::{Context, Invalid, Result};
use crate::peers::ports::{Algorithm, Make, Terms, dsync, rate_limiter};
use crate::row::{Place, Row, Samples};
use crate::server::Setting;
use crate::statistics::{largest, median};

const PERMITS: usize = 10;
const OTHERS: u64 = 3;
const INSIDE: Duration = Duration::from_millis(20);
/// From now on until all workers run.
const HEAD_START: Duration = Duration::from_millis(300);
/// How much later the first request of each of the others comes.
const LATER: Duration = Duration::from_millis(100);
/// From one request of such a tenant to the next.
const EVERY: Duration = Duration::from_millis(40);
/// A wait that is longer makes the run invalid.
const PATIENCE: Duration = Duration::from_secs(100);

/// The name, the server, and how the requests are served.
type Way = (&'static str, fn(&Bench) -> Result<Side>, Make);

const OURS: Way = ("LANE", with_module, dsync::in_lanes);
const THEIRS: [Way; 3] = [
    ("first come, first served", with_module, dsync::leased),
    ("a cap of 5 each", with_module, dsync::capped),
    ("redis-rate-limiter", without, rate_limiter::make),
];

fn with_module(bench: &Bench) -> Result<Side> {
    bench.ours(Setting::Plain)
}

fn without(bench: &Bench) -> Result<Side> {
    bench.theirs(Setting::Plain)
}

/// What came of a flood: the others' median and longest wait, and the time until all was done, in milliseconds.
type Figures = [f64; 3];

const WHAT: [&str; 3] = [
    "the others' median wait",
    "the others' longest wait",
    "until all is done",
];

pub fn run(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let mut samples: [[Samples; 3]; 3] = Default::default();
    for pair in 0..bench.pairs() {
        let mut found = [Figures::default(); 4];
        for at in 0..found.len() {
            // Who begins changes from pair to pair.
            let at = (at + pair) % found.len();
            let (_, side, make) = if at == 0 { OURS } else { THEIRS[at - 1] };
            found[at] = serve(&side(bench)?, make, bench)?;
        }
        for (theirs, samples) in found[1..].iter().zip(&mut samples) {
            for (at, samples) in samples.iter_mut().enumerate() {
                samples.push(found[0][at], theirs[at]);
            }
        }
    }
    let median_at_most_ms = 3.0 * INSIDE.as_secs_f64() * 1e3;
    for (way, (&(name, ..), samples)) in THEIRS.iter().zip(samples).enumerate() {
        for (at, samples) in samples.into_iter().enumerate() {
            let what = format!("{}, LANE / {name}", WHAT[at]);
            let row = Row::new("floods", what, "ms", samples).at(Place::Ranges {
                chart: "waits beside a flood",
                ours: OURS.0,
                theirs: name,
            });
            rows.push(match (way, at) {
                (0, 0) => row.at_most(median_at_most_ms),
                (0, 2) => row.cost_at_most(1.03),
                _ => row,
            });
        }
    }
    Ok(())
}

fn serve(side: &Side, make: Make, bench: &Bench) -> Result<Figures> {
    // With a cap each has two connections.
    let flood = bench.clients("floods", bench.size(2_000, 80)) / 2;
    let flood = std::iter::repeat_n((0, Duration::ZERO), flood);
    let others = (1..=OTHERS).flat_map(|tenant| {
        let requests = 0..bench.size(20, 2);
        requests.map(move |number| (tenant, LATER + EVERY * number))
    });
    let mut requests = Vec::new();
    for (worker, (tenant, after)) in flood.chain(others).enumerate() {
        let terms = Terms {
            port: side.server.port(),
            worker: worker as u64,
            tenant,
            permits: Some(PERMITS),
            lease_ms: None,
        };
        requests.push((tenant, after, make(&terms)?));
    }
    let begin = Instant::now() + HEAD_START;
    let waits = thread::scope(|scope| {
        let threads: Vec<_> = requests
            .into_iter()
            .map(|(tenant, after, worker)| {
                (tenant, scope.spawn(move || work(worker, begin + after)))
            })
            .collect();
        let mut waits = Vec::new();
        for (tenant, thread) in threads {
            let waited = thread.join().ok().context("a worker panicked")??;
            if tenant > 0 {
                waits.push(waited);
            }
        }
        Ok::<_, Invalid>(waits)
    })?;
    let took = begin.elapsed().as_secs_f64() * 1e3;
    Ok([median(&waits), largest(&waits), took])
}

/// Sends one request and does its job. Returns the milliseconds that it waited.
fn work(mut worker: Box<dyn Algorithm>, begin: Instant) -> Result<f64> {
    sleep(begin.saturating_duration_since(Instant::now()));
    let asked = Instant::now();
    if !worker.acquire(asked + PATIENCE)? {
        return Err(Invalid::new("a request was not served"));
    }
    let waited_ms = asked.elapsed().as_secs_f64() * 1e3;
    sleep(INSIDE);
    worker.release()?;
    Ok(waited_ms)
}
