//! How a command is repeated until it is answered, and its answer confirmed.

use std::time::Instant;

use redis::Value;

use crate::bounds;
use crate::call::Call;
use crate::cancel::Cancel;
use crate::clock::Moment;
use crate::confirm::{self, Failure};
use crate::error::{Error, Result};
use crate::half::Half;
use crate::request::{Command, unexpected};
use crate::signal;
use crate::times::{FIRST_PAUSE, LONGEST_PAUSE};

/// The reply to a command.
pub(crate) struct Answer {
    /// When the attempt that was answered was sent.
    pub(crate) sent: Moment,
    pub(crate) reply: Value,
    /// Whether an earlier attempt may have been carried out.
    pub(crate) is_repeated: bool,
}

/// Sends a command until it is answered.
///
/// A confirmed DONE comes second, behind a RENEW, unless the hold is lost. RENEW answered 0 tells that this DONE is not the
/// first; without RENEW, nothing tells that a repeated one is. A DONE that is not the first has written nothing, and nothing
/// that is asked behind it tells who knows of the first.
pub(crate) async fn send<H: Half>(half: &H, mut call: Call<'_>) -> Result<Answer> {
    let Some(command) = call.commands.last() else {
        return Err(unexpected(&Value::Nil).into());
    };
    bounds::key(command.key.as_deref())?;
    let fail = |failure: Failure| Err(failure.of(command, half.server().name()));
    let is_cancelled = || call.cancel.is_some_and(Cancel::is_cancelled);
    let cancelled = || Error::Cancelled {
        key: command.key.clone().unwrap_or_default(),
    };
    let within = command.confirm.map(|confirm| confirm.within);
    let mut first_failure = None;
    let mut unconfirmed = None;
    let mut may_be_done = false;
    let mut pause = FIRST_PAUSE;
    loop {
        if is_cancelled() {
            return Err(cancelled());
        }
        let failure = match half.attempt(&call).await {
            Err(failure) => failure,
            Ok(mut reply) => {
                let is_repeated = reply.is_second || may_be_done;
                let sent = reply.sent;
                let answer = |reply| Answer {
                    sent,
                    reply,
                    is_repeated,
                };
                let no_reply = || Err(Failure::Redis(unexpected(&Value::Nil)));
                let last = reply.values.pop().unwrap_or_else(no_reply);
                let is_first = match reply.values.pop() {
                    Some(renewed) => renewed.is_ok_and(|reply| confirm::needs(&reply)),
                    None => !(call.keeps_line && is_repeated),
                };
                // Of a run, 0 says that another attempt has begun. Of a member, it may be the answer to a repetition.
                let may_be_recorded = match &last {
                    Ok(reply) => confirm::needs(reply) || is_repeated && !command.is_answered_again,
                    Err(failure) => matches!(failure, Failure::NotConfirmed { .. }),
                };
                if !is_first && may_be_recorded {
                    return fail(not_known(command));
                }
                match last {
                    Ok(value) => return Ok(answer(value)),
                    Err(failure @ Failure::NotConfirmed { .. }) if call.keeps_line => {
                        let since = first_failure.unwrap_or_else(Instant::now);
                        let told =
                            until_confirmed(half, reply.line, &call, command, failure, since);
                        return match told.await {
                            Ok(()) => Ok(answer(Value::Int(1))),
                            Err(failure) => fail(failure),
                        };
                    }
                    Err(failure) => failure,
                }
            }
        };
        // The withdrawal has ended the wait; or the server is away, and the caller does not want to wait for it.
        if is_cancelled() {
            return Err(cancelled());
        }
        let since = *first_failure.get_or_insert_with(Instant::now);
        let next = pause + within.unwrap_or_default();
        may_be_done |= failure.may_be_done();
        if !failure.may_pass(half.server(), command.is_of_hold) {
            return fail(failure);
        }
        // Opening a connection to a cluster can take seconds, and a replica that stands still is no reason for that.
        call.is_afresh = matches!(failure, Failure::Redis(_) | Failure::NotSent(_));
        if !call.is_afresh {
            unconfirmed = Some(failure.clone());
        }
        if call.effort.is_over(since, next) {
            // That an earlier try was not confirmed says more than that the last one had no answer.
            return fail(unconfirmed.unwrap_or(failure));
        }
        match call.cancel {
            Some(cancel) => cancel.wait::<H>(pause).await,
            None => signal::pause::<H>(pause).await,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// That it is not known who knows of a DONE.
fn not_known(command: &Command) -> Failure {
    Failure::NotConfirmed {
        have: 0,
        wanted: command.confirm.map_or(1, |confirm| confirm.wanted(0)),
    }
}

/// Asks who confirms a DONE where it was answered: sent again, it would write nothing that could be confirmed.
async fn until_confirmed<H: Half>(
    half: &H,
    line: Option<H::Line>,
    call: &Call<'_>,
    command: &Command,
    mut failure: Failure,
    since: Instant,
) -> std::result::Result<(), Failure> {
    let Some((mut line, confirm)) = line.zip(command.confirm) else {
        return Err(failure);
    };
    while !call.effort.is_over(since, FIRST_PAUSE) {
        signal::pause::<H>(FIRST_PAUSE).await;
        match confirm::again(&mut line, confirm, call, half.server()).await {
            Err(told @ Failure::NotConfirmed { .. }) => failure = told,
            Err(_) => return Err(not_known(command)),
            Ok(()) => return Ok(()),
        }
    }
    Err(failure)
}

/// Sends a command that the caller needs an answer to.
pub(crate) async fn need<H: Half>(half: &H, command: &Command) -> Result<Value> {
    let call = Call::new(command, half.effort());
    Ok(send(half, call).await?.reply)
}

/// Asks the server for a sign of life, once.
pub(crate) async fn ping<H: Half>(half: &H) -> Result<()> {
    let ping = Command::of_server("PING");
    let call = Call::new(&ping, half.effort().once());
    send(half, call).await.map(drop)
}
