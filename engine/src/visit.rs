//! One key for one moment.
//!
//! Every call on a key is a visit. It finds the state and the queue of the key once, and has the time. What a call
//! changes, it changes through the visit: the state by `Visit::decide` alone.
//!
//! [`Engine::visit`](crate::Engine::visit) makes each visit, and settles the key that a call has changed. So no call
//! can forget to serve those that wait, or to note when the key comes due. `calls::turn_away` alone makes visits that
//! are not settled, because nothing may be served there.

use crate::answer::Answer;
use crate::change::Change;
use crate::effect::Note;
use crate::engine::Engine;
use crate::hold::Hold;
use crate::queue::place::Place;
use crate::queue::wait_queue::{Left, WaitQueue};
use crate::state::{Body, Misfit};
use crate::store::slab::StateId;
use crate::types::{ClientId, Db, Family, Now, QueueId, Rank, WaiterId};

/// The key holds another family's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrongType;

impl From<WrongType> for Answer {
    fn from(WrongType: WrongType) -> Answer {
        Answer::WrongType
    }
}

/// A key that the server has opened.
#[derive(Clone, Copy, Debug)]
pub struct Key<'k> {
    pub db: Db,
    pub name: &'k [u8],
    /// The value of the key, `None` if it is absent.
    pub state: Option<StateId>,
}

pub struct Visit<'v> {
    pub(crate) engine: &'v mut Engine,
    pub(crate) now: Now,
    pub(crate) db: Db,
    pub(crate) name: &'v [u8],
    /// The value that the key has now.
    pub(crate) state: Option<StateId>,
    /// The queue of the key when it was last found. It may be gone since.
    pub(crate) queue: Option<QueueId>,
    /// Whether requests waited for the key when the visit began.
    pub(crate) was_waited_for: bool,
    /// Whether the keyspace had a value before the visit.
    pub(crate) is_stored: bool,
    /// Something has changed since the queue was last served and the key was indexed.
    pub(crate) is_stale: bool,
    /// In how many microseconds something may come due that was not to come due before; `None` if nothing.
    pub(crate) comes_due: Option<u64>,
    /// What was free before the first change of this visit.
    pub(crate) free_before: Option<u64>,
    /// The request that this visit is for, if it has a place in the queue.
    pub(crate) asking: Option<Asking>,
    /// The answer to that request, once it is decided.
    pub(crate) answer: Option<Answer>,
}

/// A request in the queue whose client is answered by this visit, or parked after it.
#[derive(Clone, Copy)]
pub(crate) struct Asking {
    pub(crate) rank: Rank,
    pub(crate) client: ClientId,
    /// The number under which the client is parked, unless its place is kept.
    pub(crate) waiter: Option<WaiterId>,
}

impl Asking {
    pub(crate) fn new(rank: Rank, client: ClientId, waiter: Option<WaiterId>) -> Asking {
        Asking {
            rank,
            client,
            waiter,
        }
    }
}

