//! All queues of the server, found by key, by request and by connection, and all moments at which a wait or a vacant
//! place runs out.
//!
//! A queue belongs to a database number and a name, not to a value: it outlives the removal of its key, and SWAPDB does
//! not move it. A queue exists only while it has entries. On a server that follows another these are kept places.
//!
//! Each change of a queue must change all indexes in the same function, so they are here together. What concerns only
//! places that are kept without a connection is in `kept`, how a flush drops these in `flushed`, and which queues the
//! engine must visit in `visits`.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use crate::Family;
use crate::answer::{Answer, FullQueue};
use crate::index::leftovers::SMALL;
use crate::index::slab::StateId;
use crate::queue::due::Due;
use crate::queue::entry::{Departed, Place, Vacancy, Waiter, Watcher};
use crate::queue::wait_queue::WaitQueue;
use crate::short_bytes::KeyName;
use crate::types::{ClientId, Db, LeaseUs, MonoUs, QueueId, WaiterId};

mod flushed;
#[cfg(debug_assertions)]
mod invariants;
mod kept;
mod visits;

use flushed::Flushes;
pub use kept::KeptQueue;

/// How many places the queues may have.
#[derive(Clone, Copy, Debug)]
pub struct QueueBounds {
    pub per_key: u64,
    pub server: u64,
}

struct Queue {
    db: Db,
    name: KeyName,
    queue: WaitQueue,
    /// The moment under which the queue is in `by_since`; `None` if it has no waiters.
    since: Option<MonoUs>,
    /// The state with which the kept places were saved last: see [`Queues::set_holder`].
    holder: Option<StateId>,
    /// The number of the flush after which its kept places came: see [`Queues::flush`].
    flush: u64,
}

/// Invariants:
/// - every request whose client waits is in `by_waiter`, and in `moments` if its wait runs out, as a vacant place is;
/// - every queue that has waiters is in `by_since`, under the moment at which its longest wait began;
/// - `due` has only queues that exist;
/// - a queue without places is due, and is dropped when it is visited.
#[derive(Default)]
pub struct Queues {
    queues: BTreeMap<QueueId, Queue>,
    by_key: BTreeMap<Db, BTreeMap<KeyName, QueueId>>,
    by_waiter: BTreeMap<WaiterId, (QueueId, Place)>,
    /// The request that each connection waits with: a connection waits for one reply at a time.
    by_client: BTreeMap<ClientId, WaiterId>,
    /// When waits and vacant places run out.
    moments: BTreeSet<(MonoUs, QueueId, Place)>,
    /// Vacant places only, in the order in which they run out. The first is given up when room is needed.
    vacant: BTreeSet<(MonoUs, QueueId, Place)>,
    /// The queues that have waiters, the longest wait first.
    by_since: BTreeSet<(MonoUs, QueueId)>,
    /// When kept places run out on which nobody waits, by the lease clock. A place without a moment is not listed. Places
    /// that a flush has dropped are listed until `flushes` comes to them.
    keeps: BTreeSet<(LeaseUs, QueueId, Place)>,
    due: Due,
    places: u64,
    /// The number of kept places among `places`.
    kept: u64,
    /// The number of requests that wait, by family: those whose client waits for a reply, and kept places.
    waiting: [u64; Family::ALL.len()],
    last_number: u64,
    flushes: Flushes,
}

impl Queues {
    #[must_use]
    pub fn find(&self, db: Db, name: &[u8]) -> Option<QueueId> {
        if self.queues.is_empty() {
            return None;
        }
        self.by_key.get(&db)?.get(name).copied()
    }

    #[must_use]
    pub fn get(&self, id: QueueId) -> Option<&WaitQueue> {
        self.queues.get(&id).map(|queue| &queue.queue)
    }

    /// Returns the queue to change. Entries must join and leave through [`Queues`] only, which updates the indexes.
    pub fn get_mut(&mut self, id: QueueId) -> Option<&mut WaitQueue> {
        self.queues.get_mut(&id).map(|queue| &mut queue.queue)
    }

    #[must_use]
    pub fn key(&self, id: QueueId) -> Option<(Db, &KeyName)> {
        self.queues.get(&id).map(|queue| (queue.db, &queue.name))
    }

    /// Returns the queue of a key, and makes it if there is none. The caller must add an entry at once, because no
    /// queue may be empty.
    pub fn find_or_make(&mut self, db: Db, name: &[u8]) -> QueueId {
        if let Some(id) = self.find(db, name) {
            return id;
        }
        let id = QueueId(self.number());
        let name = KeyName::from(name);
        self.by_key.entry(db).or_default().insert(name.clone(), id);
        self.queues.insert(
            id,
            Queue {
                db,
                name,
                queue: WaitQueue::default(),
                since: None,
                holder: None,
                flush: self.flushes.count(),
            },
        );
        id
    }

