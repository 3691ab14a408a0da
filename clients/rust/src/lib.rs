#![doc = include_str!("../README.md")]

mod error;
mod lease;
mod options;
mod progress;
mod request;
mod server;
mod settings;
mod sync;

pub use error::{Error, Holder, Loss, Result};
pub use options::{Group, Lock, Once, Semaphore, Tally};
pub use progress::{KeyInfo, Progress};
pub use redis;
pub use server::Server;
pub use sync::{Begun, Cancel, Client, Hold, Member, Run};
