//! A command of the module, as a type: the server's handlers carry no data of their own, a type
//! parameter does it for them.

use std::ffi::CStr;

use redis_module::raw;

use super::api::required;
use super::args::Args;
use super::blocked::unblock_next_turn;
use super::context::Ctx;
use super::guard::guard;
use super::late_release::Running;
use super::reply::Debt;

pub(crate) trait Command {
    const NAME: &'static CStr;
    /// The server's words, separated by spaces; one it does not know refuses the module.
    const FLAGS: &'static CStr;
    /// Whether argument 1 is a key. No command of ours has more than one, nor has it elsewhere.
    const HAS_KEY: bool;

    /// Replies exactly once, or parks the client. If it panics first, the caller gets an error.
    fn run(ctx: Ctx<'_>, args: Args<'_>);
}

/// Only while the module is loaded.
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

/// The same with other flags than the command's own; false where the server does not know one of
/// them.
pub(crate) fn register_with_flags<C: Command>(ctx: Ctx, flags: &CStr) -> bool {
    let key = i32::from(C::HAS_KEY);
    // SAFETY: RM_CreateCommand copies the strings; the handler is a function of this library, and the
    // server forgets the command before it unloads the library (module.c, moduleUnregisterCommands).
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
    // SAFETY: the server calls a handler on a thread that holds its lock, with a context and
    // arguments that live until it returns (module.c, RedisModuleCommandDispatcher).
    let (ctx, args) = unsafe { (Ctx::of_command(ctx), Args::from_raw(argv, argc)) };
    let (debt, running) = (Debt::one(), Running::begin());
    guard(C::NAME, || (), || C::run(ctx, args));
    debt.pay(ctx);
    if let Some(waiter) = running.end() {
        unblock_next_turn(ctx, waiter);
    }
    raw::REDISMODULE_OK as i32
}