    pub fn next_waiter(&mut self) -> WaiterId {
        WaiterId(NonZeroU64::new(self.number()).unwrap_or(NonZeroU64::MIN))
    }

    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Makes room for one more place in the queue of a key, by giving up vacant places.
    ///
    /// # Errors If waiters alone reach a bound: that bound.
    pub fn make_room(
        &mut self,
        queue: Option<QueueId>,
        bounds: QueueBounds,
    ) -> Result<(), FullQueue> {
        while let Some(id) = queue
            && self
                .get(id)
                .is_some_and(|queue| queue.len() as u64 >= bounds.per_key)
        {
            let oldest = self.get(id).and_then(WaitQueue::oldest_vacancy);
            let place = oldest.ok_or(FullQueue::Key {
                bound: bounds.per_key,
            })?;
            self.leave(id, place);
        }
        while self.places >= bounds.server {
            let oldest = self.vacant.first().copied();
            let (_, id, place) = oldest.ok_or(FullQueue::Server {
                bound: bounds.server,
            })?;
            self.leave(id, place);
        }
        Ok(())
    }

    /// Puts a request into a new or vacant place.
    pub fn join(&mut self, id: QueueId, place: Place, waiter: Waiter) {
        self.places += 1;
        match (waiter.id, waiter.request.wait) {
            (Some(asked), Some(wait)) => {
                self.park(id, place, asked, waiter.request.client, wait.deadline());
            }
            (None, _) => self.schedule(id, place, &waiter),
            // The request is answered in this call.
            (Some(_), None) => {}
        }
        self.kept += u64::from(waiter.keep.is_some());
        self.waiting[waiter.request.claim.family() as usize] += 1;
        self.change(id, |queue| queue.join(place, waiter));
    }

    pub fn watch(&mut self, id: QueueId, place: Place, watcher: Watcher) {
        self.places += 1;
        let deadline = watcher.wait.deadline();
        self.park(id, place, watcher.id, watcher.client, deadline);
        self.waiting[Family::Group as usize] += 1;
        self.change(id, |queue| queue.watch(place, watcher));
    }

    /// Decides the answer of all present watchers.
    pub fn answer_watchers(&mut self, id: QueueId, answer: Answer) {
        self.change(id, |queue| queue.answer_watchers(answer));
    }

    /// Changes the entries of a queue, and keeps `by_since` right.
    fn change<R>(&mut self, id: QueueId, change: impl FnOnce(&mut WaitQueue) -> R) -> Option<R> {
        let queue = self.queues.get_mut(&id)?;
        let result = change(&mut queue.queue);
        let since = queue.queue.waiting_since();
        if since != queue.since {
            if let Some(before) = std::mem::replace(&mut queue.since, since) {
                self.by_since.remove(&(before, id));
            }
            if let Some(since) = since {
                self.by_since.insert((since, id));
            }
        }
        Some(result)
    }

    /// Lists a request whose client waits for the reply.
    fn park(
        &mut self,
        id: QueueId,
        place: Place,
        waiter: WaiterId,
        client: ClientId,
        deadline: Option<MonoUs>,
    ) {
        self.by_waiter.insert(waiter, (id, place));
        self.by_client.insert(client, waiter);
        if let Some(deadline) = deadline {
            self.moments.insert((deadline, id, place));
        }
    }

    /// Undoes [`Queues::park`].
    fn unpark(
        &mut self,
        id: QueueId,
        place: Place,
        waiter: WaiterId,
        client: ClientId,
        deadline: Option<MonoUs>,
    ) {
        self.by_waiter.remove(&waiter);
        // The connection may already wait with a newer request, which superseded this one.
        if self.by_client.get(&client) == Some(&waiter) {
            self.by_client.remove(&client);
        }
        if let Some(deadline) = deadline {
            self.moments.remove(&(deadline, id, place));
        }
    }

    /// Leaves the place of an entry that has just left vacant, for its token.
    pub fn vacate(&mut self, id: QueueId, place: Place, vacancy: Vacancy) {
        self.places += 1;
        self.moments.insert((vacancy.until, id, place));
        self.vacant.insert((vacancy.until, id, place));
        if let Some(queue) = self.get_mut(id) {
            queue.vacate(place, vacancy);
        }
    }

