//! Confirmed holds: an answer that the replicas, or the disk, do not confirm is no answer.
//!
//! Behind the commands goes WAIT, or WAITAOF, on the same connection: it knows what was written there, and nothing else.

use std::future::Future;
use std::time::Duration;

use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};

use crate::call::Call;
use crate::error::{About, Error, ServerError};
use crate::passing::{is_of_login, passes};
use crate::request::{Command, Confirm, Replicas, Reply, millis, outcome, read, unexpected};
use crate::server::{Server, Slot};

/// Why there is no answer to a command.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The server has refused it, or has not answered.
    Redis(RedisError),
    /// It was not sent: there is no connection, or the server has refused its greeting.
    NotSent(RedisError),
    /// It was answered, but too few replicas have confirmed that.
    NotConfirmed { have: u32, wanted: u32 },
    /// It was answered, and the server refuses to tell who confirms that.
    Unconfirmable(RedisError),
}

impl Failure {
    /// Whether it may be sent again. What is refused before the server looks at the command is no answer to what renews or
    /// ends a hold: a password may be half-way through its rotation.
    pub(crate) fn may_pass(&self, server: &Server, is_of_hold: bool) -> bool {
        match self {
            Failure::NotSent(error) => is_of_hold || server.may_pass(error),
            Failure::Redis(error) => server.may_pass(error) || (is_of_hold && is_of_login(error)),
            Failure::NotConfirmed { .. } => true,
            Failure::Unconfirmable(_) => false,
        }
    }

    /// Whether it may have been carried out all the same. A refusal has carried out nothing.
    pub(crate) fn may_be_done(&self) -> bool {
        match self {
            Failure::NotSent(_) => false,
            Failure::Redis(error) => error.code().is_none(),
            Failure::NotConfirmed { .. } | Failure::Unconfirmable(_) => true,
        }
    }

    /// Says why this command has no answer.
    pub(crate) fn of(self, command: &Command, address: String) -> Error {
        let told = |error, about| Error::Redis(ServerError::of(error, about, command, address));
        match self {
            Failure::NotConfirmed { have, wanted } => Error::NotConfirmed {
                key: command.key.clone().unwrap_or_default(),
                have,
                wanted,
            },
            Failure::Redis(error) => told(error, About::Command),
            Failure::NotSent(error) => told(error, About::Connection),
            Failure::Unconfirmable(error) => told(error, About::Confirmation),
        }
    }
}

/// Replies, or why there are none.
pub(crate) type Replies = RedisResult<Vec<Result<Value, Failure>>>;

/// Whether another server may be the primary by now, so that it is to be looked up. In a cluster redis-rs does that.
pub(crate) fn is_elsewhere(replies: &Replies, server: &Server) -> bool {
    let is_unconfirmed = |reply: &Result<_, _>| matches!(reply, Err(Failure::NotConfirmed { .. }));
    match replies {
        _ if server.is_cluster() => false,
        Err(error) => passes(error),
        Ok(replies) => replies.iter().any(is_unconfirmed),
    }
}

/// A connection, while nobody else writes to it.
pub trait Line {
    /// Sends commands in one write, and waits so long for the replies. In a cluster they go to the primary of the slot.
    fn exchange(
        &mut self,
        commands: Pipeline,
        slot: Option<Slot>,
        limit: Duration,
    ) -> impl Future<Output = RedisResult<Vec<Value>>> + Send;
}

/// Sends commands, and what confirms their answers. The outer error says that none has an answer.
///
/// After a refusal each goes by itself, to know which one is refused. What was carried out before is answered as it was.
pub(crate) async fn perform(line: &mut impl Line, call: &Call<'_>, server: &Server) -> Replies {
    let (mut answers, mut rest, mut at_once) = (Vec::new(), call.commands, call.commands.len());
    while !rest.is_empty() {
        let (commands, later) = rest.split_at(at_once);
        match (together(line, commands, call, server).await, commands) {
            (Err(refusal), [command]) if is_of_any(&refusal) => {
                answers.push(refused(line, command, refusal, call, server).await?);
            }
            (Err(refusal), _) if is_of_any(&refusal) => {
                at_once = 1;
                continue;
            }
            (replies, _) => answers.extend(replies?),
        }
        rest = later;
    }
    Ok(answers)
}

