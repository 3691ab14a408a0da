//! How many permits the holds of one semaphore take in each lane (LANE), counted with each hold that comes or goes.
//!
//! Holds without a lane are in the nameless one, and are counted only as the rest: a semaphore of which no hold has a
//! lane keeps nothing here.

use std::collections::BTreeMap;

use crate::heap;
use crate::short_bytes::{LaneName, ShortBytes};
use crate::types::{InUse, Turn};

/// Invariant: `named` has the lanes that have a hold, and `permits` is the sum of theirs, `name_bytes` that of what their
/// names take.
#[derive(Clone, Default, Eq, Debug)]
pub struct InLanes {
    named: BTreeMap<LaneName, InUse>,
    permits: u64,
    name_bytes: usize,
    /// The turn of the nameless lane, if it has holds.
    nameless: Turn,
}

/// Turns do not count: they follow from what happened, and not from the holds.
impl PartialEq for InLanes {
    fn eq(&self, other: &InLanes) -> bool {
        self.permits().eq(other.permits())
    }
}

impl InLanes {
    fn permits(&self) -> impl Iterator<Item = (&LaneName, u64)> {
        let named = self.named.iter();
        named.map(|(lane, in_use)| (lane, in_use.permits))
    }

    /// Counts many holds at once, each with the lane that it is in and its permits. All of these lanes have names.
    pub fn of(mut holds: Vec<(ShortBytes, u32)>) -> InLanes {
        // Not unstable, because names that count up are sorted much faster so.
        holds.sort();
        let mut lanes = InLanes::default();
        let mut named: Vec<(LaneName, InUse)> = Vec::new();
        for (lane, permits) in holds {
            let permits = u64::from(permits);
            lanes.permits += permits;
            match named.last_mut() {
                Some((last, in_use)) if last.as_bytes() == lane.as_bytes() => {
                    in_use.permits += permits;
                }
                _ => {
                    let turn = Turn::default();
                    let lane = LaneName::from(lane);
                    lanes.name_bytes += lane.heap_bytes();
                    named.push((lane, InUse { permits, turn }));
                }
            }
        }
        lanes.named = named.into_iter().collect();
        lanes
    }

    /// Counts a hold that has come to a lane with a name.
    pub fn add(&mut self, lane: &[u8], permits: u32) {
        let permits = u64::from(permits);
        self.permits += permits;
        match self.named.get_mut(lane) {
            Some(in_use) => in_use.permits += permits,
            None => {
                let turn = Turn::default();
                let lane = LaneName::from(lane);
                self.name_bytes += lane.heap_bytes();
                self.named.insert(lane, InUse { permits, turn });
            }
        }
    }

    pub fn remove(&mut self, lane: &[u8], permits: u32) {
        let permits = u64::from(permits);
        if let Some(in_use) = self.named.get_mut(lane) {
            in_use.permits -= permits;
            self.permits -= permits;
            if in_use.permits == 0
                && let Some((lane, _)) = self.named.remove_entry(lane)
            {
                self.name_bytes -= lane.heap_bytes();
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    /// Returns what the holds of a lane take. `all` is what all holds take.
    pub fn get(&self, lane: &[u8], all: u64) -> InUse {
        match lane {
            [] => InUse {
                permits: all - self.permits,
                turn: self.nameless,
            },
            lane => self.named.get(lane).copied().unwrap_or_default(),
        }
    }

    /// Sets the turn of a lane that has holds.
    pub fn set_turn(&mut self, lane: &[u8], turn: Turn) {
        match lane {
            [] => self.nameless = turn,
            lane => drop(self.named.get_mut(lane).map(|in_use| in_use.turn = turn)),
        }
    }

    /// Takes the counts apart, one lane at a step.
    pub fn into_pieces(self) -> impl Iterator<Item = (LaneName, InUse)> {
        self.named.into_iter()
    }

    /// Returns the bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        heap::tree(self.named.len(), size_of::<(LaneName, InUse)>()) + self.name_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_lane_is_counted_as_long_as_it_has_a_hold() {
        let name = [b't'; 100];
        let mut lanes = InLanes::default();
        lanes.add(b"a", 1);
        let before = lanes.heap_bytes();
        lanes.add(&name, 1);
        lanes.add(&name, 2);
        let with_name = lanes.heap_bytes();
        assert!(with_name >= before + name.len());
        lanes.remove(&name, 2);
        assert_eq!(lanes.heap_bytes(), with_name);
        lanes.remove(&name, 1);
        assert_eq!(lanes.heap_bytes(), before);
        let pieces = lanes.into_pieces().map(|(lane, _)| lane);
        assert!(pieces.eq([b"a".as_slice().into()]));
    }
}
