//! The lanes of all queues: their turns, and how many places one lane may have.

use crate::queue::lanes::Lanes;
use crate::queue::queues::Queues;
use crate::queue::wait_queue::WaitQueue;
use crate::settings::Settings;
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
        let lanes = self.queues.get_mut(&id)?.lanes.get_mut()?;
        lanes.belong_to((state, self.turns_from));
        Some(lanes)
    }

    /// Begins to keep lanes in a queue. Returns false if it kept them already.
    pub fn begin_lanes(&mut self, id: QueueId) -> bool {
        let is_new = self.get(id).is_some_and(|queue| queue.lanes().is_none());
        is_new && self.change(id, WaitQueue::begin_lanes).is_some()
    }

    /// Ceases to keep the lanes of a queue if no place names one any more. Returns whether lanes are kept.
    pub fn keep_lanes(&mut self, id: QueueId) -> bool {
        self.change(id, |queue| queue.lanes.keep()) == Some(true)
    }

    /// Returns how many places, or kept ones, are still free under the bounds for the lanes of a queue.
    pub fn left_for_lane(&self, id: Option<QueueId>, kept: bool, settings: &Settings) -> u64 {
        let [here, all] = self.taken(id, kept, settings);
        let left = |(taken, most): (u64, u64)| most.saturating_sub(taken);
        left(here).min(left(all))
    }
}