impl<'v> Visit<'v> {
    pub(crate) fn new(engine: &'v mut Engine, key: Key<'v>, now: Now) -> Visit<'v> {
        let queue = engine.queues.find(key.db, key.name);
        Visit {
            engine,
            now,
            db: key.db,
            name: key.name,
            state: key.state,
            queue,
            was_waited_for: false,
            is_stored: key.state.is_some(),
            is_stale: false,
            comes_due: None,
            free_before: None,
            asking: None,
            answer: None,
        }
    }

    pub fn now(&self) -> Now {
        self.now
    }

    /// Returns the value of the key.
    pub(crate) fn body(&self) -> Option<&Body> {
        Some(&self.engine.store.get(self.state?)?.body)
    }

    /// Returns the queue of the key, if it is not gone since it was found.
    pub(crate) fn queue(&self) -> Option<&WaitQueue> {
        self.engine.queues.get(self.queue?)
    }

    /// Whether a request waits for a grant, so that a new one must queue behind it.
    pub(crate) fn has_line(&self) -> bool {
        self.queue().is_some_and(WaitQueue::has_line)
    }

    /// Returns the queue of the key, and makes it if there is none. The caller must add a place at once.
    pub(crate) fn make_queue(&mut self) -> QueueId {
        let queue = self.engine.queues.find_or_make(self.db, self.name);
        self.queue = Some(queue);
        queue
    }

    /// Notes that something may come due in so many microseconds; 0 if it is not known when.
    pub(crate) fn comes_due_in(&mut self, us: u64) {
        let earlier = self.comes_due.is_none_or(|noted| us < noted);
        self.comes_due = if earlier { Some(us) } else { self.comes_due };
    }

    /// Makes the queue of the key due, if there is one.
    pub(crate) fn set_queue_due(&mut self) {
        if let Some(queue) = self.queue {
            self.engine.queues.set_due(queue);
        }
    }

    /// Removes the place or watcher with this rank from the queue of the key.
    pub(crate) fn leave(&mut self, rank: Rank) -> Option<Left> {
        self.is_stale = true;
        self.engine.queues.leave(self.queue?, rank)
    }

    /// Removes the place with this rank from the queue of the key.
    pub(crate) fn take_place(&mut self, rank: Rank) -> Option<Place> {
        match self.leave(rank)? {
            Left::Place(place) => Some(place),
            Left::Watcher(_) => None,
        }
    }

    /// Notes what is free, unless that was done before.
    pub(crate) fn note_capacity(&mut self) {
        if self.free_before.is_none() {
            self.free_before = Some(self.free_capacity());
        }
    }

    /// Returns how much could be granted now to a request that does not wait: 0 if it would be refused, and a larger
    /// number for more capacity. If a visit has raised this number, it has freed capacity that no waiter takes. Also notes
    /// whether requests wait, because a visit that finds a queue begins with this call.
    pub(crate) fn free_capacity(&mut self) -> u64 {
        if let Some(queue) = self.queue.and_then(|id| self.engine.queues.get_mut(id)) {
            let has_line = queue.has_line();
            self.was_waited_for |= queue.is_waited_in();
            if std::mem::take(&mut queue.left_unserved) {
                // A waiter left before this visit. Until then nothing was free: new requests queued behind it.
                self.engine.effects.may_free_capacity = true;
                return 0;
            }
            if has_line && !self.all_stand_aside() {
                return 0;
            }
        }
        self.body().map_or(u64::MAX, Body::free_capacity)
    }

    /// Applies a change that the engine decided to the state of the key, and records it in the effects. Returns the hold
    /// that it ended, if any.
    ///
    /// A state refuses such a change only if the engine has a defect. The change is then logged but not recorded,
    /// because no replica could apply it and no server could load it from an AOF.
    pub(crate) fn decide(&mut self, change: Change) -> Result<Option<Hold>, Misfit> {
        self.is_stale = true;
        if change.modifies() {
            self.note_capacity();
        }
        match self.apply(&change) {
            Ok(ended) => {
                let effects = &mut self.engine.effects;
                effects.modified |= change.modifies();
                effects.may_free_capacity |= ended.is_some() || change.may_free_capacity();
                effects.changes.push(change);
                Ok(ended)
            }
            Err(misfit) => {
                let change = change.to_string();
                let notes = &mut self.engine.effects.notes;
                notes.push(Note::Refused { change, misfit });
                Err(misfit)
            }
        }
    }

    /// Applies a change to the state of the key, and counts what it does.
    fn apply(&mut self, change: &Change) -> Result<Option<Hold>, Misfit> {
        let engine = &mut *self.engine;
        let body = self.state.and_then(|id| engine.store.body_mut(id));
        let body = body.ok_or(Misfit::Full)?;
        let family = body.family();
        let changes_before = change.is_of_limit().then(|| body.limits().changes);
        let ended = body.apply(change)?;
        if let Some(before) = changes_before {
            let limit_changes = body.limits().changes.saturating_sub(before);
            engine.stats.counters_mut(family).limit_changes += limit_changes;
        }
        let in_lanes = family == Family::Semaphore
            && (engine.queues.keep_any_lanes() || body.holds().has_lanes());
        let unrenewed = ended.as_ref().is_some_and(|hold| !hold.is_renewed());
        engine.stats.decided(family, change, unrenewed);
        engine.store.count(family, change);
        if let Some(hold) = &ended {
            engine.store.ended(family, hold);
        }
        if in_lanes {
            self.note_in_lane(change, ended.as_ref());
        }
        Ok(ended)
    }

    /// Notes a grant, or the end of a hold: what its lane has in use, and that its turn has moved.
    fn note_in_lane(&mut self, change: &Change, ended: Option<&Hold>) {
        let lane = match (change, ended) {
            (Change::Grant(grant), _) => grant.lane.as_bytes(),
            (_, Some(hold)) => hold.lane(),
            _ => return,
        };
        let engine = &mut *self.engine;
        let turn = engine.queues.next_turn();
        let body = self.state.and_then(|id| engine.store.body_mut(id));
        let in_use = body.map(|body| body.set_turn(lane, turn));
        let queue = self.queue.and_then(|id| engine.queues.get_mut(id));
        let lanes = queue.and_then(|queue| queue.lanes.get_mut());
        if let Some((lanes, in_use)) = lanes.zip(in_use) {
            lanes.note(lane, in_use);
        }
    }

    /// Returns the limit of a semaphore under which the queue is served; 0 without any.
    pub(crate) fn limit_of_queue(&self) -> u32 {
        let of_queue = || self.queue()?.limit(Family::Semaphore);
        let limit = self.body().map_or_else(of_queue, Body::limit_in_force);
        limit.unwrap_or(0)
    }

    /// Whether all who wait stand aside, in lanes.
    fn all_stand_aside(&self) -> bool {
        let stand_aside = |queue: &WaitQueue| queue.all_stand_aside(self.limit_of_queue());
        self.engine.queues.keep_any_lanes() && self.queue().is_some_and(stand_aside)
    }

    /// Makes an empty state if the key has none. Returns its id; `None` if all two billion ids are in use.
    #[inline(always)]
    pub(crate) fn make_state(&mut self, family: Family) -> Option<StateId> {
        if self.state.is_none() {
            self.note_capacity();
            let body = Body::new(family);
            self.state = self.engine.store.insert(body, self.db, self.name);
        }
        self.state
    }

    /// Removes the state from the engine. Its id stays reserved until the server has freed the value.
    pub(crate) fn discard(&mut self) {
        let Some(id) = self.state.take() else { return };
        self.engine.store.remove(id);
        if !self.is_stored {
            self.engine.store.free(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{LeaseUs, MonoUs};

    /// A change that its own state refused once went into the AOF all the same, and no server could load it.
    #[test]
    fn refused_change_is_logged_and_not_replicated() {
        let mut engine = Engine::default();
        let key = Key {
            db: Db(0),
            name: b"k",
            state: None,
        };
        let now = Now {
            lease: LeaseUs(0),
            mono: MonoUs(0),
            unix_us: 0,
            may_write: true,
        };
        let mut visit = Visit::new(&mut engine, key, now);
        visit.make_state(Family::Once);
        assert!(visit.decide(Change::Limit(1)).is_err());
        let effects = &engine.effects;
        assert!(effects.changes.is_empty());
        assert!(!effects.modified && !effects.may_free_capacity);
        let [Note::Refused { change, misfit }] = &effects.notes[..] else {
            panic!("{:?}", effects.notes);
        };
        assert_eq!((change.as_str(), *misfit), ("LIMIT", Misfit::Family));
    }
}
