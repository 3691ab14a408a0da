//! DWG: wait groups.
//!
//! ```text
//! DWG.ADD    key [LIMIT n] [EX s | PX ms] [BLOCK ms] [TOKEN t] [EPHEMERAL] [OWNER text]
//! DWG.DONE   key token [token ...]
//! DWG.WAIT   key [BLOCK ms]
//! DWG.EXPECT key n
//! DWG.RELEASE | RENEW | CHECK | REVOKE | INFO        see `holding`
//! ```

use std::ffi::CStr;

use super::acquire::{acquire, client, wait};
use super::holding::{self, Names};
use super::{Outcome, conclude, options, wrong_arity};
use crate::module::redis::args::Args;
use crate::module::redis::command::{Command, register};
use crate::module::redis::context::Ctx;
use crate::module::reply::count;
use crate::module::respond;
use crate::module::run::run;
use dsync_engine::Family;
use dsync_engine::types::{MAX_PERMITS, Token};

struct Group;

impl Names for Group {
    const FAMILY: Family = Family::Group;
    const RELEASE: &'static CStr = c"DWG.RELEASE";
    const RENEW: &'static CStr = c"DWG.RENEW";
    const CHECK: &'static CStr = c"DWG.CHECK";
    const REVOKE: &'static CStr = c"DWG.REVOKE";
    const INFO: &'static CStr = c"DWG.INFO";
}

pub(super) fn register_all(ctx: Ctx<'_>) -> Result<(), String> {
    register::<Add>(ctx)?;
    register::<Done>(ctx)?;
    register::<Wait>(ctx)?;
    register::<Expect>(ctx)?;
    holding::register_all::<Group>(ctx)
}

struct Add;

impl Command for Add {
    const NAME: &'static CStr = c"DWG.ADD";
    const FLAGS: &'static CStr = c"write deny-oom blocking";
    const HAS_KEY: bool = true;

    fn run(ctx: Ctx<'_>, args: Args<'_>) {
        conclude(ctx, acquire(ctx, &args, options::GROUP, Self::NAME));
    }
}

/// `DWG.DONE key token [token ...]`: how many members ended now.
struct Done;

impl Command for Done {
    const NAME: &'static CStr = c"DWG.DONE";
    const FLAGS: &'static CStr = c"write fast";
    const HAS_KEY: bool = true;

    fn run(ctx: Ctx<'_>, args: Args<'_>) {
        conclude(ctx, done(ctx, &args));
    }
}

fn done(ctx: Ctx<'_>, args: &Args<'_>) -> Outcome {
    (2..args.len()).for_each(|at| ctx.redact(at));
    let (Some(key), true) = (args.name(1), args.len() > 2) else {
        return wrong_arity(Done::NAME);
    };
    let tokens: Vec<Token> = args
        .iter()
        .skip(2)
        .map(options::token)
        .collect::<Result<_, _>>()?;
    let ended = run(ctx, &key, |engine, key, now| engine.done(key, &tokens, now))??;
    ctx.integer(count(ended));
    Ok(())
}

/// `DWG.WAIT key [BLOCK ms]`: `[done, lapsed]` of the finished round, or nil.
///
/// Flagged as a write, for it may find holds overdue, and their end is replicated: replicas refuse it.
struct Wait;

impl Command for Wait {
    const NAME: &'static CStr = c"DWG.WAIT";
    const FLAGS: &'static CStr = c"write blocking";
    const HAS_KEY: bool = true;

    fn run(ctx: Ctx<'_>, args: Args<'_>) {
        conclude(ctx, wait_for_all(ctx, &args));
    }
}

fn wait_for_all(ctx: Ctx<'_>, args: &Args<'_>) -> Outcome {
    let Some(key) = args.name(1) else {
        return wrong_arity(Wait::NAME);
    };
    let facts = ctx.facts();
    let block_ms = options::parse_block(args, 2)?.filter(|_| facts.may_block());
    let client = client(ctx, facts);
    let reply = run(ctx, &key, |engine, key, now| {
        engine.wait(key, block_ms.map(|ms| wait(ms, now)), client, now)
    })?;
    respond(ctx, key.bytes(), reply);
    Ok(())
}

/// `DWG.EXPECT key n`: how many jobs are still owed.
struct Expect;

impl Command for Expect {
    const NAME: &'static CStr = c"DWG.EXPECT";
    const FLAGS: &'static CStr = c"write deny-oom";
    const HAS_KEY: bool = true;

    fn run(ctx: Ctx<'_>, args: Args<'_>) {
        conclude(ctx, expect(ctx, &args));
    }
}

fn expect(ctx: Ctx<'_>, args: &Args<'_>) -> Outcome {
    let (3, Some(key), Some(text)) = (args.len(), args.name(1), args.get(2)) else {
        return wrong_arity(Expect::NAME);
    };
    let jobs = options::small("the total", "jobs", text, 1, MAX_PERMITS)?;
    let owed = run(ctx, &key, |engine, key, now| engine.expect(key, jobs, now))??;
    ctx.integer(count(owed));
    Ok(())
}
