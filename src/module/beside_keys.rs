//! What every RDB file contains beside the keys: the last fence, and the kept places of names without a value.
//!
//! A name with kept places has a value, except in the turn in which RENAME or the like took it away. So there are hardly
//! ever such places, and a file without them is one that dsync 0.2.0 reads.

use super::loading::{adopt, check_version};
use super::redis::context::{Ctx, Level, log};
use super::redis::io::{self, Loader, Saver};
use super::redis::value_type::Aux;
use super::shell::SHELL;
use dsync_engine::calls::kept_elsewhere::UnheldPlaces;
use dsync_engine::change::Change;
use dsync_engine::types::{Db, Fence};
use dsync_engine::{Family, wire};

/// Added to the last fence if places follow. No fence has this bit.
const PLACES_FOLLOW: u64 = 1 << 63;

/// Stands where the database of the next name would.
const END_OF_PLACES: u64 = u64::MAX;

/// How many changes a packed string has at most.
const PER_STRING: usize = 128;

/// The longest name of a key: the server's own bound for a string.
const MAX_NAME_LEN: usize = 512 << 20;

pub(super) struct BesideKeys;

impl Aux for BesideKeys {
    /// Writes the last fence. If places follow: for each name its database, the name and packed strings, and a last
    /// number.
    fn save(io: &mut Saver) {
        SHELL.with(|shell| {
            let last = shell.engine.fences().to_save().0;
            let names = shell.engine.unheld_places();
            if names.is_empty() {
                return io.u64(last);
            }
            io.u64(last | PLACES_FOLLOW);
            names.iter().for_each(|name| save_places(io, name));
            io.u64(END_OF_PLACES);
        });
    }

    fn load(io: &mut Loader, version: i32) -> Result<(), io::Malformed> {
        load(io, version).map_err(|why| {
            log(Level::Warning, &format!("the file is refused: {why}"));
            io::Malformed
        })
    }
}

fn save_places(io: &mut Saver, places: &UnheldPlaces) {
    io.u64(places.db.0.unsigned_abs().into());
    io.bytes(places.name.as_bytes());
    let slices = wire::by_version(&places.changes).flat_map(|slice| slice.chunks(PER_STRING));
    let mut slices = slices.peekable();
    let mut packed = Vec::new();
    while let Some(slice) = slices.next() {
        wire::pack(&mut packed, places.family, slices.peek().is_some(), slice);
        io.bytes(&packed);
    }
}

fn load(io: &mut Loader, version: i32) -> Result<(), String> {
    check_version(version)?;
    let number = io.u64().map_err(damaged)?;
    // Accept the fence of a wrong clock, but not a number that no clock can give.
    let last = Some(Fence(number & !PLACES_FOLLOW)).filter(|last| *last <= Fence::MAX);
    let last = last.ok_or(io::Malformed).map_err(damaged)?;
    adopt(|engine, now| engine.fences_mut().adopt(last, now));
    if number & PLACES_FOLLOW == 0 {
        return Ok(());
    }
    loop {
        let db = io.u64().map_err(damaged)?;
        if db == END_OF_PLACES {
            return Ok(());
        }
        let db = i32::try_from(db).map_err(|_| damaged(io::Malformed))?;
        let name = io.bytes(MAX_NAME_LEN).map_err(damaged)?;
        let (family, changes) = load_places(io)?;
        adopt(|engine, now| engine.adopt_places(Db(db), &name, family, &changes, now));
    }
}

/// Reads the packed strings of one name.
fn load_places(io: &mut Loader) -> Result<(Family, Vec<Change>), String> {
    let mut changes = Vec::new();
    loop {
        let packed = io.bytes(wire::MAX_LEN).map_err(damaged)?;
        let unpacked = wire::open(&packed).map_err(|unreadable| unreadable.to_string())?;
        let (family, more) = (unpacked.family, unpacked.more);
        for change in unpacked {
            changes.push(change.map_err(|unreadable| unreadable.to_string())?);
        }
        if !more {
            return Ok((family, changes));
        }
    }
}

/// Called when the server has loaded its data: drops the kept places of databases that it does not have, because its
/// setting `databases` is lower than where the file was written. While a file is read nobody can ask the server for its
/// databases.
pub(super) fn loaded(ctx: Ctx<'_>) {
    let mut databases: Vec<Db> = SHELL.with(|shell| shell.engine.queued_databases().collect());
    let selected = ctx.db();
    databases.retain(|db| !ctx.select_db(db.0));
    ctx.select_db(selected);
    drop_places_of_missing(ctx, &databases);
}

/// Drops the kept places of databases that this server does not have. Nobody can wait there.
pub(super) fn drop_places_of_missing(ctx: Ctx<'_>, databases: &[Db]) {
    let Some(Db(first)) = databases.first() else {
        return;
    };
    SHELL.with(|shell| {
        for db in databases {
            shell.engine.flushed(Some(*db));
        }
    });
    let others = match databases.len() - 1 {
        0 => String::new(),
        others => format!(" and {others} others"),
    };
    ctx.log(
        Level::Warning,
        &format!(
            "the kept places of database {first}{others} are dropped: this server does not have so many databases (its \
             setting 'databases')"
        ),
    );
}

fn damaged(_: io::Malformed) -> String {
    "what it has beside the keys is damaged".to_owned()
}
