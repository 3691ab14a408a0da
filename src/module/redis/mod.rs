//! The small rooms with all the `unsafe` of this crate: a thin safe layer over the C module API of
//! Redis and Valkey.
//!
//! What the layer promises to the code above it: no function here can corrupt the server's memory,
//! whatever it is given, and no panic above it crosses into C. What it does not know: locks,
//! waiters, effects; a keyspace value is a number to it.
//!
//! The functions of the server are reached through the `redis_module::raw` pointers only. The
//! crate's own wrappers were rejected: they refuse to load on Redis 7.0, or their timers and keys
//! are unsound.
#![deny(unsafe_op_in_unsafe_fn)]

mod api;
pub(crate) mod args;
pub(crate) mod blocked;
mod call;
pub(crate) mod clock;
pub(crate) mod cluster;
pub(crate) mod command;
pub(crate) mod config;
pub(crate) mod context;
pub(crate) mod detached;
pub(crate) mod docs;
pub(crate) mod events;
mod facts;
pub(crate) mod filter;
pub(crate) mod gil;
pub(crate) mod guard;
pub(crate) mod hash_slot;
pub(crate) mod info;
pub(crate) mod io;
pub(crate) mod key;
mod late_release;
mod log;
pub(crate) mod name;
pub(crate) mod on_load;
mod open;
pub(crate) mod probe;
pub(crate) mod reply;
pub(crate) mod scan;
pub(crate) mod setting;
pub(crate) mod shadow;
pub(crate) mod timer;
mod value;
pub(crate) mod value_type;
