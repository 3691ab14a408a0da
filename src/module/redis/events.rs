//! The server's events, translated into one enum and given to one listener.
//!
//! The subscriptions use raw event numbers, because the `redis_module` crate lacks the events for clients, SWAPDB and
//! the event loop. Redis 7.0 and Valkey have all events that are used here, with the same numbers. Numbers from 18 on
//! mean different things (Redis 8.4: slot migration and trimming; Valkey: 18 authentication, 19 atomic slot migration),
//! and of these only trimming is used, on Redis. Key events (17) exist only since 7.2.
//!
//! When Redis 7.0 refuses a module it keeps the subscriptions, whose callbacks are then in an unloaded library. So each
//! subscription can be taken back.
//!
//! Rejected: keyspace notifications, which would tell of RENAME and MOVE. That subscription cannot be taken back, and for
//! it the server builds a context at every SET, DEL and EXPIRE of everybody.

use std::ffi::{CStr, c_void};
use std::ops::RangeInclusive;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::Relaxed};
use std::{ptr, slice};

use redis_module::raw;

use super::api::{is_redis_before, is_valkey, required};
use super::context::Ctx;
use super::guard::guard;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LoadKind {
    Rdb,
    Aof,
    /// A full synchronisation from the primary.
    Replication,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ServerEvent {
    /// The server's cron ran. It runs `hz` times in a second, by the monotonic clock.
    Cron,
    /// The event loop has returned from poll, so a new turn begins. Reported once after each [`await_next_turn`].
    AfterSleep,
    /// All commands of the turn are carried out, and the event loop will ask for the replies of released clients.
    /// Reported once after each [`await_end_of_turn`].
    TurnEnds,
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
    /// Redis removes all keys of these slots, which another node owns, in one step: no callback says that a value has left
    /// its key. Where Redis removes them key by key, the callbacks do.
    SlotsTrimmed(Vec<RangeInclusive<u16>>),
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
        maxmemory_policy: bool,
        port: bool,
    },
}

