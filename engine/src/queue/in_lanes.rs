//! The lanes of all queues: their turns, and how many places one lane may have.

use crate::queue::queues::Queues;
use crate::queue::wait_queue::WaitQueue;
use crate::settings::Settings;
use crate::short_bytes::LaneName;
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

    /// Notes that the value of the queue's name may be another one.
    pub fn sort_lanes_anew(&mut self, id: QueueId) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.lanes.sort_anew();
        }
    }

    /// Returns how many places are still free under the bounds for the lanes of a queue, and how many kept ones. Vacant
    /// places are free.
    pub fn left_for_lane(&self, id: Option<QueueId>, settings: &Settings) -> (u64, u64) {
        let queue = id.and_then(|id| self.get(id));
        let here = queue.map_or(0, WaitQueue::waiters) as u64;
        let kept_here = queue.map_or(0, WaitQueue::kept) as u64;
        let all = self.places - self.vacant.len() as u64;
        let (per_key, server) = (settings.max_waiters_per_key, settings.max_waiters);
        let left = |bound: u64, taken: u64| bound.saturating_sub(taken);
        let free = left(per_key, here).min(left(server, all));
        let free_kept = left(per_key / 2, kept_here).min(left(server / 2, self.kept));
        (free, free_kept)
    }
}
