//! A keyspace type, as a Rust type. Translates the server's callbacks into calls with numbers and safe handles: a value
//! is a number in the place of a pointer, which nothing follows.
//!
//! Deliberately absent: `free_effort`, so that a value counts 1 and DEL and UNLINK free it at once (FLUSHALL ASYNC, and
//! on Valkey every FLUSHDB, still free values on other threads, hence `on_main_thread`); `defrag`, because there is no
//! pointer to move. COPY is refused, because a copied lock would have two holders.

use std::ffi::{CStr, c_void};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use redis_module::raw;

use super::api::required;
use super::context::Ctx;
use super::guard::{guard, guard_unlocked, on_main_thread};
use super::io::{AofWriter, Digest, Loader, Malformed, Saver};
use super::name::bytes_of;

/// The number of a type of ours, as its `ValueType` chose it, below `FAMILIES`.
pub(crate) type TypeNumber = u8;

pub(crate) const FAMILIES: usize = 8;

static TYPES: [AtomicPtr<raw::RedisModuleType>; FAMILIES] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; FAMILIES];

pub(crate) trait ValueType {
    /// Nine characters of A–Z a–z 0–9 - _, kept in every RDB file.
    const NAME: &'static CStr;
    const ENCVER: i32;
    const FAMILY: TypeNumber;

    /// Reads a new value from a payload and returns its number. `None` makes the load fail as bad data.
    fn load(io: &mut Loader, encver: i32) -> Option<NonZeroU32>;
    fn save(io: &mut Saver, id: NonZeroU32);
    fn rewrite(io: &mut AofWriter, id: NonZeroU32);
    /// The server forgets the value. On another thread than the main one there is no global lock, so neither a
    /// `GilCell` nor the server may be used.
    fn free(id: NonZeroU32, on_main_thread: bool);
    /// The value leaves this name, because the key is deleted, overwritten or renamed. May only change memory. Not
    /// called for FLUSHDB, FLUSHALL and SWAPDB, which are events.
    fn unlinked(db: i32, name: &[u8], id: NonZeroU32);
    /// Returns the bytes that the value takes, with all that belongs to its name. `key` is the database and the name, if
    /// the server tells them.
    fn memory(id: NonZeroU32, key: Option<(i32, &[u8])>) -> usize;
    fn digest(digest: &mut Digest, id: NonZeroU32);
}

/// Where data stand in an RDB file that are no key's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AuxPlace {
    BeforeKeys,
    BehindKeys,
}

/// Data in an RDB file besides the keys.
pub(crate) trait Aux {
    /// Writes the data for this place. If `may_be_empty`, nothing is in the file if nothing is written, so that a server
    /// without the module reads the file. Redis 7.0 writes a header before it asks, so there something must follow.
    fn save(io: &mut Saver, place: AuxPlace, may_be_empty: bool);
    fn load(io: &mut Loader, place: AuxPlace, encver: i32) -> Result<(), Malformed>;
}

pub(crate) fn register_type<T: ValueType>(ctx: Ctx) -> Result<(), String> {
    create::<T>(ctx, methods::<T>())
}

/// [`register_type`] for the one type that also has auxiliary data.
pub(crate) fn register_type_with_aux<T: ValueType, A: Aux>(ctx: Ctx) -> Result<(), String> {
    let mut methods = methods::<T>();
    methods.aux_load = Some(aux_load::<A>);
    methods.aux_save = Some(aux_save::<A>);
    methods.aux_save2 = Some(aux_save2::<A>);
    methods.aux_save_triggers =
        (raw::REDISMODULE_AUX_BEFORE_RDB | raw::REDISMODULE_AUX_AFTER_RDB) as i32;
    create::<T>(ctx, methods)
}

