//! How the kept places leave a queue all at once, after a flush.

use std::collections::BTreeMap;
use std::mem::{swap, take};

use super::{Index, Left, Piece, WaitQueue, pieces_of};
use crate::queue::place::Place;
use crate::types::{Rank, Turn};

impl WaitQueue {
    /// Drops all kept places. A request whose client waits on one goes on waiting, on a place that is not kept. Returns
    /// what is left of the dropped places, to be taken apart in slices: see [`WaitQueue::into_pieces`].
    ///
    /// `parked` must have every place on which a client waits, and may have more. Takes some steps for each of them and
    /// for each vacant place, however many places are dropped.
    pub(in crate::queue) fn drop_kept(
        &mut self,
        parked: &[Rank],
    ) -> impl Iterator<Item = Piece> + Send + use<> {
        let takes_idle = self.line.len() - self.index.parked < self.index.parked;
        let (mut line, mut index, mut lanes) = (BTreeMap::new(), Index::default(), None);
        if takes_idle {
            let idle = self.line.values().filter(|place| place.parked().is_none());
            let idle: Vec<Rank> = idle.map(Place::rank).collect();
            for rank in idle {
                if let Some(Left::Place(place)) = self.leave(rank) {
                    line.insert(rank, place);
                }
            }
        } else {
            swap(&mut self.line, &mut line);
            swap(&mut self.index, &mut index);
            // What stays is noted anew, with the turns of its lanes. The old index and lanes are not used any more.
            lanes = self.lanes.0.take();
            let parked = parked.iter().filter_map(|rank| line.remove(rank));
            for place in take(&mut self.vacant).into_values().chain(parked) {
                let lanes = lanes.as_deref();
                let turn = lanes.map_or(Turn::default(), |lanes| lanes.turn(&place.lane));
                self.join(place, turn);
            }
        }
        if let (Some(again), Some(before)) = (&mut self.lanes.0, &lanes) {
            again.take_up(before);
        }
        if self.index.kept > 0 {
            let kept: Vec<Rank> = self.line.keys().copied().collect();
            for rank in kept {
                self.unkeep(rank);
            }
        }
        pieces_of(line, index, lanes)
    }
}
