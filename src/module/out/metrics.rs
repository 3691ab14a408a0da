//! `INFO dsync`: which dsync this is, counters and present numbers.
//!
//! The server puts `dsync_` before every name. Counters count what this server has decided since it started, so a
//! replica counts only the changes that it could not apply.

use std::ffi::CString;

use super::journal;
use crate::module::redis::context::Ctx;
use crate::module::redis::info::{self, InfoSink, Section};
use crate::module::shell::{SHELL, Shell};
use crate::module::{followed, tick, version};
use dsync_engine::Family;
use dsync_engine::stats::{Counters, WAIT_BOUNDS_MS};

pub(crate) fn register(ctx: Ctx<'_>) -> Result<(), String> {
    info::register::<Metrics>(ctx)
}

/// The prefix of a family's fields, like that of its commands.
fn field_prefix(family: Family) -> &'static str {
    match family {
        Family::Lock => "lock",
        Family::Semaphore => "sem",
        Family::Group => "wg",
        Family::Once => "once",
    }
}

/// A counter's name in INFO, and how to read it.
type Counter = (&'static str, fn(&Counters) -> u64);

/// The counters that each family has.
const COUNTERS: [Counter; 11] = [
    ("granted_at_once", |c| c.granted_at_once),
    ("granted_after_wait", |c| c.granted_after_wait),
    ("released", |c| c.released),
    ("lapsed", |c| c.lapsed),
    ("lapsed_unrenewed", |c| c.lapsed_unrenewed),
    ("revoked", |c| c.revoked),
    ("disconnected", |c| c.disconnected),
    ("undelivered", |c| c.undelivered),
    ("wait_timeouts", |c| c.wait_timeouts),
    ("wait_disconnects", |c| c.wait_disconnects),
    ("limit_changes", |c| c.limit_changes),
];

struct Metrics;

impl Section for Metrics {
    fn write(sink: &mut InfoSink) {
        if sink.section(c"") {
            for (name, text) in [(c"version", version::VERSION), (c"commit", version::COMMIT)] {
                if let Ok(text) = CString::new(text) {
                    sink.text(name, &text);
                }
            }
            SHELL.with(|shell| write_fields(shell, sink));
        }
    }
}

fn write_fields(shell: &mut Shell, sink: &mut InfoSink) {
    let now = shell.now();
    let engine = &shell.engine;
    let stats = engine.stats();
    let mut field = |name: &str, value: u64| {
        if let Ok(name) = CString::new(name) {
            sink.u64(&name, value);
        }
    };
    let sum_of_families = |of: &dyn Fn(Family) -> u64| Family::ALL.into_iter().map(of).sum::<u64>();
    field("holds", sum_of_families(&|family| engine.holds(family)));
    field("resting", engine.resting());
    field("lanes", engine.lanes());
    field("waiters", sum_of_families(&|family| engine.waiting(family)));
    field("longest_wait_ms", engine.longest_wait_ms(now));
    for family in Family::ALL {
        let prefix = field_prefix(family);
        field(&format!("{prefix}_holds"), engine.holds(family));
        field(&format!("{prefix}_waiters"), engine.waiting(family));
        for (name, counter) in COUNTERS {
            field(&format!("{prefix}_{name}"), counter(stats.counters(family)));
        }
    }
    // Cumulative, as monitoring systems expect of a histogram: each field counts all waits up to its bound.
    let mut up_to = 0;
    for (bound_ms, count) in WAIT_BOUNDS_MS.iter().zip(stats.wait_times.classes) {
        up_to += count;
        field(&format!("wait_le_{bound_ms}_ms"), up_to);
    }
    field("wait_count", stats.wait_times.classes.iter().sum());
    field("wait_total_ms", stats.wait_times.total_ms);
    field("last_fence", engine.fences().last().0);
    field("heard_fence", engine.fences().highest_heard().0);
    field("unapplied_changes", followed::unapplied());
    field("refused_values", journal::refused_values());
    field("timer_ticks", tick::times_fired());
}
