//! Lanes of a semaphore: which request is next, and who stands aside.

use super::content::ModelContent;
use super::queue::ModelSeat;
use super::{Model, Name};
use dsync_engine::types::Claim;
use dsync_engine::{Family, FullQueue, LaneName, Request};

/// The turns of lanes: the lowest is the oldest. 0 is one that is not known since a server took over.
#[derive(Clone, Default)]
pub struct Turns(Vec<(LaneName, u64)>);

impl Turns {
    fn get(&self, lane: &LaneName) -> Option<u64> {
        let turn = self.0.iter().find(|(of, _)| of == lane);
        turn.map(|(_, turn)| *turn)
    }

    fn set(&mut self, lane: &LaneName, turn: u64) {
        self.0.retain(|(of, _)| of != lane);
        self.0.push((lane.clone(), turn));
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &(LaneName, u64)> {
        self.0.iter()
    }

    /// A server takes over: only the lanes are known.
    pub fn forget(&mut self) {
        self.0.iter_mut().for_each(|(_, turn)| *turn = 0);
    }
}

fn is_for_permits(claim: Claim) -> bool {
    claim.family() == Family::Semaphore
}

impl ModelSeat {
    fn is_in(&self, lane: &LaneName) -> bool {
        self.claim.is_some_and(is_for_permits) && self.lane == *lane
    }
}

impl Model {
    /// Returns the permits that the holds of a lane take.
    pub fn in_use(&self, name: Name, lane: &LaneName) -> u64 {
        let holds = self.content(name).map_or(&[][..], |content| &content.holds);
        let holds = holds.iter().filter(|hold| is_for_permits(hold.claim));
        let of_lane = holds.filter(|hold| hold.lane == *lane);
        of_lane.map(|hold| u64::from(hold.claim.permits())).sum()
    }

    /// A hold of the lane has begun or ended.
    pub(super) fn move_turn(&mut self, name: Name, lane: &LaneName) {
        let turn = self.number();
        if let Some(content) = self.content_mut(name) {
            content.turns.set(lane, turn);
        }
        let queue = self.queue(name);
        if queue.turns.get(lane).is_some() {
            queue.turns.set(lane, turn);
        }
        self.forget_lanes(name);
    }

    /// The value leaves the name: for each lane that has holds there, they end at once.
    pub(super) fn holds_leave(&mut self, name: Name) {
        if self.seats(name).is_empty() {
            return;
        }
        let turn = self.number();
        let lanes = self.queue(name).turns.0.clone();
        for (lane, _) in lanes {
            if self.in_use(name, &lane) > 0 {
                self.queue(name).turns.set(&lane, turn);
            }
        }
    }

    /// A request or a vacant place comes to the queue: its lane keeps the turn that it has.
    pub(super) fn come(&mut self, name: Name, lane: &LaneName) {
        if !self.names_lanes(name) && !lane.is_nameless() {
            self.choose(name);
        }
        let turn = self.number();
        let of_holds = self.content(name).map(|content| content.turns.get(lane));
        let held = (self.in_use(name, lane) > 0).then(|| of_holds.flatten().unwrap_or(0));
        let turns = &mut self.queue(name).turns;
        if turns.get(lane).is_none() {
            turns.set(lane, held.unwrap_or(turn));
        }
    }

    /// A lane keeps its turn while it has a hold, a request or a vacant place.
    pub(super) fn forget_lanes(&mut self, name: Name) {
        let queue = self.queue(name);
        let seats = &queue.seats;
        let has_seat = |lane: &LaneName| seats.iter().any(|seat| seat.is_in(lane));
        queue.turns.0.retain(|(lane, _)| has_seat(lane));
        if let Some(content) = self.content_mut(name) {
            let holds = &content.holds;
            let has_hold = |lane: &LaneName| holds.iter().any(|hold| hold.lane == *lane);
            content.turns.0.retain(|(lane, _)| has_hold(lane));
        }
    }

    /// Whether a place of the queue names a lane.
    pub fn names_lanes(&self, name: Name) -> bool {
        let mut seats = self.seats(name).iter();
        seats.any(|seat| !seat.lane.is_nameless())
    }

    fn limit_of_queue(&self, name: Name) -> u32 {
        let limit = match self.content(name) {
            Some(content) => content.in_force(),
            None => self.kept_limit(name, Family::Semaphore),
        };
        limit.unwrap_or(0)
    }

    fn stands_aside(&self, name: Name, request: &Request, limit: u32) -> bool {
        let most = request.bound.unwrap_or(u32::MAX).min(limit);
        let own = self.in_use(name, &request.lane);
        own + u64::from(request.claim.permits()) > u64::from(most)
    }

