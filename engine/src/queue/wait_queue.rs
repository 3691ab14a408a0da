//! The queue of one key: first come, first served.
//!
//! Requests join at the back. Without lanes they are granted one after the other from the front, and none is served
//! before the first. So small requests cannot starve a request for many permits: freed permits accumulate until there are
//! enough for it. With lanes, [`super::lanes`] says whose first request is served.
//!
//! A place is *in line* if its client waits or if it is kept (QUEUE). A *vacant* place keeps its rank but delays no other
//! request. Vacant places are in a map of their own, so the first in line is found without stepping over them.
//! *Watchers* (WAIT of a group) claim nothing, and are answered all together.
//!
//! Ordered maps by rank are used rather than a linked list: to leave and to find the head cost a few comparisons, a
//! retry takes its vacant place in the middle without a walk, and no step copies the queue.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use crate::answer::Answer;
use crate::change::KeptPlace;
use crate::heap;
use crate::queue::lanes::{Lanes, position};
use crate::queue::place::{Parked, Place, Presence, Watcher};
use crate::short_bytes::KeyName;
use crate::store::slab::StateId;
use crate::store::spaces::Space;
use crate::types::{Db, Family, LeaseUs, MonoUs, Rank, Token, Turn};

mod drop_kept;
mod in_lanes;
mod index;
#[cfg(debug_assertions)]
mod invariants;
mod watchers;

use in_lanes::QueueLanes;
use index::Index;

/// Invariants: a rank is in exactly one of the maps of places; `index` is that of the places in line and the vacant
/// ones; a kept place is in line. What changes the places is for [`Queues`](super::queues::Queues) alone, which counts
/// and lists them.
pub struct WaitQueue {
    pub db: Db,
    pub name: KeyName,
    /// The state with which the kept places are saved, because it was the value of the name when they were last looked
    /// at. It may have left its key since.
    pub holder: Option<StateId>,
    /// The contents of the database with which the kept places came. If the database was flushed since, they count for
    /// nothing: see [`super::sweep`].
    pub(super) space: Space,
    /// A flush of names that has a greater number than this came after the kept places: see [`super::sweep`].
    pub(super) kept_from: u64,
    /// The moment under which the queue is in `Queues::by_since`; `None` if it has no waiters.
    pub(super) since: Option<MonoUs>,
    /// How many of its lanes are counted in `Queues::lanes`; `None` if it keeps none.
    pub(super) lanes_before: Option<usize>,
    line: BTreeMap<Rank, Place>,
    vacant: BTreeMap<Rank, Place>,
    index: Index,
    /// Where requests for permits stand, if a place names a lane.
    pub lanes: QueueLanes,
    watching: BTreeMap<Rank, Watcher>,
    /// Watchers whose answer is decided but not sent yet, because a visit sends a bounded number of answers. Each answer
    /// has a watcher.
    answered: VecDeque<(Answer, BTreeMap<Rank, Watcher>)>,
    /// A request has left unserved since the last visit: until then new requests had to queue behind it.
    pub left_unserved: bool,
    /// A request has left unserved since the key was last settled, which notes until when requests waited.
    pub left_unsettled: bool,
    /// For each family, the limit that was last in force or given by a request: see [`WaitQueue::limit`].
    limits: [Option<u32>; Family::ALL.len()],
}

/// What has left a queue.
pub enum Left {
    Place(Place),
    Watcher(Watcher),
}

impl Left {
    /// Returns the client that waited, if one did.
    pub fn parked(&self) -> Option<Parked> {
        match self {
            Left::Place(place) => place.parked(),
            Left::Watcher(watcher) => Some(watcher.parked),
        }
    }

    pub fn family(&self) -> Family {
        match self {
            Left::Place(place) => place.claim.family(),
            Left::Watcher(_) => Family::Group,
        }
    }
}

/// A piece of a queue that was taken apart: a kept place with the moment until which it was kept, or something else.
pub type Piece = Option<(LeaseUs, Rank)>;

