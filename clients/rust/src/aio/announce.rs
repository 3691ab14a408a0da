//! How a wait with QUEUE hears of its turn.
//!
//! The server announces a turn on the channel that it named in its reply. One server is listened to on a connection of
//! its own for all waits, a cluster on the shared connection. A message is no grant, and it can be lost: a waiter asks
//! again when it hears one, when the listening has ended, and every few seconds.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use redis::RedisResult;
use redis::aio::PubSub;
use tokio::sync::{Mutex as AsyncMutex, Notify, mpsc, oneshot};

use crate::aio::connection::{Connections, within};

/// Who is to be woken by a message, by channel.
#[derive(Default)]
pub(crate) struct Listeners(Mutex<HashMap<String, Arc<Notify>>>);

impl Listeners {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, channel: &str) {
        if let Some(waiter) = self.all().get(channel) {
            // Kept for a waiter that is not waiting at this moment, but asking.
            waiter.notify_one();
        }
    }

    fn wake_all(&self) {
        self.all().values().for_each(|waiter| waiter.notify_one());
    }

    /// Takes what a cluster's connection was pushed. The result is the one that redis-rs asks for.
    #[cfg(feature = "cluster-async")]
    pub(crate) fn pushed(&self, push: redis::PushInfo) -> Result<(), redis::aio::SendError> {
        match push.kind {
            redis::PushKind::SMessage => {
                if let Some(message) = redis::Msg::from_push_info(push) {
                    self.wake(message.get_channel_name());
                }
            }
            redis::PushKind::Disconnection => self.wake_all(),
            _ => {}
        }
        Ok(())
    }
}

/// Listens for all waits of a client.
pub(crate) struct Announcements {
    connections: Arc<Connections>,
    listeners: Arc<Listeners>,
    /// The task that listens to one server; closed when its connection has ended.
    task: AsyncMutex<Option<mpsc::UnboundedSender<Wish>>>,
    response: Duration,
}

enum Wish {
    Listen(String, oneshot::Sender<RedisResult<()>>),
    Forget(String),
}

/// A channel that is listened to until this is dropped.
pub(crate) struct Listening {
    channel: String,
    waiter: Arc<Notify>,
    listeners: Arc<Listeners>,
    /// Where the messages come from; `None` before that is known.
    source: Option<Source>,
}

enum Source {
    Task(mpsc::UnboundedSender<Wish>),
    #[cfg(feature = "cluster-async")]
    Cluster {
        connections: Arc<Connections>,
        number: u64,
        response: Duration,
    },
}

impl Announcements {
    pub(crate) fn new(
        connections: Arc<Connections>,
        listeners: Arc<Listeners>,
        response: Duration,
    ) -> Announcements {
        Announcements {
            connections,
            listeners,
            task: AsyncMutex::default(),
            response,
        }
    }

    /// Listens to a channel. Whatever is announced from now on wakes the waiter.
    pub(crate) async fn listen(&self, channel: &str) -> RedisResult<Listening> {
        let waiter = Arc::new(Notify::new());
        self.listeners
            .all()
            .insert(channel.to_owned(), Arc::clone(&waiter));
        // Made before the first await: when this future is dropped, what it has begun is undone.
        let mut listening = Listening {
            channel: channel.to_owned(),
            waiter,
            listeners: Arc::clone(&self.listeners),
            source: None,
        };
        self.subscribe(&mut listening).await?;
        Ok(listening)
    }

    async fn subscribe(&self, listening: &mut Listening) -> RedisResult<()> {
        let channel = listening.channel.clone();
        #[cfg(feature = "cluster-async")]
        if self.connections.announced_to.is_some() {
            let source = listening.source.insert(Source::Cluster {
                connections: Arc::clone(&self.connections),
                number: 0,
                response: self.response,
            });
            let subscribed = self.connections.listen_in_cluster(&channel, self.response);
            let on = subscribed.await?;
            if let Source::Cluster { number, .. } = source {
                *number = on;
            }
            return Ok(());
        }
        let wishes = within(self.response, self.task()).await?;
        listening.source = Some(Source::Task(wishes.clone()));
        let (tell, told) = oneshot::channel();
        // A task that has just ended drops the wish, and with it `tell`.
        let _ = wishes.send(Wish::Listen(channel, tell));
        let closed = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        within(self.response, async { told.await.map_err(|_| closed())? }).await
    }

    async fn task(&self) -> RedisResult<mpsc::UnboundedSender<Wish>> {
        let mut task = self.task.lock().await;
        if let Some(wishes) = task.as_ref().filter(|wishes| !wishes.is_closed()) {
            return Ok(wishes.clone());
        }
        let connection = self.connections.connect_to_listen().await?;
        let (wishes, received) = mpsc::unbounded_channel();
        tokio::spawn(listen(connection, received, Arc::clone(&self.listeners)));
        *task = Some(wishes.clone());
        Ok(wishes)
    }
}

/// Listens until the connection ends, or the client and all its waits are gone.
async fn listen(
    connection: PubSub,
    mut wishes: mpsc::UnboundedReceiver<Wish>,
    listeners: Arc<Listeners>,
) {
    let (mut sink, mut messages) = connection.split();
    loop {
        tokio::select! {
            wish = wishes.recv() => match wish {
                Some(Wish::Listen(channel, told)) => {
                    let _ = told.send(sink.subscribe(channel).await);
                }
                Some(Wish::Forget(channel)) => {
                    let _ = sink.unsubscribe(channel).await;
                }
                None => return,
            },
            message = messages.next() => match message {
                Some(message) => listeners.wake(message.get_channel_name()),
                None => break,
            },
        }
    }
    // Closed first, so that a woken waiter finds it so, and listens anew.
    drop(wishes);
    listeners.wake_all();
}

impl Listening {
    /// Waits for a message, at most so long.
    pub(crate) async fn wait(&self, at_most: Duration) {
        let _ = tokio::time::timeout(at_most, self.waiter.notified()).await;
    }

    /// Whether a message would still arrive, as far as that can be known.
    pub(crate) async fn is_alive(&self, channel: &str) -> bool {
        if self.channel != channel {
            return false;
        }
        match &self.source {
            None => false,
            Some(Source::Task(wishes)) => !wishes.is_closed(),
            #[cfg(feature = "cluster-async")]
            Some(Source::Cluster {
                connections,
                number,
                ..
            }) => connections.shared_number().await == *number,
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.listeners.all().remove(&self.channel);
        let channel = std::mem::take(&mut self.channel);
        match &self.source {
            None => {}
            Some(Source::Task(wishes)) => drop(wishes.send(Wish::Forget(channel))),
            #[cfg(feature = "cluster-async")]
            Some(Source::Cluster {
                connections,
                response,
                ..
            }) => {
                let (connections, response) = (Arc::clone(connections), *response);
                if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                    runtime.spawn(async move {
                        connections.forget_in_cluster(&channel, response).await;
                    });
                }
            }
        }
    }
}
