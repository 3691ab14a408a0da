//! A command filter that sees every CLUSTER command just before the server runs it.
//!
//! It is needed because no event of Redis before 8.4 tells that a slot comes or goes. The server calls a filter for
//! every command, so the module registers it only in a cluster, and the filter ignores all other commands at their
//! first word. It never changes a command.

use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use redis_module::raw;

use super::api::required;
use super::context::{Ctx, with_detached};
use super::guard::guard;
use super::name::bytes_of;

/// Handles the CLUSTER commands.
pub(crate) trait CommandListener {
    /// `words` are the words after CLUSTER, the first three at most.
    /// The context is good for subscriptions only, not for calls: the server is in the middle of a command.
    fn on_cluster_command(ctx: Ctx<'_>, words: &[&[u8]]);
}

/// The server's handle of the filter; null if none is registered.
static FILTER: AtomicPtr<raw::RedisModuleCommandFilter> = AtomicPtr::new(std::ptr::null_mut());

/// Registers the filter. If the server refuses the module afterwards, call [`stop_watching`]: Redis 7.0 would go on
/// calling the filter of a library that it has unloaded.
pub(crate) fn watch_cluster_commands<L: CommandListener>(ctx: Ctx<'_>) -> Result<(), String> {
    let flags = raw::REDISMODULE_CMDFILTER_NOSELF as i32;
    // SAFETY: the context is live; the filter is unregistered before the server unloads this library.
    let filter = unsafe {
        required!(RedisModule_RegisterCommandFilter)(ctx.raw(), Some(on_command::<L>), flags)
    };
    FILTER.store(filter, Relaxed);
    (!filter.is_null())
        .then_some(())
        .ok_or_else(|| "the server refused a command filter".to_owned())
}

/// Unregisters the filter, if it is registered.
pub(crate) fn stop_watching(ctx: Ctx<'_>) {
    let filter = FILTER.swap(std::ptr::null_mut(), Relaxed);
    if !filter.is_null() {
        // SAFETY: the context is live and this module's; RM_UnregisterCommandFilter frees the filter, and the swap
        // above lets that happen only once.
        unsafe { required!(RedisModule_UnregisterCommandFilter)(ctx.raw(), filter) };
    }
}

/// Everybody's commands pass here, so this looks at nothing but their first word.
unsafe extern "C" fn on_command<L: CommandListener>(filter: *mut raw::RedisModuleCommandFilterCtx) {
    // SAFETY: the server keeps the filter context and the command's arguments until this returns, and nothing here
    // changes them. Every command has a first word.
    let word = unsafe { bytes_of(required!(RedisModule_CommandFilterArgGet)(filter, 0)) };
    if word.eq_ignore_ascii_case(b"cluster") {
        // SAFETY: the filter context is the server's, as for this function.
        unsafe { on_cluster_command::<L>(filter) };
    }
}

/// # Safety
/// `filter` must be the context of a filter that the server is calling.
#[cold]
unsafe fn on_cluster_command<L: CommandListener>(filter: *mut raw::RedisModuleCommandFilterCtx) {
    // SAFETY: as in `on_command`; the arguments are read by numbers below their count.
    let argument =
        |at: i32| unsafe { bytes_of(required!(RedisModule_CommandFilterArgGet)(filter, at)) };
    guard(
        c"a CLUSTER command",
        || (),
        || {
            // SAFETY: as in `on_command`.
            let count = unsafe { required!(RedisModule_CommandFilterArgsCount)(filter) };
            let words: Vec<&[u8]> = (1..count.min(4)).map(argument).collect();
            // The server passes no context to a filter.
            with_detached(|ctx| L::on_cluster_command(ctx, &words));
        },
    );
}
