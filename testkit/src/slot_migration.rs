//! A slot that moves as a whole: `CLUSTER MIGRATESLOTS`, in Valkey from 9.0 on, and `CLUSTER MIGRATION`, in Redis from
//! 8.4 on. The one is sent to the source, the other to the target; the nodes do the rest by themselves.

use crate::call;
use crate::client::Client;
use crate::cluster::Cluster;
use crate::eventually::{SOON, eventually};
use crate::flavour::Product;
use crate::process;
use crate::reply::expect_ok;
use crate::server::Server;

/// How long Redis rests at each key of a snapshot, in microseconds, so that a test can stop it there.
const SNAPSHOT_REST_US: u32 = 500_000;

/// A migration that is held where the target follows the source's changes. The source still owns the slot.
pub struct HeldMigration<'c> {
    cluster: &'c Cluster,
    source: usize,
    target: usize,
    held_by: HeldBy,
}

enum HeldBy {
    /// DEBUG SLOTMIGRATION, of Valkey. The target has every key.
    Debug,
    /// The stopped process, a child of the source, that sends the snapshot. Redis has no other way. The target carries
    /// the changes out when it has the snapshot.
    Snapshot(u32),
}

impl Cluster {
    /// Whether the server under test moves slots as a whole.
    #[track_caller]
    pub fn can_migrate_atomically() -> bool {
        let flavour = Server::builder().without_module().start().flavour();
        flavour.version
            >= match flavour.product {
                Product::Valkey => (9, 0, 0),
                Product::Redis => (8, 4, 0),
            }
    }

    #[track_caller]
    pub fn start_migration(&self, slot: u16, source: usize, target: usize) {
        if is_valkey(&self.nodes[source]) {
            let mut client = self.nodes[source].connect();
            let to = &self.ids[target];
            let started = call!(
                client,
                "CLUSTER",
                "MIGRATESLOTS",
                "SLOTSRANGE",
                slot,
                slot,
                "NODE",
                to
            );
            expect_ok(&started);
        } else {
            let mut client = self.nodes[target].connect();
            let started = call!(client, "CLUSTER", "MIGRATION", "IMPORT", slot, slot);
            assert!(!started.as_str().is_empty(), "the name of a task");
        }
    }

    /// Starts the migration of a slot that has keys, and holds it.
    #[track_caller]
    pub fn hold_migration(&self, slot: u16, source: usize, target: usize) -> HeldMigration<'_> {
        let node = &self.nodes[source];
        let held_by = if is_valkey(node) {
            prevent_end(node, true);
            self.start_migration(slot, source, target);
            wait_for_state(&mut node.connect(), "waiting-to-pause");
            HeldBy::Debug
        } else {
            let mut client = node.connect();
            let mut rest =
                |us| expect_ok(&call!(client, "CONFIG", "SET", "rdb-key-save-delay", us));
            rest(SNAPSHOT_REST_US);
            self.start_migration(slot, source, target);
            let mut snapshot = None;
            eventually("the snapshot of a slot", SOON, || {
                snapshot = process::children(node.pid()).first().copied();
                snapshot.is_some()
            });
            let snapshot = snapshot.expect("a process");
            process::stop(snapshot);
            rest(0);
            HeldBy::Snapshot(snapshot)
        };
        HeldMigration {
            cluster: self,
            source,
            target,
            held_by,
        }
    }
}

impl HeldMigration<'_> {
    /// Lets the migration go on.
    #[track_caller]
    pub fn go_on(self) {
        // A snapshot goes on when this is dropped.
        if let HeldBy::Debug = self.held_by {
            prevent_end(&self.cluster.nodes[self.source], false);
        }
    }

    /// Cancels the migration.
    #[track_caller]
    pub fn cancel(self) {
        match self.held_by {
            HeldBy::Debug => {
                let mut client = self.cluster.nodes[self.source].connect();
                expect_ok(&call!(client, "CLUSTER", "CANCELSLOTMIGRATIONS"));
                wait_for_state(&mut client, "cancelled");
            }
            HeldBy::Snapshot(process) => {
                let mut client = self.cluster.nodes[self.target].connect();
                assert_eq!(call!(client, "CLUSTER", "MIGRATION", "CANCEL", "ALL"), 1);
                process::cont(process);
                let source = self.cluster.nodes[self.source].pid();
                eventually("the end of the snapshot", SOON, || {
                    process::children(source).is_empty()
                });
            }
        }
    }
}

/// Also where a test fails: a process that is stopped outlives its server.
impl Drop for HeldMigration<'_> {
    fn drop(&mut self) {
        if let HeldBy::Snapshot(process) = self.held_by
            && matches!(process::state(process), Ok('T'))
        {
            process::cont(process);
        }
    }
}

fn is_valkey(node: &Server) -> bool {
    node.flavour().product == Product::Valkey
}

#[track_caller]
fn prevent_end(source: &Server, prevent: bool) {
    let mut client = source.connect();
    let on = u8::from(prevent);
    expect_ok(&call!(
        client,
        "DEBUG",
        "SLOTMIGRATION",
        "PREVENT-PAUSE",
        on
    ));
}

#[track_caller]
fn wait_for_state(source: &mut Client, state: &str) {
    eventually(&format!("a migration that is {state}"), SOON, || {
        let jobs = call!(source, "CLUSTER", "GETSLOTMIGRATIONS");
        matches!(jobs.as_array(), [job] if *job.field("state") == *state)
    });
}
