//! What operators see: INFO, DSYNC.CONTENDED, metrics, events, the log; and what nobody may see.

mod contended;
mod events;
mod info;
mod journal;
mod metrics;
mod noise;
mod secrets;
mod watch;
