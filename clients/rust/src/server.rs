//! Where the server is.

use std::fmt;
#[cfg(feature = "sentinel")]
use std::sync::Arc;

use redis::{IntoConnectionInfo, RedisError};

use crate::error::Result;
use crate::request::is_retryable;

// Tasks and threads may ask the same Sentinel client, so with tokio its lock is one that tasks can wait for.
#[cfg(all(feature = "sentinel", not(feature = "tokio")))]
use std::sync::Mutex;
#[cfg(all(feature = "sentinel", feature = "tokio"))]
use tokio::sync::Mutex;

/// Where the server is: one server, a cluster, or the primary that Sentinel names.
///
/// Made from a [`redis::Client`], a `redis::cluster::ClusterClient` (feature `cluster`) or a
/// `redis::sentinel::SentinelClient` (feature `sentinel`).
#[derive(Clone)]
pub struct Server(pub(crate) Kind);

#[derive(Clone)]
pub(crate) enum Kind {
    Single(Box<redis::Client>),
    #[cfg(feature = "cluster")]
    Cluster(Box<redis::cluster::ClusterClient>),
    /// Asking Sentinel changes its client, which keeps connections: one question at a time.
    #[cfg(feature = "sentinel")]
    Sentinel(Arc<Mutex<redis::sentinel::SentinelClient>>),
}

impl Server {
    /// Names one server by its URL, `redis://[user:password@]host[:port][/db]`, `rediss://…` (feature `tls-rustls`) or
    /// `unix:///path`.
    pub fn at(address: impl IntoConnectionInfo) -> Result<Server> {
        Ok(redis::Client::open(address)?.into())
    }

    /// Names a cluster by some of its nodes.
    ///
    /// Prefer this to a `ClusterClient` of your own: left to its defaults, redis-rs repeats a request up to 16 times with
    /// growing pauses, longer than a lease lasts. This crate repeats requests itself, with the same token.
    #[cfg(feature = "cluster")]
    pub fn cluster<T: IntoConnectionInfo>(nodes: impl IntoIterator<Item = T>) -> Result<Server> {
        // One repetition follows MOVED and ASK. RESP3 can bring messages on the connection of the commands.
        let client = redis::cluster::ClusterClientBuilder::new(nodes)
            .retries(1)
            .use_protocol(redis::ProtocolVersion::RESP3);
        Ok(client.build()?.into())
    }

    #[cfg(feature = "cluster-async")]
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.0, Kind::Cluster(_))
    }

    /// Whether an error can pass. A client of one server does not follow MOVED: it needs to be told of the cluster.
    pub(crate) fn may_pass(&self, error: &RedisError) -> bool {
        let is_single = matches!(self.0, Kind::Single(_));
        is_retryable(error) && !(is_single && matches!(error.code(), Some("MOVED" | "ASK")))
    }
}

/// Returns a client of the primary that Sentinel names, for a thread.
#[cfg(feature = "sentinel")]
pub(crate) fn primary(
    sentinel: &Mutex<redis::sentinel::SentinelClient>,
) -> redis::RedisResult<redis::Client> {
    #[cfg(not(feature = "tokio"))]
    {
        let mut sentinel = sentinel
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        sentinel.get_client()
    }
    // `blocking_lock` would panic in a thread that runs tasks, though it may block.
    #[cfg(feature = "tokio")]
    loop {
        if let Ok(mut sentinel) = sentinel.try_lock() {
            return sentinel.get_client();
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

impl From<redis::Client> for Server {
    fn from(client: redis::Client) -> Server {
        Server(Kind::Single(Box::new(client)))
    }
}

#[cfg(feature = "cluster")]
impl From<redis::cluster::ClusterClient> for Server {
    fn from(client: redis::cluster::ClusterClient) -> Server {
        Server(Kind::Cluster(Box::new(client)))
    }
}

/// Asks Sentinel for the primary whenever a connection is opened. redis-rs sets no limit on how long a thread waits for a
/// Sentinel that stopped without closing its connections; a hold that cannot be renewed meanwhile is told as lost in time.
#[cfg(feature = "sentinel")]
impl From<redis::sentinel::SentinelClient> for Server {
    fn from(client: redis::sentinel::SentinelClient) -> Server {
        Server(Kind::Sentinel(Arc::new(Mutex::new(client))))
    }
}

impl fmt::Debug for Server {
    /// Shows the kind only: an address can contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Single(_) => "Server(single)",
            #[cfg(feature = "cluster")]
            Kind::Cluster(_) => "Server(cluster)",
            #[cfg(feature = "sentinel")]
            Kind::Sentinel(_) => "Server(sentinel)",
        })
    }
}
