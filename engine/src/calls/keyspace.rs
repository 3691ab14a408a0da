//! Where states live, as the server moves, renames, swaps, removes and frees keys.
//!
//! The server says that a value has left its key, and says when it frees a value. It does not say under which key it has
//! stored a value anew, as RENAME and MOVE do: the notification for that would make it do more for every SET and DEL of
//! everybody. So a value that has left its key and was not freed is a *stray*. A stray keeps its holds, but none of them
//! lapses until the engine knows its key. A call that opens the key tells it ([`Engine::open`]); for strays that nobody
//! opens the caller searches the keyspace ([`Engine::found`]).

use crate::index::spaces::Space;
use std::collections::BTreeSet;

use crate::types::Db;
use crate::{Engine, Key, State, StateId};

/// The states whose values have left their keys and are not freed.
#[derive(Default)]
pub(crate) struct Strays {
    states: BTreeSet<StateId>,
    /// Some have come since the caller last began a search.
    has_new: bool,
}

impl Strays {
    pub(crate) fn contains(&self, id: StateId) -> bool {
        self.states.contains(&id)
    }
}

impl Engine {
    /// Notes that the value has left its key: deleted, overwritten, moved or renamed away. The state is a stray from now
    /// on. Its waiters stay with the old name. Returns whether there are any.
    pub fn unlinked(&mut self, id: StateId, db: Db, name: &[u8]) -> bool {
        // Without a state the engine itself has removed the key.
        let Some(state) = self.states.get_mut(id) else {
            return false;
        };
        state.space = Space::NOWHERE;
        self.unindex(id);
        self.strays.states.insert(id);
        self.strays.has_new = true;
        self.name_changed_hands(db, name)
    }

    /// Returns the key that the server has opened, for a call. A stray that is found there is no stray any more.
    pub fn open<'a>(&mut self, db: Db, name: &'a [u8], state: Option<StateId>) -> Key<'a> {
        if let Some(id) = state
            && !self.strays.states.is_empty()
        {
            self.found(id, db, name);
        }
        Key::found(db, name, state)
    }

    /// Notes that the value is under this key, if it is a stray. Returns whether it was one.
    pub fn found(&mut self, id: StateId, db: Db, name: &[u8]) -> bool {
        let is_stray = self.strays.states.remove(&id);
        if is_stray {
            self.place(id, db, name);
        }
        is_stray
    }

    /// Whether there are strays.
    #[must_use]
    pub fn has_strays(&self) -> bool {
        !self.strays.states.is_empty()
    }

    /// Whether a search must be made for strays: some have come since the last call of [`Engine::search_begins`].
    #[must_use]
    pub fn needs_search(&self) -> bool {
        self.strays.has_new && self.has_strays()
    }

    /// Notes that the caller begins to look at every key of every database.
    pub fn search_begins(&mut self) {
        self.strays.has_new = false;
    }

    fn place(&mut self, id: StateId, db: Db, name: &[u8]) {
        let space = self.spaces.of(db);
        let Some(state) = self.states.get_mut(id) else {
            return;
        };
        state.space = space;
        state.name = name.into();
        self.index(id);
        self.name_changed_hands(db, name);
    }

    /// Notes that the name now has another value, or none. Returns whether it has waiters.
    pub fn name_changed_hands(&mut self, db: Db, name: &[u8]) -> bool {
        let queue = self.queues.find(db, name);
        if let Some(queue) = queue {
            self.queues.set_due(queue);
        }
        queue.is_some()
    }

    /// Frees the state of a value that the server has freed.
    pub fn freed(&mut self, id: StateId) {
        self.unindex(id);
        self.strays.states.remove(&id);
        if let Some(state) = self.states.take(id) {
            self.forget(state);
        }
        self.states.free(id);
    }

    /// Notes that the database is empty now, or all databases if `None`.
    pub fn flushed(&mut self, db: Option<Db>) {
        match db {
            Some(db) => self.spaces.flush(db),
            None => self.spaces.flush_all(),
        }
        self.queues.set_all_due(db);
    }

    /// Notes that two databases have exchanged their contents. Queues stay with the database numbers. A search may have
    /// missed a stray that was moved past it.
    pub fn swapped(&mut self, a: Db, b: Db) {
        self.strays.has_new = true;
        self.spaces.swap(a, b);
        self.queues.set_all_due(Some(a));
        self.queues.set_all_due(Some(b));
    }

    /// Returns the bytes that the state takes beside what the server itself takes for a key.
    #[must_use]
    pub fn memory(&self, id: StateId) -> usize {
        self.states.get(id).map_or(0, |state| {
            size_of::<State>() + state.name.heap_bytes() + state.body.heap_bytes()
        })
    }
}
