//! The synchronous half.

mod acl;
mod cluster;
mod ending;
mod families;
mod give_up;
mod hold;
mod options;
mod outage;
mod queue;
mod reach;
mod sentinel;
mod switch;
