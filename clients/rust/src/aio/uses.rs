//! How tasks name a lock, a semaphore, a group and work-once, and what they can ask them for.

use std::fmt::Display;
use std::future::Future;
use std::time::{Duration, Instant};

use redis::Value;

use crate::aio::wait::ask;
use crate::aio::{Begun, Client, Hold, Member, Run, Waits};
use crate::bounds;
use crate::error::{Error, Result};
use crate::options::{Group, Lock, Once, Options, Tally};
use crate::request::{Family, Outcome, Request, millis, outcome, read, unexpected};
use crate::semaphore::Semaphore;
use crate::wait::{BLOCK, Verdict, WaitLimit};

impl Client {
    /// Names a lock.
    pub fn lock(&self, key: impl Into<String>) -> Lock<Client> {
        Lock::new(self.clone(), key.into())
    }

    /// Names a semaphore.
    pub fn semaphore(&self, key: impl Into<String>) -> Semaphore<Client> {
        Semaphore::new(self.clone(), key.into())
    }

    /// Names a wait group.
    pub fn group(&self, key: impl Into<String>) -> Group<Client> {
        Group::new(self.clone(), key.into())
    }

    /// Names work that is done once.
    pub fn once(&self, key: impl Into<String>) -> Once<Client> {
        Once::new(self.clone(), key.into())
    }
}

impl Lock<Client> {
    /// Waits without limit until the lock is held.
    pub async fn acquire(&self) -> Result<Hold> {
        self.acquire_with(WaitLimit::Unlimited).await
    }

    /// Waits at most so long. Returns [`Error::NotAcquired`] when the time is up.
    pub async fn acquire_for(&self, wait: Duration) -> Result<Hold> {
        self.acquire_with(WaitLimit::at_most(wait)).await
    }

    /// Takes the lock if it is free and nobody waits for it. Returns [`Error::NotAcquired`] otherwise.
    pub async fn try_acquire(&self) -> Result<Hold> {
        self.acquire_with(WaitLimit::Try).await
    }

    async fn acquire_with(&self, limit: WaitLimit) -> Result<Hold> {
        hold(&self.client, &self.options, self.request()?, limit).await
    }
}

impl Semaphore<Client> {
    /// Waits without limit until the permits are held.
    pub async fn acquire(&self) -> Result<Hold> {
        self.acquire_with(WaitLimit::Unlimited).await
    }

    /// Waits at most so long. Returns [`Error::NotAcquired`] when the time is up.
    pub async fn acquire_for(&self, wait: Duration) -> Result<Hold> {
        self.acquire_with(WaitLimit::at_most(wait)).await
    }

    /// Takes the permits if they are free and nobody waits. Returns [`Error::NotAcquired`] otherwise.
    pub async fn try_acquire(&self) -> Result<Hold> {
        self.acquire_with(WaitLimit::Try).await
    }

    async fn acquire_with(&self, limit: WaitLimit) -> Result<Hold> {
        hold(&self.client, &self.options, self.request()?, limit).await
    }
}

impl Group<Client> {
    /// Joins the group. Where the group has a limit, waits without limit until fewer members are at work.
    pub async fn add(&self) -> Result<Member> {
        self.add_with(WaitLimit::Unlimited).await
    }

    /// Joins the group, and waits at most so long for its limit. Returns [`Error::NotAcquired`] when the time is up.
    pub async fn add_for(&self, wait: Duration) -> Result<Member> {
        self.add_with(WaitLimit::at_most(wait)).await
    }

    /// Joins the group if its limit allows it and nobody waits. Returns [`Error::NotAcquired`] otherwise.
    pub async fn try_add(&self) -> Result<Member> {
        self.add_with(WaitLimit::Try).await
    }

    async fn add_with(&self, limit: WaitLimit) -> Result<Member> {
        hold(&self.client, &self.options, self.request()?, limit)
            .await
            .map(Member::new)
    }

    /// Declares how many jobs this round has, 1 to 1,000,000, so that a wait does not end before all were added. Returns
    /// how many are still owed.
    pub async fn expect(&self, jobs: u32) -> Result<u64> {
        bounds::count("jobs", jobs)?;
        let mut command = Family::Group.command("EXPECT", self.key());
        command.arg(jobs);
        let answer = self
            .client
            .send(&command, self.client.settings.effort())
            .await?;
        Ok(read(&answer.reply)?)
    }

    /// Waits without limit until the round is finished: no member is at work, and as many as expected are done.
    ///
    /// A group that does not exist is finished. When the group is removed during the wait, this is an error (`UNBLOCKED`).
    pub async fn wait(&self) -> Result<Tally> {
        loop {
            if let Some(tally) = self.wait_with(WaitLimit::Unlimited).await? {
                return Ok(tally);
            }
        }
    }