    /// Removes the entry at this place from the queue and from every index, and returns it. If the queue is empty then,
    /// it is due, and stays until [`Queues::drop_if_empty`].
    pub fn leave(&mut self, id: QueueId, place: Place) -> Option<Departed> {
        let (left, is_empty) = self.change(id, |queue| {
            let left = queue.leave(place);
            (left, queue.is_empty())
        })?;
        let left = left?;
        self.places -= 1;
        if let Some(family) = left.family() {
            self.waiting[family as usize] -= 1;
        }
        self.kept -= u64::from(left.was_kept());
        match &left {
            Departed::Waiter(waiter) => {
                let request = &waiter.request;
                match (waiter.id, request.wait, waiter.keep) {
                    (Some(asked), Some(wait), _) => {
                        self.unpark(id, place, asked, request.client, wait.deadline());
                    }
                    (None, _, Some(keep)) => {
                        self.keeps.remove(&(keep.until, id, place));
                    }
                    _ => {}
                }
            }
            Departed::Watcher(watcher) => {
                let deadline = watcher.wait.deadline();
                self.unpark(id, place, watcher.id, watcher.client, deadline);
            }
            Departed::Vacancy(vacancy) => {
                self.moments.remove(&(vacancy.until, id, place));
                self.vacant.remove(&(vacancy.until, id, place));
            }
        }
        if is_empty {
            self.set_due(id);
        }
        Some(left)
    }

    pub fn drop_if_empty(&mut self, id: QueueId) {
        let Some(queue) = self.queues.get(&id).filter(|queue| queue.queue.is_empty()) else {
            return;
        };
        if let Some(names) = self.by_key.get_mut(&queue.db) {
            names.remove(&queue.name);
            if names.is_empty() {
                self.by_key.remove(&queue.db);
            }
        }
        self.queues.remove(&id);
        self.mark_visited(id);
    }

    /// The number of requests that wait, by family: those whose client waits for a reply, and kept places. Vacant places
    /// are no waiters.
    #[must_use]
    pub fn waiting(&self, family: Family) -> u64 {
        self.waiting[family as usize]
    }

    /// Returns the databases that have queues.
    pub fn databases(&self) -> impl Iterator<Item = Db> {
        self.by_key.keys().copied()
    }

    /// Returns the queues that have waiters, the longest wait first, each with its key and the moment at which that
    /// wait began.
    pub fn by_longest_wait(&self) -> impl Iterator<Item = (MonoUs, Db, &KeyName, &WaitQueue)> {
        self.by_since.iter().filter_map(|(since, id)| {
            let queue = self.queues.get(id)?;
            Some((*since, queue.db, &queue.name, &queue.queue))
        })
    }

    #[must_use]
    pub fn seat_of(&self, waiter: WaiterId) -> Option<(QueueId, Place)> {
        self.by_waiter.get(&waiter).copied()
    }

    #[must_use]
    pub fn waiter_of(&self, client: ClientId) -> Option<WaiterId> {
        self.by_client.get(&client).copied()
    }

    /// Returns the place that runs out next, and when.
    #[must_use]
    pub fn first_moment(&self) -> Option<(MonoUs, QueueId, Place)> {
        self.moments.first().copied()
    }

    /// Whether this place still runs out at this moment.
    #[must_use]
    pub fn runs_out(&self, moment: MonoUs, id: QueueId, place: Place) -> bool {
        self.moments.contains(&(moment, id, place))
    }

    fn first_vacant(&self) -> Option<(QueueId, Place)> {
        self.vacant.first().map(|(_, id, place)| (*id, *place))
    }

    /// Returns all requests whose client waits for a reply.
    pub fn waiters(&self) -> impl Iterator<Item = WaiterId> {
        self.by_waiter.keys().copied()
    }

    /// Removes these requests and all vacant places, and keeps kept places, without moments.
    pub fn dismiss(&mut self, waiters: &[WaiterId]) {
        for waiter in waiters {
            let Some((id, place)) = self.seat_of(*waiter) else {
                continue;
            };
            if self.detach(id, place, LeaseUs(0)).is_none() {
                self.leave(id, place);
                self.drop_if_empty(id);
            }
        }
        while let Some((id, place)) = self.first_vacant() {
            self.leave(id, place);
            self.drop_if_empty(id);
        }
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

    /// Whether dropping the queues takes long.
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.places > SMALL as u64 || self.queues.len() > SMALL || self.has_dropped()
    }

    /// Takes the queues apart, one map entry at a step.
    pub fn into_pieces(self) -> impl Iterator<Item = ()> + Send + 'static {
        let queues = self.queues.into_values();
        let names = self.by_key.into_values().flatten().map(drop);
        queues
            .flat_map(|queue| queue.queue.into_pieces().map(drop))
            .chain(names)
            .chain(self.by_waiter.into_iter().map(drop))
            .chain(self.by_client.into_iter().map(drop))
            .chain(self.moments.into_iter().map(drop))
            .chain(self.vacant.into_iter().map(drop))
            .chain(self.by_since.into_iter().map(drop))
            .chain(self.keeps.into_iter().map(drop))
            .chain(self.flushes.into_pieces())
            .chain(self.due.into_pieces())
    }
}
