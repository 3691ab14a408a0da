//! Sends changes to replicas and the AOF.
//!
//! ```text
//! DSYN key packed
//! ```
//!
//! All changes that one call made to one key travel in one command, so that nobody sees half of them; only what a later
//! version of the format brought has a command of its own behind it, in the same transaction. `packed` is a packed
//! string, see [`wire`]. A rewritten AOF has the same commands. `commands::apply` applies them.
//!
//! A release that ended the only hold of a lock and served no waiter is replicated as the client sent it instead:
//! `DLOCK.RELEASE key token`. It is as frequent as a grant, and to repeat it costs the server less than to make and
//! look up another command. The receiver decides nothing: for it the command means END and VANISH of the only hold
//! with this token. ARCHITECTURE.md says why that is safe.
//!
//! The name DSYN is short because it costs time at every grant: the server looks it up and writes it out.

use std::ffi::CStr;

use crate::module::listeners;
use crate::module::redis::context::{Ctx, Level};
use crate::module::redis::gil::GilCell;
use crate::module::redis::name::KeyString;
use dsync_engine::Family;
use dsync_engine::change::{Change, End};
use dsync_engine::wire;

/// The name of the command that carries changes.
pub(crate) const STREAM: &CStr = c"DSYN";

/// A buffer that is kept to be used again.
static PACKED: GilCell<Vec<u8>> = GilCell::new(Vec::new);

/// Replicates the changes of one call, if anything listens; otherwise only tells the server that something changed.
pub(crate) fn replicate(ctx: Ctx<'_>, name: &KeyString<'_>, family: Family, changes: &[Change]) {
    if changes.is_empty() {
        return;
    }
    if is_whole_release(family, changes) || listeners::is_silent() {
        return ctx.replicate_as_it_came();
    }
    PACKED.with(|packed| {
        for changes in wire::by_version(changes) {
            wire::pack(packed, family, false, changes);
            if !ctx.replicate(STREAM, name, packed) {
                ctx.log(Level::Warning, "the server refused to replicate a change");
            }
        }
    });
}

/// Whether the running command is a release of a lock, and these changes are all that it did. They show that, because
/// no other command and no timer ends a lock's hold as released.
fn is_whole_release(family: Family, changes: &[Change]) -> bool {
    let [Change::End { how, .. }, Change::Vanish] = changes else {
        return false;
    };
    family == Family::Lock && *how == End::Released
}

/// Passes on a DSYN that was applied here, because a replica can have an AOF and replicas of its own.
pub(crate) fn pass_on(ctx: Ctx<'_>, name: &KeyString<'_>, packed: &[u8]) {
    ctx.replicate(STREAM, name, packed);
}
