//! How a command of this tool can fail, and the exit status that says so.
//!
//! Scripts tell the statuses apart, so each has one meaning. Those below 79 are the ones of sysexits.h where it has a
//! fitting one; 126 and 127 are what every shell says of a command that it cannot start. A command that `dsync run`
//! starts can exit with the same numbers; the line on stderr tells whose status it is.

use std::fmt;

use redis::{ErrorKind, RedisError};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Whoever read stdout has closed it; no failure.
    ReaderGone = 0,
    /// Nothing was done, for a reason that the message gives: no such hold, the answer was no.
    Nothing = 1,
    /// The command line is wrong (EX_USAGE).
    Usage = 64,
    /// The server cannot be reached, or did not answer in time (EX_UNAVAILABLE).
    Unreachable = 69,
    /// This machine refused something: no process, no terminal, a file that cannot be read (EX_OSERR).
    System = 71,
    /// Others hold or wait, and there was no time left to wait (EX_TEMPFAIL).
    Busy = 75,
    /// The server answered with an error (EX_PROTOCOL).
    Refused = 76,
    /// The hold was lost while the command ran.
    Lost = 79,
    /// The work has failed as often as it may.
    GivenUp = 80,
    /// The command exists and cannot be executed.
    NotExecutable = 126,
    /// There is no such command.
    NotFound = 127,
}

#[derive(Debug)]
pub struct Failure {
    pub status: Status,
    pub message: String,
}

pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub fn new(status: Status, message: impl Into<String>) -> Failure {
        let message = message.into();
        Failure { status, message }
    }

    /// What a server, or the way to it, answered; `place` is its address.
    pub fn of_server(place: &str, error: &RedisError) -> Failure {
        let (status, hint) = classify(error);
        Failure::new(status, format!("{place}: {}{hint}", plain(error)))
    }
}

impl From<std::io::Error> for Failure {
    /// Of this machine, not of the connection: stdout that cannot be written, a terminal that went away.
    fn from(error: std::io::Error) -> Failure {
        let status = match error.kind() {
            std::io::ErrorKind::BrokenPipe => Status::ReaderGone,
            _ => Status::System,
        };
        Failure::new(status, error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Returns the error in the server's own words, without the library's around them.
pub fn plain(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some("ERR"), Some(detail)) => detail.to_owned(),
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (None, Some(detail)) if error.kind() != ErrorKind::Io => detail.to_owned(),
        _ if error.is_timeout() => "no answer in time".to_owned(),
        _ => error.to_string(),
    }
}

/// Returns the status for an error, and what the user can do about it.
fn classify(error: &RedisError) -> (Status, &'static str) {
    if error.is_io_error() || error.is_timeout() || error.is_connection_dropped() {
        return (
            Status::Unreachable,
            "\nIs this the right address? Give it with --url or REDIS_URL.",
        );
    }
    if error.kind() == ErrorKind::AuthenticationFailed {
        return (
            Status::Refused,
            "\nGive user and password in the URL, with --user and --pass, or the password in REDISCLI_AUTH.",
        );
    }
    let detail = error.detail().unwrap_or_default();
    if detail.contains("unknown command") {
        let hint =
            "\nThis server has not loaded the dsync module: see `loadmodule` in its documentation.";
        return (Status::Refused, hint);
    }
    match error.code() {
        Some("READONLY") => (
            Status::Refused,
            "\nThis is a replica: give the primary's address, or use --sentinel or --cluster.",
        ),
        Some("NOPERM") => (
            Status::Refused,
            "\nThe user of this connection needs an ACL rule for it: see the operator in dsync's documentation.",
        ),
        Some("NOAUTH" | "WRONGPASS") => (
            Status::Refused,
            "\nGive user and password in the URL, with --user and --pass, or the password in REDISCLI_AUTH.",
        ),
        Some("MOVED" | "ASK" | "CROSSSLOT") => (
            Status::Refused,
            "\nThis is a node of a cluster: add --cluster.",
        ),
        // The server lives, but does not serve now: trying later may help.
        Some("LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "NOREPLICAS" | "MISCONF" | "BUSY") => {
            (Status::Unreachable, "")
        }
        _ => (Status::Refused, ""),
    }
}
