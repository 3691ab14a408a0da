//! What operators and other clients see: INFO of keys, DSYNC.CONTENDED, metrics, events, the log, WATCH and client-side
//! caching. And what they must not see: tokens, and commands that the module runs for itself.
//!
//! `metrics_steps` and `listener` have no tests, but what tests of several files need.

mod contended;
mod events;
mod events_free;
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
