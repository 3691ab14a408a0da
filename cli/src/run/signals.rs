//! Which signals `dsync run` handles, and how they become events.

use std::io;
use std::sync::mpsc::Sender;
use std::thread;

use nix::libc;
use nix::sys::signal::Signal;
use signal_hook::iterator::Signals;

use super::job::Event;

/// Passed on to the command.
const PASSED_ON: [Signal; 9] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

/// Starts to handle signals: each becomes an event.
///
/// A signal that is ignored when this process starts stays ignored, here and in the command: so `nohup dsync run`
/// works, and so do the jobs that a script starts in the background.
pub fn handle(events: Sender<Event>) -> io::Result<()> {
    let passed_on = PASSED_ON.into_iter().filter(|signal| !is_ignored(*signal));
    // SIGCHLD tells that the command has ended or stopped.
    let handled = passed_on
        .chain([Signal::SIGCHLD])
        .map(|signal| signal as i32);
    let mut signals = Signals::new(handled)?;
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for number in signals.forever() {
                let signal = Signal::try_from(number);
                if signal.is_ok_and(|signal| events.send(Event::Signal(signal)).is_err()) {
                    return;
                }
            }
        })?;
    Ok(())
}

/// Whether a signal asks to give up a wait.
pub fn ends_a_wait(signal: Signal) -> bool {
    matches!(
        signal,
        Signal::SIGHUP | Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTERM
    )
}

/// Returns the exit status by which shells tell that a signal ended a program.
pub fn status_of(signal: Signal) -> u8 {
    128 + signal as u8
}

pub fn is_passed_on(signal: Signal) -> bool {
    PASSED_ON.contains(&signal)
}

fn is_ignored(signal: Signal) -> bool {
    // SAFETY: a sigaction of zeros is valid, because the structure has integers and pointers only.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: with a null pointer for the new action the call only writes the present one to `action`.
    let failed = unsafe { libc::sigaction(signal as i32, std::ptr::null(), &raw mut action) };
    failed == 0 && action.sa_sigaction == libc::SIG_IGN
}
