//! The versions of packed strings, and why one cannot be read.

use thiserror::Error;

/// The version of the strings that dsync 0.2.0 could read and write. The table of changes has later ones.
pub const VERSION: u8 = 2;
/// The last version in the table of changes.
pub const NEWEST: u8 = 5;

/// Why a packed string, or a change in it, could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Unreadable {
    /// The string was cut short or changed.
    #[error("its checksum is wrong")]
    Damaged,
    #[error("it is of format version {0}, and this dsync knows {VERSION} to {NEWEST}")]
    Version(u8),
    #[error("the family {0} is not known here")]
    Family(u8),
    #[error("its change {0:#04x} is not known here")]
    Kind(u8),
    /// A field of this change is missing, out of bounds, or not in its one form.
    #[error("its change '{verb}' is malformed: {}", field.replace('_', "-"))]
    Field {
        verb: &'static str,
        field: &'static str,
    },
}
