//! An engine with a keyspace around it, called the way the module calls it: open the key, call, store or delete the
//! key, carry out the effects. Values that leave the keyspace are freed later, as by a server with lazy freeing.
//!
//! It knows nothing of the model. A replica is the same struct, fed by [`Server::follow`].

use std::collections::BTreeMap;

use crate::model::Name;
use dsync_engine::Task;
use dsync_engine::answer::Answer;
use dsync_engine::change::{Change, KeptPlace};
use dsync_engine::effect::{Announcement, Note, Wake};
use dsync_engine::saved::{self, Assembly};
use dsync_engine::types::{Db, Fence, Now, Token};
use dsync_engine::unasked::UnaskedEnd;
use dsync_engine::wire;
use dsync_engine::{Engine, Family, Identity, Key, Look, Record, Settings, State, StateId, Visit};

/// Why a server begins to decide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beginning {
    /// It starts from a file that it wrote as a primary.
    Start,
    Promotion,
}

/// Returns the token and fence of the hold that an answer grants.
pub fn granted(answer: &Answer) -> Option<(&Token, Fence)> {
    match answer {
        Answer::Granted { token, fence, .. } | Answer::Run { token, fence, .. } => {
            Some((token, *fence))
        }
        _ => None,
    }
}

/// The value of a key in the keyspace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stored {
    State(StateId),
    Foreign,
}

/// The effects of a call on one key.
pub struct Done {
    pub name: Name,
    /// The family of the state that the changes are about.
    pub family: Family,
    /// Whether more could be granted then than before.
    pub is_freed: bool,
    pub changes: Vec<Change>,
    pub notes: Vec<Note>,
    pub wakes: Vec<Wake>,
    pub announcements: Vec<Announcement>,
}

/// The budget of one slice of the engine's background work.
const SLICE: u32 = 3;

pub struct Server {
    pub engine: Engine,
    pub keys: BTreeMap<Name, Stored>,
    /// Values that are in no key any more but not freed yet.
    pub let_go: Vec<StateId>,
}

/// Returns the name of a key as bytes: even numbers get a short name, odd ones a name that is too long to be stored in
/// place.
pub fn key_bytes(name: Name) -> Vec<u8> {
    match name.1 {
        n if n % 2 == 0 => format!("k{n}").into_bytes(),
        n => format!("a key whose name is too long to be kept in place: {n}").into_bytes(),
    }
}

impl Server {
    pub fn new(settings: Settings) -> Server {
        Server {
            engine: Engine::new(settings),
            keys: BTreeMap::new(),
            let_go: Vec::new(),
        }
    }

    pub fn state(&self, name: Name) -> Option<&State> {
        match self.keys.get(&name) {
            Some(Stored::State(id)) => self.engine.state(*id),
            _ => None,
        }
    }

