//! Connections of the asynchronous half: one that all commands share, and one for each BLOCK.

use std::future::Future;
use std::io;
use std::pin::Pin;
#[cfg(feature = "cluster-async")]
use std::sync::Arc;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, Cmd, RedisError, RedisResult, Value};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::timeout;

#[cfg(feature = "cluster-async")]
use crate::aio::announce::Listeners;
use crate::request::{is_connection_error, is_retryable};
use crate::server::{Kind, Server};

/// The futures of redis-rs are nested deeply enough to exceed the compiler's limit in the programs that use this crate.
type Boxed<'a, T> = Pin<Box<dyn Future<Output = RedisResult<T>> + Send + 'a>>;

/// The connections of a client and its clones.
pub(crate) struct Connections {
    server: Server,
    shared: AsyncMutex<Shared>,
    idle: Mutex<Vec<Connection>>,
    /// Where pushed messages of a cluster go, if turns are announced on the shared connection.
    #[cfg(feature = "cluster-async")]
    pub(crate) announced_to: Option<Arc<Listeners>>,
}

#[derive(Default)]
struct Shared {
    connection: Option<Connection>,
    /// Counts the connections, so that a failure discards the one that it was seen on and not its successor.
    number: u64,
}

#[derive(Clone)]
pub(crate) enum Connection {
    Single(MultiplexedConnection),
    #[cfg(feature = "cluster-async")]
    Cluster(redis::cluster_async::ClusterConnection),
}

/// The reply to an attempt.
pub(crate) struct Reply {
    pub(crate) sent: Instant,
    pub(crate) value: Value,
    /// Whether an earlier attempt, on a connection that turned out to be closed, may have been carried out.
    pub(crate) is_second: bool,
}

