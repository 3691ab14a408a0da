//! The way of a command into the engine: open the key, call the engine, carry out what follows, arm the timer.

use super::cluster::node;
use super::engine_call::{found, key_of, run_for_queue, run_opened};
use super::redis::context::Ctx;
use super::redis::key::OpenKey;
use super::redis::name::KeyString;
use super::shell::{SHELL, Shell};
use super::{tick, waiters};
use dsync_engine::types::Now;
use dsync_engine::{Engine, Look, Visit, WrongType};

/// Why the call of a command was not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotRun {
    /// Another server decides.
    ReadOnly,
    WrongType,
}

impl From<WrongType> for NotRun {
    fn from(WrongType: WrongType) -> NotRun {
        NotRun::WrongType
    }
}

/// Runs a command's call, which may change the key. The server has accepted the command, so it accepts writes now,
/// whatever the module last found out about that. Waiters that the call answers are released after the command's own
/// reply, see [`release_after_reply`](waiters::release_after_reply).
///
/// A replica runs no such call, also one with `replica-read-only no`, to which the server passes the commands of
/// clients: to decide there would end holds that the primary promises.
pub(crate) fn run<R>(
    ctx: Ctx<'_>,
    name: &KeyString<'_>,
    call: impl FnOnce(&mut Visit<'_>) -> R,
) -> Result<R, NotRun> {
    if !SHELL.with(|shell| shell.engine.is_serving()) {
        return Err(NotRun::ReadOnly);
    }
    node::make_slot_known(ctx, name.bytes());
    // Ask, because a pause may have ended since the cron last asked.
    let paused = ctx.avoid_replica_traffic();
    // `call` is there until it is made, and `result` counts from then on.
    let (mut call, mut result) = (Some(call), Err(NotRun::WrongType));
    // Forgetting is a step of its own, because the command may then make a key of another family under this name.
    let mut forgets = true;
    loop {
        let opened = OpenKey::open_write(ctx, name);
        let found = found(&opened)?;
        let key = key_of(ctx, name, found.state);
        let visited = run_opened(ctx, name, opened, found, |shell| {
            shell.paused = paused;
            let mut now = shell.now();
            now.may_write = true;
            shell.engine.visit(key, now, |visit| {
                if !(forgets && visit.perform_overdue())
                    && let Some(call) = call.take()
                {
                    result = Ok(call(visit));
                }
                now
            })
        });
        let now = visited.result;
        if call.is_none() {
            if let Some(us) = visited.comes_due {
                tick::arm_within(ctx, now, us);
            }
            return result;
        }
        tick::arm_from(ctx, now);
        forgets = false;
    }
}

/// Runs a call that applies what another server has decided. Forgets nothing before it, because that is for the other
/// server to decide: Valkey 9 streams a slot to a primary, where `run` would forget the key a step too early.
pub(super) fn run_followed<R>(
    ctx: Ctx<'_>,
    name: &KeyString<'_>,
    call: impl FnOnce(&mut Visit<'_>) -> R,
) -> Result<R, WrongType> {
    let opened = OpenKey::open_write(ctx, name);
    let found = found(&opened)?;
    let key = key_of(ctx, name, found.state);
    let mut now = SHELL.with(Shell::now);
    now.may_write = true;
    let visited = run_opened(ctx, name, opened, found, |shell| {
        shell.engine.visit(key, now, call)
    });
    waiters::release();
    tick::arm_from(ctx, now);
    Ok(visited.result)
}

/// [`run_followed`] for changes that concern the queue of a name only, whatever value the name has.
pub(super) fn run_followed_for_queue<R>(
    ctx: Ctx<'_>,
    name: &KeyString<'_>,
    call: impl FnOnce(&mut Visit<'_>) -> R,
) -> R {
    let now = SHELL.with(Shell::now);
    run_for_queue(ctx, name, |engine, key| engine.visit(key, now, call).result)
}

/// Runs a call that only reads one key.
pub(crate) fn look<R>(
    ctx: Ctx<'_>,
    name: &KeyString<'_>,
    call: impl FnOnce(Look<'_>) -> R,
) -> Result<R, WrongType> {
    look_opened(ctx, name, |_| None, |look, _| call(look))
}

/// [`look`] for calls that tell how long holds last. They also get the milliseconds until an EXPIRE that somebody has
/// set by hand removes the key with all holds.
pub(crate) fn look_at_leases<R>(
    ctx: Ctx<'_>,
    name: &KeyString<'_>,
    call: impl FnOnce(Look<'_>, Option<u64>) -> R,
) -> Result<R, WrongType> {
    look_opened(ctx, name, OpenKey::expires_in_ms, call)
}

fn look_opened<'c, R>(
    ctx: Ctx<'c>,
    name: &KeyString<'_>,
    expires_in_ms: impl FnOnce(&OpenKey<'c>) -> Option<u64>,
    call: impl FnOnce(Look<'_>, Option<u64>) -> R,
) -> Result<R, WrongType> {
    let opened = OpenKey::open_read(ctx, name);
    let state = found(&opened)?.state;
    let expires_in_ms = expires_in_ms(&opened);
    drop(opened);
    // A read is also served while writes are paused. Then it must not let the leases run.
    let paused = ctx.avoid_replica_traffic();
    Ok(SHELL.with(|shell| {
        shell.paused = paused;
        let now = shell.now();
        let key = key_of(ctx, name, state);
        shell.engine.open(key);
        call(shell.engine.look(key, now), expires_in_ms)
    }))
}

/// Runs a call that only reads, and is not about one key.
pub(crate) fn survey<R>(look: impl FnOnce(&Engine, Now) -> R) -> R {
    SHELL.with(|shell| {
        let now = shell.now();
        look(&shell.engine, now)
    })
}
