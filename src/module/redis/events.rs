//! The server's events and keyspace notifications, translated into one enum and given to one listener.
//!
//! The subscriptions use raw event numbers, because the `redis_module` crate lacks the events for clients, SWAPDB and
//! the event loop. Redis 7.0 and Valkey have all events that are used here, with the same numbers. Numbers from 18 on
//! mean different things (Redis 8.4: slot migration and trimming; Valkey: 18 authentication, 19 atomic slot migration),
//! and key events (17) exist only since 7.2, so none of these is used.
//!
//! When Redis 7.0 refuses a module it keeps the subscriptions, whose callbacks are then in an unloaded library. The
//! subscriptions to server events can be taken back. Those to keyspace notifications cannot, so they come last of all.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use redis_module::raw;

use super::api::required;
use super::context::Ctx;
use super::guard::guard;
use super::name::bytes_of;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LoadKind {
    Rdb,
    Aof,
    /// A full synchronisation from the primary.
    Replication,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ServerEvent {
    /// The server's cron ran. It runs `hz` times in a second, by the monotonic clock.
    Cron,
    /// The event loop is about to wait in poll. Nothing may be replicated now.
    BeforeSleep,
    /// The event loop has returned from poll.
    AfterSleep,
    /// A connection has closed. The event can come in the middle of a script, so the handler may only change memory.
    Disconnected {
        client_id: u64,
    },
    /// `None` means all databases.
    FlushStarted {
        db: Option<i32>,
    },
    /// `None` means all databases.
    FlushEnded {
        db: Option<i32>,
    },
    SwapDb {
        first: i32,
        second: i32,
    },
    NowPrimary,
    NowReplica,
    LoadingStarted(LoadKind),
    LoadingEnded,
    LoadingFailed,
    /// The server forked a child, which writes an RDB file, an AOF or a replica's snapshot.
    ChildBorn,
    ReplicaOnline,
    Shutdown,
    /// Some settings of the server were changed; the fields tell whether these are among them.
    ConfigChanged {
        loglevel: bool,
        hz: bool,
    },
}

/// Handles the events.
pub(crate) trait Listener {
    fn on_event(ctx: Ctx<'_>, event: ServerEvent);
    /// Handles a keyspace notification. Must not write, because replicas would get the write before the command that
    /// caused the notification.
    fn on_keyspace(ctx: Ctx<'_>, event: &[u8], db: i32, key: &[u8]);
}

/// The class of notifications for deleted, renamed and moved keys.
pub(crate) const CLASS_GENERIC: i32 = raw::REDISMODULE_NOTIFY_GENERIC;

const IDS: [u64; 11] = [
    raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
    raw::REDISMODULE_EVENT_FLUSHDB,
    raw::REDISMODULE_EVENT_LOADING,
    raw::REDISMODULE_EVENT_CLIENT_CHANGE,
    raw::REDISMODULE_EVENT_SHUTDOWN,
    raw::REDISMODULE_EVENT_CRON_LOOP,
    raw::REDISMODULE_EVENT_SWAPDB,
    raw::REDISMODULE_EVENT_EVENTLOOP,
    raw::REDISMODULE_EVENT_CONFIG,
    raw::REDISMODULE_EVENT_FORK_CHILD,
    raw::REDISMODULE_EVENT_REPLICA_CHANGE,
];

/// How many of [`IDS`], from the first on, are subscribed to.
static SUBSCRIBED: AtomicUsize = AtomicUsize::new(0);

/// Subscribes to all events. If the server refuses the module afterwards, call [`unsubscribe`].
pub(crate) fn subscribe<L: Listener>(ctx: Ctx) -> Result<(), String> {
    for (at, id) in IDS.into_iter().enumerate() {
        let event = raw::RedisModuleEvent { id, dataver: 1 };
        // SAFETY: the context is live; `unsubscribe` removes the callback before the server unloads this library.
        let status = unsafe {
            required!(RedisModule_SubscribeToServerEvent)(ctx.raw(), event, Some(on_event::<L>))
        };
        if status != raw::REDISMODULE_OK as i32 {
            return Err(format!("the server refused the subscription to event {id}"));
        }
        SUBSCRIBED.store(at + 1, Relaxed);
    }
    Ok(())
}

/// Takes back the subscriptions to events, if there are any.
pub(crate) fn unsubscribe(ctx: Ctx) {
    // Only those: to unsubscribe from an event without a subscription would subscribe a null callback.
    let count = SUBSCRIBED.swap(0, Relaxed);
    for id in &IDS[..count] {
        let event = raw::RedisModuleEvent {
            id: *id,
            dataver: 1,
        };
        // SAFETY: the context is live; without a callback RM_SubscribeToServerEvent removes the subscription.
        unsafe { required!(RedisModule_SubscribeToServerEvent)(ctx.raw(), event, None) };
    }
}

/// Subscribes to the keyspace notifications of these classes. To be called last, when nothing can refuse the module any
/// more, because this subscription cannot be taken back.
pub(crate) fn subscribe_keyspace<L: Listener>(ctx: Ctx, classes: i32) -> Result<(), String> {
    // SAFETY: the context is live. Redis 7.0 does not refuse the module after this, so the callback stays in memory;
    // later servers forget the callback before they unload this library.
    let status = unsafe {
        required!(RedisModule_SubscribeToKeyspaceEvents)(ctx.raw(), classes, Some(on_keyspace::<L>))
    };
    (status == raw::REDISMODULE_OK as i32)
        .then_some(())
        .ok_or_else(|| "the server refused the subscription to keyspace notifications".to_owned())
}

unsafe extern "C" fn on_event<L: Listener>(
    ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    guard(
        c"a server event",
        || (),
        || {
            // SAFETY: `data` is what the server passes with this event, as `translate` requires.
            let Some(event) = (unsafe { translate(event.id, subevent, data) }) else {
                return;
            };
            // SAFETY: the server keeps the context until this returns (module.c, moduleFireServerEvent).
            L::on_event(unsafe { Ctx::from_raw(ctx) }, event);
        },
    );
}

/// # Safety
/// `data` must be what the server's moduleFireServerEvent passes with event `id`: NULL, or the structure read here.
unsafe fn translate(id: u64, subevent: u64, data: *mut c_void) -> Option<ServerEvent> {
    let event = match id {
        raw::REDISMODULE_EVENT_CRON_LOOP => ServerEvent::Cron,
        raw::REDISMODULE_EVENT_EVENTLOOP => match subevent {
            raw::REDISMODULE_SUBEVENT_EVENTLOOP_BEFORE_SLEEP => ServerEvent::BeforeSleep,
            raw::REDISMODULE_SUBEVENT_EVENTLOOP_AFTER_SLEEP => ServerEvent::AfterSleep,
            _ => return None,
        },
        raw::REDISMODULE_EVENT_CLIENT_CHANGE => {
            if subevent != raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED {
                return None;
            }
            // SAFETY: the server passes a RedisModuleClientInfo with this event.
            let info = unsafe { data.cast::<raw::RedisModuleClientInfo>().as_ref() }?;
            ServerEvent::Disconnected { client_id: info.id }
        }
        raw::REDISMODULE_EVENT_FLUSHDB => {
            // SAFETY: the server passes a RedisModuleFlushInfo with this event.
            let info = unsafe { data.cast::<raw::RedisModuleFlushInfo>().as_ref() }?;
            let db = (info.dbnum >= 0).then_some(info.dbnum);
            match subevent {
                raw::REDISMODULE_SUBEVENT_FLUSHDB_START => ServerEvent::FlushStarted { db },
                raw::REDISMODULE_SUBEVENT_FLUSHDB_END => ServerEvent::FlushEnded { db },
                _ => return None,
            }
        }
        raw::REDISMODULE_EVENT_SWAPDB => {
            // SAFETY: the server passes a RedisModuleSwapDbInfo with this event.
            let info = unsafe { data.cast::<raw::RedisModuleSwapDbInfo>().as_ref() }?;
            ServerEvent::SwapDb {
                first: info.dbnum_first,
                second: info.dbnum_second,
            }
        }
        raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED => match subevent {
            raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER => ServerEvent::NowPrimary,
            raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_REPLICA => ServerEvent::NowReplica,
            _ => return None,
        },
        raw::REDISMODULE_EVENT_LOADING => match subevent {
            raw::REDISMODULE_SUBEVENT_LOADING_RDB_START => {
                ServerEvent::LoadingStarted(LoadKind::Rdb)
            }
            raw::REDISMODULE_SUBEVENT_LOADING_AOF_START => {
                ServerEvent::LoadingStarted(LoadKind::Aof)
            }
            raw::REDISMODULE_SUBEVENT_LOADING_REPL_START => {
                ServerEvent::LoadingStarted(LoadKind::Replication)
            }
            raw::REDISMODULE_SUBEVENT_LOADING_ENDED => ServerEvent::LoadingEnded,
            raw::REDISMODULE_SUBEVENT_LOADING_FAILED => ServerEvent::LoadingFailed,
            _ => return None,
        },
        raw::REDISMODULE_EVENT_FORK_CHILD => match subevent {
            raw::REDISMODULE_SUBEVENT_FORK_CHILD_BORN => ServerEvent::ChildBorn,
            _ => return None,
        },
        raw::REDISMODULE_EVENT_REPLICA_CHANGE => match subevent {
            raw::REDISMODULE_SUBEVENT_REPLICA_CHANGE_ONLINE => ServerEvent::ReplicaOnline,
            _ => return None,
        },
        raw::REDISMODULE_EVENT_SHUTDOWN => ServerEvent::Shutdown,
        raw::REDISMODULE_EVENT_CONFIG => {
            // SAFETY: the server passes a RedisModuleConfigChange with this event.
            let names = unsafe { changed_settings(data.cast::<raw::RedisModuleConfigChange>()) };
            let has = |name: &[u8]| names.iter().any(|changed| changed.to_bytes() == name);
            ServerEvent::ConfigChanged {
                loglevel: has(b"loglevel"),
                hz: has(b"hz") || has(b"dynamic-hz"),
            }
        }
        _ => return None,
    };
    Some(event)
}

/// # Safety
/// `change` must be NULL or a RedisModuleConfigChange of the server that lives for all of `'a`.
unsafe fn changed_settings<'a>(change: *const raw::RedisModuleConfigChange) -> Vec<&'a CStr> {
    // SAFETY: the structure has `num_changes` names, each a C string that lives as long as the structure (config.c,
    // configSetCommand).
    unsafe {
        let Some(change) = change.as_ref() else {
            return Vec::new();
        };
        (0..change.num_changes as usize)
            .map(|at| CStr::from_ptr(*change.config_names.add(at)))
            .collect()
    }
}

unsafe extern "C" fn on_keyspace<L: Listener>(
    ctx: *mut raw::RedisModuleCtx,
    _class: i32,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> i32 {
    guard(
        c"a keyspace notification",
        || (),
        || {
            // SAFETY: the server keeps the context, the event's name and the key's name until this returns.
            let (ctx, event, key) =
                unsafe { (Ctx::from_raw(ctx), CStr::from_ptr(event), bytes_of(key)) };
            L::on_keyspace(ctx, event.to_bytes(), ctx.db(), key);
        },
    );
    raw::REDISMODULE_OK as i32
}
