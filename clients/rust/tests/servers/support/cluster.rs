//! A cluster of three nodes, and a replica of one of them.

use dsync_client::redis::{self, RedisResult};

use super::server::{command, free_port};
use super::{Server, eventually};

pub struct Cluster {
    pub nodes: Vec<Server>,
}

impl Cluster {
    pub fn start() -> Cluster {
        let nodes: Vec<(Server, u16)> = (0..3).map(|_| node()).collect();
        let ranges = [(0, 5460), (5461, 10922), (10923, 16383)];
        for (number, ((node, _), (first, last))) in nodes.iter().zip(ranges).enumerate() {
            let _: String = node.run(&format!("CLUSTER ADDSLOTSRANGE {first} {last}"));
            let _: String = node.run(&format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1));
        }
        for (other, bus) in &nodes[1..] {
            let meet = format!("CLUSTER MEET 127.0.0.1 {} {bus}", other.port());
            let _: String = nodes[0].0.run(&meet);
        }
        let nodes: Vec<Server> = nodes.into_iter().map(|(node, _)| node).collect();
        for node in &nodes {
            eventually("the cluster is whole", || {
                let info: String = node.run("CLUSTER INFO");
                info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
            });
        }
        Cluster { nodes }
    }

    /// Adds a replica to the node that has a key, and waits until it could take over.
    pub fn add_replica_for(&self, key: &str) -> Server {
        let (replica, bus) = node();
        let primary = &self.nodes[self.owner_of(key)];
        let meet = format!("CLUSTER MEET 127.0.0.1 {} {bus}", replica.port());
        let _: String = primary.run(&meet);
        let id: String = primary.run("CLUSTER MYID");
        let replicate = command(&format!("CLUSTER REPLICATE {id}"));
        eventually("the replica knows its primary", || {
            replica.try_query::<String>(&replicate).is_ok()
        });
        eventually("the replica follows", || {
            let is_known = |node: &Server| -> bool {
                let nodes: String = node.run("CLUSTER NODES");
                nodes.contains(&format!("slave {id}"))
            };
            replica.info("replication", "master_link_status") == "up"
                && self.nodes.iter().all(is_known)
        });
        replica
    }

    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    /// The node that has a key.
    pub fn owner_of(&self, key: &str) -> usize {
        let look = format!("DLOCK.INFO {key}");
        let answers =
            |node: &Server| -> RedisResult<redis::Value> { node.try_query(&command(&look)) };
        let owner = self.nodes.iter().position(|node| answers(node).is_ok());
        owner.expect("a node has the key")
    }

    /// Moves the slot of a key, which has no other key, to another node as `redis-cli --cluster reshard` does.
    pub fn move_slot_of(&self, key: &str, to: usize) {
        self.move_slot(key, to, |from, _, migrate| {
            migrate(from, key);
        });
    }

    /// Moves the slot of a key with all keys that it has, while clients make others.
    pub fn move_whole_slot_of(&self, key: &str, to: usize) {
        self.move_slot(key, to, |from, slot, migrate| {
            loop {
                let keys: Vec<String> = from.run(&format!("CLUSTER GETKEYSINSLOT {slot} 100"));
                if keys.is_empty() {
                    return;
                }
                for key in keys {
                    migrate(from, &key);
                }
            }
        });
    }

    fn move_slot(&self, key: &str, to: usize, keys: impl Fn(&Server, u16, &dyn Fn(&Server, &str))) {
        let from = self.owner_of(key);
        let id = |node: usize| -> String { self.nodes[node].run("CLUSTER MYID") };
        let slot: u16 = self.nodes[0].run(&format!("CLUSTER KEYSLOT {key}"));
        let _: String =
            self.nodes[to].run(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", id(from)));
        let _: String =
            self.nodes[from].run(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", id(to)));
        let port = self.nodes[to].port();
        keys(&self.nodes[from], slot, &|from, key| {
            let _: String = from.run(&format!("MIGRATE 127.0.0.1 {port} {key} 0 5000"));
        });
        for node in [to, from, 3 - to - from] {
            let _: String =
                self.nodes[node].run(&format!("CLUSTER SETSLOT {slot} NODE {}", id(to)));
        }
    }
}

fn node() -> (Server, u16) {
    let bus = free_port();
    let bus_setting = format!("--cluster-port {bus}");
    let node = Server::with(&[
        "--cluster-enabled yes",
        "--cluster-node-timeout 3000",
        // A node that stands still takes only its own slots along.
        "--cluster-require-full-coverage no",
        &bus_setting,
    ]);
    (node, bus)
}
