//! The command that runs while something is held, and all processes that descend from it.
//!
//! The command is the leader of a process group of its own, so that signals that this process is sent can be passed on
//! to it and to what it works with, as a terminal does. Its end is not the end of the work: what it leaves behind in
//! its session still works under the hold. A process that makes a session of its own (a daemon, setsid) asks to be left
//! alone, and the hold does not last for it. When the hold is lost no such wish counts: then all descendants are ended,
//! whatever group or session they made, because timeout(1), sudo(8) and shells with `set -m` make some for work like
//! any other.
//!
//! Where the kernel does not tell the descendants (see [`descendants`]), all of this is about the process group.
//!
//! On Linux the command is killed when this process dies first (PR_SET_PDEATHSIG), because then nobody renews its
//! lease.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getsid};

use super::descendants::{self, Listing, Process};
use crate::failure::{Failure, Result, Status};

/// How often processes are looked for that begin while the others are being stopped.
const MOST_ROUNDS: u32 = 32;

/// How the command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    Exited(i32),
    Killed(Signal),
}

impl Ending {
    /// Returns the exit status by which shells tell of it.
    pub fn status(self) -> u8 {
        match self {
            Ending::Exited(status) => status as u8,
            Ending::Killed(signal) => 128 + signal as u8,
        }
    }

    pub fn is_success(self) -> bool {
        self == Ending::Exited(0)
    }

    /// Returns what is recorded as the reason of a failed attempt.
    pub fn reason(self) -> String {
        match self {
            Ending::Exited(status) => format!("exit status {status}"),
            Ending::Killed(signal) => format!("signal {} ({signal})", signal as i32),
        }
    }
}

pub struct Child {
    /// The command's process id, which is also the group's.
    pid: Pid,
    ending: Option<Ending>,
    /// Children of this process that are not of the command: a shell may have started them before it became this
    /// program.
    others: HashSet<Pid>,
    /// Whether this process had no child at the last [`Child::reap`].
    is_childless: bool,
}

/// What became of a signal.
#[derive(Default)]
pub struct Sent {
    /// Whether a process got it.
    pub is_received: bool,
    /// The processes of another user, which may not be signalled.
    pub refused: Vec<Process>,
}

impl Child {
    /// Starts the command.
    pub fn start(command: &[OsString], environment: impl FnOnce(&mut Command)) -> Result<Child> {
        let (program, arguments) = command
            .split_first()
            .ok_or_else(|| Failure::new(Status::Usage, "no command"))?;
        descendants::adopt_orphans();
        let others = descendants::children(Pid::this()).unwrap_or_default();
        let mut process = Command::new(program);
        process.args(arguments).process_group(0);
        environment(&mut process);
        die_with_this_process(&mut process);
        let child = process
            .spawn()
            .map_err(|error| cannot_start(program, &error))?;
        Ok(Child {
            pid: Pid::from_raw(child.id().cast_signed()),
            ending: None,
            others: others.into_iter().collect(),
            is_childless: false,
        })
    }

    pub fn group(&self) -> Pid {
        self.pid
    }

