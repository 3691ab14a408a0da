//! A primary with a replica, and a Sentinel that watches them.

use dsync_testkit::{Sentinels, Server};

use super::eventually;

const SETTINGS: &[(&str, u32)] = &[
    ("down-after-milliseconds", 2000),
    ("failover-timeout", 10_000),
];

pub struct Sentinel {
    sentinels: Sentinels,
    pub first: Server,
    pub second: Server,
}

impl Sentinel {
    pub fn start() -> Sentinel {
        let first = Server::start();
        let second = Server::builder().replica_of(&first).start();
        Sentinel {
            sentinels: Sentinels::alone(SETTINGS, &first, 1),
            first,
            second,
        }
    }

    /// A connection to Sentinel.
    pub fn connect(&self) -> dsync_testkit::Client {
        self.sentinels.nth(0).connect()
    }

    /// The primary, as Sentinel names it at each connection.
    pub fn primary(&self) -> dsync_client::Server {
        self.primary_behind([])
    }

    /// The primary, where others are asked before Sentinel.
    pub fn primary_behind(&self, others: impl IntoIterator<Item = String>) -> dsync_client::Server {
        let own = self.sentinels.nth(0).url();
        primary_of(others.into_iter().chain([own]))
    }

    /// Makes the replica the primary while both live: the old primary answers READONLY and UNBLOCKED from then on.
    pub fn fail_over(&self) {
        let failover = format!("SENTINEL FAILOVER {}", self.sentinels.master());
        // Sentinel refuses until it has found the replica good.
        eventually("Sentinel begins the failover", || {
            self.sentinels.nth(0).connect().ask(&failover) == "OK"
        });
        self.wait_for_promotion();
    }

    pub fn wait_for_promotion(&self) {
        eventually("the replica is promoted", || self.second.is_primary());
    }
}

/// A Sentinel that wants a password.
pub fn refusing_sentinel() -> Server {
    let sentinel = Server::builder().sentinel().start();
    sentinel.ask("ACL SETUSER default resetpass >secret");
    sentinel
}

/// The primary, as these Sentinels name it.
pub fn primary_of(sentinels: impl IntoIterator<Item = String>) -> dsync_client::Server {
    dsync_client::Server::sentinel(sentinels, "locks", "redis://primary").expect("addresses")
}
