//! What each command does and refuses.
//!
//! - `grammar_*`, `reply_shapes`, `examples`: what requests and replies of all commands look like;
//! - `command_docs`, `acl_users`: what COMMAND DOCS, COMMAND INFO and ACL know of the commands;
//! - `command_pages`: the access rules on the pages in `docs/commands`;
//! - `guide_sessions`: the sessions of README and of the guides;
//! - `lock*`, `semaphore*`, `group_*`, `once_*`, `retention`: the rules of each family; `pauses`: PAUSE of all;
//! - `scenarios`, `once_scenarios`: whole jobs with many clients, under faults.
//!
//! `*_steps`, `grammar_table`, `designed_commands`, `reply_forms` and `transcripts` have no tests of the module, but what
//! tests of several files need.

mod acl_users;
mod command_docs;
mod command_pages;
mod designed_commands;
mod examples;
mod grammar_options;
mod grammar_table;
mod grammar_tokens;
mod grammar_values;
mod group_gate;
mod group_members;
mod group_rounds;
mod group_steps;
mod group_waits;
mod guide_sessions;
mod lock;
mod lock_leases;
mod lock_order;
mod once_delays;
mod once_give_up;
mod once_kept;
mod once_keys;
mod once_results;
mod once_runs;
mod once_saved;
mod once_scenarios;
mod once_steps;
mod pauses;
mod reply_forms;
mod reply_shapes;
mod retention;
mod scenarios;
mod semaphore;
mod semaphore_limit;
mod semaphore_steps;
mod transcripts;
