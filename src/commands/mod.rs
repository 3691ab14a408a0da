//! The commands, one file a family: the grammar above the parser, the parser, the reply.
//!
//! A command is parsed into a value, the engine decides, the shell carries out. Nothing here knows how
//! holds or queues work; nothing below knows how a command is spelled.

mod acquire;
mod apply;
mod contended;
mod docs;
mod group;
mod holding;
mod info;
mod lock;
mod once;
mod options;
mod semaphore;

use std::ffi::CStr;

use crate::module::redis::context::Ctx;
use crate::module::settings::{self, LeaseSettings, OnceSettings};
use dsync_engine::WrongType;

pub(crate) fn register(ctx: Ctx<'_>) -> Result<(), String> {
    apply::register_all(ctx)?;
    lock::register_all(ctx)?;
    semaphore::register_all(ctx)?;
    group::register_all(ctx)?;
    once::register_all(ctx)?;
    contended::register_all(ctx)?;
    docs::describe_all(ctx)
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

fn conclude(ctx: Ctx<'_>, outcome: Outcome) {
    match outcome {
        Ok(()) => {}
        Err(Failure::WrongType) => ctx.error_wrong_type(),
        Err(Failure::Error(line)) => ctx.error(&line),
    }
}

fn wrong_arity(name: &CStr) -> Outcome {
    let name = name.to_string_lossy();
    Err(Failure::Error(format!(
        "ERR wrong number of arguments for '{name}' command"
    )))
}

fn once_settings() -> OnceSettings {
    settings::once()
}

fn leases() -> LeaseSettings {
    settings::leases()
}
