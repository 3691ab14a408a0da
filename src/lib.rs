//! `dsync`: locks, fair semaphores, wait groups and work-once keys as native commands of Redis and
//! Valkey.
//!
//! Three layers, and every arrow has one direction: `commands` knows how requests are spelled,
//! `module` knows the server, the crate `dsync_engine` knows the rules.

mod commands;
mod module;
