//! Finds out whether the server would let a client write to a key now, and whether it would refuse a command for want
//! of memory. The timer asks the first before every grant.
//!
//! The module calls a command that is flagged as a write and names the key, and sees whether the server refuses it. In
//! script mode RM_Call checks the same as for EVAL: `min-replicas-to-write`, MISCONF, a read-only replica, and in a
//! cluster whether the slot is served here and, while it migrates, whether the key is still here. RM_OpenKey checks
//! none of that.
//!
//! Redis 7.2 and later have dry runs: the server checks its own command PERSIST and does not run it, so nothing shows
//! or counts it. On Redis 7.0 the module calls a command of its own that does nothing. MONITOR and SLOWLOG do not show
//! it, but commandstats count it. It is not replicated, because it changes nothing and is called without `!`.

use std::ffi::CStr;
use std::io::{Error, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::api::{self, required};
use super::args::Args;
use super::call::CallReply;
use super::command::{self, Command};
use super::context::Ctx;
use super::key::assert_none_open;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriteState {
    Ok,
    /// The slot belongs to another node, or it is migrating and the key has left.
    Moved,
    ClusterDown,
    /// Too few good replicas, a failed save or AOF write, or this is a replica. No event tells when that ends, so ask
    /// again later.
    Refused,
}

/// DSYNC.PROBE, the command of our own for Redis 7.0.
struct Probe;

impl Command for Probe {
    const NAME: &'static CStr = c"DSYNC.PROBE";
    const FLAGS: &'static CStr = c"write deny-oom fast no-monitor no-slowlog";
    const HAS_KEY: bool = true;

    fn run(ctx: Ctx, _: Args) {
        ctx.simple(c"OK");
    }
}

/// Whether this server has dry runs.
static DRY: AtomicBool = AtomicBool::new(false);

/// Finds out whether the server has dry runs, and registers DSYNC.PROBE if it does not.
pub(crate) fn register(ctx: Ctx) -> Result<(), String> {
    let is_dry = !api::is_redis_before(0x0007_0200) && has_persist(ctx);
    DRY.store(is_dry, Relaxed);
    if is_dry {
        return Ok(());
    }
    command::register::<Probe>(ctx)
}

/// Whether DSYNC.PROBE is registered on this server.
pub(crate) fn is_a_command() -> bool {
    !DRY.load(Relaxed)
}

/// Whether there is a command PERSIST: `rename-command` can take it away.
fn has_persist(ctx: Ctx) -> bool {
    !matches!(ask(ctx, true, b""), Err(ErrorKind::NotFound))
}

/// Returns whether the server accepts writes to this key, or outside of a cluster whether it accepts writes at all. A
/// client's command need not ask, because the server has checked it before.
///
/// # Panics
/// If a key is open, because other modules may filter the call and change the key.
pub(crate) fn writes_allowed(ctx: Ctx, key: &[u8]) -> WriteState {
    assert_none_open();
    match ask(ctx, DRY.load(Relaxed), key) {
        Ok(()) => WriteState::Ok,
        Err(reason) => refusal(reason),
    }
}

/// Returns whether the server refuses commands that need memory: what it found at the start of the running command,
/// script or transaction, after it had tried to evict keys. That is not what its flags say at this moment, so a
/// client is refused only when the server itself would refuse it. Ask only while the flags say that memory is short,
/// because this is slow.
///
/// # Panics
/// If a key is open.
pub(crate) fn denies_memory(ctx: Ctx, key: &[u8]) -> bool {
    assert_none_open();
    // SETNX is flagged as a command that needs memory, as DSYNC.PROBE is. If the server cannot be asked, its flags are
    // right.
    let answer = match DRY.load(Relaxed) {
        true => call(ctx, c"SETNX", c"MDbb", key),
        false => call(ctx, Probe::NAME, c"MEb", key),
    };
    answer.is_err()
}

fn ask(ctx: Ctx, is_dry: bool, key: &[u8]) -> Result<(), ErrorKind> {
    match is_dry {
        true => call(ctx, c"PERSIST", c"SDb", key),
        false => call(ctx, Probe::NAME, c"SEb", key),
    }
}

/// Calls a command about this key, and returns why the server refuses it. `format` has an `E`, or a `D`, which implies
/// it, to make a refusal a reply: without it Valkey 9 crashes, because it reads a reply that it has not made. It has a
/// `b` for the key, and may have a second one.
fn call(ctx: Ctx, command: &CStr, format: &CStr, key: &[u8]) -> Result<(), ErrorKind> {
    let is_dry = format.to_bytes().contains(&b'D');
    // SAFETY: the context is live and has a client, as that of every callback; for each `b` RM_Call reads one pointer
    // and one length, and there are two of each. The command does not block.
    let reply = unsafe {
        required!(RedisModule_Call)(
            ctx.raw(),
            command.as_ptr(),
            format.as_ptr(),
            key.as_ptr(),
            key.len(),
            key.as_ptr(),
            key.len(),
        )
    };
    // RM_Call leaves the reason of a refusal in errno: read it before anything else can change it.
    let reason = Error::last_os_error().kind();
    // SAFETY: RM_Call has just returned this reply, and it leaves freeing it to the caller.
    match unsafe { CallReply::owned(reply.cast()) } {
        Some(reply) if reply.is_error() => Err(reason),
        Some(_) => Ok(()),
        // A dry run that is not refused has no reply, or on Valkey 9 an empty one.
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