impl Connections {
    pub(crate) fn new(server: Server) -> Connections {
        Connections {
            server,
            shared: AsyncMutex::default(),
            idle: Mutex::default(),
            #[cfg(feature = "cluster-async")]
            announced_to: None,
        }
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// Sends a command on the shared connection, and anew where that turns out to be closed.
    pub(crate) async fn send_shared(
        &self,
        command: &Cmd,
        response: Duration,
    ) -> RedisResult<Reply> {
        let mut is_second = false;
        loop {
            let (mut connection, number, is_new) = within(response, self.shared()).await?;
            let sent = Instant::now();
            let reply = within(response, connection.send(command)).await;
            let error = match reply {
                Ok(value) => {
                    return Ok(Reply {
                        sent,
                        value,
                        is_second,
                    });
                }
                Err(error) => error,
            };
            if is_retryable(&error) {
                self.discard(number).await;
            }
            if is_new || is_second || !is_connection_error(&error) || error.is_timeout() {
                return Err(error);
            }
            is_second = true;
        }
    }

    /// Sends a command that may wait in the server, on a connection of its own. A dropped future closes the connection.
    pub(crate) async fn send_alone(
        &self,
        command: &Cmd,
        blocks: Duration,
        response: Duration,
    ) -> RedisResult<Reply> {
        const MOST_IDLE: usize = 16;
        let mut is_second = false;
        loop {
            let idle = self.idle().pop();
            let is_new = idle.is_none();
            let mut connection = match idle {
                Some(connection) => connection,
                None => within(response, self.connect(false)).await?,
            };
            let sent = Instant::now();
            let reply = within(blocks + response, connection.send(command)).await;
            let error = match reply {
                Ok(value) => {
                    let mut idle = self.idle();
                    if idle.len() < MOST_IDLE {
                        idle.push(connection);
                    }
                    return Ok(Reply {
                        sent,
                        value,
                        is_second,
                    });
                }
                Err(error) => error,
            };
            if is_new || !is_connection_error(&error) || error.is_timeout() {
                return Err(error);
            }
            is_second = true;
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn shared(&self) -> RedisResult<(Connection, u64, bool)> {
        let mut shared = self.shared.lock().await;
        if let Some(connection) = &shared.connection {
            return Ok((connection.clone(), shared.number, false));
        }
        let connection = self.connect(true).await?;
        shared.number += 1;
        shared.connection = Some(connection.clone());
        Ok((connection, shared.number, true))
    }

    async fn discard(&self, number: u64) {
        let mut shared = self.shared.lock().await;
        if shared.number == number {
            shared.connection = None;
        }
    }

    /// Subscribes to a channel of a cluster on the shared connection, which redis-rs routes to the channel's node.
    /// Returns the number of the connection, which is another one after a failure.
    #[cfg(feature = "cluster-async")]
    pub(crate) async fn listen_in_cluster(
        &self,
        channel: &str,
        response: Duration,
    ) -> RedisResult<u64> {
        let (connection, number, _) = within(response, self.shared()).await?;
        if let Connection::Cluster(mut connection) = connection {
            within(response, connection.ssubscribe(channel)).await?;
        }
        Ok(number)
    }

    #[cfg(feature = "cluster-async")]
    pub(crate) async fn forget_in_cluster(&self, channel: &str, response: Duration) {
        if let Some(Connection::Cluster(mut connection)) =
            self.shared.lock().await.connection.clone()
        {
            let _ = within(response, connection.sunsubscribe(channel)).await;
        }
    }

    /// The number of the shared connection.
    #[cfg(feature = "cluster-async")]
    pub(crate) async fn shared_number(&self) -> u64 {
        self.shared.lock().await.number
    }

    /// Connects, without a limit of its own: the caller sets one.
    #[cfg_attr(
        not(feature = "cluster-async"),
        allow(
            unused_variables,
            reason = "only a cluster's connection is told of messages"
        )
    )]
    fn connect(&self, is_shared: bool) -> Boxed<'_, Connection> {
        Box::pin(async move {
            #[cfg(feature = "cluster-async")]
            if let Kind::Cluster(client) = &self.server.0 {
                let mut config = redis::cluster::ClusterConfig::new();
                if is_shared && let Some(listeners) = self.announced_to.clone() {
                    config = config.set_push_sender(move |push| listeners.pushed(push));
                }
                let connection = client.get_async_connection_with_config(config).await?;
                return Ok(Connection::Cluster(connection));
            }
            let client = self.primary().await?;
            // Each command has a limit of its own: a BLOCK takes longer than the others.
            let config = AsyncConnectionConfig::new();
            let config = config
                .set_response_timeout(None)
                .set_connection_timeout(None);
            let connection = client
                .get_multiplexed_async_connection_with_config(&config)
                .await?;
            Ok(Connection::Single(connection))
        })
    }

    /// Connects for listening to channels of one server, or of the primary that Sentinel names.
    pub(crate) fn connect_to_listen(&self) -> Boxed<'_, PubSub> {
        Box::pin(async { self.primary().await?.get_async_pubsub().await })
    }

    async fn primary(&self) -> RedisResult<redis::Client> {
        match &self.server.0 {
            Kind::Single(client) => Ok(redis::Client::clone(client)),
            #[cfg(feature = "cluster")]
            Kind::Cluster(_) => Err(RedisError::from((
                redis::ErrorKind::InvalidClientConfig,
                "clusters need the feature cluster-async here",
            ))),
            #[cfg(feature = "sentinel")]
            Kind::Sentinel(client) => client.lock().await.async_get_client().await,
        }
    }
}

impl Connection {
    async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Connection::Single(connection) => command.query_async(connection).await,
            #[cfg(feature = "cluster-async")]
            Connection::Cluster(connection) => command.query_async(connection).await,
        }
    }
}

/// Waits at most so long.
pub(crate) async fn within<T>(
    limit: Duration,
    future: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    let late = |_| RedisError::from(io::Error::from(io::ErrorKind::TimedOut));
    timeout(limit, future).await.map_err(late)?
}
