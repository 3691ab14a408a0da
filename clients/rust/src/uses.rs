//! What a lock, a semaphore, a group and work-once are asked for.

use std::time::{Duration, Instant};

use redis::Value;

use crate::ask::{Verdict, ask};
use crate::bounds;
use crate::call::Call;
use crate::error::Result;
use crate::half::Half;
use crate::hold::{Hold, Member, Run};
use crate::once::{Begun, Once, Outcome};
use crate::options::{Group, Lock, Options, Tally};
use crate::progress::KeyInfo;
use crate::request::{Family, Reply, Request, millis, outcome, read, unexpected};
use crate::semaphore::Semaphore;
use crate::send::{need, send};
use crate::signal::pause;
use crate::wait::{BLOCK, WaitLimit};

async fn acquire<H: Half>(
    half: &H,
    options: &Options,
    request: Result<Request>,
    limit: WaitLimit,
) -> Result<Hold<H>> {
    match ask(half, options, request?, limit).await? {
        Verdict::Granted { hold, .. } => Ok(hold),
        Verdict::Done { .. } => Err(unexpected(&Value::Nil).into()),
    }
}

pub(crate) async fn add<H: Half>(group: &Group<H>, limit: WaitLimit) -> Result<Member<H>> {
    let hold = acquire(&group.client, &group.options, group.request(), limit);
    hold.await.map(Member::new)
}

pub(crate) async fn expect<H: Half>(group: &Group<H>, jobs: u32) -> Result<u64> {
    bounds::count("jobs", jobs)?;
    let mut command = Family::Group.command("EXPECT", group.key());
    command.arg(jobs);
    Ok(read(&need(&group.client, &command).await?)?)
}

pub(crate) async fn wait<H: Half>(group: &Group<H>, limit: WaitLimit) -> Result<Option<Tally>> {
    // QUEUE is not for WAIT: without a connection, asking now and then has to do.
    const PAUSE: Duration = Duration::from_millis(500);
    let half = &group.client;
    let effort = half.settings().effort();
    let effort = effort.until(limit.give_up_at(Instant::now()));
    loop {
        let left = limit.left(BLOCK);
        let blocks = left.filter(|_| !half.listens());
        let mut command = Family::Group.command("WAIT", group.key());
        if let Some(block) = blocks {
            command.arg("BLOCK").arg(millis(block));
        }
        let mut call = Call::new(&command, effort);
        (call.blocks, call.cancel) = (blocks, group.options.cancel.as_ref());
        let answer = send(half, call).await?;
        match (answer.reply, left) {
            (Value::Nil, None) => return Ok(None),
            (Value::Nil, Some(left)) if half.listens() => pause::<H>(left.min(PAUSE)).await,
            (Value::Nil, Some(_)) => {}
            (reply, _) => {
                let (done, lapsed) = read(&reply)?;
                return Ok(Some(Tally { done, lapsed }));
            }
        }
    }
}

pub(crate) async fn wait_without_limit<H: Half>(group: &Group<H>) -> Result<Tally> {
    loop {
        if let Some(tally) = wait(group, WaitLimit::Unlimited).await? {
            return Ok(tally);
        }
    }
}

pub(crate) async fn begin<H: Half>(once: &Once<H>, limit: WaitLimit) -> Result<Begun<Run<H>>> {
    let request = once.request()?;
    Ok(
        match ask(&once.client, &once.options, request, limit).await? {
            Verdict::Granted { hold, attempt } => Begun::Run(Run::new(hold, attempt, once.ending)),
            Verdict::Done { result, attempt } => Begun::Done { result, attempt },
        },
    )
}

pub(crate) async fn result<H: Half>(once: &Once<H>) -> Result<Outcome> {
    let command = Family::Once.command("GET", once.key());
    Ok(match outcome(need(&once.client, &command).await?)? {
        Reply::Done { result, attempt } => Outcome::Done { result, attempt },
        Reply::Failed { reason, attempts } => Outcome::Failed { reason, attempts },
        _ => Outcome::NotYet,
    })
}

/// Asks INFO. Of a key that does not exist, all is empty.
async fn key_info<H: Half>(half: &H, family: Family, key: &str) -> Result<KeyInfo> {
    let mut command = family.command("INFO", key);
    command.arg("COUNT").arg(1_000);
    Ok(KeyInfo::read(&need(half, &command).await?))
}

/// Returns the keys in the order in which all processes ask for them, so that none waits for one that waits for it.
pub(crate) async fn all_of<H: Half>(locks: &[Lock<H>], limit: WaitLimit) -> Result<Vec<Hold<H>>> {
    let mut locks: Vec<&Lock<H>> = locks.iter().collect();
    locks.sort_by_key(|lock| lock.key());
    let mut holds = Vec::new();
    for lock in locks {
        match lock.acquire_within(limit).await {
            Ok(hold) => holds.push(hold),
            Err(error) => {
                for hold in holds {
                    // Its own error tells less than why another is not held.
                    let _ = hold.give_back().await;
                }
                return Err(error);
            }
        }
    }
    Ok(holds)
}

impl<C: Half> Lock<C> {
    pub(crate) async fn acquire_within(&self, limit: WaitLimit) -> Result<Hold<C>> {
        acquire(&self.client, &self.options, self.request(), limit).await
    }

    pub(crate) async fn info(&self) -> Result<KeyInfo> {
        key_info(&self.client, Family::Lock, self.key()).await
    }
}

impl<C: Half> Semaphore<C> {
    pub(crate) async fn info(&self) -> Result<KeyInfo> {
        key_info(&self.client, Family::Semaphore, self.key()).await
    }

    pub(crate) async fn acquire_within(&self, limit: WaitLimit) -> Result<Hold<C>> {
        acquire(&self.client, &self.options, self.request(), limit).await
    }
}
