//! All queues of the server, found by key, by request and by connection, and all moments at which a wait or a vacant
//! place runs out.
//!
//! A queue belongs to a database number and a name, not to a value: it outlives the removal of its key, and SWAPDB does
//! not move it. A queue exists only while it has entries. On a server that follows another these are kept places.
//!
//! Each change of a queue must change all indexes in the same function, so they are here together. What concerns only
//! kept places is in [`super::kept`]; how many may wait, in [`super::room`]; how a flush drops kept places, and how queues
//! become due, in [`super::sweep`].

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use dsync_numbered::Numbered;

use crate::answer::Answer;
use crate::queue::place::{Place, Presence, Watcher};
use crate::queue::wait_queue::{Left, Piece, WaitQueue};
use crate::short_bytes::KeyName;
use crate::store::leftovers::Leftovers;
use crate::store::spaces::Spaces;
use crate::timetable::Timetable;
use crate::types::{ClientId, Db, Family, LeaseUs, MonoUs, QueueId, Rank, Turn, WaiterId};

/// How many requests, or connections, share a page. Small, because of many that came together one may wait for long.
const PER_PAGE: usize = 16;

/// Invariants:
/// - every request whose client waits is in `by_waiter`, and in `waits` if its wait runs out;
/// - every queue that has waiters is in `by_since`, under the moment at which its longest wait began;
/// - `due` has only queues that exist;
/// - a queue without places is due, or its visit is put off, and it is dropped when it is visited.
#[derive(Default)]
pub struct Queues {
    pub(super) queues: BTreeMap<QueueId, WaitQueue>,
    pub(super) by_key: BTreeMap<Db, BTreeMap<KeyName, QueueId>>,
    /// Where each request waits, by the number of its [`WaiterId`].
    pub(super) by_waiter: Numbered<(QueueId, Rank), PER_PAGE>,
    /// The request that each connection waits with, by the number of its [`ClientId`]: a connection waits for one reply
    /// at a time.
    pub(super) by_client: Numbered<WaiterId, PER_PAGE>,
    /// The queues that have waiters, the longest wait first.
    pub(super) by_since: BTreeSet<(MonoUs, QueueId)>,
    /// When waits run out.
    pub(super) waits: BTreeSet<(MonoUs, Rank, QueueId)>,
    /// When vacant places run out. The first is given up when room is needed: of several that run out together, the one
    /// that was taken first.
    pub(super) vacant: BTreeSet<(MonoUs, Rank, QueueId)>,
    /// When kept places run out on which nobody waits, by the lease clock. A place without a moment is not listed. Places
    /// that a flush has dropped are listed until they are taken apart.
    pub(super) keeps: BTreeSet<(LeaseUs, QueueId, Rank)>,
    /// The queues that must be visited, each with its turn.
    pub(super) due: Timetable<QueueId, u64>,
    /// The running sweeps, by database; `None` is the sweep over all databases.
    pub(super) sweeps: BTreeMap<Option<Db>, Sweep>,
    /// The names whose kept places are gone, until the sweeps have come to all queues.
    pub(super) flushed_names: Vec<FlushedNames>,
    pub(super) places: u64,
    /// The number of kept places among `places`.
    pub(super) kept: u64,
    /// The number of requests that wait, by family: those whose client waits for a reply, and kept places.
    pub(super) waiting: [u64; Family::ALL.len()],
    /// The number of lanes in which somebody waits.
    pub(super) lanes: u64,
    /// The number of queues that keep lanes.
    pub(super) with_lanes: u64,
    pub(super) last_number: u64,
    /// The turn at which this server took over.
    pub(super) turns_from: Turn,
    /// The contents of the databases that kept places belong to. SWAPDB does not exchange them here.
    pub(super) spaces: Spaces,
    /// Pieces of kept places that flushes have dropped, with the queue that each of them was in.
    pub(super) dropped: Leftovers<(QueueId, Piece)>,
}

/// Tells whether a name is among some.
type Names = Box<dyn Fn(&[u8]) -> bool + Send>;

/// Names of a database that were flushed.
pub(super) struct FlushedNames {
    pub(super) db: Db,
    /// Drawn as queues' numbers are. A queue whose kept places came later lost none.
    pub(super) number: u64,
    pub(super) names: Names,
}

