//! `dsync`: locks, fair semaphores and wait groups as native commands of Redis and Valkey.
//!
//! Three layers, and every arrow has one direction: `commands` knows how requests are spelled,
//! `module` knows the server, `engine` knows the rules.

mod commands;
mod engine;
mod module;
