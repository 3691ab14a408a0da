//! Reading and writing values: RDB, AOF rewrite, DEBUG DIGEST.
//!
//! The module handles read errors itself: without that option a payload cut short would abort the
//! server, with it a failed read returns zero. So every read is checked before its result is seen,
//! and a `Loader` gives nothing without a `Result`.

use std::ffi::{CStr, c_char};
use std::ops::Deref;

use redis_module::raw;

use super::api::required;
use super::name::bytes_of;

/// The payload ended early or is not what was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed;

pub(crate) struct Loader(*mut raw::RedisModuleIO);

impl Loader {
    /// # Safety
    /// `io` is the argument of a load callback that is running while the loader lives.
    pub(super) unsafe fn from_raw(io: *mut raw::RedisModuleIO) -> Self {
        Loader(io)
    }

    fn checked<T>(&self, value: T) -> Result<T, Malformed> {
        // SAFETY: a live io.
        let failed = unsafe { required!(RedisModule_IsIOError)(self.0) != 0 };
        if failed { Err(Malformed) } else { Ok(value) }
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        // SAFETY: a live io; a read past an error returns zero.
        let value = unsafe { required!(RedisModule_LoadUnsigned)(self.0) };
        self.checked(value)
    }

    /// A string of the payload, of at most `max_len` bytes, in the server's own buffer.
    pub(crate) fn bytes(&mut self, max_len: usize) -> Result<Loaded, Malformed> {
        let mut len = 0usize;
        // SAFETY: a live io; NULL on error, else `len` bytes that are ours to free.
        let start = unsafe { required!(RedisModule_LoadStringBuffer)(self.0, &raw mut len) };
        if start.is_null() {
            return Err(Malformed);
        }
        let loaded = Loaded { start, len };
        self.checked(())?;
        Some(loaded)
            .filter(|loaded| loaded.len <= max_len)
            .ok_or(Malformed)
    }

    /// The key being loaded; `None` where the server does not say.
    pub(crate) fn key_name(&self) -> Option<&[u8]> {
        // SAFETY: a live io.
        unsafe { key_name(self.0) }
    }

    /// The database being loaded into, or -1.
    pub(crate) fn db(&self) -> i32 {
        // SAFETY: a live io.
        unsafe { required!(RedisModule_GetDbIdFromIO)(self.0) }
    }
}

/// A string that RM_LoadStringBuffer has allocated.
pub(crate) struct Loaded {
    start: *mut c_char,
    len: usize,
}

impl Deref for Loaded {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the buffer is not NULL, has `len` bytes, and is nobody else's until it is freed.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.len) }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: RM_LoadStringBuffer leaves its buffer to be freed by RM_Free, once.
        unsafe { required!(RedisModule_Free)(self.start.cast()) }
    }
}

pub(crate) struct Saver(*mut raw::RedisModuleIO);

impl Saver {
    /// # Safety
    /// `io` is the argument of a save callback that is running while the saver lives.
    pub(super) unsafe fn from_raw(io: *mut raw::RedisModuleIO) -> Self {
        Saver(io)
    }

    // A write that fails makes the whole save fail; there is nothing to check here.

    pub(crate) fn u64(&mut self, value: u64) {
        // SAFETY: a live io.
        unsafe { required!(RedisModule_SaveUnsigned)(self.0, value) }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        // SAFETY: a live io; pointer and length are one slice's.
        unsafe {
            required!(RedisModule_SaveStringBuffer)(self.0, bytes.as_ptr().cast(), bytes.len())
        }
    }
}

pub(crate) struct AofWriter {
    io: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
}

impl AofWriter {
    /// # Safety
    /// `io` and `key` are the arguments of a rewrite callback that is running while the writer lives.
    pub(super) unsafe fn from_raw(
        io: *mut raw::RedisModuleIO,
        key: *mut raw::RedisModuleString,
    ) -> Self {
        AofWriter { io, key }
    }

    /// Writes `command key argument`. The server has selected the database already.
    pub(crate) fn emit(&mut self, command: &CStr, argument: &[u8]) {
        // SAFETY: the key is the callback's own argument, alive until it returns. RM_EmitAOF copies the
        // bytes that the pairs for `b` name; the key goes as bytes because the server has it on its stack,
        // where no reference to it can be taken.
        unsafe {
            let key = bytes_of(self.key);
            required!(RedisModule_EmitAOF)(
                self.io,
                command.as_ptr(),
                c"bb".as_ptr(),
                key.as_ptr(),
                key.len(),
                argument.as_ptr(),
                argument.len(),
            );
        }
    }
}

/// DEBUG DIGEST-VALUE: what two servers must agree on.
pub(crate) struct Digest(*mut raw::RedisModuleDigest);

impl Digest {
    /// # Safety
    /// `digest` is the argument of a digest callback that is running while this lives.
    pub(super) unsafe fn from_raw(digest: *mut raw::RedisModuleDigest) -> Self {
        Digest(digest)
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        // SAFETY: a live digest; pointer and length are one slice's.
        unsafe {
            required!(RedisModule_DigestAddStringBuffer)(self.0, bytes.as_ptr().cast(), bytes.len())
        }
    }

    /// What came since the last end is ordered; whole sequences are not.
    pub(crate) fn end_sequence(&mut self) {
        // SAFETY: a live digest.
        unsafe { required!(RedisModule_DigestEndSequence)(self.0) }
    }
}

/// # Safety
/// `io` stays alive during `'a`.
unsafe fn key_name<'a>(io: *mut raw::RedisModuleIO) -> Option<&'a [u8]> {
    // SAFETY: the name belongs to the operation that `io` stands for; NULL when it has none.
    unsafe {
        let name = required!(RedisModule_GetKeyNameFromIO)(io);
        (!name.is_null()).then(|| bytes_of(name))
    }
}
