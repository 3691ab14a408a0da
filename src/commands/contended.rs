//! DSYNC.CONTENDED: where anybody waits, the longest wait first. The first thing to type when something
//! is stuck.
//!
//! ```text
//! DSYNC.CONTENDED [COUNT n]
//! ```
//!
//! Each entry is `[db, key, type, waiters, longest-wait-ms]`. It tells of all databases and keys, and is
//! an administrator's command for that.

use std::ffi::CStr;

use super::options::parse_single;
use super::{Outcome, conclude};
use crate::module::redis::args::Args;
use crate::module::redis::command::{Command, register};
use crate::module::redis::context::Ctx;
use crate::module::reply::count;
use crate::module::run::survey;
use dsync_engine::Family;

/// How many keys are listed, and how many may be asked for.
const DEFAULT_COUNT: u64 = 10;
const MAX_COUNT: u64 = 1_000;

pub(super) fn register_all(ctx: Ctx<'_>) -> Result<(), String> {
    register::<Contended>(ctx)
}

pub(super) struct Contended;

impl Command for Contended {
    const NAME: &'static CStr = c"DSYNC.CONTENDED";
    const FLAGS: &'static CStr = c"readonly admin";
    const HAS_KEY: bool = false;

    fn run(ctx: Ctx<'_>, args: Args<'_>) {
        conclude(ctx, contended(ctx, &args));
    }
}

fn contended(ctx: Ctx<'_>, args: &Args<'_>) -> Outcome {
    let shown = parse_single(args, 1, ("COUNT", "keys"), (1, MAX_COUNT))?;
    let shown = usize::try_from(shown.unwrap_or(DEFAULT_COUNT)).unwrap_or_default();
    survey(|engine, now| {
        let keys = engine.contended(shown, now);
        ctx.array(keys.len());
        for key in keys {
            ctx.array(5);
            ctx.integer(i64::from(key.db.0));
            ctx.bulk(key.name);
            ctx.bulk(word(key.family).as_bytes());
            ctx.integer(count(key.waiters as u64));
            ctx.integer(count(key.longest_ms));
        }
    });
    Ok(())
}

/// What the key is, in the word that its INFO uses.
fn word(family: Family) -> &'static str {
    match family {
        Family::Lock => "lock",
        Family::Semaphore => "semaphore",
        Family::Group => "group",
        Family::Once => "once",
    }
}
