//! The context of a callback: who calls, in which database, under which circumstances, and what may
//! be told to others.

use std::ffi::CStr;
use std::marker::PhantomData;

use redis_module::raw;

use super::api::{optional, required};
pub(crate) use super::facts::CtxFacts;
use super::log::c_string;
pub(crate) use super::log::{Level, log};
use super::name::KeyString;
use super::open;

/// Valid for the callback it was given to: it cannot be kept, nor sent to another thread.
#[derive(Clone, Copy)]
pub(crate) struct Ctx<'a> {
    raw: *mut raw::RedisModuleCtx,
    lifetime: PhantomData<&'a ()>,
    kind: CtxKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CtxKind {
    /// Of a command, whose client can be parked.
    Command,
    /// Of any other callback.
    Callback,
    /// Our own: what is written with it would be propagated outside of any unit of execution.
    Detached,
}

impl<'a> Ctx<'a> {
    /// # Safety
    /// `raw` is the context of a callback that is running for all of `'a`, under the server's
    /// global lock.
    pub(super) unsafe fn from_raw(raw: *mut raw::RedisModuleCtx) -> Self {
        Ctx {
            raw,
            lifetime: PhantomData,
            kind: CtxKind::Callback,
        }
    }

    /// # Safety
    /// The same, and the callback is the handler of a command.
    pub(super) unsafe fn of_command(raw: *mut raw::RedisModuleCtx) -> Self {
        Ctx {
            raw,
            lifetime: PhantomData,
            kind: CtxKind::Command,
        }
    }

    /// # Safety
    /// `raw` is a detached context that lives for all of `'a`, which this thread spends under the server's
    /// global lock.
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

    /// The connection's number, never reused; `u64::MAX` while an AOF is loaded, 0 where there is
    /// no client.
    pub(crate) fn client_id(self) -> u64 {
        // SAFETY: a live context.
        unsafe { required!(RedisModule_GetClientId)(self.raw) }
    }

    pub(crate) fn db(self) -> i32 {
        // SAFETY: a live context.
        unsafe { required!(RedisModule_GetSelectedDb)(self.raw) }
    }

    /// False when there is no such database.
    pub(crate) fn select_db(self, db: i32) -> bool {
        // SAFETY: a live context; a number out of range is refused.
        unsafe { required!(RedisModule_SelectDb)(self.raw, db) == raw::REDISMODULE_OK as i32 }
    }

    pub(crate) fn facts(self) -> CtxFacts {
        // SAFETY: a live context.
        CtxFacts::from_bits(unsafe { required!(RedisModule_GetContextFlags)(self.raw) } as u32)
    }

    /// Whether anything propagated now would trip an assertion of the server: a pause, a failover,
    /// a shutdown in progress.
    pub(crate) fn avoid_replica_traffic(self) -> bool {
        // SAFETY: no argument, reads the server's state under the global lock.
        unsafe { required!(RedisModule_AvoidReplicaTraffic)() != 0 }
    }

    pub(crate) fn log(self, level: Level, text: &str) {
        let text = c_string(text);
        // SAFETY: a live context; one C string for one %s.
        unsafe {
            required!(RedisModule_Log)(
                self.raw,
                level.name().as_ptr(),
                c"%s".as_ptr(),
                text.as_ptr(),
            )
        }
    }

    /// Sends `command name argument` to the AOF and the replicas when this callback ends.
    ///
    /// Always made, also when nobody listens: it is what counts the change towards `save` points,
    /// and no flag tells whether a replica is being synchronised at this moment. False when the
    /// server does not know the command.
    ///
    /// # Panics
    /// With the detached context: the server would stop at an assertion.
    pub(crate) fn replicate(self, command: &CStr, name: &KeyString, argument: &[u8]) -> bool {
        assert!(
            self.kind != CtxKind::Detached,
            "nothing is replicated outside of a command or a timer"
        );
        // SAFETY: RM_Replicate takes a reference of its own to the string object of `s`, which needs no
        // copy of the name, and copies the bytes that the pair for `b` names.
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

    /// Sends the running command, as it came, to the AOF and the replicas when this callback ends.
    ///
    /// Where nobody listens, it counts a change for the server's `save` points and does nothing else. A timer
    /// has no command: there, find out in the same callback that the server has neither an AOF nor a backlog.
    pub(crate) fn replicate_as_it_came(self) {
        // SAFETY: a live context, whose client's arguments are copied if the server propagates anything
        // (server.c, shouldPropagate): those of the running command, or none in a timer.
        unsafe { required!(RedisModule_ReplicateVerbatim)(self.raw) };
    }

    /// Aborts the MULTI of those who WATCH the key and invalidates it in client-side caches.
    pub(crate) fn signal_modified(self, name: &KeyString) {
        // SAFETY: a live context and a live string object.
        unsafe { required!(RedisModule_SignalModifiedKey)(self.raw, name.raw()) };
    }

    /// A keyspace notification of class `d` in the selected database.
    ///
    /// # Panics
    /// While a key is open: other modules hear it, and may change what it refers to.
    pub(crate) fn notify(self, event: &CStr, name: &KeyString) {
        open::assert_none();
        // SAFETY: a live context, a C string, a live string object.
        unsafe {
            required!(RedisModule_NotifyKeyspaceEvent)(
                self.raw,
                raw::REDISMODULE_NOTIFY_MODULE,
                event.as_ptr(),
                name.raw(),
            )
        };
    }

    /// Keeps one argument of the running command out of MONITOR and SLOWLOG.
    pub(crate) fn redact(self, arg_index: usize) {
        let (Some(redact), Ok(index)) = (
            optional!(RedisModule_RedactClientCommandArgument),
            i32::try_from(arg_index),
        ) else {
            return;
        };
        // SAFETY: a live context; an index out of range is refused.
        unsafe { redact(self.raw, index) };
    }

    /// One number of INFO. Builds the whole section: not for a hot path.
    pub(crate) fn server_info_u64(self, section: &CStr, field: &CStr) -> Option<u64> {
        let mut missing = 0i32;
        // SAFETY: the data is ours from RM_GetServerInfo to RM_FreeServerInfo; without a context
        // nothing else frees it.
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

    /// How often the server's own cron runs a second.
    pub(crate) fn hz(self) -> u64 {
        self.server_info_u64(c"server", c"hz").unwrap_or(10)
    }
}
