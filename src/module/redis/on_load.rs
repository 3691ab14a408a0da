//! Loads and unloads the module: the functions that the server looks up in the library.
//!
//! A server that refuses a module unloads its library. Any callback that the server still has then crashes it at the
//! next occasion. The table shows what each server forgets by itself (module.c, moduleLoad and moduleUnload):
//!
//! | | refused, Redis 7.0 | refused, later servers | unloaded right after loading, Redis ≥ 8 |
//! |---|---|---|---|
//! | commands, settings, types, INFO section | yes | yes | yes |
//! | server events, command filter | no | yes | yes |
//! | keyspace notifications | no | yes | yes |
//! | timers | no | no | no: one that is armed ends the server |
//! | receiver of the cluster's messages | no | Valkey 9.1 only | no |
//! | detached context | no: a leak | no | no |
//!
//! So everything that can refuse the module comes first, [`Library::take_back`] undoes what can be undone, the keyspace
//! notifications are subscribed to last, and the receiver waits until the server has gone on to its event loop with the
//! module loaded.
//!
//! The C library decides whether the library really leaves the process (one with destructors of thread-locals stays).
//! So a later load can find all statics as they were, and must reset them.
//!
//! Redis 8 and later unload the module right after loading if MODULE LOADEX has a directive that belongs to no setting.
//! Every other unloading is refused because of the data types, before the module is asked.

use std::ffi::c_int;

use redis_module::raw;

use super::api::{self, required};
use super::args::Args;
use super::context::{Ctx, Level};
use super::guard::{guard, mark_main_thread};

#[cfg(not(any(test, fuzzing)))]
#[global_allocator]
static ALLOCATOR: redis_module::alloc::RedisAlloc = redis_module::alloc::RedisAlloc;

#[cfg(any(test, fuzzing))]
#[global_allocator]
static ALLOCATOR: std::alloc::System = std::alloc::System;

/// The module, as the root of the crate implements it.
pub(crate) trait Library {
    /// The version, as MODULE LIST shows it.
    const VERSION: i32;

    /// Registers everything. An error refuses the module.
    fn load(ctx: Ctx<'_>, args: Args<'_>) -> Result<(), String>;
    /// Takes back what [`Library::load`] has registered so far and the server does not forget by itself.
    fn take_back(ctx: Ctx<'_>);
    /// Whether the server may have callbacks that cannot be taken back, so that the library must stay.
    fn is_at_work() -> bool;
}

/// Makes the two functions that the server looks up in the library.
macro_rules! entry_points {
    ($library:ty) => {
        /// # Safety
        /// Only the server may call this, once, on its main thread.
        #[allow(unsafe_code, reason = "written in `redis`")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn RedisModule_OnLoad(
            ctx: *mut redis_module::raw::RedisModuleCtx,
            argv: *mut *mut redis_module::raw::RedisModuleString,
            argc: std::ffi::c_int,
        ) -> std::ffi::c_int {
            // SAFETY: the arguments are those of the server's call (module.c, moduleLoad).
            unsafe { $crate::module::redis::on_load::on_load::<$library>(ctx, argv, argc) }
        }

        /// # Safety
        /// Only the server may call this, on its main thread, before it unloads the library.
        #[allow(unsafe_code, reason = "written in `redis`")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn RedisModule_OnUnload(
            ctx: *mut redis_module::raw::RedisModuleCtx,
        ) -> std::ffi::c_int {
            // SAFETY: the argument is that of the server's call (module.c, moduleUnload).
            unsafe { $crate::module::redis::on_load::on_unload::<$library>(ctx) }
        }
    };
}
pub(crate) use entry_points;

const LOADED_ALREADY: &str = "dsync is loaded already. If the server ends here, its configuration loads dsync twice: \
    remove one of the two loadmodule lines. CONFIG REWRITE adds one to the main file, though the command line or an \
    included file has it.";

/// # Safety
/// Only RedisModule_OnLoad may call this, with its own arguments.
pub(crate) unsafe fn on_load<L: Library>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    let (ok, err) = (raw::REDISMODULE_OK as c_int, raw::REDISMODULE_ERR as c_int);
    // SAFETY: the context is the server's, and the name is a C string. Nothing may be allocated before this call,
    // because it looks up the server's allocator.
    let status = unsafe {
        raw::Export_RedisModule_Init(
            ctx,
            c"dsync".as_ptr(),
            L::VERSION,
            raw::REDISMODULE_APIVER_1 as c_int,
        )
    };
    mark_main_thread();
    // SAFETY: the server keeps the context and the arguments until this returns.
    let (ctx, args) = unsafe { (Ctx::from_raw(ctx), Args::from_raw(argv, argc)) };
    // RedisModule_Init fails for one reason: the server has a module of this name. Its statics may be those of this
    // library, so nothing is taken back.
    if status != ok {
        guard(
            c"a second load",
            || (),
            || ctx.log(Level::Warning, LOADED_ALREADY),
        );
        return err;
    }
    let panicked = || Err("internal error".to_owned());
    let Err(refusal) = guard(c"loading", panicked, || load::<L>(ctx, args)) else {
        return ok;
    };
    guard(
        c"a refusal to load",
        || (),
        || {
            ctx.log(Level::Warning, &format!("dsync is not loaded: {refusal}"));
            L::take_back(ctx);
        },
    );
    err
}

/// # Safety
/// Only RedisModule_OnUnload may call this, with its own argument.
pub(crate) unsafe fn on_unload<L: Library>(ctx: *mut raw::RedisModuleCtx) -> c_int {
    let (ok, err) = (raw::REDISMODULE_OK as c_int, raw::REDISMODULE_ERR as c_int);
    guard(
        c"unloading",
        || ok,
        || {
            if L::is_at_work() {
                return err;
            }
            // SAFETY: the server keeps the context until this returns.
            L::take_back(unsafe { Ctx::from_raw(ctx) });
            ok
        },
    )
}

fn load<L: Library>(ctx: Ctx, args: Args) -> Result<(), String> {
    if let Some(name) = api::missing() {
        return Err(format!(
            "this server lacks {name}; Redis 7.0 or newer is needed"
        ));
    }
    set_options(ctx);
    L::load(ctx, args)
}

fn set_options(ctx: Ctx) {
    const HANDLE_IO_ERRORS: c_int = 1 << 0;
    const NO_IMPLICIT_SIGNAL_MODIFIED: c_int = 1 << 1;
    /// Without it Valkey refuses `CLUSTER MIGRATESLOTS` for the whole server. Set on Valkey only, because Redis may
    /// give the bit another meaning.
    const VALKEY_HANDLE_ATOMIC_SLOT_MIGRATION: c_int = 1 << 5;
    let mut options = HANDLE_IO_ERRORS | NO_IMPLICIT_SIGNAL_MODIFIED;
    if api::is_valkey() {
        options |= VALKEY_HANDLE_ATOMIC_SLOT_MIGRATION;
    }
    // SAFETY: the context is live; RM_SetModuleOptions ignores bits that it does not know.
    unsafe { required!(RedisModule_SetModuleOptions)(ctx.raw(), options) };
}
