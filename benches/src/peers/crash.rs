//! A holder dies inside: how long until the next one is in.
//!
//! A port's holder is dropped, which closes its connections; a library's process is killed with SIGKILL. To the server
//! that is the same. The hold has a lease of two seconds where the algorithm has leases, and nobody renews it any more.
//! The one who waits has asked long enough before that it waits as the algorithm waits.

use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::library::Driver;
use super::peer::{How, Peer};
use super::ports::{Algorithm, Terms};
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
    let lease_ms = bench.size(2_000, 1_000);
    let lease = Duration::from_millis(lease_ms);
    // Some look at the clock by the second, or sleep for one.
    let bound = 3 * lease;
    let next_after = match peer.how {
        How::Port(make) => {
            let worker = |worker| {
                make(&Terms {
                    port: side.server.port(),
                    worker,
                    tenant: 0,
                    permits: None,
                    lease_ms: Some(lease_ms),
                })
            };
            of_port(worker(0)?, worker(1)?, lease, bound)?
        }
        How::Library(language) => {
            let start = || Driver::hold(bench, language, peer.name, side.server.port(), lease_ms);
            of_library(start()?, start()?, lease, bound)?
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
    lease: Duration,
    bound: Duration,
) -> Result<Option<Duration>> {
    let asked = Instant::now();
    let dies = asked + WAITED;
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
        after(came_in, died, asked + lease)
    })
}

fn of_library(
    mut holder: Driver,
    mut next: Driver,
    lease: Duration,
    bound: Duration,
) -> Result<Option<Duration>> {
    holder.await_ready()?;
    next.await_ready()?;
    let asked = Instant::now();
    holder.go()?;
    if !holder.is_in_before(Instant::now() + bound)? {
        return Err(Invalid::new("the lock was not free"));
    }
    next.go()?;
    sleep(WAITED);
    let died = Instant::now();
    drop(holder);
    let is_in = next.is_in_before(died + bound)?;
    after(is_in.then(Instant::now), died, asked + lease)
}

/// From the death to the moment when the next one came in. Nobody may come in while the holder lives, unless the
/// machine stood still for so long that the lease ended before.
fn after(came_in: Option<Instant>, died: Instant, lease_ends: Instant) -> Result<Option<Duration>> {
    match came_in {
        Some(moment) if moment < died && moment < lease_ends => {
            Err(Invalid::new("two workers were inside at once"))
        }
        Some(moment) => Ok(Some(moment.saturating_duration_since(died))),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coming_in_beside_a_living_holder_is_refused() {
        let asked = Instant::now();
        let at = |ms| asked + Duration::from_millis(ms);
        let time = |came_in: Option<u64>| after(came_in.map(at), at(300), at(200));
        assert!(time(Some(199)).is_err());
        assert_eq!(time(Some(200)).unwrap(), Some(Duration::ZERO));
        assert_eq!(time(Some(350)).unwrap(), Some(Duration::from_millis(50)));
        assert_eq!(time(None).unwrap(), None);
    }
}