async fn together(
    line: &mut impl Line,
    commands: &[Command],
    call: &Call<'_>,
    server: &Server,
) -> Replies {
    let confirms: Vec<Confirm> = commands.iter().filter_map(|it| it.confirm).collect();
    let (replies, told) = exchange(line, commands, &confirms, call, server).await?;
    let replies = server.refuse_passing(replies)?;
    let answers = commands.iter().zip(replies).map(|(command, reply)| {
        let reply = reply.extract_error().map_err(Failure::Redis)?;
        match command.confirm {
            Some(confirm) if needs(&reply) => told.confirms(confirm).map(|()| reply),
            _ => Ok(reply),
        }
    });
    Ok(answers.collect())
}

/// Whether this may be the answer to any of the commands of a write, or to the WAIT behind them: in a cluster redis-rs'
/// threads return the first refusal in place of all replies. What ends a request is never of WAIT.
fn is_of_any(error: &RedisError) -> bool {
    error.code().is_some_and(|code| code != "UNBLOCKED") && !passes(error)
}

/// Returns why a command that was sent by itself has no answer: it is refused, or the question who confirms it.
async fn refused(
    line: &mut impl Line,
    command: &Command,
    refusal: RedisError,
    call: &Call<'_>,
    server: &Server,
) -> RedisResult<Result<Value, Failure>> {
    if command.confirm.is_none() {
        return Ok(Err(Failure::Redis(refusal)));
    }
    match exchange(line, std::slice::from_ref(command), &[], call, server).await {
        Ok((replies, _)) => {
            let reply = replies.into_iter().next().unwrap_or(Value::Nil);
            Ok(match needs(&reply) {
                true => Err(Failure::Unconfirmable(explained(refusal))),
                false => Ok(reply),
            })
        }
        Err(error) if is_of_any(&error) => Ok(Err(Failure::Redis(error))),
        Err(error) => Err(error),
    }
}

/// Asks once more who confirms what this call has written on this connection.
pub(crate) async fn again(
    line: &mut impl Line,
    confirm: Confirm,
    call: &Call<'_>,
    server: &Server,
) -> Result<(), Failure> {
    let asked = exchange(line, &[], &[confirm], call, server).await;
    let (_, told) = asked.map_err(Failure::Redis)?;
    told.confirms(confirm)
}

/// Sends commands with ROLE and the WAITs behind them, as far as they are needed, in one write: redis-rs may replace a
/// connection to a node of a cluster between two, and WAIT on a new one would confirm anything. So how many replicas to
/// wait for is asked before; ROLE behind the commands tells how many were to confirm them.
async fn exchange(
    line: &mut impl Line,
    commands: &[Command],
    confirms: &[Confirm],
    call: &Call<'_>,
    server: &Server,
) -> RedisResult<(Vec<Value>, Told)> {
    let slot = call.slot(server);
    let mut pipeline = Pipeline::new();
    for command in commands {
        pipeline.add_command(command.cmd.clone());
    }
    let mut attached = 0;
    if confirms.iter().any(|it| it.replicas == Replicas::All) {
        let mut role = Pipeline::new();
        role.cmd("ROLE");
        attached = match line.exchange(role, slot, call.effort.limit()).await {
            Ok(replies) => replies.first().map_or(0, attached_to),
            // The server says the same behind the commands.
            Err(error) if error.code().is_some() => 0,
            Err(error) => return Err(error),
        };
        pipeline.cmd("ROLE");
    }
    add_waits(&mut pipeline, confirms, attached);
    let limit = call.limit() + longest(confirms);
    let sent = line.exchange(pipeline.ignore_errors().clone(), slot, limit);
    let mut replies = sent.await?;
    let behind = replies.split_off(commands.len().min(replies.len()));
    Ok((replies, Told::read(confirms, behind)))
}

