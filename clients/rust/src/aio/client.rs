//! The client of the asynchronous half, and how a command is repeated.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, IntoConnectionInfo, Value};
use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::aio::announce::{Announcements, Listeners};
use crate::aio::connection::Connections;
use crate::error::{Error, Result};
use crate::options::{Group, Lock, Once, Semaphore};
use crate::progress::KeyInfo;
use crate::request::{Family, Request};
use crate::server::Server;
use crate::settings::Settings;

/// Connects to the server, and makes locks, semaphores, groups and work-once keys for tasks.
///
/// Opens connections of its own when it needs them: one for all commands, and more for waits, as
/// [`with_waits`](Client::with_waits) says. A clone shares them. Use a client within one tokio runtime.
#[derive(Clone)]
pub struct Client {
    settings: Settings,
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
    /// thousands of waits at a time. It needs the ACL `&dsync:*` and `+subscribe +unsubscribe`. In a cluster the messages
    /// come on the shared connection, which takes RESP3 and `+ssubscribe +sunsubscribe`;
    /// [`Server::cluster`] chooses RESP3, a `ClusterClient` of your own has to. Only a wait for a group to finish has no
    /// messages: it asks every half a second.
    SharedConnection,
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
        Client::with(server.into(), Settings::default(), Waits::default())
    }

    fn with(server: Server, settings: Settings, waits: Waits) -> Client {
        let listeners = Arc::new(Listeners::default());
        #[cfg_attr(
            not(feature = "cluster-async"),
            allow(unused_mut, reason = "only a cluster's connection is told of messages")
        )]
        let mut connections = Connections::new(server);
        #[cfg(feature = "cluster-async")]
        if waits == Waits::SharedConnection && connections.server().is_cluster() {
            connections.announced_to = Some(Arc::clone(&listeners));
        }
        let connections = Arc::new(connections);
        let response = settings.response_timeout;
        Client {
            announcements: Arc::new(Announcements::new(
                Arc::clone(&connections),
                listeners,
                response,
            )),
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
    /// anew: at least a millisecond. Three seconds unless set. Waits are not affected. The client opens connections anew.
    #[must_use]
    pub fn with_response_timeout(mut self, timeout: Duration) -> Client {
        self.settings.response_timeout = timeout.max(Duration::from_millis(1));
        Client::with(self.connections.server().clone(), self.settings, self.waits)
    }

    /// Names a lock.
    pub fn lock(&self, key: impl Into<String>) -> Lock<Client> {
        Lock::new(self.clone(), key.into())
    }

    /// Names a semaphore.
    pub fn semaphore(&self, key: impl Into<String>) -> Semaphore<Client> {
        Semaphore::new(self.clone(), key.into())
    }

    /// Names a wait group.
    pub fn group(&self, key: impl Into<String>) -> Group<Client> {
        Group::new(self.clone(), key.into())
    }

    /// Names work that is done once.
    pub fn once(&self, key: impl Into<String>) -> Once<Client> {
        Once::new(self.clone(), key.into())
    }

    /// Asks the server for a sign of life, once: for telling early that an address or a password is wrong.
    pub async fn ping(&self) -> Result<()> {
        self.send(&redis::cmd("PING"), Duration::ZERO)
            .await
            .map(drop)
    }

    pub(crate) fn waits(&self) -> Waits {
        self.waits
    }

    pub(crate) fn patience(&self) -> Duration {
        self.settings.patience
    }

    pub(crate) fn response_timeout(&self) -> Duration {
        self.settings.response_timeout
    }

    pub(crate) fn announcements(&self) -> &Announcements {
        &self.announcements
    }

    /// Sends a command that the server answers at once, until it is answered; from its first failure on at most so long.
    pub(crate) async fn send(&self, command: &Cmd, patience: Duration) -> Result<Answer> {
        self.send_with(command, None, self.settings.response_timeout, patience)
            .await
    }

    /// Sends a command for which the server may wait so long, on a connection of its own.
    pub(crate) async fn send_blocking(&self, command: &Cmd, blocks: Duration) -> Result<Answer> {
        let response = self.settings.response_timeout;
        self.send_with(command, Some(blocks), response, self.settings.patience)
            .await
    }

    pub(crate) async fn send_with(
        &self,
        command: &Cmd,
        blocks: Option<Duration>,
        response: Duration,
        patience: Duration,
    ) -> Result<Answer> {
        let mut first_failure = None;
        let mut pause = Duration::from_millis(20);
        loop {
            let attempt = match blocks {
                Some(blocks) => self.connections.send_alone(command, blocks, response).await,
                None => self.connections.send_shared(command, response).await,
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
            let is_late = since.elapsed() + pause > patience;
            if is_late || !self.connections.server().may_pass(&error) {
                return Err(error.into());
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    /// Returns INFO of a key; what the server does not tell, because of its ACL for example, stays empty.
    pub(crate) async fn info(&self, family: Family, key: &str) -> KeyInfo {
        let answer = self
            .send(&family.command("INFO", key), Duration::ZERO)
            .await;
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

    /// Has a task withdraw a request, or release what it was granted. When the server does not hear of it, or the runtime
    /// ends first, the end of the kept place or of the lease does the same.
    pub(crate) fn withdraw_in_background(&self, request: &Request) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let (client, release) = (self.clone(), request.verb("RELEASE"));
        runtime.spawn(async move {
            let _ = client.send(&release, Duration::ZERO).await;
        });
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
