//! Parks clients until the module releases them.
//!
//! A client is parked with RM_BlockClientOnKeys on a name that is never signalled, without a timeout, and released with
//! RM_UnblockClient. So the server itself replies MOVED, CLUSTERDOWN, a change of role and CLIENT UNBLOCK as users
//! expect. RM_BlockClient was rejected: on Redis 7.0 a CLIENT UNBLOCK in the turn of a grant leaves its client without
//! a reply, on 7.2 it stops the server, and on Valkey such clients stay parked when their slot moves away.
//!
//! The table shows which hooks are called, in order. `left` means that the server has replied an error or the
//! connection has closed. `gone` comes last of all, once for each parked client.
//!
//! | what happens | hooks |
//! |---|---|
//! | release, Redis 7.0, 7.2, Valkey | answer, inside `release`; gone, before the loop's next poll |
//! | release, Redis ≥ 7.4 | answer and gone, before the loop's next poll |
//! | CLIENT UNBLOCK … TIMEOUT | answer, with nothing decided; gone |
//! | closed, killed, CLIENT UNBLOCK … ERROR, MOVED, CLUSTERDOWN, demotion | left; gone |
//! | one of these after release, Redis ≥ 7.4 | left instead of answer; gone |
//! | one of these after release, the others | gone: the answer was written, perhaps for nobody |
//!
//! A client can be released by the same command that parks it, for example after a panic. On Redis 7.2 to unblock a client
//! within its own command stops the server at an assertion, because the command's duration is then recorded twice. So
//! such a release is deferred to the next turn of the event loop, on all servers alike (see [`Running`]).
//!
//! For a closed connection the event `ServerEvent::Disconnected` comes before `left`; only this event shows that the
//! connection does not stay open. In the last row CLIENT UNBLOCK … ERROR reveals a defect of those servers: its error
//! comes after the answer (Redis) or instead of it (Valkey 8.0), and no hook tells the module.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use redis_module::raw;

use super::api::{is_redis_before, is_valkey, required};
use super::context::Ctx;
use super::gil::GilCell;
use super::guard::guard;
use super::name::KeyString;
use super::reply::OwedReply;

/// What the server tells the module about a parked client.
pub(crate) trait Hooks {
    /// Writes the only reply of this waiter: what was decided before `release`, or otherwise that its wait is over. Can
    /// run inside `release`, so the caller of `release` must not hold a borrow.
    fn answer(ctx: Ctx<'_>, waiter: NonZeroU64);
    /// Can run in the middle of a script, and in a demotion before the role has changed, so it may only change memory.
    fn left(waiter: NonZeroU64);
    /// The waiter's number may be used again.
    fn gone(waiter: NonZeroU64);
}

/// All parked clients that are not gone. Each has its handle until anything releases it, because to unblock a client a
/// second time, from its own `answer` or `left`, would write a second reply. A handle found here is alive. A tree,
/// because a hash table that doubles at 100,000 waiters would stall the server.
static PARKED: GilCell<BTreeMap<NonZeroU64, Option<Handle>>> = GilCell::new(BTreeMap::new);

/// The waiter that the running command has parked, or 0. Used only under the server's global lock.
static PARKED_NOW: AtomicU64 = AtomicU64::new(0);
/// Whether that waiter was released already.
static RELEASED_EARLY: AtomicBool = AtomicBool::new(false);

#[derive(Clone, Copy)]
struct Handle(*mut raw::RedisModuleBlockedClient);

// SAFETY: handles are kept in a GilCell only, so they are used only under the server's global lock, on whichever thread
// has it.
unsafe impl Send for Handle {}

/// The right to release one parked client, once. To drop it is to release. Does nothing if the client has left or was
/// answered already.
#[derive(Debug)]
#[must_use = "dropping it releases the client"]
pub(crate) struct ParkedClient {
    waiter: NonZeroU64,
}

/// Parks the client of the running command on the name `wait_on`. The command must not reply then; `Hooks::answer`
/// will.
///
/// Returns `None`, and replies nothing, if the client cannot wait here, if it is parked already, or if a waiter with
/// this number is not gone yet.
pub(crate) fn park<H: Hooks>(
    ctx: Ctx<'_>,
    wait_on: &[u8],
    waiter: NonZeroU64,
) -> Option<ParkedClient> {
    let may_park = ctx.is_command() && PARKED_NOW.load(Relaxed) == 0 && ctx.facts().may_block();
    if !may_park || PARKED.with(|parked| parked.contains_key(&waiter)) {
        return None;
    }
    let name = KeyString::new(wait_on);
    let mut keys = [name.raw()];
    // SAFETY: the check above leaves the context of a command whose client is not blocked yet and may be. (For another
    // one the server would reply and return a dead handle.) RM_BlockClientOnKeys takes its own reference to the name.
    // The callbacks stay in memory, because a module with data types is not unloaded, and the private data is a number
    // that nothing dereferences. Valkey returns NULL for some clients, without a reply.
    let handle = unsafe {
        required!(RedisModule_BlockClientOnKeys)(
            ctx.raw(),
            Some(on_ready),
            Some(on_timeout::<H>),
            Some(on_free::<H>),
            0,
            keys.as_mut_ptr(),
            1,
            std::ptr::without_provenance_mut(waiter.get() as usize),
        )
    };
    if handle.is_null() {
        return None;
    }
    // SAFETY: RM_BlockClientOnKeys has just returned this handle.
    unsafe { required!(RedisModule_SetDisconnectCallback)(handle, Some(on_disconnect::<H>)) };
    PARKED.with(|parked| parked.insert(waiter, Some(Handle(handle))));
    PARKED_NOW.store(waiter.get(), Relaxed);
    OwedReply::postpone();
    Some(ParkedClient { waiter })
}

/// Whether the server writes the answers of released clients when it has carried out all commands of the turn (Redis ≥
/// 7.4), and not inside `release`.
pub(crate) fn answers_at_end_of_turn() -> bool {
    static ANSWERS: OnceLock<bool> = OnceLock::new();
    *ANSWERS.get_or_init(|| !is_valkey() && !is_redis_before(0x0007_0400))
}

impl ParkedClient {
    /// Releases the client. The answer must be decided before; the table at the top of this file shows when it is
    /// written.
    pub(crate) fn release(self) {}
}

impl Drop for ParkedClient {
    fn drop(&mut self) {
        if PARKED_NOW.load(Relaxed) == self.waiter.get() {
            RELEASED_EARLY.store(true, Relaxed);
        } else {
            unblock(self.waiter);
        }
    }
}

/// One run of a command. Keeps the values of the command further up the stack, if one called this one.
pub(super) struct Running {
    outer: (u64, bool),
}

impl Running {
    pub(super) fn begin() -> Self {
        let outer = (
            PARKED_NOW.swap(0, Relaxed),
            RELEASED_EARLY.swap(false, Relaxed),
        );
        Running { outer }
    }

