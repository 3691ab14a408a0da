//! Lanes (LANE) as a visit sees them: which one is next, what each has in use, and whether a request may pass those who
//! wait. The rule is in [`crate::queue::lanes`].

use crate::answer::{FullQueue, Refusal};
use crate::calls::next::Next;
use crate::queue::place::Request;
use crate::short_bytes::LaneName;
use crate::state::Body;
use crate::types::Family;
use crate::visit::Visit;

impl Visit<'_> {
    /// Chooses a lane, and returns what the queue needs next; `InLanes` if its lanes are not sorted yet, and `None` if it
    /// keeps none any more.
    pub(super) fn next_in_lanes(&mut self) -> Option<Next> {
        if !self.choose_lane() {
            return Some(Next::InLanes);
        }
        let queues = &mut self.engine.queues;
        if !self.queue.is_some_and(|id| queues.keep_lanes(id)) {
            return None;
        }
        let queue = self.queue();
        let place = queue.and_then(|queue| queue.place(queue.lanes()?.chosen()?));
        Some(place.map_or(Next::Nothing, |place| {
            Next::of_place(self.body(), place, Some(self.limit_of_queue()))
        }))
    }

    /// Sorts the lanes of the queue and chooses one. Returns false if there are too many to sort them in one visit.
    pub(crate) fn choose_lane(&mut self) -> bool {
        let Some(id) = self.queue else { return true };
        let engine = &mut *self.engine;
        let body = self.state.and_then(|id| engine.store.get(id));
        let holds = body.map(|state| state.body.holds());
        let in_use = |lane: &LaneName| {
            let in_use = holds.map(|holds| holds.in_use(lane.as_bytes()));
            in_use.unwrap_or_default()
        };
        if !engine.queues.sort_lanes(id, self.state, in_use) {
            return false;
        }
        let limit = self.limit_of_queue();
        let taken = self.body().map_or(0, |body| body.holds().permits());
        let queue = self.engine.queues.get_mut(id);
        if let Some(lanes) = queue.and_then(|queue| queue.lanes.get_mut()) {
            lanes.choose(limit, taken < u64::from(limit));
        }
        true
    }

    /// Begins to keep lanes, before the first place that names one joins the queue. Who waits for free permits already
    /// stays chosen.
    pub(super) fn begin_lanes(&mut self, lane: &LaneName) {
        let queue = self.queue.filter(|_| !lane.is_nameless());
        if queue.is_some_and(|id| self.engine.queues.begin_lanes(id)) {
            self.choose_lane();
        }
    }

    /// Whether a new request may be granted although others wait: they stand aside, under either limit, and none of them
    /// is in its lane.
    pub(super) fn passes_line(&self, request: &Request, limit: Option<u32>) -> bool {
        if request.lane.is_nameless() && !self.engine.queues.keep_any_lanes() {
            return false;
        }
        let queue = self.queue();
        let limit = || limit.unwrap_or(0).max(self.limit_of_queue());
        queue.is_some_and(|queue| match queue.lanes() {
            _ if queue.has_other_line(Family::Semaphore) => false,
            Some(lanes) => !lanes.has_line(&request.lane) && lanes.all_stand_aside(limit()),
            // All who wait are in the nameless lane.
            None if request.lane.is_nameless() => false,
            None => queue.head().is_some_and(|head| {
                let holds = self.body().map(Body::holds);
                let own = holds.map_or(0, |holds| holds.in_use(&[]).permits);
                own + u64::from(head.claim.permits()) > u64::from(limit())
            }),
        })
    }

    /// Whether the lane of a request has room for it under its LANELIMIT.
    pub(super) fn fits_lane(&self, request: &Request) -> bool {
        request.lane_limit.is_none_or(|most| {
            let holds = self.body().map(Body::holds);
            let lane = request.lane.as_bytes();
            let in_use = holds.map_or(0, |holds| holds.in_use(lane).permits);
            in_use + u64::from(request.claim.permits()) <= u64::from(most)
        })
    }

    /// Checks that the lane of a new place, or of one that is to be kept, has fewer such places than are still free under
    /// the bounds, once somebody says LANE.
    pub(super) fn check_room_in_lane(
        &self,
        lane: Option<&LaneName>,
        is_kept: bool,
    ) -> Result<(), FullQueue> {
        let lane = lane.filter(|_| self.engine.queues.keep_any_lanes());
        let lanes = lane.and_then(|_| self.queue()?.lanes());
        let Some((lanes, lane)) = lanes.zip(lane) else {
            return Ok(());
        };
        let places = if is_kept { kept } else { places } as u64;
        let (places, kept) = lanes.places(lane);
        let (queues, settings) = (&self.engine.queues, &self.engine.settings);
        let free = queues.left_for_lane(self.queue, is_kept, settings);
        match places > 0 && places >= free {
            true => Err(FullQueue::Lane(places)),
            false => Ok(()),
        }
    }

    /// Refuses a request whose permits are above its own LANELIMIT.
    pub(super) fn check_lane_limit(request: &Request) -> Result<(), Refusal> {
        let (permits, limit) = (request.claim.permits(), request.lane_limit);
        match limit.filter(|limit| permits > *limit) {
            Some(limit) => Err(Refusal::TooManyForLane { permits, limit }),
            None => Ok(()),
        }
    }
}
