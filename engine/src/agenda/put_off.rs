//! Tasks whose keys this server could not write, each with the moment to try again.
//!
//! A task has a *subject*: the hold, state, queue or place that it is about. Each subject has one entry per kind of task,
//! however often the task becomes due while the key cannot be written. The target of an atomic slot migration follows
//! every change to its keys, and can write none of them until the slot is its own.

use std::collections::{BTreeMap, BTreeSet};

use crate::agenda::task::Task;
use crate::store::slab::StateId;
use crate::types::{Fence, MonoUs, QueueId, Rank};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Hold(Fence),
    Leases(StateId),
    Opening(StateId),
    Retention(StateId),
    Queue(QueueId),
    Wait(QueueId, Rank),
    KeptPlace(QueueId, Rank),
}

impl Subject {
    fn of(task: Task) -> Subject {
        match task {
            Task::End { fence, .. } => Subject::Hold(fence),
            Task::Lapse(state) => Subject::Leases(state),
            Task::Open(state) => Subject::Opening(state),
            Task::Retire { state, .. } => Subject::Retention(state),
            Task::Serve(queue) => Subject::Queue(queue),
            Task::RunOut { queue, rank, .. } => Subject::Wait(queue, rank),
            Task::KeepOver { queue, rank, .. } => Subject::KeptPlace(queue, rank),
        }
    }
}

/// Invariant: both have the same entries.
#[derive(Default)]
pub struct PutOff {
    by_moment: BTreeSet<(MonoUs, Subject)>,
    by_subject: BTreeMap<Subject, (MonoUs, Task)>,
}

impl PutOff {
    /// Puts the task off until this moment. A task with the same subject that was put off before keeps its moment.
    pub fn add(&mut self, task: Task, until: MonoUs) {
        let subject = Subject::of(task);
        let Some((_, before)) = self.by_subject.get_mut(&subject) else {
            self.by_subject.insert(subject, (until, task));
            self.by_moment.insert((until, subject));
            return;
        };
        // A hold can be reported undelivered first, and the close of its connection later. The first report decides how
        // the hold ends. Of other tasks the newest knows best when its subject is due.
        if !matches!(before, Task::End { .. }) {
            *before = task;
        }
    }

    /// Forgets that this hold was to end.
    pub fn forget_end(&mut self, fence: Fence) {
        let subject = Subject::Hold(fence);
        if let Some((until, _)) = self.by_subject.remove(&subject) {
            self.by_moment.remove(&(until, subject));
        }
    }

    /// Returns the moment at which a task must be tried again.
    pub fn first(&self) -> Option<MonoUs> {
        self.by_moment.first().map(|(until, _)| *until)
    }

    /// Removes and returns the task that has been due for longest.
    pub fn pop_due(&mut self, now: MonoUs) -> Option<Task> {
        let (_, subject) = *self.by_moment.first().filter(|(until, _)| *until <= now)?;
        self.by_moment.pop_first();
        self.by_subject.remove(&subject).map(|(_, task)| task)
    }

    /// Takes the index apart, one entry at a step.
    pub fn into_pieces(self) -> impl Iterator<Item = ()> + Send + 'static {
        let by_moment = self.by_moment.into_iter().map(drop);
        by_moment.chain(self.by_subject.into_iter().map(drop))
    }

    /// Whether this task, and not another one with its subject, was put off.
    #[cfg(debug_assertions)]
    pub fn has(&self, task: Task) -> bool {
        let entry = self.by_subject.get(&Subject::of(task));
        entry.is_some_and(|(_, found)| *found == task)
    }

    /// Panics unless both parts agree.
    #[cfg(debug_assertions)]
    pub fn check_invariants(&self) {
        let entries = self.by_subject.iter();
        let entries: Vec<_> = entries
            .map(|(subject, (until, _))| (*until, *subject))
            .collect();
        assert_eq!(self.by_moment.len(), entries.len(), "put off");
        assert!(entries.iter().all(|entry| self.by_moment.contains(entry)));
        let is_named =
            |(subject, (_, task)): (&Subject, &(MonoUs, Task))| *subject == Subject::of(*task);
        assert!(self.by_subject.iter().all(is_named));
    }
}
