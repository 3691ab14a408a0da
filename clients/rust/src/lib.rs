#![doc = include_str!("../README.md")]

#[cfg(feature = "tokio")]
pub mod aio;
mod error;
mod lease;
mod options;
mod progress;
mod request;
mod server;
mod settings;
mod sync;
mod wait;

pub use error::{Error, Holder, Loss, Result};
pub use options::{Begun, Group, Lock, Once, Semaphore, Tally};
pub use progress::{KeyInfo, Progress};
pub use redis;
pub use server::Server;
pub use sync::{Cancel, Client, Hold, Member, Run};