fn methods<T: ValueType>() -> raw::RedisModuleTypeMethods {
    raw::RedisModuleTypeMethods {
        version: u64::from(raw::REDISMODULE_TYPE_METHOD_VERSION),
        rdb_load: Some(rdb_load::<T>),
        rdb_save: Some(rdb_save::<T>),
        aof_rewrite: Some(aof_rewrite::<T>),
        mem_usage: None,
        digest: Some(digest::<T>),
        free: Some(free::<T>),
        aux_load: None,
        aux_save: None,
        aux_save_triggers: 0,
        free_effort: None,
        unlink: None,
        copy: None,
        defrag: None,
        mem_usage2: Some(mem_usage2::<T>),
        free_effort2: None,
        unlink2: Some(unlink2::<T>),
        copy2: Some(copy2),
        aux_save2: None,
    }
}

fn create<T: ValueType>(ctx: Ctx, mut methods: raw::RedisModuleTypeMethods) -> Result<(), String> {
    // SAFETY: RM_CreateDataType copies the methods, and the server forgets the type when it unloads this library, which
    // it does only before a value of the type can exist.
    let created = unsafe {
        required!(RedisModule_CreateDataType)(
            ctx.raw(),
            T::NAME.as_ptr(),
            T::ENCVER,
            &raw mut methods,
        )
    };
    if created.is_null() {
        return Err(format!(
            "the server refused the data type {}",
            T::NAME.to_string_lossy()
        ));
    }
    TYPES[usize::from(T::FAMILY)].store(created, Relaxed);
    Ok(())
}

/// The number in the place of a value's pointer.
pub(super) fn id_of(value: *const c_void) -> Option<NonZeroU32> {
    u32::try_from(value.addr()).ok().and_then(NonZeroU32::new)
}

pub(super) fn pointer_of(id: NonZeroU32) -> *mut c_void {
    std::ptr::without_provenance_mut(id.get() as usize)
}

/// The server's type; NULL if it was not registered.
pub(super) fn raw_type(family: TypeNumber) -> *mut raw::RedisModuleType {
    TYPES
        .get(usize::from(family))
        .map_or(std::ptr::null_mut(), |created| created.load(Relaxed))
}

/// The number of a type of ours; `None` for any other type.
pub(super) fn family_of(value_type: *mut raw::RedisModuleType) -> Option<TypeNumber> {
    if value_type.is_null() {
        return None;
    }
    (0..FAMILIES as TypeNumber).find(|family| raw_type(*family) == value_type)
}

unsafe extern "C" fn rdb_load<T: ValueType>(
    io: *mut raw::RedisModuleIO,
    encver: i32,
) -> *mut c_void {
    guard(c"rdb_load", std::ptr::null_mut, || {
        // SAFETY: the server keeps `io` until this returns, as in every callback below.
        let mut io = unsafe { Loader::from_raw(io) };
        T::load(&mut io, encver).map_or(std::ptr::null_mut(), pointer_of)
    })
}

unsafe extern "C" fn rdb_save<T: ValueType>(io: *mut raw::RedisModuleIO, value: *mut c_void) {
    guard(
        c"rdb_save",
        || (),
        || {
            let Some(id) = id_of(value) else { return };
            // SAFETY: as in rdb_load.
            T::save(&mut unsafe { Saver::from_raw(io) }, id);
        },
    );
}

unsafe extern "C" fn aof_rewrite<T: ValueType>(
    io: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
    value: *mut c_void,
) {
    guard(
        c"aof_rewrite",
        || (),
        || {
            let Some(id) = id_of(value) else { return };
            // SAFETY: as in rdb_load.
            T::rewrite(&mut unsafe { AofWriter::from_raw(io, key) }, id);
        },
    );
}

unsafe extern "C" fn free<T: ValueType>(value: *mut c_void) {
    let Some(id) = id_of(value) else { return };
    if on_main_thread() {
        guard(c"free", || (), || T::free(id, true));
    } else {
        guard_unlocked(c"free", || (), || T::free(id, false));
    }
}

unsafe extern "C" fn unlink2<T: ValueType>(
    opt: *mut raw::RedisModuleKeyOptCtx,
    value: *const c_void,
) {
    guard(
        c"unlink",
        || (),
        || {
            let Some(id) = id_of(value) else { return };
            // SAFETY: the server keeps `opt` and the name that it refers to until this returns.
            let (db, name) = unsafe { (db_of(opt), name_of(opt)) };
            T::unlinked(db, name.unwrap_or_default(), id);
        },
    );
}

