//! Writes the module's section of INFO.

use std::ffi::CStr;

use redis_module::raw;

use super::api::required;
use super::context::Ctx;
use super::guard::guard;

/// Writes fields of INFO. The server puts the module's name before each.
pub(crate) struct InfoSink(*mut raw::RedisModuleInfoCtx);

/// Writes a section when the server composes INFO.
pub(crate) trait Section {
    fn write(sink: &mut InfoSink);
}

pub(crate) fn register<S: Section>(ctx: Ctx) -> Result<(), String> {
    // SAFETY: the context is live; the server forgets the callback before it unloads this library.
    let status = unsafe { required!(RedisModule_RegisterInfoFunc)(ctx.raw(), Some(on_info::<S>)) };
    (status == raw::REDISMODULE_OK as i32)
        .then_some(())
        .ok_or_else(|| "the server refused the INFO section".to_owned())
}

impl InfoSink {
    /// Begins a section `dsync_<name>`, or `dsync` if the name is empty. Returns false if the client did not ask for
    /// it; then write no fields.
    pub(crate) fn section(&mut self, name: &CStr) -> bool {
        // SAFETY: the server keeps the info context until its callback returns, and so longer than `self`.
        unsafe {
            required!(RedisModule_InfoAddSection)(self.0, name.as_ptr())
                == raw::REDISMODULE_OK as i32
        }
    }

    pub(crate) fn text(&mut self, field: &CStr, value: &CStr) {
        // SAFETY: as for `u64`; the server copies both texts.
        unsafe {
            required!(RedisModule_InfoAddFieldCString)(self.0, field.as_ptr(), value.as_ptr())
        };
    }

    pub(crate) fn u64(&mut self, field: &CStr, value: u64) {
        // SAFETY: the info context lives longer than `self`; the server refuses a field outside of a section.
        unsafe { required!(RedisModule_InfoAddFieldULongLong)(self.0, field.as_ptr(), value) };
    }
}

unsafe extern "C" fn on_info<S: Section>(
    info: *mut raw::RedisModuleInfoCtx,
    for_crash_report: i32,
) {
    // Write nothing into a crash report: any thread can write one, while any state is half changed.
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
