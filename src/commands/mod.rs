//! The commands: one table of all of them (`table`), one parser (`parse`), and for each family a file with its rows
//! of the table and their functions.
//!
//! A row's function hands the parsed request to the engine through `module/run.rs` and writes the reply. Nothing
//! here knows how holds or queues work; nothing in `module` or the engine knows the syntax of a command.

mod acquire;
mod apply;
mod arguments;
mod contended;
mod docs;
#[cfg(test)]
mod examples;
mod glob;
#[cfg(test)]
mod glossary;
mod grammar;
mod group;
mod holding;
mod holds;
mod info;
mod internal;
mod lock;
mod log;
#[cfg(test)]
mod manual;
mod once;
#[cfg(test)]
mod page;
#[cfg(test)]
mod pages;
mod parse;
mod parsed;
mod register;
mod replies;
mod row;
mod semaphore;
mod table;
#[cfg(test)]
mod tests;

use crate::module::redis::context::Ctx;
use dsync_engine::WrongType;

/// Registers all commands and describes them to the server. The probe is registered elsewhere, before this call, and is
/// described here (`internal`).
pub(crate) fn register(ctx: Ctx<'_>) -> Result<(), String> {
    apply::register_all(ctx)?;
    register::register_all(ctx)?;
    docs::describe_all(ctx)?;
    internal::describe_all(ctx)
}

/// Ok when the command has written its reply; otherwise the error to reply.
type CommandResult = Result<(), Failure>;

enum Failure {
    WrongType,
    /// The whole line of the error, with its code.
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
