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
mod glob;
mod grammar;
mod group;
mod holding;
mod holds;
mod info;
mod lock;
mod log;
mod once;
mod parse;
#[cfg(test)]
mod parse_tests;
pub(crate) mod register;
mod row;
mod semaphore;
mod table;
#[cfg(test)]
mod tests;
