//! The synchronous half: threads that wait.

mod client;
mod connection;
mod hold;

pub use client::Client;
