//! How a wait with QUEUE hears of its turn.
//!
//! The server announces a turn on the channel that it named in its reply. The client listens on a connection that has no
//! other use: one to the server, or one to each node of a cluster. A message is no grant, and it can be lost: a waiter asks
//! again when it hears one, when the server or the connection has ended the subscription, and every few seconds.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::aio::SendError;
use redis::{PushInfo, PushKind, RedisResult};
use tokio::sync::{Mutex as AsyncMutex, Notify, watch};

use crate::aio::connection::{Connection, Connections};
use crate::effort::Effort;
use crate::request::read;
use crate::signal::{lock, within};

/// Who is to be woken by a message, by channel.
#[derive(Default)]
struct Listeners(Mutex<HashMap<String, Arc<Ear>>>);

struct Ear {
    /// Whether the server has confirmed the subscription, and has not ended it since, as when a slot moves or its node
    /// becomes a replica.
    is_subscribed: watch::Sender<bool>,
    /// Kept for a waiter that is not waiting at this moment, but asking.
    turn: Notify,
}

impl Ear {
    fn end(&self) {
        self.is_subscribed.send_replace(false);
        self.turn.notify_one();
    }
}

impl Listeners {
    fn add(&self, channel: &str) -> Arc<Ear> {
        let ear = Arc::new(Ear {
            is_subscribed: watch::Sender::new(false),
            turn: Notify::new(),
        });
        lock(&self.0).insert(channel.to_owned(), Arc::clone(&ear));
        ear
    }

    fn remove(&self, channel: &str, ear: &Arc<Ear>) {
        let mut all = lock(&self.0);
        if all
            .get(channel)
            .is_some_and(|found| Arc::ptr_eq(found, ear))
        {
            all.remove(channel);
        }
    }

    /// Takes what the server has sent. What it says of a subscription is believed by its channel: redis-rs can take it for
    /// the reply to the subscription of another channel.
    fn pushed(&self, push: &PushInfo) {
        if push.kind == PushKind::Disconnection {
            lock(&self.0).values().for_each(|ear| ear.end());
            return;
        }
        let channel: Option<String> = push.data.first().and_then(|channel| read(channel).ok());
        let all = lock(&self.0);
        let Some(ear) = channel.and_then(|channel| all.get(&channel)) else {
            return;
        };
        match push.kind {
            PushKind::Message | PushKind::SMessage => ear.turn.notify_one(),
            PushKind::Subscribe | PushKind::SSubscribe => {
                ear.is_subscribed.send_replace(true);
            }
            PushKind::Unsubscribe | PushKind::SUnsubscribe => ear.end(),
            _ => {}
        }
    }
}

/// Listens for all waits of a client.
pub(crate) struct Announcements {
    connections: Arc<Connections>,
    listeners: Arc<Listeners>,
    line: AsyncMutex<Option<Arc<MessageLine>>>,
}

/// A connection for messages.
struct MessageLine {
    connection: Connection,
    /// The number of the shared connection at that time. When that has failed, this one leads to the wrong server, too.
    number: u64,
    is_open: Arc<AtomicBool>,
}

impl MessageLine {
    fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }
}

/// A channel that is listened to until this is dropped.
pub struct Listening {
    channel: String,
    ear: Arc<Ear>,
    listeners: Arc<Listeners>,
    /// Where the messages come from; `None` before that is known.
    line: Option<Arc<MessageLine>>,
    limit: Duration,
}

impl Announcements {
    pub(crate) fn new(connections: Arc<Connections>) -> Announcements {
        Announcements {
            connections,
            listeners: Arc::default(),
            line: AsyncMutex::default(),
        }
    }

    /// Listens to a channel. Returns when the server has confirmed it: what is announced from then on wakes the waiter.
    pub(crate) async fn listen(&self, channel: &str, effort: Effort) -> RedisResult<Listening> {
        // Made before the first await: when this future is dropped, what it has begun is undone.
        let mut listening = Listening {
            channel: channel.to_owned(),
            ear: self.listeners.add(channel),
            listeners: Arc::clone(&self.listeners),
            line: None,
            limit: effort.limit(),
        };
        let line = within(effort.connect_limit(), self.line(effort)).await?;
        listening.line = Some(Arc::clone(&line));
        let subscribed = within(effort.limit(), listening.subscribed(&line)).await;
        if subscribed
            .as_ref()
            .is_err_and(redis::RedisError::is_timeout)
        {
            // The server has stopped, or is the wrong one. The next to listen connects anew.
            line.is_open.store(false, Ordering::Release);
        }
        subscribed.map(|()| listening)
    }

