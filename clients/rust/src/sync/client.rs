//! The client of the synchronous half: its connections, and how a command is repeated.
//!
//! Every command has a connection to itself while it runs, for a wait occupies it. Idle connections are kept for the
//! next command. A connection on which a reply is overdue is closed: the reply could be taken for the next one.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Cmd, IntoConnectionInfo, RedisResult, Value};

use crate::error::{Error, Holder, Result};
use crate::options::{Group, Lock, Once, Semaphore};
use crate::progress::KeyInfo;
use crate::request::{Family, is_connection_error, is_retryable};
use crate::server::{Kind, Server};
use crate::settings::Settings;
use crate::sync::Cancel;

/// Connects to the server, and makes locks, semaphores, groups and work-once keys.
///
/// Opens connections of its own when it needs them. A clone shares them, and any number of threads may use one client.
#[derive(Clone)]
pub struct Client {
    server: Server,
    settings: Settings,
    idle: Arc<Mutex<Vec<Connection>>>,
}

/// A command to send, and how long to try.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) command: &'a Cmd,
    /// How long the server may wait before it answers.
    pub(crate) blocks: Duration,
    /// How long to wait for the reply beyond that.
    pub(crate) response: Duration,
    /// How long to repeat the command from its first failure on.
    pub(crate) patience: Duration,
    pub(crate) cancel: Option<&'a Cancel>,
}

/// The reply to a command.
pub(crate) struct Answer {
    /// When the attempt that was answered was sent.
    pub(crate) sent: Instant,
    pub(crate) reply: Value,
    /// Whether an earlier attempt may have been carried out.
    pub(crate) is_repeated: bool,
}

impl Client {
    /// Makes a client of the server at a URL, as [`Server::at`] reads it. Nothing is sent yet.
    pub fn open(address: impl IntoConnectionInfo) -> Result<Client> {
        Server::at(address).map(Client::new)
    }

    /// Makes a client of a server, a cluster or the primary that Sentinel names. Nothing is sent yet.
    pub fn new(server: impl Into<Server>) -> Client {
        Client {
            server: server.into(),
            settings: Settings::default(),
            idle: Arc::default(),
        }
    }

