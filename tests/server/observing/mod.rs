//! What operators and other clients see: INFO of keys, DSYNC.CONTENDED, DSYNC.HOLDS, DSYNC.LOG, metrics, events, the
//! log, WATCH and client-side caching. And what they must not see: tokens, and commands that the module runs for
//! itself.
//!
//! `metrics_steps` and `listener` have no tests, but what tests of several files need.

mod contended;
mod end_log;
mod events;
mod events_free;
mod holds;
mod incident;
mod info;
mod info_states;
mod journal;
pub(crate) mod listener;
mod memory;
mod metrics;
mod metrics_gauges;
mod metrics_steps;
mod noise;
mod secrets;
mod watch;
