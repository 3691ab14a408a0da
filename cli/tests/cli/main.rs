//! The tool against real servers: $DSYNC_TEST_SERVER with the module $DSYNC_TEST_MODULE. test.sh sets both.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that fails panics"
)]

mod connections;
mod descendants;
mod errors;
mod follow;
mod generated;
mod json;
mod keys;
mod lists;
mod losses;
mod options;
mod outages;
mod passwords;
mod profiles;
mod runs;
mod several;
mod stderr;
mod support;
mod suspension;
mod terminals;
mod waits;
