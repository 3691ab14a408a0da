//! The terminal, when `dsync run` is a job of an interactive shell.
//!
//! The command is in a process group of its own, so it is a background job for the terminal, and is stopped when it
//! reads there. Then, and not before, it is given the terminal: until that happens the keys Ctrl-C and Ctrl-Z reach
//! this process and the others of its group, such as the shell that runs a script or `less` at the end of a pipe, as
//! they always do.

use std::fs::File;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, killpg, pthread_sigmask, raise};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

pub struct Terminal {
    tty: File,
    /// The group of the command, while it has the terminal.
    given_to: Option<Pid>,
}

impl Terminal {
    /// Returns the terminal that controls this process, if there is one.
    pub fn open() -> Option<Terminal> {
        let tty = File::options()
            .read(true)
            .write(true)
            .open("/dev/tty")
            .ok()?;
        Some(Terminal {
            tty,
            given_to: None,
        })
    }

    /// Gives the terminal to a group, if the group of this process has it. Returns whether the group has it now.
    pub fn give(&mut self, group: Pid) -> bool {
        if tcgetpgrp(&self.tty) == Ok(getpgrp()) && self.set(group) {
            self.given_to = Some(group);
        }
        self.given_to.is_some()
    }

    /// Takes back the terminal if it was given away. Returns whether it was.
    pub fn take_back(&mut self) -> bool {
        match self.given_to.take() {
            // The shell may have given it to another job meanwhile: that one keeps it.
            Some(group) if tcgetpgrp(&self.tty) == Ok(group) => self.set(getpgrp()),
            other => other.is_some(),
        }
    }

    /// Stops this process as the terminal's key does, so that the shell can go on. Returns when it is continued, and
    /// whether the command had the terminal before.
    pub fn suspend(&mut self) -> bool {
        let had_it = self.take_back();
        if had_it {
            // The key has reached the command only; the others of this job are to stop as well.
            let _ = killpg(getpgrp(), Signal::SIGSTOP);
        } else {
            let _ = raise(Signal::SIGSTOP);
        }
        had_it
    }

    fn set(&self, group: Pid) -> bool {
        // A background group that sets it is stopped by SIGTTOU, unless the signal is blocked. Not ignored: the command
        // would inherit that.
        let mut only = SigSet::empty();
        only.add(Signal::SIGTTOU);
        let mut before = SigSet::empty();
        if pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&only), Some(&mut before)).is_err() {
            return false;
        }
        let is_set = tcsetpgrp(&self.tty, group).is_ok();
        let _ = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None);
        is_set
    }
}