    /// Returns the first request for permits of each lane.
    fn firsts(&self, name: Name) -> Vec<(u64, Request)> {
        let mut firsts = self.waiting(name);
        firsts.retain(|(_, request)| is_for_permits(request.claim));
        let mut seen = Vec::new();
        firsts.retain(|(_, request)| {
            let is_first = !seen.contains(&request.lane);
            seen.push(request.lane.clone());
            is_first
        });
        firsts
    }

    /// Chooses the request for permits that is served next: the one that was chosen before, as long as it waits as the
    /// first of its lane and does not stand aside; otherwise, if permits are free, the first of the lane that has the
    /// fewest in use, and among equals the oldest turn.
    pub(super) fn choose(&mut self, name: Name) -> Option<(u64, Request)> {
        let limit = self.limit_of_queue(name);
        let mut firsts = self.firsts(name);
        firsts.retain(|(_, request)| !self.stands_aside(name, request, limit));
        let is_named = self.names_lanes(name);
        let before = self.queue(name).chosen.filter(|_| is_named);
        let chosen = firsts.iter().position(|(rank, _)| Some(*rank) == before);
        let taken = self.content(name).map_or(0, ModelContent::permits_held);
        let is_free = taken < u64::from(limit);
        let turns = self.queue(name).turns.clone();
        let order = |(rank, request): &(u64, Request)| {
            let in_use = self.in_use(name, &request.lane);
            (in_use, turns.get(&request.lane).unwrap_or(0), *rank)
        };
        let all = 0..firsts.len();
        let best = || all.filter(|_| is_free).min_by_key(|at| order(&firsts[*at]));
        let chosen = chosen.or_else(best).map(|at| firsts.remove(at));
        self.queue(name).chosen = chosen.as_ref().map(|(rank, _)| *rank);
        chosen
    }

    /// Whether a new request may be granted although others wait: all of them stand aside, in other lanes.
    pub(super) fn passes_line(&self, name: Name, request: &Request, limit: Option<u32>) -> bool {
        let limit = limit.unwrap_or(0).max(self.limit_of_queue(name));
        let waiting = self.waiting(name);
        let mut in_lanes = waiting.iter();
        let firsts = self.firsts(name);
        let mut firsts = firsts.iter();
        in_lanes.all(|(_, other)| is_for_permits(other.claim) && other.lane != request.lane)
            && firsts.all(|(_, first)| self.stands_aside(name, first, limit))
    }

    pub(super) fn fits_lane(&self, name: Name, request: &Request) -> bool {
        let own = self.in_use(name, &request.lane) + u64::from(request.claim.permits());
        let most = request.bound.unwrap_or(u32::MAX);
        own <= u64::from(most)
    }

    /// Once somebody says LANE, a lane has no more places than are free after it.
    pub(super) fn check_room_in_lane(
        &self,
        name: Name,
        claim: Claim,
        lane: &LaneName,
        is_kept: bool,
    ) -> Result<(), FullQueue> {
        if !is_for_permits(claim) || !self.names_lanes(name) {
            return Ok(());
        }
        let counts = |seat: &&ModelSeat| !seat.is_vacant() && (!is_kept || seat.keep.is_some());
        let here = self.seats(name).iter().filter(counts);
        let places = here.clone().filter(|seat| seat.is_in(lane)).count() as u64;
        let all = self.queues.iter().flat_map(|queue| &queue.seats);
        let all = all.filter(counts).count() as u64;
        let half = if is_kept { 2 } else { 1 };
        let per_key =
            (self.settings.max_waiters_per_key / half).saturating_sub(here.count() as u64);
        let server = (self.settings.max_waiters / half).saturating_sub(all);
        match places > 0 && places >= per_key.min(server) {
            true => Err(FullQueue::Lane(places)),
            false => Ok(()),
        }
    }

    /// Returns the position of a request in its lane, or in the queue if nobody names a lane.
    pub(super) fn position(&self, name: Name, rank: u64) -> u32 {
        let waiting = self.waiting(name);
        let own = waiting.iter().find(|(other, _)| *other == rank);
        let own = own.expect("it waits").1.clone();
        let in_lane = self.names_lanes(name) && is_for_permits(own.claim);
        let counts =
            |other: &Request| !in_lane || is_for_permits(other.claim) && other.lane == own.lane;
        let before = waiting.iter().filter(|(other, _)| *other <= rank);
        before.filter(|(_, other)| counts(other)).count().min(100) as u32
    }
}
