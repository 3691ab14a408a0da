//! The rules of dsync: locks, semaphores, wait groups and work-once keys as plain data.
//!
//! The engine is deterministic: the same calls in the same order give the same states and the same
//! [`Effects`](effect::Effects). The tests against a model rely on that. So this crate has deliberately
//! - no clock and no timer: each call is given the time as a [`Now`](types::Now). [`Engine::next_wake`] returns when to
//!   ask [`Engine::next_task`] what has come due; to ask too early or too often does nothing;
//! - no randomness: tokens come with requests, fences are made from the time and the last fence, and no order depends
//!   on a hash;
//! - no I/O and no threads: a call leaves as effects what the caller must replicate, announce, answer or log;
//! - no Redis, and no unsafe code.
//!
//! `clippy.toml` beside it forbids the functions and types that would break this.
//!
//! The engine owns every state. The server's keyspace maps a name to a [`StateId`] and nothing more. A call on a key is a
//! [`Visit`]: the caller opens the key and passes what it found as a [`Key`] to [`Engine::visit`]; after the visit it stores
//! or deletes the key as [`Visited::state`] says.
//!
//! Where to find what, from the bottom up; no file uses one that stands above it:
//! - [`types`]: the vocabulary; [`settings`]; [`answer`]: what requests are told; `heap`: what all of it takes;
//!   `timetable`: subjects in the order of their moments;
//! - [`change`]: everything that can happen to a state; [`wire`]: its one binary form; [`saved`]: whole states in that
//!   form;
//! - [`hold`]: one hold; `state`: a key's value, with all its holds and, in `families`, the rules of each family;
//! - the four owners: `store` has the states and knows when they come due, `queue` who waits, `term` whether this server
//!   decides, with `fences`, and `agenda` what comes due next. `walks` is what a take-over does with the first three;
//! - [`effect`]: what the caller must do after a call; [`stats`], [`unasked`]: what is counted and logged;
//! - `engine`: the owners together; [`visit`]: one key for one moment;
//! - [`calls`]: what clients, the timer and other servers ask for. [`Engine::visit`] closes every visit, so that no first
//!   request of a queue waits although it could be granted;
//! - [`info`], [`held`]: what operators look at: one key, and all holds.
//!
//! `#[inline(always)]` marks what each grant or renewal passes: small functions with several callers, whose calls would cost
//! more than their work (`make bench-instructions`: 3 % of an ACQUIRE).
//!
//! Values in the keyspace that are pointers to states were rejected: the server may free values on another thread, and
//! the deadline index would have to reach into them by raw pointers.

#![forbid(unsafe_code)]

mod address;
mod agenda;
pub mod answer;
pub mod calls;
pub mod change;
pub mod effect;
mod engine;
mod heap;
pub mod held;
pub mod hold;
pub mod info;
#[cfg(debug_assertions)]
mod invariants;
mod queue;
pub mod saved;
pub mod settings;
mod short_bytes;
mod state;
pub mod stats;
mod store;
mod term;
mod timetable;
pub mod types;
pub mod unasked;
pub mod visit;
mod walks;
pub mod wire;

pub use agenda::task::Task;
pub use answer::{FullQueue, Refusal};
pub use calls::acquire::Reply;
pub use calls::close::Visited;
pub use calls::look::Look;
pub use change::Misfit;
pub use engine::Engine;
pub use queue::place::{Request, Standing};
pub use settings::Settings;
pub use short_bytes::LaneName;
pub use state::{Body, MAX_PAUSE_MS, State, families};
pub use store::slab::StateId;
pub use term::fences::{Announcement, Fences};
pub use term::record::{Identity, Record};
pub use types::Family;
pub use visit::{Key, Visit, WrongType};
