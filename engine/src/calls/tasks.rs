//! What comes due without a request: leases, waits, vacant and kept places, delays, pauses, retention, and tasks that
//! were put off.
//!
//! The caller asks for the next task, opens its key and performs it. Each task concerns one key. [`Engine::next_wake`]
//! says when to ask again; to ask early, or twice, does nothing.

use crate::answer::Answer;
use crate::calls::background;
use crate::change::End;
use crate::queue::entry::{FormerPlace, Place, Vacancy};
use crate::short_bytes::KeyName;
use crate::types::{ClientId, Db, Fence, LeaseUs, MonoUs, Now, QueueId, UnixMs};
use crate::{Engine, Key, StateId};

/// How to end a hold whose connection has closed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ending {
    pub state: StateId,
    pub how: End,
    /// The place that the hold's token gets back, and until when it is vacant if it is not kept.
    pub vacates: Option<(FormerPlace, MonoUs)>,
}

/// One piece of work for one key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Task {
    /// End a hold whose connection is gone.
    End { fence: Fence, ending: Ending },
    /// End the holds whose leases have run out.
    Lapse(StateId),
    /// Serve a queue that an event outside a request has touched.
    Serve(QueueId),
    /// A wait has run out, or a vacant place.
    RunOut {
        moment: MonoUs,
        queue: QueueId,
        place: Place,
    },
    /// A kept place was not asked for in time.
    KeepOver {
        until: LeaseUs,
        queue: QueueId,
        place: Place,
    },
    /// Let the queue of a closed key go on.
    Open(StateId),
    /// Forget a group or a work-once key that has been kept long enough.
    Retire { state: StateId, until: UnixMs },
}

/// How many kinds of tasks `next_of_kind` tells apart.
const KINDS: usize = 8;

/// How long a task waits whose key this server cannot write at present.
const PUT_OFF_MS: u64 = 50;

impl Engine {
    /// Returns the next task that is due, its key and the key's database. Each look into the lease index costs one of
    /// `budget`; when it is used up there is no task.
    ///
    /// While the server does not take writes only waits run out, and everything else stays due.
    pub fn next_task(&mut self, now: Now, budget: &mut u32) -> Option<(Task, Db, KeyName)> {
        while *budget > 0 {
            *budget -= 1;
            let task = (0..KINDS).find_map(|offset| {
                let kind = (self.next_kind + offset) % KINDS;
                self.next_of_kind(kind, now, budget)
            })?;
            // Take the kinds in turn, so that a wave of one kind cannot keep the others waiting.
            self.next_kind = (self.next_kind + 1) % KINDS;
            if let Some((db, name)) = self.key_of(task) {
                return Some((task, db, name));
            }
            // The hold of a stray ends when its key is known.
            if let Task::End { ending, .. } = task
                && self.strays.contains(ending.state)
            {
                self.put_off(task, now);
            }
        }
        None
    }

    fn next_of_kind(&mut self, kind: usize, now: Now, budget: &mut u32) -> Option<Task> {
        match kind {
            // A hold that is about to end may let this waiter in, or a kept place before it that is about to be dropped.
            // The grant wins over the timeout.
            0 if now.may_write && self.has_holds_to_end(budget) => None,
            0 if now.may_write && self.next_keep_over(now).is_some() => None,
            0 => {
                let (moment, queue, place) = self.queues.first_moment()?;
                (moment <= now.mono).then_some(Task::RunOut {
                    moment,
                    queue,
                    place,
                })
            }
            _ if !now.may_write => None,
            1 => self.next_end(budget),
            2 => self.leases.pop_due(now.lease.0, budget).map(Task::Lapse),
            3 => {
                let queue = self.queues.first_due()?;
                self.queues.mark_visited(queue);
                Some(Task::Serve(queue))
            }
            4 => {
                let (until, state) = self.retention.first().copied()?;
                (until <= now.unix()).then_some(Task::Retire { state, until })
            }
            5 if self.has_holds_to_end(budget) => None,
            5 => self.next_keep_over(now),
            6 => {
                let (at, state) = self.openings.first()?;
                at.has_come(now.unix()).then_some(Task::Open(state))
            }
            _ => {
                // The task may also have become due again in its own index. Doing it twice does no harm.
                self.put_off.pop_due(now.mono)
            }
        }
    }

    /// Puts off a task whose key this server cannot write at present, although it takes writes: in a cluster the slot
    /// may be another node's.
    fn put_off(&mut self, task: Task, now: Now) {
        // Only a performed task removes its entry from these indexes. Left there, this task would always come first.
        match task {
            Task::Retire { state, until } => {
                self.retention.remove(&(until, state));
                if let Some(found) = self.states.get_mut(state) {
                    found.body.local().note_retention(None);
                }
            }
            Task::Open(state) => self.openings.set(state, None),
            Task::KeepOver {
                until,
                queue,
                place,
            } => self.queues.unlist_keep(until, queue, place),
            Task::End { .. } | Task::Lapse(_) | Task::Serve(_) | Task::RunOut { .. } => {}
        }
        self.put_off.add(task, now.mono.after_ms(PUT_OFF_MS));
    }

