//! What tests and debug builds ask of lanes.

use super::{Lane, Lanes};
use crate::short_bytes::LaneName;

impl Lanes {
    /// Panics unless the lanes have the places that these have, to which the places of a queue were added one by one.
    pub fn check_places(&self, again: &Lanes) {
        // A lane without places stays until it is sorted.
        let places = |lane: &Lane| (lane.name.clone(), lane.line.clone(), lane.vacant, lane.kept);
        let all = [self, again].map(|lanes| {
            let lanes = lanes.lanes.values().filter(|lane| !lane.is_empty());
            lanes.map(places).collect::<Vec<_>>()
        });
        assert_eq!(all[0], all[1], "the places of the lanes");
        assert_eq!(
            self.seating.firsts, again.seating.firsts,
            "the first places of the lanes"
        );
    }

    /// Panics unless each lane is sorted by what it has in use.
    pub fn check_in_use(&self, in_use: impl Fn(&LaneName) -> u64) {
        // A vacant place may be given up for a place of another queue.
        let mut touched = self.touched.iter().filter_map(|name| self.lanes.get(name));
        let is_sorted = self.seating.unsorted.is_none() && touched.all(Lane::is_empty);
        assert!(is_sorted, "not sorted");
        for lane in self.lanes.values() {
            assert_eq!(lane.in_use.permits, in_use(&lane.name), "in use");
            assert_eq!(lane.seat, lane.seat(self.seating.of.1), "its seat");
            assert!(
                lane.seat
                    .is_none_or(|seat| self.seating.seats.contains(&seat))
            );
        }
        let seats = self.lanes.values().filter_map(|lane| lane.seat).count();
        assert_eq!(self.seating.seats.len(), seats, "a seat too many");
    }
}
