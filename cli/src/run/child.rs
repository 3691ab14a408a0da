//! The command that runs while something is held, and all processes of its group.
//!
//! The command is the leader of a process group of its own, so that a signal reaches everything that it has started, and so
//! that its end can be told from the end of the group: a background process that it left behind still works under the hold.
//! Processes that leave the group (daemons that call setsid) are not followed.
//!
//! On Linux this process adopts the orphans of the group (PR_SET_CHILD_SUBREAPER), because in a container nobody else may
//! wait for them, and a zombie keeps its group alive. And the command is killed when this process dies first
//! (PR_SET_PDEATHSIG), because then nobody renews its lease.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::failure::{Failure, Result, Status};

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
}

/// What was new at [`Child::reap`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// The group has ended.
    Ended(Ending),
    /// The command was stopped by this signal, which the terminal sent.
    Stopped(Signal),
    Nothing,
}

impl Child {
    /// Starts the command with these variables in its environment.
    pub fn start(command: &[OsString], variables: &[(&str, Option<String>)]) -> Result<Child> {
        let (program, arguments) = command
            .split_first()
            .ok_or_else(|| Failure::new(Status::Usage, "no command"))?;
        adopt_orphans();
        let mut process = Command::new(program);
        process.args(arguments).process_group(0);
        for (name, value) in variables {
            match value {
                Some(value) => process.env(name, value),
                None => process.env_remove(name),
            };
        }
        die_with_this_process(&mut process);
        let child = process
            .spawn()
            .map_err(|error| cannot_start(program, &error))?;
        Ok(Child {
            pid: Pid::from_raw(child.id().cast_signed()),
            ending: None,
        })
    }

    pub fn group(&self) -> Pid {
        self.pid
    }

    /// Sends a signal to all processes of the group. One that has ended is no error.
    pub fn signal(&self, signal: Signal) {
        let _ = killpg(self.pid, signal);
    }

    /// Collects the processes that have ended or stopped.
    pub fn reap(&mut self) -> News {
        let mut stopped = None;
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED)) {
                Ok(WaitStatus::Exited(pid, status)) if pid == self.pid => {
                    self.ending = Some(Ending::Exited(status));
                }
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == self.pid => {
                    self.ending = Some(Ending::Killed(signal));
                }
                Ok(WaitStatus::Stopped(pid, signal)) if pid == self.pid => stopped = Some(signal),
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => break,
                // An orphan that this process has adopted; or a signal came in between.
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => break,
            }
        }
        match (self.ending, stopped) {
            (Some(ending), _) if !self.group_lives() => News::Ended(ending),
            // SIGSTOP comes from somebody who looks into the command, and who will also continue it.
            (None, Some(signal)) if signal != Signal::SIGSTOP => News::Stopped(signal),
            _ => News::Nothing,
        }
    }

    fn group_lives(&self) -> bool {
        // EPERM: there are processes, of another user.
        killpg(self.pid, None) != Err(Errno::ESRCH)
    }
}

fn cannot_start(program: &OsString, error: &io::Error) -> Failure {
    let status = match error.kind() {
        io::ErrorKind::NotFound => Status::NotFound,
        io::ErrorKind::PermissionDenied => Status::NotExecutable,
        _ if error.raw_os_error() == Some(Errno::ENOEXEC as i32) => Status::NotExecutable,
        _ if error.raw_os_error() == Some(Errno::EAGAIN as i32) => Status::System,
        _ => Status::NotExecutable,
    };
    Failure::new(
        status,
        format!("cannot run '{}': {error}", program.display()),
    )
}

#[cfg(target_os = "linux")]
fn adopt_orphans() {
    // Without it, whoever is process 1 waits for the orphans.
    let _ = nix::sys::prctl::set_child_subreaper(true);
}

#[cfg(not(target_os = "linux"))]
fn adopt_orphans() {}

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
