//! The settings: one table for redis.conf, CONFIG, the arguments of `loadmodule`, and the code.

use super::redis::args::Args;
use super::redis::config::{self, Hooks, Setting};
use super::redis::context::Ctx;
use super::{SHELL, Shell};
use crate::engine::types::LeaseMs;

/// What the commands need besides the engine's own settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseSettings {
    pub(crate) default_ms: u64,
    pub(crate) max_ms: u64,
}

impl Default for LeaseSettings {
    fn default() -> LeaseSettings {
        LeaseSettings {
            default_ms: 30_000,
            max_ms: 86_400_000,
        }
    }
}

impl LeaseSettings {
    /// The default is never more than the maximum, in whatever order the two were set.
    pub(crate) fn default_lease(self) -> LeaseMs {
        let ms = self.default_ms.min(self.max_ms);
        LeaseMs(u32::try_from(ms).unwrap_or(LeaseMs::MAX.0))
    }
}

/// What the commands of work-once need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnceSettings {
    pub(crate) max_result_bytes: u64,
}

impl Default for OnceSettings {
    fn default() -> OnceSettings {
        OnceSettings {
            max_result_bytes: 65_536,
        }
    }
}

const MINUTE: i64 = 60_000;
const DAY: i64 = 1_440 * MINUTE;

#[rustfmt::skip]
static TABLE: [Setting; 10] = [
    Setting { name: c"default-lease-ms",    default: 30_000,  min: 1,     max: 30 * DAY },
    Setting { name: c"max-lease-ms",        default: DAY,     min: 1,     max: 30 * DAY },
    Setting { name: c"rejoin-ms",           default: 2_000,   min: 0,     max: 10 * MINUTE },
    Setting { name: c"group-keep-ms",       default: MINUTE,  min: 0,     max: 30 * DAY },
    Setting { name: c"group-idle-ms",       default: DAY,     min: 1_000, max: 365 * DAY },
    Setting { name: c"takeover-grace-ms",   default: 5_000,   min: 0,     max: 60 * MINUTE },
    Setting { name: c"once-keep-ms",        default: DAY,     min: 1,     max: 3_650 * DAY },
    Setting { name: c"max-result-bytes",    default: 65_536,  min: 0,     max: 16 << 20 },
    Setting { name: c"max-waiters",         default: 100_000, min: 1,     max: 10_000_000 },
    Setting { name: c"max-waiters-per-key", default: 20_000,  min: 1,     max: 10_000_000 },
];

/// Where the value of a row lives.
fn value(shell: &mut Shell, row: usize) -> Option<&mut u64> {
    let engine = &mut shell.engine.settings;
    Some(match TABLE.get(row)?.name.to_bytes() {
        b"default-lease-ms" => &mut shell.leases.default_ms,
        b"max-lease-ms" => &mut shell.leases.max_ms,
        b"rejoin-ms" => &mut engine.rejoin_ms,
        b"group-keep-ms" => &mut engine.group_keep_ms,
        b"group-idle-ms" => &mut engine.group_idle_ms,
        b"takeover-grace-ms" => &mut engine.takeover_grace_ms,
        b"once-keep-ms" => &mut engine.once_keep_ms,
        b"max-result-bytes" => &mut shell.once.max_result_bytes,
        b"max-waiters" => &mut engine.max_waiters,
        b"max-waiters-per-key" => &mut engine.max_waiters_per_key,
        _ => return None,
    })
}

pub(super) fn register(ctx: Ctx<'_>, args: Args<'_>) -> Result<(), String> {
    let hooks = Hooks { get, set };
    config::register(ctx, &TABLE, args, hooks)
}

pub(crate) fn leases() -> LeaseSettings {
    SHELL.with(|shell| shell.leases)
}

pub(crate) fn once() -> OnceSettings {
    SHELL.with(|shell| shell.once)
}

fn get(row: usize) -> i64 {
    let value = SHELL.with(|shell| value(shell, row).map(|value| *value));
    value.map_or(0, |value| i64::try_from(value).unwrap_or(i64::MAX))
}

fn set(row: usize, to: i64) -> Result<(), String> {
    let to = u64::try_from(to).map_err(|_| format!("{to} is negative"))?;
    SHELL.with(|shell| {
        if let Some(value) = value(shell, row) {
            *value = to;
        }
    });
    Ok(())
}
