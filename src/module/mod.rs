//! The part that knows the server: the only code that does.
//!
//! From above to below: requests reach the engine through [`run`], and [`parking`] has the clients that wait. The server
//! calls [`events`], [`values`] and the timer, which is [`tick`]'s. All of them call the engine for one key at a time
//! ([`engine_call`]), which is kept in the [`shell`]. All unsafe code is in [`redis`].

mod beside_keys;
pub(crate) mod cluster;
mod engine_call;
pub(crate) mod entropy;
pub(crate) mod events;
pub(crate) mod followed;
mod freed;
pub(crate) mod identity;
mod lease_clock;
mod listeners;
mod loading;
pub(crate) mod out;
mod pace;
pub(crate) mod parking;
#[allow(unsafe_code, reason = "only here, as its own documentation says")]
pub(crate) mod redis;
pub(crate) mod reply;
pub(crate) mod run;
mod search;
pub(crate) mod settings;
mod shell;
pub(crate) mod tick;
pub(crate) mod values;
pub(crate) mod version;
pub(crate) mod waiters;
