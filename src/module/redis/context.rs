//! The context of a callback: its client, its database and its circumstances, and what a callback can do with the
//! server besides replying: replicate, log.

use std::ffi::CStr;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use redis_module::raw;

use super::api::{optional, required};
pub(crate) use super::facts::CtxFacts;
use super::guard;
use super::log::c_string;
pub(crate) use super::log::{Level, log};
use super::name::KeyString;

/// Valid only during the callback that got it. It cannot be kept or sent to another thread.
#[derive(Clone, Copy)]
pub(crate) struct Ctx<'a> {
    raw: *mut raw::RedisModuleCtx,
    lifetime: PhantomData<&'a ()>,
    kind: CtxKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CtxKind {
    /// The handler of a command, whose client can be parked.
    Command,
    /// Any other callback.
    Callback,
    /// A context of our own. A replicated command would stand outside of any unit of execution, which the server
    /// asserts against.
    Detached,
}

impl<'a> Ctx<'a> {
    /// # Safety
    /// `raw` must be the context of a callback that runs during all of `'a` under the server's global lock.
    pub(super) unsafe fn from_raw(raw: *mut raw::RedisModuleCtx) -> Self {
        Ctx {
            raw,
            lifetime: PhantomData,
            kind: CtxKind::Callback,
        }
    }

    /// # Safety
    /// As for [`from_raw`](Self::from_raw), and the callback must be the handler of a command.
    pub(super) unsafe fn of_command(raw: *mut raw::RedisModuleCtx) -> Self {
        Ctx {
            raw,
            lifetime: PhantomData,
            kind: CtxKind::Command,
        }
    }

    /// # Safety
    /// `raw` must be a detached context that lives for all of `'a`, and this thread must hold the server's global lock
    /// during that time.
    pub(super) unsafe fn detached(raw: *mut raw::RedisModuleCtx) -> Self {
        Ctx {
            raw,
            lifetime: PhantomData,
            kind: CtxKind::Detached,
        }
    }

    pub(super) fn is_command(self) -> bool {
        self.kind == CtxKind::Command
    }

    pub(super) fn raw(self) -> *mut raw::RedisModuleCtx {
        self.raw
    }

    /// The id of the client, which is never used again; `u64::MAX` while an AOF is loaded, 0 without a client.
    pub(crate) fn client_id(self) -> u64 {
        // SAFETY: the context is live, and RM_GetClientId only reads it.
        unsafe { required!(RedisModule_GetClientId)(self.raw) }
    }

    pub(crate) fn db(self) -> i32 {
        // SAFETY: the context is live, and RM_GetSelectedDb only reads it.
        unsafe { required!(RedisModule_GetSelectedDb)(self.raw) }
    }

    /// Returns false if there is no such database.
    pub(crate) fn select_db(self, db: i32) -> bool {
        // SAFETY: the context is live; RM_SelectDb refuses a number out of range.
        unsafe { required!(RedisModule_SelectDb)(self.raw, db) == raw::REDISMODULE_OK as i32 }
    }

    pub(crate) fn facts(self) -> CtxFacts {
        // SAFETY: the context is live, and RM_GetContextFlags only reads it.
        CtxFacts::from_bits(unsafe { required!(RedisModule_GetContextFlags)(self.raw) } as u32)
    }

    /// Whether replicating anything now would trip an assertion of the server: during CLIENT PAUSE WRITE, a failover or
    /// a shutdown.
    pub(crate) fn avoid_replica_traffic(self) -> bool {
        // SAFETY: RM_AvoidReplicaTraffic has no arguments and only reads the server's state, under the global lock.
        unsafe { required!(RedisModule_AvoidReplicaTraffic)() != 0 }
    }

    pub(crate) fn log(self, level: Level, text: &str) {
        let text = c_string(text);
        // SAFETY: the context is live, and RM_Log gets one C string for the one `%s` of its format.
        unsafe {
            required!(RedisModule_Log)(
                self.raw,
                level.name().as_ptr(),
                c"%s".as_ptr(),
                text.as_ptr(),
            );
        }
    }

    /// Sends `command name argument` to the AOF and the replicas when this callback ends.
    ///
    /// Calls the server whether anything listens or not: the call counts the change for the server's `save` points, and
    /// no flag of the server tells whether a replica is being synchronised now. Returns false if the server does not
    /// know the command.
    ///
    /// # Panics
    /// With the detached context, where the server would stop at an assertion.
    pub(crate) fn replicate(self, command: &CStr, name: &KeyString, argument: &[u8]) -> bool {
        assert!(
            self.kind != CtxKind::Detached,
            "nothing is replicated outside of a command or a timer"
        );
        // SAFETY: the context is live; RM_Replicate takes its own reference to the string object for `s`, and copies
        // the bytes given by pointer and length for `b`.
        let status = unsafe {
            required!(RedisModule_Replicate)(
                self.raw,
                command.as_ptr(),
                c"sb".as_ptr(),
                name.raw(),
                argument.as_ptr(),
                argument.len(),
            )
        };
        status == raw::REDISMODULE_OK as i32
    }