    /// Waits at most so long. Returns `None` when the round is not finished by then.
    pub async fn wait_for(&self, wait: Duration) -> Result<Option<Tally>> {
        self.wait_with(WaitLimit::at_most(wait)).await
    }

    async fn wait_with(&self, limit: WaitLimit) -> Result<Option<Tally>> {
        // QUEUE is not for WAIT: on a shared connection, asking now and then has to do.
        const PAUSE: Duration = Duration::from_millis(500);
        let effort = self.client.settings.effort();
        let effort = effort.until(limit.give_up_at(Instant::now()));
        loop {
            let mut command = Family::Group.command("WAIT", self.key());
            let block = limit.left(BLOCK);
            let answer = match (block, self.client.waits()) {
                (Some(block), Waits::OwnConnection) => {
                    command.arg("BLOCK").arg(millis(block));
                    self.client
                        .send_blocking(&command, block, effort, None)
                        .await?
                }
                _ => self.client.send(&command, effort).await?,
            };
            match (answer.reply, block) {
                (Value::Nil, None) => return Ok(None),
                (Value::Nil, Some(block)) => {
                    if self.client.waits() == Waits::SharedConnection {
                        tokio::time::sleep(block.min(PAUSE)).await;
                    }
                }
                (reply, _) => {
                    let (done, lapsed) = read(&reply)?;
                    return Ok(Some(Tally { done, lapsed }));
                }
            }
        }
    }
}

impl Once<Client> {
    /// Waits without limit until the work is done or this process is to do it. Returns [`Error::WorkFailed`] when it was
    /// given up.
    pub async fn begin(&self) -> Result<Begun> {
        self.begin_with(WaitLimit::Unlimited).await
    }

    /// Waits at most so long. Returns [`Error::NotAcquired`] when the time is up and another process is still at work.
    pub async fn begin_for(&self, wait: Duration) -> Result<Begun> {
        self.begin_with(WaitLimit::at_most(wait)).await
    }

    /// Begins if nobody is at work. Returns [`Error::NotAcquired`] otherwise.
    pub async fn try_begin(&self) -> Result<Begun> {
        self.begin_with(WaitLimit::Try).await
    }

    async fn begin_with(&self, limit: WaitLimit) -> Result<Begun> {
        let request = self.request()?;
        Ok(
            match ask(&self.client, &self.options, &request, limit).await? {
                Verdict::Granted { grant, sent } => {
                    let hold = Hold::new(&self.client, self.options.margin, request, grant, sent);
                    Begun::Run(Run::new(hold, grant.attempt, self.ending))
                }
                Verdict::Done { result, attempt } => Begun::Done { result, attempt },
            },
        )
    }

    /// Does the work if nobody has done it, and returns its result: this caller's, or the one that another has left.
    ///
    /// The work is given its attempt and its fence. It is dropped at its next await when the run is lost. An error of the
    /// work is recorded as the reason of a failed attempt and returned; the next in line begins. A panic counts as a failed
    /// attempt too.
    pub async fn call<T, E, F>(
        &self,
        work: impl FnOnce(Attempt) -> F,
    ) -> std::result::Result<Vec<u8>, E>
    where
        T: Into<Vec<u8>>,
        E: From<Error> + Display,
        F: Future<Output = std::result::Result<T, E>>,
    {
        let run = match self.begin().await? {
            Begun::Run(run) => run,
            Begun::Done { result, .. } => return Ok(result.unwrap_or_default()),
        };
        let attempt = Attempt {
            number: run.attempt(),
            fence: run.fence(),
        };
        match run.run(work(attempt)).await? {
            Ok(result) => {
                let result = result.into();
                run.done(Some(&result)).await?;
                Ok(result)
            }
            Err(error) => {
                // The work's own error tells more than that its failure could not be recorded.
                let _ = run.fail(&error.to_string()).await;
                Err(error)
            }
        }
    }

    /// Returns the result if the work is done: `None` while it is not, `Some(None)` when the worker gave no result.
    pub async fn result(&self) -> Result<Option<Option<Vec<u8>>>> {
        let command = Family::Once.command("GET", self.key());
        let answer = self
            .client
            .send(&command, self.client.settings.effort())
            .await?;
        Ok(match outcome(answer.reply)? {
            Outcome::Done { result, .. } => Some(result),
            _ => None,
        })
    }
}

/// What [`Once::call`] tells the work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Attempt {
    /// Which attempt this is; 1 is the first. From 2 on, an earlier worker failed or died, perhaps half-way.
    pub number: u64,
    /// The fence of the run.
    pub fence: u64,
}

async fn hold(
    client: &Client,
    options: &Options,
    request: Request,
    limit: WaitLimit,
) -> Result<Hold> {
    match ask(client, options, &request, limit).await? {
        Verdict::Granted { grant, sent } => {
            Ok(Hold::new(client, options.margin, request, grant, sent))
        }
        Verdict::Done { .. } => Err(unexpected(&Value::Nil).into()),
    }
}
