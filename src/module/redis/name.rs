//! A key's name as the server needs it: a reference-counted string object.
//!
//! One made from a command's argument costs nothing. One made from bytes is allocated, and freed on drop. Because both
//! have the same type, commands need no copy of the name, and the timer can use the same functions.

use std::marker::PhantomData;

use redis_module::raw;

use super::api::required;

/// A string object, borrowed from a command or owned.
pub(crate) struct KeyString<'a> {
    string: *mut raw::RedisModuleString,
    /// Its bytes, which each request needs several times.
    bytes: *const [u8],
    owned: bool,
    lifetime: PhantomData<&'a [u8]>,
}

impl<'a> KeyString<'a> {
    pub(crate) fn new(bytes: &[u8]) -> KeyString<'static> {
        // SAFETY: RM_CreateString copies the bytes; without a context the caller owns the only reference to the string.
        let string = unsafe {
            required!(RedisModule_CreateString)(
                std::ptr::null_mut(),
                bytes.as_ptr().cast(),
                bytes.len(),
            )
        };
        KeyString {
            string,
            // SAFETY: RM_CreateString has just returned the string, which lives until `drop` gives it back.
            bytes: unsafe { bytes_of(string) },
            owned: true,
            lifetime: PhantomData,
        }
    }

    /// # Safety
    /// `string` must be a string object that lives and does not change for all of `'a`.
    pub(super) unsafe fn borrowed(string: *mut raw::RedisModuleString) -> Self {
        KeyString {
            string,
            // SAFETY: as the caller guarantees.
            bytes: unsafe { bytes_of(string) },
            owned: false,
            lifetime: PhantomData,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the string object, whose buffer this is, lives as long as `self`, and nothing changes the bytes of a name.
        unsafe { &*self.bytes }
    }

    pub(super) fn raw(&self) -> *mut raw::RedisModuleString {
        self.string
    }
}

impl Drop for KeyString<'_> {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: RM_FreeString gives back the only reference, which RM_CreateString returned.
            unsafe { required!(RedisModule_FreeString)(std::ptr::null_mut(), self.string) }
        }
    }
}

/// # Safety
/// `string` must be a string object that lives and does not change for all of `'a`.
pub(super) unsafe fn bytes_of<'a>(string: *const raw::RedisModuleString) -> &'a [u8] {
    let mut len = 0usize;
    // SAFETY: RM_StringPtrLen returns the string object's own buffer, which is never NULL, and its length.
    unsafe {
        let start = required!(RedisModule_StringPtrLen)(string, &raw mut len);
        std::slice::from_raw_parts(start.cast(), len)
    }
}
