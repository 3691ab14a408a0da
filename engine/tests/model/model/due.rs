//! What comes due without a request. Each tick looks at all keys, holds and places.

use super::content::ModelHold;
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
                    self.restore_place(name, hold, now);
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
        while let Some((_, rank, name)) = self.first_keep_over(now) {
            // A grant wins.
            self.lapse(name, now);
            self.serve(name, now);
            let queue = self.queue(name);
            let before = queue.seats.len();
            queue.seats.retain(|seat| seat.rank != rank);
            queue.left |= queue.seats.len() < before;
            self.visit(name, now);
        }
        // A grant wins over a timeout, so visit the key before a wait runs out.
        while let Some((_, rank, name)) = self.first_to_run_out(now) {
            self.lapse(name, now);
            self.serve(name, now);
            let mut answer = Answer::NotGranted;
            if self.is_foreign(name) && self.kept(name) == 0 {
                self.tell_all_wrong_type(name, now);
            } else if self.is_foreign(name) {
                // No place can be dropped now, so only this client is told.
                answer = Answer::WrongType;
            }
            let queue = self.queue(name);
            if let Some(seat) = queue.seats.iter_mut().find(|seat| seat.rank == rank) {
                match seat.detach(now.lease.0 + 1_000 * seat.keep.map_or(0, |k| u64::from(k.ms))) {
                    Some(ticket) => self.wakes.push(ModelWake {
                        name,
                        ticket,
                        answer,
                    }),
                    None => self.tell(name, rank, answer, now),
                }
            }
            self.visit(name, now);
        }
    }

    /// Whether no event is due at this key before its pause ends: nobody holds it or waits for it. If requests to be
    /// added kept a round open, and RENAME, SWAPDB or another server has parted them from their group, the round
    /// finishes with the next command on the group or with the end of its pause.
    fn is_left_alone(&self, name: Name) -> bool {
        let mut queues = self.queues.iter().filter(|queue| queue.name == name);
        let is_queued = queues.any(|queue| queue.left || !queue.seats.is_empty());
        let content = self.content(name);
        !is_queued
            && content.is_some_and(|content| {
                content.kept_at_least_until_ms().is_some() && content.holds.is_empty()
            })
    }

    /// Returns the oldest hold whose connection is known to be closed. Undelivered grants come first, because their
    /// places may come before others.
    pub(super) fn first_ending(&self) -> Option<(Name, ModelHold)> {
        let holds = self.values.iter().flat_map(|(name, value)| match value {
            Value::State(content) => content.holds.iter().map(|hold| (*name, hold)).collect(),
            Value::Foreign => Vec::new(),
        });
        holds
            .filter(|(_, hold)| hold.ending.is_some())
            .min_by_key(|(_, hold)| (hold.ending != Some(End::Undelivered), hold.fence))
            .map(|(name, hold)| (name, hold.clone()))
    }

    /// Returns the kept place whose time is over first.
    fn first_keep_over(&self, now: Now) -> Option<(u64, u64, Name)> {
        let seats = self.queues.iter().flat_map(|queue| {
            let kept = queue.seats.iter();
            let kept = kept.filter_map(|seat| Some((seat.kept_until_us()?, seat.rank)));
            kept.map(|(moment, rank)| (moment, rank, queue.name))
        });
        let over = seats.filter(|(moment, ..)| now.may_write && *moment <= now.lease.0);
        over.min()
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
        let seats = self.queues.iter().flat_map(|queue| &queue.seats);
        let kept = seats.filter_map(|seat| Some(seat.kept_until_us()?.saturating_sub(now.lease.0)));
        let mut first = waits.into_iter().chain(kept).min();
        for (name, content) in contents {
            for hold in &content.holds {
                let at = hold.due_us.div_ceil(TICK_US) * TICK_US;
                first = first
                    .into_iter()
                    .chain([at.saturating_sub(now.lease.0)])
                    .min();
            }
            for until_ms in content.closed_until_ms().into_iter().flatten() {
                let left_us = until_ms.saturating_sub(ms(now)) * 1_000;
                first = first.into_iter().chain([left_us]).min();
            }
            // A vacant place is no waiter.
            let unused = content.holds.is_empty() && self.waiters(name) == 0;
            let is_kept = matches!(content.family, Family::Group | Family::Once);
            let until_ms = self.kept_until_ms(content);
            if is_kept && unused && until_ms < u64::MAX {
                let left_ms = until_ms.saturating_sub(ms(now));
                first = first.into_iter().chain([left_ms * 1_000]).min();
            }
        }
        first
    }
}
