//! The servers and networks of `testkit/` as these tests want them.

pub mod acl;
mod sentinel;
mod tls;

use std::time::Duration;

use dsync_client::Outcome;
use dsync_testkit::{Cluster, ClusterBuilder};
pub use dsync_testkit::{Proxy, Server};
pub use sentinel::{Sentinel, primary_of, refusing_sentinel};
pub use tls::Certificates;

pub const SECOND: Duration = Duration::from_secs(1);

/// Long enough for anything to happen on a busy machine.
pub const LONG: Duration = Duration::from_secs(30);

#[track_caller]
pub fn assert_done(outcome: &Outcome, result: &[u8]) {
    assert!(
        matches!(outcome, Outcome::Done { result: Some(done), .. } if done == result),
        "{outcome:?}"
    );
}

/// Waits until a condition holds.
#[track_caller]
pub fn eventually(what: &str, holds: impl FnMut() -> bool) {
    dsync_testkit::eventually(what, LONG, holds);
}

/// A cluster of three primaries.
pub fn cluster() -> Cluster {
    cluster_builder().start()
}

/// A cluster of three primaries with a replica each. Returns also the number of the primary that has the key, and that of
/// its replica.
pub fn cluster_with_replicas(key: &str) -> (Cluster, usize, usize) {
    let cluster = cluster_builder().with_replicas().start();
    let owner = cluster.owner_of(key);
    (cluster, owner, owner + 3)
}

fn cluster_builder() -> ClusterBuilder {
    // A node that stands still takes only its own slots along.
    let builder = Cluster::builder().config("cluster-require-full-coverage", "no");
    builder.node_timeout_ms(3000)
}

/// Waits until a server has taken so many more connections. It is asked over one that it has, and so may refuse others.
pub fn wait_for_connections(admin: &mut dsync_testkit::Client, more: u64) {
    let mut taken = || -> u64 {
        let stats = admin.ask("INFO stats");
        let mut lines = stats.as_str().lines();
        let count = lines.find_map(|line| line.strip_prefix("total_connections_received:"));
        count.and_then(|it| it.parse().ok()).expect("a number")
    };
    let wanted = taken() + more;
    eventually("the server is connected to", || taken() >= wanted);
}

/// A server that has every write on the disk before it answers.
pub fn safe_server() -> Server {
    let builder = Server::builder().config("appendonly", "yes");
    builder.config("appendfsync", "always").start()
}

/// How many times a server that cannot write has refused to release a lock.
pub fn releases_refused(server: &Server) -> u64 {
    let counts = server.find_info("commandstats", "cmdstat_DLOCK.RELEASE");
    let counts = counts.unwrap_or_default();
    let mut counts = counts.split(',');
    let refused = counts.find_map(|count| count.strip_prefix("rejected_calls="));
    refused.map_or(0, |count| count.parse().expect("a number"))
}

/// Waits until the BLOCK of the only client that waits is over, and the next one is on its way.
pub fn wait_until_no_client_is_blocked(server: &Server) {
    let is_free = || server.info_number("clients", "blocked_clients") == 0;
    eventually("no client is blocked", || {
        is_free() && {
            std::thread::sleep(Duration::from_millis(200));
            is_free()
        }
    });
}
