//! A primary with a replica, and a Sentinel that watches them.

use dsync_client::redis::sentinel::{SentinelClient, SentinelServerType};
use dsync_client::redis::{self, RedisResult};

use super::{Server, eventually};

pub struct Sentinel {
    sentinel: Server,
    pub first: Server,
    pub second: Server,
}

impl Sentinel {
    pub fn start() -> Sentinel {
        let first = Server::start();
        let second = first.start_replica();
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
        client(self.sentinel.url()).expect("an address")
    }

    /// The primary, as Sentinel names it at each connection.
    pub fn primary(&self) -> dsync_client::Server {
        let url = self.sentinel.url();
        dsync_client::Server::sentinel(move || client(url.clone()))
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

fn client(sentinel: String) -> RedisResult<SentinelClient> {
    let primary = SentinelServerType::Master;
    SentinelClient::build(vec![sentinel], "main".to_owned(), None, primary)
}
