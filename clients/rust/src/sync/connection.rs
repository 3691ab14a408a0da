//! Connections of the synchronous half, each with a limit to how long it is waited for.

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

#[cfg(feature = "cluster")]
use redis::ConnectionLike;
use redis::{Pipeline, RedisError, RedisResult, Value};

use crate::confirm::Line;
#[cfg(feature = "cluster")]
use crate::server::primary_of;
use crate::server::{Kind, Slot};

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
        Kind::Sentinel(primary) => to_one(&primary.client()?, step),
    }
}

fn to_one(client: &redis::Client, step: Duration) -> RedisResult<Connection> {
    // A time of its own for each address of the name, and one for the greeting.
    let connection = client.get_connection_with_timeout(step * 4)?;
    Ok(Connection::Single(connection))
}

/// A connection for an attempt.
pub struct Lent {
    /// `None` once an answer is overdue.
    pub(crate) connection: Option<Connection>,
    /// How long writing may take.
    pub(crate) write: Duration,
}

impl Line for Lent {
    async fn exchange(
        &mut self,
        commands: Pipeline,
        slot: Option<Slot>,
        limit: Duration,
    ) -> RedisResult<Vec<Value>> {
        let closed = || RedisError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        let connection = self.connection.take().ok_or_else(closed)?;
        let write = self.write;
        let (connection, replies) = match (connection, slot) {
            (Connection::Single(mut connection), _) => {
                connection.set_write_timeout(Some(write))?;
                let replies = ask(&mut connection, &commands, limit);
                (Connection::Single(connection), replies)
            }
            // Behind one command of a cluster stand several attempts, connections and questions for its slots.
            #[cfg(feature = "cluster")]
            (Connection::Cluster(mut connection), slot) => {
                let send = move || {
                    let replies = connection
                        .set_write_timeout(Some(write))
                        .and_then(|()| connection.set_read_timeout(Some(limit)))
                        .and_then(|()| ask_cluster(&mut connection, &commands, slot));
                    (Connection::Cluster(connection), replies)
                };
                within(limit, send)?
            }
        };
        self.connection = Some(connection);
        replies
    }
}

/// Sends commands, and waits so long for the replies together: redis-rs waits as long for each of them.
fn ask(
    connection: &mut redis::Connection,
    commands: &Pipeline,
    limit: Duration,
) -> RedisResult<Vec<Value>> {
    const SHORTEST: Duration = Duration::from_millis(1);
    let end = Instant::now() + limit;
    connection.send_packed_command(&commands.get_packed_pipeline())?;
    let mut replies = Vec::new();
    while replies.len() < commands.len() {
        let left = end.saturating_duration_since(Instant::now());
        connection.set_read_timeout(Some(left.max(SHORTEST)))?;
        match connection.recv_response()? {
            Value::Push { .. } => {}
            reply if commands.len() == 1 => replies.push(reply.extract_error()?),
            reply => replies.push(reply),
        }
    }
    Ok(replies)
}

#[cfg(feature = "cluster")]
fn ask_cluster(
    connection: &mut redis::cluster::ClusterConnection,
    commands: &Pipeline,
    slot: Option<Slot>,
) -> RedisResult<Vec<Value>> {
    let mut each = commands.cmd_iter();
    let (Some(command), None) = (each.next(), each.next()) else {
        // `Pipeline::query` refuses a cluster, to which commands of one slot can be sent all the same.
        let packed = commands.get_packed_pipeline();
        return connection.req_packed_commands(&packed, 0, commands.len());
    };
    // Only a command that comes alone follows MOVED and ASK.
    let reply = match slot {
        Some(slot) => connection.route_command(command, primary_of(slot)),
        None => connection.req_command(command),
    };
    Ok(vec![reply?.extract_error()?])
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
