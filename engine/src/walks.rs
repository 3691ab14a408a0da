//! The walks after a take-over, and how a hold that another server wrote gets its moment: see [`crate::term`].

use crate::queue::place::Place;
use crate::queue::queues::Queues;
use crate::settings::Settings;
use crate::store::Store;
use crate::store::slab::StateId;
use crate::term::{TakeOver, Term};
use crate::types::{Fence, LeaseUs, Moments, QueueId, Rank};

impl Term {
    /// Gives a moment to a hold whose lease another server or a payload has just set.
    pub fn take_up(&mut self, store: &mut Store, id: StateId, fence: Fence, from: TakeOver) {
        let state = store.get(id);
        if let Some(hold) = state.and_then(|state| state.body.holds().get(fence)) {
            let moments = self.moments(hold, from);
            store.set_moments(id, fence, moments);
        }
    }

    /// Gives a moment to each hold of a state that was loaded just now.
    pub fn take_up_all(&mut self, store: &mut Store, id: StateId, from: TakeOver) {
        if let Some(body) = store.body_mut(id) {
            body.set_all_moments(|hold| self.moments(hold, from));
        }
    }

    /// Continues the walk over the states. Each hold and each state costs one of the budget.
    pub fn walk_states(&mut self, store: &mut Store, settings: &Settings, budget: &mut u32) {
        while *budget > 0
            && let Some(from) = self.states_walk
        {
            let next = store.states_since(from).next();
            self.states_walk = next.map(|(id, _)| id);
            if let Some(id) = self.states_walk {
                *budget -= 1;
                let is_done = self.give_moments(store, id, budget);
                store.index(id, self.since(), settings);
                if is_done {
                    self.states_walk = id.next();
                }
            }
        }
    }

    /// Gives moments to holds that have none, while the budget lasts: during the walk, or before it because a visit needs
    /// them now. Returns whether all holds of the state have one then.
    pub fn give_moments(&mut self, store: &mut Store, id: StateId, budget: &mut u32) -> bool {
        while let Some(state) = store.get(id)
            && let Some(hold) = state.body.holds().first_before(self.since())
        {
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            let fence = hold.fence();
            let due = self.give(self.took_over.due(hold));
            let rests_until = LeaseUs(0);
            store.set_moments(id, fence, Moments { due, rests_until });
        }
        true
    }

    /// Continues the walk over the kept places. Each place and each queue costs one of the budget.
    pub fn walk_places(&mut self, queues: &mut Queues, budget: &mut u32) {
        while *budget > 0
            && let Some(at) = self.places_walk
        {
            *budget -= 1;
            let next = queues.step_after(at);
            if let Some((queue, rank)) = next {
                self.give_moment(queues, queue, rank);
            }
            self.places_walk = next;
        }
    }

    /// Gives a kept place its moment after a take-over, if it has none yet.
    fn give_moment(&mut self, queues: &mut Queues, queue: QueueId, rank: Rank) {
        let place = queues.get(queue).and_then(|queue| queue.place(rank));
        if let Some((keep_ms, until)) = place.and_then(Place::kept_until)
            && until < self.since()
        {
            let until = self.give_to_place(self.took_over.until(keep_ms));
            queues.detach(queue, rank, until);
        }
    }
}
