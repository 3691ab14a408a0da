//! The rules of dsync: locks, semaphores, wait groups and work-once keys as plain data.
//!
//! Deterministic: the same calls in the same order give the same states and the same [`Effects`], which
//! is what the tests against a model rely on. So this crate has deliberately
//! - no clock and no timer: time comes in with every call as a [`Now`], and [`Engine::next_wake`] answers
//!   when to ask [`Engine::next_task`] what has come due; to ask too early or too often does nothing;
//! - no randomness: tokens come in with requests, fences are made from the time and the last fence, and
//!   no hash decides an order;
//! - no I/O and no threads: what is to be replicated, announced, answered or logged comes out as effects;
//! - no Redis, and no unsafe code.
//!
//! `clippy.toml` beside it forbids the functions and types that would break this.
//!
//! The engine owns every state. The server's keyspace maps a name to a [`StateId`] and nothing more;
//! a caller opens the key, hands in what it found as a [`Key`], and afterwards stores or deletes the
//! key as `Key::state` says. One call concerns one key.
//!
//! Who does what:
//! - [`types`]: the vocabulary; `fence`: how fences rise;
//! - `families`: whom the state of each family admits, and what it keeps beside its holds ([`hold`]);
//! - `queue`: who waits, for one key and for all; `index`: where states are found;
//! - [`calls`]: what clients, time and other servers ask for. Every call that changes a key or its queue ends in
//!   `calls::serve`, so that no grantable head of a queue is ever left waiting;
//! - [`change`]: all that can happen to a state; [`wire`]: its one binary form; [`saved`]: states made of it;
//! - [`effect`], [`answer`]: what the caller is to do after a call.
//!
//! Values in the keyspace that are pointers to states were rejected: the server may free them on
//! another thread, and the deadline index would have to reach into them by raw pointers.

#![forbid(unsafe_code)]

pub mod answer;
pub mod calls;
pub mod change;
pub mod effect;
mod end;
pub mod families;
mod fence;
pub mod hold;
mod index;
pub mod info;
mod key_name;
mod queue;
pub mod saved;
mod state;
pub mod stats;
pub mod types;
mod undo;
pub mod wire;

use std::collections::{BTreeMap, BTreeSet};

use answer::Answer;
use calls::keyspace::Strays;
use calls::role::Role;
use calls::tasks::{Ending, Task};
use change::{Change, End};
use effect::{Effects, Note};
use fence::Fences;
use hold::Hold;
use index::deadlines::Wheel;
use index::leftovers::Leftovers;
use index::slab::Slab;
use index::spaces::Spaces;
use queue::queues::{QueueBounds, Queues};
use stats::Stats;
use types::{ClientId, Db, Fence, MonoUs, Now, UnixMs, WaiterId};

pub use answer::{FullQueue, Refusal};
pub use fence::Beginning;
pub use index::slab::StateId;
pub use queue::wait_queue::{Request, Wait};
pub use state::{Body, Family, Misfit, State};

/// What the operator can set.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long a place is kept for its token after its connection closed; 0 keeps none.
    pub rejoin_ms: u64,
    /// How long the tally of a finished round is kept.
    pub group_keep_ms: u64,
    /// How long a group is kept in which nothing lives, waits or happens.
    pub group_idle_ms: u64,
    /// What a hold has left at least, within its lease, when this server takes it over.
    pub takeover_grace_ms: u64,
    /// How long results are kept, and attempts and reasons after the last thing that happened.
    pub once_keep_ms: u64,
    pub max_waiters: u64,
    pub max_waiters_per_key: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            rejoin_ms: 2_000,
            group_keep_ms: 60_000,
            group_idle_ms: 86_400_000,
            takeover_grace_ms: 5_000,
            once_keep_ms: 86_400_000,
            max_waiters: 100_000,
            max_waiters_per_key: 20_000,
        }
    }
}

/// One key of the server, as it was found and as the call leaves it.
#[derive(Debug)]
pub struct Key<'a> {
    pub db: Db,
    pub name: &'a [u8],
    /// What the key holds. The caller stores it where it was absent, and deletes the key where it has
    /// become absent.
    pub state: Option<StateId>,
    /// Whether the keyspace has it already.
    stored: bool,
}

impl<'a> Key<'a> {
    #[must_use]
    pub fn found(db: Db, name: &'a [u8], state: Option<StateId>) -> Key<'a> {
        Key {
            db,
            name,
            state,
            stored: state.is_some(),
        }
    }
}

/// The outcome of a request that may wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    Now(Answer),
    /// The answer will come as a wake of this waiter.
    Queued(WaiterId),
}

/// A decision that the state refused: see [`effect::Note::Refused`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct NotDecided;

/// The key holds another family's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrongType;

