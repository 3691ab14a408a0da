//! Child processes that cannot outlive the test process, and the signals stories send them.
//!
//! Linux kills a child on its parent's death if asked to (`PR_SET_PDEATHSIG`), but "parent" there means
//! the *thread* that forked: asked for on a test's own thread, it would kill a server that was handed to
//! another thread as soon as the first returned. So every child is forked by one thread that lives as long
//! as the process. `setpriv` (util-linux) makes the request between fork and exec without `unsafe` here;
//! the shell after it closes the gap in which the parent died before the request was made.

use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, mpsc};
use std::thread;
use std::time::Duration;

use super::waiting::eventually;

type Order = (Command, mpsc::Sender<io::Result<Child>>);

static FORKER: LazyLock<mpsc::Sender<Order>> = LazyLock::new(|| {
    let (orders, inbox) = mpsc::channel::<Order>();
    thread::Builder::new()
        .name("forker".to_owned())
        .spawn(move || {
            for (mut command, answer) in inbox {
                // Nobody is left to answer only if the ordering thread panicked; its child must not stay.
                if let Err(mpsc::SendError(Ok(mut child))) = answer.send(command.spawn()) {
                    let _ = child.kill();
                    let _ = child.wait();
                }
            }
        })
        .expect("the forker thread starts");
    orders
});

/// A command that runs `program` with the test process's death as its own. It keeps one process id
/// through all of its execs: the child's id is the program's.
pub(super) fn mortal(program: &str) -> Command {
    mortal_through(&[], program)
}

/// As [`mortal`], through a program that goes to another place (`nsenter --net ...`) and there replaces
/// itself by its arguments, as the same process.
pub(super) fn mortal_through(entry: &[String], program: &str) -> Command {
    let mut words = entry.iter().map(String::as_str).chain(["setpriv"]);
    let mut command = Command::new(words.next().expect("one word at least"));
    // Asked for inside: on the way the kernel may take back what was asked for before.
    command
        .args(words)
        .args(["--pdeathsig", "KILL", "sh", "-c"])
        .arg(r#"[ "$PPID" = "$0" ] && exec "$@""#)
        .arg(std::process::id().to_string())
        .arg(program)
        .stdin(Stdio::null());
    command
}

/// Starts a [`mortal`] command.
pub(super) fn spawn(command: Command) -> io::Result<Child> {
    let (answer, started) = mpsc::channel();
    FORKER
        .send((command, answer))
        .expect("the forker thread lives as long as the process");
    started
        .recv()
        .expect("the forker thread answers every order")
}

/// SIGSTOP; returns when the whole process stands still.
#[track_caller]
pub(super) fn stop(pid: u32) {
    signal(pid, "STOP");
    eventually("a stopped process", Duration::from_secs(5), || {
        state(pid) == 'T'
    });
}

/// SIGCONT; returns when the process runs again.
#[track_caller]
pub(super) fn cont(pid: u32) {
    signal(pid, "CONT");
    eventually("a continued process", Duration::from_secs(5), || {
        state(pid) != 'T'
    });
}

#[track_caller]
fn signal(pid: u32, name: &str) {
    // The shell's own `kill`: the program of that name is in a package that need not be installed.
    let status = Command::new("sh")
        .args(["-c", r#"kill -s "$0" "$1""#, name, &pid.to_string()])
        .status();
    match status {
        Ok(status) if status.success() => {}
        other => panic!("cannot send SIG{name} to process {pid}: {other:?}"),
    }
}

/// The letter the kernel gives the process's state.
#[track_caller]
fn state(pid: u32) -> char {
    let path = format!("/proc/{pid}/stat");
    let stat = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("cannot read {path}: {error}"));
    // The program's name stands before it in parentheses, and may contain both blanks and parentheses.
    stat.rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next())
        .unwrap_or_else(|| panic!("{path} has no state: {stat:?}"))
}
