//! The asynchronous half.

mod cluster;
mod families;
mod hold;
mod outage;
mod queue;
mod sentinel;
