//! How a visit begins and ends: the call, serving, and storing what became of the key, in this order.

use crate::change::Change;
use crate::engine::Engine;
use crate::queue::wait_queue::WaitQueue;
use crate::state::Body;
use crate::store::slab::StateId;
use crate::types::{Family, Now};
use crate::visit::{Key, Visit, WrongType};

/// What a visit leaves, besides the effects.
pub struct Visited<R> {
    pub result: R,
    /// The value of the key. The caller stores a new value, and deletes the key if the value is gone.
    pub state: Option<StateId>,
    /// The family of the value, if the visit has changed the key or left effects: nobody needs it otherwise.
    pub family: Option<Family>,
    /// Whether more could be granted now than before, and nobody is queued for it.
    pub is_freed: bool,
    /// In how many microseconds something may come due that was not to come due before, `None` if nothing: unless the
    /// caller comes back as early anyway, it must ask [`Engine::next_wake`].
    pub comes_due: Option<u64>,
}

impl Engine {
    /// Visits a key: makes the call, then serves those that wait, and notes when the key next comes due.
    pub fn visit<'v, R>(
        &'v mut self,
        key: Key<'v>,
        now: Now,
        call: impl FnOnce(&mut Visit<'v>) -> R,
    ) -> Visited<R> {
        let was_stray = self.open(key);
        let mut visit = Visit::new(self, key, now);
        visit.comes_due = was_stray.then_some(0);
        if visit.queue.is_some() {
            visit.note_capacity();
        }
        let result = call(&mut visit);
        if visit.is_stale {
            visit.settle();
        }
        if visit.engine.queues.first_due().is_some() {
            visit.comes_due_in(0);
        }
        let before = visit.free_before;
        let before = before.filter(|_| visit.engine.effects.may_free_capacity);
        let is_changed = visit.state != key.state || !visit.engine.effects.is_empty();
        Visited {
            result,
            state: visit.state,
            family: visit.body().filter(|_| is_changed).map(Body::family),
            is_freed: before.is_some_and(|before| visit.free_capacity() > before),
            comes_due: visit.comes_due,
        }
    }
}

impl Visit<'_> {
    /// Serves the requests that can be served. Then removes the key if nothing keeps it; otherwise updates its entries
    /// in the deadline indexes.
    pub(crate) fn settle(&mut self) {
        let waited = self.was_waited_for || self.queue().is_some_and(WaitQueue::is_waited_in);
        self.serve();
        let (mut waits, mut keeps) = (false, false);
        if let Some(queue) = self.queue.and_then(|id| self.engine.queues.get_mut(id)) {
            queue.left_unsettled = false;
            waits = queue.has_waiters();
            // Kept places are saved with the value of their name, so they keep it.
            keeps = queue.kept() > 0;
            queue.holder = self.state;
        }
        let Some(id) = self.state else { return };
        let now = self.now.unix();
        if (waited || waits)
            && let Some(body) = self.engine.store.body_mut(id)
        {
            body.watched(now);
        }
        let settings = &self.engine.settings;
        let is_over = |body: &Body| !body.outlives_use(settings, waits, now);
        if self.now.may_write && !keeps && self.body().is_some_and(is_over) {
            self.vanish();
        } else {
            let (lease, moment) = self.engine.index(id);
            if let Some(due) = lease {
                self.comes_due_in(due.0.saturating_sub(self.now.lease.0));
            }
            if let Some(at) = moment {
                self.comes_due_in(at.ms_left(now).saturating_mul(1_000));
            }
        }
        self.is_stale = false;
    }

    /// Returns the value of the key, or an error if it is of another family. If the key is absent, its queue is served
    /// first: the key was removed a moment ago, so its waiters came before the request that is made now.
    pub(crate) fn settled_body_of(&mut self, family: Family) -> Result<Option<&Body>, WrongType> {
        if self.state.is_none() {
            self.settle();
        }
        self.look().body_of(family)
    }

    /// Removes the key, and records that as a change.
    fn vanish(&mut self) {
        let _ = self.decide(Change::Vanish);
        self.discard();
    }

    /// Forgets a state that has been kept long enough, as a step of its own: a later visit serves the requests that
    /// wait for its key, and makes a new state. Returns whether it forgot one.
    pub(crate) fn forget_if_over(&mut self) -> bool {
        let (body, look) = (self.body(), self.look());
        let is_over = body.is_some_and(|body| look.is_over(body, || self.was_waited_for));
        if is_over {
            self.vanish();
            self.is_stale = false;
            self.set_queue_due();
        }
        is_over
    }
}
