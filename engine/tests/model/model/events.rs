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
                Sitter::Vacant { .. } | Sitter::Kept { .. } => false,
            });
            let Some(at) = seat_of_client else { continue };
            let keep_us = queue.seats[at]
                .keep
                .map_or(0, |keep| u64::from(keep.ms) * 1_000);
            if queue.seats[at].detach(now.lease.0 + keep_us).is_some() {
                continue;
            }
            queue.left = true;
            if queue.seats[at].token.is_some() && rejoin_us > 0 {
                queue.seats[at].sitter = Sitter::Vacant {
                    until_us: now.mono.0 + rejoin_us,
                    verdict: None,
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
    pub fn leave(&mut self, ticket: u64, now: Now) {
        for queue in &mut self.queues {
            let before = queue.seats.len();
            queue.seats.retain_mut(|seat| {
                let keep_us = seat.keep.map_or(0, |keep| u64::from(keep.ms) * 1_000);
                seat.ticket() != Some(ticket) || seat.detach(now.lease.0 + keep_us).is_some()
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
        self.holds_leave(name);
        self.values.retain(|(n, _)| *n != name);
    }

    pub fn overwrite(&mut self, name: Name) {
        self.delete(name);
        self.values.push((name, Value::Foreign));
    }

    pub fn rename(&mut self, from: Name, to: Name) {
        self.delete(to);
        self.holds_leave(from);
        for (name, _) in self.values.iter_mut().filter(|(name, _)| *name == from) {
            *name = to;
        }
    }

    pub fn flush(&mut self, db: Option<i32>) {
        let is_flushed = |d: i32| db.is_none_or(|db| d == db);
        self.all_holds_leave(is_flushed);
        self.values.retain(|((d, _), _)| !is_flushed(*d));
        for queue in self.queues.iter_mut().filter(|q| is_flushed(q.name.0)) {
            queue.seats.retain_mut(|seat| {
                let stays = seat.keep.take().is_none() || seat.ticket().is_some();
                queue.left |= !stays;
                stays
            });
        }
    }

    pub fn swap(&mut self, a: i32, b: i32) {
        self.all_holds_leave(|db| db == a || db == b);
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

    /// The values of these databases leave their names.
    fn all_holds_leave(&mut self, leaves: impl Fn(i32) -> bool) {
        let names = self.values.iter().map(|(name, _)| *name);
        let names: Vec<Name> = names.filter(|(db, _)| leaves(*db)).collect();
        for name in names {
            self.holds_leave(name);
        }
    }

    /// Answers all waiting requests that this server was demoted.
    pub fn dismiss_all(&mut self) {
        for queue in &mut self.queues {
            let name = queue.name;
            queue.seats.retain_mut(|seat| {
                self.wakes.extend(seat.ticket().map(|ticket| ModelWake {
                    name,
                    ticket,
                    answer: Answer::Demoted,
                }));
                seat.detach(0);
                seat.keep.is_some()
            });
        }
        self.queues.retain(|queue| !queue.seats.is_empty());
    }

    /// Another server, or the same one after a restart or demotion, takes over. `knows_clients`: it still has the
    /// connections that holds are bound to.
    pub fn take_over(&mut self, now: Now, knows_clients: bool) {
        let grace_ms = self.settings.takeover_grace_ms;
        for queue in &mut self.queues {
            queue.seats.retain_mut(|seat| {
                let Some(keep_ms) = seat.keep.map(|keep| u64::from(keep.ms)) else {
                    return false;
                };
                seat.detach(0);
                let until_us = now.lease.0 + 1_000 * keep_ms.max(grace_ms);
                seat.keep.as_mut().expect("it is kept").until_us = until_us;
                seat.is_moved = true;
                true
            });
            if !knows_clients {
                queue.left = false;
            }
            queue.turns.forget();
            queue.chosen = None;
        }
        self.queues.retain(|queue| !queue.seats.is_empty());
        for (_, value) in &mut self.values {
            let Value::State(content) = value else {
                continue;
            };
            content.turns.forget();
            content.waited_ms = if knows_clients { content.waited_ms } else { 0 };
            for hold in &mut content.holds {
                let left_ms = |until_ms: u64, most_ms: u32| {
                    (until_ms.saturating_sub(ms(now)) + grace_ms).min(u64::from(most_ms))
                };
                let min_hold_ms = hold.min_hold_ms.unwrap_or(0);
                let rests_until_ms = hold.granted_ms + u64::from(min_hold_ms);
                hold.rests_until_us = now.lease.0 + 1_000 * left_ms(rests_until_ms, min_hold_ms);
                let left_ms = match hold.unheard_ms {
                    Some(keep_ms) => grace_ms.max(u64::from(keep_ms)),
                    None => left_ms(hold.deadline_ms, hold.lease_ms),
                };
                hold.due_us = now.lease.0 + 1_000 * left_ms;
                hold.ephemeral = false;
                hold.ending = None;
                if !knows_clients {
                    hold.client = 0;
                }
            }
        }
    }
}
