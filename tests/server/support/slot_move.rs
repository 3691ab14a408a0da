//! A slot that moves key by key, in steps: what `redis-cli --cluster reshard` does, with room in between.

use super::client::call;
use super::cluster::Cluster;
use super::reply::Reply;

/// A slot on its way from one node to another. Nothing happens by itself: the story takes the steps.
pub struct Move<'c> {
    cluster: &'c Cluster,
    slot: u16,
    source: usize,
    target: usize,
}

impl Move<'_> {
    #[track_caller]
    pub(super) fn open(cluster: &Cluster, slot: u16, source: usize, target: usize) -> Move<'_> {
        let opened = Move {
            cluster,
            slot,
            source,
            target,
        };
        opened.set_slot(target, &["IMPORTING", &cluster.ids[source]]);
        opened.set_slot(source, &["MIGRATING", &cluster.ids[target]]);
        opened
    }

    /// `MIGRATE` of one key. Panics unless it was there to be sent.
    #[track_caller]
    pub fn send(&self, key: &str) {
        let reply = self.migrate(key);
        assert_eq!(reply, "OK", "MIGRATE {key}: {reply:?}");
    }

    /// `MIGRATE` of all keys that the source still has of this slot, those included that come meanwhile.
    #[track_caller]
    pub fn send_all(&self) {
        let mut source = self.cluster.nodes[self.source].connect();
        loop {
            let keys = call!(source, "CLUSTER", "GETKEYSINSLOT", self.slot, 100);
            if keys.as_array().is_empty() {
                return;
            }
            for key in keys.as_array() {
                // Gone in between is as good as sent.
                let reply = self.migrate(key.as_str());
                assert!(reply == "OK" || reply == "NOKEY", "{reply:?}");
            }
        }
    }

    fn migrate(&self, key: &str) -> Reply {
        let target = self.cluster.nodes[self.target].port();
        let mut source = self.cluster.nodes[self.source].connect();
        call!(source, "MIGRATE", "127.0.0.1", target, key, 0, 10_000)
    }

    /// `SETSLOT NODE` at both ends, the target first: from then on the slot is the target's. Whatever the
    /// source still had of it must have been sent. Returns when all nodes have heard of it from the target.
    #[track_caller]
    pub fn close(self) {
        self.close_at_target();
        self.set_slot(self.source, &["NODE", &self.cluster.ids[self.target]]);
        let all: Vec<usize> = (0..self.cluster.nodes.len()).collect();
        self.cluster.wait_for_owner(&all, self.slot, self.target);
    }

    /// `SETSLOT NODE` at the target only: the source, too, hears of it from there.
    #[track_caller]
    pub fn close_at_target(&self) {
        self.set_slot(self.target, &["NODE", &self.cluster.ids[self.target]]);
    }

    /// `SETSLOT STABLE` at both ends: what was sent stays where it is, and nobody moves any more.
    #[track_caller]
    pub fn give_up(self) {
        self.set_slot(self.source, &["STABLE"]);
        self.set_slot(self.target, &["STABLE"]);
    }

    /// Brings back a key that was sent, before the move is given up.
    #[track_caller]
    pub fn take_back(&self, key: &str) {
        // First: a node sends nobody to itself for a key that it has not got while the slot migrates.
        self.set_slot(self.source, &["STABLE"]);
        let source = self.cluster.nodes[self.source].port();
        let mut target = self.cluster.nodes[self.target].connect();
        let reply = call!(target, "MIGRATE", "127.0.0.1", source, key, 0, 10_000);
        assert_eq!(reply, "OK", "MIGRATE {key}: {reply:?}");
    }

    #[track_caller]
    fn set_slot(&self, node: usize, how: &[&str]) {
        let slot = self.slot.to_string();
        let mut words = vec!["CLUSTER", "SETSLOT", &slot];
        words.extend(how);
        let reply = self.cluster.nodes[node].connect().call(&words);
        assert_eq!(reply, "OK", "{words:?} at node {node}: {reply:?}");
    }
}
