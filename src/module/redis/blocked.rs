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
//! | closed behind its answer: QUIT, a broken request | answer; gone; then the connection's end |
//!
//! **When a reply is delivered.** `answer` only puts the reply into the client's output buffer, and a connection that is
//! closed at once loses that buffer. `gone` tells the two apart. All servers call it in `beforeSleep`, after the commands
//! of the turn and before they write what is in the buffers.
//!
//! - Before `gone` the client is blocked, so the server carries out nothing that it has sent behind its request. If the
//!   connection closes, the client has hung up or was killed, and has not read the reply.
//! - After `gone` the server carries out what the client has sent behind its request. QUIT and a broken request close the
//!   connection when the buffer is written (CLOSE_AFTER_REPLY), mostly in the same turn. The client has read the reply.
//! - A few closes after `gone` still lose the buffer: by CLIENT KILL that another client has sent behind its own wait, by
//!   output beyond its limit, or by `ACL DELUSER` earlier in the turn. A module cannot see that. These count as delivered:
//!   a hold that nobody knows of lapses, but two clients that have both read a grant work at the same time.
//! - While a script is busy, the server writes the buffers, and then notices connections that have closed, but it calls
//!   `gone` only after the script. So in a script what is answered ([`ParkedClients::is_answered`]) was written. Not
//!   noticed: a client that is killed in the same turn after such a script, and another module's RM_Yield.
//!
//! On Redis 7.2 to unblock a client within its own command stops the server at an assertion, because the command's
//! duration is then recorded twice. So no client is released while the command runs that has parked it, on all servers
//! alike (see [`Running`]).
//!
//! For a closed connection the event `ServerEvent::Disconnected` comes before `left`; only this event shows that the
//! connection does not stay open. In the last row CLIENT UNBLOCK … ERROR reveals a defect of those servers: its error
//! comes after the answer (Redis) or instead of it (Valkey 8.0), and no hook tells the module.

use std::ffi::c_void;
use std::num::NonZeroU64;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use dsync_numbered::Numbered;
use redis_module::raw;

use super::api::{is_redis_before, is_valkey, required};
use super::context::Ctx;
use super::gil::GilCell;
use super::guard::guard;
use super::name::KeyString;
use super::reply::OwedReply;

/// What the server tells the module about a parked client.
pub(crate) trait Hooks {
    type Answer: Send + 'static;

    /// The clients that are parked with these hooks.
    const PARKED: &'static ParkedClients<Self::Answer>;

