//! Which place of a semaphore is served next, if requests name lanes.
//!
//! When permits are free, the lane is chosen that has the fewest permits in use; among equals, the one whose turn is
//! oldest. Its first request is served. If that does not fit, it stays chosen and holds up all others, so that small
//! requests cannot starve a large one. A lane whose first request would, with the lane's own holds, exceed its LANELIMIT
//! or the LIMIT *stands aside*: it is not chosen, and holds up nobody.
//!
//! All steps are logarithmic in the number of lanes, also after the LIMIT has changed. For the lanes whose first requests
//! ask for the same number of permits, the order is that of their permits in use; so if the first of them stands aside
//! by the LIMIT, all of them do. [`Lanes::choose`] looks at the first of each such group only. At most 1,414 groups can
//! stand aside: the first lane of a group of `n` permits has more than LIMIT − `n` in use, the groups differ in `n`, and
//! 1,000,000 permits at most are in use in all. Rejected: a set of the lanes that stand aside. A LIMIT that rises would
//! empty it in one step.
//!
//! What a lane has in use is a copy: the holds have the truth. [`Lanes::sort`] copies it, in slices, whenever the value of
//! the key is another one or a server takes over. Until it is done, nobody is chosen.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::heap;
use crate::short_bytes::LaneName;
use crate::store::slab::StateId;
use crate::types::{Fence, InUse, Rank, Turn};

/// What counts of a request while it waits in a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    pub permits: u32,
    pub lane_limit: Option<u32>,
    pub is_kept: bool,
}

/// Permits in use, the turn, and the first place of a lane: the lowest is served first.
type Order = (u64, Turn, Rank);

/// Where a lane stands: how many permits its first request asks for, and its order among those that ask for as many.
type Seat = (u32, Order);

#[derive(Debug)]
struct Lane {
    name: LaneName,
    in_use: InUse,
    /// `in_use` has not been copied from the holds since the lane has come.
    is_new: bool,
    line: BTreeMap<Rank, Ask>,
    vacant: usize,
    kept: usize,
    /// Where the lane is in the order.
    seat: Option<Seat>,
}

/// Invariants, once [`Lanes::sort`] is done: each lane has a place in line or a vacant one; `seats` has the `seat` of
/// each lane whose first request does not exceed its LANELIMIT; `heads` has the first seat of each number of permits.
#[derive(Debug, Default)]
pub struct Lanes {
    /// The value whose holds are counted, and the turn from which turns count: up to it a lane has none.
    of: (Option<StateId>, Turn),
    lanes: BTreeMap<LaneName, Lane>,
    seats: BTreeMap<Seat, LaneName>,
    heads: BTreeMap<Order, u32>,
    /// The lanes in which somebody waits, by their first places.
    firsts: BTreeMap<Rank, LaneName>,
    /// The place that was chosen, and did not fit.
    chosen: Option<(LaneName, Rank)>,
    /// The lanes that have come or lost their last place since they were last sorted.
    touched: Vec<LaneName>,
    /// The lanes from this one on are not in the order yet.
    unsorted: Option<LaneName>,
}

impl Lane {
    fn new(name: LaneName, turn: Turn) -> Lane {
        Lane {
            name,
            in_use: InUse { permits: 0, turn },
            is_new: true,
            line: BTreeMap::new(),
            vacant: 0,
            kept: 0,
            seat: None,
        }
    }

    fn seat(&self, turns_from: Turn) -> Option<Seat> {
        let (rank, ask) = self.line.first_key_value()?;
        let InUse { permits, turn } = self.in_use;
        let after = permits + u64::from(ask.permits);
        let fits = ask.lane_limit.is_none_or(|most| after <= u64::from(most));
        let turn = if turn > turns_from { turn } else { Turn(0) };
        fits.then_some((ask.permits, (permits, turn, *rank)))
    }

    fn first(&self) -> Option<Rank> {
        self.line.first_key_value().map(|(rank, _)| *rank)
    }

    fn is_empty(&self) -> bool {
        self.line.is_empty() && self.vacant == 0
    }
}

impl Lanes {
    /// Returns lanes of which only the nameless one has places.
    pub fn of_nameless(line: BTreeMap<Rank, Ask>, vacant: usize) -> Lanes {
        if line.is_empty() && vacant == 0 {
            return Lanes::default();
        }
        let kept = line.values().filter(|ask| ask.is_kept).count();
        let name = LaneName::default();
        let first = line.first_key_value();
        let firsts = first.map(|(rank, _)| (*rank, name.clone()));
        let lane = Lane {
            line,
            vacant,
            kept,
            ..Lane::new(name.clone(), Turn(0))
        };
        Lanes {
            lanes: BTreeMap::from([(name.clone(), lane)]),
            touched: vec![name],
            firsts: firsts.into_iter().collect(),
            ..Lanes::default()
        }
    }

    /// Whether no lane with a name has a place.
    pub fn are_nameless(&self) -> bool {
        let mut lanes = self.lanes.values();
        lanes.all(|lane| lane.name.is_nameless() || lane.is_empty())
    }

