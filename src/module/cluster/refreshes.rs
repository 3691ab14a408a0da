//! How often this node may ask its server about its slots: the answer takes a third of a millisecond.
//!
//! A command filter sees CLUSTER commands before the server has checked who sends them, so anybody can give reasons to
//! ask. So it asks once a second at most. Only for SETSLOT, which moves one slot, it has more refreshes in hand, and gets
//! a new one each second: a move that is begun and given up needs two at each of its nodes, however quick it is.

/// The least time between two refreshes, and that in which the node gets one more for SETSLOT, in microseconds.
pub(super) const MIN_REFRESH_US: u64 = 1_000_000;

/// How many refreshes a node has in hand at most.
const MOST: u64 = 64;

pub(super) struct Refreshes {
    in_hand: u64,
    /// When the last one came.
    came_us: u64,
}

impl Refreshes {
    pub(super) fn new() -> Refreshes {
        Refreshes {
            in_hand: MOST,
            came_us: 0,
        }
    }

    /// Takes one. Returns whether there was one.
    pub(super) fn take(&mut self, now_us: u64) -> bool {
        let periods = now_us.saturating_sub(self.came_us) / MIN_REFRESH_US;
        self.came_us += periods * MIN_REFRESH_US;
        self.in_hand = self.in_hand.saturating_add(periods).min(MOST);
        let left = self.in_hand.checked_sub(1);
        self.in_hand = left.unwrap_or_default();
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refreshes_run_out_and_come_back_one_a_second() {
        let mut refreshes = Refreshes::new();
        let began_us = 7 * MIN_REFRESH_US + 3;
        let mut taken = |at_us| (0..1_000).filter(|_| refreshes.take(at_us)).count() as u64;
        assert_eq!(taken(began_us), MOST);
        assert_eq!(taken(began_us + MIN_REFRESH_US - 4), 0);
        assert_eq!(taken(began_us + MIN_REFRESH_US - 3), 1);
        assert_eq!(taken(began_us + 4 * MIN_REFRESH_US), 3);
        assert_eq!(taken(began_us - 1), 0, "a clock that steps back");
        assert_eq!(taken(u64::MAX), MOST);
    }
}
