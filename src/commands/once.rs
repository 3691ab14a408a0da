//! DONCE: work that is done once.
//!
//! ```text
//! DONCE.BEGIN key [MAX n] [EX s | PX ms] [BLOCK ms] [TOKEN t] [EPHEMERAL] [OWNER text]
//! DONCE.DONE  key token [RESULT value] [EX s | PX ms]
//! DONCE.FAIL  key token [REASON text]
//! DONCE.RELEASE | RENEW | CHECK | REVOKE | INFO      see `holding`
//! ```

use std::ffi::CStr;
use std::sync::Arc;

use super::acquire::acquire;
use super::holding::{self, Names};
use super::options::{self, Texts};
use super::{Outcome, conclude, once_settings, wrong_arity};
use crate::module::redis::args::Args;
use crate::module::redis::command::{Command, register};
use crate::module::redis::context::Ctx;
use crate::module::run::run;
use dsync_engine::Family;

/// What FAIL says where the worker does not.
const NO_REASON: &[u8] = b"failed";

struct Once;

impl Names for Once {
    const FAMILY: Family = Family::Once;
    const RELEASE: &'static CStr = c"DONCE.RELEASE";
    const RENEW: &'static CStr = c"DONCE.RENEW";
    const CHECK: &'static CStr = c"DONCE.CHECK";
    const REVOKE: &'static CStr = c"DONCE.REVOKE";
    const INFO: &'static CStr = c"DONCE.INFO";
}

pub(super) fn register_all(ctx: Ctx<'_>) -> Result<(), String> {
    register::<Begin>(ctx)?;
    register::<Done>(ctx)?;
    register::<Fail>(ctx)?;
    holding::register_all::<Once>(ctx)
}

struct Begin;

impl Command for Begin {
    const NAME: &'static CStr = c"DONCE.BEGIN";
    const FLAGS: &'static CStr = c"write deny-oom blocking";
    const HAS_KEY: bool = true;

    fn run(ctx: Ctx<'_>, args: Args<'_>) {
        conclude(ctx, acquire(ctx, &args, options::ONCE, Self::NAME));
    }
}

/// `DONCE.DONE key token [RESULT value] [EX s | PX ms]`: 1, or 0 where the token is not believed.
struct Done;

impl Command for Done {
    const NAME: &'static CStr = c"DONCE.DONE";
    const FLAGS: &'static CStr = c"write deny-oom";
    const HAS_KEY: bool = true;

    fn run(ctx: Ctx<'_>, args: Args<'_>) {
        conclude(ctx, done(ctx, &args));
    }
}

fn done(ctx: Ctx<'_>, args: &Args<'_>) -> Outcome {
    ctx.redact(2);
    let (Some(key), Some(text)) = (args.name(1), args.get(2)) else {
        return wrong_arity(Done::NAME);
    };
    let token = options::token(text)?;
    let settings = once_settings();
    let Texts {
        text: result,
        keep_ms,
    } = options::parse_result(args, 3, settings)?;
    let result = result.map(Arc::from);
    let believed = run(ctx, &key, |engine, key, now| {
        let keep_ms = keep_ms.unwrap_or(engine.settings.once_keep_ms);
        engine.complete(key, &token, result, keep_ms, now)
    });
    ctx.integer(i64::from(believed??));
    Ok(())
}

/// `DONCE.FAIL key token [REASON text]`: 1, or 0 where the token does not run.
struct Fail;

impl Command for Fail {
    const NAME: &'static CStr = c"DONCE.FAIL";
    const FLAGS: &'static CStr = c"write deny-oom";
    const HAS_KEY: bool = true;

    fn run(ctx: Ctx<'_>, args: Args<'_>) {
        conclude(ctx, fail(ctx, &args));
    }
}

fn fail(ctx: Ctx<'_>, args: &Args<'_>) -> Outcome {
    ctx.redact(2);
    let (Some(key), Some(text)) = (args.name(1), args.get(2)) else {
        return wrong_arity(Fail::NAME);
    };
    let token = options::token(text)?;
    let reason = options::parse_reason(args, 3, once_settings())?;
    let reason = Arc::from(reason.unwrap_or(NO_REASON));
    let ran = run(ctx, &key, |engine, key, now| {
        engine.fail(key, &token, reason, now)
    });
    ctx.integer(i64::from(ran??));
    Ok(())
}
