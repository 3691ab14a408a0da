//! What the engine must know when the server moves, renames, swaps, removes or frees keys.
//!
//! A value that left its key and was not freed is a stray (see [`crate::index::strays`]). A call that opens its new key
//! tells the engine where it is ([`Engine::open`]). For strays that no call opens, the caller searches the keyspace and
//! reports every value of ours to [`Engine::found`].

use crate::address::Address;
use crate::heap;
use crate::index::openings::Openings;
use crate::index::spaces::Space;
use crate::types::{Db, UnixMs};
use crate::unasked::Removal;
use crate::{Engine, Key, State, StateId};

impl Engine {
    /// Notes that the value has left its key: it was deleted, overwritten, moved or renamed. The state is a stray from
    /// now on, and its waiters stay with the old name. Returns whether there are any.
    pub fn unlinked(&mut self, id: StateId, db: Db, name: &[u8]) -> bool {
        // Without a state the engine itself has removed the key.
        let Some(state) = self.states.get_mut(id) else {
            return false;
        };
        // The name that it had last, which a stray that is moved again may not have had before.
        state.address = Address::new(Space::NOWHERE, name);
        self.unindex(id);
        self.strays.insert(id, db);
        self.name_changed_hands(db, name)
    }

    /// Returns a key that the server has opened, for a call. If its value is a stray, the engine knows now where it is.
    pub fn open<'a>(&mut self, db: Db, name: &'a [u8], state: Option<StateId>) -> Key<'a> {
        self.queues.note_flush(db, name);
        if let Some(id) = state
            && !self.strays.is_empty()
        {
            self.found(id, db, name);
        }
        Key::found(db, name, state)
    }

    /// Notes that the value is under this key. Does nothing if it is no stray.
    pub fn found(&mut self, id: StateId, db: Db, name: &[u8]) {
        if self.strays.remove(id).is_some() {
            self.place(id, db, name);
        }
    }

    /// Whether there are strays.
    #[must_use]
    pub fn has_strays(&self) -> bool {
        !self.strays.is_empty()
    }

    /// Whether the caller must search the keyspace: see [`Engine::search_begins`].
    #[must_use]
    pub fn needs_search(&self) -> bool {
        self.strays.need_search()
    }

    /// Notes that the caller begins to look at every key of every database.
    pub fn search_begins(&mut self) {
        self.strays.search_begins();
    }

    fn place(&mut self, id: StateId, db: Db, name: &[u8]) {
        let space = self.spaces.of(db);
        let Some(state) = self.states.get_mut(id) else {
            return;
        };
        state.address = Address::new(space, name);
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

    /// Frees the state of a value that the server has freed. Returns what was removed, if the value had left its key
    /// with holds in it: RENAME and MOVE take a value elsewhere and free nothing, and a flush frees values without
    /// taking them from their keys.
    pub fn freed(&mut self, id: StateId) -> Option<Removal> {
        self.unindex(id);
        let left = self.strays.remove(id);
        let state = self.states.take(id);
        self.free(id);
        let state = state?;
        let removal = left.and_then(|db| Removal::of(db, &state));
        self.forget(state);
        removal
    }

    /// Returns the databases that have requests waiting in them, or kept places.
    pub fn queued_databases(&self) -> impl Iterator<Item = Db> + '_ {
        self.queues.databases()
    }

    /// Notes that the database is empty now, or all databases if `None`. Kept places go with the values.
    pub fn flushed(&mut self, db: Option<Db>) {
        match db {
            Some(db) => self.spaces.flush(db),
            None => self.spaces.flush_all(),
        }
        self.queues.flush(db);
    }

    /// Notes that two databases have exchanged their contents. Queues stay with the database numbers.
    pub fn swapped(&mut self, a: Db, b: Db) {
        self.spaces.swap(a, b);
        self.strays.keys_moved();
        self.queues.set_all_due(Some(a));
        self.queues.set_all_due(Some(b));
    }

    /// Returns the bytes that the state takes, with its entries in the engine's indexes, beside what the server itself
    /// takes for a key.
    #[must_use]
    pub fn memory(&self, id: StateId) -> usize {
        self.states.get(id).map_or(0, |state| {
            let retained = match state.body.retention() {
                Some(_) => heap::tree_share(size_of::<(UnixMs, StateId)>()),
                None => 0,
            };
            let closed = state.body.opens_at().map_or(0, |_| Openings::entry_bytes());
            let own = state.address.heap_bytes() + state.body.heap_bytes();
            size_of::<State>() + own + self.leases.bytes_of(id) + closed + retained
        })
    }

    /// Returns the bytes that the kept places of this name take.
    #[must_use]
    pub fn memory_of_places(&self, db: Db, name: &[u8]) -> usize {
        self.queues.kept_bytes(db, name)
    }
}
