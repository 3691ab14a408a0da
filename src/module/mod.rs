//! The shell: the only code that knows the server it runs in.
//!
//! [`run`] is the only way from a request or a timer into the engine; [`waiters`] is where clients wait;
//! [`tick`] and [`events`] are how time and the server come in. Everything unsafe is in [`redis`].
//!
//! This file has the [`Shell`], which all of them share, and nothing else. The root of the crate says what is
//! registered, and in which order.

pub(crate) mod arm;
pub(crate) mod cluster;
pub(crate) mod entropy;
pub(crate) mod events;
pub(crate) mod followed;
mod freed;
mod lease_clock;
mod listeners;
pub(crate) mod out;
pub(crate) mod redis;
pub(crate) mod reply;
pub(crate) mod run;
mod search;
pub(crate) mod settings;
pub(crate) mod tick;
pub(crate) mod values;
mod waiters;

pub(crate) use waiters::respond;

use followed::Load;
use lease_clock::LeaseClock;
use redis::clock;
use redis::context::Ctx;
use redis::gil::GilCell;
use settings::{LeaseSettings, OnceSettings};

use dsync_engine::Engine;
use dsync_engine::effect::Effects;
use dsync_engine::types::{LeaseUs, MonoUs, Now};

/// Everything the module knows.
pub(crate) struct Shell {
    pub(crate) engine: Engine,
    pub(crate) leases: LeaseSettings,
    pub(crate) once: OnceSettings,
    /// The loading of an AOF passes over changes that cannot be carried out.
    aof_skips_unapplied: bool,
    clock: LeaseClock,
    waiters: waiters::Waiters,
    /// In a cluster.
    node: Option<cluster::node::Node>,
    /// Writes are paused by CLIENT PAUSE, a failover or a shutdown: nothing may be propagated now.
    paused: bool,
    /// Writes are refused: too few good replicas, or the disk is full. See [`cluster`] for a cluster that is down.
    refused: bool,
    /// What is done when the timer fires: see [`arm::register`].
    tick: fn(Ctx<'_>),
    /// The monotonic moment for which the timer is armed.
    armed_us: Option<u64>,
    /// How often the timer has fired.
    timer_ticks: u64,
    /// The event loop has begun to turn, so the data have been loaded.
    turning: bool,
    journal: out::journal::Journal,
    /// Nobody listens to changes, so they are not replicated: see [`listeners`].
    nobody_listens: bool,
    /// Changes from a primary or from an AOF that could not be carried out.
    unapplied: u64,
    load: Load,
    search: search::Search,
    /// Buffers that are used again and again.
    spare_effects: Option<Effects>,
    packed: Vec<u8>,
}

/// The one shell, made on first use.
struct TheShell(GilCell<Option<Shell>>);

static SHELL: TheShell = TheShell(GilCell::new(None));

impl TheShell {
    fn with<R>(&self, body: impl FnOnce(&mut Shell) -> R) -> R {
        self.0
            .with(|shell| body(shell.get_or_insert_with(Shell::new)))
    }

    fn forget(&self) {
        let shell = self.0.with(Option::take);
        // Dropped after the borrow ends, because it may call the server.
        drop(shell);
    }

    fn try_with<R>(&self, body: impl FnOnce(&mut Shell) -> R) -> Option<R> {
        self.0
            .try_with(|shell| body(shell.get_or_insert_with(Shell::new)))
    }
}

/// Whether the server has turned its event loop with the module in it.
pub(crate) fn is_at_work() -> bool {
    SHELL.with(|shell| shell.turning)
}

/// Forgets everything when the server refuses the module.
pub(crate) fn forget() {
    SHELL.forget();
}

impl Shell {
    fn new() -> Shell {
        Shell {
            engine: Engine::default(),
            leases: LeaseSettings::default(),
            once: OnceSettings::default(),
            aof_skips_unapplied: false,
            clock: LeaseClock::new(clock::monotonic_us(), 100_000),
            waiters: waiters::Waiters::default(),
            node: None,
            paused: false,
            refused: false,
            tick: |_| (),
            armed_us: None,
            timer_ticks: 0,
            turning: false,
            journal: out::journal::Journal::default(),
            nobody_listens: false,
            unapplied: 0,
            load: Load::default(),
            search: search::Search::default(),
            spare_effects: None,
            packed: Vec::new(),
        }
    }

    fn is_held_up(&self) -> bool {
        self.paused || self.refused || cluster::node::is_down(self)
    }

    pub(crate) fn now(&self) -> Now {
        let mono_us = clock::monotonic_us();
        Now {
            lease: LeaseUs(self.clock.now_us(mono_us)),
            mono: MonoUs(mono_us),
            unix_us: clock::unix_us(),
            may_write: !self.is_held_up(),
        }
    }
}
