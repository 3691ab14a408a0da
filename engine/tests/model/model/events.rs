//! What happens to connections, keys and servers.

use super::queue::Sitter;
use super::{Model, ModelWake, Name, Value, ms};
use dsync_engine::answer::Answer;
use dsync_engine::change::End;
use dsync_engine::types::Now;

impl Model {
    pub fn disconnected(&mut self, client: u64, now: Now) {
        let rejoin_us = self.settings.rejoin_ms * 1_000;
        for queue in &mut self.queues {
            let seat_of_client = queue.seats.iter().position(|seat| match &seat.sitter {
                Sitter::Waiting { request, .. } => request.client.0 == client,
                Sitter::Watching {
                    client: watcher, ..
                } => *watcher == client,
                Sitter::Vacant { .. } => false,
            });
            let Some(at) = seat_of_client else { continue };
            queue.left = true;
            if queue.seats[at].token.is_some() && rejoin_us > 0 {
                queue.seats[at].sitter = Sitter::Vacant {
                    until_us: now.mono.0 + rejoin_us,
                };
            } else {
                queue.seats.remove(at);
            }
        }
        for hold in self.values.iter_mut().flat_map(|(_, value)| match value {
            Value::State(content) => content.holds.iter_mut(),
            Value::Foreign => [].iter_mut(),
        }) {
            if hold.ephemeral && hold.client == client && hold.ending.is_none() {
                hold.ending = Some(End::Disconnected);
            }
        }
    }

    /// The waiter leaves, and no place is kept, because its connection lives and was answered.
    pub fn leave(&mut self, ticket: u64) {
        for queue in &mut self.queues {
            let before = queue.seats.len();
            queue.seats.retain(|seat| match seat.sitter {
                Sitter::Waiting { ticket: t, .. } | Sitter::Watching { ticket: t, .. } => {
                    t != ticket
                }
                Sitter::Vacant { .. } => true,
            });
            queue.left |= queue.seats.len() < before;
        }
    }

    pub fn undelivered(&mut self, name: Name, fence: u64, client: u64, closed: bool, now: Now) {
        let rejoin_us = self.settings.rejoin_ms * 1_000;
        let keeps = closed && rejoin_us > 0;
        if let Some(hold) = self
            .hold_mut(name, fence)
            .filter(|hold| hold.client == client)
        {
            hold.ending = Some(End::Undelivered);
            hold.vacant_until_us = keeps.then_some(now.mono.0 + rejoin_us);
        }
    }

    pub fn delete(&mut self, name: Name) {
        self.values.retain(|(n, _)| *n != name);
    }

    pub fn overwrite(&mut self, name: Name) {
        self.delete(name);
        self.values.push((name, Value::Foreign));
    }

    pub fn rename(&mut self, from: Name, to: Name) {
        self.delete(to);
        for (name, _) in self.values.iter_mut().filter(|(name, _)| *name == from) {
            *name = to;
        }
    }

    pub fn flush(&mut self, db: Option<i32>) {
        self.values
            .retain(|((d, _), _)| db.is_some_and(|db| *d != db));
    }

    pub fn swap(&mut self, a: i32, b: i32) {
        for ((db, _), _) in &mut self.values {
            *db = if *db == a {
                b
            } else if *db == b {
                a
            } else {
                *db
            };
        }
    }

    /// Answers all waiting requests that this server was demoted.
    pub fn dismiss_all(&mut self) {
        for queue in std::mem::take(&mut self.queues) {
            for seat in queue.seats {
                if let Sitter::Waiting { ticket, .. } | Sitter::Watching { ticket, .. } =
                    seat.sitter
                {
                    self.wakes.push(ModelWake {
                        name: queue.name,
                        ticket,
                        answer: Answer::Demoted,
                    });
                }
            }
        }
    }

    /// Another server, or the same one after a restart or demotion, takes over. `knows_clients`: it still has the
    /// connections that holds are bound to.
    pub fn take_over(&mut self, now: Now, knows_clients: bool) {
        self.queues.clear();
        let grace_ms = self.settings.takeover_grace_ms;
        for (_, value) in &mut self.values {
            let Value::State(content) = value else {
                continue;
            };
            content.waited_ms = if knows_clients { content.waited_ms } else { 0 };
            for hold in &mut content.holds {
                let rest_ms = hold.deadline_ms.saturating_sub(ms(now)) + grace_ms;
                hold.due_us = now.lease.0 + 1_000 * rest_ms.min(u64::from(hold.lease_ms));
                hold.ephemeral = false;
                hold.ending = None;
                if !knows_clients {
                    hold.client = 0;
                }
            }
        }
    }
}
