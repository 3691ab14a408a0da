//! How a command of this tool can fail, and the exit status that says so.
//!
//! Scripts tell the statuses apart, so each has one meaning. Those below 79 are the ones of sysexits.h where it has a
//! fitting one; 126 and 127 are what every shell says of a command that it cannot start. A command that `dsync run`
//! starts can exit with the same numbers; the line on stderr tells whose status it is.

use std::fmt;

use crate::text::lines;

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
    /// The hold was lost, and a process of the command may not be stopped (EX_NOPERM).
    Unstoppable = 77,
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
    /// What others wrote is escaped. Advice may follow on a line of its own.
    pub message: String,
}

pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub fn new(status: Status, message: impl Into<String>) -> Failure {
        let message = lines(&message.into());
        Failure { status, message }
    }

    /// Returns one failure of several attempts. There was at least one attempt.
    pub fn of_all(mut failures: Vec<Failure>) -> Failure {
        let told: Vec<&str> = failures.iter().map(Failure::first_line).collect();
        let told = told.join("; ");
        // One that answered tells more than one that cannot be reached.
        failures.sort_by_key(|failure| failure.status == Status::Refused);
        let Some(last) = failures.pop() else {
            return Failure::new(Status::Unreachable, "there is no server to ask");
        };
        let advice = last.message.split_once('\n').map(|parts| parts.1);
        let message = match advice {
            Some(advice) => format!("{told}\n{advice}"),
            None => told,
        };
        Failure::new(last.status, message)
    }

    /// Returns the same as a failure that another attempt may not meet.
    pub fn that_may_pass(self) -> Failure {
        Failure::new(Status::Unreachable, self.message)
    }

    /// Returns the message without the advice that may follow it.
    pub fn first_line(&self) -> &str {
        self.message.lines().next().unwrap_or_default()
    }
}

/// Of a wrong command line, or of what stands in for it.
pub fn usage(message: impl Into<String>) -> Failure {
    Failure::new(Status::Usage, message)
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
