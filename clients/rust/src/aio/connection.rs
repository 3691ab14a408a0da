//! Connections of the asynchronous half: one that all commands share, and one for each BLOCK.
//!
//! No messages come on these: redis-rs takes what the server says of itself, as SUNSUBSCRIBE when a slot moves, for the
//! reply to whatever was asked last on that connection.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisError, RedisResult, Value};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::timeout;

use crate::clock::Moment;
use crate::passing::{is_of_connection, passes};
use crate::server::{Kind, Server};
use crate::settings::Effort;

/// The futures of redis-rs are nested deeply enough to exceed the compiler's limit in the programs that use this crate.
type Boxed<'a, T> = Pin<Box<dyn Future<Output = RedisResult<T>> + Send + 'a>>;

/// The connections of a client and its clones.
pub(crate) struct Connections {
    server: Server,
    shared: AsyncMutex<Shared>,
    /// Counts the shared connections, so that a failure discards the one that it was seen on and not its successor.
    number: AtomicU64,
    idle: Mutex<Vec<Connection>>,
}

#[derive(Default)]
struct Shared {
    connection: Option<Connection>,
}

#[derive(Clone)]
pub(crate) enum Connection {
    Single(MultiplexedConnection),
    #[cfg(feature = "cluster-async")]
    Cluster(redis::cluster_async::ClusterConnection),
}

/// Locked as long as a connection waits.
pub(crate) type Blocked = Arc<AsyncMutex<()>>;

/// The reply to an attempt.
pub(crate) struct Reply {
    pub(crate) sent: Moment,
    pub(crate) value: Value,
    /// Whether an earlier attempt, on a connection that turned out to be closed, may have been carried out.
    pub(crate) is_second: bool,
}

