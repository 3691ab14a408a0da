//! What can go wrong.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use redis::RedisError;

use crate::passing::{cause, passes, tells_the_end};
use crate::request::Command;
use crate::text::printable;
use crate::untold::Untold;

/// The errors of this crate.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The wait ran out, or a try was refused, because others hold the key or wait for it.
    NotAcquired {
        /// The key.
        key: String,
        /// The first ten of those who hold it; empty when nobody does (others wait, or the key is paused), and when the
        /// server did not tell.
        holders: Vec<Holder>,
        /// How much longer an operator's PAUSE lasts; zero without one.
        paused: Duration,
        /// How much longer nobody begins the work after a failed attempt; zero of other keys.
        delayed: Duration,
    },
    /// The hold has ended, or may have ended: somebody else may hold the key by now.
    HoldLost {
        /// The key.
        key: String,
        /// The fence of the lost hold.
        fence: u64,
        /// Why it counts as lost.
        loss: Loss,
    },
    /// As many attempts of the work as [`Once::max_attempts`](crate::Once::max_attempts) allows were made, and none
    /// succeeded.
    WorkFailed {
        /// The key.
        key: String,
        /// The reason of the last failure, as the worker gave it; `lapsed` or `revoked` when its hold ended instead.
        reason: String,
        /// How many attempts were made.
        attempts: u64,
        /// What the work of this call failed with last, in words; `None` where it has not.
        cause: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The result of work is none that JSON has, and was not stored; or the stored one cannot be read.
    UnusableResult {
        /// The key.
        key: String,
        /// What is stored, as text; `None` where the result is the work's own.
        text: Option<String>,
        /// Why.
        cause: serde_json::Error,
    },
    /// [`Cancel::cancel`](crate::Cancel::cancel) has ended the wait, and the request is withdrawn.
    Cancelled {
        /// The key.
        key: String,
    },
    /// Fewer replicas than [`replicas`](crate::Lock::replicas) wants have confirmed the answer in time; or the disk has not.
    /// A request is withdrawn, and holds nothing. Work is recorded as done all the same.
    NotConfirmed {
        /// The key.
        key: String,
        /// How many have confirmed it.
        have: u32,
        /// How many were to.
        wanted: u32,
    },
    /// An option has a value that no server takes. Nothing was sent.
    InvalidOption {
        /// The name of the option.
        option: &'static str,
        /// The value that it has; of a text, how long that is.
        value: String,
        /// What is allowed.
        bound: &'static str,
    },
    /// The server refused the request, or it could not be reached for as long as the client tries.
    Redis(ServerError),
}

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of redis-rs, with the server and the key that it is about. It is used as the [`RedisError`] that it is.
#[derive(Clone)]
pub struct ServerError {
    error: RedisError,
    address: Option<String>,
    key: Option<String>,
    pub(crate) about: About,
}

/// What an error is an answer to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum About {
    Command,
    /// The command was answered, and only that its answer is confirmed was refused.
    Confirmation,
    /// The command was not sent.
    Connection,
}

/// Why a hold counts as lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Loss {
    /// The server has said that the hold has ended: it lapsed, or an operator revoked it or removed the key.
    Ended,
    /// The server has not renewed the lease in time, by the clock of this machine, or too few replicas have confirmed that.
    /// The hold may have ended.
    Unanswered,
    /// It was held as long as [`max_hold`](crate::Lock::max_hold) allows.
    MaxHold,
    /// This process was forked since the hold was granted. The parent goes on and has it.
    Forked,
}

/// One of those who hold a key.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Holder {
    /// The hold's public number.
    pub fence: u64,
    /// The text that the holder gave as OWNER, as it was given. It can have any characters; shown as a
    /// [`Holder`](fmt::Display), those that a terminal obeys are escaped.
    pub owner: Option<String>,
    /// How long the lease lasts unless it is renewed.
    pub lease_left: Duration,
    /// How long it has been held.
    pub held: Duration,
    /// For how long the hold, which has ended, still keeps its place taken (`min_hold`); `None` while it lives.
    pub resting: Option<Duration>,
}

impl Error {
    /// Whether the server, or the way to it, is the cause: not another holder, and not the request.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Error::Redis(error) if passes(error))
    }

    /// Whether the command was answered, and that was not confirmed.
    pub(crate) fn is_of_confirmation(&self) -> bool {
        match self {
            Error::NotConfirmed { .. } => true,
            Error::Redis(error) => error.about == About::Confirmation,
            _ => false,
        }
    }

    /// Whether the server, or this crate for it, does not take what the command says.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Error::Redis(error) => {
                !passes(error) && !tells_the_end(error) && error.about == About::Command
            }
            Error::InvalidOption { .. } | Error::UnusableResult { .. } => true,
            _ => false,
        }
    }

    /// Whether this answer to a command about a hold says that the hold is over.
    pub(crate) fn tells_the_end(&self) -> bool {
        matches!(self, Error::Redis(error) if tells_the_end(error))
    }
}

impl ServerError {
    /// Says about which command and which server an error is. Takes the token out of what the server repeats.
    pub(crate) fn of(
        error: RedisError,
        about: About,
        command: &Command,
        address: String,
    ) -> ServerError {
        let (error, address) = match cause::<Untold>(&error) {
            Some(told) => (
                refusal(told, &error),
                format!("the Sentinel at {}", told.sentinel),
            ),
            None => (error, address),
        };
        ServerError {
            error: without(command.token.as_deref(), error),
            address: Some(address),
            key: command.key.clone(),
            about,
        }
    }

