//! A primary with a replica, and a Sentinel that watches them.

use dsync_client::redis;
use dsync_client::redis::sentinel::{SentinelClient, SentinelServerType};

use super::{Server, eventually};

pub struct Sentinel {
    sentinel: Server,
    pub first: Server,
    pub second: Server,
}

impl Sentinel {
    pub fn start() -> Sentinel {
        let first = Server::start();
        let replica_of = format!("--replicaof 127.0.0.1 {}", first.port());
        let second = Server::with(&[&replica_of]);
        eventually("the replica follows", || {
            second.info("replication", "master_link_status") == "up"
        });
        let sentinel = Server::launch(&[
            format!("--sentinel monitor main 127.0.0.1 {} 1", first.port()),
            "--sentinel down-after-milliseconds main 2000".to_owned(),
            "--sentinel failover-timeout main 10000".to_owned(),
        ]);
        let sentinels = Sentinel {
            sentinel,
            first,
            second,
        };
        eventually("Sentinel knows the replica", || {
            let replicas: Vec<redis::Value> = sentinels.sentinel.run("SENTINEL REPLICAS main");
            replicas.len() == 1
        });
        sentinels
    }

    pub fn client(&self) -> SentinelClient {
        let addresses = vec![self.sentinel.url()];
        let primary = SentinelServerType::Master;
        SentinelClient::build(addresses, "main".to_owned(), None, primary).expect("an address")
    }

    /// Makes the replica the primary while both live: the old primary answers READONLY and UNBLOCKED from then on.
    pub fn fail_over(&self) {
        // Sentinel refuses until it has found the replica good.
        eventually("Sentinel begins the failover", || {
            let failover = redis::cmd("SENTINEL")
                .arg("FAILOVER")
                .arg("main")
                .to_owned();
            self.sentinel.try_query::<String>(&failover).is_ok()
        });
        self.wait_for_promotion();
    }

    pub fn wait_for_promotion(&self) {
        eventually("the replica is promoted", || {
            self.second.info("replication", "role") == "master"
        });
    }
}
