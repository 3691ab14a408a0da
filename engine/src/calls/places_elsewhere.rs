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

impl Engine {
    /// Checks that the changes to kept places fit, each after those before it.
    pub(super) fn check_places(&self, key: &Key<'_>, changes: &[Change]) -> Result<(), Unfollowed> {
        let queue = self.queues.find_kept(key.db, key.name);
        if queue.is_none() && !changes.iter().any(Change::is_of_queue) {
            return Ok(());
        }
        // What the changes so far make of numbers and tokens.
        let mut tokens: BTreeMap<Fence, Option<&Token>> = BTreeMap::new();
        let mut numbers: BTreeMap<&Token, Option<Fence>> = BTreeMap::new();
        for (at, change) in changes.iter().enumerate() {
            let token_at = |number: &Fence| {
                let kept = || queue?.waiter(Place(*number)).filter(|w| w.keep.is_some());
                let token = tokens.get(number).copied();
                token.unwrap_or_else(|| kept().map(|waiter| &waiter.request.token))
            };
            let number_of = |token: &Token| {
                let kept = || Some(queue?.find_kept(token)?.0);
                numbers.get(token).copied().unwrap_or_else(kept)
            };
            let unfit = |misfit| Err(Unfollowed { at, misfit });
            match change {
                Change::Grant(Grant { token, .. }) => {
                    if let Some(number) = number_of(token) {
                        tokens.insert(number, None);
                        numbers.insert(token, None);
                    }
                }
                Change::Place(KeptPlace { number, token, .. }) => {
                    let is_others = token_at(number).is_some_and(|other| other != token);
                    if is_others || number_of(token).is_some_and(|other| other != *number) {
                        return unfit(Misfit::PlaceTaken);
                    }
                    tokens.insert(*number, Some(token));
                    numbers.insert(token, Some(*number));
                }
                Change::Leave { number } => match token_at(number) {
                    Some(token) => {
                        tokens.insert(*number, None);
                        numbers.insert(token, None);
                    }
                    None => return unfit(Misfit::NoPlace),
                },
                _ => {}
            }
        }
        Ok(())
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
