//! How a client names a lock, a semaphore, a group and work-once, and what they can be asked for.

use std::time::{Duration, Instant};

use redis::Value;

use crate::bounds;
use crate::error::{Error, Result};
use crate::options::{Begun, Group, Lock, Once, Options, Tally};
use crate::request::{Family, Outcome, Request, millis, outcome, read, unexpected};
use crate::semaphore::Semaphore;
use crate::sync::wait::ask;
use crate::sync::{Cancel, Client, Hold, Member, Run};
use crate::wait::{BLOCK, Verdict, WaitLimit};

impl Client {
    /// Names a lock.
    pub fn lock(&self, key: impl Into<String>) -> Lock {
        Lock::new(self.clone(), key.into())
    }

    /// Names a semaphore.
    pub fn semaphore(&self, key: impl Into<String>) -> Semaphore {
        Semaphore::new(self.clone(), key.into())
    }

    /// Names a wait group.
    pub fn group(&self, key: impl Into<String>) -> Group {
        Group::new(self.clone(), key.into())
    }

    /// Names work that is done once.
    pub fn once(&self, key: impl Into<String>) -> Once {
        Once::new(self.clone(), key.into())
    }
}

impl Lock<Client> {
    /// Waits without limit until the lock is held.
    pub fn acquire(&self) -> Result<Hold> {
        self.acquire_with(WaitLimit::Unlimited)
    }

    /// Waits at most so long. Returns [`Error::NotAcquired`] when the time is up.
    pub fn acquire_for(&self, wait: Duration) -> Result<Hold> {
        self.acquire_with(WaitLimit::at_most(wait))
    }

    /// Takes the lock if it is free and nobody waits for it. Returns [`Error::NotAcquired`] otherwise.
    pub fn try_acquire(&self) -> Result<Hold> {
        self.acquire_with(WaitLimit::Try)
    }

    fn acquire_with(&self, limit: WaitLimit) -> Result<Hold> {
        hold(&self.client, &self.options, self.request()?, limit)
    }
}

impl Semaphore<Client> {
    /// Waits without limit until the permits are held.
    pub fn acquire(&self) -> Result<Hold> {
        self.acquire_with(WaitLimit::Unlimited)
    }

    /// Waits at most so long. Returns [`Error::NotAcquired`] when the time is up.
    pub fn acquire_for(&self, wait: Duration) -> Result<Hold> {
        self.acquire_with(WaitLimit::at_most(wait))
    }

    /// Takes the permits if they are free and nobody waits. Returns [`Error::NotAcquired`] otherwise.
    pub fn try_acquire(&self) -> Result<Hold> {
        self.acquire_with(WaitLimit::Try)
    }

    fn acquire_with(&self, limit: WaitLimit) -> Result<Hold> {
        hold(&self.client, &self.options, self.request()?, limit)
    }
}

impl Group<Client> {
    /// Joins the group. Where the group has a limit, waits without limit until fewer members are at work.
    pub fn add(&self) -> Result<Member> {
        self.add_with(WaitLimit::Unlimited)
    }

    /// Joins the group, and waits at most so long for its limit. Returns [`Error::NotAcquired`] when the time is up.
    pub fn add_for(&self, wait: Duration) -> Result<Member> {
        self.add_with(WaitLimit::at_most(wait))
    }

    /// Joins the group if its limit allows it and nobody waits. Returns [`Error::NotAcquired`] otherwise.
    pub fn try_add(&self) -> Result<Member> {
        self.add_with(WaitLimit::Try)
    }

    fn add_with(&self, limit: WaitLimit) -> Result<Member> {
        hold(&self.client, &self.options, self.request()?, limit).map(Member::new)
    }

    /// Declares how many jobs this round has, 1 to 1,000,000, so that a wait does not end before all were added. Returns
    /// how many are still owed.
    pub fn expect(&self, jobs: u32) -> Result<u64> {
        bounds::count("jobs", jobs)?;
        let mut command = Family::Group.command("EXPECT", self.key());
        command.arg(jobs);
        let answer = self.client.send(self.client.call(&command))?;
        Ok(read(&answer.reply)?)
    }

    /// Waits without limit until the round is finished: no member is at work, and as many as expected are done.
    ///
    /// A group that does not exist is finished. When the group is removed during the wait, this is an error (`UNBLOCKED`).
    pub fn wait(&self) -> Result<Tally> {
        loop {
            if let Some(tally) = self.wait_with(WaitLimit::Unlimited)? {
                return Ok(tally);
            }
        }
    }

