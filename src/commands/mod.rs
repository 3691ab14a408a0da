//! The commands: one table of all of them, one parser that walks it, one file a family with its rows and the
//! functions that carry them out.
//!
//! A command is parsed into a value, the engine decides, the shell carries out. Nothing here knows how
//! holds or queues work; nothing below knows how a command is spelled.

mod acquire;
mod apply;
mod arguments;
mod contended;
mod docs;
mod grammar;
mod group;
mod holding;
mod info;
mod internal;
mod lock;
mod once;
mod parse;
mod parsed;
mod register;
mod replies;
mod row;
mod semaphore;
mod table;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod written;

use crate::module::redis::context::Ctx;
use dsync_engine::WrongType;

/// Registers the commands of the table and describes them, and describes those of `internal`, which have been
/// registered.
pub(crate) fn register(ctx: Ctx<'_>) -> Result<(), String> {
    apply::register_all(ctx)?;
    register::register_all(ctx)?;
    docs::describe_all(ctx)?;
    internal::describe_all(ctx)
}

/// The reply has been given, or this is why there is none.
type Outcome = Result<(), Failure>;

enum Failure {
    WrongType,
    /// The whole line, with its code.
    Error(String),
}

impl From<WrongType> for Failure {
    fn from(WrongType: WrongType) -> Failure {
        Failure::WrongType
    }
}

impl From<String> for Failure {
    fn from(line: String) -> Failure {
        Failure::Error(line)
    }
}
