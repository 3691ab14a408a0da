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
use dsync_engine::saved::{self, Assembly};
use dsync_engine::types::{Db, Fence};
use dsync_engine::{Body, Family, StateId, wire};

pub(crate) fn register(ctx: Ctx<'_>) -> Result<(), String> {
    register_type_with_aux::<LockType, LastFence>(ctx)?;
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
                with_body(id, |body| saved::pack(body, [], |packed| io.bytes(packed)));
            }
            fn rewrite(io: &mut AofWriter, id: NonZeroU32) {
                with_body(id, |body| {
                    saved::pack(body, [], |packed| io.emit(STREAM, packed));
                });
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
                with_body(id, |body| {
                    saved::pack(body, [], |packed| digest.bytes(packed))
                });
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

/// Calls `with` with the state, if the engine has it.
fn with_body(id: NonZeroU32, with: impl FnOnce(&Body)) {
    SHELL.with(|shell| {
        if let Some(state) = state(id).and_then(|id| shell.engine.state(id)) {
            with(&state.body);
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
    let mut assembly = Assembly::new(family);
    loop {
        let packed = io.bytes(wire::MAX_LEN);
        let packed = packed.map_err(|io::Malformed| "it is cut short".to_owned())?;
        if !assembly
            .add(&packed)
            .map_err(|unsound| unsound.to_string())?
        {
            break;
        }
    }
    let loaded = assembly.finish().map_err(|unsound| unsound.to_string())?;
    let db = Db(io.db());
    let name = io.key_name().unwrap_or_default();
    let (adopted, fence_ahead) = SHELL.with(|shell| {
        let now = shell.now();
        let adopted = shell.engine.adopt(loaded, db, name, now);
        (adopted, shell.engine.take_fence_ahead())
    });
    if let Some(fence) = fence_ahead {
        journal::fence_ahead(fence);
    }
    adopted.map(Into::into).map_err(|unfit| unfit.to_string())
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

/// The last fence, which every RDB file contains beside the keys.
struct LastFence;

impl Aux for LastFence {
    fn save(io: &mut Saver) {
        io.u64(SHELL.with(|shell| shell.engine.last_fence().0));
    }

    fn load(io: &mut Loader, version: i32) -> Result<(), io::Malformed> {
        if let Err(why) = check_version(version) {
            log(Level::Warning, &format!("the file is refused: {why}"));
            return Err(io::Malformed);
        }
        // Accept the fence of a wrong clock, but not a number that no clock can give.
        let last = Some(Fence(io.u64()?)).filter(|last| *last <= Fence::MAX);
        let last = last.ok_or(io::Malformed)?;
        let fence_ahead = SHELL.with(|shell| {
            let now = shell.now();
            shell.engine.adopt_last_fence(last, now);
            shell.engine.take_fence_ahead()
        });
        if let Some(fence) = fence_ahead {
            journal::fence_ahead(fence);
        }
        Ok(())
    }
}
