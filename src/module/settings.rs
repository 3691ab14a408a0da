//! The settings: one table for redis.conf, CONFIG, the arguments of `loadmodule`, and the code.
//!
//! To add a setting, add a row to the table, say in `value_ref` where its value is, and describe it in docs/settings.md.
//! How the server gets the table is in `redis::config`.

use super::redis::args::Args;
use super::redis::config::{self, Checked, Setting, Values};
use super::redis::context::Ctx;
use super::{SHELL, Shell};
use dsync_engine::types::LeaseMs;

/// The lease that a request has which asks for none. The engine keeps all other settings of leases.
pub(super) const DEFAULT_LEASE_MS: u64 = 30_000;

/// The lease settings that the commands need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseSettings {
    default_ms: u64,
    pub(crate) max_ms: u64,
}

impl LeaseSettings {
    /// The lease of a request without EX or PX. Never longer than the maximum, in whatever order the two were set.
    pub(crate) fn default_lease(self) -> LeaseMs {
        let ms = self.default_ms.min(self.max_ms);
        LeaseMs(u32::try_from(ms).unwrap_or(LeaseMs::MAX.0))
    }
}

const MINUTE: i64 = 60_000;
const DAY: i64 = 1_440 * MINUTE;

#[rustfmt::skip]
static TABLE: [Setting; 12] = [
    // Name, default, min, max.
    Setting::number(c"default-lease-ms",    30_000,  1,     30 * DAY),
    Setting::number(c"max-lease-ms",        DAY,     1,     30 * DAY),
    Setting::number(c"rejoin-ms",           2_000,   0,     10 * MINUTE),
    Setting::number(c"group-keep-ms",       MINUTE,  0,     30 * DAY),
    Setting::number(c"group-idle-ms",       DAY,     1_000, 365 * DAY),
    Setting::number(c"takeover-grace-ms",   5_000,   0,     60 * MINUTE),
    Setting::number(c"once-keep-ms",        DAY,     1,     3_650 * DAY),
    Setting::number(c"max-result-bytes",    65_536,  0,     16 << 20),
    Setting::number(c"max-waiters",         100_000, 1,     10_000_000),
    Setting::number(c"max-waiters-per-key", 20_000,  1,     10_000_000),
    Setting::number(c"log-max-len",         128,     0,     10_000),
    Setting::yes_no(c"aof-skip-unapplied",  false),
];

/// The value of a setting, where it is kept.
enum ValueRef<'a> {
    Number(&'a mut u64),
    YesNo(&'a mut bool),
}

/// The value of this row of the table; None if there is no such row.
fn value_ref(shell: &mut Shell, row: usize) -> Option<ValueRef<'_>> {
    let engine = &mut shell.engine.settings;
    Some(ValueRef::Number(match TABLE.get(row)?.name.to_bytes() {
        b"default-lease-ms" => &mut shell.default_lease_ms,
        b"max-lease-ms" => &mut engine.max_lease_ms,
        b"rejoin-ms" => &mut engine.rejoin_ms,
        b"group-keep-ms" => &mut engine.group_keep_ms,
        b"group-idle-ms" => &mut engine.group_idle_ms,
        b"takeover-grace-ms" => &mut engine.takeover_grace_ms,
        b"once-keep-ms" => &mut engine.once_keep_ms,
        b"max-result-bytes" => &mut engine.max_result_bytes,
        b"max-waiters" => &mut engine.max_waiters,
        b"max-waiters-per-key" => &mut engine.max_waiters_per_key,
        b"log-max-len" => &mut shell.ends.max_len,
        b"aof-skip-unapplied" => return Some(ValueRef::YesNo(&mut shell.aof_skips_unapplied)),
        _ => return None,
    }))
}

/// Checks the arguments of `loadmodule`. Registers nothing yet.
pub(crate) fn check(args: Args<'_>) -> Result<Checked, String> {
    config::check(&TABLE, args)
}

/// Registers the settings with the server, which then sets each of them once.
pub(crate) fn register(ctx: Ctx<'_>, table: &Checked) -> Result<(), String> {
    config::register::<ShellValues>(ctx, table)
}

pub(crate) fn leases() -> LeaseSettings {
    SHELL.with(|shell| LeaseSettings {
        default_ms: shell.default_lease_ms,
        max_ms: shell.engine.settings.max_lease_ms,
    })
}

pub(crate) fn max_result_bytes() -> u64 {
    SHELL.with(|shell| shell.engine.settings.max_result_bytes)
}

/// Whether the loading of an AOF skips changes that cannot be applied.
pub(crate) fn aof_skips_unapplied() -> bool {
    SHELL.with(|shell| shell.aof_skips_unapplied)
}

/// The values, which the shell keeps.
struct ShellValues;

impl Values for ShellValues {
    fn get(row: usize) -> i64 {
        SHELL.with(|shell| match value_ref(shell, row) {
            Some(ValueRef::Number(value)) => i64::try_from(*value).unwrap_or(i64::MAX),
            Some(ValueRef::YesNo(value)) => i64::from(*value),
            None => 0,
        })
    }

    fn set(row: usize, to: i64) -> Result<(), String> {
        let number = u64::try_from(to).map_err(|_| format!("{to} is negative"))?;
        SHELL.with(|shell| {
            match value_ref(shell, row) {
                Some(ValueRef::Number(value)) => *value = number,
                Some(ValueRef::YesNo(value)) => *value = number != 0,
                None => {}
            }
            shell.ends.trim();
        });
        Ok(())
    }
}
