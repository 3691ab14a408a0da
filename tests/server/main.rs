//! Stories told to real servers, one story a file, in a folder for each theme. `tests/README.md` says which tests
//! stand behind which guarantee.
//!
//! `DSYNC_TEST_SERVER` names the server (`redis-server` from PATH otherwise), `DSYNC_TEST_MODULE` the module
//! (`target/release/libdsync.so` otherwise, as `cargo build --release` leaves it). `make test` runs this binary
//! once for each server it can get.
//!
//! Stories of partitions make network namespaces, as root or in user namespaces. Where the machine forbids both,
//! `DSYNC_TEST_NO_NAMESPACES=1` leaves these stories out.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unreachable,
    clippy::unwrap_used,
    reason = "a test that fails panics and says why"
)]

mod cluster;
mod commands;
mod differential;
mod fuzz;
mod lifecycle;
mod observing;
mod replication;
mod support;
mod waiting;
