//! What each command does and refuses: the grammar, the four families, and whole jobs done with them.

mod command_docs;
mod examples;
mod grammar;
mod group;
mod lock;
mod once_give_up;
mod once_keys;
mod once_results;
mod once_runs;
mod once_saved;
mod once_scenarios;
mod once_steps;
mod retention;
mod scenarios;
mod semaphore;
