//! What comes due without a request: leases, waits, vacant and kept places, delays, pauses, retention, and tasks that
//! were put off.
//!
//! The caller asks for the next task, opens its key and performs it. Each task concerns one key. [`Agenda::next_wake`]
//! says when to ask again; to ask early, or twice, does nothing.

pub mod put_off;
pub mod task;

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use crate::change::End;
use crate::queue::queues::Queues;
use crate::short_bytes::KeyName;
use crate::state::State;
use crate::store::Store;
use crate::term::Term;
use crate::types::{ClientId, Db, Fence, Now};
use put_off::{PutOff, Subject};
use task::{Ending, Task};

/// How long a task waits whose key this server cannot write at present.
const PUT_OFF_MS: u64 = 50;

/// Where tasks come from.
#[derive(Clone, Copy)]
enum Source {
    Moments,
    Endings,
    Leases,
    DueQueues,
    Retention,
    Keeps,
    Openings,
    PutOff,
}

const SOURCES: [Source; 8] = [
    Source::Moments,
    Source::Endings,
    Source::Leases,
    Source::DueQueues,
    Source::Retention,
    Source::Keeps,
    Source::Openings,
    Source::PutOff,
];

#[derive(Default)]
pub struct Agenda {
    /// Connections that have closed. Their EPHEMERAL holds end as soon as the server can write. The holds are not listed
    /// here one by one, because a connection may have a million.
    closed: BTreeSet<ClientId>,
    /// Other holds that end as soon as the server can write: grants whose reply was not delivered.
    endings: BTreeMap<Fence, Ending>,
    pub put_off: PutOff,
    /// Which source to look at first: the next one after every task, so that a wave of one kind cannot keep the others
    /// waiting.
    first: usize,
}

impl Agenda {
    /// Notes that the connection has closed. Returns whether EPHEMERAL holds end with it.
    pub fn closed(&mut self, client: ClientId, store: &Store) -> bool {
        let has_holds = store.ephemeral_of(client).is_some();
        if has_holds {
            self.closed.insert(client);
        }
        has_holds
    }

    /// Notes that the hold ends as soon as the server can write.
    pub fn end(&mut self, fence: Fence, ending: Ending) {
        self.endings.insert(fence, ending);
    }

    /// Notes that a new connection has the hold, so the end of the old one no longer matters.
    pub fn keep(&mut self, fence: Fence) {
        self.endings.remove(&fence);
        self.put_off.0.remove(Subject::Hold(fence));
    }

    /// Whether the grant of this hold could not be delivered, and the hold will end because of that.
    pub fn is_undelivered(&self, fence: Fence) -> bool {
        let ending = match self.put_off.0.get(Subject::Hold(fence)) {
            Some((_, Task::End { ending, .. })) => Some(ending),
            _ => self.endings.get(&fence),
        };
        ending.is_some_and(|ending| ending.how == End::Undelivered)
    }

    /// Returns the next task that is due, its key and the key's database. Each look into the lease index costs one of
    /// `budget`; when it is used up there is no task.
    ///
    /// While the server does not take writes only waits run out, and everything else stays due.
    pub fn next(
        &mut self,
        store: &mut Store,
        queues: &mut Queues,
        term: &Term,
        now: Now,
        budget: &mut u32,
    ) -> Option<(Task, Db, KeyName)> {
        while *budget > 0 {
            *budget -= 1;
            let (before, from) = SOURCES.split_at(self.first);
            let mut sources = from.iter().chain(before);
            let task = |source: &Source| self.next_of(*source, store, queues, term, now, budget);
            let task = sources.find_map(task)?;
            self.first = (self.first + 1) % SOURCES.len();
            if let Some((db, name)) = key_of(task, store, queues) {
                return Some((task, db, name));
            }
            // The hold of a stray ends when its key is known.
            if let Task::End { ending, .. } = task
                && store.strays.contains(ending.state)
            {
                self.put_off(task, store, queues, now);
            }
        }
        None
    }

    fn next_of(
        &mut self,
        source: Source,
        store: &mut Store,
        queues: &mut Queues,
        term: &Term,
        now: Now,
        budget: &mut u32,
    ) -> Option<Task> {
        match source {
            // A hold that is about to end may let this waiter in, or a kept place before it that is about to be dropped.
            // The grant wins over the timeout.
            Source::Moments => {
                let may_be_granted = now.may_write
                    && (self.keeps_wait(store, term, budget)
                        || next_keep_over(queues, now).is_some());
                let (moment, queue, rank) = queues.first_moment().filter(|_| !may_be_granted)?;
                (moment <= now.mono).then_some(Task::RunOut { queue, rank })
            }
            _ if !now.may_write => None,
            Source::Endings => self.next_end(store, budget),
            Source::Leases => store.leases.pop_due(now.lease.0, budget).map(Task::Lapse),
            Source::DueQueues => {
                let queue = queues.first_due()?;
                queues.mark_visited(queue);
                Some(Task::Serve(queue))
            }
            Source::Retention => {
                let (until, state) = store.retention.first().copied()?;
                (until <= now.unix()).then_some(Task::Retire(state))
            }
            Source::Keeps if self.keeps_wait(store, term, budget) => None,
            Source::Keeps => next_keep_over(queues, now),
            Source::Openings => {
                let (at, state) = store.openings.first()?;
                at.has_come(now.unix()).then_some(Task::Open(state))
            }
            // The task may also have become due again in its own index. Doing it twice does no harm.
            Source::PutOff => self.put_off.pop_due(now.mono),
        }
    }