    /// Sets how long requests are repeated while the server cannot be reached, or is not able to serve (`READONLY`,
    /// `LOADING`, `CLUSTERDOWN` and the like), counted from the first failure. 30 seconds unless set. A renewal is
    /// repeated until the hold is lost, whatever is set here.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Client {
        self.settings.patience = patience;
        self
    }

    /// Sets how long to wait for a connection, and for the reply to a command that does not wait, before both are tried
    /// anew: at least a millisecond. Three seconds unless set. Waits are not affected.
    #[must_use]
    pub fn with_response_timeout(mut self, timeout: Duration) -> Client {
        self.settings.response_timeout = timeout.max(Duration::from_millis(1));
        self
    }

    /// Names a lock.
    pub fn lock(&self, key: impl Into<String>) -> Lock {
        Lock::new(self.clone(), key.into())
    }

    /// Names a semaphore.
    pub fn semaphore(&self, key: impl Into<String>) -> Semaphore {
        Semaphore::new(self.clone(), key.into())
    }

    /// Names a wait group.
    pub fn group(&self, key: impl Into<String>) -> Group {
        Group::new(self.clone(), key.into())
    }

    /// Names work that is done once.
    pub fn once(&self, key: impl Into<String>) -> Once {
        Once::new(self.clone(), key.into())
    }

    /// Asks the server for a sign of life, once: for telling early that an address or a password is wrong.
    pub fn ping(&self) -> Result<()> {
        let ping = redis::cmd("PING");
        let mut call = self.call(&ping);
        call.patience = Duration::ZERO;
        self.send(call).map(drop)
    }

    /// Describes a command that the server answers at once.
    pub(crate) fn call<'a>(&self, command: &'a Cmd) -> Call<'a> {
        Call {
            command,
            blocks: Duration::ZERO,
            response: self.settings.response_timeout,
            patience: self.settings.patience,
            cancel: None,
        }
    }

    /// Sends a command until it is answered.
    pub(crate) fn send(&self, call: Call<'_>) -> Result<Answer> {
        let mut first_failure = None;
        let mut pause = Duration::from_millis(20);
        loop {
            let error = match self.send_once(call) {
                Ok((sent, reply, is_second)) => {
                    return Ok(Answer {
                        sent,
                        reply,
                        is_repeated: is_second || first_failure.is_some(),
                    });
                }
                Err(error) => error,
            };
            let since = *first_failure.get_or_insert_with(Instant::now);
            let is_cancelled = call.cancel.is_some_and(Cancel::is_cancelled);
            if is_cancelled || !self.may_pass(&error) || since.elapsed() + pause > call.patience {
                return Err(error.into());
            }
            match call.cancel {
                Some(cancel) => cancel.wait(pause),
                None => thread::sleep(pause),
            }
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    /// Whether an error can pass. One server does not follow MOVED: that is a cluster, and needs a client of its own.
    fn may_pass(&self, error: &redis::RedisError) -> bool {
        let is_single = matches!(self.server.0, Kind::Single(_));
        is_retryable(error) && !(is_single && matches!(error.code(), Some("MOVED" | "ASK")))
    }

    /// Sends a command once, and anew where an idle connection turns out to be closed. Returns whether that was so.
    fn send_once(&self, call: Call<'_>) -> RedisResult<(Instant, Value, bool)> {
        let mut is_second = false;
        // The server may have closed an idle connection long ago, so a failure there tells nothing about the server.
        while let Some(mut connection) = self.take_idle() {
            match connection.send(call) {
                Err(error) if is_connection_error(&error) && !error.is_timeout() => {
                    is_second = true;
                }
                answer => {
                    self.keep_unless_broken(connection, answer.as_ref().err());
                    return answer.map(|(sent, reply)| (sent, reply, is_second));
                }
            }
        }
        let mut connection = self.connect(call.response)?;
        let answer = connection.send(call);
        self.keep_unless_broken(connection, answer.as_ref().err());
        answer.map(|(sent, reply)| (sent, reply, is_second))
    }

    fn keep_unless_broken(&self, connection: Connection, error: Option<&redis::RedisError>) {
        const MOST_IDLE: usize = 16;
        // After READONLY and the like a new connection may lead to the new primary: by DNS, or by Sentinel.
        if error.is_none_or(|error| !is_retryable(error)) {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < MOST_IDLE {
                idle.push(connection);
            }
        }
    }

    fn take_idle(&self) -> Option<Connection> {
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
    }

    fn connect(&self, timeout: Duration) -> RedisResult<Connection> {
        let to_one = |client: &redis::Client| {
            let connection = client.get_connection_with_timeout(timeout)?;
            Ok(Connection::Single(connection))
        };
        match &self.server.0 {
            Kind::Single(client) => to_one(client),
            #[cfg(feature = "cluster")]
            Kind::Cluster(client) => {
                let config = redis::cluster::ClusterConfig::new()
                    .set_connection_timeout(timeout)
                    .set_response_timeout(timeout);
                let connection = client.get_connection_with_config(config)?;
                Ok(Connection::Cluster(Box::new(connection)))
            }
            #[cfg(feature = "sentinel")]
            Kind::Sentinel(client) => {
                let primary = client
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .get_client()?;
                to_one(&primary)
            }
        }
    }

    /// Returns INFO of a key; what the server does not tell, because of its ACL for example, stays empty.
    pub(crate) fn info(&self, family: Family, key: &str) -> KeyInfo {
        let command = family.command("INFO", key);
        let mut call = self.call(&command);
        call.patience = Duration::ZERO;
        let answer = self.send(call);
        answer
            .map(|answer| KeyInfo::read(&answer.reply))
            .unwrap_or_default()
    }

    pub(crate) fn not_acquired(&self, family: Family, key: &str) -> Error {
        let holders: Vec<Holder> = self.info(family, key).holders;
        Error::NotAcquired {
            key: key.to_owned(),
            holders,
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("server", &self.server)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

enum Connection {
    Single(redis::Connection),
    #[cfg(feature = "cluster")]
    Cluster(Box<redis::cluster::ClusterConnection>),
}

impl Connection {
    fn send(&mut self, call: Call<'_>) -> RedisResult<(Instant, Value)> {
        let reply_within = Some(call.blocks + call.response);
        let sent = Instant::now();
        let reply = match self {
            Connection::Single(connection) => {
                connection.set_write_timeout(Some(call.response))?;
                connection.set_read_timeout(reply_within)?;
                call.command.query(connection)?
            }
            #[cfg(feature = "cluster")]
            Connection::Cluster(connection) => {
                connection.set_write_timeout(Some(call.response))?;
                connection.set_read_timeout(reply_within)?;
                call.command.query(&mut **connection)?
            }
        };
        Ok((sent, reply))
    }
}
