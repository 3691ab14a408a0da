//! The watchers of a queue (WAIT of a group): they are answered all together, in one step however many they are.

use crate::answer::Answer;
use crate::queue::place::Watcher;
use crate::queue::wait_queue::WaitQueue;
use crate::types::Rank;

impl WaitQueue {
    pub fn has_watching(&self) -> bool {
        !self.watching.is_empty()
    }

    pub(in crate::queue) fn watch(
        &mut self,
        rank: Rank,
        watcher: Watcher,
        decided: Option<Answer>,
    ) {
        match decided {
            None => drop(self.watching.insert(rank, watcher)),
            Some(answer) => self.answered.push_back((answer, [(rank, watcher)].into())),
        }
    }

    /// Returns the answer for this watcher, if one has been decided.
    pub fn answer_for(&self, rank: Rank) -> Option<&Answer> {
        let mut answered = self.answered.iter();
        let decided = answered.find(|(_, watchers)| watchers.contains_key(&rank));
        decided.map(|(answer, _)| answer)
    }

    /// Decides the answer of all present watchers, in one step however many they are.
    pub(in crate::queue) fn answer_watchers(&mut self, answer: Answer) {
        if !self.watching.is_empty() {
            let watchers = std::mem::take(&mut self.watching);
            self.answered.push_back((answer, watchers));
        }
    }

    /// Returns the next watcher whose answer is decided, and the answer.
    pub fn next_answered(&self) -> Option<(Rank, Answer)> {
        let (answer, watchers) = self.answered.front()?;
        let (rank, _) = watchers.first_key_value()?;
        Some((*rank, answer.clone()))
    }

    /// Returns the requests that wait for the round to finish.
    pub fn watching(&self) -> impl Iterator<Item = &Watcher> {
        self.watching.values()
    }
}
