//! The shell: the only code that knows the server it runs in.
//!
//! Requests and the timer's tasks reach the engine only through [`run`]. [`waiters`] has the clients that wait. The
//! timer calls [`tick`], and the server calls [`events`]. All unsafe code is in [`redis`].
//!
//! This file has only the [`Shell`], the state that all of them share. The root of the crate registers everything with
//! the server, in the right order.

pub(crate) mod arm;
mod beside_keys;
pub(crate) mod cluster;
pub(crate) mod entropy;
pub(crate) mod events;
pub(crate) mod followed;
mod freed;
mod lease_clock;
mod listeners;
mod loading;
pub(crate) mod out;
mod pace;
pub(crate) mod redis;
pub(crate) mod reply;
pub(crate) mod run;
mod search;
pub(crate) mod settings;
pub(crate) mod tick;
pub(crate) mod values;
pub(crate) mod version;
mod waiters;

pub(crate) use waiters::{release_after_reply, respond};

use followed::Load;
use lease_clock::LeaseClock;
use redis::clock;
use redis::context::Ctx;
use redis::gil::GilCell;

use dsync_engine::Engine;
use dsync_engine::effect::Effects;
use dsync_engine::types::{LeaseUs, MonoUs, Now};

/// The module's whole state, besides the few statics in [`redis`].
pub(crate) struct Shell {
    pub(crate) engine: Engine,
    default_lease_ms: u64,
    /// The loading of an AOF skips changes that cannot be applied.
    aof_skips_unapplied: bool,
    clock: LeaseClock,
    waiters: waiters::WaitingClients,
    /// Only in cluster mode.
    node: Option<cluster::node::ClusterNode>,
    /// CLIENT PAUSE, a failover or a shutdown had paused writes when the server was last asked: by its cron, by a tick, or
    /// by a command for a key. While they are paused nothing may be replicated.
    paused: bool,
    /// The server refuses writes: too few good replicas, or it failed to save. [`cluster`] knows of a cluster that is
    /// down.
    refused: bool,
    /// The function to call when the timer fires, see [`arm::register`].
    tick: fn(Ctx<'_>) -> bool,
    pace: pace::Pace,
    /// The monotonic moment for which the timer is armed.
    armed_us: Option<u64>,
    /// How often the timer has fired.
    timer_ticks: u64,
    /// The server is freeing the contents of a database, see [`freed`].
    is_flushing: bool,
    /// The server's cron has run, so the event loop turns: the server has loaded the module for good, and its data.
    turning: bool,
    journal: out::journal::Journal,
    announcer: out::announce::Announcer,
    ends: out::ends::EndLog,
    /// Changes need not be replicated, because nobody listens to them, see [`listeners`].
    nobody_listens: bool,
    /// The number of changes from a primary or from an AOF that could not be applied.
    unapplied: u64,
    /// The number of values that could not be loaded.
    refused_values: u64,
    /// The counts of the AOF that is being loaded, or was loaded last.
    load: Load,
    search: search::Search,
    /// Two buffers that are kept to be used again.
    spare_effects: Option<Effects>,
    packed: Vec<u8>,
}

/// The only shell, made on first use.
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

    /// None if this thread does not hold the server's lock, or a caller further up the stack uses the shell.
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
            default_lease_ms: settings::DEFAULT_LEASE_MS,
            aof_skips_unapplied: false,
            clock: LeaseClock::new(clock::monotonic_us(), 100_000),
            waiters: waiters::WaitingClients::default(),
            node: None,
            paused: false,
            refused: false,
            tick: |_| false,
            pace: pace::Pace::default(),
            armed_us: None,
            timer_ticks: 0,
            is_flushing: false,
            turning: false,
            journal: out::journal::Journal::default(),
            announcer: out::announce::Announcer::default(),
            ends: out::ends::EndLog::default(),
            nobody_listens: false,
            unapplied: 0,
            refused_values: 0,
            load: Load::default(),
            search: search::Search::default(),
            spare_effects: None,
            packed: Vec::new(),
        }
    }

    /// Whether nothing may be written now, so that no lease runs.
    fn is_held_up(&self) -> bool {
        self.paused || self.refused || cluster::node::is_down(self)
    }

    /// The present moment on all clocks, and whether the server accepts writes.
    pub(crate) fn now(&mut self) -> Now {
        let mono_us = clock::monotonic_us();
        let held_up = self.is_held_up();
        Now {
            lease: LeaseUs(self.clock.read(mono_us, held_up)),
            mono: MonoUs(mono_us),
            unix_us: clock::unix_us(),
            may_write: !held_up,
        }
    }
}
