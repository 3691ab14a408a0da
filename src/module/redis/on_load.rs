//! Where the server enters the library.

use std::ffi::c_int;

use redis_module::raw;

use super::api::{self, required};
use super::args::Args;
use super::context::{Ctx, Level};
use super::guard::{guard, mark_main_thread};

#[cfg(not(test))]
#[global_allocator]
static ALLOCATOR: redis_module::alloc::RedisAlloc = redis_module::alloc::RedisAlloc;

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: std::alloc::System = std::alloc::System;

/// 0.1.0
const VERSION: c_int = 100;

/// # Safety
/// Called by the server, once, on its main thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RedisModule_OnLoad(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    let (ok, err) = (raw::REDISMODULE_OK as c_int, raw::REDISMODULE_ERR as c_int);
    // SAFETY: the context given by the server; the name is a C string. Nothing is allocated before
    // this returns: it is what finds the server's allocator.
    let status = unsafe {
        raw::Export_RedisModule_Init(
            ctx,
            c"dsync".as_ptr(),
            VERSION,
            raw::REDISMODULE_APIVER_1 as c_int,
        )
    };
    if status != ok {
        return err;
    }
    mark_main_thread();
    guard(
        c"loading",
        || err,
        || {
            // SAFETY: context and arguments live until this returns.
            let (ctx, args) = unsafe { (Ctx::from_raw(ctx), Args::from_raw(argv, argc)) };
            match load(ctx, args) {
                Ok(()) => ok,
                Err(refusal) => {
                    ctx.log(Level::Warning, &format!("dsync is not loaded: {refusal}"));
                    err
                }
            }
        },
    )
}

fn load(ctx: Ctx, args: Args) -> Result<(), String> {
    if let Some(name) = api::missing() {
        return Err(format!(
            "this server lacks {name}; Redis 7.0 or newer is needed"
        ));
    }
    set_options(ctx);
    crate::module::load(ctx, args)
}

fn set_options(ctx: Ctx) {
    const HANDLE_IO_ERRORS: c_int = 1 << 0;
    const NO_IMPLICIT_SIGNAL_MODIFIED: c_int = 1 << 1;
    /// Without it `CLUSTER MIGRATESLOTS` is refused server-wide; in Redis the bit may come to mean
    /// something else.
    const VALKEY_HANDLE_ATOMIC_SLOT_MIGRATION: c_int = 1 << 5;
    let mut options = HANDLE_IO_ERRORS | NO_IMPLICIT_SIGNAL_MODIFIED;
    if api::is_valkey() {
        options |= VALKEY_HANDLE_ATOMIC_SLOT_MIGRATION;
    }
    // SAFETY: a live context; unknown bits are kept and ignored.
    unsafe { required!(RedisModule_SetModuleOptions)(ctx.raw(), options) };
}
