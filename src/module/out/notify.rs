//! Keyspace notifications of class `d`, for clients that subscribe to what happens to a key.
//!
//! `*.free` means that capacity was gained and no request is queued for it. Clients that share a connection, and so
//! cannot block, use it as a wake-up. Like all notifications of the server it can be lost.

use std::ffi::CStr;

use crate::module::redis::context::Ctx;
use crate::module::redis::name::KeyString;
use dsync_engine::Family;
use dsync_engine::change::{Change, End};

/// Sends the event of each change that has one.
pub(crate) fn changed(ctx: Ctx<'_>, name: &KeyString<'_>, family: Family, changes: &[Change]) {
    for change in changes {
        if let Some(event) = event(family, change) {
            ctx.notify(event, name);
        }
        if let Change::Rest { .. } = change {
            ctx.notify(rest(family), name);
        }
    }
}

/// The event of a hold that has ended, and whose place stays taken.
fn rest(family: Family) -> &'static CStr {
    match family {
        Family::Lock => c"dlock.rest",
        _ => c"dsem.rest",
    }
}

/// Sends the event that capacity was gained.
pub(crate) fn free(ctx: Ctx<'_>, name: &KeyString<'_>, family: Family) {
    ctx.notify(
        match family {
            Family::Lock => c"dlock.free",
            Family::Semaphore => c"dsem.free",
            Family::Group => c"dwg.free",
            Family::Once => c"donce.free",
        },
        name,
    );
}

/// The event of a change. Renewals, limits and the engine's own bookkeeping have none.
fn event(family: Family, change: &Change) -> Option<&'static CStr> {
    Some(match change {
        Change::Grant(_) => match family {
            Family::Lock => c"dlock.grant",
            Family::Semaphore => c"dsem.grant",
            Family::Group => c"dwg.add",
            Family::Once => c"donce.run",
        },
        Change::End { how, .. } | Change::Rest { how, .. } => return ended(family, *how),
        Change::Finish { .. } => c"dwg.finish",
        Change::Fail { .. } => c"donce.fail",
        Change::Complete { .. } => c"donce.done",
        _ => return None,
    })
}

fn ended(family: Family, how: End) -> Option<&'static CStr> {
    Some(match (family, how) {
        // It has ended before.
        (_, End::Rested) => return None,
        (Family::Group, End::Done) => c"dwg.done",
        (Family::Lock, End::Released | End::Undelivered | End::Done) => c"dlock.release",
        (Family::Semaphore, End::Released | End::Undelivered | End::Done) => c"dsem.release",
        (Family::Group, End::Released | End::Undelivered) => c"dwg.release",
        (Family::Once, End::Released | End::Undelivered | End::Done) => c"donce.release",
        // The end of an EPHEMERAL hold's connection is announced as a lapse.
        (Family::Lock, End::Lapsed | End::Disconnected) => c"dlock.lapse",
        (Family::Semaphore, End::Lapsed | End::Disconnected) => c"dsem.lapse",
        (Family::Group, End::Lapsed | End::Disconnected) => c"dwg.lapse",
        (Family::Once, End::Lapsed | End::Disconnected) => c"donce.lapse",
        (Family::Lock, End::Revoked) => c"dlock.revoke",
        (Family::Semaphore, End::Revoked) => c"dsem.revoke",
        (Family::Group, End::Revoked) => c"dwg.revoke",
        (Family::Once, End::Revoked) => c"donce.revoke",
    })
}
