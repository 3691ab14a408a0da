//! The settings: one table for redis.conf, CONFIG, the arguments of `loadmodule`, and the code.
//!
//! To add a setting, add a row to the table, say in `with_value` where its value is, and describe it in docs/settings.md.
//! How the server gets the table is in `redis::config`.

use super::out::ends;
use super::redis::args::Args;
use super::redis::config::{self, Checked, Setting, Values};
use super::redis::context::Ctx;
use super::redis::gil::GilCell;
use super::shell::SHELL;
use dsync_engine::Settings;
use dsync_engine::types::LeaseMs;

/// The settings that neither the engine nor the log of ends keeps.
struct OwnSettings {
    default_lease_ms: u64,
    aof_skips_unapplied: bool,
}

static OWN: GilCell<OwnSettings> = GilCell::new(|| OwnSettings {
    default_lease_ms: 30_000,
    aof_skips_unapplied: false,
});

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

/// Gives the value of this row of the table to `body`; None if there is no such row.
fn with_value<R>(row: usize, body: impl FnOnce(ValueRef<'_>) -> R) -> Option<R> {
    match TABLE.get(row)?.name.to_bytes() {
        b"default-lease-ms" => {
            OWN.with(|own| Some(body(ValueRef::Number(&mut own.default_lease_ms))))
        }
        b"aof-skip-unapplied" => {
            OWN.with(|own| Some(body(ValueRef::YesNo(&mut own.aof_skips_unapplied))))
        }
        b"log-max-len" => Some(ends::with_max_len(|len| body(ValueRef::Number(len)))),
        name => SHELL.with(|shell| {
            let value = of_engine(&mut shell.engine.settings, name)?;
            Some(body(ValueRef::Number(value)))
        }),
    }
}

fn of_engine<'a>(settings: &'a mut Settings, name: &[u8]) -> Option<&'a mut u64> {
    Some(match name {
        b"max-lease-ms" => &mut settings.max_lease_ms,
        b"rejoin-ms" => &mut settings.rejoin_ms,
        b"group-keep-ms" => &mut settings.group_keep_ms,
        b"group-idle-ms" => &mut settings.group_idle_ms,
        b"takeover-grace-ms" => &mut settings.takeover_grace_ms,
        b"once-keep-ms" => &mut settings.once_keep_ms,
        b"max-result-bytes" => &mut settings.max_result_bytes,
        b"max-waiters" => &mut settings.max_waiters,
        b"max-waiters-per-key" => &mut settings.max_waiters_per_key,
        _ => return None,
    })
}

/// Checks the arguments of `loadmodule`. Registers nothing yet.
pub(crate) fn check(args: Args<'_>) -> Result<Checked, String> {
    config::check(&TABLE, args)
}

/// Registers the settings with the server, which then sets each of them once.
pub(crate) fn register(ctx: Ctx<'_>, table: &Checked) -> Result<(), String> {
    config::register::<TableValues>(ctx, table)
}

/// The lease of a request without EX or PX. Never longer than the maximum, in whatever order the two were set.
pub(crate) fn default_lease() -> LeaseMs {
    let ms = OWN.with(|own| own.default_lease_ms).min(max_lease_ms());
    LeaseMs(u32::try_from(ms).unwrap_or(LeaseMs::MAX.0))
}

pub(crate) fn max_lease_ms() -> u64 {
    SHELL.with(|shell| shell.engine.settings.max_lease_ms)
}

pub(crate) fn max_result_bytes() -> u64 {
    SHELL.with(|shell| shell.engine.settings.max_result_bytes)
}

/// How long a result is kept after a DONE that does not say so.
pub(crate) fn once_keep_ms() -> u64 {
    SHELL.with(|shell| shell.engine.settings.once_keep_ms)
}

/// Whether the loading of an AOF skips changes that cannot be applied.
pub(crate) fn aof_skips_unapplied() -> bool {
    OWN.with(|own| own.aof_skips_unapplied)
}

/// The values, by the rows of the table.
struct TableValues;

impl Values for TableValues {
    fn get(row: usize) -> i64 {
        let value = with_value(row, |value| match value {
            ValueRef::Number(value) => i64::try_from(*value).unwrap_or(i64::MAX),
            ValueRef::YesNo(value) => i64::from(*value),
        });
        value.unwrap_or_default()
    }

    fn set(row: usize, to: i64) -> Result<(), String> {
        let number = u64::try_from(to).map_err(|_| format!("{to} is negative"))?;
        with_value(row, |value| match value {
            ValueRef::Number(value) => *value = number,
            ValueRef::YesNo(value) => *value = number != 0,
        });
        Ok(())
    }
}
