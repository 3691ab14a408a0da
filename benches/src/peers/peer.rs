//! The peers: how each waits, and the server that it is measured on.

use super::library::Language;
use super::ports::{
    Make, dsync, getset, locking_worker, rate_limiter, redisson, redisson_fair, semaphore_go,
    set_nx,
};
use crate::bench::{Bench, Side};
use crate::invalid::Result;
use crate::options::{Mode, Options};
use crate::server::Setting;

pub struct Peer {
    /// What ONLY names, and what the table shows.
    pub name: &'static str,
    /// How its workers wait for their turn.
    pub waiting: &'static str,
    pub how: How,
    pub on: On,
    pub is_semaphore: bool,
}

#[derive(Clone, Copy)]
pub enum How {
    Port(Make),
    /// The real library, in a program of its language.
    Library(Language),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// A server with the module: dsync itself.
    Module,
    Plain,
    /// A server that knows DELIFEQ.
    Native,
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
    pub fn side(&self, bench: &Bench) -> Result<Side> {
        match self.on {
            On::Module => bench.ours(Setting::Plain),
            On::Plain => bench.theirs(Setting::Plain),
            On::Native => bench.native(),
        }
    }

    /// Why the peer cannot run here.
    pub fn missing(&self, bench: &Bench) -> Result<Option<&'static str>> {
        if self.on == On::Native && !self.side(bench)?.knows_delifeq()? {
            return Ok(Some(
                "the server has no DELIFEQ; name a Valkey 9 in NATIVE_SERVER",
            ));
        }
        Ok(match self.how {
            How::Port(_) => None,
            How::Library(language) => language.missing(bench),
        })
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