impl WaitQueue {
    pub(super) fn new(db: Db, name: KeyName, space: Space, number: u64) -> WaitQueue {
        WaitQueue {
            db,
            name,
            holder: None,
            space,
            kept_from: number,
            since: None,
            lanes_before: None,
            line: BTreeMap::new(),
            vacant: BTreeMap::new(),
            index: Index::default(),
            lanes: QueueLanes::default(),
            watching: BTreeMap::new(),
            answered: VecDeque::new(),
            left_unserved: false,
            left_unsettled: false,
            limits: [None; Family::ALL.len()],
        }
    }

    pub fn is_empty(&self) -> bool {
        !self.has_waiters() && self.vacant.is_empty()
    }

    /// The number of places, vacant ones and watchers included, to compare with the bounds.
    pub fn len(&self) -> usize {
        self.waiters() + self.vacant.len()
    }

    /// Returns the number of requests that wait: those whose client waits for a reply, and kept places.
    pub fn waiters(&self) -> usize {
        let answered = self.answered.iter().map(|(_, watchers)| watchers.len());
        self.line.len() + self.watching.len() + answered.sum::<usize>()
    }

    /// Whether there are requests that wait, without counting them.
    pub fn has_waiters(&self) -> bool {
        !self.line.is_empty() || !self.watching.is_empty() || !self.answered.is_empty()
    }

    /// Whether requests wait, or one has left and its key was not settled since: until then it counts as one that waits.
    /// A vacant place does not count.
    pub fn is_waited_in(&self) -> bool {
        self.has_waiters() || self.left_unsettled
    }

    pub fn kept(&self) -> usize {
        self.index.kept
    }

    /// Returns the number of places in line by family.
    pub fn by_family(&self) -> [usize; Family::ALL.len()] {
        self.index.by_family
    }

    /// Returns the bytes that the kept places take in this queue.
    pub fn kept_heap_bytes(&self) -> usize {
        let kept = self.index.kept;
        let trees = [
            (kept, size_of::<(Rank, Place)>()),
            (kept, size_of::<(Token, Rank)>()),
            (self.index.heavy.len(), size_of::<(u32, Rank)>()),
            (self.index.capped.len(), size_of::<(u32, Rank)>()),
        ];
        let trees = trees.map(|(entries, bytes)| heap::tree(entries.min(kept), bytes));
        let lanes = self.lanes();
        let lanes = lanes.map_or(0, |lanes| lanes.heap_bytes(kept));
        self.index.kept_bytes + trees.iter().sum::<usize>() + lanes
    }

    /// Returns how many clients wait for a grant.
    pub fn parked(&self) -> usize {
        self.index.parked
    }

    /// Whether a request waits for a grant, so that a new one must queue behind it.
    pub fn has_line(&self) -> bool {
        !self.line.is_empty()
    }

    /// Whether a request waits that is not of this family.
    pub fn has_other_line(&self, family: Family) -> bool {
        self.index.by_family[family as usize] < self.line.len()
    }

    /// Whether all who wait stand aside under this limit, in lanes.
    pub fn all_stand_aside(&self, limit: u32) -> bool {
        let lanes = self.lanes();
        let lanes = lanes.filter(|_| !self.has_other_line(Family::Semaphore));
        lanes.is_some_and(|lanes| lanes.all_stand_aside(limit))
    }

    /// Returns the lanes, if a place of the queue names one.
    pub fn lanes(&self) -> Option<&Lanes> {
        self.lanes.get()
    }

    pub(super) fn begin_lanes(&mut self) {
        self.lanes.begin(&self.line, &self.vacant);
    }

    /// Returns the limit under which the next waiter of this family begins after the key was removed. Each
    /// family has its own: vacant places can keep the queue of a semaphore while another family reuses the key, and a
    /// waiter of that family must not be granted under the semaphore's limit.
    pub fn limit(&self, family: Family) -> Option<u32> {
        self.limits[family as usize]
    }

