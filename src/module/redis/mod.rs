//! A thin safe layer over the C module API of Redis and Valkey. All `unsafe` code of this crate is here.
//!
//! The layer guarantees to the code above it that no function here can corrupt the server's memory, whatever its
//! arguments are, and that no panic above it crosses into C. It knows nothing of locks, waiters or effects; a keyspace
//! value is only a number here.
//!
//! It calls the server only through the function pointers of `redis_module::raw`. The wrappers of that crate were
//! rejected: some refuse to load on Redis 7.0, and its timers and keys are unsound.
//!
//! In the SAFETY comments, *a live context* is one that the server keeps until the running callback returns: every
//! [`Ctx`](context::Ctx) has one. The server's functions are named `RM_…` as in its own source.
#![deny(unsafe_op_in_unsafe_fn)]

pub(crate) mod address;
mod api;
pub(crate) mod args;
pub(crate) mod blocked;
mod call;
pub(crate) mod channel;
pub(crate) mod clock;
pub(crate) mod cluster;
pub(crate) mod command;
pub(crate) mod config;
pub(crate) mod context;
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
mod log;
pub(crate) mod name;
pub(crate) mod on_load;
pub(crate) mod probe;
pub(crate) mod reply;
pub(crate) mod scan;
pub(crate) mod shadow;
pub(crate) mod timer;
pub(crate) mod value_type;
