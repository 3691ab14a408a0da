//! The synchronous half.

mod cluster;
mod families;
mod give_up;
mod hold;
mod outage;
mod queue;
mod sentinel;
