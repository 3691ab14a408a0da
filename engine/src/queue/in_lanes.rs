//! The lanes of all queues: their turns, and how many places one lane may have.

use crate::queue::queues::Queues;
use crate::queue::wait_queue::WaitQueue;
use crate::settings::Settings;
use crate::store::slab::StateId;
use crate::types::{InUse, QueueId, Turn};

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

    /// Sorts the lanes of a queue, if it has any, by what is in use of this value. Returns whether all of them are sorted;
    /// one call sorts a bounded number.
    pub fn sort_lanes(
        &mut self,
        id: QueueId,
        state: Option<StateId>,
        in_use: impl Fn(&LaneName) -> InUse,
    ) -> bool {
        let (turns_from, queue) = (self.turns_from, self.queues.get_mut(&id));
        queue.is_none_or(|queue| queue.lanes.sort((state, turns_from), in_use))
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
