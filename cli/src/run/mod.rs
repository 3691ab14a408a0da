//! `dsync run`: a command that runs while something is held.
//!
//! Everything that can happen is an event in one channel: a signal, the answer of the server, the loss of the hold. One
//! thread, the first, takes them in turn, so nothing races. It never waits for the server or for stderr: the client library
//! renews the lease in a thread of its own, another asks for the hold and ends it, and a third writes (see [`notice`]).

mod busy;
mod child;
mod clock;
mod descendants;
mod notice;
mod request;
mod schedule;
mod settle;
mod signals;
mod terminal;
mod wait;
mod watch;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use dsync_client::Error;
use nix::sys::signal::Signal;

use crate::args;
use crate::failure::{Failure, Result, Status};
use crate::servers::Servers;
use child::Child;
use clock::Moment;
use notice::{Level, Notice};
use request::{Grant, Outcome, Request};
use schedule::Schedule;

/// How long a try may take, whatever the server does, and each request that is not repeated.
const TRY: Duration = Duration::from_secs(2);

pub enum Event {
    Signal(Signal),
    /// The server answers, and has not granted yet.
    Heard,
    /// The server has answered the request, or could not.
    Answered(Result<Outcome>),
    /// The server has answered the end of the hold.
    Settled(std::result::Result<(), Error>),
}

struct Job {
    request: Request,
    servers: Arc<Servers>,
    notice: Arc<Notice>,
    busy_status: u8,
    sender: Sender<Event>,
    events: Receiver<Event>,
}

/// What came of a phase: its result, or the exit status because the job ends here.
enum Next<T> {
    GoOn(T),
    Exit(u8),
}

/// Runs the command. Returns the exit status.
pub fn run(servers: Servers, options: &args::Run) -> Result<u8> {
    let schedule = Schedule::of(options.lease, options.grace);
    let schedule = schedule.map_err(|message| Failure::new(Status::Usage, message))?;
    let level = match (options.quiet, options.verbose) {
        (true, _) => Level::Quiet,
        (_, true) => Level::Verbose,
        _ => Level::Normal,
    };
    let (sender, events) = channel();
    signals::handle(sender.clone())?;
    let job = Job {
        request: Request::of(options, schedule),
        servers: Arc::new(servers),
        notice: Arc::new(Notice::start(level)?),
        busy_status: options.conflict_exit_code,
        sender,
        events,
    };
    let status = job.run(options).unwrap_or_else(|failure| {
        job.notice.error(&failure.message);
        failure.status as u8
    });
    job.notice.flush();
    Ok(status)
}

impl Job {
    fn run(&self, options: &args::Run) -> Result<u8> {
        let grant = match self.wait()? {
            Next::Exit(status) => return Ok(status),
            Next::GoOn(grant) => grant,
        };
        let name = self.request.name();
        self.notice.detail(&match grant.attempt() {
            Some(attempt) => format!("{name} is ours: attempt {attempt}, fence {}", grant.fence()),
            None => format!("{name} is ours: fence {}", grant.fence()),
        });
        // The command may write to the same terminal.
        self.notice.flush();
        let environment = |command: &mut Command| {
            environment(command, &grant, options.hide_server);
        };
        let child = match Child::start(&options.command, environment) {
            Ok(child) => child,
            Err(failure) => {
                let _ = self.settle(grant, None, TRY);
                return Err(failure);
            }
        };
        let watched = self.watch(&grant, child);
        self.conclude(grant, watched)
    }

    /// Takes the next event, or `None` when the time is up.
    fn next_event(&self, until: Moment) -> Option<Event> {
        self.events.recv_timeout(until.left()).ok()
    }
}

/// Sets what the command learns of the hold, and removes what it is not to learn.
fn environment(command: &mut Command, grant: &Grant, hide_server: bool) {
    // Of an outer `dsync run --once` the attempt would be misleading here.
    command.env_remove("DSYNC_ATTEMPT");
    if hide_server {
        let is_ours = |name: &OsStr| {
            name == "REDIS_URL" || name == "REDISCLI_AUTH" || name.as_bytes().starts_with(b"DSYNC_")
        };
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_ours(name)) {
            command.env_remove(name);
        }
    }
    command.env("DSYNC_FENCE", grant.fence().to_string());
    if let Some(attempt) = grant.attempt() {
        command.env("DSYNC_ATTEMPT", attempt.to_string());
    }
}

/// Returns the exit status by which shells tell that a signal ended a program.
fn status_of(signal: Signal) -> u8 {
    128 + signal as u8
}

/// Returns what an error of the client library is for the caller of this tool.
fn failure(servers: &Servers, request: &Request, error: &Error) -> Failure {
    let name = request.name();
    match error {
        Error::Redis(error) => Failure::of_server(&servers.name(), error),
        Error::WorkFailed {
            reason, attempts, ..
        } => {
            let reason = crate::text::printable(reason.as_bytes());
            let message = format!(
                "{name} is given up after {attempts} attempts; the last failed with: {reason}"
            );
            Failure::new(Status::GivenUp, message)
        }
        Error::HoldLost { loss, .. } => {
            Failure::new(Status::Lost, format!("{name} was lost: {loss}"))
        }
        other => Failure::new(Status::Refused, other.to_string()),
    }
}
