//! The carrier: a client parked until we let it go.
//!
//! It is parked with RM_BlockClientOnKeys on a name that is never signalled, without a time-out,
//! and released with RM_UnblockClient: so the server itself answers MOVED, CLUSTERDOWN, a change of
//! role and CLIENT UNBLOCK as users expect. RM_BlockClient was rejected: on Redis 7.0 a CLIENT
//! UNBLOCK beside a grant leaves its client without a reply, on 7.2 it stops the server, and on
//! Valkey such clients outlive the loss of their slot.
//!
//! Which hook is called, in order. `left`: the server has replied an error, or the connection is
//! closed. `gone`: last of all, once for each parked client.
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
//! A closed connection is an event as well (`ServerEvent::Disconnected`, before `left`), and that
//! event alone tells it from one that stays open. In the last row CLIENT UNBLOCK … ERROR meets a
//! defect of those servers: its error comes after the answer (Redis) or in its place (Valkey 8.0),
//! and no hook tells.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::num::NonZeroU64;

use redis_module::raw;

use super::api::required;
use super::context::Ctx;
use super::gil::GilCell;
use super::guard::guard;
use super::late_release;
use super::name::KeyString;
use super::reply::Debt;

pub(crate) trait Hooks {
    /// Writes the one reply of this waiter: what was decided before `release`, or else that its
    /// wait is over. May run inside `release`, so hold no borrow there.
    fn answer(ctx: Ctx<'_>, waiter: NonZeroU64);
    /// May run in the middle of a script, and sees the role before a demotion: only memory may be
    /// touched.
    fn left(waiter: NonZeroU64);
    /// The number may be used again.
    fn gone(waiter: NonZeroU64);
}

/// All parked clients that are not gone, each with its handle until it is let go by anyone:
/// unblocking one a second time, from within its own answer or leaving, would write a second reply.
/// A handle found here is alive. A tree, since a hash table that doubles at 100,000 waiters would
/// stall the server.
static PARKED: GilCell<BTreeMap<NonZeroU64, Option<Handle>>> = GilCell::new(BTreeMap::new());

#[derive(Clone, Copy)]
struct Handle(*mut raw::RedisModuleBlockedClient);

// SAFETY: kept in a GilCell only: used under the server's global lock, whichever thread has it.
unsafe impl Send for Handle {}

/// The right to let one client go, once. It does nothing once the client has left or was answered;
/// to drop it is to release.
#[derive(Debug)]
#[must_use = "dropping it releases the client"]
pub(crate) struct ParkedClient {
    waiter: NonZeroU64,
}

/// Parks the client of the running command on the name `wait_on`. Reply nothing then:
/// `Hooks::answer` will.
///
/// `None`: it cannot wait here, it is parked already, or `waiter` is the number of one that is not
/// gone yet; nothing was replied.
pub(crate) fn park<H: Hooks>(
    ctx: Ctx<'_>,
    wait_on: &[u8],
    waiter: NonZeroU64,
) -> Option<ParkedClient> {
    let may_park = ctx.is_command() && late_release::none_parked() && ctx.facts().may_block();
    if !may_park || PARKED.with(|parked| parked.contains_key(&waiter)) {
        return None;
    }
    let name = KeyString::new(wait_on);
    let mut keys = [name.raw()];
    // SAFETY: the context of a command whose client is not blocked yet and may be: where it may not, the server would
    // reply and return a dead handle. RM_BlockClientOnKeys takes its own reference of the name. The callbacks are
    // functions of this library, and the private data is a number nobody dereferences. Valkey returns NULL for some
    // clients, without a reply.
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
    // SAFETY: the handle just returned.
    unsafe { required!(RedisModule_SetDisconnectCallback)(handle, Some(on_disconnect::<H>)) };
    PARKED.with(|parked| parked.insert(waiter, Some(Handle(handle))));
    late_release::parked(waiter);
    Debt::postpone();
    Some(ParkedClient { waiter })
}

impl ParkedClient {
    /// Decide the answer before; see the table above for when it is written.
    pub(crate) fn release(self) {}
}

impl Drop for ParkedClient {
    fn drop(&mut self) {
        if !late_release::takes(self.waiter) {
            unblock(self.waiter);
        }
    }
}

/// Lets a client go that may not be unblocked before the running command is over: see [`late_release`].
pub(super) fn unblock_next_turn(ctx: Ctx<'_>, waiter: NonZeroU64) {
    let data = std::ptr::without_provenance_mut(waiter.get() as usize);
    // SAFETY: a live context; the callback is a function of this library, and its data a number nobody
    // dereferences.
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
    // SAFETY: alive, see PARKED, and not unblocked by anyone yet.
    unsafe { required!(RedisModule_UnblockClient)(handle, std::ptr::null_mut()) };
}

/// The one who takes the handle releases the client, and no other can.
fn take_handle(waiter: NonZeroU64) -> Option<Handle> {
    PARKED
        .try_with(|parked| parked.get_mut(&waiter)?.take())
        .flatten()
}

/// # Safety
/// `ctx` is the context of a callback for a parked client.
unsafe fn waiter_of(ctx: *mut raw::RedisModuleCtx) -> Option<NonZeroU64> {
    // SAFETY: the caller's promise; the private data is the number given to RM_BlockClientOnKeys.
    let data = unsafe { required!(RedisModule_GetBlockedClientPrivateData)(ctx) };
    NonZeroU64::new(data.addr() as u64)
}

/// A client created the name that this client is parked on: it stays parked.
unsafe extern "C" fn on_ready(
    _: *mut raw::RedisModuleCtx,
    _: *mut *mut raw::RedisModuleString,
    _: i32,
) -> i32 {
    raw::REDISMODULE_ERR as i32
}

/// The reply path of a carrier, whether released by us or by CLIENT UNBLOCK … TIMEOUT.
unsafe extern "C" fn on_timeout<H: Hooks>(
    ctx: *mut raw::RedisModuleCtx,
    _: *mut *mut raw::RedisModuleString,
    _: i32,
) -> i32 {
    // SAFETY: the context of a parked client's callback, alive until this returns.
    let (waiter, ctx) = unsafe { (waiter_of(ctx), Ctx::from_raw(ctx)) };
    let debt = Debt::one();
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
    debt.pay(ctx);
    raw::REDISMODULE_OK as i32
}

unsafe extern "C" fn on_disconnect<H: Hooks>(
    ctx: *mut raw::RedisModuleCtx,
    _: *mut raw::RedisModuleBlockedClient,
) {
    // SAFETY: the context of a parked client's callback, alive until this returns.
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
