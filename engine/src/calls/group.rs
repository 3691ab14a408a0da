//! What only wait groups have: DONE, EXPECT and WAIT.

use crate::answer::{Answer, Refusal};
use crate::change::{Change, End};
use crate::hold::Hold;
use crate::queue::entry::{Wait, Watcher};
use crate::queue::wait_queue::WaitQueue;
use crate::types::{ClientId, Now, Token};
use crate::{Body, Engine, Family, Key, Reply, WrongType};

impl Engine {
    /// Ends the live members with these tokens as done. Returns how many there were.
    ///
    /// # Errors
    /// When the key is of another family; likewise for all calls here.
    pub fn done<'t>(
        &mut self,
        key: &mut Key<'_>,
        tokens: impl IntoIterator<Item = &'t Token>,
        now: Now,
    ) -> Result<u64, WrongType> {
        self.body(key, Family::Group)?;
        let mut ended = 0;
        for token in tokens {
            let member = self
                .body_mut(key)
                .and_then(|body| body.holds().by_token(token));
            // A token that is given twice ends its member once: the second time it is not live.
            if let Some(fence) = member.map(Hold::fence) {
                self.end(key, Family::Group, fence, End::Done, now);
                ended += 1;
            }
        }
        if ended > 0 {
            self.settle(key, now);
        }
        Ok(ended)
    }

    /// Declares how many jobs the round has. Returns how many are still owed.
    ///
    /// # Errors
    /// See [`Engine::done`].
    pub fn expect(&mut self, key: &mut Key<'_>, jobs: u32, now: Now) -> Result<u64, WrongType> {
        self.settle_if_absent(key, now);
        self.body(key, Family::Group)?;
        let _ = self.decide(
            key,
            Family::Group,
            Change::Expect {
                jobs,
                at: now.unix(),
            },
        );
        let owed = match self.body(key, Family::Group)? {
            Some(Body::Group(group)) => group.owed(),
            _ => 0,
        };
        self.catch_up(key, now);
        self.settle(key, now);
        Ok(owed)
    }

    /// Waits until the round has finished.
    pub fn wait(
        &mut self,
        key: &mut Key<'_>,
        wait: Option<Wait>,
        client: ClientId,
        now: Now,
    ) -> Reply {
        self.settle_if_absent(key, now);
        match self.body(key, Family::Group) {
            Err(WrongType) => return Reply::Now(Answer::WrongType),
            // Nothing was ever added, or the round is over and forgotten.
            Ok(None) => return Reply::Now(Answer::Finished { done: 0, lapsed: 0 }),
            Ok(Some(_)) => {}
        }
        self.catch_up(key, now);
        self.settle(key, now);
        match self.body(key, Family::Group) {
            Ok(Some(Body::Group(group))) => {
                let tally = group.tally();
                let queue = self.queues.find(key.db, key.name);
                let queue = queue.and_then(|id| self.queues.get(id));
                if group.has_nothing_to_wait_for(queue.is_some_and(WaitQueue::has_waiting)) {
                    return Reply::Now(Answer::Finished {
                        done: tally.done,
                        lapsed: tally.lapsed,
                    });
                }
            }
            // The round has finished just now, and this server keeps no tallies.
            _ => return Reply::Now(Answer::Finished { done: 0, lapsed: 0 }),
        }
        let Some(wait) = wait else {
            return Reply::Now(Answer::NotGranted);
        };
        let queue = self.queues.find(key.db, key.name);
        if let Err(full) = self.queues.make_room(queue, self.queue_bounds()) {
            return Reply::Now(Answer::Refused(Refusal::QueueFull(full)));
        }
        let Some(place) = self.next_place(now) else {
            return Reply::Now(Answer::NotGranted);
        };
        let queue = self.queues.find_or_make(key.db, key.name);
        let id = self.queues.next_waiter();
        self.queues.watch(
            queue,
            place,
            Watcher {
                id,
                client,
                wait,
                since: now.mono,
            },
        );
        self.settle(key, now);
        match self.effects.answer_to(id) {
            Some(answer) => Reply::Now(answer),
            None => Reply::Queued(id),
        }
    }
}