    /// Has the deferred release done in the next turn of the event loop, if there is one.
    pub(super) fn end(self, ctx: Ctx<'_>) {
        let waiter = PARKED_NOW.swap(self.outer.0, Relaxed);
        let released_early = RELEASED_EARLY.swap(self.outer.1, Relaxed);
        if let Some(waiter) = NonZeroU64::new(waiter).filter(|_| released_early) {
            unblock_next_turn(ctx, waiter);
        }
    }
}

fn unblock_next_turn(ctx: Ctx<'_>, waiter: NonZeroU64) {
    let data = std::ptr::without_provenance_mut(waiter.get() as usize);
    // SAFETY: the context is live; the callback stays in memory, because a module with data types is not unloaded; its
    // data is a number that nothing dereferences.
    unsafe { required!(RedisModule_CreateTimer)(ctx.raw(), 0, Some(on_next_turn), data) };
}

unsafe extern "C" fn on_next_turn(_: *mut raw::RedisModuleCtx, data: *mut c_void) {
    guard(
        c"a late release",
        || (),
        || {
            if let Some(waiter) = NonZeroU64::new(data.addr() as u64) {
                unblock(waiter);
            }
        },
    );
}

fn unblock(waiter: NonZeroU64) {
    let Some(Handle(handle)) = take_handle(waiter) else {
        return;
    };
    // SAFETY: a handle from PARKED is alive, and nothing has unblocked it, because each handle is taken only once.
    unsafe { required!(RedisModule_UnblockClient)(handle, std::ptr::null_mut()) };
}

/// Takes the handle out of PARKED. Only the caller that gets it may unblock the client.
fn take_handle(waiter: NonZeroU64) -> Option<Handle> {
    PARKED
        .try_with(|parked| parked.get_mut(&waiter)?.take())
        .flatten()
}

/// # Safety
/// `ctx` must be the context of a callback for a parked client.
unsafe fn waiter_of(ctx: *mut raw::RedisModuleCtx) -> Option<NonZeroU64> {
    // SAFETY: the caller guarantees the context; the private data is the number given to RM_BlockClientOnKeys.
    let data = unsafe { required!(RedisModule_GetBlockedClientPrivateData)(ctx) };
    NonZeroU64::new(data.addr() as u64)
}

/// Called when a client creates the name that this client is parked on. Keeps it parked.
unsafe extern "C" fn on_ready(
    _: *mut raw::RedisModuleCtx,
    _: *mut *mut raw::RedisModuleString,
    _: i32,
) -> i32 {
    raw::REDISMODULE_ERR as i32
}

/// Called when the module or CLIENT UNBLOCK … TIMEOUT releases a client. Writes its reply.
unsafe extern "C" fn on_timeout<H: Hooks>(
    ctx: *mut raw::RedisModuleCtx,
    _: *mut *mut raw::RedisModuleString,
    _: i32,
) -> i32 {
    // SAFETY: the server keeps the context of a parked client's callback until this returns.
    let (waiter, ctx) = unsafe { (waiter_of(ctx), Ctx::from_raw(ctx)) };
    let owed = OwedReply::begin();
    if let Some(waiter) = waiter {
        guard(
            c"a waiter's answer",
            || (),
            || {
                take_handle(waiter);
                H::answer(ctx, waiter);
            },
        );
    }
    owed.complete(ctx);
    raw::REDISMODULE_OK as i32
}

unsafe extern "C" fn on_disconnect<H: Hooks>(
    ctx: *mut raw::RedisModuleCtx,
    _: *mut raw::RedisModuleBlockedClient,
) {
    // SAFETY: the server keeps the context of a parked client's callback until this returns.
    let waiter = unsafe { waiter_of(ctx) };
    if let Some(waiter) = waiter {
        guard(
            c"a waiter's leaving",
            || (),
            || {
                take_handle(waiter);
                H::left(waiter);
            },
        );
    }
}

unsafe extern "C" fn on_free<H: Hooks>(_: *mut raw::RedisModuleCtx, data: *mut c_void) {
    guard(
        c"a waiter's end",
        || (),
        || {
            let Some(waiter) = NonZeroU64::new(data.addr() as u64) else {
                return;
            };
            PARKED.with(|parked| parked.remove(&waiter));
            H::gone(waiter);
        },
    );
}
