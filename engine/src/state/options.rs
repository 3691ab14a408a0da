//! What follows from the options that most holds do not have: INDEX, LANE, and rests with MINHOLD. All of it is in one
//! box, so that a set of holds without them takes eight bytes for it.

use super::in_lanes::InLanes;
use super::indexes::Indexes;
use crate::heap;
use crate::hold::Hold;
use crate::types::Turn;

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Options(Option<Box<OfHolds>>);

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct OfHolds {
    pub indexes: Indexes,
    pub lanes: InLanes,
    /// How much of a limit the holds take that rest.
    pub resting_permits: u64,
}

impl Options {
    /// Returns the options of all these holds; `None` if two have the same index.
    pub fn of<'a>(holds: impl Iterator<Item = &'a Hold>) -> Option<Options> {
        let (mut lanes, mut indexes, mut resting_permits) = (Vec::new(), Vec::new(), 0);
        for hold in holds {
            let permits = hold.claim().permits();
            if let lane @ [_, ..] = hold.lane() {
                lanes.push((lane.into(), permits));
            }
            if hold.is_resting() {
                resting_permits += u64::from(permits);
            }
            indexes.extend(hold.index());
        }
        let of_holds = OfHolds {
            indexes: Indexes::of(indexes)?,
            lanes: InLanes::of(lanes),
            resting_permits,
        };
        let of_holds = Some(of_holds).filter(|of_holds| *of_holds != OfHolds::default());
        Some(Options(of_holds.map(Box::new)))
    }

    /// Notes a hold that comes. No other has its index.
    #[inline]
    pub fn insert(&mut self, hold: &Hold) {
        if hold.is_resting() {
            self.0.get_or_insert_default().resting_permits += u64::from(hold.claim().permits());
        }
        if let lane @ [_, ..] = hold.lane() {
            let lanes = &mut self.0.get_or_insert_default().lanes;
            lanes.add(lane, hold.claim().permits());
        }
        if let Some(n) = hold.index() {
            self.0.get_or_insert_default().indexes.insert(n);
        }
    }

    /// Forgets a hold that goes.
    #[inline]
    pub fn remove(&mut self, hold: &Hold) {
        if let Some(of_holds) = &mut self.0 {
            if hold.is_resting() {
                of_holds.resting_permits -= u64::from(hold.claim().permits());
            }
            of_holds.lanes.remove(hold.lane(), hold.claim().permits());
            if let Some(n) = hold.index() {
                of_holds.indexes.remove(n);
            }
            self.0.take_if(|of_holds| **of_holds == OfHolds::default());
        }
    }

    pub fn get(&self) -> Option<&OfHolds> {
        self.0.as_deref()
    }

    /// Sets the turn of a lane that has holds.
    pub fn set_turn(&mut self, lane: &[u8], turn: Turn) {
        if let Some(of_holds) = &mut self.0 {
            of_holds.lanes.set_turn(lane, turn);
        }
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
