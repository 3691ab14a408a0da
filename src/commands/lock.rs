//! DLOCK: locks.
//!
//! ```text
//! DLOCK.ACQUIRE key [SHARED] [EX s | PX ms] [BLOCK ms] [TOKEN t] [EPHEMERAL] [OWNER text]
//! DLOCK.RELEASE | RENEW | CHECK | REVOKE | INFO      see `holding`
//! ```

use std::ffi::CStr;

use super::acquire::acquire;
use super::holding::{self, Names};
use super::{conclude, options};
use crate::module::redis::args::Args;
use crate::module::redis::command::{Command, register};
use crate::module::redis::context::Ctx;
use dsync_engine::Family;

struct Lock;

impl Names for Lock {
    const FAMILY: Family = Family::Lock;
    const RELEASE: &'static CStr = c"DLOCK.RELEASE";
    const RENEW: &'static CStr = c"DLOCK.RENEW";
    const CHECK: &'static CStr = c"DLOCK.CHECK";
    const REVOKE: &'static CStr = c"DLOCK.REVOKE";
    const INFO: &'static CStr = c"DLOCK.INFO";
}

pub(super) fn register_all(ctx: Ctx<'_>) -> Result<(), String> {
    register::<Acquire>(ctx)?;
    holding::register_all::<Lock>(ctx)
}

struct Acquire;

impl Command for Acquire {
    const NAME: &'static CStr = c"DLOCK.ACQUIRE";
    const FLAGS: &'static CStr = c"write deny-oom blocking";
    const HAS_KEY: bool = true;

    fn run(ctx: Ctx<'_>, args: Args<'_>) {
        conclude(ctx, acquire(ctx, &args, options::LOCK, Self::NAME));
    }
}
