//! The lanes of one queue. It has them from the first place that names one until the last such place has left.

use std::collections::BTreeMap;

use crate::queue::lanes::{Ask, Lanes};
use crate::queue::place::Place;
use crate::types::{Rank, Turn};

/// Invariant: if there are lanes, they have all places for permits.
#[derive(Default)]
pub struct QueueLanes(pub(super) Option<Box<Lanes>>);

impl QueueLanes {
    pub fn get(&self) -> Option<&Lanes> {
        self.0.as_deref()
    }

    pub fn get_mut(&mut self) -> Option<&mut Lanes> {
        self.0.as_deref_mut()
    }

    /// Notes that what the lanes have in use may have changed without [`Lanes::note`].
    pub fn sort_anew(&mut self) {
        if let Some(lanes) = &mut self.0 {
            lanes.sort_anew();
        }
    }

    /// Begins to keep lanes. All who stand in the queue already are in the nameless one.
    pub(super) fn begin(&mut self, line: &BTreeMap<Rank, Place>, vacant: &BTreeMap<Rank, Place>) {
        self.0.get_or_insert_with(|| {
            let line = line.values().filter(|place| place.is_for_permits());
            let line = line.map(|place| (place.rank(), ask(place)));
            let vacant = vacant.values().filter(|place| place.is_for_permits());
            Box::new(Lanes::of_nameless(line.collect(), vacant.count()))
        });
    }

    /// Ceases to keep lanes if no place names one any more.
    pub(in crate::queue) fn cease(&mut self) {
        self.0.take_if(|lanes| lanes.are_nameless());
    }

    /// Notes a place that has come, with the turn that a new lane has, or a place in line that has changed.
    pub(super) fn enter(&mut self, place: &Place, turn: Turn) {
        if let Some(lanes) = self.0.as_mut().filter(|_| place.is_for_permits()) {
            let ask = place.is_in_line().then(|| ask(place));
            lanes.join(&place.lane, place.rank(), ask, turn);
        }
    }

    /// Notes a place that has left the queue.
    pub(super) fn leave(&mut self, place: &Place) {
        if let Some(lanes) = self.0.as_mut().filter(|_| place.is_for_permits()) {
            lanes.leave(&place.lane, place.rank());
        }
    }
}

/// Returns what counts of a place in line.
fn ask(place: &Place) -> Ask {
    Ask {
        permits: place.claim.permits(),
        lane_limit: place.standing.bound(),
        is_kept: place.is_kept(),
    }
}
