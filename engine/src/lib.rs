//! The rules of dsync: locks, semaphores, wait groups and work-once keys as plain data.
//!
//! The engine is deterministic: the same calls in the same order give the same states and the same [`Effects`]. The
//! tests against a model rely on that. So this crate has deliberately
//! - no clock and no timer: each call is given the time as a [`Now`](types::Now). [`Engine::next_wake`] returns when to
//!   ask [`Engine::next_task`] what has come due; to ask too early or too often does nothing;
//! - no randomness: tokens come with requests, fences are made from the time and the last fence, and no order depends
//!   on a hash;
//! - no I/O and no threads: a call leaves as effects what the caller must replicate, announce, answer or log;
//! - no Redis, and no unsafe code.
//!
//! `clippy.toml` beside it forbids the functions and types that would break this.
//!
//! The engine owns every state. The server's keyspace maps a name to a [`StateId`] and nothing more. For each call the
//! caller opens the key and passes what it found as a [`Key`]; after the call it stores or deletes the key as
//! `Key::state` says. One call concerns one key.
//!
//! Where to find what:
//! - [`types`]: the vocabulary; `fence`: how fences rise;
//! - [`hold`]: one hold; `state`: a key's value, with all its holds and, in `families`, the rules of each family;
//!   `address`: where it is; `heap`: what all of it takes;
//! - `queue`: the waiting requests and kept places of one key and of all keys; `index`: how states are found;
//! - [`calls`]: what clients, the timer and other servers ask for. Every call that changes a key or its queue ends in
//!   `Engine::settle`, so that no first request of a queue waits although it could be granted;
//! - [`change`]: everything that can happen to a state; [`wire`]: its one binary form; [`saved`]: whole states in that
//!   form;
//! - [`effect`], [`answer`]: what the caller must do after a call; [`unasked`]: ends of holds that nobody asked for;
//! - [`info`], [`held`]: what operators look at: one key, and all holds.
//!
//! Values in the keyspace that are pointers to states were rejected: the server may free values on another thread, and
//! the deadline index would have to reach into them by raw pointers.

#![forbid(unsafe_code)]

mod address;
pub mod answer;
pub mod calls;
pub mod change;
pub mod effect;
mod fence;
mod heap;
pub mod held;
pub mod hold;
mod index;
pub mod info;
#[cfg(debug_assertions)]
mod invariants;

mod queue;
pub mod saved;
mod short_bytes;
mod state;
pub mod stats;
pub mod types;
pub mod unasked;
pub mod wire;

use std::collections::{BTreeMap, BTreeSet};

use address::Address;
use answer::Answer;
use calls::put_off::PutOff;
use calls::role::Role;
use calls::tasks::Ending;
use change::{Change, End};
use effect::{Effects, Note};
use fence::Fences;
use hold::Hold;
use index::deadlines::Wheel;
use index::leftovers::Leftovers;
use index::openings::Openings;
use index::slab::Slab;
use index::spaces::Spaces;
use index::strays::Strays;

use queue::queues::{QueueBounds, Queues};
use stats::Stats;
use types::{ClientId, Db, Fence, UnixMs, WaiterId};

pub use answer::{FullQueue, Refusal};
pub use fence::{Announcement, Beginning};
pub use index::slab::StateId;
pub use queue::entry::{Request, Wait};
pub use state::{Body, Misfit, State, families};
pub use types::Family;

/// The settings that the engine knows, as the operator or the defaults set them.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long a vacant place is kept for its token after the connection closed; 0 keeps none.
    pub rejoin_ms: u64,
    /// How long the tally of a finished round is kept.
    pub group_keep_ms: u64,
    /// How long a group without members is kept after the last change, or after the last request that waited for it.
    pub group_idle_ms: u64,
    /// What a hold has left at least, but never more than its lease, when this server takes over.
    pub takeover_grace_ms: u64,
    /// How long results are kept after DONE, and attempts and reasons after the last change or waiting request.
    pub once_keep_ms: u64,
    pub max_waiters: u64,
    pub max_waiters_per_key: u64,
    /// The longest lease and delay of a request. Who makes requests has checked them; the engine checks payloads.
    pub max_lease_ms: u64,
    /// The longest result and reason, checked in the same way.
    pub max_result_bytes: u64,
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
            max_lease_ms: 86_400_000,
            max_result_bytes: 65_536,
        }
    }
}

/// One key of the server. The caller sets what the key holds, and the call changes that to what it shall hold.
#[derive(Debug)]
pub struct Key<'a> {
    pub db: Db,
    pub name: &'a [u8],
    /// The value of the key, `None` if it is absent. After the call the caller stores a new value, and deletes the key
    /// if the value is gone.
    pub state: Option<StateId>,
    /// Whether the keyspace had a value before the call.
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
    /// The answer will come later, as a wake of this waiter.
    Queued(WaiterId),
}

/// The state refused a change that the engine decided: see [`effect::Note::Refused`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct NotDecided;

/// The key holds another family's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrongType;

