//! The shell: the engine, the clock that leases run on, and what the server refuses now.
//!
//! What one file alone needs to know is in that file, in a cell of its own.

use super::lease_clock::LeaseClock;
use super::redis::clock;
use super::redis::gil::GilCell;
use dsync_engine::Engine;
use dsync_engine::types::{LeaseUs, MonoUs, Now};

pub(crate) static SHELL: GilCell<Shell> = GilCell::new(Shell::new);

pub(crate) struct Shell {
    pub(crate) engine: Engine,
    pub(super) clock: LeaseClock,
    /// CLIENT PAUSE, a failover or a shutdown had paused writes when the server was last asked: by its cron, by a tick, or
    /// by a command for a key. While they are paused nothing may be replicated.
    pub(super) paused: bool,
    /// At the last probe the server refused writes: too few good replicas, or it had failed to save.
    pub(super) refused: bool,
    /// At the last probe the cluster was down, so this server serves nobody.
    pub(super) cluster_is_down: bool,
}

impl Shell {
    fn new() -> Shell {
        Shell {
            engine: Engine::default(),
            clock: LeaseClock::new(clock::monotonic_us(), 100_000),
            paused: false,
            refused: false,
            cluster_is_down: false,
        }
    }

    /// Whether nothing may be written now, so that no lease runs.
    pub(super) fn is_held_up(&self) -> bool {
        self.paused || self.refused || self.cluster_is_down
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
