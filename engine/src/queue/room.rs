//! How many requests may wait in one queue and on the server, and who makes way for a new one.

use crate::answer::FullQueue;
use crate::queue::queues::Queues;
use crate::queue::wait_queue::WaitQueue;
use crate::settings::Settings;
use crate::types::QueueId;

impl Queues {
    /// Returns how many requests wait in a queue and how many may, and the same of the server. Vacant places make way.
    /// With `kept`, those on kept places: they take at most half of each bound, because one connection can make many.
    fn taken(&self, queue: Option<QueueId>, kept: bool, settings: &Settings) -> [(u64, u64); 2] {
        let queue = queue.and_then(|id| self.get(id));
        let (per_key, server) = (settings.max_waiters_per_key, settings.max_waiters);
        if kept {
            let here = queue.map_or(0, WaitQueue::kept) as u64;
            return [(here, per_key / 2), (self.kept, server / 2)];
        }
        let here = queue.map_or(0, WaitQueue::waiters) as u64;
        let waiters = self.places - self.vacant.len() as u64;
        [(here, per_key), (waiters, server)]
    }

    /// Checks that there is room for so many more places in a queue, kept ones or others, if vacant ones are given up
    /// for them.
    ///
    /// # Errors
    /// If those that wait would go beyond a bound, or beyond the half of one: that bound or half.
    pub fn check_room(
        &self,
        queue: Option<QueueId>,
        more: u64,
        kept: bool,
        settings: &Settings,
    ) -> Result<(), FullQueue> {
        let is_full = |(taken, most): (u64, u64)| taken.saturating_add(more) > most;
        let [here, all] = self.taken(queue, kept, settings);
        Err(match (is_full(here), is_full(all)) {
            (true, _) if kept => FullQueue::HalfOfKey(here.1),
            (true, _) => FullQueue::Key(here.1),
            (false, true) if kept => FullQueue::HalfOfServer(all.1),
            (false, true) => FullQueue::Server(all.1),
            (false, false) => return Ok(()),
        })
    }

    /// Gives up vacant places, the oldest first, until there is room for so many more places in a queue.
    pub fn give_up_vacant(&mut self, queue: Option<QueueId>, more: u64, settings: &Settings) {
        let (per_key, server) = (settings.max_waiters_per_key, settings.max_waiters);
        while let Some(id) = queue
            && let Some(full) = self
                .get(id)
                .filter(|queue| queue.len() as u64 + more > per_key)
            && let Some(rank) = full.oldest_vacant()
        {
            self.leave(id, rank);
        }
        while self.places + more > server
            && let Some((_, rank, id)) = self.vacant.first().copied()
        {
            self.leave(id, rank);
        }
    }
}