/// Invariants:
/// - a state that is indexed in `leases`, `openings` or `retention` belongs to a database, and this server decides about it;
/// - `ephemeral` has only holds that are ephemeral, each under the connection it is bound to now, and holds that
///   `leftovers` has still to drop;
/// - `strays` has exactly the states whose space is `Space::NOWHERE`.
pub struct Engine {
    pub settings: Settings,
    states: Slab<State>,
    spaces: Spaces,
    queues: Queues,
    /// For each state, when its earliest lease runs out.
    leases: Wheel,
    /// When the queues of closed keys may go on.
    openings: Openings,
    /// When groups and work-once keys that nobody uses are forgotten.
    retention: BTreeSet<(UnixMs, StateId)>,
    /// The holds that end with a connection, by that connection.
    ephemeral: BTreeMap<(ClientId, Fence), StateId>,
    /// Connections that have closed. Their holds in `ephemeral` end as soon as the server can write. The holds are not
    /// listed here one by one, because a connection may have a million.
    closed: BTreeSet<ClientId>,
    /// Other holds that end as soon as the server can write: grants whose reply was not delivered.
    ending: BTreeMap<Fence, Ending>,
    put_off: PutOff,
    fences: Fences,
    role: Role,
    leftovers: Leftovers,
    strays: Strays,
    /// The kind of task that `next_task` looks for first. It changes with every task, so that no kind keeps the others
    /// waiting.
    next_kind: usize,
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
            openings: Openings::default(),
            retention: BTreeSet::new(),
            ephemeral: BTreeMap::new(),
            closed: BTreeSet::new(),
            ending: BTreeMap::new(),
            put_off: PutOff::default(),
            fences: Fences::default(),
            role: Role::default(),
            leftovers: Leftovers::default(),
            strays: Strays::default(),
            next_kind: 0,
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

    /// Returns the value of the key, or an error if it is of another family.
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

    /// Applies a change that the engine decided, and records it in the effects. Returns the hold that it ended, if any.
    ///
    /// A state refuses such a change only if the engine has a defect. The change is then logged but not recorded,
    /// because no replica could apply it and no server could load it from an AOF.
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
        let limit_changes = body.limits().changes;
        let ended = match body.apply(&change) {
            Ok(ended) => ended,
            Err(misfit) => {
                if is_new {
                    self.discard(key);
                }
                return Err(self.refused(&change, misfit));
            }
        };
        let limit_changes = body.limits().changes.saturating_sub(limit_changes);
        self.stats.counters_mut(family).limit_changes += limit_changes;
        self.effects.modified |= change.modifies();
        if matches!(change, Change::Grant(_)) {
            self.stats.holds_come(family, 1);
        }
        if ended.is_some() {
            self.stats.holds_go(family, 1);
        }
        let unrenewed = ended.as_ref().is_some_and(|hold| !hold.is_renewed());
        self.stats.decided(family, &change, unrenewed);
        self.effects.may_free_capacity |= ended.is_some()
            || matches!(
                change,
                Change::Limit(_)
                    | Change::Pin(_)
                    | Change::Delay { until: None }
                    | Change::Pause { .. }
            );
        self.effects.changes.push(change);
        if let Some(hold) = ended.as_ref().filter(|hold| hold.is_ephemeral()) {
            self.ephemeral.remove(&(hold.client(), hold.fence()));
        }
        Ok(ended)
    }

    fn refused(&mut self, change: &Change, misfit: Misfit) -> NotDecided {
        let change = change.to_string();
        self.effects.notes.push(Note::Refused { change, misfit });
        NotDecided
    }

    /// Makes an empty state for a key that has none. Returns `None` if all two billion ids are in use.
    fn create(&mut self, key: &mut Key<'_>, family: Family) -> Option<StateId> {
        let space = self.spaces.of(key.db);
        let body = Body::new(family);
        let id = self.states.insert(State {
            body,
            address: Address::new(space, key.name),
        })?;
        key.state = Some(id);
        Some(id)
    }

    /// Frees an id that the keyspace no longer has.
    fn free(&mut self, id: StateId) {
        if let Some(chunk) = self.states.free(id) {
            self.leases.forget_chunk(chunk);
        }
    }

    /// Removes the state from the engine. Its id stays reserved until the server has freed the value.
    fn discard(&mut self, key: &mut Key<'_>) {
        let Some(id) = key.state.take() else { return };
        self.unindex(id);
        if let Some(state) = self.states.take(id) {
            self.forget(state);
        }
        if !key.stored {
            self.free(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change that its own state refused once went into the AOF all the same, and no server could load it.
    #[test]
    fn refused_change_is_logged_and_not_replicated() {
        let mut engine = Engine::default();
        let mut key = Key::found(Db(0), b"k", None);
        let decided = engine.decide(&mut key, Family::Once, Change::Limit(1));
        assert!(decided.is_err());
        assert!(engine.effects.changes.is_empty());
        assert!(!engine.effects.modified && !engine.effects.may_free_capacity);
        assert!(key.state.is_none(), "no empty key is left behind");
        let [Note::Refused { change, misfit }] = &engine.effects.notes[..] else {
            panic!("{:?}", engine.effects.notes);
        };
        assert_eq!((change.as_str(), *misfit), ("LIMIT", Misfit::Family));
    }
}