    /// Sends the running command, as the client sent it, to the AOF and the replicas when this callback ends.
    ///
    /// If nothing listens, it only counts a change for the server's `save` points. A timer has no command: it may call
    /// this only after it has found out, in the same callback, that the server has neither an AOF nor a backlog.
    pub(crate) fn replicate_as_it_came(self) {
        // SAFETY: the context is live; RM_ReplicateVerbatim copies the arguments of the context's client if the server
        // propagates anything (server.c, shouldPropagate): those of the running command, or none in a timer.
        unsafe { required!(RedisModule_ReplicateVerbatim)(self.raw) };
    }

    /// Aborts the MULTI of clients that WATCH the key, and invalidates the key in client-side caches.
    pub(crate) fn signal_modified(self, name: &KeyString) {
        // SAFETY: the context and the string object are live, and RM_SignalModifiedKey keeps neither.
        unsafe { required!(RedisModule_SignalModifiedKey)(self.raw, name.raw()) };
    }

    /// Hides one argument of the running command from MONITOR and SLOWLOG. Does nothing on a server that cannot.
    pub(crate) fn redact(self, arg_index: usize) {
        let (Some(redact), Ok(index)) = (
            optional!(RedisModule_RedactClientCommandArgument),
            i32::try_from(arg_index),
        ) else {
            return;
        };
        // SAFETY: the context is live; RM_RedactClientCommandArgument refuses an index out of range.
        unsafe { redact(self.raw, index) };
    }

    /// One number of the server's INFO. Too slow for every request, because the server composes the whole section.
    pub(crate) fn server_info_u64(self, section: &CStr, field: &CStr) -> Option<u64> {
        let mut missing = 0i32;
        // SAFETY: without a context, RM_GetServerInfo leaves its data to the caller, who frees it once with
        // RM_FreeServerInfo.
        let value = unsafe {
            let data = required!(RedisModule_GetServerInfo)(std::ptr::null_mut(), section.as_ptr());
            let value = required!(RedisModule_ServerInfoGetFieldUnsigned)(
                data,
                field.as_ptr(),
                &raw mut missing,
            );
            required!(RedisModule_FreeServerInfo)(std::ptr::null_mut(), data);
            value
        };
        (missing == 0).then_some(value)
    }

    /// How often the server's own cron runs in a second.
    pub(crate) fn hz(self) -> u64 {
        self.server_info_u64(c"server", c"hz").unwrap_or(10)
    }
}

/// A context of our own, for callbacks that get none from the server: a value that leaves its key, a client that
/// disconnects, a command filter. NULL before it is made.
///
/// It serves only to arm a timer, to subscribe to events and to log. It does not have a client's database, and such
/// callbacks come in the middle of other clients' commands, when nothing may be written.
static DETACHED: AtomicPtr<raw::RedisModuleCtx> = AtomicPtr::new(std::ptr::null_mut());

/// Makes the context while the module is loaded. It lives as long as the module.
pub(crate) fn make_detached(ctx: Ctx<'_>) {
    // SAFETY: the context is live; RM_GetDetachedThreadSafeContext returns another, which lives until it is freed.
    let detached = unsafe { required!(RedisModule_GetDetachedThreadSafeContext)(ctx.raw()) };
    DETACHED.store(detached, Relaxed);
}

/// Frees the context if the server refuses the module.
pub(crate) fn free_detached() {
    let detached = DETACHED.swap(std::ptr::null_mut(), Relaxed);
    if !detached.is_null() {
        // SAFETY: `make_detached` made this context, and the swap above makes sure that it is freed once and used no more.
        unsafe { required!(RedisModule_FreeThreadSafeContext)(detached) };
    }
}

/// Calls `body` with the context. Does nothing on a thread without the server's global lock.
pub(crate) fn with_detached(body: impl FnOnce(Ctx<'_>)) {
    let detached = DETACHED.load(Relaxed);
    // The server can free a value on a thread without the lock, where no context may be used.
    if !detached.is_null() && guard::is_inside() {
        // SAFETY: the context lives as long as the static has it, and `is_inside` shows that this thread holds the
        // server's global lock.
        body(unsafe { Ctx::detached(detached) });
    }
}
