//! What the holds of each lane take, and the turns of lanes.

use crate::hold::Hold;
use crate::state::hold_set::HoldSet;
use crate::types::{InUse, Turn};

impl HoldSet {
    /// Returns what the holds of a lane take, and its turn. While all holds are in one lane, its turn need not be
    /// known: every other lane that comes to have as much in use will have a later one.
    pub(crate) fn in_use(&self, lane: &[u8]) -> InUse {
        let all = self.permits();
        let own = match self.parts() {
            (one, None) => one.map_or(&[][..], Hold::lane),
            (_, Some(many)) => match many.options.get() {
                Some(of) => return of.lanes.get(lane, all),
                None => &[],
            },
        };
        InUse {
            permits: if lane == own { all } else { 0 },
            ..InUse::default()
        }
    }

    /// Whether one of the holds has a lane.
    pub(crate) fn has_lanes(&self) -> bool {
        match self.parts() {
            (one, None) => one.is_some_and(|hold| !hold.lane().is_empty()),
            (_, Some(many)) => many.options.get().is_some_and(|of| !of.lanes.is_empty()),
        }
    }

    /// Sets the turn of a lane. Returns what it has in use, with this turn.
    pub(in crate::state) fn set_turn(&mut self, lane: &[u8], turn: Turn) -> InUse {
        if let HoldSet::Many(many) = self {
            many.options.set_turn(lane, turn);
        }
        InUse {
            turn,
            ..self.in_use(lane)
        }
    }
}
