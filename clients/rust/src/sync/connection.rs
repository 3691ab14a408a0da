//! Connections of the synchronous half, each with a limit to how long it is waited for.

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use redis::{Cmd, RedisError, RedisResult, Value};

use crate::server::Kind;

pub(crate) enum Connection {
    Single(redis::Connection),
    #[cfg(feature = "cluster")]
    Cluster(Box<redis::cluster::ClusterConnection>),
}

/// Connects. Each step may last so long, but not all together: a name can have several addresses, and a cluster has nodes.
pub(crate) fn connect(kind: &Kind, step: Duration) -> RedisResult<Connection> {
    match kind {
        Kind::Single(client) => to_one(client, step),
        #[cfg(feature = "cluster")]
        Kind::Cluster(client) => {
            let config = redis::cluster::ClusterConfig::new()
                .set_connection_timeout(step)
                .set_response_timeout(step);
            let connection = client.get_connection_with_config(config)?;
            Ok(Connection::Cluster(Box::new(connection)))
        }
        #[cfg(feature = "sentinel")]
        Kind::Sentinel(primary) => to_one(&primary.client()?, step),
    }
}

fn to_one(client: &redis::Client, step: Duration) -> RedisResult<Connection> {
    // A time of its own for each address of the name, and one for the greeting.
    let connection = client.get_connection_with_timeout(step * 2)?;
    Ok(Connection::Single(connection))
}

impl Connection {
    /// Sends a command, and waits so long for the reply beyond what the server may wait. The outer error says that the time
    /// was up, and that the connection is of no further use.
    pub(crate) fn send(
        self,
        command: &Cmd,
        limit: Duration,
        blocks: Duration,
    ) -> RedisResult<(Connection, RedisResult<Value>)> {
        match self {
            Connection::Single(mut connection) => {
                connection.set_write_timeout(Some(limit))?;
                connection.set_read_timeout(Some(blocks + limit))?;
                let reply = command.query(&mut connection);
                Ok((Connection::Single(connection), reply))
            }
            // Behind one command of a cluster stand several attempts, connections and questions for its slots.
            #[cfg(feature = "cluster")]
            Connection::Cluster(mut connection) => {
                let command = command.clone();
                let send = move || {
                    let reply = connection
                        .set_write_timeout(Some(limit))
                        .and_then(|()| connection.set_read_timeout(Some(blocks + limit)))
                        .and_then(|()| command.query(&mut *connection));
                    (Connection::Cluster(connection), reply)
                };
                within(blocks + limit, send)
            }
        }
    }
}

/// Does something in a thread of its own, and waits at most so long for what comes of it. What comes late is dropped.
pub(crate) fn within<T: Send + 'static>(
    limit: Duration,
    what: impl FnOnce() -> T + Send + 'static,
) -> RedisResult<T> {
    let (tell, told) = mpsc::channel();
    let thread = thread::Builder::new().name("dsync-connect".to_owned());
    thread.spawn(move || drop(tell.send(what())))?;
    let late = |_| RedisError::from(io::Error::from(io::ErrorKind::TimedOut));
    told.recv_timeout(limit).map_err(late)
}
