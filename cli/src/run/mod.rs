//! `dsync run`: a command that runs while something is held.
//!
//! Everything that can happen is an event in one channel: a signal, the answer of the server, the loss of the hold. One
//! thread, the first, takes them in turn, so nothing races. It never waits for the server or for stderr: the client
//! library renews the lease in a thread of its own, another asks for the hold and ends it, and a third writes (see
//! [`notice`]).

mod busy;
mod child;
mod clock;
mod descendants;
mod grant;
mod job;
mod key;
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
use std::sync::mpsc::channel;

use crate::args;
use crate::failure::{Failure, Result, Status};
use crate::servers::Servers;
use child::Child;
use grant::Grant;
use job::{Job, TRY};
use notice::{Level, Notice};
use request::Request;
use schedule::Schedule;
use wait::Next;
use watch::Lost;

/// Runs the command. Returns the exit status.
pub fn run(servers: Servers, options: &args::Run) -> Result<u8> {
    let wrong = |message| Failure::new(Status::Usage, message);
    options.check().map_err(wrong)?;
    let schedule = Schedule::of(options.lease, options.grace).map_err(wrong)?;
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
        let name = self.request.name();
        let grant = match self.wait() {
            Ok(Next::GoOn(grant)) => grant,
            Ok(Next::Exit(status)) => return Ok(status),
            Err(failure) if failure.status == Status::Unreachable => {
                let (what, advice) = match failure.message.split_once('\n') {
                    Some((what, advice)) => (what, format!("\n{advice}")),
                    None => (failure.message.as_str(), String::new()),
                };
                let message = format!("{what}, asking for {name}{advice}");
                return Err(Failure::new(failure.status, message));
            }
            Err(failure) => return Err(failure),
        };
        // One that was granted first may be gone before the last one is granted.
        if let Some(Lost { name, loss }) = self.lost(&grant) {
            let _ = self.settle(grant, None, TRY);
            let message = format!("{name} was lost before the command began: {loss}");
            return Err(Failure::new(Status::Lost, message));
        }
        let number = match (grant.attempt(), grant.index()) {
            (Some(attempt), _) => format!("attempt {attempt}, "),
            (_, Some(index)) => format!("index {index}, "),
            (None, None) => String::new(),
        };
        let fences = grant.fences();
        self.notice
            .detail(&format!("{name} is ours: {number}fence {fences}"));
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
}

/// Sets what the command learns of the hold, and removes what it is not to learn.
fn environment(command: &mut Command, grant: &Grant, hide_server: bool) {
    // The attempt or the index of an outer `dsync run` would be misleading here.
    command.env_remove("DSYNC_ATTEMPT");
    command.env_remove("DSYNC_INDEX");
    if hide_server {
        let is_ours = |name: &OsStr| {
            name == "REDIS_URL" || name == "REDISCLI_AUTH" || name.as_bytes().starts_with(b"DSYNC_")
        };
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_ours(name)) {
            command.env_remove(name);
        }
    }
    command.env("DSYNC_FENCE", grant.fences());
    if let Some(attempt) = grant.attempt() {
        command.env("DSYNC_ATTEMPT", attempt.to_string());
    }
    if let Some(index) = grant.index() {
        command.env("DSYNC_INDEX", index.to_string());
    }
}
