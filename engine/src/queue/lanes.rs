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
//! the key is another one or a server takes over. Until it is done, nobody is chosen. A value that leaves the name
//! takes its holds with it, which is an end of them here: the lanes that had some get a new turn when they are sorted.

use std::collections::{BTreeMap, BTreeSet};

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

#[derive(Debug, Default)]
struct Lane {
    name: LaneName,
    in_use: InUse,
    /// `in_use` has not been copied from the holds since the lane has come.
    is_new: bool,
    /// The [`Seating::removed`] of the value whose holds `in_use` counts.
    counted_since: Turn,
    line: BTreeMap<Rank, Ask>,
    vacant: usize,
    kept: usize,
    /// Where the lane is in the order.
    seat: Option<Seat>,
}

/// Invariants, once [`Lanes::sort`] is done: each lane has a place in line or a vacant one; the seating has the `seat`
/// of each lane whose first request does not exceed its LANELIMIT.
#[derive(Debug, Default)]
pub struct Lanes {
    lanes: BTreeMap<LaneName, Lane>,
    seating: Seating,
    /// The place that was chosen, and did not fit.
    chosen: Option<Rank>,
    /// The lanes that have come or lost their last place since they were last sorted.
    touched: Vec<LaneName>,
}

/// The order of the lanes. Invariant: `heads` has the first seat of each number of permits.
#[derive(Debug, Default)]
struct Seating {
    /// The value whose holds are counted, and the turn from which turns count: up to it a lane has none.
    of: (Option<StateId>, Turn),
    /// The turn that the lanes got whose holds left with a value, when one last did.
    removed: Turn,
    seats: BTreeSet<Seat>,
    heads: BTreeSet<(Order, u32)>,
    /// The lanes in which somebody waits, by their first places.
    firsts: BTreeMap<Rank, LaneName>,
    /// The lanes from this one on are not in the order yet.
    unsorted: Option<LaneName>,
}