/// A walk over all queues in the order of their numbers.
#[derive(Default)]
pub(super) struct Sweep {
    /// The queue that was looked at last.
    pub(super) after: Option<QueueId>,
    /// Only queues that were flushed become due.
    pub(super) of_flushed: bool,
    /// A sweep was asked for during this one: begin again from the start at the end.
    pub(super) again: bool,
}

impl Queues {
    /// Returns the queue of a key, if there is one. Most servers have none at most times.
    #[inline]
    pub fn find(&self, db: Db, name: &[u8]) -> Option<QueueId> {
        match self.queues.is_empty() {
            true => None,
            false => self.find_by_key(db, name),
        }
    }

    #[inline(never)]
    fn find_by_key(&self, db: Db, name: &[u8]) -> Option<QueueId> {
        self.by_key.get(&db)?.get(name).copied()
    }

    pub fn get(&self, id: QueueId) -> Option<&WaitQueue> {
        self.queues.get(&id)
    }

    pub fn get_mut(&mut self, id: QueueId) -> Option<&mut WaitQueue> {
        self.queues.get_mut(&id)
    }

    /// Returns the queue of a key, and makes it if there is none. The caller must add a place at once, because no
    /// queue may be empty.
    pub fn find_or_make(&mut self, db: Db, name: &[u8]) -> QueueId {
        if let Some(id) = self.find(db, name) {
            return id;
        }
        let id = QueueId(self.number());
        let name = KeyName::from(name);
        self.by_key.entry(db).or_default().insert(name.clone(), id);
        let space = self.spaces.of(db);
        self.queues
            .insert(id, WaitQueue::new(db, name, space, id.0));
        id
    }

    pub fn next_waiter(&mut self) -> WaiterId {
        WaiterId(NonZeroU64::new(self.number()).unwrap_or(NonZeroU64::MIN))
    }

    pub(super) fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Puts a place into a queue.
    pub fn join(&mut self, id: QueueId, place: Place) {
        self.places += 1;
        self.kept += u64::from(place.is_kept());
        if place.is_in_line() {
            self.waiting[place.claim.family() as usize] += 1;
        }
        self.list(id, place.rank(), &place.presence);
        let turn = Turn(self.number());
        self.change(id, |queue| queue.join(place, turn));
    }

    /// Makes the queue of a name that has none, of these kept places of one family, whose ranks rise and whose tokens
    /// differ. Much faster than to add one after the other.
    pub fn make_kept(&mut self, db: Db, name: &[u8], places: Vec<Place>) {
        let Some(first) = places.first() else { return };
        let (family, all) = (first.claim.family(), places.len() as u64);
        let id = self.find_or_make(db, name);
        self.places += all;
        self.kept += all;
        self.waiting[family as usize] += all;
        for place in &places {
            self.list(id, place.rank(), &place.presence);
        }
        let turn = Turn(self.number());
        self.last_number += all;
        self.change(id, |queue| queue.join_all(places, turn));
    }

    /// Puts a watcher into a queue, perhaps one whose answer is decided already.
    pub fn watch(&mut self, id: QueueId, rank: Rank, watcher: Watcher, decided: Option<Answer>) {
        self.places += 1;
        self.waiting[Family::Group as usize] += 1;
        self.list(id, rank, &Presence::Parked(watcher.parked));
        self.change(id, |queue| queue.watch(rank, watcher, decided));
    }

    /// Decides the answer of all present watchers.
    pub fn answer_watchers(&mut self, id: QueueId, answer: Answer) {
        self.change(id, |queue| queue.answer_watchers(answer));
    }

