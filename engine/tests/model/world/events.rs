//! What happens to connections, keys and servers: lost replies, disconnects, ticks, removed and moved keys, restarts,
//! failovers and demotions.

use super::{Walk, World};
use crate::laws::OnRecord;
use crate::model::{Name, TICK_US, Value};
use crate::server::{Beginning, Server, Stored};
use dsync_engine::Look;
use dsync_engine::answer::Answer;
use dsync_engine::effect::HandedOver;
use dsync_engine::types::{ClientId, Fence, LeaseUs};

impl World {
    /// Reports the grants of the last step as undelivered, and their connections as closed.
    pub fn find_gone(&mut self, reported_first: bool) {
        let now = self.now;
        for (name, grant, client) in std::mem::take(&mut self.granted) {
            let fence = grant.fence;
            // A hold that is overdue at the next tick ends anyway, as lapsed or undelivered.
            let theirs = self.fences.iter().find(|(_, ours)| **ours == fence);
            let theirs = *theirs.expect("it was granted").0;
            let holds = self
                .model
                .content(name)
                .map_or(&[][..], |content| &content.holds);
            let hold = holds.iter().find(|hold| hold.fence == theirs);
            if hold.is_some_and(|hold| hold.due_us <= now.lease.0 + TICK_US) {
                continue;
            }
            // With small bounds the order of the tasks decides which vacant place is given up, and whether there is
            // room for a kept one; the contract does not fix that order. So keep no place then.
            let closed = self.laws.judge_order;
            let was_kept = (grant.standing).is_some_and(|standing| standing.keep().is_some());
            if was_kept && !closed {
                continue;
            }
            self.now.mono.0 += 1;
            let now = self.now;
            if reported_first {
                self.disconnect(client);
            }
            let engine = &mut self.primary.engine;
            // For another connection's hold, or no hold at all, nothing must happen.
            engine.undelivered(grant, ClientId(client + 1_000_000), closed, now);
            let elsewhere = HandedOver {
                fence: Fence(fence.0 + 1_000_000),
                ..grant
            };
            engine.undelivered(elsewhere, ClientId(client), closed, now);
            engine.undelivered(grant, ClientId(client), closed, now);
            self.model.undelivered(name, theirs, client, closed, now);
            if closed {
                self.laws.undelivered(fence, now);
            }
            if !reported_first {
                self.disconnect(client);
            }
            let conn = self.conn_of(client);
            if conn < self.conns.len() {
                self.reconnect(conn);
            }
        }
    }

    pub fn restart(&mut self, as_changes: bool, ms: u64) {
        let written = self.now;
        self.pass_unserved(ms);
        let last = self.primary.engine.fences().last();
        self.on_record = self.on_record.written(last, written.unix_us);
        self.primary = self.primary.reloaded(as_changes, written, self.now);
        self.begin_to_serve(Beginning::Start, false);
    }

    /// Promotes the replica after this long.
    pub fn fail_over(&mut self, ms: u64) {
        self.pass_unserved(ms);
        let empty = Server::new(self.primary.engine.settings);
        self.primary = std::mem::replace(&mut self.replica, empty);
        self.on_record = self.replica_on_record;
        self.begin_to_serve(Beginning::Promotion, false);
    }

    /// Demotes the primary, and promotes it again after this long.
    pub fn demote(&mut self, ms: u64) {
        self.primary.engine.dismiss_all();
        self.model.dismiss_all();
        let wakes = std::mem::take(&mut self.primary.engine.effects.wakes);
        assert!(
            self.primary.engine.effects.changes.is_empty(),
            "nothing but answers"
        );
        let mut told: Vec<u64> = Vec::new();
        for wake in wakes {
            assert_eq!(wake.answer, Answer::Demoted);
            told.push(self.tickets.remove(&wake.waiter).expect("it waits").ticket);
        }
        let mut expected: Vec<u64> = self.model.wakes.drain(..).map(|w| w.ticket).collect();
        told.sort_unstable();
        expected.sort_unstable();
        assert_eq!(told, expected, "all waiters are answered");
        self.primary.engine.stand_down();
        assert!(!self.primary.engine.is_serving());
        self.primary.finish_background();
        assert_eq!(
            self.primary.engine.next_wake(self.now),
            None,
            "no deadline is its own"
        );
        self.compare_checks_of_a_follower();
        self.pass_unserved(ms);
        self.compare_checks_of_a_follower();
        self.begin_to_serve(Beginning::Promotion, true);
    }

    pub(super) fn pass_unserved(&mut self, ms: u64) {
        self.now.may_write = true;
        self.now.mono.0 += ms * 1_000;
        self.now.unix_us += ms * 1_000;
    }

