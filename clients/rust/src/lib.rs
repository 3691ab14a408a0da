#![doc = include_str!("../README.md")]

#[cfg(feature = "tokio")]
pub mod aio;
mod ask;
mod bounds;
mod call;
mod calls;
mod cancel;
mod clock;
mod confirm;
mod effort;
mod error;
mod half;
mod hold;
mod lease;
mod once;
mod options;
mod owner;
mod passing;
mod progress;
mod renewal;
mod request;
mod send;
mod sentinel;
mod server;
mod signal;
mod sync;
mod text;
mod times;
mod untold;
mod uses;

pub use cancel::Cancel;
pub use error::{Error, Holder, Loss, Result, ServerError};
pub use hold::{Hold, Member, Run};
pub use once::{Begun, Outcome};
pub use options::{Claim, Group, Lock, Once, Semaphore, Tally};
pub use progress::{KeyInfo, Progress};
pub use redis;
pub use server::Server;
pub use sync::Client;
