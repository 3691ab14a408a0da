//! Calls the server's own commands that only read, and reads their replies. Too slow for every request.

use std::ffi::CStr;

use redis_module::raw;

use super::api::required;
use super::context::Ctx;
use super::key::assert_none_open;
use super::name::KeyString;

/// The reply of a command. Freed on drop.
pub(super) struct CallReply(*mut raw::RedisModuleCallReply);

/// Calls a command that neither blocks nor changes anything. `None` if the server refuses the call.
///
/// # Panics
/// If a key is open, because other modules may filter the call and change the key.
pub(super) fn ask(ctx: Ctx<'_>, command: &CStr, args: &[&[u8]]) -> Option<CallReply> {
    assert_none_open();
    let strings: Vec<KeyString> = args.iter().map(|arg| KeyString::new(arg)).collect();
    let mut vector: Vec<_> = strings.iter().map(KeyString::raw).collect();
    // SAFETY: the context is live; for `v` RM_Call reads a vector of string objects and its length, and takes its own
    // references to the strings, which live longer than the call.
    let reply = unsafe {
        required!(RedisModule_Call)(
            ctx.raw(),
            command.as_ptr(),
            c"v".as_ptr(),
            vector.as_mut_ptr(),
            vector.len(),
        )
    };
    // SAFETY: RM_Call has just returned this reply, and it leaves freeing it to the caller.
    unsafe { CallReply::owned(reply.cast()) }
}

impl CallReply {
    /// `None` if RM_Call returned no reply.
    ///
    /// # Safety
    /// `reply` must be what RM_Call returned, and nothing else may free it.
    pub(super) unsafe fn owned(reply: *mut raw::RedisModuleCallReply) -> Option<CallReply> {
        // Do not make one from NULL: to free NULL would crash the server.
        (!reply.is_null()).then(|| CallReply(reply))
    }

    pub(super) fn is_error(&self) -> bool {
        // SAFETY: RM_CallReplyType reads the reply, which lives until `self` is dropped.
        let kind = unsafe { required!(RedisModule_CallReplyType)(self.0) };
        kind == raw::REDISMODULE_REPLY_ERROR as i32
    }

    /// The text, if the reply is a string.
    pub(super) fn text(&self) -> Option<Vec<u8>> {
        // SAFETY: the reply lives until `self` is dropped.
        unsafe { text(self.0) }
    }

    /// The text of one element, if the reply is an array with that many.
    pub(super) fn text_at(&self, index: usize) -> Option<Vec<u8>> {
        // SAFETY: the reply and its elements live until `self` is dropped; RM_CallReplyArrayElement returns NULL for an
        // element that does not exist.
        unsafe {
            let element = required!(RedisModule_CallReplyArrayElement)(self.0, index);
            (!element.is_null()).then(|| text(element))?
        }
    }
}

/// # Safety
/// `reply` must be live.
unsafe fn text(reply: *mut raw::RedisModuleCallReply) -> Option<Vec<u8>> {
    let mut len = 0usize;
    // SAFETY: the caller guarantees a live reply; RM_CallReplyStringPtr returns NULL for one that is no string, and
    // otherwise `len` bytes that live as long as the reply.
    unsafe {
        let text = required!(RedisModule_CallReplyStringPtr)(reply, &raw mut len);
        (!text.is_null()).then(|| std::slice::from_raw_parts(text.cast::<u8>(), len).to_vec())
    }
}

impl Drop for CallReply {
    fn drop(&mut self) {
        // SAFETY: RM_Call left this reply to us to free, and it is freed only here.
        unsafe { required!(RedisModule_FreeCallReply)(self.0) };
    }
}
