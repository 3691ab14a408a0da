//! What can go wrong.

use std::fmt;
use std::time::Duration;

use redis::RedisError;

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
    },
    /// [`Cancel::cancel`](crate::Cancel::cancel) has ended the wait, and the request is withdrawn.
    Cancelled {
        /// The key.
        key: String,
    },
    /// The server refused the request, or it could not be reached for longer than the client's patience.
    Redis(RedisError),
}

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a hold counts as lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Loss {
    /// The server has said that the hold has ended: it lapsed, or an operator revoked it or removed the key.
    Ended,
    /// The server has not renewed the lease in time, by the clock of this process. The hold may have ended.
    Unanswered,
}

/// One of those who hold a key.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Holder {
    /// The hold's public number.
    pub fence: u64,
    /// The text that the holder gave as OWNER.
    pub owner: Option<String>,
    /// How long the lease lasts unless it is renewed.
    pub lease_left: Duration,
    /// How long it has been held.
    pub held: Duration,
}

impl Error {
    /// Whether the server, or the way to it, is the cause: not another holder, and not the request.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Error::Redis(error) if crate::request::is_retryable(error))
    }
}

impl From<RedisError> for Error {
    fn from(error: RedisError) -> Error {
        Error::Redis(error)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Redis(error) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotAcquired { key, holders } => {
                write!(f, "{key:?} was not acquired")?;
                for (nth, holder) in holders.iter().enumerate() {
                    let before = if nth == 0 { ": held by" } else { "," };
                    write!(f, "{before} {holder}")?;
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
            } => write!(
                f,
                "the work {key:?} was given up after {attempts} attempts: {reason}"
            ),
            Error::Cancelled { key } => write!(f, "the wait for {key:?} was cancelled"),
            Error::Redis(error) => write!(f, "{error}"),
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Loss::Ended => "the server says that it has ended",
            Loss::Unanswered => "the server did not renew its lease in time",
        })
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = self.owner.as_deref().unwrap_or("a holder without a name");
        let (fence, held) = (self.fence, self.held.as_secs_f64());
        write!(f, "{owner} (fence {fence}, for {held:.1} s)")
    }
}