    /// Returns the task that ends the pause of this key if it is over, or that forgets the key if it has been kept long
    /// enough. Perform it before a request on the key, so that the request meets no pause that is over, and cannot be
    /// told an old result, when the timer is late.
    #[must_use]
    pub fn overdue(&self, key: &Key<'_>, now: Now) -> Option<Task> {
        let state = key.state.filter(|_| self.is_serving())?;
        let body = &self.states.get(state)?.body;
        if body.opens_at().is_some_and(|at| at.has_come(now.unix())) {
            return Some(Task::Open(state));
        }
        let until = body.retained_until(&self.settings)?;
        let is_over = until.has_come(now.unix()) && self.is_over(key, now);
        is_over.then_some(Task::Retire { state, until })
    }

    /// Whether holds of closed connections have still to be ended. Also forgets closed connections that have no hold
    /// left; each costs one of the budget.
    fn has_holds_to_end(&mut self, budget: &mut u32) -> bool {
        if !self.ending.is_empty() {
            return true;
        }
        while let Some(client) = self.closed.first().copied() {
            if *budget == 0 || self.ephemeral_of(client).is_some() {
                return true;
            }
            *budget -= 1;
            self.closed.remove(&client);
        }
        false
    }

    fn next_end(&mut self, budget: &mut u32) -> Option<Task> {
        if !self.has_holds_to_end(budget) {
            return None;
        }
        if let Some((fence, ending)) = self.ending.pop_first() {
            return Some(Task::End { fence, ending });
        }
        let client = self.closed.first().copied()?;
        let (fence, state) = self.ephemeral_of(client)?;
        // Remove the entry here and not when the hold ends: otherwise a task that is put off would come first again.
        self.ephemeral.remove(&(client, fence));
        let ending = Ending {
            state,
            how: End::Disconnected,
            vacates: None,
        };
        Some(Task::End { fence, ending })
    }

    /// Returns the oldest hold that ends with this connection.
    pub(crate) fn ephemeral_of(&self, client: ClientId) -> Option<(Fence, StateId)> {
        let held = (client, Fence(0))..=(client, Fence::MAX);
        let ((_, fence), state) = self.ephemeral.range(held).next()?;
        Some((*fence, *state))
    }

    /// Returns the key that the task is about; `None` if its state or queue is gone, or its place is kept for longer.
    fn key_of(&mut self, task: Task) -> Option<(Db, KeyName)> {
        match task {
            Task::End {
                ending: Ending { state, .. },
                ..
            }
            | Task::Lapse(state)
            | Task::Open(state)
            | Task::Retire { state, .. } => {
                let found = self.states.get(state);
                let found = found.and_then(|state| {
                    let db = self.spaces.db(state.address.space())?;
                    Some((db, state.address.name().into()))
                });
                if found.is_none() {
                    self.unindex(state);
                }
                found
            }
            Task::KeepOver {
                until,
                queue,
                place,
            } if !self.queues.is_kept_until(until, queue, place) => {
                // A flush may have dropped the place. After it was put off, its token may have asked again.
                self.queues.unlist_keep(until, queue, place);
                None
            }
            Task::Serve(queue) | Task::RunOut { queue, .. } | Task::KeepOver { queue, .. } => {
                // A queue that a flush has emptied needs no visit.
                self.queues.drop_flushed(queue);
                self.queues.key(queue).map(|(db, name)| (db, name.clone()))
            }
        }
    }

    /// Does the task, and everything else that is due for its key, except that the end of a pause lapses no hold. If the
    /// key cannot be written, only waits run out.
    pub fn perform(&mut self, task: Task, key: &mut Key<'_>, now: Now) {
        if !now.may_write && !matches!(task, Task::RunOut { .. }) {
            return self.put_off(task, now);
        }
        if now.may_write {
            // A key whose pause is over may have nothing else that keeps it.
            self.open_due(key, now);
            if self.forget_if_over(key, now) {
                return;
            }
        }
        match task {
            Task::End { fence, ending } => self.end_disconnected(key, fence, ending, now),
            Task::RunOut {
                moment,
                queue,
                place,
            } => {
                // If a grant is due at the same time, the grant wins.
                self.catch_up(key, now);
                self.serve(key, now);
                let more =
                    now.may_write && (self.queues.is_due(queue) || self.has_overdue(key, now));
                if !more && self.queues.runs_out(moment, queue, place) {
                    self.run_out(queue, place, now);
                }
            }
            Task::KeepOver {
                until,
                queue,
                place,
            } => {
                self.catch_up(key, now);
                self.serve(key, now);
                let more = self.queues.is_due(queue) || self.has_overdue(key, now);
                if self.queues.is_kept_until(until, queue, place) {
                    match more {
                        // If a grant is due at the same time, the grant wins. The task may have been put off before.
                        true => self.queues.set_until(queue, place, until),
                        false => self.keep_is_over(queue, place),
                    }
                }
            }
            // Lapse nothing: the command that follows may renew an overdue hold.
            Task::Open(_) => return self.settle(key, now),
            Task::Lapse(_) | Task::Serve(_) | Task::Retire { .. } => {}
        }
        self.catch_up(key, now);
        self.settle(key, now);
    }

