//! Kept places that another server decided, or this one before a restart: followed, saved and loaded.
//!
//! A kept place belongs to the queue of a name, and is saved with the value of that name. Between the removal of a value
//! and the next visit of its queue, which gives the name a value again, the places have none: a snapshot that is made
//! then has them apart, see [`Engine::unheld_places`].

use std::collections::BTreeMap;

use crate::calls::follow::Unfollowed;
use crate::change::{Change, KeptPlace};
use crate::hold::Grant;
use crate::queue::entry::{Departed, Place};
use crate::queue::queues::KeptQueue;
use crate::queue::wait_queue::WaitQueue;
use crate::short_bytes::KeyName;
use crate::types::{Db, Fence, MonoUs, Now, Token};
use crate::{Engine, Family, Key, Misfit, State, StateId};

/// The kept places of a name that has no value to be saved with.
pub struct UnheldPlaces {
    pub db: Db,
    pub name: KeyName,
    pub family: Family,
    /// The limit that the queue remembers, if any, and then the places.
    pub changes: Vec<Change>,
}

/// The kept places of a name while changes to them are checked, before any of them is carried out.
struct PlacesInTurn<'a> {
    queue: Option<&'a WaitQueue>,
    /// What the changes so far have made of numbers and tokens.
    tokens: BTreeMap<Fence, Option<&'a Token>>,
    numbers: BTreeMap<&'a Token, Option<Fence>>,
}

impl<'a> PlacesInTurn<'a> {
    fn token_at(&self, number: Fence) -> Option<&'a Token> {
        let queue = self.queue;
        let kept = || queue?.waiter(Place(number)).filter(|w| w.keep.is_some());
        let token = self.tokens.get(&number).copied();
        token.unwrap_or_else(|| kept().map(|waiter| &waiter.request.token))
    }

    fn number_of(&self, token: &Token) -> Option<Fence> {
        let kept = || Some(self.queue?.find_kept(token)?.0);
        self.numbers.get(token).copied().unwrap_or_else(kept)
    }

    fn remove(&mut self, number: Fence, token: &'a Token) {
        self.tokens.insert(number, None);
        self.numbers.insert(token, None);
    }

    /// Notes what the change makes of the places, or returns why it does not fit.
    fn follow(&mut self, change: &'a Change) -> Result<(), Misfit> {
        match change {
            Change::Grant(Grant { token, .. }) => {
                if let Some(number) = self.number_of(token) {
                    self.remove(number, token);
                }
            }
            Change::Place(KeptPlace { number, token, .. }) => {
                let is_others = self.token_at(*number).is_some_and(|other| other != token);
                if is_others || self.number_of(token).is_some_and(|other| other != *number) {
                    return Err(Misfit::PlaceTaken);
                }
                self.tokens.insert(*number, Some(token));
                self.numbers.insert(token, Some(*number));
            }
            Change::Leave { number } => {
                let token = self.token_at(*number).ok_or(Misfit::NoPlace)?;
                self.remove(*number, token);
            }
            _ => {}
        }
        Ok(())
    }
}

impl Engine {
    /// Checks that the changes to kept places fit, each after those before it.
    pub(super) fn check_places(&self, key: &Key<'_>, changes: &[Change]) -> Result<(), Unfollowed> {
        let Some(mut places) = self.places_in_turn(key, changes) else {
            return Ok(());
        };
        let mut all = changes.iter().enumerate();
        all.try_for_each(|(at, change)| {
            let checked = places.follow(change);
            checked.map_err(|misfit| Unfollowed { at, misfit })
        })
    }

    /// Takes each LEAVE of a place that the name does not have at that point out of the changes. Returns how many they
    /// were.
    ///
    /// For an AOF that is loaded. A rewritten AOF has the kept places of a name with its value; if the rewrite began in
    /// the turn in which RENAME or DEL took the value away, it has none of them, and each leaves in what follows.
    pub fn leave_out_absent(&self, key: &Key<'_>, changes: &mut Vec<Change>) -> usize {
        let Some(mut places) = self.places_in_turn(key, changes) else {
            return 0;
        };
        let is_absent = |change| places.follow(change) == Err(Misfit::NoPlace);
        let absent: Vec<bool> = changes.iter().map(is_absent).collect();
        let before = changes.len();
        let mut absent = absent.into_iter();
        changes.retain(|_| absent.next() != Some(true));
        before - changes.len()
    }

    /// Returns the places of the name, to follow these changes one by one; `None` if they concern no place.
    fn places_in_turn<'a>(&'a self, key: &Key<'_>, changes: &[Change]) -> Option<PlacesInTurn<'a>> {
        let queue = self.queues.find_kept(key.db, key.name);
        (queue.is_some() || changes.iter().any(Change::is_of_queue)).then(|| PlacesInTurn {
            queue,
            tokens: BTreeMap::new(),
            numbers: BTreeMap::new(),
        })
    }

    /// Carries out the changes to kept places, which [`Engine::check_places`] has checked.
    pub(super) fn follow_places(&mut self, key: &Key<'_>, changes: &[Change], now: Now) {
        let mut has_come = false;
        for change in changes {
            let queue = self.queues.find(key.db, key.name);
            match (change, queue) {
                (Change::Place(place), _) => {
                    self.put_place(key.db, key.name, place.clone(), now);
                    has_come = true;
                }
                (Change::Leave { number }, Some(queue)) => {
                    self.queues.unkeep(queue, Place(*number));
                    self.queues.drop_if_empty(queue);
                }
                (Change::Grant(grant), Some(queue)) => {
                    let kept = self.queues.get(queue);
                    if let Some(place) = kept.and_then(|queue| queue.find_kept(&grant.token)) {
                        self.queues.unkeep(queue, place);
                        self.queues.drop_if_empty(queue);
                    }
                }
                _ => {}
            }
        }
        let Some(queue) = self.queues.find(key.db, key.name) else {
            return;
        };
        self.remember_limit(key, queue);
        self.queues.set_holder(queue, key.state);
        if has_come && self.is_serving() {
            self.queues.set_due(queue);
        }
    }

