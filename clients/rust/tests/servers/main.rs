//! The client against real servers. Each test starts its own.

mod support;
mod sync;