    /// Puts off a task whose key this server cannot write at present, although it takes writes: in a cluster the slot
    /// may be another node's.
    pub fn put_off(&mut self, task: Task, store: &mut Store, queues: &mut Queues, now: Now) {
        // Only a performed task removes its entry from these indexes. Left there, this task would always come first.
        match task {
            Task::Retire(state) => store.note_retention(state, None),
            Task::Open(state) => drop(store.openings.remove(state)),
            Task::KeepOver { until, queue, rank } => queues.unlist_keep(until, queue, rank),
            Task::End { .. } | Task::Lapse(_) | Task::Serve(_) | Task::RunOut { .. } => {}
        }
        self.put_off.add(task, now.mono.after_ms(PUT_OFF_MS));
    }

    /// Whether no kept place is dropped yet: a hold that is about to end may let it in, or one before it that has no
    /// moment yet.
    fn keeps_wait(&mut self, store: &mut Store, term: &Term, budget: &mut u32) -> bool {
        term.places_walk.is_some() || self.has_holds_to_end(store, budget)
    }

    /// Whether holds of closed connections have still to be ended. Also forgets closed connections that have no hold
    /// left; each costs one of the budget.
    fn has_holds_to_end(&mut self, store: &Store, budget: &mut u32) -> bool {
        if !self.endings.is_empty() {
            return true;
        }
        while let Some(client) = self.closed.first().copied() {
            if *budget == 0 || store.ephemeral_of(client).is_some() {
                return true;
            }
            *budget -= 1;
            self.closed.remove(&client);
        }
        false
    }

    fn next_end(&mut self, store: &mut Store, budget: &mut u32) -> Option<Task> {
        if !self.has_holds_to_end(store, budget) {
            return None;
        }
        if let Some((fence, ending)) = self.endings.pop_first() {
            return Some(Task::End { fence, ending });
        }
        let client = self.closed.first().copied()?;
        // Take the entry here and not when the hold ends: otherwise a task that is put off would come first again.
        let (fence, state) = store.take_ephemeral_of(client)?;
        let ending = Ending {
            state,
            how: End::Disconnected,
            gives_back: None,
        };
        Some(Task::End { fence, ending })
    }

    /// Returns the microseconds until the next task is due, 0 while work is left over, `None` if nothing will come due.
    pub fn next_wake(&self, store: &Store, queues: &Queues, now: Now) -> Option<u64> {
        let waits = queues.first_moment();
        let waits = waits.map(|(at, ..)| at.0.saturating_sub(now.mono.0));
        if !now.may_write {
            return waits;
        }
        if self.has_work(queues) {
            return Some(0);
        }
        let leases = store.leases.next_due_us();
        let leases = leases.map(|due| due.saturating_sub(now.lease.0));
        let keeps = queues.first_keep();
        let keeps = keeps.map(|(until, ..)| until.0.saturating_sub(now.lease.0));
        let opening = store.openings.first().map(|(at, _)| at);
        let retention = store.retention.first().map(|(until, _)| *until);
        let wall = opening.into_iter().chain(retention).min();
        let wall = wall.map(|moment| moment.ms_left(now.unix()).saturating_mul(1_000));
        let put_off = self.put_off.0.first();
        let put_off = put_off.map(|(until, _)| until.0.saturating_sub(now.mono.0));
        let all = [waits, leases, keeps, wall, put_off];
        all.into_iter().flatten().min()
    }

    /// Whether holds have to be ended or queues to be visited.
    pub fn has_work(&self, queues: &Queues) -> bool {
        !self.endings.is_empty() || !self.closed.is_empty() || queues.first_due().is_some()
    }

    /// Drops all tasks, because another server decides from now on.
    pub fn stand_down(&mut self, store: &mut Store) {
        let leftovers = &mut store.leftovers;
        leftovers.drop_entries(take(&mut self.closed));
        leftovers.drop_entries(take(&mut self.endings));
        leftovers.drop_entries(take(&mut self.put_off.0).into_pieces());
    }
}

/// Returns the task for the kept place that runs out next, if its moment has come.
fn next_keep_over(queues: &Queues, now: Now) -> Option<Task> {
    let (until, queue, rank) = queues.first_keep()?;
    (until <= now.lease).then_some(Task::KeepOver { until, queue, rank })
}

/// Returns the key that the task is about; `None` if its state or queue is gone, or its place is kept for longer.
fn key_of(task: Task, store: &mut Store, queues: &mut Queues) -> Option<(Db, KeyName)> {
    match task {
        Task::End {
            ending: Ending { state, .. },
            ..
        }
        | Task::Lapse(state)
        | Task::Open(state)
        | Task::Retire(state) => {
            let name_of = |found: &State| Some((store.db_of(found)?, found.address.name().into()));
            let found = store.get(state).and_then(name_of);
            if found.is_none() {
                store.unindex(state);
            }
            found
        }
        Task::KeepOver { until, queue, rank } if !queues.is_kept_until(until, queue, rank) => {
            // A flush may have dropped the place. After it was put off, its token may have asked again.
            queues.unlist_keep(until, queue, rank);
            None
        }
        Task::Serve(queue) | Task::RunOut { queue, .. } | Task::KeepOver { queue, .. } => {
            // A queue that a flush has emptied needs no visit.
            queues.drop_flushed(queue);
            let queue = queues.get(queue)?;
            Some((queue.db, queue.name.clone()))
        }
    }
}
