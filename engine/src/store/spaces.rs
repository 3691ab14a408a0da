//! Where states live: a *space* is the contents of one database, from one flush to the next.
//!
//! A state names its space and not its database. So SWAPDB exchanges, and FLUSHALL drops, a million states in one step.
//! A state whose space has no database any more is dead; the server frees it later, perhaps on another thread.

use std::collections::BTreeMap;

use crate::types::Db;

/// The number of a space. Number 0 is for values that are in no database.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Space(pub u32);

impl Space {
    pub const NOWHERE: Space = Space(0);
}

/// Invariant: the two maps are each other's inverse.
#[derive(Default)]
pub struct Spaces {
    of_db: BTreeMap<Db, Space>,
    db_of: BTreeMap<Space, Db>,
    last: u32,
}

impl Spaces {
    /// The space of a database, made on first use.
    pub fn of(&mut self, db: Db) -> Space {
        match self.of_db.get(&db) {
            Some(space) => *space,
            None => {
                // Four billion flushes on: reusing the number of a space that still has states in the hands of the lazy
                // free thread would revive them for the moment until they are freed.
                self.last = self.last.checked_add(1).unwrap_or(1);
                self.bind(db, Space(self.last))
            }
        }
    }

    /// Gives the database this space, and returns it.
    fn bind(&mut self, db: Db, space: Space) -> Space {
        self.of_db.insert(db, space);
        self.db_of.insert(space, db);
        space
    }

    pub fn db(&self, space: Space) -> Option<Db> {
        self.db_of.get(&space).copied()
    }

    /// Drops the contents of the database, or of all databases if `None`.
    pub fn flush(&mut self, db: Option<Db>) {
        let Some(db) = db else {
            self.of_db.clear();
            return self.db_of.clear();
        };
        if let Some(space) = self.of_db.remove(&db) {
            self.db_of.remove(&space);
        }
    }

    pub fn swap(&mut self, a: Db, b: Db) {
        let (space_a, space_b) = (self.of(a), self.of(b));
        self.bind(a, space_b);
        self.bind(b, space_a);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_follow_flush_and_swap() {
        let mut spaces = Spaces::default();
        let (a, b) = (spaces.of(Db(0)), spaces.of(Db(1)));
        assert_eq!((spaces.of(Db(0)), spaces.db(b)), (a, Some(Db(1))));
        spaces.swap(Db(0), Db(1));
        assert_eq!((spaces.db(a), spaces.db(b)), (Some(Db(1)), Some(Db(0))));
        assert_eq!(spaces.of(Db(0)), b);
        spaces.flush(Some(Db(0)));
        assert_eq!((spaces.db(b), spaces.db(a)), (None, Some(Db(1))));
        assert_ne!(spaces.of(Db(0)), b);
        spaces.swap(Db(1), Db(1));
        assert_eq!(spaces.db(a), Some(Db(1)));
        spaces.flush(None);
        assert_eq!(spaces.db(a), None);
        assert_eq!(spaces.db(Space::NOWHERE), None);
    }
}