    /// A process that was promoted again still has its connections, if it `knows_clients`.
    fn begin_to_serve(&mut self, beginning: Beginning, knows_clients: bool) {
        let known = self.primary.engine.fences().last();
        self.primary.begin(beginning, self.now);
        let latest = self.primary.engine.latest_due();
        self.now.lease = self.now.lease.max(LeaseUs(latest.0 + 1));
        self.primary.engine.take_over(self.now);
        let after = self.primary.engine.fences().last();
        (self.laws).leapt(beginning, known, self.on_record, after, self.now);
        self.on_record = OnRecord {
            last: after,
            unix_us: self.now.unix_us,
        };
        self.model.take_over(self.now, knows_clients);
        self.tickets.clear();
        // The states of a new engine have other ids.
        self.walk = Walk::default();
        if !knows_clients {
            self.conns.clear();
        }
        // The replica of the new primary starts from a full copy.
        self.replica = self.primary.reloaded(false, self.now, self.now);
        self.replica_on_record = self.on_record;
    }

    pub(super) fn compare_checks_of_a_follower(&mut self) {
        for (name, value) in &self.model.values {
            let Value::State(content) = value else {
                continue;
            };
            for hold in content.holds.iter().filter(|hold| !hold.is_resting) {
                let (family, now) = (content.family, self.now);
                let check = |look: Look<'_>| look.check(family, &hold.token);
                let left = self.primary.look(*name, now, check);
                let expected = hold.deadline_ms.saturating_sub(now.unix_us / 1_000);
                assert_eq!(
                    left,
                    Ok(expected),
                    "{name:?}: CHECK on a server that follows"
                );
            }
        }
    }

    pub(super) fn disconnect(&mut self, client: u64) {
        let now = self.now;
        self.primary.engine.disconnected(ClientId(client), now);
        self.model.disconnected(client, now);
        let found = self
            .tickets
            .iter()
            .find(|(_, ticket)| ticket.client == client);
        if let Some(id) = found.map(|(id, _)| *id) {
            self.tickets.remove(&id);
            self.laws.left(id, true, now);
        }
    }

    /// Closes the connection; a new one takes its number.
    pub fn disconnect_conn(&mut self, conn: usize) {
        // Two connections never close in the same microsecond, so the order of their places is known.
        self.now.mono.0 += 1;
        let client = self.client(conn);
        self.disconnect(client);
        self.reconnect(conn);
    }

    /// The server itself answers the waiter, if one waits on this connection.
    pub fn unblock(&mut self, conn: usize) {
        let now = self.now;
        let client = self.client(conn);
        let found = self
            .tickets
            .iter()
            .find(|(_, ticket)| ticket.client == client);
        let Some(id) = found.map(|(id, _)| *id) else {
            return;
        };
        assert!(self.primary.engine.leave(id, now), "{id:?} waits");
        assert!(
            !self.primary.engine.leave(id, now),
            "{id:?} waits no longer"
        );
        let ticket = self.tickets.remove(&id).expect("found above");
        self.model.leave(ticket.ticket, now);
        self.laws.left(id, false, now);
    }

    /// The timer fires.
    pub fn run_tick(&mut self) {
        // The contract leaves open whether the timer ends a pause or lapses a hold first. A token that waits for
        // what it holds is answered by that, so let the pause end first, as before a request.
        for name in self.where_a_waiter_holds().collect::<Vec<_>>() {
            self.do_overdue(name);
        }
        if self.now.may_write {
            self.now.lease.0 = self.now.lease.0.next_multiple_of(TICK_US);
        }
        let all = self.primary.run_tasks(self.now);
        self.model.tick(self.now);
        self.carry_out(all);
        let (keys, model) = (&self.primary.keys, &self.model);
        // While the server cannot write, some waiters of an overwritten key may still wait.
        self.laws.ticked(self.now, |name| {
            keys.get(&name) == Some(&Stored::Foreign) && model.seats(name).is_empty()
        });
    }

    pub fn delete(&mut self, name: Name) {
        self.primary.delete(name);
        self.replica.delete(name);
        self.model.delete(name);
        self.laws.removed(|n| n == name);
    }

    pub fn overwrite(&mut self, name: Name) {
        self.primary.overwrite(name);
        self.replica.overwrite(name);
        self.model.overwrite(name);
        self.laws.removed(|n| n == name);
    }

    pub fn rename(&mut self, from: Name, to: Name) {
        if from != to && self.primary.keys.contains_key(&from) {
            self.primary.rename(from, to);
            self.replica.rename(from, to);
            self.model.rename(from, to);
            self.laws.renamed(from, to);
        }
    }

    pub fn flush(&mut self, db: Option<i32>) {
        self.primary.flush(db);
        self.replica.flush(db);
        // The kept places of a queue go when the sweep comes to it, or a request. To compare all queues, let it
        // come to all of them.
        if self
            .model
            .queues
            .iter()
            .any(|q| self.model.kept(q.name) > 0)
        {
            self.primary.finish_background();
            self.replica.finish_background();
        }
        self.model.flush(db);
        self.laws.removed(|(d, _)| db.is_none_or(|db| d == db));
        self.laws.flushed(|(d, _)| db.is_none_or(|db| d == db));
    }

    pub fn swap(&mut self, a: i32, b: i32) {
        self.primary.swap(a, b);
        self.replica.swap(a, b);
        self.model.swap(a, b);
        self.laws.swapped(a, b);
    }
}