    /// The address of the server that was asked, or of the nodes from which a cluster is found; `None` when no server was
    /// asked yet.
    pub fn address(&self) -> Option<&str> {
        self.address.as_deref()
    }

    /// The key that the request was about, if it was about one.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }
}

/// Returns the Sentinel's error, or one that passes and says the same while others were not reached.
fn refusal(untold: &Untold, passing: &RedisError) -> RedisError {
    match untold.is_final || passes(&untold.error) {
        true => untold.error.clone(),
        false => passing.clone(),
    }
}

/// What stands before the arguments where a server does not know a command.
const ARGUMENTS: &str = ", with args beginning with";

fn without(token: Option<&str>, error: RedisError) -> RedisError {
    let Some((token, detail)) = token.zip(error.detail()) else {
        return error;
    };
    // Of arguments that are many the server shows the first, and the token may be cut.
    let known = detail
        .split_once(ARGUMENTS)
        .map_or(detail, |(before, _)| before);
    if known == detail && !detail.contains(token) {
        return error;
    }
    let code = error.code().unwrap_or("ERR").to_owned();
    redis::make_extension_error(code, Some(known.replace(token, "<token>")))
}

impl Deref for ServerError {
    type Target = RedisError;

    fn deref(&self) -> &RedisError {
        &self.error
    }
}

impl From<RedisError> for Error {
    fn from(error: RedisError) -> Error {
        Error::Redis(ServerError {
            error,
            address: None,
            key: None,
            about: About::Command,
        })
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Redis(error) => Some(&error.error),
            Error::WorkFailed { cause, .. } => Some(&**cause.as_ref()?),
            Error::UnusableResult { cause, .. } => Some(cause),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotAcquired {
                key,
                holders,
                paused,
                delayed,
            } => {
                write!(f, "{key:?} was not acquired")?;
                for (nth, holder) in holders.iter().take(3).enumerate() {
                    let before = if nth == 0 { ": held by" } else { "," };
                    write!(f, "{before} {holder}")?;
                }
                for (what, time) in [("paused", paused), ("delayed", delayed)] {
                    if !time.is_zero() {
                        write!(f, "; {what} for another {:.1} s", time.as_secs_f64())?;
                    }
                }
                Ok(())
            }
            Error::HoldLost { key, fence, loss } => {
                write!(f, "the hold of {key:?} with fence {fence} is lost: {loss}")
            }
            Error::WorkFailed {
                key,
                reason,
                attempts,
                ..
            } => {
                let reason = printable(reason);
                let s = if *attempts == 1 { "" } else { "s" };
                write!(
                    f,
                    "the work {key:?} was given up after {attempts} attempt{s}: {reason}"
                )
            }
            Error::UnusableResult { key, text, cause } => {
                let done = text.as_ref().map_or("stored", |_| "read");
                write!(f, "the result of {key:?} cannot be {done}: {cause}")
            }
            Error::NotConfirmed { key, have, wanted } => write!(
                f,
                "{key:?} is not confirmed: {have} of {wanted} have confirmed it in time"
            ),
            Error::Cancelled { key } => write!(f, "the wait for {key:?} was cancelled"),
            Error::InvalidOption {
                option,
                value,
                bound,
            } => write!(f, "{option} is {bound}, not {value}"),
            Error::Redis(error) => write!(f, "{error}"),
        }
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(key) = &self.key {
            write!(f, "{key:?}: ")?;
        }
        if let Some(address) = &self.address {
            write!(f, "{address}: ")?;
        }
        let detail = self.error.detail().unwrap_or_default();
        let unknown = detail.strip_prefix("unknown command ");
        match unknown.and_then(|it| it.split(['\'', '`']).nth(1)) {
            // Those of the server itself have no dot.
            Some(command) if command.contains('.') => write!(
                f,
                "this server has not loaded the dsync module, or an old version of it: it does not know {command}"
            ),
            _ => write!(f, "{}", self.error),
        }?;
        match self.error.code() {
            Some("NOLIMIT") => f.write_str("; give it with limit()"),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerError({self})")
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Loss::Ended => "the server says that it has ended",
            Loss::Unanswered => "the server did not renew its lease in time",
            Loss::MaxHold => "it was held as long as max_hold allows",
            Loss::Forked => "it belongs to the parent of this process, which was forked since",
        })
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = self.owner.as_deref().map(printable);
        let owner = owner.as_deref().unwrap_or("a holder without a name");
        write!(f, "{owner} (fence {}, ", self.fence)?;
        let (held, left) = (self.held.as_secs_f64(), self.lease_left.as_secs_f64());
        match self.resting {
            None => write!(f, "for {held:.1} s, lease left {left:.1} s)"),
            Some(left) => write!(f, "ended, rests for another {:.1} s)", left.as_secs_f64()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_is_told() {
        let error = Error::NotAcquired {
            key: "k".to_owned(),
            holders: Vec::new(),
            paused: Duration::ZERO,
            delayed: Duration::from_millis(1_500),
        };
        let told = "\"k\" was not acquired; delayed for another 1.5 s";
        assert_eq!(error.to_string(), told);
    }

    #[test]
    fn one_attempt_is_told_as_one() {
        let told = |attempts| {
            let (key, reason) = ("k".to_owned(), "r".to_owned());
            let error = Error::WorkFailed {
                key,
                reason,
                attempts,
                cause: None,
            };
            error.to_string()
        };
        assert_eq!(told(1), "the work \"k\" was given up after 1 attempt: r");
        assert_eq!(told(2), "the work \"k\" was given up after 2 attempts: r");
    }
}
