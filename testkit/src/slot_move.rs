//! A slot that moves key by key, as by `redis-cli --cluster reshard`, but in steps between which a test can act.

use crate::call;
use crate::cluster::Cluster;
use crate::reply::Reply;

/// A slot that moves from one node to another. The test takes each step.
pub struct Move<'c> {
    cluster: &'c Cluster,
    slot: u16,
    source: usize,
    target: usize,
}

impl Cluster {
    /// The first two steps of a slot's move: `SETSLOT IMPORTING` at the target, `SETSLOT MIGRATING` at the source.
    #[track_caller]
    pub fn open_move(&self, slot: u16, source: usize, target: usize) -> Move<'_> {
        let opened = Move {
            cluster: self,
            slot,
            source,
            target,
        };
        opened.set_slot(target, &["IMPORTING", &self.ids[source]]);
        opened.set_slot(source, &["MIGRATING", &self.ids[target]]);
        opened
    }

    /// Moves a slot that has no keys.
    #[track_caller]
    pub fn move_empty(&self, slot: u16, source: usize, target: usize) {
        self.open_move(slot, source, target).close();
    }

    /// Moves the slot of a key with all keys that it has, also while clients make others.
    #[track_caller]
    pub fn move_slot_of(&self, key: &str, target: usize) {
        let moving = self.open_move(self.slot(key), self.owner_of(key), target);
        moving.send_all();
        moving.close();
    }
}

impl Move<'_> {
    /// `MIGRATE` of one key. Panics if the key does not exist.
    #[track_caller]
    pub fn send(&self, key: &str) {
        let reply = self.migrate(key);
        assert_eq!(reply, "OK", "MIGRATE {key}: {reply:?}");
    }

    /// `MIGRATE` of all keys that the source has in this slot, also of those that are made meanwhile.
    #[track_caller]
    pub fn send_all(&self) {
        let mut source = self.cluster.nodes[self.source].connect();
        loop {
            let keys = call!(source, "CLUSTER", "GETKEYSINSLOT", self.slot, 100);
            if keys.as_array().is_empty() {
                return;
            }
            for key in keys.as_array() {
                // NOKEY: the key has ended meanwhile.
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

    /// `SETSLOT NODE` at both ends, the target first: from then on the target serves the slot. All keys must have been
    /// sent. Returns when all nodes have heard of it from the target.
    #[track_caller]
    pub fn close(self) {
        self.close_at_target();
        self.set_slot(self.source, &["NODE", &self.cluster.ids[self.target]]);
        let all: Vec<usize> = (0..self.cluster.nodes.len()).collect();
        self.cluster.wait_for_owner(&all, self.slot, self.target);
    }

    /// `SETSLOT NODE` at the target only: the source learns of it from the target.
    #[track_caller]
    pub fn close_at_target(&self) {
        self.set_slot(self.target, &["NODE", &self.cluster.ids[self.target]]);
    }

    /// `SETSLOT STABLE` at both ends: the move ends, and keys that were sent stay at the target.
    #[track_caller]
    pub fn give_up(self) {
        self.set_slot(self.source, &["STABLE"]);
        self.set_slot(self.target, &["STABLE"]);
    }

    /// Moves a key that was sent back to the source, before the move is given up.
    #[track_caller]
    pub fn take_back(&self, key: &str) {
        // First SETSLOT STABLE at the source: while the slot migrates it redirects clients for keys that it does not
        // have.
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