    /// Waits at most so long. Returns `None` when the round is not finished by then.
    pub fn wait_for(&self, wait: Duration) -> Result<Option<Tally>> {
        self.wait_with(WaitLimit::at_most(wait))
    }

    fn wait_with(&self, limit: WaitLimit) -> Result<Option<Tally>> {
        let start = Instant::now();
        let cancel = self.options.cancel.as_ref();
        let is_cancelled = || cancel.is_some_and(Cancel::is_cancelled);
        let cancelled = || Error::Cancelled {
            key: self.key().to_owned(),
        };
        loop {
            if is_cancelled() {
                return Err(cancelled());
            }
            let block = limit.left(BLOCK);
            let mut command = Family::Group.command("WAIT", self.key());
            if let Some(block) = block {
                command.arg("BLOCK").arg(millis(block));
            }
            let mut call = self.client.call(&command);
            call.blocks = block.unwrap_or_default();
            call.cancel = cancel;
            call.effort = call.effort.until(limit.give_up_at(start));
            match self.client.send(call) {
                Err(Error::Redis(_)) if is_cancelled() => return Err(cancelled()),
                Err(error) => return Err(error),
                Ok(answer) => match answer.reply {
                    Value::Nil if block.is_none() => return Ok(None),
                    Value::Nil => {}
                    reply => {
                        let (done, lapsed) = read(&reply)?;
                        return Ok(Some(Tally { done, lapsed }));
                    }
                },
            }
        }
    }
}

impl Once<Client> {
    /// Waits without limit until the work is done or this process is to do it. Returns [`Error::WorkFailed`] when it was
    /// given up.
    pub fn begin(&self) -> Result<Begun> {
        self.begin_with(WaitLimit::Unlimited)
    }

    /// Waits at most so long. Returns [`Error::NotAcquired`] when the time is up and another process is still at work.
    pub fn begin_for(&self, wait: Duration) -> Result<Begun> {
        self.begin_with(WaitLimit::at_most(wait))
    }

    /// Begins if nobody is at work. Returns [`Error::NotAcquired`] otherwise.
    pub fn try_begin(&self) -> Result<Begun> {
        self.begin_with(WaitLimit::Try)
    }

    fn begin_with(&self, limit: WaitLimit) -> Result<Begun> {
        let request = self.request()?;
        Ok(match ask(&self.client, &self.options, &request, limit)? {
            Verdict::Granted { grant, sent } => {
                let hold = Hold::new(&self.client, self.options.margin, request, grant, sent);
                Begun::Run(Run::new(hold, grant.attempt, self.ending))
            }
            Verdict::Done { result, attempt } => Begun::Done { result, attempt },
        })
    }

    /// Does the work if nobody has done it, and returns its result: this caller's, or the one that another has left.
    ///
    /// An error of the work is recorded as the reason of a failed attempt and returned; the next in line begins. A panic
    /// counts as a failed attempt too.
    pub fn call<T, E>(
        &self,
        work: impl FnOnce(&Run) -> std::result::Result<T, E>,
    ) -> std::result::Result<Vec<u8>, E>
    where
        T: Into<Vec<u8>>,
        E: From<Error> + std::fmt::Display,
    {
        let run = match self.begin()? {
            Begun::Run(run) => run,
            Begun::Done { result, .. } => return Ok(result.unwrap_or_default()),
        };
        match work(&run) {
            Ok(result) => {
                let result = result.into();
                run.done(Some(&result))?;
                Ok(result)
            }
            Err(error) => {
                // The work's own error tells more than that its failure could not be recorded.
                let _ = run.fail(&error.to_string());
                Err(error)
            }
        }
    }

    /// Returns the result if the work is done: `None` while it is not, `Some(None)` when the worker gave no result.
    pub fn result(&self) -> Result<Option<Option<Vec<u8>>>> {
        let command = Family::Once.command("GET", self.key());
        let answer = self.client.send(self.client.call(&command))?;
        Ok(match outcome(answer.reply)? {
            Outcome::Done { result, .. } => Some(result),
            _ => None,
        })
    }
}

fn hold(client: &Client, options: &Options, request: Request, limit: WaitLimit) -> Result<Hold> {
    match ask(client, options, &request, limit)? {
        Verdict::Granted { grant, sent } => {
            Ok(Hold::new(client, options.margin, request, grant, sent))
        }
        Verdict::Done { .. } => Err(unexpected(&Value::Nil).into()),
    }
}