    /// Adds a place, or a vacant one if `ask` is `None`. If the lane is new, it comes with this turn.
    pub fn join(&mut self, name: &LaneName, rank: Rank, ask: Option<Ask>, turn: Turn) {
        self.lanes.entry(name.clone()).or_insert_with(|| {
            self.touched.push(name.clone());
            Lane::new(name.clone(), turn)
        });
        self.change(name.as_bytes(), |lane| match ask {
            Some(ask) => {
                lane.kept += usize::from(ask.is_kept);
                lane.line.insert(rank, ask);
            }
            None => lane.vacant += 1,
        });
    }

    /// Removes a place, or a vacant one. A lane without places keeps its turn until it is sorted, because a request may
    /// be about to take the place over.
    pub fn leave(&mut self, name: &LaneName, rank: Rank) {
        let is_empty = self.change(name.as_bytes(), |lane| {
            match lane.line.remove(&rank) {
                Some(ask) => lane.kept -= usize::from(ask.is_kept),
                None => lane.vacant -= 1,
            }
            lane.is_empty()
        });
        if is_empty == Some(true) {
            self.touched.push(name.clone());
        }
    }

    /// Notes that a place in line is not kept any more.
    pub fn unkeep(&mut self, name: &LaneName, rank: Rank) {
        self.change(name.as_bytes(), |lane| {
            if let Some(ask) = lane.line.get_mut(&rank) {
                lane.kept -= usize::from(std::mem::take(&mut ask.is_kept));
            }
        });
    }

    /// Notes what a lane has in use after a grant or the end of a hold, and the turn that it has from then on.
    pub fn note(&mut self, name: &[u8], in_use: InUse) {
        self.change(name, |lane| lane.in_use = in_use);
    }

    fn change<R>(&mut self, name: &[u8], change: impl FnOnce(&mut Lane) -> R) -> Option<R> {
        let lane = self.lanes.get_mut(name)?;
        let before = lane.first();
        let result = change(lane);
        let first = lane.first();
        if first != before {
            before.map(|rank| self.firsts.remove(&rank));
            let first = first.map(|rank| (rank, lane.name.clone()));
            self.firsts.extend(first);
        }
        let unsorted = self.unsorted.as_ref();
        let is_sorted = !lane.is_new && unsorted.is_none_or(|from| name < from.as_bytes());
        let seat = lane.seat(self.of.1);
        if is_sorted && seat != lane.seat {
            let name = lane.name.clone();
            let before = std::mem::replace(&mut lane.seat, seat);
            before.inspect(|seat| self.put(*seat, None));
            seat.inspect(|seat| self.put(*seat, Some(name)));
        }
        Some(result)
    }

    /// Gives the seat to this lane, or removes it.
    fn put(&mut self, seat: Seat, lane: Option<LaneName>) {
        let head = |seats: &BTreeMap<Seat, LaneName>| {
            let first = (seat.0, (0, Turn(0), Rank(Fence(0))));
            let (head, _) = seats.range(first..).next()?;
            (head.0 == seat.0).then_some(head.1)
        };
        let before = head(&self.seats);
        match lane {
            Some(lane) => self.seats.insert(seat, lane),
            None => self.seats.remove(&seat),
        };
        let after = head(&self.seats);
        if before != after {
            if let Some(order) = before {
                self.heads.remove(&order);
            }
            self.heads.extend(after.map(|order| (order, seat.0)));
        }
    }

    /// Notes that the lanes must be sorted anew: what they have in use may have changed without [`Lanes::note`].
    pub fn sort_anew(&mut self) {
        self.seats.clear();
        self.heads.clear();
        self.touched.clear();
        self.unsorted = Some(LaneName::default());
    }

    /// Notes which value's holds are counted, and from where turns count. If these are others than before, the lanes
    /// must be sorted anew. When a server takes over, nobody is chosen.
    pub fn belong_to(&mut self, of: (Option<StateId>, Turn)) {
        if self.of != of {
            self.sort_anew();
            self.chosen.take_if(|_| of.1 != self.of.1);
            self.of = of;
        }
    }

    /// Goes on where these lanes have left off, which had the same places and more.
    pub fn take_up(&mut self, before: &Lanes) {
        self.of = before.of;
        self.chosen.clone_from(&before.chosen);
    }

    /// Sorts lanes, each of which costs one of the budget. Returns whether all of them are sorted.
    pub fn sort(&mut self, budget: &mut u32, in_use: impl Fn(&LaneName) -> InUse) -> bool {
        loop {
            let unsorted = || self.lanes.range(self.unsorted.clone()?..).next();
            let name = match self.touched.last() {
                Some(name) => name.clone(),
                None => match unsorted() {
                    Some((name, _)) => name.clone(),
                    None => {
                        self.unsorted = None;
                        return true;
                    }
                },
            };
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            self.sort_lane(name, &in_use);
        }
    }

