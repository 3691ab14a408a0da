#![doc = include_str!("../README.md")]

#[cfg(feature = "tokio")]
pub mod aio;
mod bounds;
mod clock;
mod ending;
mod error;
mod lease;
mod options;
mod owner;
mod passing;
mod progress;
mod request;
mod semaphore;
#[cfg(feature = "sentinel")]
mod sentinel;
mod server;
mod settings;
mod sync;
mod text;
mod wait;

pub use error::{Error, Holder, Loss, Result, ServerError};
pub use options::{Begun, Group, Lock, Once, Tally};
pub use progress::{KeyInfo, Progress};
pub use redis;
pub use semaphore::Semaphore;
pub use server::Server;
pub use sync::{Cancel, Client, Hold, Member, Run};