    pub fn key<'k>(&self, name: Name, spelling: &'k [u8]) -> Key<'k> {
        let state = match self.keys.get(&name) {
            Some(Stored::State(id)) => Some(*id),
            Some(Stored::Foreign) => panic!("{name:?} is not the engine's"),
            None => None,
        };
        let db = Db(name.0);
        Key {
            db,
            name: spelling,
            state,
        }
    }

    /// Calls the engine on one key, whose value must not be of another type.
    pub fn call<R>(
        &mut self,
        name: Name,
        family: Family,
        now: Now,
        call: impl FnOnce(&mut Visit<'_>) -> R,
    ) -> (R, Done) {
        let spelling = key_bytes(name);
        let key = self.key(name, &spelling);
        let before = key.state;
        let found = before
            .and_then(|id| self.engine.state(id))
            .map(|state| state.body.family());
        let next_wake = self.engine.next_wake(now).unwrap_or(u64::MAX);
        let visited = self.engine.visit(key, now, call);
        assert!(
            self.engine
                .next_wake(now)
                .is_none_or(|next| next >= next_wake.min(visited.comes_due.unwrap_or(u64::MAX))),
            "{name:?}: the caller is told that something comes due earlier"
        );
        let (result, after) = (visited.result, visited.state);
        let family_of = |id| self.engine.state(id).map(|state| state.body.family());
        let is_changed = before != after || !self.engine.effects.is_empty();
        assert_eq!(
            visited.family,
            after.and_then(family_of).filter(|_| is_changed),
            "{name:?}: the family is told if something has changed"
        );
        match (before, after) {
            (None, Some(id)) => {
                self.keys.insert(name, Stored::State(id));
            }
            (Some(id), None) => self.drop_key(name, id),
            (before, after) => {
                assert_eq!(before, after, "{name:?}: the state was replaced by another");
            }
        }
        let left = after
            .and_then(|id| self.engine.state(id))
            .map(|state| state.body.family());
        let mut done = self.take_effects(name, found.or(left).unwrap_or(family));
        done.is_freed = visited.is_freed;
        for wake in &done.wakes {
            if let Some((_, fence)) = granted(&wake.answer) {
                let grant = after.map(|id| (id, fence));
                assert_eq!(
                    wake.grant.map(|grant| (grant.state, grant.fence)),
                    grant,
                    "{name:?}: where the hold of a woken waiter is"
                );
                let state = after.and_then(|id| self.engine.state(id));
                let held = state.is_some_and(|state| state.body.holds().get(fence).is_some());
                assert!(
                    held,
                    "{name:?}: a waiter is told that it holds, under {fence:?}, and does not"
                );
            }
        }
        (result, done)
    }

    /// Ends a pause that is over, and forgets a key that has been kept long enough, as the module does before each
    /// request that may write.
    pub fn do_overdue(&mut self, name: Name, now: Now) -> Option<Done> {
        let spelling = key_bytes(name);
        if self.keys.get(&name) == Some(&Stored::Foreign) {
            return None;
        }
        self.engine.look(self.key(name, &spelling), now).overdue()?;
        let call = |visit: &mut Visit<'_>| visit.perform_overdue();
        let (is_done, done) = self.call(name, Family::Lock, now, call);
        assert!(is_done, "{name:?}: something is overdue");
        Some(done)
    }

    /// Looks at one key, whose value must not be of another type.
    pub fn look<R>(&self, name: Name, now: Now, look: impl FnOnce(Look<'_>) -> R) -> R {
        let spelling = key_bytes(name);
        look(self.engine.look(self.key(name, &spelling), now))
    }

    pub fn leave_out_absent(&mut self, name: Name, changes: &mut Vec<Change>) -> usize {
        let spelling = key_bytes(name);
        let key = self.key(name, &spelling);
        self.engine.leave_out_absent(key, changes)
    }

    fn take_effects(&mut self, name: Name, family: Family) -> Done {
        let effects = &mut self.engine.effects;
        let told = effects.changes.iter().any(|change| {
            !matches!(
                change,
                Change::Renew { .. } | Change::Place(_) | Change::Leave { .. }
            )
        });
        assert_eq!(
            effects.modified, told,
            "{name:?}: all changes but renewals and places signal the key as modified"
        );
        let done = Done {
            name,
            family,
            is_freed: false,
            changes: effects.changes.clone(),
            notes: effects.notes.clone(),
            wakes: effects.wakes.clone(),
            announcements: effects.announcements.clone(),
        };
        let refused = |note: &&Note| matches!(note, Note::Refused { .. });
        assert_eq!(
            done.notes.iter().find(refused),
            None,
            "{name:?}: no decided change is refused"
        );
        effects.clear();
        done
    }

    /// Searches for strays if the engine needs it: shows it every key.
    fn search(&mut self) {
        if self.engine.needs_search() {
            self.engine.search_begins();
            for (name, stored) in &self.keys {
                if let Stored::State(id) = stored {
                    self.engine.found(*id, Db(name.0), &key_bytes(*name));
                }
            }
        }
    }

    /// Runs the timer until no task is due and no background work is left, with a small budget for each.
    pub fn run_tasks(&mut self, now: Now) -> Vec<Done> {
        let mut all = Vec::new();
        self.search();
        for round in 0.. {
            assert!(
                round < 20_000,
                "the tasks have no end; the next is {:?}",
                self.next_task(now)
            );
            let mut budget = 7;
            while let Some((task, db, name)) = self.engine.next_task(now, &mut budget) {
                let name = self.name_of(db, name.as_bytes());
                if self.keys.get(&name) == Some(&Stored::Foreign) {
                    let spelling = key_bytes(name);
                    let key = Key {
                        db,
                        name: &spelling,
                        state: None,
                    };
                    self.engine.turn_away(key, &Answer::WrongType, now);
                    all.push(self.take_effects(name, Family::Lock));
                } else {
                    let call = |visit: &mut Visit<'_>| visit.perform(task);
                    all.push(self.call(name, Family::Lock, now, call).1);
                }
                if budget == 0 {
                    break;
                }
            }
            let mut slice = SLICE;
            self.engine.background(&mut slice);
            if budget > 0 && slice == SLICE {
                break;
            }
        }
        assert!(!self.engine.has_background(), "background work is left");
        all
    }

    /// Does all background work.
    pub fn finish_background(&mut self) {
        while self.engine.has_background() {
            self.engine.background(&mut { SLICE });
        }
    }

    fn next_task(&mut self, now: Now) -> Option<Task> {
        self.engine.next_task(now, &mut 9).map(|(task, ..)| task)
    }

    fn name_of(&self, db: Db, spelling: &[u8]) -> Name {
        let number = (0..=u8::MAX).find(|n| key_bytes((db.0, *n)) == spelling);
        (db.0, number.expect("a key that was named here"))
    }

    fn drop_key(&mut self, name: Name, id: StateId) {
        self.keys.remove(&name);
        self.engine.unlinked(id, Db(name.0), &key_bytes(name));
        self.let_go.push(id);
    }

    /// Tells the engine that the lazy-free thread has freed the values in `let_go`.
    pub fn free_let_go(&mut self) {
        let freed = std::mem::take(&mut self.let_go);
        let chunks = freed.chunks(2).map(<[StateId]>::to_vec);
        self.engine.freed_elsewhere(chunks.collect());
    }

    pub fn delete(&mut self, name: Name) {
        match self.keys.get(&name) {
            Some(Stored::State(id)) => self.drop_key(name, *id),
            Some(Stored::Foreign) => {
                self.keys.remove(&name);
                self.engine.name_changed_hands(Db(name.0), &key_bytes(name));
            }
            None => {}
        }
    }

    /// Stores a value of another type, as SET does.
    pub fn overwrite(&mut self, name: Name) {
        self.delete(name);
        self.keys.insert(name, Stored::Foreign);
        self.engine.name_changed_hands(Db(name.0), &key_bytes(name));
    }

    /// RENAME, or MOVE if the databases differ. The engine learns only that the value has left its key.
    pub fn rename(&mut self, from: Name, to: Name) {
        let Some(stored) = self.keys.get(&from).copied().filter(|_| from != to) else {
            return;
        };
        self.delete(to);
        self.keys.remove(&from);
        self.keys.insert(to, stored);
        match stored {
            Stored::State(id) => {
                self.engine.unlinked(id, Db(from.0), &key_bytes(from));
            }
            Stored::Foreign => {
                self.engine.name_changed_hands(Db(from.0), &key_bytes(from));
                self.engine.name_changed_hands(Db(to.0), &key_bytes(to));
            }
        }
    }

    pub fn flush(&mut self, db: Option<i32>) {
        self.engine.flushed(db.map(Db));
        let gone = |name: &Name| db.is_none_or(|db| name.0 == db);
        let gone: Vec<Name> = self
            .keys
            .keys()
            .filter(|name| gone(name))
            .copied()
            .collect();
        for name in gone {
            if let Some(Stored::State(id)) = self.keys.remove(&name) {
                self.let_go.push(id);
            }
        }
    }

    pub fn swap(&mut self, a: i32, b: i32) {
        self.engine.swapped(Db(a), Db(b));
        let other = |db: i32| {
            if db == a {
                b
            } else if db == b {
                a
            } else {
                db
            }
        };
        let keys = std::mem::take(&mut self.keys);
        self.keys = keys
            .into_iter()
            .map(|((db, n), stored)| ((other(db), n), stored))
            .collect();
    }

    /// Applies the changes that the primary recorded for one key.
    pub fn follow(&mut self, done: &Done, now: Now) {
        if done.changes.is_empty() {
            return;
        }
        let mut notes = Vec::new();
        for changes in wire::by_version(&done.changes) {
            notes.extend(self.follow_string(done.name, done.family, changes, now));
        }
        // It notes the same ends. How late they were it can tell only by the written deadline.
        let without_late = |note: &Note| match note {
            Note::Ended(end) | Note::EndedElsewhere(end) => UnaskedEnd {
                late_ms: None,
                ..end.clone()
            },
            Note::Refused { .. } => panic!("{note:?}"),
        };
        let theirs: Vec<_> = done.notes.iter().map(without_late).collect();
        let ours: Vec<_> = notes.iter().map(without_late).collect();
        assert_eq!(ours, theirs, "{:?}: the ends that are noted", done.name);
    }

    /// Applies changes that share a packed string, and returns what it notes.
    fn follow_string(
        &mut self,
        name: Name,
        family: Family,
        changes: &[Change],
        now: Now,
    ) -> Vec<Note> {
        let mut packed = Vec::new();
        wire::pack(&mut packed, family, false, changes);
        let unpacked = wire::open(&packed).expect("as it was packed");
        assert_eq!(unpacked.family, family);
        let read: Result<Vec<_>, _> = unpacked.collect();
        assert_eq!(read.as_deref(), Ok(changes));
        let is_leave = |change: &Change| matches!(change, Change::Leave { .. });
        let (followed, notes) = if changes.iter().all(is_leave) {
            // It concerns no value, so the module opens no key for it.
            let spelling = key_bytes(name);
            let stored = self.keys.get(&name).copied();
            let key = Key {
                db: Db(name.0),
                name: &spelling,
                state: None,
            };
            let followed = (self.engine)
                .visit(key, now, |visit| visit.follow(family, changes))
                .result;
            assert_eq!(self.keys.get(&name).copied(), stored);
            (followed, Vec::new())
        } else {
            let follow = |visit: &mut Visit<'_>| visit.follow(family, changes);
            let (followed, none) = self.call(name, family, now, follow);
            assert!(
                none.changes.is_empty() && none.wakes.is_empty(),
                "a replica decides nothing"
            );
            (followed, none.notes)
        };
        assert_eq!(followed, Ok(()), "{name:?} follows {changes:?}");
        notes
    }

    /// Returns the kept places of a name, whatever it has for a value.
    pub fn places(&self, name: Name) -> Vec<KeptPlace> {
        let spelling = key_bytes(name);
        let all = Family::ALL.into_iter();
        all.flat_map(|family| self.engine.places(Db(name.0), &spelling, family))
            .collect()
    }

    /// The fences of a server that begins to decide.
    pub fn begin(&mut self, beginning: Beginning, now: Now) {
        let fences = self.engine.fences_mut();
        match beginning {
            Beginning::Start => fences.start(Identity::default(), now),
            Beginning::Promotion => fences.promote(now),
        }
    }

    /// Returns the packed strings of the state, as a file would have them.
    pub fn saved(&self, name: Name) -> Option<Vec<Vec<u8>>> {
        let mut strings = Vec::new();
        let body = &self.state(name)?.body;
        let spelling = key_bytes(name);
        let places = (self.engine).places(Db(name.0), &spelling, body.family());
        saved::pack(body, places, |packed| {
            strings.push(packed.to_vec());
        });
        Some(strings)
    }

    /// Returns a server that has loaded what this one has `written`, from an RDB file or from a rewritten AOF
    /// (`as_changes`).
    pub fn reloaded(&self, as_changes: bool, written: Now, now: Now) -> Server {
        let mut new = Server::new(self.engine.settings);
        new.engine.fences_mut().loading_started();
        for (name, stored) in &self.keys {
            let Some(state) = self.state(*name) else {
                new.keys.insert(*name, *stored);
                continue;
            };
            let family = state.body.family();
            if as_changes {
                let spelling = key_bytes(*name);
                let places = self.engine.places(Db(name.0), &spelling, family);
                let changes = state.body.as_changes();
                let changes = changes.chain(places.map(Change::Place)).collect();
                let done = Done {
                    name: *name,
                    family,
                    is_freed: false,
                    changes,
                    notes: Vec::new(),
                    wakes: Vec::new(),
                    announcements: Vec::new(),
                };
                new.follow(&done, now);
            } else {
                let mut assembly = Assembly::new(family);
                for packed in self.saved(*name).expect("a state") {
                    assembly.add(&packed).expect("well-formed");
                }
                let loaded = assembly.finish().expect("whole");
                let id = new
                    .engine
                    .adopt(loaded, Db(name.0), &key_bytes(*name), now)
                    .expect("fits");
                new.keys.insert(*name, Stored::State(id));
            }
        }
        for unheld in self.engine.unheld_places() {
            let (name, family) = (unheld.name.as_bytes(), unheld.family);
            let changes = &unheld.changes;
            new.engine
                .adopt_places(unheld.db, name, family, changes, now);
        }
        let record = (self.engine.fences()).record(written, Identity::default(), true);
        let fences = new.engine.fences_mut();
        match Record::unpack(record.pack(), record.last) {
            Some(record) => fences.adopt_record(record, now),
            None => fences.adopt(record.last, now),
        }
        fences.loading_ended();
        assert_eq!(fences.take_ahead(), None, "fences near the clock");
        new
    }
}
