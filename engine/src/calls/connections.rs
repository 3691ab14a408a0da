//! Clients that are gone, and those that must go.
//!
//! The server calls these functions when a connection has closed, a reply could not be written, or this server was
//! demoted. None of them changes a state: they only note which holds must end, and a task ends them when the server can
//! write.

use crate::agenda::task::Ending;
use crate::answer::Answer;
use crate::change::End;
use crate::effect::HandedOver;
use crate::engine::Engine;
use crate::queue::wait_queue::Left;
use crate::store::leftovers::Piece;
use crate::types::{ClientId, Family, Now, QueueId, Rank, WaiterId};

impl Engine {
    /// Removes the waiter of a connection that has closed, and leaves the place vacant if the client chose the token. A
    /// kept place stays one.
    /// Ephemeral holds of the connection end as soon as the server can write. Returns whether the connection had a
    /// waiter or such holds; most have none.
    pub fn disconnected(&mut self, client: ClientId, now: Now) -> bool {
        let place = self.queues.waiter_of(client);
        let place = place.and_then(|waiter| self.queues.place_of(waiter));
        let ended = place.and_then(|place| self.depart(place, self.settings.rejoin_ms, now));
        if let Some(family) = ended {
            self.stats.counters_mut(family).wait_disconnects += 1;
        }
        self.agenda.closed(client, &self.store) || place.is_some()
    }

    /// Removes the waiter at this place, and leaves the place vacant for so long if the client chose the token. Returns
    /// the family of the wait that ends so; `None` for a kept place, which stays one.
    fn depart(
        &mut self,
        (queue, rank): (QueueId, Rank),
        rejoin_ms: u64,
        now: Now,
    ) -> Option<Family> {
        if self.detach(queue, rank, now).is_some() {
            return None;
        }
        let left = self.queues.leave(queue, rank)?;
        let family = left.family();
        if let Left::Place(place) = left
            && rejoin_ms > 0
            && let Some(vacant) = place.vacated(now.mono.after_ms(rejoin_ms), None)
        {
            self.queues.join(queue, vacant);
        }
        self.queues.left_unserved(queue);
        Some(family)
    }

    /// Removes the waiter without an answer from the engine, and leaves no vacant place for it. A kept place stays.
    /// Returns whether it waited.
    pub fn leave(&mut self, waiter: WaiterId, now: Now) -> bool {
        let place = self.queues.place_of(waiter);
        if let Some(place) = place {
            self.depart(place, 0, now);
        }
        place.is_some()
    }

    /// Notes that a grant could not be delivered: its hold ends as soon as the server can write, and the next waiter is
    /// served. If the connection has closed (`closed`), the place is left vacant for the token. A place that was kept is
    /// kept again in any case.
    pub fn undelivered(&mut self, grant: HandedOver, client: ClientId, closed: bool, now: Now) {
        let state = self.state(grant.state);
        let hold = state.and_then(|state| state.body.holds().get(grant.fence));
        // Otherwise the token has retried on another connection, which has got the hold.
        if hold.is_some_and(|hold| hold.client() == client) {
            let rejoin_ms = self.settings.rejoin_ms;
            let keeps = closed && rejoin_ms > 0;
            let standing = grant.standing;
            let standing = standing.filter(|standing| keeps || standing.keep().is_some());
            let ending = Ending {
                state: grant.state,
                how: End::Undelivered,
                gives_back: standing.map(|standing| (standing, now.mono.after_ms(rejoin_ms))),
            };
            self.agenda.end(grant.fence, ending);
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
        let pieces = self.queues.clear().into_pieces();
        self.store.leftovers.push(pieces.map(|()| Piece::Dropped));
    }
}
