//! Changes in their one binary form. The replication stream, the AOF, RDB files and DUMP payloads all carry it.
//!
//! A *packed* string carries changes to one key:
//!
//! ```text
//! version  family|MORE  change...  check
//! ```
//!
//! `version` and `family|MORE` are one byte each. The MORE bit says that the state continues in the next string; only
//! saved states are split: see [`crate::saved`]. `check` is the CRC-32C of everything before it, in four bytes, the
//! lowest first. A change is a byte for its kind, and then its fields. `wire/table.rs` has the number, the version and the
//! fields of each kind, in the order of the bytes. What a row there does not show:
//!
//! ```text
//! GRANT     0x80|flags [permits|index] fence granted lease [min-hold] [deadline token] [owner] [lane]
//! PLACE     17 claim number since lease keep-ms token option(owner)
//! PLACE     20 options [min-hold] [lane option(lane-limit)], and then as PLACE 17
//! DISPLACED 19 token, or option(expected) done lapsed keep-until
//! ```
//!
//! - A number is LEB128 in as few bytes as possible. `option(n)` is 0 for nothing, otherwise `n + 1`.
//! - A text is its length and its bytes. `option(text)` has the length plus one, or 0 for nothing.
//! - A token is the number 0 and the 16 bytes of a UUID, or a text. `late` is 1 and a token, or 0.
//! - `completion` is keep-until, token and option(result). `how` and `reason-kind` are numbers.
//! - Moments are milliseconds since 1970. Those of a GRANT are close together, so it has differences: `granted` minus
//!   the fence in milliseconds, and `deadline` minus (`granted` plus the lease). They may be negative, and are zigzag
//!   numbers. Only semaphores have `permits`. `since` of a PLACE is a difference too: minus its number in milliseconds.
//! - `claim` of a PLACE is 1 for a shared lock and 0 for another, the permits for a semaphore, option(max) for a run,
//!   and nothing for a member. DISPLACED has a token for a run, and the rest for members.
//! - The flags of a GRANT: 1 renewed, 2 an owner follows, 4 shared, 8 one permit with an index, which stands in place of
//!   the permits, 16 a min-hold follows the lease, 32 the hold rests, 64 a lane follows. A hold that rests has no token,
//!   its lease is its min-hold, and its deadline is the end of that. A GRANT with one of the last four is of version 5.
//! - The options of a PLACE are flags in one byte, and not 0: 1 one permit with an index, and the claim is left out; 2 a
//!   min-hold follows; 4 a lane follows. Only semaphores have lanes.
//! - `how` of an END is 6 if the rest of the hold is over. Such an END is of version 5.
//!
//! Every sequence of changes has exactly one packed form, and a reader refuses every other. So two servers with equal
//! states have equal bytes. A reader allocates nothing by a length before it has compared the length with its bound and
//! with the bytes that are left.
//!
//! How the format grows: a new kind of change takes a new number and a new version ([`Change::version`]), and never
//! shares a string with changes of another version. An old kind never gets a new field. So strings that use nothing new
//! are written as before, and an older server can follow as long as nobody uses what is new.
//!
//! Rejected: an option in a change of its own behind the GRANT. Two changes would say what one says, and to load a saved
//! state would look up each hold once more.
//!
//! Rejected: changes as readable text (twice the bytes, and a second format for RDB files), and the RDB's own numbers
//! and strings (nine bytes for each number above 2^32, and the stream could not use them).

mod fields;
mod forms;
mod grants;
#[cfg(test)]
mod samples;
mod table;
mod unreadable;

use crc32c::crc32c;

use crate::change::{Change, ChangeView};
use crate::types::{Family, MAX_RESULT_LEN};
use fields::{Fields, Writer};

pub use unreadable::{NEWEST, Unreadable, VERSION};
#[cfg(test)]
pub(crate) use {samples::Sample, table::samples};

/// The longest packed string of a saved state: a record with the longest reason and result, and as many grants as
/// [`super::saved`] puts into one string.
pub const MAX_LEN: usize = 2 * MAX_RESULT_LEN + (1 << 18);