impl Connections {
    pub(crate) fn new(server: Server) -> Connections {
        Connections {
            server,
            shared: AsyncMutex::default(),
            number: AtomicU64::default(),
            idle: Mutex::default(),
        }
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// Sends a command on the shared connection, and anew where that turns out to be closed.
    pub(crate) async fn send_shared(&self, command: &Cmd, effort: Effort) -> RedisResult<Reply> {
        let mut is_second = false;
        loop {
            let (mut connection, number, is_new) = self.shared(effort).await?;
            let sent = Moment::now();
            let reply = within(effort.limit(), connection.send(command)).await;
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
            if passes(&error) {
                self.discard(number).await;
            }
            if is_new || is_second || !is_of_connection(&error) || error.is_timeout() {
                return Err(error);
            }
            is_second = true;
        }
    }

    /// Sends a command that may wait in the server, on a connection of its own. When the future is dropped, the connection
    /// is closed at once; or when the reply has come, if there is a lock that tells others that it still waits.
    pub(crate) async fn send_alone(
        &self,
        command: &Cmd,
        blocks: Duration,
        effort: Effort,
        blocked: Option<&Blocked>,
    ) -> RedisResult<Reply> {
        const MOST_IDLE: usize = 16;
        let mut is_second = false;
        loop {
            let idle = self.idle().pop();
            let is_new = idle.is_none();
            let connection = match idle {
                Some(connection) => connection,
                None => self.connect(effort).await?,
            };
            let sent = Moment::now();
            let asking = connection.asked(command.clone(), blocks + effort.limit());
            let (connection, reply) = match blocked {
                None => asking.await,
                Some(blocked) => {
                    let locked = Arc::clone(blocked).lock_owned().await;
                    let task = tokio::spawn(async move {
                        let answer = asking.await;
                        drop(locked);
                        answer
                    });
                    task.await.map_err(io::Error::from)?
                }
            };
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
            let is_closed = is_of_connection(&error) && !error.is_timeout();
            if !is_closed && passes(&error) {
                // A new connection may lead to the new primary: by DNS, or by Sentinel. The idle ones lead to the old one.
                self.idle().clear();
            }
            if is_new || !is_closed {
                return Err(error);
            }
            is_second = true;
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn shared(&self, effort: Effort) -> RedisResult<(Connection, u64, bool)> {
        let (_, limit) = effort.connect_limits();
        let mut shared = within(limit, async { Ok(self.shared.lock().await) }).await?;
        if let Some(connection) = &shared.connection {
            return Ok((connection.clone(), self.number(), false));
        }
        let connection = self.connect(effort).await?;
        let number = self.number.fetch_add(1, Ordering::AcqRel) + 1;
        shared.connection = Some(connection.clone());
        Ok((connection, number, true))
    }

    async fn discard(&self, number: u64) {
        let mut shared = self.shared.lock().await;
        if self.number() == number {
            shared.connection = None;
        }
    }

    /// The number of the shared connection, which is another one after a failure.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Connects for requests.
    async fn connect(&self, effort: Effort) -> RedisResult<Connection> {
        let (step, limit) = effort.connect_limits();
        within(limit, self.connect_with(step, None)).await
    }

    /// Connects for messages, which `told` takes.
    pub(crate) async fn connect_to_listen(
        &self,
        effort: Effort,
        told: impl redis::aio::AsyncPushSender,
    ) -> RedisResult<Connection> {
        let (step, limit) = effort.connect_limits();
        within(limit, self.connect_with(step, Some(Arc::new(told)))).await
    }

    /// Connects. Each step may last so long, but not all together.
    fn connect_with(&self, step: Duration, told: Option<Told>) -> Boxed<'_, Connection> {
        Box::pin(async move {
            #[cfg(feature = "cluster-async")]
            if let Kind::Cluster(client) = &self.server.kind {
                let mut config = redis::cluster::ClusterConfig::new().set_connection_timeout(step);
                if let Some(told) = told {
                    config = config.set_push_sender(move |push| told.send(push));
                }
                let connection = client.get_async_connection_with_config(config).await?;
                return Ok(Connection::Cluster(connection));
            }
            let mut client = self.primary().await?;
            // Each command has a limit of its own: a BLOCK takes longer than the others.
            let mut config = AsyncConnectionConfig::new()
                .set_response_timeout(None)
                .set_connection_timeout(None);
            if let Some(told) = told {
                client = in_resp3(&client)?;
                config = config.set_push_sender(move |push| told.send(push));
            }
            let connection = client.get_multiplexed_async_connection_with_config(&config);
            Ok(Connection::Single(connection.await?))
        })
    }

    async fn primary(&self) -> RedisResult<Client> {
        match &self.server.kind {
            Kind::Single(client) => Ok(Client::clone(client)),
            #[cfg(feature = "cluster")]
            Kind::Cluster(_) => Err(RedisError::from((
                redis::ErrorKind::InvalidClientConfig,
                "clusters need the feature cluster-async here",
            ))),
            #[cfg(feature = "sentinel")]
            Kind::Sentinel(primary) => primary.client_for_task().await,
        }
    }
}

/// Who is told of messages.
type Told = Arc<dyn redis::aio::AsyncPushSender>;

/// Messages come beside replies in RESP3 only.
fn in_resp3(client: &Client) -> RedisResult<Client> {
    let info = client.get_connection_info();
    let settings = info.redis_settings().clone();
    let settings = settings.set_protocol(redis::ProtocolVersion::RESP3);
    Client::open(info.clone().set_redis_settings(settings))
}

impl Connection {
    async fn asked(mut self, command: Cmd, limit: Duration) -> (Connection, RedisResult<Value>) {
        let reply = within(limit, self.send(&command)).await;
        (self, reply)
    }

    async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Connection::Single(connection) => command.query_async(connection).await,
            #[cfg(feature = "cluster-async")]
            Connection::Cluster(connection) => command.query_async(connection).await,
        }
    }

    pub(crate) async fn subscribe(&self, channel: &str) -> RedisResult<()> {
        match self.clone() {
            Connection::Single(mut connection) => connection.subscribe(channel).await,
            #[cfg(feature = "cluster-async")]
            Connection::Cluster(mut connection) => connection.ssubscribe(channel).await,
        }
    }

    pub(crate) async fn unsubscribe(&self, channel: &str) -> RedisResult<()> {
        match self.clone() {
            Connection::Single(mut connection) => connection.unsubscribe(channel).await,
            #[cfg(feature = "cluster-async")]
            Connection::Cluster(mut connection) => connection.sunsubscribe(channel).await,
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
