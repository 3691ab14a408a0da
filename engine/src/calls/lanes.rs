//! Lanes (LANE) as a visit sees them: which one is next, what each has in use, and whether a request may pass those who
//! wait. The rule is in [`crate::queue::lanes`].

use crate::answer::{FullQueue, Refusal};
use crate::calls::next::Next;
use crate::queue::place::Request;
use crate::short_bytes::LaneName;
use crate::state::HoldSet;
use crate::types::Family;
use crate::visit::Visit;

/// How many lanes one visit sorts.
const SLICE: u32 = 1_024;

impl Visit<'_> {
    /// Chooses a lane, and returns what the queue needs next; `InLanes` if its lanes are not sorted yet.
    pub(super) fn next_in_lanes(&mut self) -> Next {
        if !self.choose_lane() {
            return Next::InLanes;
        }
        let queue = self.queue();
        let place = queue.and_then(|queue| queue.place(queue.lanes()?.chosen()?));
        place.map_or(Next::Nothing, |place| {
            Next::of_place(self.body(), place, Some(self.limit_of_queue()))
        })
    }

    /// Sorts the lanes of the queue and chooses one. Returns false if there are too many to sort them in one visit.
    pub(crate) fn choose_lane(&mut self) -> bool {
        let limit = self.limit_of_queue();
        let engine = &mut *self.engine;
        let lanes = (self.queue).and_then(|id| engine.queues.lanes_of(id, self.state));
        let Some(lanes) = lanes else { return true };
        let state = self.state.and_then(|id| engine.store.get(id));
        let holds = state.map(|state| state.body.holds());
        let in_use = |lane: &LaneName| holds.map(|holds| holds.in_use(lane.as_bytes()));
        let is_sorted = lanes.sort(&mut { SLICE }, |lane| in_use(lane).unwrap_or_default());
        if is_sorted {
            let taken = holds.map_or(0, HoldSet::permits);
            lanes.choose(limit, taken < u64::from(limit));
        }
        is_sorted
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
            Some(lanes) => queue.all_stand_aside(limit()) && lanes.places(&request.lane).0 == 0,
            // All who wait are in the nameless lane.
            None if request.lane.is_nameless() || queue.has_other_line(Family::Semaphore) => false,
            None => queue.head().is_some_and(|head| {
                self.in_use(&[]) + u64::from(head.claim.permits()) > u64::from(limit())
            }),
        })
    }

    /// Whether the lane of a request has room for it under its LANELIMIT.
    pub(super) fn fits_lane(&self, request: &Request) -> bool {
        request.bound.is_none_or(|most| {
            let in_use = self.in_use(request.lane.as_bytes());
            in_use + u64::from(request.claim.permits()) <= u64::from(most)
        })
    }

    /// Returns how many permits the holds of a lane take.
    fn in_use(&self, lane: &[u8]) -> u64 {
        let body = self.body();
        body.map_or(0, |body| body.holds().in_use(lane).permits)
    }

    /// Checks, once somebody says LANE, that the lane of a new place has fewer places, or kept ones, than are still free
    /// under the bounds for these.
    pub(super) fn check_room_in_lane(
        &self,
        lane: Option<&LaneName>,
        kept: bool,
    ) -> Result<(), FullQueue> {
        let (queues, settings) = (&self.engine.queues, &self.engine.settings);
        let lane = lane.filter(|_| queues.keep_any_lanes());
        let places = lane.and_then(|lane| Some(self.queue()?.lanes()?.places(lane)));
        let (all, kept_ones) = places.unwrap_or_default();
        match if kept { kept_ones } else { all } as u64 {
            0 => Ok(()),
            here => (queues.check_room(self.queue, here + 1, kept, settings))
                .map_err(|_| FullQueue::Lane(here)),
        }
    }

    /// Refuses a request whose permits are above its own LANELIMIT.
    pub(super) fn check_lane_limit(request: &Request) -> Result<(), Refusal> {
        let (permits, limit) = (request.claim.permits(), request.bound);
        match limit.filter(|limit| permits > *limit) {
            Some(limit) => Err(Refusal::TooManyForLane { permits, limit }),
            None => Ok(()),
        }
    }
}
