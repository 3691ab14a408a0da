//! An open key whose value, if it is ours, is a number: the engine owns all state, and the server
//! keeps the number in the place of a pointer it never follows. So nothing read from the keyspace
//! is ever dereferenced.
//!
//! A key is open alone: a second handle, or a call that lets others delete, would leave this one
//! with a freed object, which the server reads when it closes it. Opening another one, notifying or
//! probing meanwhile therefore panics. Close before effects.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use redis_module::raw;

use super::api::required;
use super::context::Ctx;
use super::name::KeyName;
use super::value_type::{self, Family};

/// What a key holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    Absent,
    Ours { family: Family, id: NonZeroU32 },
    Other,
}

/// Whether a key is open. Only touched under the server's global lock.
static OPEN: AtomicBool = AtomicBool::new(false);

/// # Panics
/// When a key is open.
pub(super) fn assert_none_open() {
    assert!(!OPEN.load(Relaxed), "a key is still open");
}

/// Open from `open_read` or `open_write` until it is dropped.
pub(crate) struct Key<'a> {
    /// NULL where the key is absent and open for reading.
    raw: *mut raw::RedisModuleKey,
    lifetime: PhantomData<Ctx<'a>>,
}

impl<'a> Key<'a> {
    /// To look, without being a use: the eviction clock does not notice, nor, since 7.2, do hit
    /// counters and `keymiss`.
    pub(crate) fn open_read(ctx: Ctx<'a>, name: &KeyName) -> Self {
        let quiet = raw::REDISMODULE_OPEN_KEY_NOTOUCH
            | raw::REDISMODULE_OPEN_KEY_NONOTIFY
            | raw::REDISMODULE_OPEN_KEY_NOSTATS;
        Self::open(ctx, name, raw::REDISMODULE_READ as i32 | quiet as i32)
    }

    /// To read and change. A key that is past its EXPIRE is deleted first, and then absent.
    pub(crate) fn open_write(ctx: Ctx<'a>, name: &KeyName) -> Self {
        Self::open(
            ctx,
            name,
            (raw::REDISMODULE_READ | raw::REDISMODULE_WRITE) as i32,
        )
    }

    fn open(ctx: Ctx<'a>, name: &KeyName, mode: i32) -> Self {
        assert_none_open();
        // SAFETY: a live context and a live string, of which RM_OpenKey takes its own reference. No
        // other handle is open.
        let raw = unsafe { required!(RedisModule_OpenKey)(ctx.raw(), name.raw(), mode) };
        OPEN.store(true, Relaxed);
        Key {
            raw,
            lifetime: PhantomData,
        }
    }

    pub(crate) fn content(&self) -> Content {
        // SAFETY: RM_KeyType, RM_ModuleTypeGetType and -GetValue accept an open key or NULL; the
        // value is only compared.
        let (kind, value_type, value) = unsafe {
            (
                required!(RedisModule_KeyType)(self.raw),
                required!(RedisModule_ModuleTypeGetType)(self.raw),
                required!(RedisModule_ModuleTypeGetValue)(self.raw),
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

    /// Stores `id`; the value that was there goes first, through `unlinked` and `free`. False when
    /// the key is not open for writing or the type was not registered.
    #[must_use]
    pub(crate) fn set_value(&self, family: Family, id: NonZeroU32) -> bool {
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

impl Drop for Key<'_> {
    fn drop(&mut self) {
        // SAFETY: RM_CloseKey accepts NULL, and an open key once.
        unsafe { required!(RedisModule_CloseKey)(self.raw) }
        OPEN.store(false, Relaxed);
    }
}

/// The number that a value pointer stands for.
pub(super) fn id_of(value: *const c_void) -> Option<NonZeroU32> {
    u32::try_from(value.addr()).ok().and_then(NonZeroU32::new)
}

pub(super) fn pointer_of(id: NonZeroU32) -> *mut c_void {
    std::ptr::without_provenance_mut(id.get() as usize)
}
