//! Confirmed holds: an answer that the replicas, or the disk, do not confirm is no answer.
//!
//! Behind the commands goes WAIT, or WAITAOF, on the same connection: it knows what was written there, and nothing else.

use std::future::Future;
use std::time::Duration;

use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};

use crate::call::Call;
use crate::error::{Error, ServerError};
use crate::passing::passes;
use crate::request::{Command, Confirm, Replicas, Reply, millis, outcome, read, unexpected};
use crate::server::Server;

/// Why there is no answer to a command.
#[derive(Clone)]
pub enum Failure {
    /// The server has refused it, or could not be asked.
    Redis(RedisError),
    /// It was answered, but too few replicas have confirmed that.
    NotConfirmed { have: u32, wanted: u32 },
    /// It was answered, and the server refuses to tell who confirms that.
    Unconfirmable(RedisError),
}

impl Failure {
    pub(crate) fn may_pass(&self, server: &Server) -> bool {
        match self {
            Failure::Redis(error) => server.may_pass(error),
            Failure::NotConfirmed { .. } => true,
            Failure::Unconfirmable(_) => false,
        }
    }

    /// Says why this command has no answer.
    pub(crate) fn of(self, command: &Command, address: String) -> Error {
        match self {
            Failure::NotConfirmed { have, wanted } => Error::NotConfirmed {
                key: command.key.clone().unwrap_or_default(),
                have,
                wanted,
            },
            Failure::Redis(error) => Error::Redis(ServerError::of(error, command, address)),
            Failure::Unconfirmable(error) => {
                Error::Redis(ServerError::of(error, command, address).of_confirmation())
            }
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
    /// Sends commands in one write, and waits so long for the replies.
    fn exchange(
        &mut self,
        commands: Pipeline,
        limit: Duration,
    ) -> impl Future<Output = RedisResult<Vec<Value>>> + Send;
}

/// Sends commands, and what confirms their answers. The outer error says that none has an answer.
pub(crate) async fn perform(line: &mut impl Line, call: &Call<'_>, server: &Server) -> Replies {
    let confirms: Vec<Confirm> = call.commands.iter().filter_map(|it| it.confirm).collect();
    let asks_role = confirms.iter().any(|it| it.replicas == Replicas::All);
    let mut pipeline = Pipeline::new();
    for command in call.commands {
        pipeline.add_command(command.cmd.clone());
    }
    if asks_role {
        pipeline.add_command(redis::cmd("ROLE"));
    } else {
        add_waits(&mut pipeline, &confirms, 0);
    }
    let limit = call.limit() + longest(&confirms);
    let mut replies = line
        .exchange(pipeline.ignore_errors().clone(), limit)
        .await?;
    let mut behind = replies.split_off(call.commands.len().min(replies.len()));
    let replies = server.refuse_passing(replies)?;
    let mut attached = 0;
    if asks_role {
        let mut pipeline = Pipeline::new();
        match behind.pop().map(Value::extract_error) {
            Some(Ok(role)) => attached = attached_to(&role),
            Some(Err(error)) => return Ok(replies.into_iter().map(|_| refused(&error)).collect()),
            None => {}
        }
        if needs_any(call, &replies) {
            add_waits(&mut pipeline, &confirms, attached);
            behind = line
                .exchange(pipeline.ignore_errors().clone(), limit)
                .await?;
        }
    }
    let told = Told::read(&confirms, behind);
    let answers = call.commands.iter().zip(replies).map(|(command, reply)| {
        let reply = reply.extract_error().map_err(Failure::Redis)?;
        match command.confirm {
            Some(confirm) if needs(&reply) => told.confirms(confirm, attached).map(|()| reply),
            _ => Ok(reply),
        }
    });
    Ok(answers.collect())
}

/// Asks once more who confirms what was written on this connection.
pub(crate) async fn again(
    line: &mut impl Line,
    confirm: Confirm,
    limit: Duration,
) -> Result<(), Failure> {
    let limit = limit + confirm.within;
    let mut attached = 0;
    if confirm.replicas == Replicas::All {
        let mut role = Pipeline::new();
        role.add_command(redis::cmd("ROLE"));
        let role = line.exchange(role, limit).await.map_err(Failure::Redis)?;
        attached = role.first().map_or(0, attached_to);
    }
    let mut pipeline = Pipeline::new();
    add_waits(&mut pipeline, &[confirm], attached);
    let waits = line.exchange(pipeline.ignore_errors().clone(), limit);
    Told::read(&[confirm], waits.await.map_err(Failure::Redis)?).confirms(confirm, attached)
}

fn refused<T>(error: &RedisError) -> Result<T, Failure> {
    Err(Failure::Unconfirmable(error.clone()))
}

/// Whether this answer is one that replicas are to know: a grant, a renewal, or DONE that was accepted.
pub(crate) fn needs(reply: &Value) -> bool {
    match reply {
        Value::Int(count) => *count > 0,
        reply => matches!(outcome(reply.clone()), Ok(Reply::Granted(_))),
    }
}

fn needs_any(call: &Call<'_>, replies: &[Value]) -> bool {
    let mut answers = call.commands.iter().zip(replies);
    answers.any(|(command, reply)| command.confirm.is_some() && needs(reply))
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
    match role {
        Value::Array(items) => match items.get(2) {
            Some(Value::Array(replicas)) => u32::try_from(replicas.len()).unwrap_or(u32::MAX),
            _ => 0,
        },
        _ => 0,
    }
}

/// What the WAITs have told, by their kind.
struct Told {
    wait: Option<Value>,
    waitaof: Option<Value>,
}

impl Told {
    fn read(confirms: &[Confirm], replies: Vec<Value>) -> Told {
        let mut replies = replies.into_iter();
        let mut next = |disk| {
            let is_asked = confirms.iter().any(|confirm| confirm.disk == disk);
            is_asked.then(|| replies.next()).flatten()
        };
        Told {
            wait: next(false),
            waitaof: next(true),
        }
    }

    fn confirms(&self, confirm: Confirm, attached: u32) -> Result<(), Failure> {
        let told = if confirm.disk {
            &self.waitaof
        } else {
            &self.wait
        };
        let wanted = confirm.wanted(attached);
        // Of WAITAOF, the first number tells whether the primary itself has synced.
        let (is_synced, have) = match told.clone().map(Value::extract_error) {
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
mod tests {
    use super::*;

    fn confirm(replicas: Replicas, disk: bool) -> Confirm {
        let within = Duration::from_millis(250);
        Confirm {
            replicas,
            within,
            disk,
        }
    }

    fn told(confirm: Confirm, attached: u32, reply: &str) -> Result<(), (u32, u32)> {
        let reply = redis::parse_redis_value(reply.as_bytes()).unwrap();
        match Told::read(&[confirm], vec![reply]).confirms(confirm, attached) {
            Err(Failure::NotConfirmed { have, wanted }) => Err((have, wanted)),
            Err(_) => Err((99, 99)),
            Ok(()) => Ok(()),
        }
    }

    #[test]
    fn replicas_count_as_they_are_told() {
        let two = confirm(Replicas::Count(2), false);
        assert_eq!(told(two, 0, ":2\r\n"), Ok(()));
        assert_eq!(told(two, 0, ":1\r\n"), Err((1, 2)));
        let all = confirm(Replicas::All, false);
        assert_eq!(told(all, 3, ":2\r\n"), Err((2, 3)));
        assert_eq!(told(all, 3, ":3\r\n"), Ok(()));
        // At least one.
        assert_eq!(told(all, 0, ":0\r\n"), Err((0, 1)));
        let replica = "-ERR WAIT cannot be used with replica instances. \r\n";
        assert_eq!(told(two, 0, replica), Err((0, 2)));
        assert_eq!(told(two, 0, "-NOPERM no\r\n"), Err((99, 99)));
    }

    #[test]
    fn disk_of_the_primary_counts_too() {
        let alone = confirm(Replicas::Count(0), true);
        assert_eq!(told(alone, 0, "*2\r\n:1\r\n:0\r\n"), Ok(()));
        assert_eq!(told(alone, 0, "*2\r\n:0\r\n:0\r\n"), Err((0, 1)));
        let one = confirm(Replicas::Count(1), true);
        assert_eq!(told(one, 0, "*2\r\n:1\r\n:0\r\n"), Err((0, 1)));
        assert_eq!(told(one, 0, "*2\r\n:0\r\n:1\r\n"), Err((0, 1)));
        assert_eq!(told(one, 0, "*2\r\n:1\r\n:1\r\n"), Ok(()));
    }

    #[test]
    fn requests_together_have_one_wait_for_the_highest_number() {
        let mut pipeline = Pipeline::new();
        let mut wait = confirm(Replicas::Count(1), false);
        wait.within = Duration::from_millis(400);
        let confirms = [
            wait,
            confirm(Replicas::All, false),
            confirm(Replicas::Count(0), true),
        ];
        add_waits(&mut pipeline, &confirms, 3);
        let packed = pipeline.get_packed_pipeline();
        let packed = String::from_utf8(packed).unwrap();
        assert_eq!(
            packed,
            "*3\r\n$4\r\nWAIT\r\n$1\r\n3\r\n$3\r\n400\r\n\
             *4\r\n$7\r\nWAITAOF\r\n$1\r\n1\r\n$1\r\n0\r\n$3\r\n400\r\n"
        );
    }

    #[test]
    fn grants_renewals_and_done_are_to_be_confirmed() {
        for (reply, is_needed) in [
            ("*2\r\n$1\r\nt\r\n:7\r\n", true),
            (":1\r\n", true),
            (":0\r\n", false),
            ("$-1\r\n", false),
            ("*3\r\n$7\r\nWAITING\r\n:3\r\n$1\r\nc\r\n", false),
        ] {
            let value = redis::parse_redis_value(reply.as_bytes()).unwrap();
            assert_eq!(needs(&value), is_needed, "{reply}");
        }
    }
}
