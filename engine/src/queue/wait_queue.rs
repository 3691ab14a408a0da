//! The queue of one key: first come, first served.
//!
//! Requests join at the back and are granted one after the other from the front; none is served before the first. So
//! small requests cannot starve a request for many permits: freed permits accumulate until there are enough for it.
//!
//! A *kept* place (QUEUE) stands in line like any other request, although no client may wait on it.
//!
//! A place whose connection closed stays *vacant* for a while, so that a retry with its token can take it again. It
//! has its rank but delays no other request. Vacant places are in a map of their own, so the first waiting request is
//! found without stepping over them. A vacant place may also have a *verdict*: what became of the token's request, for
//! a token that did not hear it or may still send the request. Watchers (WAIT of a group) claim nothing, and are
//! answered all together.
//!
//! Ordered maps by rank are used rather than a linked list: to leave and to find the head cost a few comparisons, a
//! retry takes its vacant place in the middle without a walk, and no step copies the queue.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use crate::Family;
use crate::answer::Answer;
use crate::change::KeptPlace;
use crate::heap;
use crate::queue::entry::{Departed, Keep, Place, Seat, Vacancy, Wait, Waiter, Watcher};
use crate::types::{ClientId, LeaseUs, MonoUs, Token, WaiterId};

#[cfg(debug_assertions)]
mod invariants;

/// Invariants: a place is in exactly one of the maps of places; `by_token` has the places, waiting or vacant, whose
/// token may come back; `heavy` has the waiting places that ask for more than one permit, and `capped` those whose
/// request has a MAX of attempts; a kept place is waiting; the numbers are sums over the waiting places.
#[derive(Default)]
pub struct WaitQueue {
    waiting: BTreeMap<Place, Waiter>,
    vacant: BTreeMap<Place, Vacancy>,
    by_token: BTreeMap<Token, Place>,
    heavy: BTreeSet<(u32, Place)>,
    /// How many of the waiting places are kept.
    kept: usize,
    /// The sum of [`Waiter::heap_bytes`] of the kept places, so that MEMORY USAGE does not walk over them.
    kept_bytes: usize,
    /// How many clients wait on the waiting places.
    parked: usize,
    /// The number of waiting places by family.
    by_family: [usize; Family::ALL.len()],
    capped: BTreeSet<(u32, Place)>,
    watching: BTreeMap<Place, Watcher>,
    /// Watchers whose answer is decided but not sent yet, because a call sends a bounded number of answers.
    answered: VecDeque<(Answer, BTreeMap<Place, Watcher>)>,
    /// A request has left unserved since [`crate::Engine::free_capacity`] last looked at the queue.
    pub left_unserved: bool,
    /// For each family, the limit that was last in force or given by a request: see [`WaitQueue::limit`].
    limits: [Option<u32>; Family::ALL.len()],
}

/// Who waited on a kept place.
pub struct Detached {
    pub id: Option<WaiterId>,
    pub client: ClientId,
    pub wait: Option<Wait>,
}

