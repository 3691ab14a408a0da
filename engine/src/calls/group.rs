//! What only wait groups have: DONE, EXPECT and WAIT.

use crate::answer::{Answer, Refusal};
use crate::calls::acquire::Reply;
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
        self.body_of(Family::Group)?;
        let mut ended = 0;
        for token in tokens {
            let member = self.body().and_then(|body| body.holds().by_token(token));
            // A token that is given twice ends its member once: the second time it is not live.
            if let Some(fence) = member.map(Hold::fence) {
                self.end(Family::Group, fence, End::Done);
                ended += 1;
            }
        }
        Ok(ended)
    }

    /// Declares how many jobs the round has. Returns how many are still owed.
    pub fn expect(&mut self, jobs: u32) -> Result<u64, WrongType> {
        self.settle_if_absent();
        self.body_of(Family::Group)?;
        let at = self.now.unix();
        let _ = self.decide(Family::Group, Change::Expect { jobs, at });
        let group = self.body().and_then(Body::group);
        let owed = group.map_or(0, |group| group.tally.owed());
        self.catch_up();
        Ok(owed)
    }

    /// Waits until the round has finished.
    pub fn wait(&mut self, wait: Option<MonoUs>, client: ClientId) -> Reply {
        self.settle_if_absent();
        match self.body_of(Family::Group) {
            Err(WrongType) => return Reply::Now(Answer::WrongType),
            // Nothing was ever added, or the round is over and forgotten.
            Ok(None) => return Reply::Now(self.finished()),
            Ok(Some(_)) => {}
        }
        self.catch_up();
        self.settle();
        let group = self.body().and_then(Body::group);
        // Without a group the round has finished just now, and this server keeps no tallies.
        if group.is_none_or(|group| group.has_nothing_to_wait_for(self.has_line())) {
            return Reply::Now(self.finished());
        }
        let Some(until) = wait else {
            return Reply::Now(Answer::NotGranted);
        };
        let (queue, settings) = (self.find_queue(), &self.engine.settings);
        if let Err(full) = self.engine.queues.make_room(queue, settings) {
            return Reply::Now(Answer::Refused(Refusal::QueueFull(full)));
        }
        let Some(rank) = self.next_rank() else {
            return Reply::Now(Answer::NotGranted);
        };
        let queue = self.make_queue();
        let waiter = self.engine.queues.next_waiter();
        let watcher = Watcher {
            parked: Parked {
                waiter,
                client,
                ephemeral: false,
                until,
            },
            since: self.now.mono,
        };
        self.engine.queues.watch(queue, rank, watcher);
        self.asking = Some(Asking { rank, client });
        self.settle();
        match self.answer.take() {
            Some(answer) => Reply::Now(answer),
            None => Reply::Queued(waiter),
        }
    }
}
