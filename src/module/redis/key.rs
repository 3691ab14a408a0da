//! An open key whose value, if it is ours, is a number: the engine owns all state, and the server
//! keeps the number in the place of a pointer it never follows. So nothing read from the keyspace
//! is ever dereferenced.
//!
//! A key is open alone, see [`open`]: opening another one, notifying or probing meanwhile panics. Close
//! before effects.

use std::marker::PhantomData;
use std::num::NonZeroU32;

use redis_module::raw;

use super::api::required;
use super::context::Ctx;
use super::name::KeyString;
use super::open;
use super::value::{id_of, pointer_of};
use super::value_type::{self, TypeNumber};

/// What a key holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    Absent,
    Ours { family: TypeNumber, id: NonZeroU32 },
    Other,
}

/// Open from `open_read` or `open_write` until it is dropped.
pub(crate) struct OpenKey<'a> {
    /// NULL where the key is absent and open for reading.
    raw: *mut raw::RedisModuleKey,
    lifetime: PhantomData<Ctx<'a>>,
}

impl<'a> OpenKey<'a> {
    /// To look, without being a use: the eviction clock does not notice, nor, since 7.2, do hit
    /// counters and `keymiss`.
    pub(crate) fn open_read(ctx: Ctx<'a>, name: &KeyString) -> Self {
        let quiet = raw::REDISMODULE_OPEN_KEY_NOTOUCH
            | raw::REDISMODULE_OPEN_KEY_NONOTIFY
            | raw::REDISMODULE_OPEN_KEY_NOSTATS;
        Self::open(ctx, name, raw::REDISMODULE_READ as i32 | quiet as i32)
    }

    /// To read and change. A key that is past its EXPIRE is deleted first, and then absent.
    pub(crate) fn open_write(ctx: Ctx<'a>, name: &KeyString) -> Self {
        Self::open(
            ctx,
            name,
            (raw::REDISMODULE_READ | raw::REDISMODULE_WRITE) as i32,
        )
    }

    fn open(ctx: Ctx<'a>, name: &KeyString, mode: i32) -> Self {
        open::assert_none();
        // SAFETY: a live context and a live string, of which RM_OpenKey takes its own reference. No
        // other handle is open.
        let raw = unsafe { required!(RedisModule_OpenKey)(ctx.raw(), name.raw(), mode) };
        open::note(true);
        OpenKey {
            raw,
            lifetime: PhantomData,
        }
    }

    pub(crate) fn content(&self) -> Content {
        // SAFETY: `raw` is an open key or NULL.
        unsafe { content_of(self.raw) }
    }

    /// Stores `id`; the value that was there goes first, through `unlinked` and `free`. False when
    /// the key is not open for writing or the type was not registered.
    #[must_use]
    pub(crate) fn set_value(&self, family: TypeNumber, id: NonZeroU32) -> bool {
        let value_type = value_type::raw_type(family);
        if self.raw.is_null() || value_type.is_null() {
            return false;
        }
        // SAFETY: an open key and a type made by RM_CreateDataType, whose callbacks take the value
        // as the number it is.
        unsafe {
            required!(RedisModule_ModuleTypeSetValue)(self.raw, value_type, pointer_of(id))
                == raw::REDISMODULE_OK as i32
        }
    }

    /// False when the key is not open for writing. An absent key is deleted already.
    #[must_use]
    pub(crate) fn delete(&self) -> bool {
        // SAFETY: RM_DeleteKey accepts an open key, empty or not; it checks the mode itself.
        !self.raw.is_null()
            && unsafe { required!(RedisModule_DeleteKey)(self.raw) == raw::REDISMODULE_OK as i32 }
    }
}

/// # Safety
/// `raw` is a key that the server or this module has open, or NULL.
pub(super) unsafe fn content_of(raw: *mut raw::RedisModuleKey) -> Content {
    // SAFETY: RM_KeyType, RM_ModuleTypeGetType and -GetValue accept an open key or NULL; the value is only compared.
    let (kind, value_type, value) = unsafe {
        (
            required!(RedisModule_KeyType)(raw),
            required!(RedisModule_ModuleTypeGetType)(raw),
            required!(RedisModule_ModuleTypeGetValue)(raw),
        )
    };
    if kind == raw::REDISMODULE_KEYTYPE_EMPTY as i32 {
        return Content::Absent;
    }
    match (value_type::family_of(value_type), id_of(value)) {
        (Some(family), Some(id)) => Content::Ours { family, id },
        _ => Content::Other,
    }
}

impl Drop for OpenKey<'_> {
    fn drop(&mut self) {
        // SAFETY: RM_CloseKey accepts NULL, and an open key once.
        unsafe { required!(RedisModule_CloseKey)(self.raw) }
        open::note(false);
    }
}
