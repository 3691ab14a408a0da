//! Servers, clusters, Sentinel and a network that can be cut, for one test each.

pub mod acl;
mod cluster;
mod proxy;
mod sentinel;
mod server;

use std::time::{Duration, Instant};

pub use cluster::Cluster;
pub use proxy::Proxy;
pub use sentinel::Sentinel;
pub use server::Server;

pub const SECOND: Duration = Duration::from_secs(1);

/// Long enough for anything to happen on a busy machine.
pub const LONG: Duration = Duration::from_secs(30);

/// Waits until a condition holds.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LONG, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
