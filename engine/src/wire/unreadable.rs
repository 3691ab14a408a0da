//! The versions of packed strings, and why one cannot be read.

use std::fmt;

/// The version of the strings that dsync 0.2.0 could read and write.
pub const VERSION: u8 = 2;
/// The version of the strings with the changes that dsync 0.3.0 brought.
pub const VERSION_OF_0_3: u8 = 3;
/// The version of the strings with the change that dsync 0.3.1 brought.
pub const VERSION_OF_0_3_1: u8 = 4;

/// Why a packed string, or a change in it, could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreadable {
    /// The string was cut short or changed.
    Damaged,
    /// This version is not known here.
    Version(u8),
    /// This family is not known here.
    Family(u8),
    /// This kind of change is not known here.
    Kind(u8),
    /// A field of this change is missing, out of bounds, or not in its one form.
    Field {
        verb: &'static str,
        field: &'static str,
    },
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreadable::Damaged => f.write_str("its checksum is wrong"),
            Unreadable::Version(version) => write!(
                f,
                "it is of format version {version}, and this dsync knows {VERSION} to {VERSION_OF_0_3_1}"
            ),
            Unreadable::Family(family) => write!(f, "the family {family} is not known here"),
            Unreadable::Kind(kind) => write!(f, "its change {kind:#04x} is not known here"),
            Unreadable::Field { verb, field } => {
                let field = field.replace('_', "-");
                write!(f, "its change '{verb}' is malformed: {field}")
            }
        }
    }
}
