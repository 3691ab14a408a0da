//! Kept places that another server decided, or this one before a restart: followed, saved and loaded.
//!
//! A kept place belongs to the queue of a name, and is saved with the value of that name. When the value is removed, the
//! next visit of the queue gives the name a new one. A snapshot that is made before that visit saves the places apart:
//! see [`Engine::unheld_places`].

use std::collections::BTreeMap;

use crate::answer::{Answer, Refusal};
use crate::change::{Change, KeptPlace, Misfit};
use crate::engine::Engine;
use crate::hold::Grant;
use crate::queue::place::{Place, Presence, Watcher};
use crate::queue::wait_queue::{Left, WaitQueue};
use crate::short_bytes::KeyName;
use crate::state::State;
use crate::store::slab::StateId;
use crate::term::TakeOver;
use crate::types::{Db, Family, MonoUs, Now, Rank, Token};
use crate::visit::{Key, Visit};

/// The kept places of a name that has no value to be saved with.
pub struct UnheldPlaces {
    pub db: Db,
    pub name: KeyName,
    pub family: Family,
    /// The limit that the queue remembers, if any, and then the places.
    pub changes: Vec<Change>,
}

/// The kept places of a name while changes to them are checked, before any of them is carried out.
#[derive(Default)]
pub(super) struct PlacesInTurn<'a> {
    queue: Option<&'a WaitQueue>,
    /// What the changes so far have made of ranks and tokens.
    tokens: BTreeMap<Rank, Option<&'a Token>>,
    ranks: BTreeMap<&'a Token, Option<Rank>>,
}

impl<'a> PlacesInTurn<'a> {
    /// Returns of each of the changes whether it fits the places of the name after those before it; nothing if they
    /// concern no place.
    pub(super) fn check(
        engine: &'a Engine,
        db: Db,
        name: &[u8],
        changes: &'a [Change],
    ) -> impl Iterator<Item = Result<(), Misfit>> {
        let queue = engine.queues.find_kept(db, name);
        let concerns_places = queue.is_some() || changes.iter().any(Change::is_of_queue);
        let mut places = PlacesInTurn {
            queue,
            ..PlacesInTurn::default()
        };
        let changes = changes.iter().filter(move |_| concerns_places);
        changes.map(move |change| places.follow(change))
    }

    fn token_at(&self, rank: Rank) -> Option<&'a Token> {
        let place = || self.queue?.place(rank).filter(|place| place.is_kept());
        let token = self.tokens.get(&rank).copied();
        token.unwrap_or_else(|| place().map(|place| &place.token))
    }

    fn rank_of(&self, token: &Token) -> Option<Rank> {
        let kept = || self.queue?.find_kept(token);
        self.ranks.get(token).copied().unwrap_or_else(kept)
    }

    /// Notes that the token has this place, or has it no more.
    fn note(&mut self, rank: Rank, token: &'a Token, has_place: bool) {
        self.tokens.insert(rank, has_place.then_some(token));
        self.ranks.insert(token, has_place.then_some(rank));
    }

    /// Notes what the change makes of the places, or returns why it does not fit.
    fn follow(&mut self, change: &'a Change) -> Result<(), Misfit> {
        match change {
            Change::Grant(Grant { token, .. }) => {
                if let Some(rank) = self.rank_of(token) {
                    self.note(rank, token, false);
                }
            }
            Change::Place(KeptPlace { rank, token, .. }) => {
                let is_others = self.token_at(*rank).is_some_and(|other| other != token);
                if is_others || self.rank_of(token).is_some_and(|other| other != *rank) {
                    return Err(Misfit::PlaceTaken);
                }
                self.note(*rank, token, true);
            }
            Change::Leave { rank } => {
                let token = self.token_at(*rank).ok_or(Misfit::NoPlace)?;
                self.note(*rank, token, false);
            }
            _ => {}
        }
        Ok(())
    }
}

impl Visit<'_> {
    /// Carries out the changes to kept places, which [`PlacesInTurn`] has checked.
    pub(super) fn follow_places(&mut self, changes: &[Change]) {
        for change in changes {
            let rank = match change {
                Change::Place(place) => {
                    let (db, name) = (self.db, self.name);
                    self.engine.put_place(db, name, place.clone(), self.now);
                    self.queue = self.engine.queues.find(db, name);
                    None
                }
                Change::Leave { rank } => Some(*rank),
                Change::Grant(grant) => {
                    self.queue().and_then(|queue| queue.find_kept(&grant.token))
                }
                _ => None,
            };
            if let Some((queue, rank)) = self.queue.zip(rank) {
                self.engine.queues.unkeep(queue, rank);
                self.engine.queues.drop_if_empty(queue);
            }
        }
        let Some(queue) = self.queue else { return };
        self.engine.remember_limit(queue, self.state);
        if let Some(queue) = self.engine.queues.get_mut(queue) {
            queue.holder = self.state;
            queue.lanes.sort_anew();
        }
        // A primary follows the changes of a slot that moves to it, and serves the queue when the slot is its own.
        if self.engine.is_serving() {
            self.engine.queues.set_due(queue);
        }
    }
}