    async fn line(&self, effort: Effort) -> RedisResult<Arc<MessageLine>> {
        let mut line = self.line.lock().await;
        let number = self.connections.number();
        if let Some(line) = line
            .as_ref()
            .filter(|line| line.is_open() && line.number == number)
        {
            return Ok(Arc::clone(line));
        }
        if let Some(old) = line.take() {
            old.is_open.store(false, Ordering::Release);
        }
        let is_open = Arc::new(AtomicBool::new(true));
        let (listeners, is_this_open) = (Arc::clone(&self.listeners), Arc::clone(&is_open));
        let told = move |push: PushInfo| -> Result<(), SendError> {
            // What an old connection still says, its end for example, is of no interest.
            if is_this_open.load(Ordering::Acquire) {
                if push.kind == PushKind::Disconnection {
                    is_this_open.store(false, Ordering::Release);
                }
                listeners.pushed(&push);
            }
            Ok(())
        };
        let connection = self
            .connections
            .connect(effort, Some(Arc::new(told)))
            .await?;
        let made = Arc::new(MessageLine {
            connection,
            number,
            is_open,
        });
        *line = Some(Arc::clone(&made));
        Ok(made)
    }

    /// Whether a message would still arrive, as far as that can be known.
    pub(crate) fn is_heard(&self, listening: &Listening, channel: &str) -> bool {
        let is_current =
            |line: &Arc<MessageLine>| line.is_open() && line.number == self.connections.number();
        listening.channel == channel
            && *listening.ear.is_subscribed.borrow()
            && listening.line.as_ref().is_some_and(is_current)
    }
}

impl Listening {
    async fn subscribed(&self, line: &MessageLine) -> RedisResult<()> {
        let mut is_subscribed = self.ear.is_subscribed.subscribe();
        let subscribe = async {
            match line.connection.subscribe(&self.channel).await {
                Err(error) => error,
                Ok(()) => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = is_subscribed.wait_for(|it| *it) => Ok(()),
            error = subscribe => Err(error),
        }
    }

    /// Waits for a message, at most so long.
    pub(crate) async fn wait(&self, at_most: Duration) {
        let _ = tokio::time::timeout(at_most, self.ear.turn.notified()).await;
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.listeners.remove(&self.channel, &self.ear);
        let Some(line) = self.line.take().filter(|line| line.is_open()) else {
            return;
        };
        let (channel, limit) = (std::mem::take(&mut self.channel), self.limit);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = within(limit, line.connection.unsubscribe(&channel)).await;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::Value;

    fn push(kind: PushKind, channel: &str) -> PushInfo {
        let channel = Value::BulkString(channel.as_bytes().to_vec());
        let data = vec![channel, Value::Int(1)];
        PushInfo { kind, data }
    }

    fn is_woken(ear: &Ear) -> bool {
        std::pin::pin!(ear.turn.notified()).as_mut().enable()
    }

    #[test]
    fn subscription_that_the_server_ends_wakes_its_waiter_and_no_other() {
        for kind in [PushKind::Unsubscribe, PushKind::SUnsubscribe] {
            let listeners = Listeners::default();
            let [first, second] =
                ["dsync:{a}:1", "dsync:{b}:2"].map(|channel| listeners.add(channel));
            for channel in ["dsync:{a}:1", "dsync:{b}:2"] {
                listeners.pushed(&push(PushKind::SSubscribe, channel));
            }
            assert!(*first.is_subscribed.borrow());
            listeners.pushed(&push(kind, "dsync:{a}:1"));
            assert!(!*first.is_subscribed.borrow());
            assert!(*second.is_subscribed.borrow());
            assert!(is_woken(&first) && !is_woken(&second));
        }
    }

    #[test]
    fn end_of_the_connection_wakes_all() {
        let listeners = Listeners::default();
        let ears = ["dsync:{a}:1", "dsync:{b}:2"].map(|channel| listeners.add(channel));
        let mut end = push(PushKind::Disconnection, "");
        end.data.clear();
        listeners.pushed(&end);
        for ear in ears {
            assert!(is_woken(&ear));
            assert!(!*ear.is_subscribed.borrow());
        }
    }
}