/// A piece of a queue that was taken apart: a kept place with the moment until which it was kept, or something else.
pub type Piece = Option<(LeaseUs, Place)>;

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

    /// Returns the number of waiting requests and kept places by family, without watchers.
    #[must_use]
    pub fn by_family(&self) -> [usize; Family::ALL.len()] {
        self.by_family
    }

    /// Returns the bytes that the kept places take in this queue.
    #[must_use]
    pub fn kept_heap_bytes(&self) -> usize {
        let entries = [size_of::<(Place, Waiter)>(), size_of::<(Token, Place)>()];
        let trees = entries.map(|bytes| heap::tree(self.kept, bytes));
        self.kept_bytes + trees.iter().sum::<usize>()
    }

    /// Returns how many clients wait for a grant.
    #[must_use]
    pub fn parked(&self) -> usize {
        self.parked
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

    /// Returns how a place is kept, to change it.
    pub fn keep_mut(&mut self, place: Place) -> Option<&mut Keep> {
        self.waiting.get_mut(&place)?.keep.as_mut()
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
        if waiter.keep.is_some() {
            self.kept += 1;
            self.kept_bytes += waiter.heap_bytes();
        }
        self.parked += usize::from(waiter.is_parked());
        self.by_family[waiter.request.claim.family() as usize] += 1;
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
        if waiter.keep.take().is_some() {
            self.kept -= 1;
            self.kept_bytes -= waiter.heap_bytes();
        }
        true
    }

    /// Notes that nobody waits on a kept place any more, and that it is kept until then. Returns the request that waited
    /// and, if its client is parked, the client and its wait. `None` if the place is not kept.
    pub fn detach(&mut self, place: Place, until: LeaseUs) -> Option<Detached> {
        let waiter = self.waiting.get_mut(&place)?;
        waiter.keep.as_mut()?.until = until;
        let request = &mut waiter.request;
        let detached = Detached {
            id: waiter.id.take(),
            client: std::mem::replace(&mut request.client, ClientId::NONE),
            wait: request.wait.take(),
        };
        request.ephemeral = false;
        self.parked -= usize::from(detached.wait.is_some());
        Some(detached)
    }

    /// Drops all kept places. A request whose client waits on one goes on waiting, on a place that is not kept. Returns
    /// what is left of the dropped places, to be taken apart in slices: see [`WaitQueue::into_pieces`].
    ///
    /// `parked` has at least the places on which clients wait. It takes as many steps as these are, and as vacant places
    /// are in the queue, however many places are dropped.
    pub fn drop_kept(&mut self, parked: &[Place]) -> impl Iterator<Item = Piece> + Send + use<> {
        let takes_idle = self.waiting.len() - self.parked < self.parked;
        let mut dropped = WaitQueue::default();
        if takes_idle {
            let idle = self
                .waiting
                .iter()
                .filter(|(_, waiter)| !waiter.is_parked());
            let idle: Vec<Place> = idle.map(|(place, _)| *place).collect();
            for place in idle {
                if let Some(Departed::Waiter(waiter)) = self.leave(place) {
                    dropped.join(place, waiter);
                }
            }
        } else {
            std::mem::swap(self, &mut dropped);
            // What stays is taken out of `dropped.waiting` only. Its other maps are not used any more.
            for place in parked {
                if let Some(waiter) = dropped.waiting.remove(place) {
                    self.join(*place, waiter);
                }
            }
            for (place, vacancy) in std::mem::take(&mut dropped.vacant) {
                self.vacate(place, vacancy);
            }
            self.watching = std::mem::take(&mut dropped.watching);
            self.answered = std::mem::take(&mut dropped.answered);
            self.left_unserved = dropped.left_unserved;
            self.limits = dropped.limits;
        }
        if self.kept > 0 {
            for waiter in self.waiting.values_mut() {
                waiter.keep = None;
            }
            (self.kept, self.kept_bytes) = (0, 0);
        }
        dropped.into_pieces()
    }

    pub fn watch(&mut self, place: Place, watcher: Watcher) {
        self.watching.insert(place, watcher);
    }

    /// Leaves the place of an entry that has left vacant, for its token.
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
            if waiter.keep.is_some() {
                self.kept -= 1;
                self.kept_bytes -= waiter.heap_bytes();
            }
            self.parked -= usize::from(waiter.is_parked());
            self.by_family[waiter.request.claim.family() as usize] -= 1;
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
    pub fn into_pieces(self) -> impl Iterator<Item = Piece> + Send + use<> {
        let answered = self.answered.into_iter();
        let answered = answered.flat_map(|(_, watchers)| watchers);
        let kept = |(place, waiter): (Place, Waiter)| Some((waiter.keep?.until, place));
        let waiting = self.waiting.into_iter().map(kept);
        waiting
            .chain(self.vacant.into_iter().map(|_| None))
            .chain(self.by_token.into_iter().map(|_| None))
            .chain(self.heavy.into_iter().map(|_| None))
            .chain(self.capped.into_iter().map(|_| None))
            .chain(self.watching.into_iter().map(|_| None))
            .chain(answered.map(|_| None))
    }
}