impl Engine {
    /// Takes each LEAVE of a place that the name does not have at that point out of the changes. Returns how many they
    /// were.
    ///
    /// For an AOF that is loaded. A rewritten AOF has the kept places of a name with its value; if the rewrite began in
    /// the turn in which RENAME or DEL took the value away, it has none of them, and each leaves in what follows.
    pub fn leave_out_absent(&self, key: Key<'_>, changes: &mut Vec<Change>) -> usize {
        let fits = PlacesInTurn::check(self, key.db, key.name, changes);
        let fits: Vec<_> = fits.collect();
        let (before, mut fits) = (changes.len(), fits.into_iter());
        changes.retain(|_| fits.next() != Some(Err(Misfit::NoPlace)));
        before - changes.len()
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
        // A server that decides has checked that there is room, if vacant places make way.
        if !places.is_empty() && self.queues.find(db, name).is_none() {
            if self.is_serving() {
                let more = places.len() as u64;
                self.queues.give_up_vacant(None, more, &self.settings);
            }
            let places = places.into_iter().map(|place| self.kept_place(place, now));
            let places = places.collect();
            self.queues.make_kept(db, name, places);
        } else if self.queues.find_kept(db, name).is_none() {
            for place in places {
                if self.is_serving() {
                    let queue = self.queues.find(db, name);
                    self.queues.give_up_vacant(queue, 1, &self.settings);
                }
                self.put_place(db, name, place, now);
            }
        }
        let Some(queue) = self.queues.find(db, name) else {
            return;
        };
        self.remember_limit(queue, Some(id));
        if let Some(kept) = self.queues.get_mut(queue).filter(|queue| queue.kept() > 0) {
            kept.holder = Some(id);
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
        let queue = self.queues.find_kept(db, name).into_iter();
        queue.flat_map(move |queue| queue.kept_places(family))
    }

    /// Returns the kept places that no value of a key is saved with at this moment, because RENAME, DEL or the like has
    /// taken the value of their name away: for a snapshot that is made before the name has a value again.
    pub fn unheld_places(&self) -> Vec<UnheldPlaces> {
        let mut all = Vec::new();
        for (_, kept) in self.queues.with_kept() {
            let held = self.holder(kept).map(|state| state.body.family());
            let others = Family::ALL.into_iter();
            for family in others.filter(|family| held != Some(*family)) {
                let limit = kept.limit(family).map(Change::Limit);
                let places = kept.kept_places(family).map(Change::Place);
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
    pub(crate) fn holder(&self, queue: &WaitQueue) -> Option<&State> {
        let state = self.store.get(queue.holder?)?;
        let name = queue.name.as_bytes();
        let is_there = self.store.db_of(state) == Some(queue.db) && state.address.name() == name;
        is_there.then_some(state)
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
    /// here for the same claim and lane goes on waiting, on that place; for another it is told why not. Does nothing if
    /// another token has the rank.
    fn put_place(&mut self, db: Db, name: &[u8], kept: KeptPlace, now: Now) {
        let mut place = self.kept_place(kept, now);
        let queue = self.queues.find_or_make(db, name);
        let found = self.queues.get(queue);
        let before = found.and_then(|queue| queue.find(&place.token));
        let before = before.map(Place::rank);
        if before != Some(place.rank()) && found.is_some_and(|queue| queue.has(place.rank())) {
            return self.queues.drop_if_empty(queue);
        }
        if let Some(Left::Place(before)) = before.and_then(|rank| self.queues.leave(queue, rank)) {
            let (since, parked) = (before.standing.since, before.parked());
            let refusal = Refusal::of_other(before.what(), place.what());
            if refusal.is_none() {
                place.standing.since = since;
                place.presence = parked.map_or(place.presence, Presence::Parked);
            } else if let Some(parked) = parked {
                // What it waits for is not what the place is for, so it can neither have this place nor another.
                let is_same_family = before.claim.family() == place.claim.family();
                let refusal = refusal.filter(|_| is_same_family);
                let answer = refusal.map_or(Answer::WrongType, Answer::Refused);
                let rank = Rank(self.term.fences.next(now));
                let waiter = Watcher { parked, since };
                self.queues.watch(queue, rank, waiter, Some(answer));
            }
        }
        self.queues.join(queue, place);
    }

    /// Returns a kept place on which nobody waits, as another server or a file says.
    fn kept_place(&mut self, kept: KeptPlace, now: Now) -> Place {
        self.term.fences.adopt(kept.rank.0, now);
        let from = TakeOver::at(now, self.settings.takeover_grace_ms);
        let until = self.term.give_to_place(from.until(kept.keep_ms));
        let age_ms = now.unix().0.saturating_sub(kept.since.0);
        let since = MonoUs(now.mono.0.saturating_sub(age_ms.saturating_mul(1_000)));
        Place::kept(kept, since, until)
    }
}