/// # Safety
/// `opt` must be the argument of a callback that runs.
unsafe fn db_of(opt: *mut raw::RedisModuleKeyOptCtx) -> i32 {
    // SAFETY: as the caller promises; RM_GetDbIdFromOptCtx only reads it.
    unsafe { required!(RedisModule_GetDbIdFromOptCtx)(opt) }
}

/// # Safety
/// `opt` must be the argument of a callback that runs as long as `'a`.
unsafe fn name_of<'a>(opt: *mut raw::RedisModuleKeyOptCtx) -> Option<&'a [u8]> {
    // SAFETY: as the caller promises; the server keeps the name, which may be NULL, as long as `opt`.
    unsafe {
        let name = required!(RedisModule_GetKeyNameFromOptCtx)(opt);
        (!name.is_null()).then(|| bytes_of(name))
    }
}

unsafe extern "C" fn copy2(_: *mut raw::RedisModuleKeyOptCtx, _: *const c_void) -> *mut c_void {
    std::ptr::null_mut()
}

unsafe extern "C" fn mem_usage2<T: ValueType>(
    opt: *mut raw::RedisModuleKeyOptCtx,
    value: *const c_void,
    _samples: usize,
) -> usize {
    guard(
        c"mem_usage",
        || 0,
        || {
            let Some(id) = id_of(value) else { return 0 };
            // SAFETY: the server keeps `opt` and the name that it refers to until this returns.
            let key = unsafe { name_of(opt).map(|name| (db_of(opt), name)) };
            T::memory(id, key)
        },
    )
}

unsafe extern "C" fn digest<T: ValueType>(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    guard(
        c"digest",
        || (),
        || {
            let Some(id) = id_of(value) else { return };
            // SAFETY: as in rdb_load.
            T::digest(&mut unsafe { Digest::from_raw(digest) }, id);
        },
    );
}

/// `None` for a place that no server writes to: a damaged file.
fn aux_place(when: i32) -> Option<AuxPlace> {
    match when as isize {
        raw::REDISMODULE_AUX_BEFORE_RDB => Some(AuxPlace::BeforeKeys),
        raw::REDISMODULE_AUX_AFTER_RDB => Some(AuxPlace::BehindKeys),
        _ => None,
    }
}

/// Redis 7.0 calls this one.
unsafe extern "C" fn aux_save<A: Aux>(io: *mut raw::RedisModuleIO, when: i32) {
    // SAFETY: as in rdb_load.
    unsafe { save_aux::<A>(io, when, false) };
}

/// All later servers call this one.
unsafe extern "C" fn aux_save2<A: Aux>(io: *mut raw::RedisModuleIO, when: i32) {
    // SAFETY: as in rdb_load.
    unsafe { save_aux::<A>(io, when, true) };
}

/// # Safety
/// `io` must be the argument of a save callback that runs.
unsafe fn save_aux<A: Aux>(io: *mut raw::RedisModuleIO, when: i32, may_be_empty: bool) {
    guard(
        c"aux_save",
        || (),
        || {
            let Some(place) = aux_place(when) else { return };
            // SAFETY: as the caller promises.
            A::save(&mut unsafe { Saver::from_raw(io) }, place, may_be_empty);
        },
    );
}

unsafe extern "C" fn aux_load<A: Aux>(io: *mut raw::RedisModuleIO, encver: i32, when: i32) -> i32 {
    let (ok, err) = (raw::REDISMODULE_OK as i32, raw::REDISMODULE_ERR as i32);
    guard(
        c"aux_load",
        || err,
        || {
            let Some(place) = aux_place(when) else {
                return err;
            };
            // SAFETY: as in rdb_load.
            match A::load(&mut unsafe { Loader::from_raw(io) }, place, encver) {
                Ok(()) => ok,
                Err(Malformed) => err,
            }
        },
    )
}
