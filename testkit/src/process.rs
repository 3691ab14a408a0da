//! Child processes that cannot outlive the test process, and the signals that tests send them.
//!
//! With `PR_SET_PDEATHSIG` Linux kills a child when its parent dies, but the parent is the *thread* that forked. If
//! each test forked its servers, a server handed to another thread would be killed as soon as the first thread
//! returned. So one thread, which lives as long as the process, forks all children. `setpriv` (util-linux) sets the
//! signal between fork and exec, which needs no `unsafe` here. The shell behind it checks that the parent did not die
//! before the signal was set.

use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, mpsc};
use std::thread;

use crate::eventually::{SOON, eventually};

type Order = (Command, mpsc::Sender<io::Result<Child>>);

static FORKER: LazyLock<mpsc::Sender<Order>> = LazyLock::new(|| {
    let (orders, inbox) = mpsc::channel::<Order>();
    thread::Builder::new()
        .name("forker".to_owned())
        .spawn(move || {
            for (mut command, answer) in inbox {
                // The answer cannot be sent only if the thread that asked has panicked; then the child must not stay.
                if let Err(mpsc::SendError(Ok(mut child))) = answer.send(command.spawn()) {
                    let _ = child.kill();
                    let _ = child.wait();
                }
            }
        })
        .expect("the forker thread starts");
    orders
});

/// A command that runs `program` and dies with the test process, behind the words of a program that enters a namespace
/// (`nsenter --net ...`) and replaces itself there by its arguments, if there are any. Every step replaces the one
/// before by exec, so the child's process id is the program's.
pub fn mortal(entry: &[String], program: &str) -> Command {
    let mut words = entry.iter().map(String::as_str).chain(["setpriv"]);
    let mut command = Command::new(words.next().expect("one word at least"));
    // `setpriv` comes behind `entry`, because entering a namespace may clear the signal.
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
pub fn spawn(command: Command) -> io::Result<Child> {
    let (answer, started) = mpsc::channel();
    FORKER
        .send((command, answer))
        .expect("the forker thread lives as long as the process");
    started
        .recv()
        .expect("the forker thread answers every order")
}

/// SIGSTOP; returns when the process has stopped.
#[track_caller]
pub fn stop(pid: u32) {
    signal(pid, "STOP");
    eventually("a stopped process", SOON, || matches!(state(pid), Ok('T')));
}

/// SIGCONT; returns when the process runs again.
#[track_caller]
pub fn cont(pid: u32) {
    signal(pid, "CONT");
    eventually("a continued process", SOON, || {
        state(pid).is_ok_and(|state| state != 'T')
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

/// Whether the process with this id runs. A zombie, which has ended but was not waited for, does not.
pub fn lives(pid: &str) -> bool {
    let pid = pid.trim().parse();
    pid.is_ok_and(|pid| state(pid).is_ok_and(|state| !matches!(state, 'Z' | 'X')))
}

/// The letter of the main thread's state in /proc.
pub fn state(pid: u32) -> io::Result<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The program's name before it is in parentheses and may itself contain blanks and parentheses.
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state.ok_or_else(|| io::Error::other(format!("no state: {stat:?}")))
}

/// The processes that the main thread of this one has forked and that have not ended, in the order of their birth.
pub fn children(pid: u32) -> Vec<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    children.split_whitespace().flat_map(str::parse).collect()
}
