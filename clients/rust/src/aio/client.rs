//! The client of the asynchronous half.

use std::fmt;
use std::future::Future;
use std::io;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::RedisError;
use tokio::runtime::Handle;

use crate::aio::announce::{Announcements, Listening};
use crate::aio::connection::{Connection, Connections};
use crate::aio::together::Together;
use crate::call::Call;
use crate::cancel::Cancel;
use crate::clock::Moment;
use crate::confirm::Failure;
use crate::effort::Effort;
use crate::error::Result;
use crate::half::{Half, Reply, Shared};
use crate::renewal::Renewals;
use crate::request::Command;
use crate::send::send;
use crate::server::Server;
use crate::signal::{Signal, Wait, lock, now};
use crate::sync;

/// Connects to the server, and makes locks, semaphores, groups and work-once keys for tasks.
///
/// Opens connections of its own when it needs them: one for all commands, and more for waits, as
/// [`with_waits`](Client::with_waits) says. A clone shares them. Use a client within one tokio runtime.
#[derive(Clone)]
pub struct Client {
    pub(crate) effort: Effort,
    waits: Waits,
    connections: Arc<Connections>,
    announcements: Arc<Announcements>,
    renewals: Arc<Renewals<Client>>,
    together: Arc<Together>,
    ends: Arc<Mutex<Ends>>,
}

/// What ends holds whose runtime has ended: a runtime that ends waits for it.
struct Ends {
    client: sync::Client,
    /// When the server did not answer.
    failed: Option<Moment>,
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

impl Client {
    /// Makes a client of a server, a cluster or the primary that Sentinel names. Nothing is sent yet.
    pub fn new(server: impl Into<Server>) -> Client {
        let server = server.into();
        let connections = Arc::new(Connections::new(server.clone()));
        Client {
            announcements: Arc::new(Announcements::new(Arc::clone(&connections))),
            connections,
            effort: Effort::default(),
            waits: Waits::default(),
            renewals: Arc::default(),
            together: Arc::new(Together::new(server.clone())),
            ends: Arc::new(Mutex::new(Ends {
                client: sync::Client::new(server),
                failed: None,
            })),
        }
    }

    /// Sets how requests wait.
    #[must_use]
    pub fn with_waits(mut self, waits: Waits) -> Client {
        self.waits = waits;
        self
    }
}

impl Wait for Client {
    async fn wait(signal: &Signal, seen: u64, at_most: Duration) {
        signal.notified(seen, at_most).await;
    }
}

impl Half for Client {
    type Listening = Option<Listening>;
    type Line = Connection;

    fn effort(&self) -> Effort {
        self.effort
    }

    fn server(&self) -> &Server {
        &self.connections.server
    }

    fn renew(&self, hold: &Arc<Shared<Client>>) {
        self.renewals.add(hold);
    }

    fn renew_earlier(&self) {
        self.renewals.look();
    }

    fn listens(&self) -> bool {
        self.waits == Waits::SharedConnection
    }

    async fn attempt(&self, call: &Call<'_>) -> std::result::Result<Reply<Connection>, Failure> {
        let is_own = call.blocks.is_some() || call.keeps_line;
        let is_confirmed = call.commands.iter().any(|it| it.confirm.is_some());
        if is_confirmed && !is_own {
            return self.together.attempt(call).await;
        }
        self.connections.attempt(call).await
    }

    async fn turn(&self, listening: &mut Option<Listening>, channel: &str, pause: Duration) {
        /// How long to wait without messages, because the ACL does not allow them for example.
        const DEAF: Duration = Duration::from_millis(500);
        if let Some(listening) = listening
            && self.announcements.is_heard(listening, channel)
        {
            return listening.wait(pause).await;
        }
        *listening = None;
        let effort = self.effort.once();
        match self.announcements.listen(channel, effort).await {
            Ok(begun) => *listening = Some(begun),
            Err(_) => tokio::time::sleep(pause.min(DEAF)).await,
        }
    }

    /// Where no runtime is left, this is dropped: the end of a place comes by itself, and a hold is ended by its drop.
    fn in_background(&self, what: impl Future<Output = ()> + Send + 'static) {
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(what);
        }
    }

    /// One after the other, so that all have one connection. Where the server has not answered one, the next do not wait
    /// for it, too.
    fn conclude_without_runtime(&self, command: &Command) {
        const AWAY: Duration = Duration::from_secs(5);
        let mut ends = lock(&self.ends);
        let is_away = |at| Moment::now().since(at) < AWAY;
        if !ends.failed.is_some_and(is_away) {
            let call = Call::new(command, self.effort.withdrawal(false));
            let is_answered = now(send(&ends.client, call)).is_ok();
            ends.failed = (!is_answered).then(Moment::now);
        }
    }

    async fn to_the_end<T: Send + 'static>(
        &self,
        cancel: Option<&Cancel>,
        what: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let _cancel = cancel.cloned().map(CancelOnDrop);
        match tokio::spawn(what).await {
            Ok(done) => done,
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            Err(error) => Err(RedisError::from(io::Error::from(error)).into()),
        }
    }
}

/// Ends a wait whose future is dropped. A wait that is over is not touched.
struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("server", &self.connections.server)
            .field("effort", &self.effort)
            .field("waits", &self.waits)
            .finish_non_exhaustive()
    }
}
