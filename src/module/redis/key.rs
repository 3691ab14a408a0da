//! Opens keys, reads and stores their values.
//!
//! A value of ours is only a number: the engine owns all states, and the server keeps the number in the place of a
//! pointer, which it never follows. So the module never dereferences anything that it reads from the keyspace.
//!
//! Only one key may be open at a time. Through a second handle, or in a call that lets others delete keys, the first
//! handle's object could be freed, and the server reads it when it closes the handle. So to open another key, to notify
//! or to probe meanwhile panics: close the key before the effects are carried out.

use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use redis_module::raw;

use super::api::required;
use super::context::Ctx;
use super::name::KeyString;
use super::value_type::{self, TypeNumber, id_of, pointer_of};

/// Whether a key is open. Used only under the server's global lock.
static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// # Panics
/// If a key is open.
pub(super) fn assert_none_open() {
    assert!(!IS_OPEN.load(Relaxed), "a key is still open");
}

/// The value of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeyContent {
    Absent,
    Ours { family: TypeNumber, id: NonZeroU32 },
    Other,
}

/// A key that is open until this is dropped.
pub(crate) struct OpenKey<'a> {
    /// NULL if the key is absent and was opened for reading.
    raw: *mut raw::RedisModuleKey,
    lifetime: PhantomData<Ctx<'a>>,
}

impl<'a> OpenKey<'a> {
    /// Opens a key for reading. It does not count as a use of the key: it does not affect eviction, nor, since 7.2, the
    /// hit counters and `keymiss`.
    pub(crate) fn open_read(ctx: Ctx<'a>, name: &KeyString) -> Self {
        let quiet = raw::REDISMODULE_OPEN_KEY_NOTOUCH
            | raw::REDISMODULE_OPEN_KEY_NONOTIFY
            | raw::REDISMODULE_OPEN_KEY_NOSTATS;
        Self::open(ctx, name, raw::REDISMODULE_READ as i32 | quiet as i32)
    }

    /// Opens a key for reading and writing. The server deletes a key past its EXPIRE first, and then it is absent.
    pub(crate) fn open_write(ctx: Ctx<'a>, name: &KeyString) -> Self {
        Self::open(
            ctx,
            name,
            (raw::REDISMODULE_READ | raw::REDISMODULE_WRITE) as i32,
        )
    }

    fn open(ctx: Ctx<'a>, name: &KeyString, mode: i32) -> Self {
        assert_none_open();
        // SAFETY: the context and the string are live, and RM_OpenKey takes its own reference to the string. No other
        // handle is open.
        let raw = unsafe { required!(RedisModule_OpenKey)(ctx.raw(), name.raw(), mode) };
        IS_OPEN.store(true, Relaxed);
        OpenKey {
            raw,
            lifetime: PhantomData,
        }
    }

    pub(crate) fn content(&self) -> KeyContent {
        // SAFETY: `raw` is an open key or NULL.
        unsafe { content_of(self.raw) }
    }

    /// Returns the milliseconds until the key expires; `None` if it does not.
    pub(crate) fn expires_in_ms(&self) -> Option<u64> {
        if self.raw.is_null() {
            return None;
        }
        // SAFETY: the key is open, which RM_GetExpire requires. For a key without EXPIRE it returns a number below 0.
        let ms = unsafe { required!(RedisModule_GetExpire)(self.raw) };
        u64::try_from(ms).ok()
    }

    /// Stores `id`. The server first removes the present value, and calls `unlinked` and `free` for it. Returns false
    /// if the key is not open for writing or the type was not registered.
    #[must_use]
    pub(crate) fn set_value(&self, family: TypeNumber, id: NonZeroU32) -> bool {
        let value_type = value_type::raw_type(family);
        if self.raw.is_null() || value_type.is_null() {
            return false;
        }
        // SAFETY: the key is open, and RM_CreateDataType has made the type, whose callbacks take the value as a number.
        unsafe {
            required!(RedisModule_ModuleTypeSetValue)(self.raw, value_type, pointer_of(id))
                == raw::REDISMODULE_OK as i32
        }
    }

    /// Deletes the key. Returns false if it is not open for writing, and true for an absent key.
    #[must_use]
    pub(crate) fn delete(&self) -> bool {
        // SAFETY: RM_DeleteKey accepts an open key, whether it is absent or not, and checks the mode itself.
        !self.raw.is_null()
            && unsafe { required!(RedisModule_DeleteKey)(self.raw) == raw::REDISMODULE_OK as i32 }
    }
}

/// # Safety
/// `raw` is a key that the server or this module has open, or NULL.
#[inline(always)]
pub(super) unsafe fn content_of(raw: *mut raw::RedisModuleKey) -> KeyContent {
    // SAFETY: RM_ModuleTypeGetType and, below, RM_ModuleTypeGetValue and RM_KeyType accept an open key or NULL.
    let value_type = unsafe { required!(RedisModule_ModuleTypeGetType)(raw) };
    if let Some(family) = value_type::family_of(value_type) {
        // SAFETY: as above, and the value is never dereferenced.
        let value = unsafe { required!(RedisModule_ModuleTypeGetValue)(raw) };
        return id_of(value).map_or(KeyContent::Other, |id| KeyContent::Ours { family, id });
    }
    // SAFETY: as above.
    match unsafe { required!(RedisModule_KeyType)(raw) } {
        empty if empty == raw::REDISMODULE_KEYTYPE_EMPTY as i32 => KeyContent::Absent,
        _ => KeyContent::Other,
    }
}

impl Drop for OpenKey<'_> {
    fn drop(&mut self) {
        // SAFETY: RM_CloseKey accepts NULL or an open key, and drop closes the key only once.
        unsafe { required!(RedisModule_CloseKey)(self.raw) }
        IS_OPEN.store(false, Relaxed);
    }
}
