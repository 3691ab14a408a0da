//! The lanes of all queues, and their turns.

use crate::queue::lanes::Lanes;
use crate::queue::queues::Queues;
use crate::queue::wait_queue::WaitQueue;
use crate::store::slab::StateId;
use crate::types::{QueueId, Turn};

impl Queues {
    /// The number of lanes in which somebody waits, in queues in which a place names a lane.
    pub fn lanes(&self) -> u64 {
        self.lanes
    }

    /// Returns a turn that is later than all before it.
    pub fn next_turn(&mut self) -> Turn {
        Turn(self.number())
    }

    /// Notes that this server takes over: the turns so far count for nothing.
    pub fn begin_turns(&mut self) {
        self.turns_from = self.next_turn();
    }

    /// Returns the lanes of a queue, if it keeps any, as those of this value: see [`Lanes::belong_to`].
    pub fn lanes_of(&mut self, id: QueueId, state: Option<StateId>) -> Option<&mut Lanes> {
        let (of, turn) = ((state, self.turns_from), self.next_turn());
        let lanes = self.queues.get_mut(&id)?.lanes.get_mut()?;
        lanes.belong_to(of, turn);
        Some(lanes)
    }

    /// Notes that the name of the queue has another value, or none.
    pub fn value_left(&mut self, id: QueueId) {
        let turn = self.next_turn();
        if let Some(lanes) = self
            .queues
            .get_mut(&id)
            .and_then(|queue| queue.lanes.get_mut())
        {
            lanes.removed(turn);
        }
    }

    /// Begins to keep lanes in a queue. Returns false if it kept them already.
    pub fn begin_lanes(&mut self, id: QueueId) -> bool {
        let is_new = self.get(id).is_some_and(|queue| queue.lanes().is_none());
        is_new && self.change(id, WaitQueue::begin_lanes).is_some()
    }
}
