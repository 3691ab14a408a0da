//! The asynchronous half.

mod acl;
mod cluster;
mod ending;
mod families;
mod hold;
mod outage;
mod queue;
mod reach;
mod sentinel;
mod switch;
