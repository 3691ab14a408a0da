//! Keyspace notifications, class `d`: what happened to a key, for clients that subscribe.
//!
//! `*.free` says that capacity was gained and nobody is queued for it: the wake-up for clients that share
//! a connection and therefore must not block. Like all of the server's notifications they can be lost.

use std::ffi::CStr;

use crate::module::redis::context::Ctx;
use crate::module::redis::name::KeyString;
use dsync_engine::Family;
use dsync_engine::change::{Change, End};

pub(crate) fn changed(ctx: Ctx<'_>, name: &KeyString<'_>, family: Family, changes: &[Change]) {
    for event in changes.iter().filter_map(|change| event(family, change)) {
        ctx.notify(event, name);
    }
}

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

/// The event of a change; renewals, limits and the engine's own bookkeeping have none.
fn event(family: Family, change: &Change) -> Option<&'static CStr> {
    Some(match change {
        Change::Grant(_) => match family {
            Family::Lock => c"dlock.grant",
            Family::Semaphore => c"dsem.grant",
            Family::Group => c"dwg.add",
            Family::Once => c"donce.run",
        },
        Change::End { how, .. } => ended(family, *how),
        Change::Finish { .. } => c"dwg.finish",
        Change::Fail { .. } => c"donce.fail",
        Change::Complete { .. } => c"donce.done",
        _ => return None,
    })
}

fn ended(family: Family, how: End) -> &'static CStr {
    match (family, how) {
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
    }
}
