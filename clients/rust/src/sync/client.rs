//! The client of the synchronous half, and its connections.
//!
//! Every attempt has a connection to itself, for a wait occupies it. Idle connections are kept for the next one. A
//! connection on which a reply is overdue is closed: the reply could be taken for the next one.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use redis::RedisResult;

use crate::call::Call;
use crate::cancel::Cancel;
use crate::clock::Moment;
use crate::confirm::{Failure, is_elsewhere, perform};
use crate::effort::Effort;
use crate::error::Result;
use crate::half::{Half, Reply, Shared};
use crate::passing::{is_of_connection, passes};
use crate::renewal::Renewals;
use crate::request::Command;
use crate::send::send;
use crate::server::Server;
use crate::signal::{Signal, Wait, lock, now};
use crate::sync::connection::{Connection, Lent, connect, within};

/// How many idle connections are kept.
const MOST_IDLE: usize = 16;

/// Connects to the server, and makes locks, semaphores, groups and work-once keys.
///
/// Opens connections of its own when it needs them. A clone shares them, and any number of threads may use one client.
#[derive(Clone)]
pub struct Client {
    server: Server,
    pub(crate) effort: Effort,
    /// Those of requests, and those of renewals.
    idle: Arc<[Mutex<Vec<Connection>>; 2]>,
    renewals: Arc<Renewals<Client>>,
}

impl Client {
    /// Makes a client of a server, a cluster or the primary that Sentinel names. Nothing is sent yet.
    pub fn new(server: impl Into<Server>) -> Client {
        Client {
            server: server.into(),
            effort: Effort::default(),
            idle: Arc::default(),
            renewals: Arc::default(),
        }
    }

    async fn send_on(&self, connection: Connection, call: &Call<'_>) -> RedisResult<Reply<Lent>> {
        let sent = Moment::now();
        let mut line = Lent {
            connection: Some(connection),
            write: call.effort.limit(),
        };
        let values = perform(&mut line, call, &self.server).await;
        match &values {
            // A new connection may lead to the new primary: by DNS, or by Sentinel. The idle ones lead to the old one.
            replies if is_elsewhere(replies, &self.server) => {
                self.idle(false).clear();
                self.idle(true).clear();
            }
            // In a cluster the idle ones are good for the other nodes.
            Err(error) if passes(error) => {}
            _ if call.keeps_line => {}
            _ => {
                let mut idle = self.idle(call.is_renewal);
                if idle.len() < MOST_IDLE {
                    idle.extend(line.connection.take());
                }
            }
        }
        values.map(|values| Reply {
            sent,
            values,
            is_second: false,
            line: (!self.server.is_cluster()).then_some(line),
        })
    }

    fn idle(&self, of_renewals: bool) -> MutexGuard<'_, Vec<Connection>> {
        lock(&self.idle[usize::from(of_renewals)])
    }

    fn take_idle(&self, call: &Call<'_>) -> Option<Connection> {
        if call.is_afresh {
            return None;
        }
        let own = self.idle(call.is_renewal).pop();
        // Opening one to a cluster takes long while one of its nodes stands still.
        own.or_else(|| self.idle(false).pop())
    }

    fn connect(&self, effort: Effort) -> RedisResult<Connection> {
        let kind = self.server.kind.clone();
        let step = effort.connect_step_limit();
        // Looking up a name, asking Sentinel and greeting all nodes of a cluster have no limit in all, if any.
        within(effort.connect_limit(), move || connect(&kind, step))?
    }
}

impl Wait for Client {
    async fn wait(signal: &Signal, seen: u64, at_most: Duration) {
        signal.block(seen, at_most);
    }
}

impl Half for Client {
    type Listening = ();
    type Line = Lent;

    fn effort(&self) -> Effort {
        self.effort
    }

    fn server(&self) -> &Server {
        &self.server
    }

    fn renew(&self, hold: &Arc<Shared<Client>>) {
        self.renewals.add(hold);
    }

    fn renew_earlier(&self) {
        self.renewals.look();
    }

    async fn attempt(&self, call: &Call<'_>) -> std::result::Result<Reply<Lent>, Failure> {
        let mut closed = None;
        loop {
            let idle = self.take_idle(call);
            let is_idle = idle.is_some();
            let connection = match idle.map_or_else(|| self.connect(call.effort), Ok) {
                Ok(connection) => connection,
                Err(error) => return Err(closed.map_or(Failure::NotSent(error), Failure::Redis)),
            };
            match self.send_on(connection, call).await {
                // The server may have closed an idle connection long ago: that tells nothing about the server.
                Err(error) if is_idle && is_of_connection(&error) && !error.is_timeout() => {
                    closed = Some(error);
                }
                Err(error) => return Err(Failure::Redis(error)),
                Ok(reply) => {
                    let is_second = closed.is_some();
                    return Ok(Reply { is_second, ..reply });
                }
            }
        }
    }

    /// Where no thread can be started, nothing is done: the end of a place or of a lease comes by itself.
    fn in_background(&self, what: impl Future<Output = ()> + Send + 'static) {
        let thread = thread::Builder::new().name("dsync".to_owned());
        let _ = thread.spawn(move || now(what));
    }

    async fn to_the_end<T: Send + 'static>(
        &self,
        _: Option<&Cancel>,
        what: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        what.await
    }

    fn conclude(&self, command: &Command) -> bool {
        let call = Call::new(command, self.effort.once());
        !now(send(self, call)).is_err_and(|error| error.is_unreachable())
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("server", &self.server)
            .field("effort", &self.effort)
            .finish_non_exhaustive()
    }
}
