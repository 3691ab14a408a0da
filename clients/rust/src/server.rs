//! Where the server is.

use std::fmt;
#[cfg(feature = "sentinel")]
use std::sync::{Arc, Mutex};

use redis::IntoConnectionInfo;

use crate::error::Result;

/// Where the server is: one server, a cluster, or the primary that Sentinel names.
///
/// Made from a [`redis::Client`], a `redis::cluster::ClusterClient` (feature `cluster`) or a
/// `redis::sentinel::SentinelClient` (feature `sentinel`).
#[derive(Clone)]
pub struct Server(pub(crate) Kind);

#[derive(Clone)]
pub(crate) enum Kind {
    Single(redis::Client),
    #[cfg(feature = "cluster")]
    Cluster(redis::cluster::ClusterClient),
    /// Asking Sentinel changes its client, which keeps connections: one question at a time.
    #[cfg(feature = "sentinel")]
    Sentinel(Arc<Mutex<redis::sentinel::SentinelClient>>),
}

impl Server {
    /// Names one server by its URL, `redis://[user:password@]host[:port][/db]`, `rediss://…` (feature `tls-rustls`) or
    /// `unix:///path`.
    pub fn at(address: impl IntoConnectionInfo) -> Result<Server> {
        Ok(Server(Kind::Single(redis::Client::open(address)?)))
    }

    /// Names a cluster by some of its nodes.
    ///
    /// Prefer this to a `ClusterClient` of your own: left to its defaults, redis-rs repeats a request up to 16 times with
    /// growing pauses, longer than a lease lasts. This crate repeats requests itself, with the same token.
    #[cfg(feature = "cluster")]
    pub fn cluster<T: IntoConnectionInfo>(nodes: impl IntoIterator<Item = T>) -> Result<Server> {
        // One repetition follows MOVED and ASK.
        let client = redis::cluster::ClusterClientBuilder::new(nodes).retries(1);
        Ok(client.build()?.into())
    }
}

impl From<redis::Client> for Server {
    fn from(client: redis::Client) -> Server {
        Server(Kind::Single(client))
    }
}

#[cfg(feature = "cluster")]
impl From<redis::cluster::ClusterClient> for Server {
    fn from(client: redis::cluster::ClusterClient) -> Server {
        Server(Kind::Cluster(client))
    }
}

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
