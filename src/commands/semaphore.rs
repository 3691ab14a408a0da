//! DSEM: semaphores.
//!
//! ```text
//! DSEM.ACQUIRE key [LIMIT n] [PERMITS n] [EX s | PX ms] [BLOCK ms] [TOKEN t] [EPHEMERAL] [OWNER text]
//! DSEM.LIMIT   key n | NONE
//! DSEM.RELEASE | RENEW | CHECK | REVOKE | INFO       see `holding`
//! ```

use std::ffi::CStr;

use super::acquire::acquire;
use super::holding::{self, Names};
use super::{Outcome, conclude, options, wrong_arity};
use crate::module::redis::args::Args;
use crate::module::redis::command::{Command, register};
use crate::module::redis::context::Ctx;
use crate::module::run::run;
use dsync_engine::Family;
use dsync_engine::types::MAX_PERMITS;

struct Semaphore;

impl Names for Semaphore {
    const FAMILY: Family = Family::Semaphore;
    const RELEASE: &'static CStr = c"DSEM.RELEASE";
    const RENEW: &'static CStr = c"DSEM.RENEW";
    const CHECK: &'static CStr = c"DSEM.CHECK";
    const REVOKE: &'static CStr = c"DSEM.REVOKE";
    const INFO: &'static CStr = c"DSEM.INFO";
}

pub(super) fn register_all(ctx: Ctx<'_>) -> Result<(), String> {
    register::<Acquire>(ctx)?;
    register::<Limit>(ctx)?;
    holding::register_all::<Semaphore>(ctx)
}

struct Acquire;

impl Command for Acquire {
    const NAME: &'static CStr = c"DSEM.ACQUIRE";
    const FLAGS: &'static CStr = c"write deny-oom blocking";
    const HAS_KEY: bool = true;

    fn run(ctx: Ctx<'_>, args: Args<'_>) {
        conclude(ctx, acquire(ctx, &args, options::SEMAPHORE, Self::NAME));
    }
}

/// `DSEM.LIMIT key n | NONE`: the limit in force before, or -1 where there was none.
struct Limit;

impl Command for Limit {
    const NAME: &'static CStr = c"DSEM.LIMIT";
    const FLAGS: &'static CStr = c"write deny-oom";
    const HAS_KEY: bool = true;

    fn run(ctx: Ctx<'_>, args: Args<'_>) {
        conclude(ctx, limit(ctx, &args));
    }
}

fn limit(ctx: Ctx<'_>, args: &Args<'_>) -> Outcome {
    let (3, Some(key), Some(text)) = (args.len(), args.name(1), args.get(2)) else {
        return wrong_arity(Limit::NAME);
    };
    let pinned = if text.eq_ignore_ascii_case(b"NONE") {
        None
    } else {
        Some(options::small(
            "the limit",
            "permits, or NONE",
            text,
            0,
            MAX_PERMITS,
        )?)
    };
    let before = run(ctx, &key, |engine, key, now| {
        engine.pin_limit(key, pinned, now)
    })??;
    ctx.integer(before.map_or(-1, i64::from));
    Ok(())
}
