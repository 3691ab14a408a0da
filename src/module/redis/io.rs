//! Reads and writes values: RDB files and DUMP payloads, AOF rewrite, DEBUG DIGEST.
//!
//! The module handles read errors itself (option HANDLE_IO_ERRORS). Without that option a payload that is cut short
//! would abort the server; with it a failed read returns zero. So every read is checked before its value is used, and
//! a `Loader` returns only `Result`s.

use std::ffi::{CStr, c_char};
use std::ops::Deref;

use redis_module::raw;

use super::api::required;
use super::name::bytes_of;

/// The payload ended early, or has something else at this place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed;

pub(crate) struct Loader(*mut raw::RedisModuleIO);

impl Loader {
    /// # Safety
    /// `io` must be the argument of a load callback that runs as long as the loader lives.
    pub(super) unsafe fn from_raw(io: *mut raw::RedisModuleIO) -> Self {
        Loader(io)
    }

    fn checked<T>(&self, value: T) -> Result<T, Malformed> {
        // SAFETY: `io` lives as long as `self`.
        let failed = unsafe { required!(RedisModule_IsIOError)(self.0) != 0 };
        if failed { Err(Malformed) } else { Ok(value) }
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        // SAFETY: `io` lives as long as `self`; RM_LoadUnsigned returns zero after an error.
        let value = unsafe { required!(RedisModule_LoadUnsigned)(self.0) };
        self.checked(value)
    }

    /// Reads a string of at most `max_len` bytes. It stays in the server's own buffer.
    pub(crate) fn bytes(&mut self, max_len: usize) -> Result<Loaded, Malformed> {
        let mut len = 0usize;
        // SAFETY: `io` lives as long as `self`; RM_LoadStringBuffer returns NULL on error, otherwise `len` bytes that
        // the caller must free.
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

    /// The name of the key that is being loaded; `None` if the server does not tell.
    pub(crate) fn key_name(&self) -> Option<&[u8]> {
        // SAFETY: `io` lives as long as `self`.
        unsafe { key_name(self.0) }
    }

    /// The database that the key is loaded into; -1 if the server does not tell.
    pub(crate) fn db(&self) -> i32 {
        // SAFETY: `io` lives as long as `self`.
        unsafe { required!(RedisModule_GetDbIdFromIO)(self.0) }
    }
}

/// A string in a buffer of RM_LoadStringBuffer. Freed on drop.
pub(crate) struct Loaded {
    start: *mut c_char,
    len: usize,
}

impl Deref for Loaded {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the buffer is not NULL, has `len` bytes, and belongs to `self` until it is freed.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.len) }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: RM_LoadStringBuffer leaves its buffer to the caller, who frees it with RM_Free, only here.
        unsafe { required!(RedisModule_Free)(self.start.cast()) }
    }
}

pub(crate) struct Saver(*mut raw::RedisModuleIO);

impl Saver {
    /// # Safety
    /// `io` must be the argument of a save callback that runs as long as the saver lives.
    pub(super) unsafe fn from_raw(io: *mut raw::RedisModuleIO) -> Self {
        Saver(io)
    }

    /// The database and the name of the key that is being saved; `None` if the server does not tell.
    pub(crate) fn key(&self) -> Option<(i32, &[u8])> {
        // SAFETY: `io` lives as long as `self`.
        unsafe {
            Some((
                required!(RedisModule_GetDbIdFromIO)(self.0),
                key_name(self.0)?,
            ))
        }
    }

    // Writes are not checked: if one fails, the server makes the whole save fail.

    pub(crate) fn u64(&mut self, value: u64) {
        // SAFETY: `io` lives as long as `self`.
        unsafe { required!(RedisModule_SaveUnsigned)(self.0, value) }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        // SAFETY: `io` lives as long as `self`; pointer and length are those of one slice.
        unsafe {
            required!(RedisModule_SaveStringBuffer)(self.0, bytes.as_ptr().cast(), bytes.len());
        }
    }
}

pub(crate) struct AofWriter {
    io: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
}

impl AofWriter {
    /// # Safety
    /// `io` and `key` must be the arguments of a rewrite callback that runs as long as the writer lives.
    pub(super) unsafe fn from_raw(
        io: *mut raw::RedisModuleIO,
        key: *mut raw::RedisModuleString,
    ) -> Self {
        AofWriter { io, key }
    }

    /// The database and the name of the key that is being rewritten.
    pub(crate) fn key(&self) -> (i32, &[u8]) {
        // SAFETY: `io` and the key live until the callback returns.
        unsafe {
            let db = required!(RedisModule_GetDbIdFromIO)(self.io);
            (db, bytes_of(self.key))
        }
    }

    /// Writes `command key argument`. The server has written SELECT before.
    pub(crate) fn emit(&mut self, command: &CStr, argument: &[u8]) {
        // SAFETY: `io` and the key live until the callback returns, and RM_EmitAOF copies the bytes given by pointer
        // and length for `b`. The key is passed as bytes, because the server has its string object on the stack, where
        // nothing can take a reference to it.
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

/// Collects the parts of a value for DEBUG DIGEST-VALUE, which must be equal on a primary and its replicas.
pub(crate) struct Digest(*mut raw::RedisModuleDigest);

impl Digest {
    /// # Safety
    /// `digest` must be the argument of a digest callback that runs as long as this lives.
    pub(super) unsafe fn from_raw(digest: *mut raw::RedisModuleDigest) -> Self {
        Digest(digest)
    }

    /// The database and the name of the key whose digest is made.
    pub(crate) fn key(&self) -> (i32, &[u8]) {
        // SAFETY: the digest and the name that it refers to live as long as `self`.
        unsafe {
            let name = required!(RedisModule_GetKeyNameFromDigest)(self.0);
            let db = required!(RedisModule_GetDbIdFromDigest)(self.0);
            (db, if name.is_null() { b"" } else { bytes_of(name) })
        }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        // SAFETY: the digest lives as long as `self`; pointer and length are those of one slice.
        unsafe {
            required!(RedisModule_DigestAddStringBuffer)(
                self.0,
                bytes.as_ptr().cast(),
                bytes.len(),
            );
        }
    }

    /// Ends a sequence. The order of the parts within a sequence counts; the order of sequences does not.
    pub(crate) fn end_sequence(&mut self) {
        // SAFETY: the digest lives as long as `self`.
        unsafe { required!(RedisModule_DigestEndSequence)(self.0) }
    }
}

/// # Safety
/// `io` must live for all of `'a`.
unsafe fn key_name<'a>(io: *mut raw::RedisModuleIO) -> Option<&'a [u8]> {
    // SAFETY: RM_GetKeyNameFromIO returns NULL, or a name that lives as long as `io`.
    unsafe {
        let name = required!(RedisModule_GetKeyNameFromIO)(io);
        (!name.is_null()).then(|| bytes_of(name))
    }
}
