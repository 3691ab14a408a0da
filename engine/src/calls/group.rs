//! What only wait groups have: DONE, EXPECT and WAIT.

use crate::answer::Answer;
use crate::calls::acquire::{Asked, Reply};
use crate::change::{Change, End};
use crate::hold::Hold;
use crate::queue::place::{Parked, Watcher};
use crate::state::Body;
use crate::types::{ClientId, Family, MonoUs, Token};
use crate::visit::{Asking, Visit, WrongType};

impl Visit<'_> {
    /// Ends the live members with these tokens as done. Returns how many there were.
    ///
    /// # Errors
    /// When the key is of another family; likewise for all calls here.
    pub fn done<'t>(
        &mut self,
        tokens: impl IntoIterator<Item = &'t Token>,
    ) -> Result<u64, WrongType> {
        let mut ended = 0;
        for token in tokens {
            // A token that is given twice ends its member once: the second time it is not live.
            if let Some(fence) = self.look().hold_of(Family::Group, token)?.map(Hold::fence) {
                self.end(fence, End::Done);
                ended += 1;
            }
        }
        Ok(ended)
    }

    /// Declares how many jobs the round has. Returns how many are still owed.
    pub fn expect(&mut self, jobs: u32) -> Result<u64, WrongType> {
        self.settled_body_of(Family::Group)?;
        let at = self.now.unix();
        self.order(Family::Group, Some(Change::Expect { jobs, at }));
        let group = self.body().and_then(Body::group);
        Ok(group.map_or(0, |group| group.tally.owed()))
    }

    /// Waits until the round has finished.
    pub fn wait(&mut self, wait: Option<MonoUs>, client: ClientId) -> Reply {
        let asked = self.watch(wait, client);
        self.reply(asked)
    }

    fn watch(&mut self, wait: Option<MonoUs>, client: ClientId) -> Asked {
        self.settled_body_of(Family::Group)?;
        self.catch_up();
        self.settle();
        match self.body().and_then(Body::group) {
            Some(group) if group.has_nothing_to_wait_for(self.has_line()) => {
                return Err(group.answer_finished());
            }
            Some(_) => {}
            // Nothing was ever added, or the round is over and its tally forgotten.
            None => return Err(Answer::Finished { done: 0, lapsed: 0 }),
        }
        let until = wait.ok_or(Answer::NotGranted)?;
        self.make_room(None, false)?;
        let rank = self.next_rank()?;
        let queue = self.make_queue();
        let waiter = self.engine.queues.next_waiter();
        let watcher = Watcher {
            parked: Parked {
                waiter,
                client,
                ephemeral: false,
                may_return: false,
                until,
            },
            since: self.now.mono,
        };
        self.comes_due_in(0);
        self.engine.queues.watch(queue, rank, watcher, None);
        self.is_stale = true;
        Ok(Asking::new(rank, client, Some(waiter)))
    }
}
