//! What the engine must know when the server moves, renames, swaps, removes or frees keys.

use crate::index::spaces::Space;
use crate::types::Db;
use crate::{Engine, State, StateId};

impl Engine {
    /// Notes that the value has left its key: it was deleted, overwritten, moved or renamed. It may get another name,
    /// see [`Engine::moved`], but its waiters stay with the old name. Returns whether there are any.
    pub fn unlinked(&mut self, id: StateId, db: Db, name: &[u8]) -> bool {
        // Without a state the engine itself has removed the key.
        let Some(state) = self.states.get_mut(id) else {
            return false;
        };
        state.space = Space::NOWHERE;
        self.unindex(id);
        self.name_changed_hands(db, name)
    }

    /// Notes that the value is under this key from now on.
    pub fn moved(&mut self, id: StateId, db: Db, name: &[u8]) {
        let space = self.spaces.of(db);
        let Some(state) = self.states.get_mut(id) else {
            return;
        };
        state.space = space;
        state.name = name.into();
        self.index(id);
        self.name_changed_hands(db, name);
    }

    /// Notes that the name has another value, or none. Returns whether requests wait for it.
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

    /// Notes that two databases have exchanged their contents. Queues stay with the database numbers.
    pub fn swapped(&mut self, a: Db, b: Db) {
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
