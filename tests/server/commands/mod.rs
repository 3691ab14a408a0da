//! What each command does and refuses.
//!
//! - `every_command`: what all commands tell of themselves, refuse and accept;
//! - `acl_users`: what ACL knows of the commands;
//! - `command_pages`: what the pages in `docs/commands` say of the commands;
//! - `guide_sessions`: the sessions of README, of the guides and of those pages, which show every reply, in RESP2 and RESP3;
//! - `lock*`, `semaphore*`, `group_*`, `once_*`, `retention`: the rules of each family; `pauses`: PAUSE of all;
//! - `scenarios`, `once_scenarios`: whole jobs with many clients, under faults.
//!
//! `*_steps`, `documented` and `page` have no tests of the module, but what tests of several files
//! need.

mod acl_users;
mod command_pages;
pub mod documented;
mod every_command;
mod group_gate;
mod group_members;
mod group_rounds;
mod group_steps;
mod group_waits;
mod guide_sessions;
mod lock;
mod lock_leases;
mod lock_order;
mod min_hold;
mod once_delays;
mod once_give_up;
mod once_kept;
mod once_keys;
mod once_results;
mod once_runs;
mod once_saved;
mod once_scenarios;
mod once_steps;
mod page;
mod pauses;
mod retention;
mod scenarios;
mod semaphore;
mod semaphore_index;
mod semaphore_lanes;
mod semaphore_limit;
mod semaphore_steps;
