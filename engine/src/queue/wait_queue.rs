//! The queue of one key: first come, first served.
//!
//! Requests join at the back and are granted one after the other from the front; none is served before the first. So
//! small requests cannot starve a request for many permits: freed permits accumulate until there are enough for it.
//!
//! A *kept* place (QUEUE) stands in line like any other request, although no client may wait on it.
//!
//! A place whose connection closed stays *vacant* for a while, so that a retry with its token can take it again. It
//! has its rank but delays no other request. Vacant places are in a map of their own, so the first waiting request is
//! found without stepping over them. Watchers (WAIT of a group) claim nothing, and are answered all together.
//!
//! Ordered maps by rank are used rather than a linked list: to leave and to find the head cost a few comparisons, a
//! retry takes its vacant place in the middle without a walk, and no step copies the queue.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use crate::Family;
use crate::answer::Answer;
use crate::change::KeptPlace;
use crate::queue::entry::{Departed, Place, Seat, Vacancy, Waiter, Watcher};
use crate::types::{MonoUs, Token};

/// Invariants: a place is in exactly one of the maps of places; `by_token` has the places, waiting or vacant, whose
/// token may come back; `heavy` has the waiting places that ask for more than one permit, and `capped` those whose
/// request has a MAX of attempts; a kept place is waiting.
#[derive(Default)]
pub struct WaitQueue {
    waiting: BTreeMap<Place, Waiter>,
    vacant: BTreeMap<Place, Vacancy>,
    by_token: BTreeMap<Token, Place>,
    heavy: BTreeSet<(u32, Place)>,
    /// How many of the waiting places are kept.
    kept: usize,
    capped: BTreeSet<(u32, Place)>,
    watching: BTreeMap<Place, Watcher>,
    /// Watchers whose answer is decided but not sent yet, because a call sends a bounded number of answers.
    answered: VecDeque<(Answer, BTreeMap<Place, Watcher>)>,
    /// A request has left unserved since [`crate::Engine::free_capacity`] last looked at the queue.
    pub left_unserved: bool,
    /// For each family, the limit that was last in force or given by a request: see [`WaitQueue::limit`].
    limits: [Option<u32>; Family::ALL.len()],
}

