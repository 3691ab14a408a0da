//! The states whose values have left their keys and are not freed, and whether the keyspace must be searched for them.
//!
//! The server says that a value has left its key, and says when it frees a value. It does not say under which key it has
//! stored a value anew, as RENAME and MOVE do: the keyspace notification for that would cost everybody's SET and DEL
//! more. A *stray* keeps its holds, but none of them ends before the engine knows its key again.

use std::collections::BTreeMap;

use crate::store::slab::StateId;
use crate::types::Db;

#[derive(Default)]
pub struct Strays {
    /// Each with the database that it left.
    states: BTreeMap<StateId, Db>,
    /// A stray may be where the last search did not look: it came after the search began, or was moved during it.
    is_unsearched: bool,
}

impl Strays {
    pub fn insert(&mut self, id: StateId, left: Db) {
        self.states.insert(id, left);
        self.is_unsearched = true;
    }

    /// Returns the database that the state left, if it was a stray.
    pub fn remove(&mut self, id: StateId) -> Option<Db> {
        self.states.remove(&id)
    }

    pub fn contains(&self, id: StateId) -> bool {
        self.states.contains_key(&id)
    }

    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// Notes that keys were moved past a search, if there is one.
    pub fn keys_moved(&mut self) {
        self.is_unsearched = true;
    }

    pub fn need_search(&self) -> bool {
        self.is_unsearched && !self.is_empty()
    }

    pub fn search_begins(&mut self) {
        self.is_unsearched = false;
    }
}
