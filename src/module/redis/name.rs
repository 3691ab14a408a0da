//! A key's name as the server wants it: a reference-counted string object.
//!
//! Made from a command's argument it costs nothing; made from bytes it is allocated, and freed on
//! drop. One function that takes either keeps the hot path free of copies and the timer path free
//! of special cases.

use std::marker::PhantomData;

use redis_module::raw;

use super::api::required;

pub(crate) struct KeyString<'a> {
    string: *mut raw::RedisModuleString,
    owned: bool,
    lifetime: PhantomData<&'a [u8]>,
}

impl<'a> KeyString<'a> {
    pub(crate) fn new(bytes: &[u8]) -> KeyString<'static> {
        // SAFETY: RM_CreateString copies `len` bytes; without a context the caller owns the one
        // reference it returns.
        let string = unsafe {
            required!(RedisModule_CreateString)(
                std::ptr::null_mut(),
                bytes.as_ptr().cast(),
                bytes.len(),
            )
        };
        KeyString {
            string,
            owned: true,
            lifetime: PhantomData,
        }
    }

    /// # Safety
    /// `string` is a live string object for all of `'a`.
    pub(super) unsafe fn borrowed(string: *mut raw::RedisModuleString) -> Self {
        KeyString {
            string,
            owned: false,
            lifetime: PhantomData,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the object lives as long as `self`, and nobody changes the bytes of a name.
        unsafe { bytes_of(self.string) }
    }

    pub(super) fn raw(&self) -> *mut raw::RedisModuleString {
        self.string
    }
}

impl Drop for KeyString<'_> {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: gives back the one reference that RM_CreateString returned.
            unsafe { required!(RedisModule_FreeString)(std::ptr::null_mut(), self.string) }
        }
    }
}

/// # Safety
/// `string` is a live string object, not changed during `'a`.
pub(super) unsafe fn bytes_of<'a>(string: *const raw::RedisModuleString) -> &'a [u8] {
    let mut len = 0usize;
    // SAFETY: RM_StringPtrLen returns the object's own buffer and its length; that is never NULL
    // for a live object.
    unsafe {
        let start = required!(RedisModule_StringPtrLen)(string, &raw mut len);
        std::slice::from_raw_parts(start.cast(), len)
    }
}
