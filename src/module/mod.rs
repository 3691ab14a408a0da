//! The shell: the only code that knows the server it runs in.
//!
//! [`run`] is the only way from a request or a timer into the engine; [`waiters`] is where clients wait;
//! [`timers`] and [`events`] are how time and the server come in. Everything unsafe is in [`redis`].

pub(crate) mod entropy;
mod events;
pub(crate) mod followed;
mod freed;
mod journal;
mod lease_clock;
mod listeners;
mod metrics;
mod node;
mod notify;
pub(crate) mod redis;
pub(crate) mod replicate;
pub(crate) mod reply;
pub(crate) mod run;
pub(crate) mod settings;
mod slots;
mod timers;
mod values;
mod waiters;

use followed::Load;
use lease_clock::LeaseClock;
use redis::args::Args;
use redis::context::Ctx;
use redis::gil::GilCell;
use redis::{clock, detached, probe};
use settings::{LeaseSettings, OnceSettings};

use dsync_engine::answer::Answer;
use dsync_engine::effect::Effects;
use dsync_engine::types::{LeaseUs, MonoUs, Now};
use dsync_engine::{Beginning, Engine, Reply};

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
    node: Option<node::Node>,
    /// Writes are paused: CLIENT PAUSE, a failover, a shutdown. Nothing may be propagated now.
    paused: bool,
    /// Writes are refused: too few good replicas, or the disk is full. See [`node`] for a cluster that is down.
    refused: bool,
    /// The monotonic moment for which the timer is armed.
    armed_us: Option<u64>,
    /// How often the timer has fired.
    timer_ticks: u64,
    /// The event loop has begun to turn: whatever was to be loaded at the start has been.
    turning: bool,
    journal: journal::Journal,
    /// Changes need not be written down: see [`listeners`].
    nobody_listens: bool,
    /// Changes from a primary or from an AOF that could not be carried out.
    unapplied: u64,
    load: Load,
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
        // Outside of the borrow.
        drop(shell);
    }

    fn try_with<R>(&self, body: impl FnOnce(&mut Shell) -> R) -> Option<R> {
        self.0
            .try_with(|shell| body(shell.get_or_insert_with(Shell::new)))
    }
}

/// Registers everything, while the server loads the module. What may refuse the module for what a user
/// wrote comes first, and what the server would go on calling after a refusal last.
pub(crate) fn load(ctx: Ctx<'_>, args: Args<'_>) -> Result<(), String> {
    let table = settings::check(args)?;
    detached::make(ctx);
    let sleep_us = timers::cron_period_us(ctx);
    SHELL.with(|shell| shell.clock.set_sleep(sleep_us));
    waiters::register();
    values::register(ctx)?;
    probe::register(ctx)?;
    crate::commands::register(ctx)?;
    metrics::register(ctx)?;
    settings::register(ctx, &table)?;
    journal::look_at_the_level(ctx);
    node::register(ctx);
    // Loaded into a running primary, it decides at once. Otherwise the data are yet to come.
    let facts = ctx.facts();
    if facts.is_primary() && !facts.loading() {
        events::take_over(ctx, Some(Beginning::Start));
    }
    node::overhear(ctx)?;
    events::register(ctx)
}

/// Undoes what [`load`] has done and the server would not undo by itself; whatever is left in memory, the
/// next load starts anew.
pub(crate) fn take_back(ctx: Ctx<'_>) {
    events::take_back(ctx);
    node::take_back(ctx);
    timers::disarm(ctx);
    detached::free();
    SHELL.forget();
}

/// Whether the server has turned its event loop with the module in it.
pub(crate) fn is_at_work() -> bool {
    SHELL.with(|shell| shell.turning)
}

/// Answers the request of the running command: now, or by letting its client wait.
pub(crate) fn respond(ctx: Ctx<'_>, key: &[u8], reply: Reply) {
    match reply {
        Reply::Now(answer) => reply::answer(ctx, &answer),
        Reply::Queued(waiter) => {
            // Some clients cannot be parked; theirs was a try, then.
            if !waiters::park(ctx, key, waiter) {
                reply::answer(ctx, &Answer::NotGranted);
                timers::arm(ctx);
            }
        }
    }
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
            armed_us: None,
            timer_ticks: 0,
            turning: false,
            journal: journal::Journal::default(),
            nobody_listens: false,
            unapplied: 0,
            load: Load::default(),
            spare_effects: None,
            packed: Vec::new(),
        }
    }

    fn is_held_up(&self) -> bool {
        self.paused || self.refused || node::is_down(self)
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