    /// Collects the processes that have ended, orphans too. Returns the signal by which the terminal has stopped the
    /// command.
    pub fn reap(&mut self) -> Option<Signal> {
        let mut stopped = None;
        loop {
            let status = waitpid(None, Some(WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED));
            match status {
                Ok(WaitStatus::Exited(pid, status)) if pid == self.pid => {
                    self.ending = Some(Ending::Exited(status));
                }
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == self.pid => {
                    self.ending = Some(Ending::Killed(signal));
                }
                Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..)) => {
                    self.others.remove(&pid);
                }
                // SIGSTOP comes from somebody who looks into the command, and who will also continue it.
                Ok(WaitStatus::Stopped(pid, signal))
                    if pid == self.pid && signal != Signal::SIGSTOP =>
                {
                    stopped = Some(signal);
                }
                Ok(WaitStatus::StillAlive) => break,
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => {
                    self.is_childless = error == Errno::ECHILD;
                    break;
                }
            }
        }
        stopped.filter(|_| self.ending.is_none())
    }

    /// Returns how the command ended, once nothing works on in its session.
    pub fn finished(&self) -> Option<Ending> {
        let session = getsid(None).ok();
        let works_on = |process: &Process| Some(process.session) == session;
        self.ending.filter(|_| self.none_is_left(works_on))
    }

    /// Returns how the command ended, once no descendant is left.
    pub fn gone(&self) -> Option<Ending> {
        self.ending.filter(|_| self.none_is_left(|_| true))
    }

    /// Passes a signal on: to the command's group, or to what it has left behind in its session.
    pub fn pass_on(&self, signal: Signal) {
        let left = self.ending.and_then(|_| self.list());
        let Some(left) = left else {
            let _ = killpg(self.pid, signal);
            return;
        };
        let session = getsid(None).ok();
        for process in left
            .processes
            .iter()
            .filter(|process| Some(process.session) == session)
        {
            let _ = kill(process.pid, signal);
        }
    }

    /// Sends signals to all descendants.
    pub fn signal_all(&self, signals: &[Signal]) -> Sent {
        let group = || {
            vec![Process {
                pid: self.pid,
                session: self.pid,
                name: "the command".into(),
            }]
        };
        let list = self.list();
        let send = if list.is_some() { kill } else { killpg };
        let mut sent = Sent::default();
        for process in list.map_or_else(group, |list| list.processes) {
            let results = signals.iter().map(|signal| send(process.pid, *signal));
            match results.fold(Ok(()), std::result::Result::and) {
                Ok(()) => sent.is_received = true,
                Err(Errno::EPERM) => sent.refused.push(process),
                // It has just ended.
                Err(_) => {}
            }
        }
        sent
    }

    /// Kills all descendants. Each is stopped as soon as it is found, and all are killed when no other is found any
    /// more: one that is killed earlier would make room for others where a limit keeps them from being started.
    pub fn kill_all(&self) -> Sent {
        let mut stopped = HashSet::new();
        for _ in 0..MOST_ROUNDS {
            let before = stopped.len();
            let _ = descendants::list(&self.others, |pid| {
                if stopped.insert(pid) {
                    let _ = kill(pid, Signal::SIGSTOP);
                }
            });
            if stopped.len() == before {
                break;
            }
        }
        self.signal_all(&[Signal::SIGKILL])
    }

    fn none_is_left(&self, wanted: impl Fn(&Process) -> bool) -> bool {
        if self.is_childless {
            return true;
        }
        // A list that is read while processes end can miss one, two lists do not miss the same.
        (0..2).all(|_| match self.list() {
            Some(list) => list.is_whole && !list.processes.iter().any(&wanted),
            // EPERM: there are processes, of another user.
            None => killpg(self.pid, None) == Err(Errno::ESRCH),
        })
    }

    fn list(&self) -> Option<Listing> {
        descendants::list(&self.others, |_| {})
    }
}

fn cannot_start(program: &OsString, error: &io::Error) -> Failure {
    let status = match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT) => Status::NotFound,
        Some(Errno::EAGAIN | Errno::ENOMEM | Errno::EMFILE | Errno::ENFILE) => Status::System,
        _ => Status::NotExecutable,
    };
    Failure::new(
        status,
        format!("cannot run '{}': {error}", program.display()),
    )
}

#[cfg(target_os = "linux")]
fn die_with_this_process(process: &mut Command) {
    let parent = nix::unistd::getpid();
    let ask = move || {
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
        // It may have died before the request.
        if nix::unistd::getppid() == parent {
            Ok(())
        } else {
            Err(io::Error::from(Errno::ESRCH))
        }
    };
    // SAFETY: between fork and exec only async-signal-safe functions may be called, and no memory may be allocated:
    // prctl and getppid are system calls, and errors made of an errno allocate nothing.
    unsafe {
        process.pre_exec(ask);
    }
}

#[cfg(not(target_os = "linux"))]
fn die_with_this_process(_: &mut Command) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_that_this_machine_does_not_start_now_is_no_wrong_command() {
        for (errno, status) in [
            (Errno::ENOENT, Status::NotFound),
            (Errno::EACCES, Status::NotExecutable),
            (Errno::ENOEXEC, Status::NotExecutable),
            (Errno::EAGAIN, Status::System),
            (Errno::EMFILE, Status::System),
        ] {
            let failure = cannot_start(&"x".into(), &errno.into());
            assert_eq!(failure.status, status, "{failure}");
        }
    }
}
