//! How requests are spelled and replies are read: the part that needs no connection.

use std::time::Duration;

use redis::{Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult, ToRedisArgs, Value};

use crate::text::cut;
use crate::times::PLACE_KEPT_FOR;

/// The families of keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Family {
    #[default]
    Lock,
    Semaphore,
    Group,
    Once,
}

impl Family {
    pub(crate) fn command(self, verb: &str, key: &str) -> Command {
        let family = match self {
            Family::Lock => "DLOCK",
            Family::Semaphore => "DSEM",
            Family::Group => "DWG",
            Family::Once => "DONCE",
        };
        let mut command = Command::of_server(&format!("{family}.{verb}"));
        command.arg(key);
        command.key = Some(key.to_owned());
        command
    }
}

/// How many replicas are to know an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Replicas {
    Count(u32),
    /// As many as the primary has attached when it answers, at least one.
    All,
}

/// What is to confirm an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Confirm {
    pub(crate) replicas: Replicas,
    pub(crate) within: Duration,
    pub(crate) disk: bool,
}

impl Confirm {
    pub(crate) fn wanted(&self, attached: u32) -> u32 {
        match self.replicas {
            Replicas::Count(count) => count,
            Replicas::All => attached.max(1),
        }
    }
}

/// A command, and what errors say about it.
#[derive(Clone)]
pub struct Command {
    pub(crate) cmd: Cmd,
    /// `None` of a command to the server as such.
    pub(crate) key: Option<String>,
    /// What no error may show: servers repeat the arguments of commands that they do not know.
    pub(crate) token: Option<String>,
    /// What is to confirm its answer.
    pub(crate) confirm: Option<Confirm>,
    /// Whether it renews or ends a hold: RENEW, RELEASE, DONE or FAIL.
    pub(crate) is_of_hold: bool,
    /// Whether it is answered 1 again when it is repeated: DONE of a run. Of others 0 may be the answer to a repetition.
    pub(crate) is_answered_again: bool,
}

impl Command {
    pub(crate) fn of_server(name: &str) -> Command {
        Command {
            cmd: redis::cmd(name),
            key: None,
            token: None,
            confirm: None,
            is_of_hold: false,
            is_answered_again: false,
        }
    }

    pub(crate) fn arg(&mut self, arg: impl ToRedisArgs) -> &mut Command {
        self.cmd.arg(arg);
        self
    }

    fn token(&mut self, token: &str) -> &mut Command {
        self.token = Some(token.to_owned());
        self.arg(token)
    }
}

/// ACQUIRE, ADD or BEGIN. It may be sent any number of times, because it has a token.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) family: Family,
    pub(crate) key: String,
    pub(crate) token: String,
    pub(crate) lease: Duration,
    /// What people are shown; nothing if it is empty.
    pub(crate) owner: String,
    /// The words that only some families have: LIMIT, LANE, MAX, SHARED and so on.
    pub(crate) words: Vec<String>,
    /// What is to confirm that it is granted, renewed and done.
    pub(crate) confirm: Option<Confirm>,
    pub(crate) ending: Ending,
}

/// What DONE and FAIL say besides the result and the reason.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ending {
    pub(crate) keep: Option<Duration>,
    pub(crate) is_kept_forever: bool,
    pub(crate) retry_delay: Duration,
}

/// How a request waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waiting {
    Not,
    Queue,
    Block(Duration),
}

/// What a request was granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Grant {
    pub(crate) fence: u64,
    /// Of work that is done once; 1 of all others.
    pub(crate) attempt: u64,
    /// `None` unless it was asked for.
    pub(crate) index: Option<u32>,
}

/// What a request is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    Granted(Grant),
    Waiting {
        place: u64,
        channel: String,
    },
    Done {
        result: Option<Vec<u8>>,
        attempt: u64,
    },
    Failed {
        reason: String,
        attempts: u64,
    },
    Refused,
}

