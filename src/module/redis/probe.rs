//! Would the server let a client write here, now? Asked before every grant that no client's command
//! makes.
//!
//! The server answers by refusing, or not, a command that is flagged as a write and names the key. In
//! script mode RM_Call applies what it would to EVAL: `min-replicas-to-write`, MISCONF, a read-only
//! replica; and in a cluster whether the slot is served here and the key, while its slot migrates,
//! still is. RM_OpenKey checks none of that.
//!
//! Since Redis 7.2 there are dry runs: the server checks a command of its own, PERSIST, and does not run
//! it, so nobody sees or counts it. On Redis 7.0 a command of ours is run that does nothing: MONITOR and
//! SLOWLOG do not show it, commandstats count it. Nothing is propagated, for it changes nothing and is
//! called without `!`.

use std::ffi::CStr;
use std::io::{Error, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::api::{self, required};
use super::args::Args;
use super::call::CallReply;
use super::command::{self, Command};
use super::context::Ctx;
use super::open;

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
    const FLAGS: &'static CStr = c"write fast no-monitor no-slowlog";
    const HAS_KEY: bool = true;

    fn run(ctx: Ctx, _: Args) {
        ctx.simple(c"OK");
    }
}

/// Whether to ask by dry runs.
static DRY: AtomicBool = AtomicBool::new(false);

pub(crate) fn register(ctx: Ctx) -> Result<(), String> {
    let is_dry = !api::is_redis_before(0x0007_0200) && has_persist(ctx);
    DRY.store(is_dry, Relaxed);
    if is_dry {
        return Ok(());
    }
    command::register::<Probe>(ctx)
}

/// Whether this server has the command of our own.
pub(crate) fn is_a_command() -> bool {
    !DRY.load(Relaxed)
}

/// A server's commands can be renamed.
fn has_persist(ctx: Ctx) -> bool {
    !matches!(ask(ctx, true, b""), Err(ErrorKind::NotFound))
}

/// Of writes to this key; where there is no cluster, of writes in general. From a client's command there
/// is nothing to ask, the server has checked that one.
///
/// # Panics
/// While a key is open: other modules may filter the call.
pub(crate) fn writes_allowed(ctx: Ctx, key: &[u8]) -> WriteState {
    open::assert_none();
    match ask(ctx, DRY.load(Relaxed), key) {
        Ok(()) => WriteState::Ok,
        Err(reason) => refusal(reason),
    }
}

fn ask(ctx: Ctx, is_dry: bool, key: &[u8]) -> Result<(), ErrorKind> {
    // With `E`, which `D` implies, a refusal is a reply: without, Valkey 9 reads the words of a reply that
    // it has not made.
    let (command, format) = match is_dry {
        true => (c"PERSIST", c"SDb"),
        false => (Probe::NAME, c"SEb"),
    };
    // SAFETY: a live context with a client (each one a Ctx is made of has); `b` takes one pointer
    // and one length. The command does not block.
    let reply = unsafe {
        required!(RedisModule_Call)(
            ctx.raw(),
            command.as_ptr(),
            format.as_ptr(),
            key.as_ptr(),
            key.len(),
        )
    };
    // RM_Call names the reason of a refusal in errno.
    let reason = Error::last_os_error().kind();
    // SAFETY: what RM_Call has just returned.
    match unsafe { CallReply::owned(reply.cast()) } {
        Some(reply) if reply.is_error() => Err(reason),
        Some(_) => Ok(()),
        // A dry run that is not refused has no reply (but an empty one on Valkey 9).
        None if is_dry => Ok(()),
        None => Err(reason),
    }
}

fn refusal(kind: ErrorKind) -> WriteState {
    match kind {
        ErrorKind::PermissionDenied => WriteState::Moved,
        ErrorKind::NetworkDown | ErrorKind::ReadOnlyFilesystem => WriteState::ClusterDown,
        _ => WriteState::Refused,
    }
}