/// Invariants: a state that is indexed in `leases` or `retention` lives in a database and is served
/// here; `ephemeral` names only holds that are ephemeral, under their present connection, and such as wait
/// in `leftovers` to be dropped; `strays` has the states that are nowhere; `put_off_ends` has the entries of `put_off` that end holds.
pub struct Engine {
    pub settings: Settings,
    states: Slab<State>,
    spaces: Spaces,
    queues: Queues,
    /// The earliest lease of each key.
    leases: Wheel,
    /// When finished and idle groups vanish.
    retention: BTreeSet<(UnixMs, StateId)>,
    /// The holds that end with a connection.
    ephemeral: BTreeMap<(ClientId, Fence), StateId>,
    /// Connections that are gone: their entries in `ephemeral` are holds to be ended as soon as the server
    /// can write. Not listed one by one, for there may be a million.
    closed: BTreeSet<ClientId>,
    /// Other holds to be ended then.
    ending: BTreeMap<Fence, Ending>,
    /// Tasks whose keys could not be written here, and when to look again.
    put_off: BTreeSet<(MonoUs, Task)>,
    put_off_ends: BTreeMap<Fence, (MonoUs, Task)>,
    fences: Fences,
    role: Role,
    leftovers: Leftovers,
    strays: Strays,
    /// The kind of task that is looked for first, so that no kind can hold up the others.
    turn: usize,
    stats: Stats,
    pub effects: Effects,
}

impl Default for Engine {
    fn default() -> Engine {
        Engine::new(Settings::default())
    }
}

impl Engine {
    #[must_use]
    pub fn new(settings: Settings) -> Engine {
        Engine {
            settings,
            states: Slab::new(),
            spaces: Spaces::default(),
            queues: Queues::default(),
            leases: Wheel::new(0),
            retention: BTreeSet::new(),
            ephemeral: BTreeMap::new(),
            closed: BTreeSet::new(),
            ending: BTreeMap::new(),
            put_off: BTreeSet::new(),
            put_off_ends: BTreeMap::new(),
            fences: Fences::default(),
            role: Role::default(),
            leftovers: Leftovers::default(),
            strays: Strays::default(),
            turn: 0,
            stats: Stats::default(),
            effects: Effects::default(),
        }
    }

    #[must_use]
    pub fn state(&self, id: StateId) -> Option<&State> {
        self.states.get(id)
    }

    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// What the key holds, if it is of this family.
    fn body(&self, key: &Key<'_>, family: Family) -> Result<Option<&Body>, WrongType> {
        let body = key
            .state
            .and_then(|id| self.states.get(id))
            .map(|state| &state.body);
        match body {
            Some(body) if body.family() != family => Err(WrongType),
            body => Ok(body),
        }
    }

    fn body_mut(&mut self, key: &Key<'_>) -> Option<&mut Body> {
        self.states.get_mut(key.state?).map(|state| &mut state.body)
    }

    fn queue_bounds(&self) -> QueueBounds {
        QueueBounds {
            per_key: self.settings.max_waiters_per_key,
            server: self.settings.max_waiters,
        }
    }

    /// Carries out a decision on the key and writes it down. What ended is returned.
    ///
    /// A change that the state refuses is a defect of this engine's, for the log: it is written down
    /// nowhere, because no replica could carry it out and no server could load it from an AOF.
    fn decide(
        &mut self,
        key: &mut Key<'_>,
        family: Family,
        change: Change,
    ) -> Result<Option<Hold>, NotDecided> {
        let is_new = key.state.is_none();
        if is_new && self.create(key, family).is_none() {
            return Err(self.refused(&change, Misfit::Full));
        }
        let body = self.body_mut(key).ok_or(NotDecided)?;
        let limit_changes = body.limit_changes();
        let ended = match body.apply(&change) {
            Ok(ended) => ended,
            Err(misfit) => {
                if is_new {
                    self.discard(key);
                }
                return Err(self.refused(&change, misfit));
            }
        };
        let limit_changes = body.limit_changes().saturating_sub(limit_changes);
        self.stats.counters_mut(family).limit_changes += limit_changes;
        self.effects.modified |= !matches!(change, Change::Renew { .. });
        if matches!(change, Change::Grant(_)) {
            self.stats.holds_come(family, 1);
        }
        if ended.is_some() {
            self.stats.holds_go(family, 1);
        }
        let unrenewed = ended.as_ref().is_some_and(|hold| !hold.renewed);
        self.stats.decided(family, &change, unrenewed);
        self.effects.may_gain |=
            ended.is_some() || matches!(change, Change::Limit(_) | Change::Pin(_));
        self.effects.changes.push(change);
        if let Some(hold) = ended.as_ref().filter(|hold| hold.ephemeral) {
            self.ephemeral.remove(&(hold.client(), hold.fence));
        }
        Ok(ended)
    }

    fn refused(&mut self, change: &Change, misfit: Misfit) -> NotDecided {
        let change = change.to_string();
        self.effects.notes.push(Note::Refused { change, misfit });
        NotDecided
    }

