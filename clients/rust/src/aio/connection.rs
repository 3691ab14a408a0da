//! Connections of the asynchronous half: one that all commands share, and one for each BLOCK.
//!
//! No messages come on these: redis-rs takes what the server says of itself, as SUNSUBSCRIBE when a slot moves, for the
//! reply to whatever was asked last on that connection.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Pipeline, RedisError, RedisResult, Value};
use tokio::sync::Mutex as AsyncMutex;

use crate::call::Call;
use crate::clock::Moment;
use crate::confirm::{Failure, Line, is_elsewhere, perform};
use crate::effort::Effort;
use crate::half::Reply;
use crate::passing::{is_of_connection, passes};
#[cfg(feature = "cluster-async")]
use crate::server::primary_of;
use crate::server::{Kind, Server, Slot};
use crate::signal::{lock, within};

/// The futures of redis-rs are nested deeply enough to exceed the compiler's limit in the programs that use this crate.
type Boxed<'a, T> = Pin<Box<dyn Future<Output = RedisResult<T>> + Send + 'a>>;

/// The connections of a client and its clones.
pub(crate) struct Connections {
    pub(crate) server: Server,
    /// With its number. One that has another number than the next field has failed.
    shared: AsyncMutex<Option<(u64, Connection)>>,
    /// The number of the shared connection. A failure raises it, unless it was seen on an earlier one.
    number: AtomicU64,
    idle: Mutex<Vec<Connection>>,
}

#[derive(Clone)]
pub enum Connection {
    Single(MultiplexedConnection),
    #[cfg(feature = "cluster-async")]
    Cluster(redis::cluster_async::ClusterConnection),
}

/// A connection for an attempt.
struct Lent {
    connection: Connection,
    /// The number of the shared connection; `None` of one that nobody else has.
    shared: Option<u64>,
    is_new: bool,
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

    /// Sends commands in one write, and anew where a connection turns out to be closed. When the future is dropped, a
    /// connection on which the server waits is closed.
    pub(crate) async fn attempt(&self, call: &Call<'_>) -> Result<Reply<Connection>, Failure> {
        let mut closed = None;
        loop {
            let mut lent = match self.lend(call).await {
                Ok(lent) => lent,
                Err(error) => return Err(closed.map_or(Failure::NotSent(error), Failure::Redis)),
            };
            let sent = Moment::now();
            let replies = perform(&mut lent.connection, call, &self.server).await;
            let is_lost =
                is_elsewhere(&replies, &self.server) || replies.as_ref().is_err_and(passes);
            let is_closed = |error: &RedisError| is_of_connection(error) && !error.is_timeout();
            let is_closed = replies.as_ref().is_err_and(is_closed);
            match lent.shared {
                Some(number) if is_lost => self.discard(number),
                // A new connection may lead to the new primary: by DNS, or by Sentinel. The idle ones lead to the old one.
                None if is_lost && !is_closed => lock(&self.idle).clear(),
                _ => {}
            }
            let is_last = lent.is_new || !is_closed || (closed.is_some() && lent.shared.is_some());
            match replies {
                Ok(values) => {
                    return Ok(Reply {
                        sent,
                        values,
                        is_second: closed.is_some(),
                        line: self.take_back(lent, call, is_lost),
                    });
                }
                Err(error) if is_last => return Err(Failure::Redis(error)),
                Err(error) => closed = Some(error),
            }
        }
    }

    async fn lend(&self, call: &Call<'_>) -> RedisResult<Lent> {
        if call.blocks.is_none() && !call.keeps_line {
            return self.shared(call.effort).await;
        }
        let idle = lock(&self.idle).pop().filter(|_| !call.is_afresh);
        let is_new = idle.is_none();
        let connection = match idle {
            Some(connection) => connection,
            None => self.connect(call.effort, None).await?,
        };
        Ok(Lent {
            connection,
            shared: None,
            is_new,
        })
    }

    /// Returns the connection, if the call keeps it.
    fn take_back(&self, lent: Lent, call: &Call<'_>, is_lost: bool) -> Option<Connection> {
        const MOST_IDLE: usize = 16;
        if call.keeps_line {
            return Some(lent.connection).filter(|_| !self.server.is_cluster());
        }
        let mut idle = lock(&self.idle);
        if !is_lost && lent.shared.is_none() && idle.len() < MOST_IDLE {
            idle.push(lent.connection);
        }
        None
    }

