//! What comes due without a request. Each tick looks at all keys, holds and places.

use super::content::ModelHold;
use super::queue::Sitter;
use super::{Model, ModelWake, Name, TICK_US, Value, ms};
use dsync_engine::Family;
use dsync_engine::answer::Answer;
use dsync_engine::change::End;
use dsync_engine::types::Now;

impl Model {
    /// Does everything that is due, for all keys.
    pub fn tick(&mut self, now: Now) {
        let mut names: Vec<Name> = self.values.iter().map(|(name, _)| *name).collect();
        names.extend(self.queues.iter().map(|queue| queue.name));
        names.sort_unstable();
        names.dedup();
        if now.may_write {
            while let Some((name, hold)) = self.first_ending() {
                let how = hold.ending.expect("it is ending");
                self.end(name, hold.fence, how, now);
                if how == End::Undelivered {
                    self.restore_place(name, hold);
                }
                self.visit(name, now);
            }
            for name in &names {
                self.overdue(*name, now);
                if !self.is_left_alone(*name) {
                    self.visit(*name, now);
                }
            }
        }
        // A grant wins over a timeout, so visit the key before a wait runs out.
        while let Some((_, rank, name)) = self.first_to_run_out(now) {
            self.lapse(name, now);
            self.serve(name, now);
            if self.is_foreign(name) {
                self.tell_all_wrong_type(name);
            }
            let seats = self.seats(name).iter();
            if let Some(seat) = seats.clone().find(|seat| seat.rank == rank) {
                if let Sitter::Waiting { ticket, .. } | Sitter::Watching { ticket, .. } =
                    seat.sitter
                {
                    self.wakes.push(ModelWake {
                        name,
                        ticket,
                        answer: Answer::NotGranted,
                    });
                    self.queue(name).left = true;
                }
                self.queue(name).seats.retain(|seat| seat.rank != rank);
            }
            self.visit(name, now);
        }
    }

    /// Whether no event is due at this key before its pause ends: nobody holds it or waits for it. If requests to be added
    /// kept a round open, and RENAME, SWAPDB or another server has parted them from their group, the round finishes with
    /// the next command on the group or with the end of its pause.
    fn is_left_alone(&self, name: Name) -> bool {
        let mut queues = self.queues.iter().filter(|queue| queue.name == name);
        let is_queued = queues.any(|queue| queue.left || !queue.seats.is_empty());
        let content = self.content(name);
        !is_queued
            && content.is_some_and(|content| {
                content.paused_until_ms.is_some() && content.holds.is_empty()
            })
    }

    /// Returns the oldest hold whose connection is known to be closed.
    pub(super) fn first_ending(&self) -> Option<(Name, ModelHold)> {
        let holds = self.values.iter().flat_map(|(name, value)| match value {
            Value::State(content) => content.holds.iter().map(|hold| (*name, hold)).collect(),
            Value::Foreign => Vec::new(),
        });
        holds
            .filter(|(_, hold)| hold.ending.is_some())
            .min_by_key(|(_, hold)| hold.fence)
            .map(|(name, hold)| (name, hold.clone()))
    }

    pub(super) fn first_to_run_out(&self, now: Now) -> Option<(u64, u64, Name)> {
        let seats = self.queues.iter().flat_map(|queue| {
            let due = queue
                .seats
                .iter()
                .filter_map(|seat| Some((seat.runs_out_us()?, seat.rank)));
            due.map(|(moment, rank)| (moment, rank, queue.name))
        });
        seats.filter(|(moment, ..)| *moment <= now.mono.0).min()
    }

    /// Returns the microseconds until the next thing is due without a request.
    pub fn next_event(&self, now: Now) -> Option<u64> {
        let seats = self.queues.iter().flat_map(|queue| &queue.seats);
        let waits = seats
            .filter_map(|seat| Some(seat.runs_out_us()?.saturating_sub(now.mono.0)))
            .min();
        if !now.may_write {
            return waits;
        }
        let contents = self.values.iter().filter_map(|(name, value)| match value {
            Value::State(content) => Some((*name, content)),
            Value::Foreign => None,
        });
        let mut first = waits;
        for (name, content) in contents {
            for hold in &content.holds {
                let at = hold.due_us.div_ceil(TICK_US) * TICK_US;
                first = first
                    .into_iter()
                    .chain([at.saturating_sub(now.lease.0)])
                    .min();
            }
            if let Some(until_ms) = content.paused_until_ms {
                let left_ms = until_ms.saturating_sub(ms(now));
                first = first.into_iter().chain([left_ms * 1_000]).min();
            }
            // A vacant place is no waiter. But while a place is vacant, the contract does not say exactly how long the
            // key has been idle.
            let over = content.finished_ms.is_some() || content.work.done.is_some();
            let exact = over || self.settings.rejoin_ms == 0;
            let unused = content.holds.is_empty() && self.waiters(name) == 0;
            let is_kept = matches!(content.family, Family::Group | Family::Once);
            if is_kept && unused && exact {
                let left_ms = self.kept_until_ms(content).saturating_sub(ms(now));
                first = first.into_iter().chain([left_ms * 1_000]).min();
            }
        }
        first
    }
}