    /// Writes the only reply of this waiter: what was decided before `release`, or otherwise that its wait is over. Can
    /// run inside `release`, so the caller of `release` must not hold a borrow.
    fn answer(ctx: Ctx<'_>, waiter: NonZeroU64, decided: Option<Self::Answer>);
    /// Can run in the middle of a script, and in a demotion before the role has changed, so it may only change memory.
    fn left(waiter: NonZeroU64, client_id: Option<u64>);
    /// The waiter's number may be used again. `decided_for` is its client if its answer was decided: the reply is
    /// delivered now, unless the client has left before.
    fn gone(waiter: NonZeroU64, decided_for: Option<u64>);
}

/// All parked clients that are not gone, and what was decided for them.
pub(crate) struct ParkedClients<A>(GilCell<Numbered<Parked<A>>>);

struct Parked<A> {
    /// Alive. There until anything releases the client, because to unblock it a second time, from its own `answer` or
    /// `left`, would write a second reply.
    handle: Option<Handle>,
    client_id: u64,
    /// From its decision until it is written.
    answer: Option<A>,
    is_decided: bool,
}

/// The waiter that the running command has parked, or 0. Used only under the server's global lock.
static PARKED_NOW: AtomicU64 = AtomicU64::new(0);

struct Handle(NonNull<raw::RedisModuleBlockedClient>);

// SAFETY: handles are kept in a GilCell only, so they are used only under the server's global lock, on whichever thread
// has it.
unsafe impl Send for Handle {}

/// Parks the client of the running command on the name `wait_on`. The command must not reply then; `Hooks::answer`
/// will.
///
/// Returns false, and replies nothing, if the client cannot wait here, if it is parked already, or if a waiter with
/// this number is not gone yet.
#[must_use]
pub(crate) fn park<H: Hooks>(ctx: Ctx<'_>, wait_on: &[u8], waiter: NonZeroU64) -> bool {
    let may_park = ctx.is_command() && PARKED_NOW.load(Relaxed) == 0 && ctx.facts().may_block();
    let parked = &H::PARKED.0;
    if !may_park || parked.with(|parked| parked.contains(waiter.get())) {
        return false;
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
    let Some(handle) = NonNull::new(handle) else {
        return false;
    };
    // SAFETY: RM_BlockClientOnKeys has just returned this handle.
    unsafe {
        required!(RedisModule_SetDisconnectCallback)(handle.as_ptr(), Some(on_disconnect::<H>));
    }
    let client = Parked {
        handle: Some(Handle(handle)),
        client_id: ctx.client_id(),
        answer: None,
        is_decided: false,
    };
    parked.with(|parked| parked.insert(waiter.get(), client));
    PARKED_NOW.store(waiter.get(), Relaxed);
    OwedReply::postpone();
    true
}

/// Whether the server writes the answers of released clients when it has carried out all commands of the turn (Redis ≥
/// 7.4), and not inside `release`.
pub(crate) fn answers_at_end_of_turn() -> bool {
    static ANSWERS: OnceLock<bool> = OnceLock::new();
    *ANSWERS.get_or_init(|| !is_valkey() && !is_redis_before(0x0007_0400))
}

impl<A: Send> ParkedClients<A> {
    pub(crate) const fn new() -> Self {
        ParkedClients(GilCell::new(Numbered::new))
    }

    /// Notes the answer of a waiter, which stays parked until it is released. Returns the id of its client, or `None` if
    /// it is gone.
    pub(crate) fn decide(&'static self, waiter: NonZeroU64, answer: A) -> Option<u64> {
        self.0.with(|parked| {
            let client = parked.get_mut(waiter.get())?;
            client.answer = Some(answer);
            client.is_decided = true;
            Some(client.client_id)
        })
    }

    /// Releases a client whose answer is decided; the table at the top of this file shows when the answer is written.
    /// Does nothing if the client has left or was answered already. Returns false if the command still runs that has
    /// parked it: release it later.
    #[must_use]
    pub(crate) fn release(&'static self, waiter: NonZeroU64) -> bool {
        if PARKED_NOW.load(Relaxed) == waiter.get() {
            return false;
        }
        let handle = |parked: &mut Numbered<Parked<A>>| parked.get_mut(waiter.get())?.handle.take();
        if let Some(Handle(handle)) = self.0.with(handle) {
            // SAFETY: the handle of a client that is not gone is alive, and nothing has unblocked it, because each
            // handle is taken only once.
            unsafe { required!(RedisModule_UnblockClient)(handle.as_ptr(), std::ptr::null_mut()) };
        }
        true
    }

    /// Returns whether the decided answer of a waiter is in the output of its client.
    pub(crate) fn is_answered(&'static self, waiter: NonZeroU64) -> bool {
        self.0.with(|parked| {
            let client = parked.get_mut(waiter.get());
            client.is_some_and(|client| client.is_decided && client.answer.is_none())
        })
    }

    /// Notes that the server has released the client, or that this module has, and returns what `of` takes of it.
    fn released<R>(
        &'static self,
        waiter: NonZeroU64,
        of: impl FnOnce(&mut Parked<A>) -> Option<R>,
    ) -> Option<R> {
        let released = self.0.try_with(|parked| {
            let client = parked.get_mut(waiter.get())?;
            client.handle = None;
            of(client)
        });
        released.flatten()
    }
}

/// One run of a command. Keeps the waiter of the command further up the stack, if one called this one.
pub(super) struct Running {
    outer: u64,
}

impl Running {
    pub(super) fn begin() -> Self {
        let outer = PARKED_NOW.swap(0, Relaxed);
        Running { outer }
    }

    pub(super) fn end(self) {
        PARKED_NOW.store(self.outer, Relaxed);
    }
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
                let decided = H::PARKED.released(waiter, |client| client.answer.take());
                H::answer(ctx, waiter, decided);
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
                let client_id = H::PARKED.released(waiter, |client| Some(client.client_id));
                H::left(waiter, client_id);
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
            let parked = H::PARKED.0.with(|parked| parked.remove(waiter.get()));
            let decided = parked.filter(|client| client.is_decided);
            H::gone(waiter, decided.map(|client| client.client_id));
        },
    );
}