    async fn shared(&self, effort: Effort) -> RedisResult<Lent> {
        let lock = async { Ok(self.shared.lock().await) };
        let mut shared = within(effort.connect_limit(), lock).await?;
        let number = self.number();
        let good = shared.take_if(|(of, _)| *of == number);
        let is_new = good.is_none();
        let connection = match good {
            Some((_, connection)) => connection,
            None => self.connect(effort, None).await?,
        };
        *shared = Some((number, connection.clone()));
        Ok(Lent {
            connection,
            shared: Some(number),
            is_new,
        })
    }

    /// Has the next request connect. Waits for no other task, which may connect at this moment.
    fn discard(&self, number: u64) {
        let (swapped, not) = (Ordering::AcqRel, Ordering::Relaxed);
        let _ = self
            .number
            .compare_exchange(number, number + 1, swapped, not);
    }

    /// The number of the shared connection, which is another one after a failure.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Connects; for messages, if somebody is to be told of them.
    pub(crate) async fn connect(
        &self,
        effort: Effort,
        told: Option<MessageSender>,
    ) -> RedisResult<Connection> {
        // What redis-rs does for a cluster step by step has a limit for each step, but none in all.
        let connecting: Boxed<'_, Connection> = Box::pin(async move {
            #[cfg(feature = "cluster-async")]
            if let Kind::Cluster(client) = &self.server.kind {
                let mut config = redis::cluster::ClusterConfig::new()
                    .set_connection_timeout(effort.connect_step_limit());
                if let Some(told) = told {
                    config = config.set_push_sender(move |push| told.send(push));
                }
                let connection = client.get_async_connection_with_config(config).await?;
                return Ok(Connection::Cluster(connection));
            }
            let mut client = self.primary().await?;
            // Each command has a limit of its own: a BLOCK takes longer than the others. So has connecting.
            let mut config = AsyncConnectionConfig::new()
                .set_response_timeout(None)
                .set_connection_timeout(None);
            if let Some(told) = told {
                client = in_resp3(&client)?;
                config = config.set_push_sender(move |push| told.send(push));
            }
            let connection = client.get_multiplexed_async_connection_with_config(&config);
            Ok(Connection::Single(connection.await?))
        });
        within(effort.connect_limit(), connecting).await
    }

    async fn primary(&self) -> RedisResult<Client> {
        match &self.server.kind {
            Kind::Single(client) => Ok(Client::clone(client)),
            #[cfg(feature = "cluster")]
            Kind::Cluster(_) => Err(RedisError::from((
                redis::ErrorKind::InvalidClientConfig,
                "clusters need the feature cluster-async here",
            ))),
            Kind::Sentinel(primary) => primary.client_for_task().await,
        }
    }
}

/// Who is told of messages.
pub(crate) type MessageSender = Arc<dyn redis::aio::AsyncPushSender>;

/// Messages come beside replies in RESP3 only.
fn in_resp3(client: &Client) -> RedisResult<Client> {
    let info = client.get_connection_info();
    let settings = info.redis_settings().clone();
    let settings = settings.set_protocol(redis::ProtocolVersion::RESP3);
    Client::open(info.clone().set_redis_settings(settings))
}

impl Connection {
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

impl Line for Connection {
    async fn exchange(
        &mut self,
        commands: Pipeline,
        slot: Option<Slot>,
        limit: Duration,
    ) -> RedisResult<Vec<Value>> {
        let mut each = commands.cmd_iter();
        // Only a command that comes alone follows MOVED and ASK.
        let alone = each.next().filter(|_| each.next().is_none());
        let replies = async {
            Ok(match (self, alone, slot) {
                #[cfg(feature = "cluster-async")]
                (Connection::Cluster(connection), Some(command), Some(slot)) => {
                    let reply = connection.route_command(command.clone(), primary_of(slot));
                    vec![reply.await?.extract_error()?]
                }
                #[cfg(feature = "cluster-async")]
                (Connection::Cluster(connection), ..) => commands.query_async(connection).await?,
                (Connection::Single(connection), Some(command), _) => {
                    vec![command.query_async(connection).await?]
                }
                (Connection::Single(connection), ..) => commands.query_async(connection).await?,
            })
        };
        within(limit, replies).await
    }
}
