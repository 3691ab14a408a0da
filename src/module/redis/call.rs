//! What the server's commands answer, and questions to them that are answered in text. Those are not for a
//! hot path.

use std::ffi::CStr;

use redis_module::raw;

use super::api::required;
use super::context::Ctx;
use super::name::KeyString;
use super::open;

/// What a command has answered.
pub(super) struct CallReply(*mut raw::RedisModuleCallReply);

/// Asks a command that neither blocks nor changes anything. `None` where it refuses to be called.
///
/// # Panics
/// While a key is open: other modules may filter the call.
pub(super) fn ask(ctx: Ctx<'_>, command: &CStr, args: &[&[u8]]) -> Option<CallReply> {
    open::assert_none();
    let strings: Vec<KeyString> = args.iter().map(|arg| KeyString::new(arg)).collect();
    let mut vector: Vec<_> = strings.iter().map(KeyString::raw).collect();
    // SAFETY: a live context; `v` reads a vector of live string objects and its length, and takes references of
    // its own.
    let reply = unsafe {
        required!(RedisModule_Call)(
            ctx.raw(),
            command.as_ptr(),
            c"v".as_ptr(),
            vector.as_mut_ptr(),
            vector.len(),
        )
    };
    // SAFETY: what RM_Call has just returned.
    unsafe { CallReply::owned(reply.cast()) }
}

impl CallReply {
    /// `None` where there is none.
    ///
    /// # Safety
    /// `reply` was returned by RM_Call, and nobody else frees it.
    pub(super) unsafe fn owned(reply: *mut raw::RedisModuleCallReply) -> Option<CallReply> {
        // Not made where it is NULL: dropping that would free NULL, which ends the server.
        (!reply.is_null()).then(|| CallReply(reply))
    }

    pub(super) fn is_error(&self) -> bool {
        // SAFETY: live until `self` is dropped.
        let kind = unsafe { required!(RedisModule_CallReplyType)(self.0) };
        kind == raw::REDISMODULE_REPLY_ERROR as i32
    }

    /// Its text, if it is one.
    pub(super) fn text(&self) -> Option<Vec<u8>> {
        // SAFETY: live until `self` is dropped.
        unsafe { text(self.0) }
    }

    /// The text of one of its elements, if it has that many.
    pub(super) fn text_at(&self, index: usize) -> Option<Vec<u8>> {
        // SAFETY: live until `self` is dropped, and so are its elements; one that is not there is NULL.
        unsafe {
            let element = required!(RedisModule_CallReplyArrayElement)(self.0, index);
            (!element.is_null()).then(|| text(element))?
        }
    }
}

/// # Safety
/// `reply` is live.
unsafe fn text(reply: *mut raw::RedisModuleCallReply) -> Option<Vec<u8>> {
    let mut len = 0usize;
    // SAFETY: the caller's promise; the text of one that is no string is NULL, and any other lives as long
    // as its reply.
    unsafe {
        let text = required!(RedisModule_CallReplyStringPtr)(reply, &raw mut len);
        (!text.is_null()).then(|| std::slice::from_raw_parts(text.cast::<u8>(), len).to_vec())
    }
}

impl Drop for CallReply {
    fn drop(&mut self) {
        // SAFETY: ours since it was returned, and freed once.
        unsafe { required!(RedisModule_FreeCallReply)(self.0) };
    }
}