/// Handles the events.
pub(crate) trait Listener {
    fn on_event(ctx: Ctx<'_>, event: ServerEvent);
}

/// The events that are subscribed to at all times.
const IDS: [u64; 10] = [
    raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
    raw::REDISMODULE_EVENT_FLUSHDB,
    raw::REDISMODULE_EVENT_LOADING,
    raw::REDISMODULE_EVENT_CLIENT_CHANGE,
    raw::REDISMODULE_EVENT_SHUTDOWN,
    raw::REDISMODULE_EVENT_CRON_LOOP,
    raw::REDISMODULE_EVENT_SWAPDB,
    raw::REDISMODULE_EVENT_CONFIG,
    raw::REDISMODULE_EVENT_FORK_CHILD,
    raw::REDISMODULE_EVENT_REPLICA_CHANGE,
];

/// The first Redis that trims slots.
const TRIMS_SINCE: i32 = 0x0008_0400;

/// The events that this server has of those that are subscribed to at all times.
fn ids() -> impl Iterator<Item = u64> {
    let trims = !is_valkey() && !is_redis_before(TRIMS_SINCE);
    let trimming = trims.then_some(raw::REDISMODULE_EVENT_CLUSTER_SLOT_MIGRATION_TRIM);
    IDS.into_iter().chain(trimming)
}

/// How many of [`ids`], from the first on, are subscribed to.
static SUBSCRIBED: AtomicUsize = AtomicUsize::new(0);

type Callback =
    unsafe extern "C" fn(*mut raw::RedisModuleCtx, raw::RedisModuleEvent, u64, *mut c_void);

/// The callback of all subscriptions, from the first of them on.
static CALLBACK: OnceLock<Callback> = OnceLock::new();

/// Whether there is a subscription to the turns of the event loop.
static WATCHES_TURNS: AtomicBool = AtomicBool::new(false);

/// Whether the next turn is to be reported.
static NEXT_IS_AWAITED: AtomicBool = AtomicBool::new(false);

/// Whether the end of a turn was awaited since [`stop_watching_if_unused`] last asked.
static END_WAS_AWAITED: AtomicBool = AtomicBool::new(false);

/// Whether the end of this turn comes after what is carried out now, see [`await_end_of_turn`].
static END_OF_TURN: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const COMES_LATER: u8 = 1;
const AWAITED: u8 = 2;

/// Subscribes to all events. If the server refuses the module afterwards, call [`unsubscribe`].
pub(crate) fn subscribe<L: Listener>(ctx: Ctx) -> Result<(), String> {
    let callback = *CALLBACK.get_or_init(|| on_event::<L>);
    for (at, id) in ids().enumerate() {
        if !set_callback(ctx, id, Some(callback)) {
            return Err(format!("the server refused the subscription to event {id}"));
        }
        SUBSCRIBED.store(at + 1, Relaxed);
    }
    Ok(())
}

/// Takes back the subscriptions to events, if there are any.
pub(crate) fn unsubscribe(ctx: Ctx) {
    stop_watching_turns(ctx);
    // Only those: to unsubscribe from an event without a subscription would subscribe a null callback.
    let count = SUBSCRIBED.swap(0, Relaxed);
    for id in ids().take(count) {
        set_callback(ctx, id, None);
    }
}

/// Has [`ServerEvent::AfterSleep`] reported when the next turn begins.
pub(crate) fn await_next_turn(ctx: Ctx) {
    NEXT_IS_AWAITED.store(true, Relaxed);
    watch_turns(ctx);
}

/// Subscribes to the turns, until [`stop_watching_if_unused`]: only for as long as somebody needs it, because for this
/// subscription the server makes two contexts in each turn, for everybody's requests.
fn watch_turns(ctx: Ctx) {
    if !WATCHES_TURNS.load(Relaxed)
        && let Some(callback) = CALLBACK.get()
    {
        let watches = set_callback(ctx, raw::REDISMODULE_EVENT_EVENTLOOP, Some(*callback));
        WATCHES_TURNS.store(watches, Relaxed);
    }
}

/// Has [`ServerEvent::TurnEnds`] reported in this turn; returns false if it will not come.
///
/// It comes on Redis 7.0 only (see [`reports_ends_in_time`]). It does not come in the turn in which the watch began, nor
/// behind the end, where the server carries out what clients have sent behind a command that blocked.
pub(crate) fn await_end_of_turn(ctx: Ctx) -> bool {
    if !reports_ends_in_time() {
        return false;
    }
    END_WAS_AWAITED.store(true, Relaxed);
    watch_turns(ctx);
    let comes = END_OF_TURN.load(Relaxed) != UNKNOWN;
    if comes {
        END_OF_TURN.store(AWAITED, Relaxed);
    }
    comes
}

/// Whether the server reports that a turn ends before it asks for the replies of released clients. From Redis 7.2 on and
/// on Valkey it asks first.
fn reports_ends_in_time() -> bool {
    static REPORTS: OnceLock<bool> = OnceLock::new();
    *REPORTS.get_or_init(|| is_redis_before(0x0007_0200))
}

/// Notes the beginning or the end of a turn; returns whether it is to be reported.
fn note_turn(subevent: u64) -> bool {
    if subevent == raw::REDISMODULE_SUBEVENT_EVENTLOOP_BEFORE_SLEEP {
        return END_OF_TURN.swap(UNKNOWN, Relaxed) == AWAITED;
    }
    if reports_ends_in_time() {
        END_OF_TURN.store(COMES_LATER, Relaxed);
    }
    NEXT_IS_AWAITED.swap(false, Relaxed)
}

/// Stops watching the turns if nobody awaits the next one, and nobody has awaited the end of one since the last call. Must
/// not be called while one of their events is handled, because the server reads the subscription again afterwards.
pub(crate) fn stop_watching_if_unused(ctx: Ctx) {
    if !END_WAS_AWAITED.swap(false, Relaxed) && !NEXT_IS_AWAITED.load(Relaxed) {
        stop_watching_turns(ctx);
    }
}

fn stop_watching_turns(ctx: Ctx) {
    if WATCHES_TURNS.swap(false, Relaxed) {
        END_OF_TURN.store(UNKNOWN, Relaxed);
        set_callback(ctx, raw::REDISMODULE_EVENT_EVENTLOOP, None);
    }
}

/// Sets the callback of a subscription, which is made if there is none, or with `None` removes the subscription. Returns
/// false if the server refuses.
fn set_callback(ctx: Ctx, id: u64, callback: Option<Callback>) -> bool {
    let event = raw::RedisModuleEvent { id, dataver: 1 };
    // SAFETY: the context is live; `unsubscribe` removes all callbacks before the server unloads this library. If this is
    // called for the cron's event, the server is walking over its list of subscriptions, and has noted the one behind
    // the cron's. That is the next of `IDS`, so it stays when the turns, which were subscribed to later, are removed.
    let status =
        unsafe { required!(RedisModule_SubscribeToServerEvent)(ctx.raw(), event, callback) };
    status == raw::REDISMODULE_OK as i32
}

unsafe extern "C" fn on_event<L: Listener>(
    ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    // Before all else, because these events come in each turn that is watched.
    if event.id == raw::REDISMODULE_EVENT_EVENTLOOP && !note_turn(subevent) {
        return;
    }
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
            raw::REDISMODULE_SUBEVENT_EVENTLOOP_AFTER_SLEEP => ServerEvent::AfterSleep,
            raw::REDISMODULE_SUBEVENT_EVENTLOOP_BEFORE_SLEEP => ServerEvent::TurnEnds,
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
        raw::REDISMODULE_EVENT_CLUSTER_SLOT_MIGRATION_TRIM => match subevent {
            raw::REDISMODULE_SUBEVENT_CLUSTER_SLOT_MIGRATION_TRIM_BACKGROUND => {
                // SAFETY: the server passes a RedisModuleClusterSlotMigrationTrimInfo with this event.
                ServerEvent::SlotsTrimmed(unsafe { trimmed_slots(data.cast()) })
            }
            _ => return None,
        },
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
                maxmemory_policy: has(b"maxmemory-policy"),
                port: has(b"port") || has(b"tls-port"),
            }
        }
        _ => return None,
    };
    Some(event)
}

/// # Safety
/// `info` must be NULL or a RedisModuleClusterSlotMigrationTrimInfo of the server.
unsafe fn trimmed_slots(
    info: *const raw::RedisModuleClusterSlotMigrationTrimInfo,
) -> Vec<RangeInclusive<u16>> {
    // SAFETY: the structure has a pointer to an array: the number of ranges, and behind it the ranges (cluster_asm.c,
    // asmTriggerBackgroundTrim).
    unsafe {
        let slots = info.as_ref().map_or(ptr::null_mut(), |info| info.slots);
        if slots.is_null() {
            return Vec::new();
        }
        let count = usize::try_from((*slots).num_ranges).unwrap_or_default();
        let ranges = (&raw const (*slots).ranges).cast::<raw::RedisModuleSlotRange>();
        let ranges = slice::from_raw_parts(ranges, count).iter();
        ranges.map(|range| range.start..=range.end).collect()
    }
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