impl Lane {
    fn new(name: LaneName, turn: Turn) -> Lane {
        Lane {
            name,
            in_use: InUse { permits: 0, turn },
            is_new: true,
            ..Lane::default()
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

    /// Returns the turn of the lane, if the last removal of a value had this turn.
    fn turn(&self, removed: Turn) -> Turn {
        let has_lost_holds = self.counted_since != removed && self.in_use.permits > 0;
        match has_lost_holds {
            true => removed,
            false => self.in_use.turn,
        }
    }

    fn first(&self) -> Option<Rank> {
        self.line.first_key_value().map(|(rank, _)| *rank)
    }

    fn is_empty(&self) -> bool {
        self.line.is_empty() && self.vacant == 0
    }
}

impl Seating {
    /// Changes a lane, and its seat with it.
    fn change<R>(&mut self, lane: &mut Lane, change: impl FnOnce(&mut Lane) -> R) -> R {
        let before = lane.first();
        let result = change(lane);
        let first = lane.first();
        if first != before {
            before.map(|rank| self.firsts.remove(&rank));
            let first = first.map(|rank| (rank, lane.name.clone()));
            self.firsts.extend(first);
        }
        let unsorted = self.unsorted.as_ref();
        let is_sorted = !lane.is_new && unsorted.is_none_or(|from| lane.name < *from);
        let seat = lane.seat(self.of.1);
        if is_sorted && seat != lane.seat {
            let before = std::mem::replace(&mut lane.seat, seat);
            self.move_lane(before, seat);
        }
        result
    }

    /// Moves a lane from one seat to another.
    fn move_lane(&mut self, before: Option<Seat>, after: Option<Seat>) {
        let group = |seat: Option<Seat>| seat.map(|(permits, _)| permits);
        let groups = [
            group(after).filter(|_| group(after) != group(before)),
            group(before),
        ];
        let old = groups.map(|group| self.head(group?));
        before.map(|seat| self.seats.remove(&seat));
        self.seats.extend(after);
        let new = groups.map(|group| self.head(group?));
        for (old, new) in old.into_iter().zip(new).filter(|(old, new)| old != new) {
            old.map(|head| self.heads.remove(&head));
            self.heads.extend(new);
        }
    }

    /// Returns the first of the seats with this number of permits, for `heads`.
    fn head(&self, permits: u32) -> Option<(Order, u32)> {
        let first = (permits, (0, Turn(0), Rank(Fence(0))));
        let (group, order) = self.seats.range(first..).next()?;
        (*group == permits).then_some((*order, permits))
    }

    /// Returns the first place of the lane that comes first under this limit, unless all stand aside.
    fn first(&self, limit: u32) -> Option<Rank> {
        // With a limit of 0 all stand aside.
        let mut heads = self.heads.iter().filter(|_| limit > 0);
        let head = heads.find(|(order, permits)| fits((*permits, *order), limit));
        head.map(|((.., rank), _)| *rank)
    }
}

impl Lanes {
    /// Returns lanes of which only the nameless one has places.
    pub fn of_nameless(line: BTreeMap<Rank, Ask>, vacant: usize) -> Lanes {
        let mut lanes = Lanes::default();
        if !line.is_empty() || vacant > 0 {
            lanes.come(&LaneName::default(), Turn(0), |lane| {
                lane.kept = line.values().filter(|ask| ask.is_kept).count();
                (lane.line, lane.vacant) = (line, vacant);
            });
        }
        lanes
    }

    /// Whether no lane with a name has a place.
    pub fn are_nameless(&self) -> bool {
        let mut lanes = self.lanes.values();
        lanes.all(|lane| lane.name.is_nameless() || lane.is_empty())
    }

    /// Adds a place, or a vacant one if `ask` is `None`. Of a place in line that is there already, notes what counts of
    /// it now. If the lane is new, it comes with this turn.
    pub fn join(&mut self, name: &LaneName, rank: Rank, ask: Option<Ask>, turn: Turn) {
        self.come(name, turn, |lane| match ask {
            Some(ask) => {
                let before = lane.line.insert(rank, ask);
                lane.kept += usize::from(ask.is_kept);
                lane.kept -= usize::from(before.is_some_and(|before| before.is_kept));
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

    /// Notes what a lane has in use after a grant or the end of a hold, and the turn that it has from then on.
    pub fn note(&mut self, name: &[u8], in_use: InUse) {
        let removed = self.seating.removed;
        self.change(name, |lane| {
            (lane.in_use, lane.counted_since) = (in_use, removed);
        });
    }

    /// Changes a lane to which a place comes. If it is new, it comes with this turn.
    fn come(&mut self, name: &LaneName, turn: Turn, change: impl FnOnce(&mut Lane)) {
        let lane = self.lanes.entry(name.clone()).or_insert_with(|| {
            self.touched.push(name.clone());
            Lane::new(name.clone(), turn)
        });
        self.seating.change(lane, change);
    }

    fn change<R>(&mut self, name: &[u8], change: impl FnOnce(&mut Lane) -> R) -> Option<R> {
        let lane = self.lanes.get_mut(name)?;
        Some(self.seating.change(lane, change))
    }

    /// Notes that the lanes must be sorted anew: what they have in use may have changed without [`Lanes::note`].
    pub fn sort_anew(&mut self) {
        self.seating.seats.clear();
        self.seating.heads.clear();
        // A server that follows another sorts no lanes, and must not keep those that are over.
        for name in self.touched.drain(..) {
            if self.lanes.get(&name).is_some_and(Lane::is_empty) {
                self.lanes.remove(&name);
            }
        }
        self.seating.unsorted = Some(LaneName::default());
    }

    /// Notes that the value has left the name, and its holds with it: the lanes that had some get this turn.
    pub fn removed(&mut self, turn: Turn) {
        self.seating.removed = turn;
        self.sort_anew();
    }

    /// Notes which value's holds are counted, and from where turns count. If these are others than before, the lanes
    /// must be sorted anew, and `turn` is that of a removal. When a server takes over, nobody is chosen.
    pub fn belong_to(&mut self, of: (Option<StateId>, Turn), turn: Turn) {
        let before = self.seating.of;
        if before.0 != of.0 {
            self.removed(turn);
        }
        if before.1 != of.1 {
            self.sort_anew();
            self.chosen = None;
        }
        self.seating.of = of;
    }

    /// Goes on where these lanes have left off, which had the same places and more.
    pub fn take_up(&mut self, before: &Lanes) {
        self.seating.of = before.seating.of;
        self.chosen = before.chosen;
    }

    /// Sorts lanes, each of which costs one of the budget. Returns whether all of them are sorted.
    pub fn sort(&mut self, budget: &mut u32, in_use: impl Fn(&LaneName) -> InUse) -> bool {
        while !self.is_sorted() && *budget > 0 {
            *budget -= 1;
            let touched = self.touched.pop();
            let is_touched = touched.is_some();
            if let Some(name) = touched.or_else(|| self.next_unsorted()) {
                self.sort_lane(&name, in_use(&name), is_touched);
            }
        }
        self.is_sorted()
    }

    fn next_unsorted(&mut self) -> Option<LaneName> {
        let from = self.seating.unsorted.take()?;
        let mut names = self.lanes.range(from..).map(|(name, _)| name.clone());
        let name = names.next();
        self.seating.unsorted = names.next();
        name
    }

    fn sort_lane(&mut self, name: &LaneName, now: InUse, is_touched: bool) {
        let removed = self.seating.removed;
        let is_empty = self.change(name.as_bytes(), |lane| {
            lane.in_use.turn = lane.turn(removed);
            lane.counted_since = removed;
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
            self.lanes.remove(name);
        }
    }

    /// Whether the lanes are sorted, so that one can be chosen.
    pub fn is_sorted(&self) -> bool {
        self.seating.unsorted.is_none() && self.touched.is_empty()
    }

    /// Chooses the place that is served next under this limit, if one was not chosen before that still waits as the first
    /// of its lane and does not stand aside. Without free permits nobody is chosen anew.
    pub fn choose(&mut self, limit: u32, is_free: bool) {
        debug_assert!(self.is_sorted());
        let lane = |rank: &Rank| self.lanes.get(self.seating.firsts.get(rank)?);
        let seat = |rank: &Rank| lane(rank)?.seat;
        let fits = |rank: &Rank| seat(rank).is_some_and(|seat| fits(seat, limit));
        let chosen = self.chosen.filter(fits);
        let first = || self.seating.first(limit).filter(|_| is_free);
        self.chosen = chosen.or_else(first);
    }

    /// Returns the place that was chosen.
    pub fn chosen(&self) -> Option<Rank> {
        self.chosen
    }

    /// Whether nobody could be served under this limit, whatever other lanes give back.
    pub fn all_stand_aside(&self, limit: u32) -> bool {
        self.is_sorted() && self.seating.first(limit).is_none()
    }

    /// Takes the lanes apart, one entry of a map at a step.
    pub fn into_pieces(self) -> impl Iterator<Item = ()> + Send {
        let lines = self.lanes.into_values().flat_map(|lane| lane.line);
        let seats = self.seating.seats.into_iter().map(drop);
        let heads = self.seating.heads.into_iter().map(drop);
        let firsts = self.seating.firsts.into_iter().map(drop);
        lines.map(drop).chain(seats).chain(heads).chain(firsts)
    }

    /// Returns the bytes on the heap that so many of the places take, as if they were spread evenly over the lanes that
    /// have some. The names are the places'.
    pub fn heap_bytes(&self, places: usize) -> usize {
        let lines = self.seating.firsts.len().min(places);
        let line = heap::tree(places.div_ceil(lines.max(1)), size_of::<(Rank, Ask)>());
        let sizes = [
            size_of::<(LaneName, Lane)>(),
            size_of::<Seat>(),
            size_of::<(Order, u32)>(),
            size_of::<(Rank, LaneName)>(),
        ];
        let trees = sizes.map(|bytes| heap::tree(self.lanes.len().min(places), bytes));
        heap::allocated(size_of::<Lanes>()) + trees.iter().sum::<usize>() + lines * line
    }

    /// Returns the lanes in which somebody waits, the longest wait first, each with its first place and how many wait.
    pub fn waiting(&self) -> impl ExactSizeIterator<Item = (&LaneName, Rank, usize)> {
        let firsts = self.seating.firsts.iter();
        firsts.map(|(rank, name)| (name, *rank, self.places(name).0))
    }

    pub fn turn(&self, name: &LaneName) -> Turn {
        let lane = self.lanes.get(name);
        lane.map_or(Turn::default(), |lane| lane.turn(self.seating.removed))
    }

    /// Returns how many places in line the lane has, and how many of these are kept.
    pub fn places(&self, name: &LaneName) -> (usize, usize) {
        let lane = self.lanes.get(name);
        lane.map_or((0, 0), |lane| (lane.line.len(), lane.kept))
    }

    /// Returns the position of a place in its lane: see [`position`].
    pub fn position(&self, name: &LaneName, rank: Rank, most: usize) -> usize {
        if self.seating.firsts.contains_key(&rank) {
            return 1;
        }
        let lane = self.lanes.get(name);
        lane.map_or(0, |lane| position(&lane.line, rank, most))
    }
}

/// Counts the places in a line up to and with this one, but no further than `most`.
pub fn position<T>(line: &BTreeMap<Rank, T>, rank: Rank, most: usize) -> usize {
    // A new request is the last, so it need not be counted.
    let last = line.last_key_value();
    match last.is_some_and(|(last, _)| *last == rank) {
        true => line.len().min(most),
        false => line.range(..=rank).take(most).count(),
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