impl Request {
    pub(crate) fn command(&self, waiting: Waiting) -> Command {
        let verb = match self.family {
            Family::Lock | Family::Semaphore => "ACQUIRE",
            Family::Group => "ADD",
            Family::Once => "BEGIN",
        };
        let mut command = self.family.command(verb, &self.key);
        command.arg("TOKEN").token(&self.token);
        command.arg("PX").arg(millis(self.lease)).arg(&self.words);
        if !self.owner.is_empty() {
            command.arg("OWNER").arg(&self.owner);
        }
        match waiting {
            Waiting::Not => {}
            Waiting::Queue => drop(command.arg("QUEUE").arg(millis(PLACE_KEPT_FOR))),
            Waiting::Block(time) => drop(command.arg("BLOCK").arg(millis(time))),
        }
        command.confirm = self.confirm;
        command
    }

    /// A command about the hold, or the queued request, of this request's token.
    pub(crate) fn verb(&self, verb: &str) -> Command {
        let mut command = self.family.command(verb, &self.key);
        command.token(&self.token);
        command.is_of_hold = true;
        command
    }

    /// RENEW, for so long.
    pub(crate) fn renewal(&self, lease: Duration) -> Command {
        let mut command = self.verb("RENEW");
        command.arg("PX").arg(millis(lease));
        command.confirm = self.confirm;
        command
    }

    /// DONE, of a run or of a member.
    pub(crate) fn done(&self, result: Option<&[u8]>) -> Command {
        let mut command = self.verb("DONE");
        command.confirm = self.confirm;
        command.is_answered_again = self.family == Family::Once;
        if let Some(result) = result {
            command.arg("RESULT").arg(result);
        }
        if let Some(time) = self.ending.keep {
            command.arg("PX").arg(millis(time));
        }
        if self.ending.is_kept_forever {
            command.arg("PERSIST");
        }
        command
    }

    /// The commands that record a failure. If the server refuses the first, the second does without what can be refused:
    /// an attempt that has failed must count, or `max_attempts` would bound nothing.
    pub(crate) fn fail(&self, reason: Option<&str>) -> [Command; 2] {
        const LONGEST: usize = 1_000;
        let bare = self.verb("FAIL");
        let mut command = bare.clone();
        if let Some(reason) = reason {
            command.arg("REASON").arg(cut(reason, LONGEST));
        }
        if !self.ending.retry_delay.is_zero() {
            command.arg("DELAY").arg(millis(self.ending.retry_delay));
        }
        [command, bare]
    }
}

/// Whole milliseconds, at least one: for BLOCK zero means without limit, and a lease of zero is an error.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// Reads the reply to ACQUIRE, ADD or BEGIN.
pub(crate) fn outcome(reply: Value) -> RedisResult<Reply> {
    let items = match reply {
        Value::Nil => return Ok(Reply::Refused),
        Value::Array(items) => items,
        other => return Err(unexpected(&other)),
    };
    // The token comes first, and it can be any text: so a grant is told by its shape.
    let granted = |fence, index| {
        Ok(Reply::Granted(Grant {
            fence: read(fence)?,
            attempt: 1,
            index,
        }))
    };
    if let [_, fence] = items.as_slice() {
        return granted(fence, None);
    }
    if let [_, fence @ Value::Int(_), index @ Value::Int(_)] = items.as_slice() {
        return granted(fence, Some(read(index)?));
    }
    let kind: String = items.first().map(read).transpose()?.unwrap_or_default();
    match (kind.as_str(), items.as_slice()) {
        ("WAITING", [_, place, channel]) => Ok(Reply::Waiting {
            place: read(place)?,
            channel: read(channel)?,
        }),
        ("RUN", [_, _, fence, attempt]) => Ok(Reply::Granted(Grant {
            fence: read(fence)?,
            attempt: read(attempt)?,
            index: None,
        })),
        ("DONE", [_, result, attempt]) => Ok(Reply::Done {
            result: read(result)?,
            attempt: read(attempt)?,
        }),
        ("FAILED", [_, reason, attempts]) => Ok(Reply::Failed {
            reason: String::from_utf8_lossy(&read::<Vec<u8>>(reason)?).into_owned(),
            attempts: read(attempts)?,
        }),
        _ => Err(unexpected(&Value::Array(items))),
    }
}

pub(crate) fn read<T: FromRedisValue>(value: &Value) -> RedisResult<T> {
    T::from_redis_value_ref(value).map_err(RedisError::from)
}

pub(crate) fn unexpected(reply: &Value) -> RedisError {
    let what = "a reply that dsync does not give";
    RedisError::from((ErrorKind::UnexpectedReturnType, what, format!("{reply:?}")))
}
