//! What a lock, a semaphore, a group and work-once are asked for.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::future::Future;
use std::time::{Duration, Instant};

use redis::Value;

use crate::ask::ask;
use crate::bounds;
use crate::call::Call;
use crate::effort::WaitLimit;
use crate::error::{Error, Result};
use crate::half::Half;
use crate::hold::{Hold, Run};
use crate::once::{Begun, Form, Outcome};
use crate::options::{Claim, Group, Once, Options, Semaphore, Tally};
use crate::progress::KeyInfo;
use crate::request::{Command, Family, Reply, millis, outcome, read, unexpected};
use crate::send::{need, send};
use crate::signal::pause;
use crate::times::BLOCK_AT_MOST;

pub(crate) async fn acquire<H: Half>(
    half: &H,
    options: &Options,
    limit: WaitLimit,
) -> Result<Hold<H>> {
    match ask(half, options, limit).await? {
        Begun::Run(hold) => Ok(hold),
        Begun::Done { .. } => Err(unexpected(&Value::Nil).into()),
    }
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
    let mut effort = half.effort();
    effort.give_up_at = limit.give_up_at(Instant::now());
    loop {
        let left = limit.left(BLOCK_AT_MOST);
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

pub(crate) async fn begin<H: Half>(once: &Once<H>, limit: WaitLimit) -> Result<Begun<Run<H>>> {
    Ok(match ask(&once.client, &once.options, limit).await? {
        Begun::Run(hold) => Begun::Run(Run(hold)),
        Begun::Done { result, attempt } => Begun::Done { result, attempt },
    })
}

pub(crate) async fn result<H: Half>(once: &Once<H>) -> Result<Outcome> {
    let command = Family::Once.command("GET", once.key());
    Ok(match outcome(need(&once.client, &command).await?)? {
        Reply::Done { result, attempt } => Outcome::Done { result, attempt },
        Reply::Failed { reason, attempts } => Outcome::Failed { reason, attempts },
        _ => Outcome::NotYet,
    })
}

/// Records as done the attempt that the token of the options names.
pub(crate) async fn done<H: Half>(once: &Once<H>, result: Option<&[u8]>) -> Result<bool> {
    bounds::result(result)?;
    ended(&once.client, once.options.request()?.done(result)).await
}

/// Records as failed the attempt that the token of the options names.
pub(crate) async fn fail<H: Half>(once: &Once<H>, reason: Option<&str>) -> Result<bool> {
    let [fail, _] = once.options.request()?.fail(reason);
    ended(&once.client, fail).await
}

/// Returns whether there was such an attempt. Of a repetition, 0 may say that an earlier one has ended it.
async fn ended<H: Half>(half: &H, mut command: Command) -> Result<bool> {
    // Whoever has the token alone does not renew, and nothing else tells that a repeated DONE is the first.
    command.confirm = None;
    // Nor has it logged in before: a password that is refused is a wrong one.
    command.is_of_hold = false;
    let answer = send(half, Call::new(&command, half.effort())).await?;
    let may_have_ended = answer.is_repeated && !command.is_answered_again;
    Ok(read::<u64>(&answer.reply)? > 0 || may_have_ended)
}

/// Does the work if nobody has done it, records what it has come to, and returns the result. `attempt` gives the run back
/// with the outcome of the work, or with why that does not count.
pub(crate) async fn call<H: Half, T, E: From<Error> + Display, A>(
    once: &Once<H>,
    form: impl Form<T>,
    mut attempt: impl FnMut(Run<H>) -> A,
) -> std::result::Result<T, E>
where
    A: Future<Output = (Run<H>, Result<std::result::Result<T, E>>)>,
{
    let mut last: Option<String> = None;
    loop {
        let run = match begin(once, WaitLimit::Unlimited).await {
            Ok(Begun::Run(run)) => run,
            Ok(Begun::Done { result, .. }) => return Ok(form.read(once.key(), result)?),
            Err(mut error) => {
                if let Error::WorkFailed { cause, .. } = &mut error {
                    *cause = last.map(Into::into);
                }
                return Err(error.into());
            }
        };
        let (run, outcome) = attempt(run).await;
        let error = match outcome? {
            Ok(result) => {
                run.finish(form.store(once.key(), &result).map(Some))
                    .await?;
                return Ok(result);
            }
            Err(error) => error,
        };
        let reason = error.to_string();
        // The work's own error tells more than that its failure could not be recorded.
        let _ = run.give_up(&reason).await;
        if !once.options.goes_on {
            return Err(error);
        }
        last = Some(reason);
    }
}

/// Asks INFO. Of a key that does not exist, all is empty.
pub(crate) async fn info<H: Half>(half: &H, options: &Options) -> Result<KeyInfo> {
    let mut command = options.family.command("INFO", &options.key);
    command.arg("COUNT").arg(1_000);
    Ok(KeyInfo::read(&need(half, &command).await?))
}

impl<C> Semaphore<C> {
    /// How many permits are free, as far as is known; all of them while there is no such semaphore.
    pub(crate) fn free(&self, info: &KeyInfo) -> Option<u64> {
        let unused = self.options.limit.map(u64::from);
        info.available.or(unused.filter(|_| info.state.is_empty()))
    }

    pub(crate) fn wanted(&self) -> u64 {
        self.options.permits.unwrap_or(1).into()
    }
}

/// Acquires in the order of the keys, as all processes do, so that none waits for one that waits for it. Returns the holds
/// in the order of the claims.
pub(crate) async fn all_of<H: Half>(
    claims: Vec<Claim<H>>,
    limit: WaitLimit,
) -> Result<Vec<Hold<H>>> {
    let mut holds = BTreeMap::new();
    if let Err(error) = hold_all(&claims, limit, &mut holds).await {
        for mut hold in holds.into_values().rev() {
            // Its own error tells less than why another is not held.
            let _ = hold.give_back().await;
        }
        return Err(error);
    }
    Ok(holds.into_values().collect())
}

async fn hold_all<H: Half>(
    claims: &[Claim<H>],
    limit: WaitLimit,
    holds: &mut BTreeMap<usize, Hold<H>>,
) -> Result<()> {
    let mut in_order: Vec<_> = claims.iter().enumerate().collect();
    in_order.sort_by_key(|(_, claim)| &claim.options.key);
    bounds::keys(in_order.iter().map(|(_, claim)| claim.options.key.as_str()))?;
    for (at, claim) in in_order {
        holds.insert(at, acquire(&claim.client, &claim.options, limit).await?);
    }
    // The first ones can be lost while the last one is waited for.
    holds.values().try_for_each(Hold::ensure_held)
}
