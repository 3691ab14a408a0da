//! A setting of the server's own, as CONFIG GET tells it. Not for a hot path.

use std::ffi::CStr;

use redis_module::raw;

use super::api::required;
use super::context::Ctx;
use super::key;

/// The value of the setting with this name; `None` where there is no such setting.
///
/// # Panics
/// While a key is open: other modules may filter the call.
pub(crate) fn get(ctx: Ctx<'_>, name: &CStr) -> Option<Vec<u8>> {
    key::assert_none_open();
    // SAFETY: a live context; each `c` takes one C string. CONFIG GET does not block. The reply is
    // ours to free.
    let reply = unsafe {
        required!(RedisModule_Call)(
            ctx.raw(),
            c"CONFIG".as_ptr(),
            c"cc".as_ptr(),
            c"GET".as_ptr(),
            name.as_ptr(),
        )
    };
    if reply.is_null() {
        return None;
    }
    let reply = reply.cast::<raw::RedisModuleCallReply>();
    // SAFETY: a live reply; an element that is not there is NULL, and so is the text of one that is
    // no string. The text lives as long as the reply, which is freed once, after the copy.
    unsafe {
        let value = required!(RedisModule_CallReplyArrayElement)(reply, 1);
        let mut len = 0usize;
        let text = if value.is_null() {
            std::ptr::null()
        } else {
            required!(RedisModule_CallReplyStringPtr)(value, &raw mut len)
        };
        let copy =
            (!text.is_null()).then(|| std::slice::from_raw_parts(text.cast::<u8>(), len).to_vec());
        required!(RedisModule_FreeCallReply)(reply);
        copy
    }
}
