//! The connection of confirmed requests.
//!
//! WAIT keeps a connection waiting. So what is asked while one WAIT is out is written together, with one WAIT behind it:
//! in a cluster for each slot.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{RedisError, RedisResult};
use tokio::sync::oneshot;

use crate::aio::connection::{Connection, Connections, within};
use crate::call::Call;
use crate::half::Reply;
use crate::request::Command;
use crate::server::{Server, Slot};
use crate::settings::Effort;

type Told = RedisResult<Reply<Connection>>;

/// What is to be written.
struct Asked {
    commands: Vec<Command>,
    effort: Effort,
    tell: oneshot::Sender<Told>,
}

pub(crate) struct Together {
    /// What is asked while a WAIT is out. A slot has an entry as long as its worker lives.
    asked: Mutex<HashMap<Option<Slot>, Vec<Asked>>>,
    /// Of these, the shared one.
    connections: Connections,
}

impl Together {
    pub(crate) fn new(server: Server) -> Together {
        Together {
            asked: Mutex::default(),
            connections: Connections::new(server),
        }
    }

    /// Sends commands in one write with those of others.
    pub(crate) async fn attempt(self: &Arc<Self>, call: &Call<'_>) -> Told {
        let slot = call.slot(self.connections.server());
        let waits = call.commands.iter().filter_map(|it| it.confirm);
        let waits = waits.map(|confirm| confirm.within).max();
        let (tell, told) = oneshot::channel();
        let asked = Asked {
            commands: call.commands.to_vec(),
            effort: call.effort,
            tell,
        };
        if self.is_first(slot, asked) {
            let worker = Worker {
                together: Arc::clone(self),
                slot,
                has_ended: false,
            };
            tokio::spawn(worker.work());
        }
        // A WAIT that is out already, this one, and a connection.
        let connecting = call.effort.connect_limit();
        let limit = call.effort.at_most(call.limit() + connecting);
        let limit = limit + 2 * waits.unwrap_or_default();
        let gone = |_| RedisError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        within(limit, async { told.await.map_err(gone)? }).await
    }

    /// Whether the slot has no worker yet.
    fn is_first(&self, slot: Option<Slot>, asked: Asked) -> bool {
        let mut all = self.asked();
        let is_first = !all.contains_key(&slot);
        all.entry(slot).or_default().push(asked);
        is_first
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<Option<Slot>, Vec<Asked>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Sends what is asked of a slot, until nothing is.
struct Worker {
    together: Arc<Together>,
    slot: Option<Slot>,
    has_ended: bool,
}

impl Worker {
    async fn work(mut self) {
        while let Some(asked) = self.next() {
            self.together.send(asked).await;
        }
    }

    /// Returns what is to be written now. Where there is nothing, the next who asks starts another worker.
    fn next(&mut self) -> Option<Vec<Asked>> {
        let mut all = self.together.asked();
        let asked = all.get_mut(&self.slot).map(std::mem::take);
        let asked = asked.filter(|asked| !asked.is_empty());
        if asked.is_none() {
            all.remove(&self.slot);
            self.has_ended = true;
        }
        asked
    }
}

impl Drop for Worker {
    /// When the runtime ends, those who wait are told by their dropped senders, and the next one starts another worker.
    fn drop(&mut self) {
        if !self.has_ended {
            self.together.asked().remove(&self.slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    fn asked() -> Asked {
        Asked {
            commands: Vec::new(),
            effort: Settings::default().attempt(),
            tell: oneshot::channel().0,
        }
    }

    /// Between the end of a worker and its drop another task asks, on another thread. It was told that its connection had
    /// closed.
    #[test]
    fn worker_that_has_ended_takes_nothing_from_the_next() {
        let server = Server::at("redis://127.0.0.1").unwrap();
        let together = Arc::new(Together::new(server));
        assert!(together.is_first(None, asked()) && !together.is_first(None, asked()));
        let mut worker = Worker {
            together: Arc::clone(&together),
            slot: None,
            has_ended: false,
        };
        assert_eq!(worker.next().map(|asked| asked.len()), Some(2));
        assert!(worker.next().is_none());
        assert!(together.is_first(None, asked()), "another worker");
        drop(worker);
        assert_eq!(together.asked()[&None].len(), 1);
    }
}