impl WaitQueue {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of places, vacant ones and watchers included, to compare with the bounds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiters() + self.vacant.len()
    }

    /// Returns the number of requests that wait: those whose client waits for a reply, and kept places.
    #[must_use]
    pub fn waiters(&self) -> usize {
        let answered: usize = self
            .answered
            .iter()
            .map(|(_, watchers)| watchers.len())
            .sum();
        self.waiting.len() + self.watching.len() + answered
    }

    /// Returns the number of kept places.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.kept
    }

    /// Whether a request waits for a grant, so that a new one must queue behind it.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    #[must_use]
    pub fn has_watching(&self) -> bool {
        !self.watching.is_empty()
    }

    /// Returns the limit under which the next waiter of this family begins after the key was removed.
    ///
    /// Each family has its own: vacant places can keep the queue of a semaphore while another family reuses the key,
    /// and a waiter of that family must not be granted under the semaphore's limit.
    #[must_use]
    pub fn limit(&self, family: Family) -> Option<u32> {
        self.limits[family as usize]
    }

    /// Remembers the limit that is in force, or was asked for, in this family.
    pub fn remember_limit(&mut self, family: Family, limit: u32) {
        self.limits[family as usize] = Some(limit);
    }

    /// Returns the request that is served next.
    #[must_use]
    pub fn head(&self) -> Option<(Place, &Waiter)> {
        self.waiting
            .first_key_value()
            .map(|(place, waiter)| (*place, waiter))
    }

    #[must_use]
    pub fn find(&self, token: &Token) -> Option<(Place, Seat<'_>)> {
        let place = *self.by_token.get(token)?;
        let waiting = self.waiting.get(&place).map(Seat::Waiting);
        let seat = waiting.or_else(|| self.vacant.get(&place).map(Seat::Vacant))?;
        Some((place, seat))
    }

    /// Returns the waiting request or kept place with this rank.
    #[must_use]
    pub fn waiter(&self, place: Place) -> Option<&Waiter> {
        self.waiting.get(&place)
    }

    /// Returns the kept place of this token.
    #[must_use]
    pub fn find_kept(&self, token: &Token) -> Option<Place> {
        let place = *self.by_token.get(token).filter(|_| self.kept > 0)?;
        let waiter = self.waiting.get(&place)?;
        waiter.keep.map(|_| place)
    }

    /// Whether a waiting or vacant place has this rank.
    #[must_use]
    pub fn has(&self, place: Place) -> bool {
        self.waiting.contains_key(&place) || self.vacant.contains_key(&place)
    }

    /// Returns the waiter to change. Its token, its claim and whether its place is kept are indexed, and stay.
    pub fn waiter_mut(&mut self, place: Place) -> Option<&mut Waiter> {
        self.waiting.get_mut(&place)
    }

    /// Counts the waiting requests up to and with this place, but no further than `most`.
    #[must_use]
    pub fn position(&self, place: Place, most: usize) -> usize {
        // A new request is the last, so it need not be counted.
        let last = self.waiting.last_key_value();
        match last.is_some_and(|(last, _)| *last == place) {
            true => self.waiting.len().min(most),
            false => self.waiting.range(..=place).take(most).count(),
        }
    }

    /// Returns the waiting request or kept place that comes after this one, and its rank.
    #[must_use]
    pub fn waiter_after(&self, place: Place) -> Option<(Place, &Waiter)> {
        let rest = (Bound::Excluded(place), Bound::Unbounded);
        let next = self.waiting.range(rest).next();
        next.map(|(place, waiter)| (*place, waiter))
    }

    /// Returns the waiting request for the most permits, with that number, if it is more than `limit`.
    #[must_use]
    pub fn above(&self, limit: u32) -> Option<(Place, u32)> {
        let heaviest = self.heavy.last().filter(|(permits, _)| *permits > limit);
        heaviest.map(|(permits, place)| (*place, *permits))
    }

    /// Returns a waiting request that allows no more attempts than have been made, if there is one.
    #[must_use]
    pub fn exhausted(&self, attempts: u64) -> Option<Place> {
        let (max_attempts, place) = self.capped.first()?;
        (u64::from(*max_attempts) <= attempts).then_some(*place)
    }

    /// Returns the oldest vacant place.
    #[must_use]
    pub fn oldest_vacancy(&self) -> Option<Place> {
        self.vacant.first_key_value().map(|(place, _)| *place)
    }

    /// Puts a request into a new or vacant place.
    pub fn join(&mut self, place: Place, waiter: Waiter) {
        debug_assert!(!self.waiting.contains_key(&place) && !self.vacant.contains_key(&place));
        if waiter.request.may_return {
            self.by_token.insert(waiter.request.token.clone(), place);
        }
        let permits = waiter.request.claim.permits();
        if permits > 1 {
            self.heavy.insert((permits, place));
        }
        self.kept += usize::from(waiter.keep.is_some());
        if let Some(max_attempts) = waiter.request.max_attempts {
            self.capped.insert((max_attempts, place));
        }
        self.waiting.insert(place, waiter);
    }

    /// Makes a kept place one that lasts only as long as its client waits. Returns whether one waits.
    pub fn unkeep(&mut self, place: Place) -> bool {
        let waiter = self.waiting.get_mut(&place);
        let Some(waiter) = waiter.filter(|waiter| waiter.is_parked()) else {
            return false;
        };
        self.kept -= usize::from(waiter.keep.take().is_some());
        true
    }

    pub fn watch(&mut self, place: Place, watcher: Watcher) {
        self.watching.insert(place, watcher);
    }

    /// Leaves the place of a waiter that has left vacant, for its token.
    pub fn vacate(&mut self, place: Place, vacancy: Vacancy) {
        debug_assert!(!self.waiting.contains_key(&place));
        self.by_token.insert(vacancy.token.clone(), place);
        self.vacant.insert(place, vacancy);
    }

    pub fn leave(&mut self, place: Place) -> Option<Departed> {
        if let Some(waiter) = self.waiting.remove(&place) {
            if waiter.request.may_return {
                self.by_token.remove(&waiter.request.token);
            }
            self.heavy.remove(&(waiter.request.claim.permits(), place));
            self.kept -= usize::from(waiter.keep.is_some());
            if let Some(max_attempts) = waiter.request.max_attempts {
                self.capped.remove(&(max_attempts, place));
            }
            return Some(Departed::Waiter(waiter));
        }
        if let Some(vacancy) = self.vacant.remove(&place) {
            self.by_token.remove(&vacancy.token);
            return Some(Departed::Vacancy(vacancy));
        }
        if let Some(watcher) = self.watching.remove(&place) {
            return Some(Departed::Watcher(watcher));
        }
        let watcher = self
            .answered
            .iter_mut()
            .find_map(|(_, watchers)| watchers.remove(&place))?;
        self.answered.retain(|(_, watchers)| !watchers.is_empty());
        Some(Departed::Watcher(watcher))
    }

    /// Returns the answer for this place, if one has been decided.
    #[must_use]
    pub fn answer_for(&self, place: Place) -> Option<&Answer> {
        let decided = self
            .answered
            .iter()
            .find(|(_, watchers)| watchers.contains_key(&place));
        decided.map(|(answer, _)| answer)
    }

    /// Decides the answer of all present watchers, in one step however many they are.
    pub fn answer_watchers(&mut self, answer: Answer) {
        if !self.watching.is_empty() {
            self.answered
                .push_back((answer, std::mem::take(&mut self.watching)));
        }
    }

    /// Returns the next decided answer and its place.
    #[must_use]
    pub fn next_answered(&self) -> Option<(Place, Answer)> {
        let (answer, watchers) = self.answered.front()?;
        watchers
            .first_key_value()
            .map(|(place, _)| (*place, answer.clone()))
    }

    /// Returns the requests that wait for a grant, in the order in which they will be served.
    pub fn waiting(&self) -> impl Iterator<Item = (Place, &Waiter)> {
        self.waiting.iter().map(|(place, waiter)| (*place, waiter))
    }

    /// Returns what other servers and files know of the kept places of this family, in the order of their numbers.
    pub fn kept_places(&self, family: Family) -> impl Iterator<Item = KeptPlace> {
        let all = self.waiting.iter().filter(move |_| self.kept > 0);
        let all = all.filter(move |(_, waiter)| waiter.request.claim.family() == family);
        all.filter_map(|(place, waiter)| waiter.kept_place(*place))
    }

    /// Returns the requests that wait for the round to finish.
    pub fn watching(&self) -> impl Iterator<Item = &Watcher> {
        self.watching.values()
    }

    /// The family that the queued requests belong to.
    #[must_use]
    pub fn family(&self) -> Option<Family> {
        let head = self.waiting.values().next();
        let watched = (self.waiters() > 0).then_some(Family::Group);
        head.map(|waiter| waiter.request.claim.family()).or(watched)
    }

    /// Returns when the longest wait began.
    #[must_use]
    pub fn waiting_since(&self) -> Option<MonoUs> {
        // Ranks are given in the order of arrival, so the first of each kind is its oldest.
        let head = self.waiting.first_key_value();
        let watcher = self.watching.first_key_value();
        match (head, watcher) {
            (Some((_, waiter)), Some((_, watcher))) => Some(waiter.since.min(watcher.since)),
            (Some((_, waiter)), None) => Some(waiter.since),
            (None, watcher) => watcher.map(|(_, watcher)| watcher.since),
        }
    }

    /// Takes the queue apart, one entry of one map at a step.
    pub fn into_pieces(self) -> impl Iterator<Item = ()> + Send + 'static {
        let answered = self.answered.into_iter();
        let answered = answered.flat_map(|(_, watchers)| watchers);
        let waiting = self.waiting.into_iter().map(drop);
        waiting
            .chain(self.vacant.into_iter().map(drop))
            .chain(self.by_token.into_iter().map(drop))
            .chain(self.heavy.into_iter().map(drop))
            .chain(self.capped.into_iter().map(drop))
            .chain(self.watching.into_iter().map(drop))
            .chain(answered.map(drop))
    }

    #[cfg(debug_assertions)]
    #[expect(clippy::expect_used, reason = "tests call it")]
    pub fn check_invariants(&self) {
        for (token, place) in &self.by_token {
            let (at, _) = self.find(token).expect("a token with a place");
            assert_eq!(at, *place);
        }
        let returning = self
            .waiting
            .values()
            .filter(|waiter| waiter.request.may_return)
            .count();
        assert_eq!(
            self.by_token.len(),
            returning + self.vacant.len(),
            "tokens that may return"
        );
        let heavy = self
            .waiting
            .iter()
            .filter(|(_, w)| w.request.claim.permits() > 1);
        let heavy: BTreeSet<_> = heavy
            .map(|(place, waiter)| (waiter.request.claim.permits(), *place))
            .collect();
        assert_eq!(self.heavy, heavy, "requests for several permits");
        let kept = self.waiting.values().filter(|waiter| waiter.keep.is_some());
        assert_eq!(self.kept, kept.count(), "kept places");
        for waiter in self.waiting.values() {
            let (request, is_kept) = (&waiter.request, waiter.keep.is_some());
            assert!(is_kept || waiter.is_parked(), "somebody waits");
            assert_eq!(waiter.id.is_some(), waiter.is_parked(), "whom to answer");
            assert!(!is_kept || request.may_return, "a kept place has a token");
            assert!(waiter.is_parked() || !request.ephemeral);
        }
        let capped = self
            .waiting
            .iter()
            .filter_map(|(place, waiter)| Some((waiter.request.max_attempts?, *place)));
        let capped: BTreeSet<_> = capped.collect();
        assert_eq!(self.capped, capped, "requests with a number of attempts");
        assert!(
            self.answered
                .iter()
                .all(|(_, watchers)| !watchers.is_empty())
        );
        let places = self
            .waiting
            .keys()
            .chain(self.vacant.keys())
            .chain(self.watching.keys());
        let places: BTreeSet<_> = places.collect();
        assert_eq!(
            places.len(),
            self.waiting.len() + self.vacant.len() + self.watching.len(),
            "a place is in one map"
        );
    }
}
