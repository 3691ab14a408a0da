//! How a cluster is to be started: its nodes, their configuration, and who has no module.

use std::fmt::Display;
use std::thread;

use crate::builder::Builder;
use crate::call;
use crate::cluster::{Cluster, FORMING_NODE_TIMEOUT_MS, PRIMARIES};
use crate::reply::expect_ok;
use crate::server::Server;

const NODE_TIMEOUT: &str = "cluster-node-timeout";

impl Cluster {
    /// Three primaries.
    #[track_caller]
    pub fn start() -> Cluster {
        Cluster::builder().start()
    }

    pub fn builder() -> ClusterBuilder {
        ClusterBuilder {
            with_replicas: false,
            node_timeout_ms: 15_000,
            config: Vec::new(),
            module_arguments: Vec::new(),
            node_without_module: None,
            first_epoch: 1,
        }
    }
}

/// How a cluster is to be started. [`Cluster::builder`] makes one.
pub struct ClusterBuilder {
    with_replicas: bool,
    node_timeout_ms: u64,
    config: Vec<(String, String)>,
    module_arguments: Vec<String>,
    node_without_module: Option<usize>,
    first_epoch: u64,
}

impl ClusterBuilder {
    /// Gives each primary a replica: nodes 3, 4 and 5 are the replicas of 0, 1 and 2.
    pub fn with_replicas(mut self) -> ClusterBuilder {
        self.with_replicas = true;
        self
    }

    /// How long a node may be silent before the others count it as failed. The default is long, so that a busy machine
    /// causes no failover; tests of dead nodes set less.
    pub fn node_timeout_ms(mut self, ms: u64) -> ClusterBuilder {
        self.node_timeout_ms = ms;
        self
    }

    /// A line of every node's configuration, as [`Builder::config`].
    pub fn config(mut self, name: &str, value: impl Display) -> ClusterBuilder {
        self.config.push((name.to_owned(), value.to_string()));
        self
    }

    /// An argument after the module's path, as [`Builder::module_arg`].
    pub fn module_arg(mut self, argument: impl Display) -> ClusterBuilder {
        self.module_arguments.push(argument.to_string());
        self
    }

    /// The epoch of the first node; each other node has that of the one before, plus one.
    pub fn first_epoch(mut self, epoch: u64) -> ClusterBuilder {
        self.first_epoch = epoch;
        self
    }

    /// Starts this node without dsync.
    pub fn without_module_on(mut self, node: usize) -> ClusterBuilder {
        self.node_without_module = Some(node);
        self
    }

    /// Starts the nodes and forms the cluster; returns when all nodes agree that it serves all slots.
    #[track_caller]
    pub fn start(self) -> Cluster {
        let nodes = if self.with_replicas {
            2 * PRIMARIES
        } else {
            PRIMARIES
        };
        // At the same time, because a start is mostly waiting.
        let nodes = thread::scope(|scope| {
            let starting: Vec<_> = (0..nodes)
                .map(|n| self.node(n))
                .map(|node| scope.spawn(|| node.start()))
                .collect();
            starting
                .into_iter()
                .map(|node| node.join().expect("the node starts, or its log is above"))
                .collect()
        });
        let cluster = Cluster::form(nodes, self.first_epoch);
        for node in &cluster.nodes {
            let timeout = self.node_timeout_ms;
            let set = call!(node.connect(), "CONFIG", "SET", NODE_TIMEOUT, timeout);
            expect_ok(&set);
        }
        cluster
    }

    fn node(&self, n: usize) -> Builder {
        let mut node = Server::builder();
        if self.node_without_module == Some(n) {
            node = node.without_module();
        }
        node = node
            .config("cluster-enabled", "yes")
            .config(NODE_TIMEOUT, FORMING_NODE_TIMEOUT_MS)
            // A replica stays with its primary, and may be promoted however old its data are.
            .config("cluster-allow-replica-migration", "no")
            .config("cluster-replica-validity-factor", 0);
        for (name, value) in &self.config {
            node = node.config(name, value);
        }
        for argument in &self.module_arguments {
            node = node.module_arg(argument);
        }
        node
    }
}
