//! The keyspace types, one for each family.
//!
//! The value that the server stores is only a number; the engine has the state with this number. When the server saves
//! a value, the module writes the state as packed strings (see [`saved`]). RDB files and DUMP payloads contain these
//! strings, a rewritten AOF has one command for each, and DEBUG DIGEST-VALUE hashes them: so a state has one form
//! everywhere.

use std::num::NonZeroU32;

use super::out::journal;
use super::out::replicate::STREAM;
use super::redis::context::{Ctx, Level, log};
use super::redis::io::{self, AofWriter, Digest, Loader, Saver};
use super::redis::value_type::{Aux, ValueType, register_type, register_type_with_aux};
use super::{SHELL, arm, freed};
use dsync_engine::saved::{self, Assembly, Loaded};
use dsync_engine::types::{Db, Fence, Now};
use dsync_engine::{Body, Engine, Family, StateId, wire};

pub(crate) fn register(ctx: Ctx<'_>) -> Result<(), String> {
    register_type_with_aux::<LockType, BesideTheKeys>(ctx)?;
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
                pack(id, |packed| io.bytes(packed));
            }
            fn rewrite(io: &mut AofWriter, id: NonZeroU32) {
                pack(id, |packed| io.emit(STREAM, packed));
            }
            fn free(id: NonZeroU32, on_main_thread: bool) {
                if let Some(id) = state(id) {
                    freed::free(id, on_main_thread);
                }
            }
            fn unlinked(db: i32, name: &[u8], id: NonZeroU32) {
                unlinked(db, name, id);
            }
            fn memory(id: NonZeroU32) -> usize {
                let state = SHELL.with(|shell| state(id).map_or(0, |id| shell.engine.memory(id)));
                state + VALUE_BYTES
            }
            fn digest(digest: &mut Digest, id: NonZeroU32) {
                pack(id, |packed| digest.bytes(packed));
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

/// Calls `each` with the packed strings of a state and of the kept places of its name, if the engine has the state.
fn pack(id: NonZeroU32, each: impl FnMut(&[u8])) {
    SHELL.with(|shell| {
        let Some(id) = state(id) else { return };
        if let Some(state) = shell.engine.state(id) {
            saved::pack(&state.body, shell.engine.places_of(id), each);
        }
    });
}

/// Loads a value, or logs why it cannot.
fn load(family: Family, io: &mut Loader, version: i32) -> Option<NonZeroU32> {
    load_or_say_why(family, io, version)
        .inspect_err(|why| log(Level::Warning, &format!("a value is refused: {why}")))
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

/// # Errors
/// For data of another format version; the text says which version of dsync wrote it.
fn check_version(version: i32) -> Result<(), String> {
    let this = concat!("this is dsync ", env!("CARGO_PKG_VERSION"));
    match version {
        known if known == i32::from(wire::VERSION) => Ok(()),
        1 => Err(format!(
            "it was written by dsync 0.1.0, in format version 1, and {this}, which reads format version {}",
            wire::VERSION
        )),
        other => Err(format!(
            "it is of format version {other}, and {this}, which reads format version {}",
            wire::VERSION
        )),
    }
}

/// Tells the engine that the value left this name. Arms the timer if requests wait for the name.
fn unlinked(db: i32, name: &[u8], id: NonZeroU32) {
    let is_busy = SHELL.with(|shell| {
        let waited_for = state(id).is_some_and(|id| shell.engine.unlinked(id, Db(db), name));
        waited_for || shell.engine.needs_search()
    });
    if is_busy {
        arm::arm_soon();
    }
}

/// What every RDB file contains beside the keys: the last fence, and the kept places of names that have no value.
///
/// A name with kept places has a value, except in the turn in which RENAME or the like took it away. So there are hardly
/// ever such places, and a file without them is one that dsync 0.2.0 reads.
struct BesideTheKeys;

/// Added to the last fence if places follow. No fence has this bit.
const PLACES_FOLLOW: u64 = 1 << 63;

impl Aux for BesideTheKeys {
    /// The last fence. If places follow: for each name its database, family, name and packed strings, and a last number.
    fn save(io: &mut Saver) {
        SHELL.with(|shell| {
            let last = shell.engine.last_fence().0;
            let mut names = shell.engine.unheld_places().peekable();
            if names.peek().is_none() {
                return io.u64(last);
            }
            io.u64(last | PLACES_FOLLOW);
            for (db, name, family, places) in names {
                io.u64(db.0.unsigned_abs().into());
                io.u64(family.number().into());
                io.bytes(name);
                saved::pack(&Body::new(family), places, |packed| io.bytes(packed));
            }
            io.u64(END_OF_PLACES);
        });
    }

    fn load(io: &mut Loader, version: i32) -> Result<(), io::Malformed> {
        let loaded = load_beside_the_keys(io, version);
        loaded.map_err(|why| {
            log(Level::Warning, &format!("the file is refused: {why}"));
            io::Malformed
        })
    }
}

/// Stands where the next database would.
const END_OF_PLACES: u64 = u64::MAX;

fn load_beside_the_keys(io: &mut Loader, version: i32) -> Result<(), String> {
    check_version(version)?;
    let damaged = |io::Malformed| "what it has beside the keys is damaged".to_owned();
    let number = io.u64().map_err(damaged)?;
    // Accept the fence of a wrong clock, but not a number that no clock can give.
    let last = Some(Fence(number & !PLACES_FOLLOW)).filter(|last| *last <= Fence::MAX);
    let last = last.ok_or(io::Malformed).map_err(damaged)?;
    adopt(|engine, now| engine.adopt_last_fence(last, now));
    if number & PLACES_FOLLOW == 0 {
        return Ok(());
    }
    loop {
        let db = io.u64().map_err(damaged)?;
        if db == END_OF_PLACES {
            return Ok(());
        }
        let db = i32::try_from(db).map_err(|_| damaged(io::Malformed))?;
        let family = u8::try_from(io.u64().map_err(damaged)?).ok();
        let family = family.and_then(Family::of_number);
        let family = family.ok_or(io::Malformed).map_err(damaged)?;
        let name = io.bytes(MAX_NAME_LEN).map_err(damaged)?;
        let loaded = assemble(family, io)?;
        adopt(|engine, now| engine.adopt_places(Db(db), &name, loaded.places, now));
    }
}

/// The longest name of a key: the server's own bound for a string.
const MAX_NAME_LEN: usize = 512 << 20;

/// Calls the engine to take over something that was saved, and warns of a fence that is far ahead of the clock.
fn adopt<R>(call: impl FnOnce(&mut Engine, Now) -> R) -> R {
    let (adopted, fence_ahead) = SHELL.with(|shell| {
        let now = shell.now();
        let adopted = call(&mut shell.engine, now);
        (adopted, shell.engine.take_fence_ahead())
    });
    if let Some(fence) = fence_ahead {
        journal::fence_ahead(fence);
    }
    adopted
}