    /// Takes over the places that were saved with this state. They come only to a name without kept places: replicas
    /// know of no other places, and must decide alike.
    pub(super) fn adopt_places_of(
        &mut self,
        id: StateId,
        db: Db,
        name: &[u8],
        places: Vec<KeptPlace>,
        now: Now,
    ) {
        self.queues.note_flush(db, name);
        if self.queues.find_kept(db, name).is_none() {
            for place in places {
                // A server that decides has checked that there is room, if vacant places make way.
                if self.is_serving() {
                    let queue = self.queues.find(db, name);
                    let _ = self.queues.make_room(queue, self.queue_bounds());
                }
                self.put_place(db, name, place, now);
            }
        }
        if self.queues.find_kept(db, name).is_some()
            && let Some(queue) = self.queues.find(db, name)
        {
            self.queues.set_holder(queue, Some(id));
            self.queues.set_due(queue);
        }
    }

    /// Returns the kept places of this name that ask for this family: they are saved with a value of the family.
    pub fn places(
        &self,
        db: Db,
        name: &[u8],
        family: Family,
    ) -> impl Iterator<Item = KeptPlace> + '_ {
        let queue = self.queues.find_kept(db, name);
        queue
            .into_iter()
            .flat_map(move |queue| queue.kept_places(family))
    }

    /// Returns the kept places that no value of a key is saved with at this moment, because RENAME, DEL or the like has
    /// taken the value of their name away: for a snapshot that is made before the name has a value again.
    #[must_use]
    pub fn unheld_places(&self) -> Vec<UnheldPlaces> {
        let mut all = Vec::new();
        for kept in self.queues.with_kept() {
            let held = self.holder(&kept).map(|state| state.body.family());
            for family in Family::ALL {
                if held == Some(family) {
                    continue;
                }
                let limit = kept.queue.limit(family).map(Change::Limit);
                let places = kept.queue.kept_places(family).map(Change::Place);
                let mut places = places.peekable();
                if places.peek().is_some() {
                    all.push(UnheldPlaces {
                        db: kept.db,
                        name: kept.name.clone(),
                        family,
                        changes: limit.into_iter().chain(places).collect(),
                    });
                }
            }
        }
        all
    }

    /// Returns the value of the queue's name, if it has one that the engine knows of.
    fn holder(&self, kept: &KeptQueue<'_>) -> Option<&State> {
        let state = self.states.get(kept.holder?)?;
        let (address, name) = (&state.address, kept.name.as_bytes());
        let is_there = self.spaces.db(address.space()) == Some(kept.db) && address.name() == name;
        is_there.then_some(state)
    }

    /// Whether the queue's name has a value that the engine knows of.
    #[cfg(debug_assertions)]
    pub(crate) fn holds(&self, kept: &KeptQueue<'_>) -> bool {
        self.holder(kept).is_some()
    }

    /// Takes over what [`Engine::unheld_places`] has returned before a restart, or on another server.
    pub fn adopt_places(
        &mut self,
        db: Db,
        name: &[u8],
        family: Family,
        changes: &[Change],
        now: Now,
    ) {
        self.queues.note_flush(db, name);
        for change in changes {
            match change {
                Change::Limit(limit) => {
                    let queue = self.queues.find_or_make(db, name);
                    if let Some(queue) = self.queues.get_mut(queue) {
                        queue.remember_limit(family, *limit);
                    }
                }
                Change::Place(place) => self.put_place(db, name, place.clone(), now),
                _ => {}
            }
        }
        if let Some(queue) = self.queues.find(db, name) {
            // The queue is empty if there was no place.
            self.queues.drop_if_empty(queue);
            self.queues.set_due(queue);
        }
    }

    /// Puts a kept place into the queue of a name, as another server or a file says. A request of its token that waits
    /// here goes on waiting, on that place. Does nothing if another token has the rank.
    fn put_place(&mut self, db: Db, name: &[u8], place: KeptPlace, now: Now) {
        self.fences.adopt(place.number, now);
        let until = self.take_up_until(place.keep_ms, now);
        let age_ms = now.unix().0.saturating_sub(place.since.0);
        let since = MonoUs(now.mono.0.saturating_sub(age_ms.saturating_mul(1_000)));
        let (place, mut waiter) = place.into_waiter(since, until);
        let queue = self.queues.find_or_make(db, name);
        let found = self.queues.get(queue);
        let standing = found.and_then(|queue| queue.find(&waiter.request.token));
        let at = standing.map(|(at, _)| at);
        if at != Some(place) && found.is_some_and(|queue| queue.has(place)) {
            return self.queues.drop_if_empty(queue);
        }
        match at.and_then(|at| self.queues.leave(queue, at)) {
            Some(Departed::Waiter(old)) => {
                waiter.since = old.since;
                if old.is_parked() {
                    waiter.id = old.id;
                    waiter.request.wait = old.request.wait;
                    waiter.request.client = old.request.client;
                    waiter.request.ephemeral = old.request.ephemeral;
                }
            }
            Some(Departed::Vacancy(vacancy)) => waiter.since = vacancy.since,
            Some(Departed::Watcher(_)) | None => {}
        }
        self.queues.join(queue, place, waiter);
    }
}
