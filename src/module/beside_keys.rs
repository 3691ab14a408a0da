//! What an RDB file contains beside the keys: before them the last fence, and the kept places of names without a value;
//! behind them who wrote the file and when (see [`Record`]).
//!
//! A name with kept places has a value, except in the turn in which RENAME or the like took it away. So there are hardly
//! ever such places, and a file without them is one that dsync 0.2.0 reads: it takes the number behind the keys for a
//! fence too.
//!
//! Where the server allows it, a server that never gave a fence nor heard of one writes nothing. So its files can be
//! read without the module.

use super::identity;
use super::loading::{adopt, check_version};
use super::redis::context::{Ctx, Level, log};
use super::redis::gil::GilCell;
use super::redis::io::{self, Loader, Saver};
use super::redis::value_type::{Aux, AuxPlace};
use super::shell::SHELL;
use dsync_engine::calls::kept_elsewhere::UnheldPlaces;
use dsync_engine::change::Change;
use dsync_engine::types::{Db, Fence};
use dsync_engine::{Family, Record, wire};

/// Added to the last fence if places follow. No fence has this bit.
const PLACES_FOLLOW: u64 = 1 << 63;

/// Stands where the database of the next name would.
const END_OF_PLACES: u64 = u64::MAX;

/// How many changes a packed string has at most.
const PER_STRING: usize = 128;

/// The longest name of a key: the server's own bound for a string.
const MAX_NAME_LEN: usize = 512 << 20;

/// The number to write behind the keys of the file that is being written. It is of the same moment as that before them.
/// `None` for a file without anything of ours.
static TO_WRITE: GilCell<Option<Fence>> = GilCell::new(Option::default);

/// The last fence of the data that are being loaded, until their record tells more of it.
static READ: GilCell<Option<Fence>> = GilCell::new(Option::default);

pub(super) struct BesideKeys;

impl Aux for BesideKeys {
    fn save(io: &mut Saver, place: AuxPlace, may_be_empty: bool) {
        match place {
            AuxPlace::BeforeKeys => {
                let packed = save_before_keys(io, may_be_empty);
                TO_WRITE.with(|to_write| *to_write = packed);
            }
            AuxPlace::BehindKeys => {
                if let Some(packed) = TO_WRITE.with(Option::take) {
                    io.u64(packed.0);
                }
            }
        }
    }

    fn load(io: &mut Loader, place: AuxPlace, version: i32) -> Result<(), io::Malformed> {
        let loaded = match place {
            AuxPlace::BeforeKeys => load_before_keys(io, version),
            AuxPlace::BehindKeys => load_behind_keys(io, version),
        };
        loaded.map_err(|why| {
            log(Level::Warning, &format!("the file is refused: {why}"));
            io::Malformed
        })
    }
}

/// Writes the last fence. If places follow: for each name its database, the name and packed strings, and a last number.
/// Returns the packed record; `None` if nothing was written.
fn save_before_keys(io: &mut Saver, may_be_empty: bool) -> Option<Fence> {
    SHELL.with(|shell| {
        let now = shell.now();
        let fences = shell.engine.fences();
        let names = shell.engine.unheld_places();
        if may_be_empty && names.is_empty() && !fences.is_used() {
            return None;
        }
        let record = fences.record(now, identity::read(), shell.engine.is_serving());
        if names.is_empty() {
            io.u64(record.last.0);
            return Some(record.pack());
        }
        io.u64(record.last.0 | PLACES_FOLLOW);
        names.iter().for_each(|name| save_places(io, name));
        io.u64(END_OF_PLACES);
        Some(record.pack())
    })
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

fn load_behind_keys(io: &mut Loader, version: i32) -> Result<(), String> {
    check_version(version)?;
    let packed = fence(io.u64().map_err(damaged)?)?;
    let last = READ.with(|read| *read).unwrap_or_default();
    if let Some(record) = Record::unpack(packed, last) {
        READ.with(Option::take);
        adopt(|engine, now| engine.fences_mut().adopt_record(record, now));
    }
    Ok(())
}

/// Accepts the fence of a wrong clock, but not a number that no clock can give.
fn fence(number: u64) -> Result<Fence, String> {
    let fence = Some(Fence(number)).filter(|fence| *fence <= Fence::MAX);
    fence.ok_or(io::Malformed).map_err(damaged)
}

fn load_before_keys(io: &mut Loader, version: i32) -> Result<(), String> {
    check_version(version)?;
    let number = io.u64().map_err(damaged)?;
    let last = fence(number & !PLACES_FOLLOW)?;
    READ.with(|read| *read = Some(last));
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

/// Called when the server has loaded its data. Takes over a last fence without a record. Drops the kept places of
/// databases that it does not have, because its setting `databases` is lower than where the file was written: while a
/// file is read nobody can ask the server for its databases.
pub(super) fn loaded(ctx: Ctx<'_>) {
    if let Some(last) = READ.with(Option::take) {
        adopt(|engine, now| engine.fences_mut().adopt(last, now));
    }
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
