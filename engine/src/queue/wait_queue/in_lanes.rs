//! The lanes of one queue. It has them from the first place that names one until the last such place has left.

use std::collections::BTreeMap;

use super::WaitQueue;
use crate::queue::lanes::{Ask, Lanes};
use crate::queue::place::Place;
use crate::short_bytes::LaneName;
use crate::store::slab::StateId;
use crate::types::{Family, InUse, Rank, Turn};

/// How many lanes one call sorts.
const SLICE: u32 = 1_024;

impl WaitQueue {
    /// Returns the lanes, if a place of the queue names one. Only requests for permits stand in lanes.
    pub fn lanes(&self) -> Option<&Lanes> {
        self.lanes.as_deref()
    }

    /// Whether a request waits that is not of this family.
    pub fn has_other_line(&self, family: Family) -> bool {
        self.index.by_family[family as usize] < self.line.len()
    }

    /// Sorts the lanes, if there are any: see [`Lanes::sort`]. Returns whether all of them are sorted.
    pub(in crate::queue) fn sort_lanes(
        &mut self,
        of: (Option<StateId>, Turn),
        in_use: impl Fn(&LaneName) -> InUse,
    ) -> bool {
        let Some(lanes) = &mut self.lanes else {
            return true;
        };
        lanes.belong_to(of);
        lanes.sort(&mut { SLICE }, in_use)
    }

    /// Ceases to keep lanes if no place names one any more. Returns whether lanes are kept.
    pub(in crate::queue) fn keep_lanes(&mut self) -> bool {
        self.lanes.take_if(|lanes| lanes.are_nameless());
        self.lanes.is_some()
    }

    /// Notes that what the lanes have in use may have changed without [`WaitQueue::note_in_use`].
    pub fn sort_lanes_anew(&mut self) {
        if let Some(lanes) = &mut self.lanes {
            lanes.sort_anew();
        }
    }

    /// Chooses the place that is served next, if there are lanes.
    pub fn choose_lane(&mut self, limit: u32, is_free: bool) {
        if let Some(lanes) = &mut self.lanes {
            lanes.choose(limit, is_free);
        }
    }

    /// Notes what a lane has in use, and its turn.
    pub fn note_in_use(&mut self, lane: &[u8], in_use: InUse) {
        if let Some(lanes) = &mut self.lanes {
            lanes.note(lane, in_use);
        }
    }

    /// Begins to keep lanes. All who stand in the queue already are in the nameless one.
    pub(in crate::queue) fn begin_lanes(&mut self) {
        if self.lanes.is_some() {
            return;
        }
        let of_permits = |place: &&Place| place.claim.family() == Family::Semaphore;
        let line = self.line.values().filter(of_permits);
        let line: BTreeMap<Rank, Ask> = line.map(|place| (place.rank(), ask(place))).collect();
        let vacant = self.vacant.values().filter(of_permits).count();
        self.lanes = Some(Box::new(Lanes::of_nameless(line, vacant)));
    }

    /// Notes a place that has come to the queue, with the turn that a new lane has.
    pub(super) fn enter_lane(&mut self, place: &Place, turn: Turn) {
        if !place.lane.is_nameless() {
            self.begin_lanes();
        }
        if let Some(lanes) = &mut self.lanes
            && place.claim.family() == Family::Semaphore
        {
            let ask = place.is_in_line().then(|| ask(place));
            lanes.join(&place.lane, place.rank(), ask, turn);
        }
    }

    /// Puts a place into the queue that was in it before, with the turn that its lane had.
    pub(super) fn join_again(&mut self, place: Place, before: Option<&Lanes>) {
        let turn = before.map_or(Turn::default(), |lanes| lanes.turn(&place.lane));
        self.join(place, turn);
    }

    /// Notes a place that has left the queue.
    pub(super) fn leave_lane(&mut self, place: &Place) {
        if let Some(lanes) = &mut self.lanes
            && place.claim.family() == Family::Semaphore
        {
            lanes.leave(&place.lane, place.rank());
        }
    }

    /// Notes that a place in line is not kept any more.
    pub(super) fn unkeep_in_lane(&mut self, rank: Rank) {
        if let Some(lanes) = &mut self.lanes
            && let Some(place) = self.line.get(&rank)
        {
            lanes.unkeep(&place.lane, rank);
        }
    }
}

/// Returns what counts of a place in line.
fn ask(place: &Place) -> Ask {
    Ask {
        permits: place.claim.permits(),
        lane_limit: place.lane_limit(),
        is_kept: place.is_kept(),
    }
}
