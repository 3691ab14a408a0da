//! What each command does and refuses: the grammar, the four families, and whole jobs done with them.

mod command_docs;
mod examples;
mod grammar;
mod group;
mod lock;
mod once;
mod once_scenarios;
mod retention;
mod scenarios;
mod semaphore;
