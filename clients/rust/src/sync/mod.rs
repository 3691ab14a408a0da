//! The synchronous half: threads that wait, and a thread that renews each hold.

mod cancel;
mod client;
mod connection;
mod hold;
mod renewal;
mod uses;
mod wait;

pub use cancel::Cancel;
pub use client::Client;
pub use hold::{Hold, Member, Run};
