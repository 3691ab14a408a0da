//! The connection of confirmed requests.
//!
//! WAIT keeps a connection waiting. So what is asked while one WAIT is out is written together, with one WAIT behind it:
//! in a cluster for each slot.

use std::collections::HashMap;
use std::io;
use std::iter;
use std::sync::{Arc, Mutex};

use redis::RedisError;
use tokio::sync::mpsc::error::SendError;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::aio::connection::{Connection, Connections};
use crate::call::Call;
use crate::confirm::Failure;
use crate::effort::Effort;
use crate::half::Reply;
use crate::request::Command;
use crate::server::{Server, Slot};
use crate::signal::{lock, within};

/// What is to be written.
struct Asked {
    commands: Vec<Command>,
    effort: Effort,
    tell: oneshot::Sender<Result<Reply<Connection>, Failure>>,
}

pub(crate) struct Together {
    /// The way to the worker of each slot. One whose worker was dropped, with its runtime for example, takes nothing.
    workers: Mutex<HashMap<Option<Slot>, UnboundedSender<Asked>>>,
    /// Of these, the shared one.
    connections: Connections,
}

impl Together {
    pub(crate) fn new(server: Server) -> Together {
        Together {
            workers: Mutex::default(),
            connections: Connections::new(server),
        }
    }

    /// Sends commands in one write with those of others.
    pub(crate) async fn attempt(
        self: &Arc<Self>,
        call: &Call<'_>,
    ) -> Result<Reply<Connection>, Failure> {
        let waits = call.commands.iter().filter_map(|it| it.confirm);
        let waits = waits.map(|confirm| confirm.within).max();
        let (tell, told) = oneshot::channel();
        let asked = Asked {
            commands: call.commands.to_vec(),
            effort: call.effort,
            tell,
        };
        self.ask(call.slot(&self.connections.server), asked);
        // A WAIT that is out already, this one, and a connection.
        let connecting = call.effort.connect_limit();
        let limit = call.effort.at_most(call.limit() + connecting);
        let limit = limit + 2 * waits.unwrap_or_default();
        let gone = |_| RedisError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        let told = within(limit, async { told.await.map_err(gone) });
        told.await.map_err(Failure::Redis)?
    }

    /// Gives the worker of the slot what is to be written. Where there is none, starts one.
    fn ask(self: &Arc<Self>, slot: Option<Slot>, asked: Asked) {
        let mut workers = lock(&self.workers);
        let asked = match workers.get(&slot) {
            Some(worker) => worker.send(asked).err().map(|SendError(asked)| asked),
            None => Some(asked),
        };
        if let Some(asked) = asked {
            let (worker, all) = unbounded_channel();
            let _ = worker.send(asked);
            workers.insert(slot, worker);
            tokio::spawn(Arc::clone(self).work(slot, all));
        }
    }

    /// Sends what is asked of a slot, until nothing is. When the runtime ends, those who wait are told by their dropped
    /// senders.
    async fn work(self: Arc<Self>, slot: Option<Slot>, mut asked: UnboundedReceiver<Asked>) {
        loop {
            let now = self.next(slot, &mut asked);
            if now.is_empty() {
                return;
            }
            self.send(now).await;
        }
    }

    /// Returns what is to be written now. Where there is nothing, the next who asks starts another worker: nobody can ask
    /// this one between the look and its end.
    fn next(&self, slot: Option<Slot>, asked: &mut UnboundedReceiver<Asked>) -> Vec<Asked> {
        let mut workers = lock(&self.workers);
        let now: Vec<Asked> = iter::from_fn(|| asked.try_recv().ok()).collect();
        if now.is_empty() {
            workers.remove(&slot);
        }
        now
    }

    async fn send(&self, asked: Vec<Asked>) {
        let commands: Vec<Command> = asked.iter().flat_map(|it| it.commands.clone()).collect();
        let longest = asked.iter().max_by_key(|it| it.effort.limit());
        let Some(effort) = longest.map(|it| it.effort) else {
            return;
        };
        let call = Call {
            commands: &commands,
            ..Call::new(&commands[0], effort)
        };
        let mut told = self.connections.attempt(&call).await;
        for Asked { commands, tell, .. } in asked {
            // Who has waited long enough is not there any more.
            let _ = tell.send(match &mut told {
                Err(error) => Err(error.clone()),
                Ok(reply) => Ok(Reply {
                    values: reply.values.drain(..commands.len()).collect(),
                    line: None,
                    ..*reply
                }),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Between the end of a worker and its drop another task asks, on another thread. It was told that its connection had
    /// closed.
    #[test]
    fn worker_that_ends_is_asked_no_more() {
        let together = Together::new(Server::at("redis://127.0.0.1").unwrap());
        let (worker, mut asked) = unbounded_channel();
        lock(&together.workers).insert(None, worker);
        assert!(together.next(None, &mut asked).is_empty());
        assert!(lock(&together.workers).is_empty());
    }
}
