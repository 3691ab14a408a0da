//! What the holds of one key have of the options that most holds do not have: INDEX, LANE and MINHOLD. All of it is in one
//! box, so that a set of holds without them takes eight bytes for it, and costs one look.

use super::in_lanes::InLanes;
use super::indexes::Indexes;
use crate::heap;
use crate::hold::Hold;

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Options(Option<Box<OfHolds>>);

#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct OfHolds {
    /// How many holds have an option. Without any there is no box.
    holds: u32,
    indexes: Indexes,
    lanes: InLanes,
    /// How much of a limit the holds take that rest.
    resting_permits: u64,
}

impl Options {
    /// Notes the options of a hold that comes. Returns false if another hold has its index.
    pub fn insert(&mut self, hold: &Hold) -> bool {
        if !hold.has_options() {
            return true;
        }
        let of_holds = self.0.get_or_insert_default();
        of_holds.holds += 1;
        of_holds.resting_permits += resting_permits(hold);
        of_holds.lanes.add(hold.lane(), hold.claim().permits());
        hold.index().is_none_or(|n| of_holds.indexes.insert(n))
    }

    /// Forgets the options of a hold that goes.
    pub fn remove(&mut self, hold: &Hold) {
        let Some(of_holds) = self.0.as_mut().filter(|_| hold.has_options()) else {
            return;
        };
        of_holds.holds -= 1;
        of_holds.resting_permits -= resting_permits(hold);
        of_holds.lanes.remove(hold.lane(), hold.claim().permits());
        if let Some(n) = hold.index() {
            of_holds.indexes.remove(n);
        }
        self.0.take_if(|of_holds| of_holds.holds == 0);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub fn indexes(&self) -> Option<&Indexes> {
        self.0.as_ref().map(|of_holds| &of_holds.indexes)
    }

    /// Returns what the holds take in each lane, if one of them has a lane.
    pub fn lanes(&self) -> Option<&InLanes> {
        let lanes = self.0.as_ref().map(|of_holds| &of_holds.lanes);
        lanes.filter(|lanes| !lanes.is_empty())
    }

    pub fn lanes_mut(&mut self) -> Option<&mut InLanes> {
        let lanes = self.0.as_mut().map(|of_holds| &mut of_holds.lanes);
        lanes.filter(|lanes| !lanes.is_empty())
    }

    /// Returns how much of a limit the holds take that rest.
    pub fn resting_permits(&self) -> u64 {
        self.0
            .as_ref()
            .map_or(0, |of_holds| of_holds.resting_permits)
    }

    /// Takes the options apart, one piece at a step.
    pub fn into_pieces(self) -> impl Iterator<Item = ()> {
        self.0.into_iter().flat_map(|of_holds| {
            let indexes = of_holds.indexes.into_pieces().map(drop);
            indexes.chain(of_holds.lanes.into_pieces().map(drop))
        })
    }

    /// Returns the bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |of_holds| {
            let own = heap::allocated(size_of::<OfHolds>());
            own + of_holds.indexes.heap_bytes() + of_holds.lanes.heap_bytes()
        })
    }
}

fn resting_permits(hold: &Hold) -> u64 {
    match hold.is_resting() {
        true => hold.claim().permits().into(),
        false => 0,
    }
}
