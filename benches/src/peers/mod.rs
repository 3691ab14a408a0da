//! `peers`: other ways to coordinate workers on the same server, each with its own published command sequence, beside
//! dsync.
//!
//! A *contest* is a number of workers that want one resource all the time, for a fixed length. Contests follow each
//! other, each on a server that was started for it, so none of them competes with another. A violation of the limit
//! by a peer is a result; one by dsync makes the run invalid, as does any wrong reply.
//!
//! Absent on purpose: targets. What a peer does with its own delays is shown, not judged.

pub mod contest;
mod crash;
mod library;
mod peer;
mod plot;
pub mod ports;
mod table;
pub mod visits;

use std::time::Duration;

use serde::Serialize;

use crate::bench::Bench;
use crate::invalid::{Invalid, Result};

pub use contest::Outcome;
pub use crash::Crash;
use peer::On;
pub use peer::{ALL, Peer, chosen};
pub use plot::draw;
pub use table::text;
use visits::Size;

/// What `peers` found.
#[derive(Default, Serialize)]
pub struct Findings {
    pub outcomes: Vec<Outcome>,
    pub crashes: Vec<Crash>,
}

/// All contests of a peer, and the crash of a holder. What was found before an error stays.
///
/// Each contest has a server of its own, because the last one leaves places in queues and tokens behind, for some time.
pub fn run(bench: &Bench, peer: &Peer, findings: &mut Findings) -> Result<()> {
    if let Some(reason) = peer.missing(bench)? {
        bench.note(format!("{}: left out, for {reason}", peer.name));
        return Ok(());
    }
    for size in sizes(bench, peer) {
        let outcome = contest::run(peer, &mut peer.side(bench)?, &size, bench)?;
        let violations = outcome.figures.violations;
        findings.outcomes.push(outcome);
        if peer.on == On::Module && violations > 0 {
            return Err(Invalid::new(format!(
                "dsync let in too many workers {violations} times"
            )));
        }
    }
    // What a crash leaves behind takes seconds to show: too long for a quick run, but for dsync's own.
    if !bench.is_quick() || peer.on == On::Module {
        let crash = crash::run(peer, &peer.side(bench)?, bench)?;
        findings.crashes.push(crash);
    }
    Ok(())
}

fn sizes(bench: &Bench, peer: &Peer) -> Vec<Size> {
    let lock = |workers| Size {
        workers,
        permits: None,
        inside: Duration::from_millis(1),
        length: Duration::from_millis(bench.size(3_000, 250)),
    };
    let workers: &[usize] = bench.size(&[1, 16, 64], &[4]);
    let mut sizes: Vec<Size> = workers.iter().map(|&workers| lock(workers)).collect();
    if peer.is_semaphore {
        sizes.push(Size {
            permits: Some(bench.size(8, 2)),
            inside: Duration::from_millis(5),
            ..lock(bench.size(32, 4))
        });
    }
    sizes
}
