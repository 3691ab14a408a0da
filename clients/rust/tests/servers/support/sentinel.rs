//! A primary with a replica, and a Sentinel that watches them.

use dsync_client::redis::RedisResult;
use dsync_client::redis::sentinel::{SentinelClient, SentinelServerType};
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

    pub fn client(&self) -> SentinelClient {
        client(vec![self.sentinels.nth(0).url()], self.sentinels.master()).expect("an address")
    }

    /// The primary, as Sentinel names it at each connection.
    pub fn primary(&self) -> dsync_client::Server {
        self.primary_behind([])
    }

    /// The primary, where others are asked before Sentinel.
    pub fn primary_behind(&self, others: impl IntoIterator<Item = String>) -> dsync_client::Server {
        let mut urls: Vec<String> = others.into_iter().collect();
        urls.push(self.sentinels.nth(0).url());
        let name = self.sentinels.master();
        dsync_client::Server::sentinel(move || client(urls.clone(), name))
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

fn client(sentinels: Vec<String>, name: &str) -> RedisResult<SentinelClient> {
    let primary = SentinelServerType::Master;
    SentinelClient::build(sentinels, name.to_owned(), None, primary)
}
