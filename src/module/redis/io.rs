//! Reading and writing values: RDB, AOF rewrite, DEBUG DIGEST.
//!
//! The module handles read errors itself: without that option a payload cut short would abort the
//! server, with it a failed read returns zero. So every read is checked before its result is seen,
//! and a `Loader` gives nothing without a `Result`.

use std::ffi::CStr;

use redis_module::raw;

use super::api::required;
use super::name::{KeyName, bytes_of};
use super::pieces::{MAX, call_with_pieces};

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

    pub(crate) fn bytes(&mut self, max_len: usize) -> Result<Vec<u8>, Malformed> {
        let mut len = 0usize;
        // SAFETY: a live io; NULL on error, else `len` bytes that are ours to free.
        let start = unsafe { required!(RedisModule_LoadStringBuffer)(self.0, &raw mut len) };
        if start.is_null() {
            return Err(Malformed);
        }
        // SAFETY: the buffer just returned, freed once.
        let copy = unsafe {
            let copy = (len <= max_len)
                .then(|| std::slice::from_raw_parts(start.cast::<u8>(), len).to_vec());
            required!(RedisModule_Free)(start.cast());
            copy
        };
        self.checked(())?;
        copy.ok_or(Malformed)
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

    /// Writes one command. The server has selected the database already.
    pub(crate) fn emit(&mut self, command: &CStr, args: &[&[u8]]) {
        if args.len() <= MAX {
            // SAFETY: RM_EmitAOF reads one pair for each `b` and copies the bytes; see `pieces` for
            // the pairs beyond.
            unsafe {
                call_with_pieces!(
                    required!(RedisModule_EmitAOF),
                    self.io,
                    command.as_ptr(),
                    args
                )
            };
            return;
        }
        let strings: Vec<KeyName> = args.iter().map(|arg| KeyName::new(arg)).collect();
        let mut vector: Vec<_> = strings.iter().map(KeyName::raw).collect();
        // SAFETY: `v` reads a vector of live string objects and its length, and takes references of
        // its own.
        unsafe {
            required!(RedisModule_EmitAOF)(
                self.io,
                command.as_ptr(),
                c"v".as_ptr(),
                vector.as_mut_ptr(),
                vector.len(),
            );
        }
    }

    pub(crate) fn key_name(&self) -> &[u8] {
        // SAFETY: the callback's own argument, alive until it returns.
        unsafe { bytes_of(self.key) }
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

    pub(crate) fn i64(&mut self, value: i64) {
        // SAFETY: a live digest.
        unsafe { required!(RedisModule_DigestAddLongLong)(self.0, value) }
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