    /// Remembers the limit that is in force, or was asked for, in this family.
    pub fn remember_limit(&mut self, family: Family, limit: u32) {
        self.limits[family as usize] = Some(limit);
    }

    /// Returns the first place in line: the one that is served next, unless lanes choose another.
    pub fn head(&self) -> Option<&Place> {
        self.line.values().next()
    }

    /// Returns the place of this token.
    pub fn find(&self, token: &Token) -> Option<&Place> {
        let rank = self.index.by_token.get(token)?;
        self.line.get(rank).or_else(|| self.vacant.get(rank))
    }

    /// Returns the place in line with this rank.
    pub fn place(&self, rank: Rank) -> Option<&Place> {
        self.line.get(&rank)
    }

    /// Returns the rank of this token's kept place.
    pub fn find_kept(&self, token: &Token) -> Option<Rank> {
        let place = self.find(token).filter(|place| place.is_kept());
        place.map(Place::rank)
    }

    /// Whether a place in line or a vacant one has this rank.
    pub fn has(&self, rank: Rank) -> bool {
        self.line.contains_key(&rank) || self.vacant.contains_key(&rank)
    }

    /// Counts the places in line up to and with this one, but no further than `most`. With lanes, only those of its lane
    /// count.
    pub fn position(&self, rank: Rank, most: usize) -> usize {
        if let Some(lanes) = self.lanes()
            && let Some(place) = self.line.get(&rank).filter(|place| place.is_for_permits())
        {
            return lanes.position(&place.lane, rank, most);
        }
        position(&self.line, rank, most)
    }

    /// Returns the place in line that comes after this one.
    pub fn place_after(&self, rank: Rank) -> Option<&Place> {
        let rest = (Bound::Excluded(rank), Bound::Unbounded);
        self.line.range(rest).next().map(|(_, place)| place)
    }

    /// Returns the place in line that asks for the most permits, if it asks for more than one.
    pub fn heaviest(&self) -> Option<&Place> {
        let (_, rank) = self.index.heavy.last()?;
        self.line.get(rank)
    }

    /// Returns the place in line that allows the fewest attempts, if one bounds them.
    pub fn least_patient(&self) -> Option<&Place> {
        let (_, rank) = self.index.capped.first()?;
        self.line.get(rank)
    }

    pub fn oldest_vacant(&self) -> Option<Rank> {
        self.vacant.keys().next().copied()
    }

    /// Puts a place into the queue. Its rank must be free. If its lane is new, it has this turn.
    pub(super) fn join(&mut self, place: Place, turn: Turn) {
        debug_assert!(!self.has(place.rank()));
        if !place.lane.is_nameless() {
            self.begin_lanes();
        }
        self.lanes.enter(&place, turn);
        self.index.note(&place, true);
        let places = match place.is_in_line() {
            true => &mut self.line,
            false => &mut self.vacant,
        };
        places.insert(place.rank(), place);
    }

    /// Puts kept places into the queue, which is empty, for [`Queues::make_kept`](super::queues::Queues::make_kept). A new
    /// lane has this turn or, the later its first place stands, a later one.
    pub(super) fn join_all(&mut self, places: Vec<Place>, turn: Turn) {
        if places.iter().any(|place| !place.lane.is_nameless()) {
            self.begin_lanes();
        }
        for (n, place) in (0..).zip(&places) {
            self.lanes.enter(place, Turn(turn.0 + n));
            self.index.count(place, true);
        }
        let tokens = places.iter();
        let tokens = tokens.map(|place| (place.token.clone(), place.rank()));
        self.index.by_token = tokens.collect();
        let places = places.into_iter();
        self.line = places.map(|place| (place.rank(), place)).collect();
    }

