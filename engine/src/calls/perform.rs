//! What comes due without a request, one task at a time.

use crate::agenda::task::{Ending, Task};
use crate::answer::Answer;
use crate::hold::Grant;
use crate::queue::place::{Place, Presence, Standing};
use crate::types::{Family, Fence, MonoUs, QueueId, Rank};
use crate::visit::Visit;

impl Visit<'_> {
    /// Does the task, and then all else that is due for its key; but the end of a pause lapses no hold. While the key
    /// cannot be written, only waits run out, and every other task is put off.
    pub fn perform(&mut self, task: Task) {
        self.comes_due_in(0);
        let engine = &mut *self.engine;
        if !self.now.may_write && !matches!(task, Task::RunOut { .. }) {
            let (store, queues) = (&mut engine.store, &mut engine.queues);
            return engine.agenda.put_off(task, store, queues, self.now);
        }
        if self.now.may_write {
            // A key whose pause is over may have nothing else that keeps it.
            self.open_due();
            if self.forget_if_over() {
                return;
            }
        }
        self.is_stale = true;
        match task {
            Task::End { fence, ending } => self.end_disconnected(fence, ending),
            Task::RunOut { queue, rank } => {
                // If a grant is due at the same time, the grant wins.
                if !self.serve_more(queue) || !self.now.may_write {
                    self.run_out(rank);
                }
            }
            Task::KeepOver { until, queue, rank } => {
                let more = self.serve_more(queue);
                if self.engine.queues.is_kept_until(until, queue, rank) {
                    match more {
                        // A grant may be due for this place, and the grant wins. List the place again, because a task
                        // that was put off has taken it off the list.
                        true => drop(self.engine.queues.detach(queue, rank, until)),
                        false => self.drop_kept(rank),
                    }
                }
            }
            // Lapse nothing: the command that follows may renew an overdue hold.
            Task::Open(_) => return,
            Task::Lapse(_) | Task::Serve(_) | Task::Retire(_) => {}
        }
        self.catch_up();
    }

    /// Does the task that is overdue, if there is one: see [`Look::overdue`](crate::Look::overdue). Returns whether there
    /// was. A visit that has done it makes no call.
    pub fn perform_overdue(&mut self) -> bool {
        let task = self.look().overdue();
        task.map(|task| self.perform(task)).is_some()
    }

    /// Ends what is overdue, and serves. Returns whether more is left, because one visit does a bounded number of each.
    fn serve_more(&mut self, queue: QueueId) -> bool {
        self.catch_up();
        self.serve();
        self.engine.queues.is_due(queue) || self.overdue_hold().is_some()
    }

    /// Ends the hold of a closed connection, if it still exists. The token of an undelivered grant gets its place in
    /// the queue back, so that its retry is first again.
    fn end_disconnected(&mut self, fence: Fence, ending: Ending) {
        if self.state != Some(ending.state) {
            return;
        }
        let hold = self.body().and_then(|body| body.holds().get(fence));
        // One that rests has ended before.
        let hold = hold.filter(|hold| !hold.is_resting());
        let Some(hold) = hold else { return };
        let rests_until = self.rests_until(hold, ending.how);
        let hold = hold.to_grant();
        self.end_or_rest(fence, ending.how, rests_until);
        if let Some((standing, until)) = ending.gives_back {
            self.give_back(standing, until, hold);
        }
    }

    /// Gives the token of a hold that was not delivered its place back, at its old rank, if there is room: kept if it was
    /// kept, and otherwise vacant until then.
    fn give_back(&mut self, standing: Standing, until: MonoUs, hold: Grant) {
        let queued = self.queue().and_then(|queue| queue.find(&hold.token));
        let lane = Some(&hold.lane).filter(|_| hold.claim.family() == Family::Semaphore);
        if queued.is_some() || self.make_room(lane, standing.keep().is_some()).is_err() {
            return;
        }
        let presence = match standing.keep() {
            Some(keep) => Presence::Kept {
                until: self.engine.term.keep_until(keep.ms, self.now),
            },
            None => Presence::Vacant {
                until,
                verdict: None,
            },
        };
        self.put(Place::of_grant(standing, hold, presence), None);
    }

    /// Answers a request whose wait has run out, or gives up a vacant place.
    fn run_out(&mut self, rank: Rank) {
        // The wait goes on without a client, so no time-out is counted: the token may ask again for its kept place.
        if let Some(waiter) = self.detach(rank) {
            return self.engine.effects.wake(waiter, Answer::NotGranted);
        }
        let decided = self.queue().and_then(|queue| queue.answer_for(rank));
        if let Some(answer) = decided.cloned() {
            return self.tell(rank, answer);
        }
        let Some(left) = self.leave(rank) else { return };
        let Some(parked) = left.parked() else { return };
        self.count_timeout(left.family());
        self.engine.effects.may_free_capacity = true;
        self.engine.effects.wake(parked.waiter, Answer::NotGranted);
    }

    /// Drops a kept place that was not asked for in time.
    fn drop_kept(&mut self, rank: Rank) {
        if let Some(place) = self.take_place(rank) {
            self.count_timeout(place.claim.family());
            self.left(rank);
            // New requests may have had to queue behind this one only.
            self.engine.effects.may_free_capacity = true;
        }
    }

    fn count_timeout(&mut self, family: Family) {
        self.engine.stats.counters_mut(family).wait_timeouts += 1;
    }
}
