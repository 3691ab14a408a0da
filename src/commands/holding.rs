//! The commands that all families share: what can be done with a hold, and the look at a key.
//!
//! ```text
//! RELEASE key token
//! RENEW   key token [EX seconds | PX milliseconds]
//! CHECK   key token
//! REVOKE  key fence
//! INFO    key [COUNT n]
//! ```

use std::ffi::CStr;
use std::marker::PhantomData;

use super::options::{number, parse_lease, parse_single, token};
use super::{Outcome, conclude, info, leases, wrong_arity};
use crate::module::redis::args::Args;
use crate::module::redis::command::{Command, register};
use crate::module::redis::context::Ctx;
use crate::module::reply::count;
use crate::module::run::{look, run};
use dsync_engine::Family;
use dsync_engine::types::Fence;

/// The names that the shared commands have in one family.
pub(super) trait Names {
    const FAMILY: Family;
    const RELEASE: &'static CStr;
    const RENEW: &'static CStr;
    const CHECK: &'static CStr;
    const REVOKE: &'static CStr;
    const INFO: &'static CStr;
}

pub(super) fn register_all<N: Names>(ctx: Ctx<'_>) -> Result<(), String> {
    register::<Release<N>>(ctx)?;
    register::<Renew<N>>(ctx)?;
    register::<Check<N>>(ctx)?;
    register::<Revoke<N>>(ctx)?;
    register::<Info<N>>(ctx)
}

const CHANGES: &CStr = c"write fast";
const LOOKS: &CStr = c"readonly fast";

macro_rules! command {
    ($(#[$doc:meta])* $type:ident, $name:ident, $flags:expr, $body:expr) => {
        $(#[$doc])*
        struct $type<N>(PhantomData<N>);

        impl<N: Names> Command for $type<N> {
            const NAME: &'static CStr = N::$name;
            const FLAGS: &'static CStr = $flags;
            const HAS_KEY: bool = true;

            fn run(ctx: Ctx<'_>, args: Args<'_>) {
                conclude(ctx, $body(ctx, &args, N::FAMILY, N::$name));
            }
        }
    };
}

command!(
    /// `RELEASE key token`: 1, or 0 where the token neither holds nor waits.
    Release, RELEASE, CHANGES, release
);
command!(
    /// `RENEW key token [EX s | PX ms]`: 1, or 0 where the hold is lost.
    Renew, RENEW, CHANGES, renew
);
command!(
    /// `CHECK key token`: milliseconds of lease left, 0 where it does not hold or is overdue.
    Check, CHECK, LOOKS, check
);
command!(
    /// `REVOKE key fence`: 1, or 0 where no hold has the fence.
    Revoke, REVOKE, CHANGES, revoke
);
command!(
    /// `INFO key [COUNT n]`: a map, or nil for an absent key.
    Info, INFO, LOOKS, info
);

fn release(ctx: Ctx<'_>, args: &Args<'_>, family: Family, name: &'static CStr) -> Outcome {
    ctx.redact(2);
    let (3, Some(key), Some(text)) = (args.len(), args.name(1), args.get(2)) else {
        return wrong_arity(name);
    };
    let token = token(text)?;
    let released = run(ctx, &key, |engine, key, now| {
        engine.release(key, family, &token, now)
    });
    ctx.integer(i64::from(released??));
    Ok(())
}

fn renew(ctx: Ctx<'_>, args: &Args<'_>, family: Family, name: &'static CStr) -> Outcome {
    ctx.redact(2);
    let (Some(key), Some(text)) = (args.name(1), args.get(2)) else {
        return wrong_arity(name);
    };
    let token = token(text)?;
    let lease = parse_lease(args, 3, leases())?;
    let renewed = run(ctx, &key, |engine, key, now| {
        engine.renew(key, family, &token, lease, now)
    });
    ctx.integer(i64::from(renewed??));
    Ok(())
}

fn check(ctx: Ctx<'_>, args: &Args<'_>, family: Family, name: &'static CStr) -> Outcome {
    ctx.redact(2);
    let (3, Some(key), Some(text)) = (args.len(), args.name(1), args.get(2)) else {
        return wrong_arity(name);
    };
    let token = token(text)?;
    let left_ms = look(ctx, &key, |engine, key, now| {
        engine.check(key, family, &token, now)
    });
    ctx.integer(count(left_ms??));
    Ok(())
}

fn revoke(ctx: Ctx<'_>, args: &Args<'_>, family: Family, name: &'static CStr) -> Outcome {
    let (3, Some(key), Some(text)) = (args.len(), args.name(1), args.get(2)) else {
        return wrong_arity(name);
    };
    let fence = Fence(number("a fence", "", text, 1, Fence::MAX.0)?);
    let revoked = run(ctx, &key, |engine, key, now| {
        engine.revoke(key, family, fence, now)
    });
    ctx.integer(i64::from(revoked??));
    Ok(())
}

fn info(ctx: Ctx<'_>, args: &Args<'_>, family: Family, name: &'static CStr) -> Outcome {
    let Some(key) = args.name(1) else {
        return wrong_arity(name);
    };
    let bounds = (1, info::MAX_COUNT);
    let shown = parse_single(args, 2, ("COUNT", "holders and waiters"), bounds)?;
    let shown = usize::try_from(shown.unwrap_or(info::DEFAULT_COUNT)).unwrap_or_default();
    look(ctx, &key, |engine, key, now| {
        engine
            .info(key, family, shown, now)
            .map(|found| info::reply(ctx, found.as_ref()))
    })??;
    Ok(())
}