const MORE: u8 = 0x80;

const CHECK_LEN: usize = 4;

/// Splits changes into slices that can share a string.
pub fn by_version(changes: &[Change]) -> impl Iterator<Item = &[Change]> {
    changes.chunk_by(|before, change| before.version() == change.version())
}

/// Packs changes to one key into `buffer`, and drops what was there. Each change must be one of the family's, and all of
/// them of one version.
pub fn pack(buffer: &mut Vec<u8>, family: Family, more: bool, changes: &[Change]) {
    let version = changes.first().map_or(VERSION, Change::version);
    let mut writer = begin(buffer, family, version);
    for change in changes {
        writer.change(change);
    }
    end(buffer, more);
}

/// Begins a packed string of this version in `buffer`, and drops what was there. [`end`] completes it.
pub(super) fn begin(buffer: &mut Vec<u8>, family: Family, version: u8) -> Writer<'_> {
    buffer.clear();
    buffer.extend_from_slice(&[version, family.number()]);
    Writer(buffer)
}

/// Adds a change to the packed string that was begun.
pub(super) fn add(buffer: &mut Vec<u8>, change: &ChangeView<'_>) {
    Writer(buffer).view(change);
}

pub(super) fn end(buffer: &mut Vec<u8>, more: bool) {
    if more && let Some(family) = buffer.get_mut(1) {
        *family |= MORE;
    }
    let check = crc32c(buffer);
    buffer.extend_from_slice(&check.to_le_bytes());
}

/// A packed string that is being read, one change at a time.
#[derive(Debug)]
pub struct Unpacked<'a> {
    pub family: Family,
    /// Whether the state continues in the next string.
    pub more: bool,
    version: u8,
    fields: Fields<'a>,
}

/// Opens a packed string. The iterator reads its changes one by one.
///
/// # Errors
/// If the string is damaged, or its version or family is not known here.
pub fn open(packed: &[u8]) -> Result<Unpacked<'_>, Unreadable> {
    // Look at the version first, because a later version may end in another kind of checksum.
    let version = match packed.first() {
        None => return Err(Unreadable::Damaged),
        Some(version @ VERSION..=NEWEST) => *version,
        Some(other) => return Err(Unreadable::Version(*other)),
    };
    let Some((written, check)) = packed.split_last_chunk::<CHECK_LEN>() else {
        return Err(Unreadable::Damaged);
    };
    if crc32c(written) != u32::from_le_bytes(*check) {
        return Err(Unreadable::Damaged);
    }
    let [_, family, changes @ ..] = written else {
        return Err(Unreadable::Damaged);
    };
    let number = family & !MORE;
    if version != VERSION && changes.is_empty() {
        return Err(Unreadable::Version(version));
    }
    let more = family & MORE != 0;
    let family = Family::of_number(number).ok_or(Unreadable::Family(number))?;
    Ok(Unpacked {
        family,
        more,
        version,
        fields: Fields::new(family, changes),
    })
}

impl<'a> Unpacked<'a> {
    /// Reads the next change, as the iterator does, without a copy of the texts of a GRANT.
    #[inline]
    pub(crate) fn next_view(&mut self) -> Option<Result<ChangeView<'a>, Unreadable>> {
        let kind = self.fields.byte()?;
        let change = match grants::is_grant(kind) {
            true => grants::read_grant(kind, &mut self.fields).map(ChangeView::Grant),
            false => table::read(kind, &mut self.fields).map(ChangeView::Other),
        };
        let change = match change {
            Ok(change) if change.version() != self.version => {
                Err(self.fields.error("its version is not that of the string"))
            }
            change => change,
        };
        if change.is_err() {
            // It is not known where the next change begins.
            self.fields.close();
        }
        Some(change)
    }
}

impl Iterator for Unpacked<'_> {
    type Item = Result<Change, Unreadable>;

    fn next(&mut self) -> Option<Result<Change, Unreadable>> {
        let change = self.next_view()?;
        Some(change.map(Change::from))
    }
}

#[cfg(test)]
mod tests;
