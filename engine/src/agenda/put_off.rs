//! Tasks whose keys this server could not write, each with the moment to try again.
//!
//! A task has a *subject*: the hold, state, queue or place that it is about. Each subject has one entry per kind of task,
//! however often the task becomes due while the key cannot be written. The target of an atomic slot migration follows
//! every change to its keys, and can write none of them until the slot is its own.

use crate::agenda::task::Task;
use crate::store::slab::StateId;
use crate::timetable::Timetable;
use crate::types::{Fence, MonoUs, QueueId, Rank};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
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
            Task::Retire(state) => Subject::Retention(state),
            Task::Serve(queue) => Subject::Queue(queue),
            Task::RunOut { queue, rank } => Subject::Wait(queue, rank),
            Task::KeepOver { queue, rank, .. } => Subject::KeptPlace(queue, rank),
        }
    }
}

#[derive(Default)]
pub struct PutOff(pub(super) Timetable<Subject, MonoUs, Task>);

impl PutOff {
    /// Puts the task off until this moment. A task with the same subject that was put off before keeps its moment.
    pub fn add(&mut self, task: Task, until: MonoUs) {
        let subject = Subject::of(task);
        match self.0.get(subject) {
            None => self.0.set(subject, until, task),
            // A hold can be reported undelivered first, and the close of its connection later. The first report decides
            // how the hold ends.
            Some((_, Task::End { .. })) => {}
            // Of other tasks the newest knows best when its subject is due.
            Some((until, _)) => self.0.set(subject, *until, task),
        }
    }

    /// Removes and returns the task that has been due for longest.
    pub fn pop_due(&mut self, now: MonoUs) -> Option<Task> {
        let (_, subject) = self.0.first().filter(|(until, _)| *until <= now)?;
        self.0.remove(subject)
    }

    /// Whether this task, and not another one with its subject, was put off.
    #[cfg(debug_assertions)]
    pub fn has(&self, task: Task) -> bool {
        let entry = self.0.get(Subject::of(task));
        entry.is_some_and(|(_, found)| *found == task)
    }
}
