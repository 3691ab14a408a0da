//! What each command does and refuses: the grammar, the four families, and whole jobs done with them.

mod command_docs;
mod examples;
mod grammar_options;
mod grammar_table;
mod grammar_tokens;
mod grammar_values;
mod group;
mod lock;
mod lock_leases;
mod lock_order;
mod once_give_up;
mod once_keys;
mod once_results;
mod once_runs;
mod once_saved;
mod once_scenarios;
mod once_steps;
mod reply_shapes;
mod retention;
mod scenarios;
mod semaphore;
