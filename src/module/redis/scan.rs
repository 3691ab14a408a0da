//! Shows every key of a database to a visitor, a few keys a call.
//!
//! As with SCAN, a key that exists from the first call to the last is shown at least once, and a key that comes or goes
//! in between may be shown or not.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

use redis_module::raw;

use super::api::required;
use super::context::Ctx;
use super::guard::guard;
use super::key::{KeyContent, assert_none_open, content_of};
use super::name::bytes_of;

pub(crate) trait Visitor {
    /// Handles one key. The context has the key's database selected. Must not open, change or delete a key.
    fn visit(ctx: Ctx<'_>, name: &[u8], content: KeyContent);
}

/// The place in a database up to which its keys were shown.
pub(crate) struct ScanCursor(NonNull<raw::RedisModuleScanCursor>);

// SAFETY: kept in a GilCell only: used under the server's global lock, whichever thread has it.
unsafe impl Send for ScanCursor {}

impl ScanCursor {
    /// `None` if the server gives none.
    pub(crate) fn new() -> Option<ScanCursor> {
        // SAFETY: no argument.
        NonNull::new(unsafe { required!(RedisModule_ScanCursorCreate)() }).map(ScanCursor)
    }

    /// Goes back to the start. To be called before the cursor is used for another database.
    pub(crate) fn restart(&mut self) {
        // SAFETY: a cursor of the server's, not destroyed yet.
        unsafe { required!(RedisModule_ScanCursorRestart)(self.0.as_ptr()) }
    }

    /// Shows the keys in the next bucket of the table of the context's database. Returns whether there are more.
    pub(crate) fn scan<V: Visitor>(&mut self, ctx: Ctx<'_>) -> bool {
        assert_none_open();
        // SAFETY: a live context and cursor; the callback is a function of this library and takes no data.
        unsafe {
            required!(RedisModule_Scan)(ctx.raw(), self.0.as_ptr(), Some(visited::<V>), null_mut())
                != 0
        }
    }
}

impl Drop for ScanCursor {
    fn drop(&mut self) {
        // SAFETY: made by RM_ScanCursorCreate, and destroyed once.
        unsafe { required!(RedisModule_ScanCursorDestroy)(self.0.as_ptr()) }
    }
}

unsafe extern "C" fn visited<V: Visitor>(
    ctx: *mut raw::RedisModuleCtx,
    name: *mut raw::RedisModuleString,
    key: *mut raw::RedisModuleKey,
    _: *mut c_void,
) {
    guard(
        c"a look at a key",
        || (),
        || {
            // SAFETY: until this returns, the context and the name live, and the server has the key open or passes NULL
            // (module.c, moduleScanCallback).
            let (ctx, name, content) =
                unsafe { (Ctx::from_raw(ctx), bytes_of(name), content_of(key)) };
            V::visit(ctx, name, content);
        },
    );
}