    fn sort_lane(&mut self, name: LaneName, in_use: impl Fn(&LaneName) -> InUse) {
        let is_touched = self.touched.pop().is_some();
        if !is_touched {
            let rest = (Bound::Excluded(&name), Bound::Unbounded);
            let next = self.lanes.range::<LaneName, _>(rest).next();
            self.unsorted = next.map(|(name, _)| name.clone());
        }
        let now = in_use(&name);
        let is_empty = self.change(name.as_bytes(), |lane| {
            // The turn of a lane with holds is older than its first place here.
            if std::mem::take(&mut lane.is_new) && now.permits > 0 {
                lane.in_use.turn = now.turn;
            }
            lane.in_use.permits = now.permits;
            if !is_touched {
                lane.seat = None;
            }
            lane.is_empty()
        });
        if is_empty == Some(true) {
            // It has no seat.
            self.lanes.remove(&name);
        }
    }

    /// Whether the lanes are sorted, so that one can be chosen.
    pub fn is_sorted(&self) -> bool {
        self.unsorted.is_none() && self.touched.is_empty()
    }

    /// Chooses the place that is served next under this limit, if one was not chosen before that still waits as the first
    /// of its lane and does not stand aside. Without free permits nobody is chosen anew.
    pub fn choose(&mut self, limit: u32, is_free: bool) {
        debug_assert!(self.is_sorted());
        let chosen = self.chosen.take().filter(|(name, rank)| {
            let seat = self.lanes.get(name).and_then(|lane| lane.seat);
            seat.is_some_and(|seat| seat.1.2 == *rank && fits(seat, limit))
        });
        let first = || self.first(limit).filter(|_| is_free);
        let first = || first().map(|(seat, lane)| (lane.clone(), seat.1.2));
        self.chosen = chosen.or_else(first);
    }

    /// Returns the place that was chosen.
    pub fn chosen(&self) -> Option<Rank> {
        self.chosen.as_ref().map(|(_, rank)| *rank)
    }

    /// Whether nobody could be served under this limit, whatever other lanes give back.
    pub fn all_stand_aside(&self, limit: u32) -> bool {
        self.is_sorted() && self.first(limit).is_none()
    }

    /// Returns the lane that comes first under this limit, unless all stand aside.
    fn first(&self, limit: u32) -> Option<(&Seat, &LaneName)> {
        // With a limit of 0 all stand aside.
        let heads = self.heads.iter().filter(|_| limit > 0);
        let mut seats = heads.map(|(order, permits)| (*permits, *order));
        let seat = seats.find(|seat| fits(*seat, limit))?;
        self.seats.get_key_value(&seat)
    }

    /// Takes the lanes apart, one entry of a map at a step.
    pub fn into_pieces(self) -> impl Iterator<Item = ()> + Send {
        let lines = self.lanes.into_values().flat_map(|lane| lane.line);
        let seats = self.seats.into_iter().map(drop);
        let heads = self.heads.into_iter().map(drop);
        let firsts = self.firsts.into_iter().map(drop);
        lines.map(drop).chain(seats).chain(heads).chain(firsts)
    }

    /// Returns the bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        let sizes = [
            size_of::<(LaneName, Lane)>() + size_of::<(Rank, Ask)>(),
            size_of::<(Seat, LaneName)>(),
            size_of::<(Order, u32)>(),
            size_of::<(Rank, LaneName)>(),
        ];
        let trees = sizes.map(|bytes| heap::tree(self.lanes.len(), bytes));
        heap::allocated(size_of::<Lanes>()) + trees.iter().sum::<usize>()
    }

    /// Whether somebody waits in this lane.
    pub fn has_line(&self, name: &LaneName) -> bool {
        self.lanes
            .get(name)
            .is_some_and(|lane| !lane.line.is_empty())
    }

    /// Returns the lanes in which somebody waits, the longest wait first, each with its first place and how many wait.
    pub fn waiting(&self) -> impl ExactSizeIterator<Item = (&LaneName, Rank, usize)> {
        let firsts = self.firsts.iter();
        firsts.map(|(rank, name)| (name, *rank, self.places(name).0))
    }

    pub fn turn(&self, name: &LaneName) -> Turn {
        let lane = self.lanes.get(name);
        lane.map_or(Turn::default(), |lane| lane.in_use.turn)
    }

    /// Returns how many places in line the lane has, and how many of these are kept.
    pub fn places(&self, name: &LaneName) -> (usize, usize) {
        let lane = self.lanes.get(name);
        lane.map_or((0, 0), |lane| (lane.line.len(), lane.kept))
    }

    /// Counts the places in line of the lane up to and with this one, but no further than `most`.
    /// `None` if the place is in no lane.
    pub fn position(&self, name: &LaneName, rank: Rank, most: usize) -> Option<usize> {
        let line = &self.lanes.get(name)?.line;
        let is_in_line = line.contains_key(&rank);
        is_in_line.then(|| line.range(..=rank).take(most).count())
    }
}

/// Whether the first request of the lane fits under the limit if only its own lane holds.
fn fits((permits, (in_use, ..)): Seat, limit: u32) -> bool {
    in_use + u64::from(permits) <= u64::from(limit)
}

#[cfg(debug_assertions)]
mod invariants;
#[cfg(test)]
mod tests;
