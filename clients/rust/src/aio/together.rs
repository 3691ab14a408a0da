//! The connection of confirmed requests.
//!
//! WAIT keeps a connection waiting. So what is asked while one WAIT is out is written together, with one WAIT behind it:
//! in a cluster for each slot.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
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
        match self.asked().entry(slot) {
            Entry::Occupied(mut others) => others.get_mut().push(asked),
            Entry::Vacant(none) => {
                none.insert(vec![asked]);
                let worker = Worker {
                    together: Arc::clone(self),
                    slot,
                };
                tokio::spawn(worker.work());
            }
        }
        // A WAIT that is out already, this one, and a connection.
        let connecting = call.effort.connect_limits().1;
        let limit = call.effort.at_most(call.limit() + connecting);
        let limit = limit + 2 * waits.unwrap_or_default();
        let gone = |_| RedisError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        within(limit, async { told.await.map_err(gone)? }).await
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
}

impl Worker {
    async fn work(self) {
        loop {
            let asked = {
                let mut all = self.together.asked();
                match all.get_mut(&self.slot).map(std::mem::take) {
                    Some(asked) if !asked.is_empty() => asked,
                    _ => return drop(all.remove(&self.slot)),
                }
            };
            self.together.send(asked).await;
        }
    }
}

impl Drop for Worker {
    /// When the runtime ends, those who wait are told by their dropped senders, and the next one starts another worker.
    fn drop(&mut self) {
        self.together.asked().remove(&self.slot);
    }
}
