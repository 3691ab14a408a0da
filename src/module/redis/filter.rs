//! What clients say to the cluster: every CLUSTER command, a moment before it is carried out.
//!
//! No event of Redis before 8.4 tells that a slot comes or goes; the commands that do it can be overheard.
//! The server shows a filter every command there is, so there is one only in a cluster, and it lets go of
//! all others at their first word.

use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use redis_module::raw;

use super::api::required;
use super::context::Ctx;
use super::guard::guard;
use super::name::bytes_of;

pub(crate) trait CommandListener {
    /// Receives the words after CLUSTER, the first three at most.
    fn on_cluster_command(words: &[&[u8]]);
}

/// The server's handle of the filter; null when there is none.
static FILTER: AtomicPtr<raw::RedisModuleCommandFilter> = AtomicPtr::new(std::ptr::null_mut());

/// To be taken back with [`stop_watching`] if the module is refused after this: Redis 7.0
/// would go on calling the filter of an unloaded library.
pub(crate) fn watch_cluster_commands<L: CommandListener>(ctx: Ctx<'_>) -> Result<(), String> {
    let flags = raw::REDISMODULE_CMDFILTER_NOSELF as i32;
    // SAFETY: a live context; the callback is a function of this library.
    let filter = unsafe {
        required!(RedisModule_RegisterCommandFilter)(ctx.raw(), Some(on_command::<L>), flags)
    };
    FILTER.store(filter, Relaxed);
    (!filter.is_null())
        .then_some(())
        .ok_or_else(|| "the server refused a command filter".to_owned())
}

/// Harmless when nothing is overheard.
pub(crate) fn stop_watching(ctx: Ctx<'_>) {
    let filter = FILTER.swap(std::ptr::null_mut(), Relaxed);
    if !filter.is_null() {
        // SAFETY: a live context of this module, and its own filter, which is unregistered once:
        // RM_UnregisterCommandFilter frees it.
        unsafe { required!(RedisModule_UnregisterCommandFilter)(ctx.raw(), filter) };
    }
}

unsafe extern "C" fn on_command<L: CommandListener>(filter: *mut raw::RedisModuleCommandFilterCtx) {
    // SAFETY: the server's, alive until this returns; arguments are asked for by numbers below their count,
    // and nothing here changes them.
    let count = unsafe { required!(RedisModule_CommandFilterArgsCount)(filter) };
    let argument =
        |at: i32| unsafe { bytes_of(required!(RedisModule_CommandFilterArgGet)(filter, at)) };
    if count < 2 || !argument(0).eq_ignore_ascii_case(b"cluster") {
        return;
    }
    guard(
        c"a CLUSTER command",
        || (),
        || {
            let words: Vec<&[u8]> = (1..count.min(4)).map(argument).collect();
            L::on_cluster_command(&words);
        },
    );
}
