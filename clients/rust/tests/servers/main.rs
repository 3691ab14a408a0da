//! The client against real servers. Each test starts its own.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that fails panics"
)]

mod aio;
mod builders;
mod confirmed;
mod support;
mod sync;
mod tls;