/// Whether this answer is one that replicas are to know: a grant, a renewal, or DONE that was accepted.
pub(crate) fn needs(reply: &Value) -> bool {
    match reply {
        Value::Int(count) => *count > 0,
        reply => matches!(outcome(reply.clone()), Ok(Reply::Granted(_))),
    }
}

fn longest(confirms: &[Confirm]) -> Duration {
    let within = confirms.iter().map(|confirm| confirm.within);
    within.max().unwrap_or_default()
}

/// Adds one WAIT for the highest number of replicas, and one WAITAOF, as far as they are needed.
fn add_waits(pipeline: &mut Pipeline, confirms: &[Confirm], attached: u32) {
    for disk in [false, true] {
        let of_kind = confirms.iter().filter(|confirm| confirm.disk == disk);
        let Some(wanted) = of_kind.map(|confirm| confirm.wanted(attached)).max() else {
            continue;
        };
        let mut wait = Cmd::new();
        if disk {
            wait.arg("WAITAOF").arg(1);
        } else {
            wait.arg("WAIT");
        }
        wait.arg(wanted).arg(millis(longest(confirms)));
        pipeline.add_command(wait);
    }
}

/// How many replicas the primary names in its ROLE; none where it is no primary any more.
fn attached_to(role: &Value) -> u32 {
    match role.as_sequence().and_then(|items| items.get(2)) {
        Some(Value::Array(replicas)) => u32::try_from(replicas.len()).unwrap_or(u32::MAX),
        _ => 0,
    }
}

/// What ROLE, WAIT and WAITAOF have told.
struct Told {
    attached: RedisResult<u32>,
    waits: [Option<Value>; 2],
}

impl Told {
    fn read(confirms: &[Confirm], replies: Vec<Value>) -> Told {
        let mut replies = replies.into_iter();
        let mut next = |is_asked: &dyn Fn(&Confirm) -> bool| {
            let is_asked = confirms.iter().any(is_asked);
            is_asked.then(|| replies.next()).flatten()
        };
        let role = next(&|confirm| confirm.replicas == Replicas::All);
        Told {
            attached: role.map_or(Ok(0), |it| Ok(attached_to(&it.extract_error()?))),
            waits: [false, true].map(|disk| next(&|confirm| confirm.disk == disk)),
        }
    }

    fn confirms(&self, confirm: Confirm) -> Result<(), Failure> {
        let told = self.waits[usize::from(confirm.disk)].clone();
        let attached = self.attached.clone().map_err(Failure::Unconfirmable)?;
        let wanted = confirm.wanted(attached);
        // Of WAITAOF, the first number tells whether the primary itself has synced.
        let (is_synced, have) = match told.map(Value::extract_error) {
            Some(Ok(Value::Array(numbers))) => match numbers.as_slice() {
                [own, replicas] => (number(own)? > 0, number(replicas)?),
                _ => return Err(Failure::Redis(unexpected(&Value::Array(numbers)))),
            },
            Some(Ok(count)) => (true, number(&count)?),
            Some(Err(error)) if is_of_a_replica(&error) => (false, 0),
            Some(Err(error)) => return Err(Failure::Unconfirmable(explained(error))),
            None => (false, 0),
        };
        if is_synced && have >= wanted {
            return Ok(());
        }
        Err(Failure::NotConfirmed {
            have: if is_synced { have } else { 0 },
            wanted: wanted.max(1),
        })
    }
}

fn number(value: &Value) -> Result<u32, Failure> {
    read(value).map_err(Failure::Redis)
}

/// Whether the server confirms nothing because it is no primary any more, or cannot serve at this moment.
fn is_of_a_replica(error: &RedisError) -> bool {
    passes(error)
        || error
            .detail()
            .is_some_and(|it| it.contains("replica instance"))
}

fn explained(error: RedisError) -> RedisError {
    let detail = error.detail().unwrap_or_default();
    if !detail.starts_with("unknown command") {
        return error;
    }
    let needs = format!("confirmed holds on disk need Redis 7.2 or newer: {detail}");
    redis::make_extension_error("ERR".to_owned(), Some(needs))
}

#[cfg(test)]
mod tests;
