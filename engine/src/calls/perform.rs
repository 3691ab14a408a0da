//! What comes due without a request, one task at a time.

use crate::agenda::task::{Ending, Task};
use crate::answer::Answer;
use crate::hold::Grant;
use crate::queue::place::{Keep, Place, Presence, Standing};
use crate::types::{Family, Fence, MonoUs, QueueId, Rank};
use crate::visit::Visit;

impl Visit<'_> {
    /// Does the task, and then all else that is due for its key; but the end of a pause lapses no hold. While the key
    /// cannot be written, only waits run out, and every other task is put off.
    pub fn perform(&mut self, task: Task) {
        self.may_come_due = true;
        let engine = &mut *self.engine;
        if !self.now.may_write && !matches!(task, Task::RunOut { .. }) {
            return engine
                .agenda
                .put_off(task, &mut engine.store, &mut engine.queues, self.now);
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
            Task::RunOut {
                moment,
                queue,
                rank,
            } => {
                // If a grant is due at the same time, the grant wins.
                let more = self.serve_more(queue) && self.now.may_write;
                if !more && self.engine.queues.runs_out(moment, queue, rank) {
                    self.run_out(queue, rank);
                }
            }
            Task::KeepOver { until, queue, rank } => {
                let more = self.serve_more(queue);
                if self.engine.queues.is_kept_until(until, queue, rank) {
                    match more {
                        // A grant may be due for this place, and the grant wins. List the place again, because a task
                        // that was put off has taken it off the list.
                        true => drop(self.engine.queues.detach(queue, rank, until)),
                        false => self.drop_kept(queue, rank),
                    }
                }
            }
            // Lapse nothing: the command that follows may renew an overdue hold.
            Task::Open(_) => return,
            Task::Lapse(_) | Task::Serve(_) | Task::Retire(_) => {}
        }
        self.catch_up();
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
        let Some((family, hold)) = self
            .body()
            .and_then(|body| Some((body.family(), body.holds().get(fence)?.to_grant())))
        else {
            return;
        };
        self.end(family, fence, ending.how);
        let Some((standing, until)) = ending.gives_back else {
            return;
        };
        match standing.keep {
            Some(keep) => self.keep_again(standing, keep, hold),
            None => self.vacate(standing, until, hold),
        }
    }

    /// Leaves a place vacant for the token of a hold that was not delivered, if there is room for one more.
    fn vacate(&mut self, standing: Standing, until: MonoUs, hold: Grant) {
        if self.has_room_for_place_of(&hold) {
            let presence = Presence::Vacant {
                until,
                verdict: None,
            };
            let queue = self.make_queue();
            let place = Place::of_grant(standing, hold, presence);
            self.engine.queues.join(queue, place);
        }
    }

    /// Gives the token of a hold that was not delivered its kept place back, at its old rank.
    fn keep_again(&mut self, standing: Standing, keep: Keep, hold: Grant) {
        let (queue, settings) = (self.find_queue(), &self.engine.settings);
        let room = self.engine.queues.check_room_for_kept(queue, 1, settings);
        if room.is_err() || !self.has_room_for_place_of(&hold) {
            return;
        }
        let until = self.engine.term.keep_until(keep.ms, self.now);
        let place = Place::of_grant(standing, hold, Presence::Kept { until });
        if place
            .kept_place()
            .is_some_and(|kept| self.decide_place(kept))
        {
            let queue = self.make_queue();
            self.engine.queues.join(queue, place);
        }
    }

    /// Whether the token of the hold may have a place again: it has none, and there is room.
    fn has_room_for_place_of(&mut self, hold: &Grant) -> bool {
        let has_place = self
            .queue()
            .is_some_and(|queue| queue.find(&hold.token).is_some());
        let (queue, settings) = (self.find_queue(), &self.engine.settings);
        !has_place && self.engine.queues.make_room(queue, settings).is_ok()
    }

    /// Answers a request whose wait has run out, or gives up a vacant place.
    fn run_out(&mut self, queue: QueueId, rank: Rank) {
        if let Some((waiter, family)) = self.engine.detach(queue, rank, self.now) {
            self.count_timeout(family);
            return self.engine.effects.wake(waiter, Answer::NotGranted);
        }
        let decided = self
            .engine
            .queues
            .get(queue)
            .and_then(|queue| queue.answer_for(rank));
        let decided = decided.cloned();
        let Some(left) = self.engine.queues.leave(queue, rank) else {
            return;
        };
        let Some(parked) = left.parked() else { return };
        if decided.is_none() {
            self.count_timeout(left.family());
        }
        self.engine.effects.may_free_capacity = true;
        let answer = decided.unwrap_or(Answer::NotGranted);
        self.engine.effects.wake(parked.waiter, answer);
    }

    /// Drops a kept place that was not asked for in time.
    fn drop_kept(&mut self, queue: QueueId, rank: Rank) {
        if let Some(left) = self.engine.queues.leave(queue, rank) {
            self.count_timeout(left.family());
            self.left(rank);
            // New requests may have had to queue behind this one only.
            self.engine.effects.may_free_capacity = true;
        }
    }

    fn count_timeout(&mut self, family: Family) {
        self.engine.stats.counters_mut(family).wait_timeouts += 1;
    }
}