    /// Changes the places of a queue, and keeps `by_since` and `lanes` right.
    pub(super) fn change<R>(
        &mut self,
        id: QueueId,
        change: impl FnOnce(&mut WaitQueue) -> R,
    ) -> Option<R> {
        let queue = self.queues.get_mut(&id)?;
        let result = change(queue);
        let lanes = queue.lanes().map(|lanes| lanes.waiting().len());
        if lanes != queue.lanes_before {
            let before = std::mem::replace(&mut queue.lanes_before, lanes);
            let waiting = |lanes: Option<usize>| lanes.unwrap_or(0) as u64;
            self.lanes = self.lanes + waiting(lanes) - waiting(before);
            self.with_lanes =
                self.with_lanes + u64::from(lanes.is_some()) - u64::from(before.is_some());
        }
        let since = queue.waiting_since();
        if since != queue.since {
            if let Some(before) = std::mem::replace(&mut queue.since, since) {
                self.by_since.remove(&(before, id));
            }
            self.by_since.extend(since.map(|since| (since, id)));
        }
        Some(result)
    }

    /// Lists a place where it is found by who is there.
    pub(super) fn list(&mut self, id: QueueId, rank: Rank, presence: &Presence) {
        match presence {
            Presence::Parked(parked) => {
                self.by_waiter.insert(parked.waiter.0.get(), (id, rank));
                self.by_client.insert(parked.client.0, parked.waiter);
                if parked.until != MonoUs::NEVER {
                    self.waits.insert((parked.until, rank, id));
                }
            }
            Presence::Kept { until: LeaseUs(0) } => {}
            Presence::Kept { until } => drop(self.keeps.insert((*until, id, rank))),
            Presence::Vacant { until, .. } => drop(self.vacant.insert((*until, rank, id))),
        }
    }

    /// Undoes [`Queues::list`].
    pub(super) fn unlist(&mut self, id: QueueId, rank: Rank, presence: &Presence) {
        match presence {
            Presence::Parked(parked) => {
                self.by_waiter.remove(parked.waiter.0.get());
                // The connection may already wait with a newer request, which superseded this one.
                let is_its_own = |waiter: &mut WaiterId| *waiter == parked.waiter;
                self.by_client.remove_if(parked.client.0, is_its_own);
                if parked.until != MonoUs::NEVER {
                    self.waits.remove(&(parked.until, rank, id));
                }
            }
            Presence::Kept { until } => self.unlist_keep(*until, id, rank),
            Presence::Vacant { until, .. } => drop(self.vacant.remove(&(*until, rank, id))),
        }
    }

    /// Removes the place or watcher with this rank from the queue and from every index, and returns it. If the queue is
    /// empty then, it is due, and stays until [`Queues::drop_if_empty`].
    pub fn leave(&mut self, id: QueueId, rank: Rank) -> Option<Left> {
        let (left, is_empty) = self.change(id, |queue| (queue.leave(rank), queue.is_empty()))?;
        let left = left?;
        self.places -= 1;
        match &left {
            Left::Place(place) => {
                self.kept -= u64::from(place.is_kept());
                if place.is_in_line() {
                    self.waiting[place.claim.family() as usize] -= 1;
                }
                self.unlist(id, rank, &place.presence);
            }
            Left::Watcher(watcher) => {
                self.waiting[Family::Group as usize] -= 1;
                self.unlist(id, rank, &Presence::Parked(watcher.parked));
            }
        }
        if is_empty {
            self.set_due(id);
        }
        Some(left)
    }

    pub fn drop_if_empty(&mut self, id: QueueId) {
        let Some(queue) = self.queues.get(&id).filter(|queue| queue.is_empty()) else {
            return;
        };
        if let Some(names) = self.by_key.get_mut(&queue.db) {
            names.remove(&queue.name);
            if names.is_empty() {
                self.by_key.remove(&queue.db);
            }
        }
        self.with_lanes -= u64::from(queue.lanes_before.is_some());
        self.queues.remove(&id);
        self.due.remove(id);
    }

    /// Makes the queue due, behind all others, unless it is due already.
    pub fn set_due(&mut self, id: QueueId) {
        if self.queues.contains_key(&id) && !self.is_due(id) {
            let turn = self.due.last().map_or(0, |(turn, _)| turn + 1);
            self.due.set(id, turn, ());
        }
    }

