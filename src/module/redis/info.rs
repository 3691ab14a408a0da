//! The module's section of INFO.

use std::ffi::CStr;

use redis_module::raw;

use super::api::required;
use super::context::Ctx;
use super::guard::guard;

/// Fields of INFO; the server puts the module's name before each.
pub(crate) struct InfoSink(*mut raw::RedisModuleInfoCtx);

pub(crate) trait Section {
    fn write(sink: &mut InfoSink);
}

pub(crate) fn register<S: Section>(ctx: Ctx) -> Result<(), String> {
    // SAFETY: a live context; the callback is a function of this library.
    let status = unsafe { required!(RedisModule_RegisterInfoFunc)(ctx.raw(), Some(on_info::<S>)) };
    (status == raw::REDISMODULE_OK as i32)
        .then_some(())
        .ok_or_else(|| "the server refused the INFO section".to_owned())
}

impl InfoSink {
    /// Begins a section, `dsync_<name>`, or `dsync` for an empty name. False when it was not asked
    /// for: write no fields.
    pub(crate) fn section(&mut self, name: &CStr) -> bool {
        // SAFETY: a live info context.
        unsafe {
            required!(RedisModule_InfoAddSection)(self.0, name.as_ptr())
                == raw::REDISMODULE_OK as i32
        }
    }

    pub(crate) fn u64(&mut self, field: &CStr, value: u64) {
        // SAFETY: a live info context; the server refuses a field outside of a section.
        unsafe { required!(RedisModule_InfoAddFieldULongLong)(self.0, field.as_ptr(), value) };
    }
}

unsafe extern "C" fn on_info<S: Section>(
    info: *mut raw::RedisModuleInfoCtx,
    for_crash_report: i32,
) {
    // A crash report may be written by any thread, with any state half changed: say nothing.
    if for_crash_report != 0 {
        return;
    }
    guard(
        c"INFO",
        || (),
        || {
            S::write(&mut InfoSink(info));
        },
    );
}