    /// Ends the hold of a closed connection, if it still exists. The token of an undelivered grant gets its place in
    /// the queue back, so that its retry is first again.
    fn end_disconnected(&mut self, key: &mut Key<'_>, fence: Fence, ending: Ending, now: Now) {
        if key.state != Some(ending.state) {
            return;
        }
        let Some(body) = self.body_mut(key) else {
            return;
        };
        let family = body.family();
        let Some(hold) = body.holds().get(fence) else {
            return;
        };
        let ended = hold.to_grant();
        self.end(key, family, fence, ending.how, now);
        let Some((former, until)) = ending.vacates else {
            return;
        };
        if former.keep.is_some() {
            return self.keep_again(key, former, ended, now);
        }
        let vacancy = Vacancy {
            token: ended.token,
            claim: ended.claim,
            since: former.since,
            until,
            verdict: None,
        };
        self.vacate(key, former.place, vacancy);
    }

    /// Leaves a place vacant for its token, if there is room for one more.
    fn vacate(&mut self, key: &Key<'_>, place: Place, vacancy: Vacancy) {
        let queue = self.queues.find(key.db, key.name);
        let stands = queue
            .and_then(|id| self.queues.get(id))
            .is_some_and(|queue| queue.find(&vacancy.token).is_some());
        if stands || self.queues.make_room(queue, self.queue_bounds()).is_err() {
            return;
        }
        let queue = self.queues.find_or_make(key.db, key.name);
        self.queues.vacate(queue, place, vacancy);
    }

    /// Whether overdue holds are left, because one call ends a bounded number of them.
    fn has_overdue(&self, key: &Key<'_>, now: Now) -> bool {
        let state = key.state.and_then(|id| self.states.get(id));
        let since = self.role.since();
        let earliest = state.and_then(|state| state.body.holds().earliest(since));
        earliest.is_some_and(|(due, _)| due <= now.lease)
    }

    fn run_out(&mut self, queue: QueueId, place: Place, now: Now) {
        if let Some((waiter, family)) = self.detach(queue, place, now) {
            self.stats.counters_mut(family).wait_timeouts += 1;
            return self.effects.wake(waiter, Answer::NotGranted);
        }
        let decided = self
            .queues
            .get(queue)
            .and_then(|queue| queue.answer_for(place))
            .cloned();
        let answer = decided.unwrap_or(Answer::NotGranted);
        let Some(left) = self.queues.leave(queue, place) else {
            return;
        };
        if let (Answer::NotGranted, Some(family)) = (&answer, left.family()) {
            self.stats.counters_mut(family).wait_timeouts += 1;
        }
        if let Some(waiter) = left.waiter() {
            self.effects.may_free_capacity = true;
            self.effects.wake(waiter, answer);
        }
    }

    /// Returns the microseconds until the next task is due, 0 while work is left over, `None` if nothing will come due.
    /// A replica has background work only.
    #[must_use]
    pub fn next_wake(&self, now: Now) -> Option<u64> {
        let background = self.has_background().then_some(background::PAUSE_US);
        if !self.is_serving() {
            return background;
        }
        let waits = self.queues.first_moment();
        let waits = waits.map(|(at, ..)| at.0.saturating_sub(now.mono.0));
        if !now.may_write {
            return waits.into_iter().chain(background).min();
        }
        if self.has_work() {
            return Some(0);
        }
        let leases = self
            .leases
            .next_due_us()
            .map(|due| due.saturating_sub(now.lease.0));
        let keeps = self.queues.first_keep();
        let keeps = keeps.map(|(until, ..)| until.0.saturating_sub(now.lease.0));
        let opening = self.openings.first().map(|(at, _)| at);
        let retention = self.retention.first().map(|(until, _)| *until);
        let wall = opening.into_iter().chain(retention).min();
        let wall = wall.map(|moment| moment.ms_left(now.unix()).saturating_mul(1_000));
        let put_off = self.put_off.first();
        let put_off = put_off.map(|until| until.0.saturating_sub(now.mono.0));
        [waits, leases, keeps, wall, put_off, background]
            .into_iter()
            .flatten()
            .min()
    }

    /// Whether work is left that needs the server to take writes again.
    #[must_use]
    pub fn is_held_up(&self, now: Now) -> bool {
        let opens = || {
            self.openings
                .first()
                .is_some_and(|(at, _)| at <= now.unix())
        };
        !now.may_write && self.is_serving() && (self.has_work() || opens())
    }

    /// Whether holds have to be ended or queues to be visited.
    fn has_work(&self) -> bool {
        let ends = !self.ending.is_empty() || !self.closed.is_empty();
        ends || self.queues.first_due().is_some()
    }
}