    /// A new, empty state for a key that has none. `None` when four billion states exist.
    fn create(&mut self, key: &mut Key<'_>, family: Family) -> Option<StateId> {
        let space = self.spaces.of(key.db);
        let body = Body::new(family);
        let id = self.states.insert(State {
            body,
            space,
            name: key.name.into(),
        })?;
        key.state = Some(id);
        Some(id)
    }

    /// Takes the state out of everything. Its number comes back when the keyspace lets go of it.
    fn discard(&mut self, key: &mut Key<'_>) {
        let Some(id) = key.state.take() else { return };
        self.unindex(id);
        if let Some(state) = self.states.take(id) {
            self.forget(state);
        }
        if !key.stored {
            self.states.free(id);
        }
    }

    /// Every promise that can be seen from outside a call. For tests, after every step.
    ///
    /// # Panics
    /// When one is broken.
    #[cfg(debug_assertions)]
    pub fn check_invariants(&self, now: Now) {
        self.queues.check_invariants();
        self.leases.check_invariants();
        for (id, state) in self.states.iter() {
            state.body.check_invariants();
            let noted = match &state.body {
                Body::Lock(_) | Body::Semaphore(_) => None,
                Body::Group(group) => group.retention,
                Body::Once(once) => once.retention,
            };
            let db = self.spaces.db(state.space);
            assert_eq!(
                self.strays.contains(id),
                state.space == index::spaces::Space::NOWHERE,
                "{id:?} is a stray"
            );
            let walked = self.is_serving() && self.role.has_walked(id);
            assert!(
                !walked
                    || db.is_none()
                    || noted.is_none_or(|until| self.retention.contains(&(until, id))),
                "{id:?} is not kept until {noted:?}"
            );
            let holds = state.body.holds();
            let without = holds.first_before(self.role.since());
            assert!(!walked || without.is_none(), "{id:?}: all have moments");
            assert!(
                holds.iter().all(|hold| hold.due <= self.latest_due()),
                "{id:?}: no moment is later than the latest"
            );
            let earliest = holds.earliest(self.role.since());
            if self.is_serving() && db.is_some() {
                let put_off = self
                    .put_off
                    .iter()
                    .any(|(_, task)| *task == Task::Lapse(id));
                assert!(
                    self.leases.contains(id) == earliest.is_some() || put_off,
                    "{id:?} in the lease index"
                );
            }
            let queue = db.and_then(|db| self.queues.find(db, state.name.as_bytes()));
            let due = queue.is_some_and(|queue| {
                let put_off = |(_, task): &(_, Task)| *task == Task::Serve(queue);
                self.queues.will_be_due(queue) || self.put_off.iter().any(put_off)
            });
            if let Some(queue) = queue.and_then(|queue| self.queues.get(queue))
                && let Some((_, head)) = queue.head()
                && now.may_write
                && !due
            {
                let claim = head.request.claim;
                let limit = state.body.limit_in_force();
                assert!(
                    !state.body.admits(claim, limit),
                    "{id:?}: a grantable head waits"
                );
            }
        }
        for family in Family::ALL {
            let states = self
                .states
                .iter()
                .filter(|(_, state)| state.body.family() == family);
            let holds: usize = states.map(|(_, state)| state.body.holds().len()).sum();
            assert_eq!(
                self.stats.holds(family),
                holds as u64,
                "holds of {family:?}"
            );
        }
        for ((client, fence), id) in &self.ephemeral {
            let state = self.states.get(*id);
            let hold = state.and_then(|state| state.body.holds().get(*fence));
            assert!(
                hold.map_or(!self.leftovers.is_empty(), |hold| {
                    hold.ephemeral && hold.client() == *client
                }),
                "{fence:?} is bound to {client:?}"
            );
        }
        let ends = |(_, task): &&(MonoUs, Task)| matches!(task, Task::End { .. });
        assert!(
            self.put_off
                .iter()
                .filter(ends)
                .eq(self.put_off_ends.values().collect::<BTreeSet<_>>()),
            "ends that were put off"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A decision that its own state refused went into the AOF all the same, and no server could load it.
    #[test]
    fn refused_decision_is_logged_and_passed_on_to_nobody() {
        let mut engine = Engine::default();
        let mut key = Key::found(Db(0), b"k", None);
        let decided = engine.decide(&mut key, Family::Once, Change::Limit(1));
        assert!(decided.is_err());
        assert!(engine.effects.changes.is_empty());
        assert!(!engine.effects.modified && !engine.effects.may_gain);
        assert!(key.state.is_none(), "no empty key is left behind");
        let [Note::Refused { change, misfit }] = &engine.effects.notes[..] else {
            panic!("{:?}", engine.effects.notes);
        };
        assert_eq!((change.as_str(), *misfit), ("LIMIT", Misfit::Family));
    }
}
