//! The keyspace types, one for each family.
//!
//! The value that the server stores is only a number; the engine has the state with this number. When the server saves
//! a value, the module writes the state as packed strings (see [`saved`]). RDB files and DUMP payloads contain these
//! strings, a rewritten AOF has one command for each, and DEBUG DIGEST-VALUE hashes them: so a state has one form
//! everywhere.

use std::num::NonZeroU32;

use super::beside_keys::BesideKeys;
use super::loading::{adopt, check_version};
use super::out::journal;
use super::out::replicate::STREAM;
use super::redis::context::Ctx;
use super::redis::io::{self, AofWriter, Digest, Loader, Saver};
use super::redis::value_type::{ValueType, register_type, register_type_with_aux};
use super::shell::SHELL;
use super::{freed, loading, tick};
use dsync_engine::change::KeptPlace;
use dsync_engine::saved::{self, Assembly, Loaded};
use dsync_engine::types::Db;
use dsync_engine::{Family, StateId, wire};

pub(crate) fn register(ctx: Ctx<'_>) -> Result<(), String> {
    register_type_with_aux::<LockType, BesideKeys>(ctx)?;
    register_type::<SemaphoreType>(ctx)?;
    register_type::<GroupType>(ctx)?;
    register_type::<OnceType>(ctx)
}

macro_rules! value_type {
    ($type:ident, $name:literal, $family:expr) => {
        struct $type;

        impl ValueType for $type {
            const NAME: &'static std::ffi::CStr = $name;
            const ENCVER: i32 = wire::VERSION as i32;
            const FAMILY: u8 = $family.number();

            fn load(io: &mut Loader, version: i32) -> Option<NonZeroU32> {
                load($family, io, version)
            }
            fn save(io: &mut Saver, id: NonZeroU32) {
                let places = places(id, io.key());
                pack(id, places, |packed| io.bytes(packed));
            }
            fn rewrite(io: &mut AofWriter, id: NonZeroU32) {
                let places = places(id, Some(io.key()));
                pack(id, places, |packed| io.emit(STREAM, packed));
            }
            fn free(id: NonZeroU32, on_main_thread: bool) {
                if let Some(id) = state(id) {
                    freed::free(id, on_main_thread);
                }
            }
            fn unlinked(db: i32, name: &[u8], id: NonZeroU32) {
                unlinked(db, name, id);
            }
            fn memory(id: NonZeroU32, key: Option<(i32, &[u8])>) -> usize {
                memory(id, key)
            }
            fn digest(digest: &mut Digest, id: NonZeroU32) {
                let places = places(id, Some(digest.key()));
                pack(id, places, |packed| digest.bytes(packed));
                digest.end_sequence();
            }
        }
    };
}

value_type!(LockType, c"dsynclock", Family::Lock);
value_type!(SemaphoreType, c"dsync-sem", Family::Semaphore);
value_type!(GroupType, c"dsync-wgr", Family::Group);
value_type!(OnceType, c"dsynconce", Family::Once);

/// What the server allocates for a value, and most versions leave out of MEMORY USAGE: its object, and our type beside
/// our number.
const VALUE_BYTES: usize = 16 + 16;

fn state(id: NonZeroU32) -> Option<StateId> {
    StateId::from_raw(id.get())
}

/// Returns the bytes that a value takes, with the kept places of its name.
fn memory(id: NonZeroU32, key: Option<(i32, &[u8])>) -> usize {
    SHELL.with(|shell| {
        let state = state(id).map_or(0, |id| shell.engine.memory(id));
        let places = key.map_or(0, |(db, name)| shell.engine.memory_of_places(Db(db), name));
        state + places + VALUE_BYTES
    })
}

/// Returns the kept places of a name that are saved with its value. The name comes from the server: the engine may not know
/// where the value is, if RENAME or MOVE has brought it there.
fn places(id: NonZeroU32, key: Option<(i32, &[u8])>) -> Vec<KeptPlace> {
    SHELL.with(|shell| {
        let state = state(id).and_then(|id| shell.engine.state(id));
        let (Some(state), Some((db, name))) = (state, key) else {
            return Vec::new();
        };
        let places = shell.engine.places(Db(db), name, state.body.family());
        places.collect()
    })
}

/// Calls `each` with the packed strings of a state and of these places, if the engine has the state.
fn pack(id: NonZeroU32, places: Vec<KeptPlace>, each: impl FnMut(&[u8])) {
    SHELL.with(|shell| {
        if let Some(state) = state(id).and_then(|id| shell.engine.state(id)) {
            saved::pack(&state.body, places, each);
        }
    });
}

/// Loads a value, or logs why it cannot.
fn load(family: Family, io: &mut Loader, version: i32) -> Option<NonZeroU32> {
    load_or_say_why(family, io, version)
        .inspect_err(|why| {
            let key = io.key_name().unwrap_or_default();
            journal::value_refused(why, key, loading::is_running());
        })
        .ok()
}

fn load_or_say_why(family: Family, io: &mut Loader, version: i32) -> Result<NonZeroU32, String> {
    check_version(version)?;
    let loaded = assemble(family, io)?;
    let db = Db(io.db());
    let name = io.key_name().unwrap_or_default();
    let adopted = adopt(|engine, now| engine.adopt(loaded, db, name, now));
    adopted.map(Into::into).map_err(|unfit| unfit.to_string())
}

/// Reads the packed strings of one state.
fn assemble(family: Family, io: &mut Loader) -> Result<Loaded, String> {
    let mut assembly = Assembly::new(family);
    loop {
        let packed = io.bytes(wire::MAX_LEN);
        let packed = packed.map_err(|io::Malformed| "it is cut short".to_owned())?;
        let more = assembly.add(&packed);
        if !more.map_err(|unsound| unsound.to_string())? {
            return assembly.finish().map_err(|unsound| unsound.to_string());
        }
    }
}

/// Tells the engine that the value left this name. Arms the timer if requests wait for the name.
fn unlinked(db: i32, name: &[u8], id: NonZeroU32) {
    let is_busy = SHELL.with(|shell| {
        let waited_for = state(id).is_some_and(|id| shell.engine.unlinked(id, Db(db), name));
        waited_for || shell.engine.needs_search()
    });
    if is_busy {
        tick::arm_soon();
    }
}
