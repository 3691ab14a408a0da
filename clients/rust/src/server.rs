//! Where the server is.

use std::fmt;
use std::sync::Arc;

use redis::{ErrorKind, IntoConnectionInfo, RedisError, RedisResult, Value};

use crate::error::Result;
use crate::passing::passes;
use crate::sentinel::Found;

/// Where the server is: one server, a cluster, or the primary that Sentinel names.
///
/// Made from a [`redis::Client`] or a `redis::cluster::ClusterClient` (feature `cluster`), too.
#[derive(Clone)]
pub struct Server {
    pub(crate) kind: Kind,
    /// Where the server was asked for, for messages: an address has no password.
    name: Arc<str>,
}

#[cfg(feature = "cluster")]
pub(crate) use redis::cluster_routing::Slot;
#[cfg(feature = "cluster")]
use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
#[cfg(not(feature = "cluster"))]
pub(crate) type Slot = ();

/// The way to who has a slot: left to itself, redis-rs asks any node, or all, if a command names no key.
#[cfg(feature = "cluster")]
pub(crate) fn primary_of(slot: Slot) -> RoutingInfo {
    let route = Route::with_slot(slot, SlotAddr::Master);
    RoutingInfo::SingleNode(SingleNodeRoutingInfo::SpecificNode(route))
}

#[derive(Clone)]
pub(crate) enum Kind {
    Single(Box<redis::Client>),
    #[cfg(feature = "cluster")]
    Cluster(Box<redis::cluster::ClusterClient>),
    Sentinel(Arc<Found>),
}

impl Server {
    fn new(kind: Kind, name: impl Into<Arc<str>>) -> Server {
        let name = name.into();
        Server { kind, name }
    }

    /// Names one server by its URL, `redis://[user:password@]host[:port][/db]`, `rediss://…` (a TLS feature) or
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
        let nodes = nodes.into_iter().map(T::into_connection_info);
        let nodes: Vec<redis::ConnectionInfo> = nodes.collect::<redis::RedisResult<_>>()?;
        let names: Vec<String> = nodes.iter().map(|node| node.addr().to_string()).collect();
        // One repetition follows MOVED and ASK. Turns are announced by RESP3, on a connection of their own.
        let client = redis::cluster::ClusterClientBuilder::new(nodes)
            .retries(1)
            .use_protocol(redis::ProtocolVersion::RESP3);
        let kind = Kind::Cluster(Box::new(client.build()?));
        Ok(Server::new(
            kind,
            format!("the cluster of {}", names.join(", ")),
        ))
    }

    /// Names the primary that Sentinels know by the name `master`. They are asked for each connection, one after the other:
    /// one that refuses or does not answer is passed over for the next one.
    ///
    /// `primary` says how to connect to the primary: its user, password and TLS. The address in it is replaced by the one
    /// that a Sentinel names.
    pub fn sentinel<T: IntoConnectionInfo>(
        sentinels: impl IntoIterator<Item = T>,
        master: impl Into<String>,
        primary: impl IntoConnectionInfo,
    ) -> Result<Server> {
        let clients = sentinels.into_iter().map(redis::Client::open);
        let clients: Vec<_> = clients.collect::<RedisResult<_>>()?;
        if clients.is_empty() {
            let none = (ErrorKind::EmptySentinelList, "no Sentinel is given");
            return Err(RedisError::from(none).into());
        }
        let found = Found::new(clients, master.into(), primary.into_connection_info()?);
        let kind = Kind::Sentinel(Arc::new(found));
        Ok(Server::new(kind, "the primary that Sentinel names"))
    }

    /// Where the server is, for messages.
    pub(crate) fn name(&self) -> String {
        if let Kind::Sentinel(found) = &self.kind
            && let Some(address) = found.last()
        {
            return address;
        }
        self.name.to_string()
    }

    pub(crate) fn is_cluster(&self) -> bool {
        match self.kind {
            #[cfg(feature = "cluster")]
            Kind::Cluster(_) => true,
            _ => false,
        }
    }

    /// The slot of a key in a cluster.
    #[cfg(feature = "cluster")]
    pub(crate) fn slot(&self, key: &str) -> Option<Slot> {
        self.is_cluster().then(|| Slot::for_key(key))
    }

    #[cfg(not(feature = "cluster"))]
    pub(crate) fn slot(&self, _: &str) -> Option<Slot> {
        None
    }

    /// Returns the first of these replies that is an error which can pass, or all of them.
    pub(crate) fn refuse_passing(&self, replies: Vec<Value>) -> RedisResult<Vec<Value>> {
        let errors = replies.iter().filter_map(|reply| match reply {
            Value::ServerError(error) => Some(RedisError::from(error.clone())),
            _ => None,
        });
        match { errors }.find(|error| self.may_pass(error)) {
            Some(error) => Err(error),
            None => Ok(replies),
        }
    }

    /// Whether an error can pass. A client of one server does not follow MOVED: it needs to be told of the cluster.
    pub(crate) fn may_pass(&self, error: &RedisError) -> bool {
        let is_single = matches!(self.kind, Kind::Single(_));
        passes(error) && !(is_single && matches!(error.code(), Some("MOVED" | "ASK")))
    }
}

impl From<redis::Client> for Server {
    fn from(client: redis::Client) -> Server {
        let name = client.get_connection_info().addr().to_string();
        Server::new(Kind::Single(Box::new(client)), name)
    }
}

#[cfg(feature = "cluster")]
impl From<redis::cluster::ClusterClient> for Server {
    fn from(client: redis::cluster::ClusterClient) -> Server {
        Server::new(Kind::Cluster(Box::new(client)), "the cluster")
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({})", self.name())
    }
}
