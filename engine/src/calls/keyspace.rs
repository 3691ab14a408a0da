//! What the engine must know when the server moves, renames, swaps, removes or frees keys.
//!
//! A value that left its key and was not freed is a stray (see [`crate::store::strays`]). A visit of its new key tells the
//! engine where it is. For strays that nobody visits, the caller searches the keyspace and reports every value of ours to
//! [`Engine::found`].

use std::collections::VecDeque;

use crate::engine::Engine;
use crate::store::leftovers::Piece;
use crate::store::slab::StateId;
use crate::types::Db;
use crate::unasked::Removal;
use crate::visit::Key;

impl Engine {
    /// Notes that the value has left its key: it was deleted, overwritten, moved or renamed. The state is a stray from
    /// now on, and its waiters stay with the old name. Returns whether there are any.
    pub fn unlinked(&mut self, id: StateId, db: Db, name: &[u8]) -> bool {
        self.store.unlinked(id, db, name) && self.name_changed_hands(db, name)
    }

    /// Takes note of a key that the server has opened, as a visit does itself. If its value is a stray, the engine knows now
    /// where it is. Returns whether it was one: then something may come due earlier than before.
    pub fn open(&mut self, key: Key<'_>) -> bool {
        self.queues.note_flush(key.db, key.name);
        let state = key.state.filter(|_| self.has_strays());
        state.is_some_and(|id| self.found(id, key.db, key.name))
    }

    /// Notes that the value is under this key. Does nothing if it is no stray. Returns whether it was one.
    pub fn found(&mut self, id: StateId, db: Db, name: &[u8]) -> bool {
        let was_stray = self.store.found(id, db, name);
        if was_stray {
            self.index(id);
            self.name_changed_hands(db, name);
        }
        was_stray
    }

    /// Whether there are strays.
    pub fn has_strays(&self) -> bool {
        !self.store.strays.is_empty()
    }

    /// Whether the caller must search the keyspace: see [`Engine::search_begins`].
    pub fn needs_search(&self) -> bool {
        self.store.strays.need_search()
    }

    /// Notes that the caller begins to look at every key of every database.
    pub fn search_begins(&mut self) {
        self.store.strays.search_begins();
    }

    /// Notes that the name has another value, or none. Returns whether requests wait for it.
    pub fn name_changed_hands(&mut self, db: Db, name: &[u8]) -> bool {
        let queue = self.queues.find(db, name);
        if let Some(id) = queue {
            self.queues.set_due(id);
            self.queues.value_left(id);
        }
        queue.is_some()
    }

    /// Frees the state of a value that the server has freed. Returns what was removed, if the value had left its key
    /// with holds in it.
    pub fn freed(&mut self, id: StateId) -> Option<Removal> {
        self.store.freed(id)
    }

    /// Frees the states of values that the server has freed on another thread or during a flush, in slices.
    pub fn freed_elsewhere(&mut self, values: VecDeque<Vec<StateId>>) {
        let values = values.into_iter().flatten();
        self.store.leftovers.push(values.map(Piece::Freed));
    }

    /// Returns the databases that have requests waiting in them, or kept places.
    pub fn queued_databases(&self) -> impl Iterator<Item = Db> + '_ {
        self.queues.databases()
    }

    /// Notes that the database is empty now, or all databases if `None`. Kept places go with the values.
    pub fn flushed(&mut self, db: Option<Db>) {
        self.store.spaces.flush(db);
        self.queues.flush(db);
    }

    /// Notes that the server has removed all keys with these names, with no callback for each: it has trimmed their
    /// slots. Kept places go with the values. The server frees the values later.
    pub fn trimmed(&mut self, db: Db, is_gone: impl Fn(&[u8]) -> bool + Send + 'static) {
        self.queues.flush_names(db, is_gone);
    }

    /// Notes that two databases have exchanged their contents. Queues stay with the database numbers.
    pub fn swapped(&mut self, a: Db, b: Db) {
        self.store.spaces.swap(a, b);
        self.store.strays.keys_moved();
        self.queues.set_all_due(Some(a));
        self.queues.set_all_due(Some(b));
    }

    /// Returns the bytes that the state takes, with its entries in the engine's indexes, beside what the server itself
    /// takes for a key.
    pub fn memory(&self, id: StateId) -> usize {
        self.store.memory(id)
    }

    /// Returns the bytes that the kept places of this name take.
    pub fn memory_of_places(&self, db: Db, name: &[u8]) -> usize {
        self.queues.kept_bytes(db, name)
    }
}
