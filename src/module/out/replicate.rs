//! Changes on their way to replicas and the AOF.
//!
//! ```text
//! DSYN key packed
//! ```
//!
//! All changes that one call made to one key travel in one command, so that nobody sees half of them. `packed` is a
//! packed string: see [`wire`]. A rewritten AOF has the same commands. How they are carried out is in
//! `commands::apply`.
//!
//! A release that ended the only hold of a lock, with nobody to hand it to, is passed on as it came instead:
//! `DLOCK.RELEASE key token`. It is as frequent as a grant, and to repeat it costs the server less than to make
//! and look up another command. It decides nothing elsewhere: there it stands for END and VANISH of the one hold
//! that has the token.
//!
//! The name is short because every grant of every lock pays for it: the server looks it up and writes it out.

use std::ffi::CStr;

use crate::module::redis::context::{Ctx, Level};
use crate::module::redis::name::KeyString;
use crate::module::{SHELL, listeners};
use dsync_engine::Family;
use dsync_engine::change::{Change, End};
use dsync_engine::wire;

/// The command that carries changes.
pub(crate) const STREAM: &CStr = c"DSYN";

pub(crate) fn replicate(ctx: Ctx<'_>, name: &KeyString<'_>, family: Family, changes: &[Change]) {
    if changes.is_empty() {
        return;
    }
    if says_it_all(family, changes) || listeners::is_silent(ctx) {
        return ctx.replicate_as_it_came();
    }
    let mut packed = SHELL.with(|shell| std::mem::take(&mut shell.packed));
    wire::pack(&mut packed, family, false, changes);
    if !ctx.replicate(STREAM, name, &packed) {
        ctx.log(Level::Warning, "the server refused to replicate a change");
    }
    SHELL.with(|shell| shell.packed = packed);
}

/// Whether the running command is a release of a lock, and this is all that it did. No other command, and no
/// timer, ends a hold of a lock as released.
fn says_it_all(family: Family, changes: &[Change]) -> bool {
    let [Change::End { how, .. }, Change::Vanish] = changes else {
        return false;
    };
    family == Family::Lock && *how == End::Released
}

/// Passes on a command that was applied here, because a replica may have an AOF and replicas of its own.
pub(crate) fn pass_on(ctx: Ctx<'_>, name: &KeyString<'_>, packed: &[u8]) {
    ctx.replicate(STREAM, name, packed);
}
