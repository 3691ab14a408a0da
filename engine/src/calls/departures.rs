//! Requests that leave their queue unserved, and holds of closed connections.
//!
//! The server calls these functions when a connection has closed, a reply could not be written, a key has left this
//! node, or this server was demoted. None of them changes a state: they only note which holds must end, and a task of
//! [`crate::calls::tasks`] ends them when the server can write.

use crate::Engine;
use crate::answer::Answer;
use crate::calls::tasks::Ending;
use crate::change::End;
use crate::effect::HandedOver;
use crate::queue::entry::{Departed, Place};
use crate::types::{ClientId, Db, Now, QueueId, WaiterId};

/// How many waiters one call of `turn_away` answers.
const SLICE: u32 = 128;

impl Engine {
    /// Removes the waiter of a connection that has closed, and leaves the place vacant if the client chose the token. A
    /// kept place stays one.
    /// Ephemeral holds of the connection end as soon as the server can write. Returns whether the connection had a
    /// waiter or such holds; most have none.
    pub fn disconnected(&mut self, client: ClientId, now: Now) -> bool {
        let mut concerned = false;
        if let Some(waiter) = self.queues.waiter_of(client)
            && let Some((queue, place)) = self.queues.seat_of(waiter)
        {
            concerned = true;
            if let Some((_, family)) = self.detach(queue, place, now) {
                self.stats.counters_mut(family).wait_disconnects += 1;
            } else {
                self.lose(queue, place, now);
            }
        }
        if self.ephemeral_of(client).is_some() {
            self.closed.insert(client);
            concerned = true;
        }
        concerned
    }

    /// Removes the waiter at this place, whose connection has closed, and leaves the place vacant if the client chose the
    /// token.
    fn lose(&mut self, queue: QueueId, place: Place, now: Now) {
        let left = self.queues.leave(queue, place);
        if let Some(family) = left.as_ref().and_then(Departed::family) {
            self.stats.counters_mut(family).wait_disconnects += 1;
        }
        let until = now.mono.after_ms(self.settings.rejoin_ms);
        if let Some(vacancy) = left.and_then(|left| left.vacancy(None, until))
            && self.settings.rejoin_ms > 0
        {
            self.queues.vacate(queue, place, vacancy);
        }
        self.queues.left_unserved(queue);
    }

    /// Removes the waiter without an answer from the engine, and leaves no vacant place for it. A kept place stays.
    /// Returns whether it waited.
    pub fn leave(&mut self, waiter: WaiterId, now: Now) -> bool {
        let Some((queue, place)) = self.queues.seat_of(waiter) else {
            return false;
        };
        if self.detach(queue, place, now).is_some() {
            return true;
        }
        self.queues.leave(queue, place);
        self.queues.left_unserved(queue);
        true
    }

    /// Notes that a grant could not be delivered: its hold ends as soon as the server can write, and the next waiter is
    /// served. If the connection has closed (`closed`), the place is left vacant for the token. A place that was kept is
    /// kept again in any case.
    pub fn undelivered(&mut self, grant: HandedOver, client: ClientId, closed: bool, now: Now) {
        let HandedOver {
            state,
            fence,
            former_place,
        } = grant;
        let Some(found) = self.states.get(state) else {
            return;
        };
        // Otherwise the token has retried on another connection, which has got the hold.
        if found
            .body
            .holds()
            .get(fence)
            .is_some_and(|hold| hold.client() == client)
        {
            let keeps = closed && self.settings.rejoin_ms > 0;
            let until = now.mono.after_ms(self.settings.rejoin_ms);
            let vacates = former_place
                .filter(|former_place| keeps || former_place.keep.is_some())
                .map(|former_place| (former_place, until));
            self.ending.insert(
                fence,
                Ending {
                    state,
                    how: End::Undelivered,
                    vacates,
                },
            );
        }
    }

    /// Answers all waiters that this server was demoted. Not in slices, because the server itself unblocks all its
    /// blocked clients at once then, which costs far more.
    /// Kept places stay.
    pub fn dismiss_all(&mut self) {
        let waiters: Vec<_> = self.queues.waiters().collect();
        for waiter in &waiters {
            self.effects.wake(*waiter, Answer::Demoted);
        }
        if self.queues.kept() > 0 {
            return self.queues.dismiss(&waiters);
        }
        let queues = self.queues.clear();
        if queues.is_large() {
            self.leftovers.drop_pieces(queues.into_pieces());
        }
    }

    /// Answers the waiters of a name that cannot be served: its value is not this module's, or the key has gone to
    /// another node. Its kept places are dropped. Answers at most `SLICE` of them; the queue stays due while more are
    /// left.
    ///
    /// While the server takes no writes, no kept place can be dropped. Then only clients are answered whose wait runs
    /// out.
    pub fn turn_away(&mut self, db: Db, name: &[u8], why: &Answer, now: Now) {
        self.queues.note_flush(db, name);
        let Some(id) = self.queues.find(db, name) else {
            return;
        };
        let keeps = self.queues.get(id).is_some_and(|queue| queue.kept() > 0);
        if keeps && !now.may_write {
            while let Some((moment, queue, place)) = self.queues.first_moment()
                && moment <= now.mono
                && queue == id
            {
                match self.detach(queue, place, now) {
                    Some((waiter, _)) => self.effects.wake(waiter, why.clone()),
                    None => self.tell(queue, place, why.clone(), now),
                }
            }
            return self.queues.set_due(id);
        }
        for _ in 0..SLICE {
            self.queues.answer_watchers(id, why.clone());
            let Some(queue) = self.queues.get(id) else {
                return;
            };
            // Remove vacant places too, because what their tokens waited for is gone.
            let next = queue.head().map(|(place, _)| place);
            let next = next.or_else(|| queue.oldest_vacancy());
            let next = next.map(|place| (place, why.clone()));
            let Some((place, answer)) = queue.next_answered().or(next) else {
                return self.queues.finish_visit(id);
            };
            self.tell(id, place, answer, now);
        }
        self.queues.set_due(id);
    }
}