    /// Notes that a request has left the queue unserved, so the queue must be visited.
    pub fn left_unserved(&mut self, id: QueueId) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.left_unserved = true;
            queue.left_unsettled = true;
        }
        self.set_due(id);
    }

    /// Notes that the queue has been visited.
    pub fn mark_visited(&mut self, id: QueueId) {
        self.due.remove(id);
    }

    /// Notes that the queue has been visited and nothing is left to do for it. Drops it if it is empty, and its lanes if no
    /// place names one any more.
    pub fn finish_visit(&mut self, id: QueueId) {
        self.mark_visited(id);
        if self.keep_any_lanes() {
            self.change(id, |queue| queue.lanes.cease());
        }
        self.drop_if_empty(id);
    }

    pub fn is_due(&self, id: QueueId) -> bool {
        self.due.get(id).is_some()
    }

    /// Returns the queue that has been due for longest.
    pub fn first_due(&self) -> Option<QueueId> {
        self.due.first().map(|(_, id)| id)
    }

    /// The number of requests that wait, by family: those whose client waits for a reply, and kept places. Vacant places
    /// are no waiters.
    pub fn waiting(&self, family: Family) -> u64 {
        self.waiting[family as usize]
    }

    /// Whether the kept places of the queue came before a flush of its database or of its name.
    pub(super) fn is_flushed(&self, queue: &WaitQueue) -> bool {
        let is_named = |flushed: &FlushedNames| {
            flushed.number > queue.kept_from
                && flushed.db == queue.db
                && (flushed.names)(queue.name.as_bytes())
        };
        self.spaces.db(queue.space).is_none() || self.flushed_names.iter().any(is_named)
    }

    /// Whether any queue keeps lanes.
    pub fn keep_any_lanes(&self) -> bool {
        self.with_lanes > 0
    }

    /// Returns the databases that have queues.
    pub fn databases(&self) -> impl Iterator<Item = Db> {
        self.by_key.keys().copied()
    }

    /// Returns the queues that have waiters, the longest wait first, each with the moment at which that wait began.
    pub fn by_longest_wait(&self) -> impl Iterator<Item = (MonoUs, &WaitQueue)> {
        let queues = self.by_since.iter();
        queues.filter_map(|(since, id)| Some((*since, self.get(*id)?)))
    }

    /// Returns where this request waits.
    pub fn place_of(&self, waiter: WaiterId) -> Option<(QueueId, Rank)> {
        self.by_waiter.get(waiter.0.get()).copied()
    }

    pub fn waiter_of(&self, client: ClientId) -> Option<WaiterId> {
        self.by_client.get(client.0).copied()
    }

    /// Returns the wait or the vacant place that runs out next, and when.
    pub fn first_moment(&self) -> Option<(MonoUs, QueueId, Rank)> {
        let (wait, vacant) = (self.waits.first(), self.vacant.first());
        let (moment, rank, id) = *wait.into_iter().chain(vacant).min()?;
        Some((moment, id, rank))
    }

    /// Removes a moment from the list of those at which kept places run out. The place stays.
    pub fn unlist_keep(&mut self, until: LeaseUs, id: QueueId, rank: Rank) {
        self.keeps.remove(&(until, id, rank));
    }

    /// Returns all requests whose client waits for a reply.
    pub fn waiters(&self) -> impl Iterator<Item = WaiterId> {
        let numbers = self.by_waiter.iter();
        numbers.filter_map(|(number, _)| NonZeroU64::new(number).map(WaiterId))
    }

    /// Removes all queues, and returns them.
    #[must_use]
    pub fn clear(&mut self) -> Queues {
        let empty = Queues {
            last_number: self.last_number,
            ..Queues::default()
        };
        std::mem::replace(self, empty)
    }

    /// Takes the queues apart, one map entry at a step.
    pub fn into_pieces(self) -> impl Iterator<Item = ()> + Send + 'static {
        let queues = self.queues.into_values();
        let names = self.by_key.into_values().flatten().map(drop);
        queues
            .flat_map(|queue| queue.into_pieces().map(drop))
            .chain(names)
            .chain(self.by_waiter.into_pieces())
            .chain(self.by_client.into_pieces())
            .chain(self.waits.into_iter().map(drop))
            .chain(self.vacant.into_iter().map(drop))
            .chain(self.by_since.into_iter().map(drop))
            .chain(self.keeps.into_iter().map(drop))
            .chain(self.dropped.map(drop))
            .chain(self.due.into_pieces())
    }
}
