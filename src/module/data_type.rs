//! The keyspace types, one a family: what the server stores is a number, and what it saves is the
//! engine's snapshot of the state with that number.
//!
//! The server may let go of a value on another thread (FLUSHALL ASYNC): such numbers are put in a list
//! that the main thread takes up, as a whole, and works off in slices. Until then the engine keeps the state,
//! which nobody can reach. The list is in chunks: a single one of a million numbers would be copied as it grows,
//! under a lock that the main thread waits for.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::redis::context::{Ctx, Level, log};
use super::redis::data_type::{Aux, ValueType, register_type, register_type_with_aux};
use super::redis::io::{self, AofWriter, Digest, Loader, Saver};
use super::{SHELL, journal, replicate, timers};
use dsync_engine::snapshot::{self, Malformed, Sink, Source};
use dsync_engine::types::{Db, Fence};
use dsync_engine::{Family, StateId};

/// Numbers of values that the server let go of on another thread, at most [`CHUNK`] of them in each part.
static FREED_ELSEWHERE: Mutex<VecDeque<Vec<StateId>>> = Mutex::new(VecDeque::new());

const CHUNK: usize = 1_024;

/// The number that the layer below knows a family by.
pub(super) fn number(family: Family) -> u8 {
    match family {
        Family::Lock => 0,
        Family::Semaphore => 1,
        Family::Group => 2,
        Family::Once => 3,
    }
}

pub(super) fn family(number: u8) -> Option<Family> {
    Family::ALL
        .into_iter()
        .find(|family| self::number(*family) == number)
}

pub(super) fn register(ctx: Ctx<'_>) -> Result<(), String> {
    register_type_with_aux::<LockType, LastFence>(ctx)?;
    register_type::<SemaphoreType>(ctx)?;
    register_type::<GroupType>(ctx)?;
    register_type::<OnceType>(ctx)
}

fn freed_elsewhere() -> MutexGuard<'static, VecDeque<Vec<StateId>>> {
    FREED_ELSEWHERE
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Hands what was freed elsewhere over to the engine, which gives it back in slices.
pub(super) fn collect_freed() {
    let freed = std::mem::take(&mut *freed_elsewhere());
    if !freed.is_empty() {
        SHELL.with(|shell| shell.engine.freed_elsewhere(freed));
    }
}

macro_rules! value_type {
    ($type:ident, $name:literal, $family:expr, $number:literal) => {
        struct $type;

        impl ValueType for $type {
            const NAME: &'static std::ffi::CStr = $name;
            #[expect(clippy::cast_possible_wrap, reason = "a small constant")]
            const ENCVER: i32 = snapshot::VERSION as i32;
            const FAMILY: u8 = $number;

            fn load(io: &mut Loader, version: i32) -> Option<NonZeroU32> {
                load($family, io, version)
            }
            fn save(io: &mut Saver, id: NonZeroU32) {
                with_body(id, |body| snapshot::save(body, io));
            }
            fn rewrite(io: &mut AofWriter, id: NonZeroU32) {
                with_body(id, |body| replicate::rewrite(io, body));
            }
            fn free(id: NonZeroU32, on_main_thread: bool) {
                free(id, on_main_thread);
            }
            fn unlinked(db: i32, name: &[u8], id: NonZeroU32) {
                unlinked(db, name, id);
            }
            fn memory(id: NonZeroU32) -> usize {
                SHELL.with(|shell| state(id).map_or(0, |id| shell.engine.memory(id)))
            }
            fn digest(digest: &mut Digest, id: NonZeroU32) {
                with_body(id, |body| snapshot::save(body, digest));
                digest.end_sequence();
            }
        }
    };
}

value_type!(LockType, c"dsynclock", Family::Lock, 0);
value_type!(SemaphoreType, c"dsync-sem", Family::Semaphore, 1);
value_type!(GroupType, c"dsync-wgr", Family::Group, 2);
value_type!(OnceType, c"dsynconce", Family::Once, 3);

fn state(id: NonZeroU32) -> Option<StateId> {
    StateId::from_raw(id.get())
}

fn with_body(id: NonZeroU32, with: impl FnOnce(&dsync_engine::Body)) {
    SHELL.with(|shell| {
        if let Some(state) = state(id).and_then(|id| shell.engine.state(id)) {
            with(&state.body);
        }
    });
}

fn load(family: Family, io: &mut Loader, version: i32) -> Option<NonZeroU32> {
    let version = u32::try_from(version).ok()?;
    let body = match snapshot::load(family, version, io) {
        Ok(body) => body,
        Err(Malformed) => {
            log(
                Level::Warning,
                "a value is malformed, or of a version that is not known here",
            );
            return None;
        }
    };
    let db = Db(io.db());
    let name = io.key_name().unwrap_or_default();
    let (adopted, fence_ahead) = SHELL.with(|shell| {
        let now = shell.now();
        let adopted = shell.engine.adopt(body, db, name, now);
        (adopted, shell.engine.take_fence_ahead())
    });
    if let Some(fence) = fence_ahead {
        journal::fence_ahead(fence);
    }
    match adopted {
        Ok(id) => Some(id.into()),
        Err(unfit) => {
            log(Level::Warning, &format!("a value is refused: {unfit}"));
            None
        }
    }
}

fn free(id: NonZeroU32, on_main_thread: bool) {
    let Some(id) = state(id) else { return };
    if on_main_thread && SHELL.try_with(|shell| shell.engine.freed(id)).is_some() {
        return;
    }
    let mut freed = freed_elsewhere();
    match freed.back_mut().filter(|chunk| chunk.len() < CHUNK) {
        Some(chunk) => chunk.push(id),
        None => {
            let mut chunk = Vec::with_capacity(CHUNK);
            chunk.push(id);
            freed.push_back(chunk);
        }
    }
}

fn unlinked(db: i32, name: &[u8], id: NonZeroU32) {
    let waited_for =
        SHELL.with(|shell| state(id).is_some_and(|id| shell.engine.unlinked(id, Db(db), name)));
    if waited_for {
        timers::arm_soon();
    }
}

/// The last fence travels with every RDB file.
struct LastFence;

impl Aux for LastFence {
    fn save(io: &mut Saver) {
        io.u64(SHELL.with(|shell| shell.engine.last_fence().0));
    }

    fn load(io: &mut Loader, _version: i32) -> Result<(), io::Malformed> {
        // A wrong clock is believed; a number that no clock can give is not.
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

impl Sink for Saver {
    fn number(&mut self, n: u64) {
        self.u64(n);
    }
    fn bytes(&mut self, bytes: &[u8]) {
        Saver::bytes(self, bytes);
    }
}

impl Sink for Digest {
    fn number(&mut self, n: u64) {
        self.i64(n.cast_signed());
    }
    fn bytes(&mut self, bytes: &[u8]) {
        Digest::bytes(self, bytes);
    }
}

impl Source for Loader {
    fn number(&mut self) -> Result<u64, Malformed> {
        self.u64().map_err(|io::Malformed| Malformed)
    }
    fn bytes(&mut self, most: usize) -> Result<Box<[u8]>, Malformed> {
        Loader::bytes(self, most)
            .map(Into::into)
            .map_err(|io::Malformed| Malformed)
    }
}
