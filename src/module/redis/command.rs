//! A command of the module, as a type. The server calls a handler without any data of ours, so the handler is a generic
//! function, and its type parameter is the command.

use std::ffi::CStr;

use redis_module::raw;

use super::api::required;
use super::args::Args;
use super::blocked::Running;
use super::context::Ctx;
use super::guard::guard;
use super::reply::OwedReply;

pub(crate) trait Command {
    const NAME: &'static CStr;
    /// The flags of RM_CreateCommand, separated by spaces. A server that does not know a flag refuses the module.
    const FLAGS: &'static CStr;
    /// Whether argument 1 is a key. No command of the module has other keys.
    const HAS_KEY: bool;

    /// Replies exactly once, or parks the client. If it panics before, the client gets an error.
    fn run(ctx: Ctx<'_>, args: Args<'_>);
}

/// Registers the command. Possible only during RedisModule_OnLoad.
pub(crate) fn register<C: Command>(ctx: Ctx) -> Result<(), String> {
    register_with_flags::<C>(ctx, C::FLAGS)
        .then_some(())
        .ok_or_else(|| {
            format!(
                "the server refused the command {}",
                C::NAME.to_string_lossy()
            )
        })
}

/// [`register`] with other flags than the command's own. Returns false if the server does not know one of them.
pub(crate) fn register_with_flags<C: Command>(ctx: Ctx, flags: &CStr) -> bool {
    let key = i32::from(C::HAS_KEY);
    // SAFETY: RM_CreateCommand copies the strings, and the server forgets the handler before it unloads this library
    // (module.c, moduleUnregisterCommands).
    let status = unsafe {
        required!(RedisModule_CreateCommand)(
            ctx.raw(),
            C::NAME.as_ptr(),
            Some(trampoline::<C>),
            flags.as_ptr(),
            key,
            key,
            key,
        )
    };
    status == raw::REDISMODULE_OK as i32
}

unsafe extern "C" fn trampoline<C: Command>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: i32,
) -> i32 {
    // SAFETY: the server calls a handler on a thread that holds its global lock, with a context and arguments that live
    // until the handler returns (module.c, RedisModuleCommandDispatcher).
    let (ctx, args) = unsafe { (Ctx::of_command(ctx), Args::from_raw(argv, argc)) };
    let (owed, running) = (OwedReply::begin(), Running::begin());
    guard(C::NAME, || (), || C::run(ctx, args));
    owed.complete(ctx);
    running.end();
    raw::REDISMODULE_OK as i32
}
