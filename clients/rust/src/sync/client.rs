//! The client of the synchronous half: its connections, and how a command is repeated.
//!
//! Every command has a connection to itself while it runs, for a wait occupies it. Idle connections are kept for the
//! next command. A connection on which a reply is overdue is closed: the reply could be taken for the next one.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use redis::{IntoConnectionInfo, RedisResult, Value};

use crate::clock::Moment;
use crate::error::{Error, Holder, Result, ServerError};
use crate::passing::{is_of_connection, passes};
use crate::progress::KeyInfo;
use crate::request::{Command, Family};
use crate::server::Server;
use crate::settings::{Effort, Settings};
use crate::sync::Cancel;
use crate::sync::connection::{Connection, connect, within};

/// How many idle connections are kept.
const MOST_IDLE: usize = 16;

/// Connects to the server, and makes locks, semaphores, groups and work-once keys.
///
/// Opens connections of its own when it needs them. A clone shares them, and any number of threads may use one client.
#[derive(Clone)]
pub struct Client {
    server: Server,
    pub(crate) settings: Settings,
    idle: Arc<Mutex<Vec<Connection>>>,
}

/// A command to send, and how long to try.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) command: &'a Command,
    /// How long the server may wait before it answers.
    pub(crate) blocks: Duration,
    pub(crate) effort: Effort,
    /// Whether an idle connection will not do, because the last one has failed.
    pub(crate) is_afresh: bool,
    pub(crate) cancel: Option<&'a Cancel>,
}

/// The reply to a command.
pub(crate) struct Answer {
    /// When the attempt that was answered was sent.
    pub(crate) sent: Moment,
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
    /// anew: at least a millisecond. Two seconds unless set. A server is given so much longer to answer a wait.
    #[must_use]
    pub fn with_response_timeout(mut self, timeout: Duration) -> Client {
        self.settings.response_timeout = timeout.max(Duration::from_millis(1));
        self
    }

    /// Asks the server for a sign of life, once: for telling early that an address or a password is wrong.
    pub fn ping(&self) -> Result<()> {
        let ping = Command::of_server("PING");
        let mut call = self.call(&ping);
        call.effort = self.settings.attempt();
        self.send(call).map(drop)
    }

    /// Describes a command that the server answers at once.
    pub(crate) fn call<'a>(&self, command: &'a Command) -> Call<'a> {
        Call {
            command,
            blocks: Duration::ZERO,
            effort: self.settings.effort(),
            is_afresh: false,
            cancel: None,
        }
    }

    /// Sends a command until it is answered.
    pub(crate) fn send(&self, mut call: Call<'_>) -> Result<Answer> {
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
            if is_cancelled || call.effort.is_over(since, pause) || !self.server.may_pass(&error) {
                let address = self.server.name();
                return Err(Error::Redis(ServerError::of(error, call.command, address)));
            }
            call.is_afresh = true;
            match call.cancel {
                Some(cancel) => cancel.wait(pause),
                None => thread::sleep(pause),
            }
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    /// Sends a command once, and anew where an idle connection turns out to be closed. Returns whether that was so.
    fn send_once(&self, call: Call<'_>) -> RedisResult<(Moment, Value, bool)> {
        let mut is_second = false;
        // The server may have closed an idle connection long ago, so a failure there tells nothing about the server.
        while let Some(connection) = self.take_idle(&call) {
            match self.send_on(connection, call) {
                Err(error) if is_of_connection(&error) && !error.is_timeout() => {
                    is_second = true;
                }
                answer => return answer.map(|(sent, reply)| (sent, reply, is_second)),
            }
        }
        let connection = self.connect(call.effort)?;
        let answer = self.send_on(connection, call);
        answer.map(|(sent, reply)| (sent, reply, is_second))
    }

    fn send_on(&self, connection: Connection, call: Call<'_>) -> RedisResult<(Moment, Value)> {
        let (sent, limit) = (Moment::now(), call.effort.limit());
        let (connection, reply) = connection.send(&call.command.cmd, limit, call.blocks)?;
        match &reply {
            // A new connection may lead to the new primary: by DNS, or by Sentinel. The idle ones lead to the old one. In a
            // cluster they are good for the other nodes.
            Err(error) if passes(error) => {
                if !self.server.is_cluster() {
                    self.idle().clear();
                }
            }
            _ => {
                let mut idle = self.idle();
                if idle.len() < MOST_IDLE {
                    idle.push(connection);
                }
            }
        }
        reply.map(|reply| (sent, reply))
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_idle(&self, call: &Call<'_>) -> Option<Connection> {
        if call.is_afresh {
            return None;
        }
        self.idle().pop()
    }

    fn connect(&self, effort: Effort) -> RedisResult<Connection> {
        let kind = self.server.kind.clone();
        let (step, limit) = effort.connect_limits();
        // Looking up a name, asking Sentinel and greeting all nodes of a cluster have no limit in all, if any.
        within(limit, move || connect(&kind, step))?
    }

    /// Returns INFO of a key; what the server does not tell, because of its ACL for example, stays empty.
    pub(crate) fn info(&self, family: Family, key: &str) -> KeyInfo {
        let command = family.command("INFO", key);
        let mut call = self.call(&command);
        call.effort = self.settings.courtesy();
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
