//! Counters for INFO, by family. They only grow. Only what this server decided is counted: a replica counts nothing.

use crate::change::{Change, End};
use crate::types::Family;

/// The upper bounds of the classes of wait times, in milliseconds. One more class, the last, has no bound.
pub const WAIT_BOUNDS_MS: [u64; 7] = [1, 10, 100, 1_000, 10_000, 60_000, 600_000];

/// The counters of one family.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counters {
    pub granted_at_once: u64,
    pub granted_after_wait: u64,
    /// Ended by the token: released, done or failed.
    pub released: u64,
    pub lapsed: u64,
    /// Of the lapsed, the holds that were never renewed.
    pub lapsed_unrenewed: u64,
    pub revoked: u64,
    /// Ended because the connection of an EPHEMERAL hold closed.
    pub disconnected: u64,
    /// Ended as [`End::Undelivered`].
    pub undelivered: u64,
    /// Requests that left the queue because their wait had run out, or because nobody asked in time for their kept
    /// place.
    pub wait_timeouts: u64,
    /// Requests that left the queue because their connection closed. One with a kept place does not leave it so.
    pub wait_disconnects: u64,
    pub limit_changes: u64,
}

/// How long requests waited that were granted after a wait.
#[derive(Clone, Copy, Default, Debug)]
pub struct WaitTimes {
    /// The number of waits in each class: at most the bound of the class, and more than the bound before.
    pub classes: [u64; WAIT_BOUNDS_MS.len() + 1],
    pub total_ms: u64,
}

impl WaitTimes {
    fn count(&mut self, waited_ms: u64) {
        let class = WAIT_BOUNDS_MS.iter().position(|bound| waited_ms <= *bound);
        let class = class.unwrap_or(WAIT_BOUNDS_MS.len());
        self.classes[class] += 1;
        self.total_ms = self.total_ms.saturating_add(waited_ms);
    }
}

#[derive(Clone, Copy, Default, Debug)]
pub struct Stats {
    counters: [Counters; Family::ALL.len()],
    pub wait_times: WaitTimes,
}

impl Stats {
    pub fn counters(&self, family: Family) -> &Counters {
        &self.counters[family as usize]
    }

    pub(super) fn counters_mut(&mut self, family: Family) -> &mut Counters {
        &mut self.counters[family as usize]
    }

    /// Counts a change that this server decided. `unrenewed` says that the hold which it ended was never renewed.
    pub(super) fn decided(&mut self, family: Family, change: &Change, unrenewed: bool) {
        let counters = self.counters_mut(family);
        match change {
            Change::End { how, .. } | Change::Rest { how, .. } => match how {
                End::Released | End::Done => counters.released += 1,
                End::Lapsed => {
                    counters.lapsed += 1;
                    counters.lapsed_unrenewed += u64::from(unrenewed);
                }
                End::Revoked => counters.revoked += 1,
                End::Disconnected => counters.disconnected += 1,
                End::Undelivered => counters.undelivered += 1,
                End::Rested => {}
            },
            Change::Fail { .. } | Change::Complete { fence: Some(_), .. } => counters.released += 1,
            _ => {}
        }
    }

    pub(super) fn granted_after(&mut self, family: Family, waited_ms: u64) {
        self.counters_mut(family).granted_after_wait += 1;
        self.wait_times.count(waited_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_time_counts_in_the_first_class_whose_bound_fits() {
        for (waited_ms, class) in [(0, 0), (1, 0), (2, 1), (10, 1), (600_000, 6), (600_001, 7)] {
            let mut times = WaitTimes::default();
            times.count(waited_ms);
            assert_eq!(
                times.classes.iter().position(|count| *count == 1),
                Some(class),
                "{waited_ms}"
            );
            assert_eq!(times.total_ms, waited_ms);
        }
    }
}
