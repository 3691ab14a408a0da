//! The engine: its four owners, put together, and how this server begins to decide, and ceases to: see [`crate::term`].

use crate::agenda::Agenda;
use crate::effect::Effects;
use crate::queue::queues::Queues;
use crate::settings::Settings;
use crate::state::State;
use crate::stats::Stats;
use crate::store::Store;
use crate::store::deadlines::Wheel;
use crate::store::slab::StateId;
use crate::term::Term;
use crate::term::fences::Fences;
use crate::types::{Family, LeaseUs, Now, QueueId, Rank, UnixMs, WaiterId};

#[derive(Default)]
pub struct Engine {
    pub settings: Settings,
    /// The states, their deadlines, and what is freed later.
    pub(crate) store: Store,
    /// Who waits.
    pub(crate) queues: Queues,
    /// Whether this server decides, and its fences.
    pub(crate) term: Term,
    /// What comes due without a request.
    pub(crate) agenda: Agenda,
    pub(crate) stats: Stats,
    /// What the caller must do after a call.
    pub effects: Box<Effects>,
}

impl Engine {
    #[must_use]
    pub fn new(settings: Settings) -> Engine {
        Engine {
            settings,
            ..Engine::default()
        }
    }

    pub fn state(&self, id: StateId) -> Option<&State> {
        self.store.get(id)
    }

    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the number of live holds.
    pub fn holds(&self, family: Family) -> u64 {
        self.store.holds(family)
    }

    /// Returns the number of lanes in which requests wait.
    pub fn lanes(&self) -> u64 {
        self.queues.lanes()
    }

    /// Returns the number of holds that rest.
    pub fn resting(&self) -> u64 {
        self.store.resting()
    }

    pub fn fences(&self) -> &Fences {
        &self.term.fences
    }

    pub fn fences_mut(&mut self) -> &mut Fences {
        &mut self.term.fences
    }

    pub fn is_serving(&self) -> bool {
        self.term.is_serving()
    }

    /// Returns the latest moment that this server ever gave to a hold or a place. The lease clock must be past it when
    /// this server takes over.
    pub fn latest_due(&self) -> LeaseUs {
        self.term.latest_due()
    }

    /// Makes this server the one that decides. Each hold has what is left of its lease by the wall clock plus the
    /// grace, at most its whole lease.
    pub fn take_over(&mut self, now: Now) {
        if self.is_serving() {
            return;
        }
        let grace_ms = self.settings.takeover_grace_ms;
        let first_state = self.store.states_since(StateId::FIRST).next();
        let first_state = first_state.map(|(id, _)| id);
        (self.term).take_over(now, grace_ms, first_state, self.queues.kept() > 0);
        self.store.leases = Wheel::new(self.term.since().0);
        self.queues.begin_turns();
        self.queues.set_all_due(None);
    }

    /// Notes that another server decides from now on, and drops all deadlines.
    pub fn stand_down(&mut self) {
        self.term.stand_down();
        self.store.drop_deadlines();
        self.store.leftovers.drop_entries(self.queues.take_keeps());
        self.agenda.stand_down(&mut self.store);
    }

    /// Notes that the client on a kept place does not wait any more; the place is kept from now on. Returns the request
    /// that waited; `None` if the place is not kept.
    pub(crate) fn detach(&mut self, queue: QueueId, rank: Rank, now: Now) -> Option<WaiterId> {
        let place = self.queues.get(queue)?.place(rank)?;
        let until = self.term.keep_until(place.standing.keep()?.ms, now);
        let parked = self.queues.detach(queue, rank, until)?;
        Some(parked.waiter)
    }

    /// Indexes the state under its deadlines, on a server that decides: see [`Store::index`].
    pub(crate) fn index(&mut self, id: StateId) -> (Option<LeaseUs>, Option<UnixMs>) {
        match self.term.is_serving() {
            true => (self.store).index(id, self.term.since(), &self.settings),
            false => (None, None),
        }
    }
}
