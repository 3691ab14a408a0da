//! `peers`: other ways to coordinate workers on the same server, each with its own published command sequence, beside
//! dsync.
//!
//! A *contest* is a number of workers that want one resource all the time, for a fixed length. Contests follow each
//! other, each on a server that was started for it, so none of them competes with another. A violation of the limit
//! by a peer is a result; one by dsync makes the run invalid, as does any wrong reply.
//!
//! Absent on purpose: targets. What a peer does with its own delays is shown, not judged.

mod contest;
mod crash;
mod library;
mod plot;
mod ports;
mod table;
mod visits;

use std::time::Duration;

use serde::Serialize;

use crate::bench::{Bench, Side};
use crate::invalid::{Invalid, Result};
use crate::options::{Mode, Options};
use crate::server::Setting;

pub use contest::Outcome;
pub use crash::Crash;
use library::Language;
pub use plot::draw;
use ports::{
    Make, dsync, getset, locking_worker, rate_limiter, redisson, redisson_fair, semaphore_go,
    set_nx,
};
pub use table::text;

pub struct Peer {
    /// What ONLY names, and what the table shows.
    pub name: &'static str,
    /// How its workers wait for their turn.
    pub waiting: &'static str,
    how: How,
    on: On,
    is_semaphore: bool,
}

#[derive(Clone, Copy)]
enum How {
    Port(Make),
    /// The real library, in a program of its language.
    Library(Language),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    /// A server with the module: dsync itself.
    Module,
    Plain,
    /// A server that knows DELIFEQ.
    Native,
}

/// What `peers` found.
#[derive(Default, Serialize)]
pub struct Findings {
    pub outcomes: Vec<Outcome>,
    pub crashes: Vec<Crash>,
}

const fn port(name: &'static str, waiting: &'static str, make: Make) -> Peer {
    peer(name, waiting, How::Port(make))
}

const fn library(name: &'static str, waiting: &'static str, language: Language) -> Peer {
    peer(name, waiting, How::Library(language))
}

/// A lock on a server without the module.
const fn peer(name: &'static str, waiting: &'static str, how: How) -> Peer {
    Peer {
        name,
        waiting,
        how,
        on: On::Plain,
        is_semaphore: false,
    }
}

impl Peer {
    const fn on(self, on: On) -> Self {
        Self { on, ..self }
    }

    /// One that also grants permits.
    const fn semaphore(self) -> Self {
        Self {
            is_semaphore: true,
            ..self
        }
    }

    /// Starts the server that the peer is measured on.
    fn side(&self, bench: &Bench) -> Result<Side> {
        match self.on {
            On::Module => bench.ours(Setting::Plain),
            On::Plain => bench.theirs(Setting::Plain),
            On::Native => bench.native(),
        }
    }
}

pub const ALL: &[Peer] = &[
    port("dsync", "queue in the server", dsync::leased)
        .on(On::Module)
        .semaphore(),
    port("dsync-ephemeral", "queue in the server", dsync::ephemeral).on(On::Module),
    port("redigo-article", "retry after 100 ms", set_nx::article),
    port("redsync", "retry after 50..250 ms", set_nx::redsync),
    port("delifeq", "retry after 100 ms", set_nx::delifeq).on(On::Native),
    port("getset-article", "retry after 1 s", getset::make),
    port(
        "redis-locking-worker",
        "look after 5 s",
        locking_worker::make,
    ),
    port("redisson", "message to all", redisson::make),
    port("redisson-fair", "list, message to one", redisson_fair::make),
    port("redis-semaphore-go", "BLPOP of a token", semaphore_go::make).semaphore(),
    port(
        "redis-rate-limiter",
        "retry after 100 ms",
        rate_limiter::make,
    )
    .semaphore(),
    library("redis-py", "retry after 100 ms", Language::Python),
    library("python-redis-lock", "BLPOP of a signal", Language::Python),
    library("node-redlock", "retry after 0..400 ms", Language::Node),
    library("redis-semaphore", "retry after 10 ms", Language::Node).semaphore(),
];

/// The size of a contest.
struct Size {
    workers: usize,
    /// None for a lock.
    permits: Option<usize>,
    inside: Duration,
    length: Duration,
}

/// The peers that a run has. A quick run has the ports alone, for it installs nothing.
pub fn chosen(options: &Options) -> Vec<&'static Peer> {
    let is_chosen = |peer: &&Peer| {
        let is_named = options.only.iter().any(|name| name == peer.name);
        match options.mode {
            _ if is_named => true,
            Mode::Peers => options.only.is_empty(),
            Mode::Quick => options.only.is_empty() && matches!(peer.how, How::Port(_)),
            Mode::Full | Mode::Growth | Mode::Instructions => false,
        }
    };
    ALL.iter().filter(is_chosen).collect()
}

/// All contests of a peer, and the crash of a holder. What was found before an error stays.
///
/// Each contest has a server of its own, because the last one leaves places in queues and tokens behind, for some time.
pub fn run(bench: &Bench, peer: &Peer, findings: &mut Findings) -> Result<()> {
    if let Some(reason) = missing(bench, peer)? {
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

/// Why the peer cannot run here.
fn missing(bench: &Bench, peer: &Peer) -> Result<Option<&'static str>> {
    if peer.on == On::Native && !peer.side(bench)?.knows_delifeq()? {
        return Ok(Some(
            "the server has no DELIFEQ; name a Valkey 9 in NATIVE_SERVER",
        ));
    }
    Ok(match peer.how {
        How::Port(_) => None,
        How::Library(language) => language.missing(bench),
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_have_names_of_their_own() {
        let mut names: Vec<_> = ALL.iter().map(|peer| peer.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }

    #[test]
    fn quick_run_has_all_ports_and_needs_no_library() {
        let arguments = ["quick", "SERVER=/s", "MODULE=/m"].map(str::to_owned);
        let options = Options::read(arguments.into_iter(), |_| None).unwrap();
        let peers = chosen(&options);
        assert!(peers.iter().all(|peer| matches!(peer.how, How::Port(_))));
        let libraries = ALL
            .iter()
            .filter(|peer| matches!(peer.how, How::Library(_)));
        assert_eq!(peers.len() + libraries.count(), ALL.len());
    }
}