    /// Notes that nobody waits on a kept place any more. Returns who was there; `None` if there is no such place.
    pub(super) fn detach(&mut self, rank: Rank, until: LeaseUs) -> Option<Presence> {
        let place = self.line.get_mut(&rank).filter(|place| place.is_kept())?;
        self.index.parked -= usize::from(place.parked().is_some());
        let kept = Presence::Kept { until };
        Some(std::mem::replace(&mut place.presence, kept))
    }

    /// Makes a kept place on which a client waits one that lasts only as long as the wait. Returns whether one waits.
    pub(super) fn unkeep(&mut self, rank: Rank) -> bool {
        let place = self.line.get_mut(&rank);
        let Some(place) = place.filter(|place| place.parked().is_some()) else {
            return false;
        };
        if place.is_kept() {
            place.standing = place.standing.with(None, place.standing.bound());
            self.index.kept -= 1;
            self.index.kept_bytes -= place.heap_bytes();
            self.lanes.enter(place, Turn::default());
        }
        true
    }

    /// Removes the place or the watcher with this rank.
    pub(super) fn leave(&mut self, rank: Rank) -> Option<Left> {
        let place = self.line.remove(&rank);
        if let Some(place) = place.or_else(|| self.vacant.remove(&rank)) {
            self.index.note(&place, false);
            self.lanes.leave(&place);
            return Some(Left::Place(place));
        }
        let answered = self.answered.iter_mut().map(|(_, watchers)| watchers);
        let mut watchers = std::iter::once(&mut self.watching).chain(answered);
        let watcher = watchers.find_map(|watchers| watchers.remove(&rank))?;
        self.answered.retain(|(_, watchers)| !watchers.is_empty());
        Some(Left::Watcher(watcher))
    }

    /// Returns the places in line, by rank: in the order in which they will be served, unless lanes choose.
    pub fn line(&self) -> impl Iterator<Item = &Place> {
        self.line.values()
    }

    /// Returns what other servers and files know of the kept places of this family, in the order of their ranks.
    pub fn kept_places(&self, family: Family) -> impl Iterator<Item = KeptPlace> {
        let all = self.line.values().filter(move |_| self.index.kept > 0);
        let all = all.filter(move |place| place.claim.family() == family);
        all.filter_map(Place::kept_place)
    }

    /// The family that the queued requests belong to.
    pub fn family(&self) -> Option<Family> {
        let watched = self.has_waiters().then_some(Family::Group);
        self.head().map(|place| place.claim.family()).or(watched)
    }

    /// Returns when the longest wait began.
    pub fn waiting_since(&self) -> Option<MonoUs> {
        // Ranks are drawn in the order of arrival, so the first of each kind is its oldest.
        let head = self.head().map(|place| place.standing.since);
        let watcher = self.watching.values().next().map(|watcher| watcher.since);
        head.into_iter().chain(watcher).min()
    }

    /// Takes the queue apart, one entry of one map at a step.
    pub fn into_pieces(self) -> impl Iterator<Item = Piece> + Send + use<> {
        let answered = self.answered.into_iter();
        let answered = answered.flat_map(|(_, watchers)| watchers);
        pieces_of(self.line, self.index, self.lanes.0)
            .chain(self.vacant.into_iter().map(|_| None))
            .chain(self.watching.into_iter().map(|_| None))
            .chain(answered.map(|_| None))
    }
}

/// Takes places in line apart, and their index and lanes.
fn pieces_of(
    line: BTreeMap<Rank, Place>,
    index: Index,
    lanes: Option<Box<Lanes>>,
) -> impl Iterator<Item = Piece> + Send + use<> {
    let kept = |place: Place| Some((place.kept_until()?.1, place.rank()));
    let line = line.into_values().map(kept);
    let lanes = lanes.into_iter().flat_map(|lanes| lanes.into_pieces());
    line.chain(index.by_token.into_iter().map(|_| None))
        .chain(index.heavy.into_iter().map(|_| None))
        .chain(index.capped.into_iter().map(|_| None))
        .chain(lanes.map(|()| None))
}

#[cfg(test)]
mod tests;
