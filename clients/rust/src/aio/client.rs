//! The client of the asynchronous half, and how a command is repeated.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{IntoConnectionInfo, Value};
use tokio::time::sleep;

use crate::aio::announce::Announcements;
use crate::aio::connection::{Blocked, Connections};
use crate::clock::Moment;
use crate::error::{Error, Result, ServerError};
use crate::progress::KeyInfo;
use crate::request::{Command, Family};
use crate::server::Server;
use crate::settings::{Effort, Settings};

/// Connects to the server, and makes locks, semaphores, groups and work-once keys for tasks.
///
/// Opens connections of its own when it needs them: one for all commands, and more for waits, as
/// [`with_waits`](Client::with_waits) says. A clone shares them. Use a client within one tokio runtime.
#[derive(Clone)]
pub struct Client {
    pub(crate) settings: Settings,
    waits: Waits,
    connections: Arc<Connections>,
    announcements: Arc<Announcements>,
}

/// How requests wait. In both ways they stand in the same queue, in the order in which they came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Waits {
    /// Each wait has a connection of its own, on which the server answers when it grants (BLOCK). Connections are used
    /// again by later waits; in a cluster, each is one to every node.
    #[default]
    OwnConnection,
    /// All waits share one connection with the other commands (QUEUE), and a second one tells whose turn it is: for
    /// thousands of waits at a time. It needs `+subscribe +unsubscribe` and the channels of the keys in the ACL, for keys
    /// `jobs:*` `&dsync:{jobs:*`; in a cluster `+ssubscribe +sunsubscribe`, and RESP3: [`Server::cluster`] chooses it, a
    /// `ClusterClient` of your own has to. Without them the waits ask twice a second. Only a wait for a group to finish
    /// has no messages: it asks every half a second.
    SharedConnection,
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
        Client::with(server.into(), Settings::default(), Waits::default())
    }

    fn with(server: Server, settings: Settings, waits: Waits) -> Client {
        let connections = Arc::new(Connections::new(server));
        let effort = settings.attempt();
        Client {
            announcements: Arc::new(Announcements::new(Arc::clone(&connections), effort)),
            connections,
            settings,
            waits,
        }
    }

    /// Sets how requests wait. The client opens connections anew.
    #[must_use]
    pub fn with_waits(self, waits: Waits) -> Client {
        Client::with(self.connections.server().clone(), self.settings, waits)
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
    /// anew: at least a millisecond. Two seconds unless set. A server is given so much longer to answer a wait. The client
    /// opens connections anew.
    #[must_use]
    pub fn with_response_timeout(mut self, timeout: Duration) -> Client {
        self.settings.response_timeout = timeout.max(Duration::from_millis(1));
        Client::with(self.connections.server().clone(), self.settings, self.waits)
    }

    /// Asks the server for a sign of life, once: for telling early that an address or a password is wrong.
    pub async fn ping(&self) -> Result<()> {
        let ping = Command::of_server("PING");
        self.send(&ping, self.settings.attempt()).await.map(drop)
    }

    pub(crate) fn waits(&self) -> Waits {
        self.waits
    }

    pub(crate) fn announcements(&self) -> &Announcements {
        &self.announcements
    }

    /// Sends a command that the server answers at once, until it is answered.
    pub(crate) async fn send(&self, command: &Command, effort: Effort) -> Result<Answer> {
        self.send_with(command, None, effort, None).await
    }

    /// Sends a command for which the server may wait so long, on a connection of its own.
    pub(crate) async fn send_blocking(
        &self,
        command: &Command,
        blocks: Duration,
        effort: Effort,
        blocked: Option<&Blocked>,
    ) -> Result<Answer> {
        self.send_with(command, Some(blocks), effort, blocked).await
    }

    async fn send_with(
        &self,
        command: &Command,
        blocks: Option<Duration>,
        effort: Effort,
        blocked: Option<&Blocked>,
    ) -> Result<Answer> {
        let mut first_failure = None;
        let mut pause = Duration::from_millis(20);
        loop {
            let (connections, cmd) = (&self.connections, &command.cmd);
            let attempt = match blocks {
                Some(blocks) => connections.send_alone(cmd, blocks, effort, blocked).await,
                None => connections.send_shared(cmd, effort).await,
            };
            let error = match attempt {
                Ok(reply) => {
                    return Ok(Answer {
                        sent: reply.sent,
                        reply: reply.value,
                        is_repeated: reply.is_second || first_failure.is_some(),
                    });
                }
                Err(error) => error,
            };
            let since = *first_failure.get_or_insert_with(Instant::now);
            let server = self.connections.server();
            if effort.is_over(since, pause) || !server.may_pass(&error) {
                let error = ServerError::of(error, command, server.name());
                return Err(Error::Redis(error));
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    /// Returns INFO of a key; what the server does not tell, because of its ACL for example, stays empty.
    pub(crate) async fn info(&self, family: Family, key: &str) -> KeyInfo {
        let info = family.command("INFO", key);
        let answer = self.send(&info, self.settings.courtesy()).await;
        answer
            .map(|answer| KeyInfo::read(&answer.reply))
            .unwrap_or_default()
    }

    pub(crate) async fn not_acquired(&self, family: Family, key: &str) -> Error {
        Error::NotAcquired {
            key: key.to_owned(),
            holders: self.info(family, key).await.holders,
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("server", self.connections.server())
            .field("settings", &self.settings)
            .field("waits", &self.waits)
            .finish_non_exhaustive()
    }
}
