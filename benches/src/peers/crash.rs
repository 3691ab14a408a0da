//! A holder dies inside: how long until the next one is in.
//!
//! A port's holder is dropped, which closes its connections; a library's process is killed with SIGKILL. To the server
//! that is the same. The hold has a lease of two seconds where the algorithm has leases, and nobody renews it any more.
//! The one who waits has asked long enough before that it waits as the algorithm waits.

use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::library::Driver;
use super::ports::{Algorithm, Terms};
use super::{How, Peer};
use crate::bench::{Bench, Side};
use crate::invalid::{Context, Invalid, Result};

/// The other one has waited so long when the holder dies.
const WAITED: Duration = Duration::from_millis(300);

#[derive(Clone, Debug, Serialize)]
pub struct Crash {
    pub peer: &'static str,
    pub lease_ms: u64,
    /// Null where nobody came in before the bound.
    pub next_after_ms: Option<f64>,
    pub bound_ms: u64,
}

pub fn run(peer: &Peer, side: &Side, bench: &Bench) -> Result<Crash> {
    let lease_ms = bench.size(2_000, 500);
    // Twice the lease and more: some look at the clock by the second, or sleep for one.
    let bound = Duration::from_millis(3 * lease_ms);
    let next_after = match peer.how {
        How::Port(make) => {
            let worker = |worker| {
                make(&Terms {
                    port: side.server.port(),
                    worker,
                    permits: None,
                    lease_ms: Some(lease_ms),
                })
            };
            of_port(worker(0)?, worker(1)?, bound)?
        }
        How::Library(language) => {
            let start = || Driver::hold(bench, language, peer.name, side.server.port(), lease_ms);
            of_library(start()?, start()?, bound)?
        }
    };
    Ok(Crash {
        peer: peer.name,
        lease_ms,
        next_after_ms: next_after.map(|time| time.as_secs_f64() * 1e3),
        bound_ms: bound.as_millis() as u64,
    })
}

fn of_port(
    mut holder: Box<dyn Algorithm>,
    mut next: Box<dyn Algorithm>,
    bound: Duration,
) -> Result<Option<Duration>> {
    let dies = Instant::now() + WAITED;
    if !holder.acquire(dies)? {
        return Err(Invalid::new("the lock was not free"));
    }
    thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            let is_in = next.acquire(dies + bound)?;
            Ok(is_in.then(Instant::now))
        });
        sleep(dies.saturating_duration_since(Instant::now()));
        let died = Instant::now();
        drop(holder);
        let came_in = waiting.join().ok().context("a worker panicked")??;
        after(came_in, died)
    })
}

fn of_library(mut holder: Driver, mut next: Driver, bound: Duration) -> Result<Option<Duration>> {
    holder.await_ready()?;
    next.await_ready()?;
    holder.go()?;
    if !holder.is_in_before(Instant::now() + bound)? {
        return Err(Invalid::new("the lock was not free"));
    }
    next.go()?;
    sleep(WAITED);
    let died = Instant::now();
    drop(holder);
    let is_in = next.is_in_before(died + bound)?;
    after(is_in.then(Instant::now), died)
}

/// Nobody may come in as long as the holder lives.
fn after(came_in: Option<Instant>, died: Instant) -> Result<Option<Duration>> {
    match came_in {
        Some(moment) if moment < died => Err(Invalid::new("two workers were inside at once")),
        Some(moment) => Ok(Some(moment - died)),
        None => Ok(None),
    }
}
