//! Would the server let a client write here, now? Asked before every grant that no client's command
//! makes.
//!
//! The server answers by refusing, or not, a command of ours that does nothing but is flagged as a
//! write and names the key. In script mode RM_Call applies what it would to EVAL:
//! `min-replicas-to-write`, MISCONF, a read-only replica; and in a cluster whether the slot is
//! served here and the key, while its slot migrates, still is. RM_OpenKey checks none of that.
//! Nothing is propagated: the command changes nothing, and is called without `!`. MONITOR and
//! SLOWLOG do not show it.

use std::ffi::CStr;
use std::io::{Error, ErrorKind};

use super::api::required;
use super::args::Args;
use super::call::CallReply;
use super::command::{self, Command};
use super::context::Ctx;
use super::key;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriteState {
    Ok,
    /// The slot is another node's, or migrates and the key has left.
    Moved,
    ClusterDown,
    /// Too few good replicas, a failed save or AOF write, or this is a replica. No event tells when
    /// it ends: ask again.
    Refused,
}

struct Probe;

impl Command for Probe {
    const NAME: &'static CStr = c"DSYNC.PROBE";
    const FLAGS: &'static CStr = c"write fast no-mandatory-keys no-monitor no-slowlog";
    const HAS_KEY: bool = true;

    fn run(ctx: Ctx, _: Args) {
        ctx.simple(c"OK");
    }
}

pub(crate) fn register(ctx: Ctx) -> Result<(), String> {
    command::register::<Probe>(ctx)
}

/// Without a key: of writes in general. From a client's command there is nothing to ask, the server
/// has checked that one.
///
/// # Panics
/// While a key is open: other modules may filter the call.
pub(crate) fn writes_allowed(ctx: Ctx, key: Option<&[u8]>) -> WriteState {
    key::assert_none_open();
    let call = required!(RedisModule_Call);
    // With `E` a refusal is a reply: without, Valkey 9 reads the words of a reply that it has not made.
    // SAFETY: a live context with a client (each one a Ctx is made of has); `b` takes one pointer
    // and one length. The command does not block.
    let reply = unsafe {
        match key {
            Some(key) => call(
                ctx.raw(),
                Probe::NAME.as_ptr(),
                c"SEb".as_ptr(),
                key.as_ptr(),
                key.len(),
            ),
            None => call(ctx.raw(), Probe::NAME.as_ptr(), c"SE".as_ptr()),
        }
    };
    // RM_Call names the reason of a refusal in errno.
    let reason = Error::last_os_error().kind();
    // SAFETY: what RM_Call has just returned.
    match unsafe { CallReply::owned(reply.cast()) } {
        Some(reply) if !reply.is_error() => WriteState::Ok,
        _ => refusal(reason),
    }
}

fn refusal(kind: ErrorKind) -> WriteState {
    match kind {
        ErrorKind::PermissionDenied => WriteState::Moved,
        ErrorKind::NetworkDown | ErrorKind::ReadOnlyFilesystem => WriteState::ClusterDown,
        _ => WriteState::Refused,
    }
}
