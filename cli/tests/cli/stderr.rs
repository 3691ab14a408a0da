//! When nobody reads what the tool says: a log collector that stands still, `less`, a terminal after Ctrl-S, a pipe that
//! was closed, a full disk.

use std::fs::File;
use std::io::Write;
use std::process::Stdio;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::Signal;

use crate::support::{Folder, Process, Server, ToolFor, lives, until};

/// A pipe that takes no more. It stays full as long as the reading end lives.
fn full_pipe() -> (File, File) {
    let (reading, writing) = nix::unistd::pipe().unwrap();
    let mut writing = File::from(writing);
    fcntl(&writing, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    for piece in [&[b'x'; 4096][..], b"x"] {
        while writing.write(piece).is_ok() {}
    }
    fcntl(&writing, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    (File::from(reading), writing)
}

fn start(server: &Server, arguments: &[&str]) -> (File, Process) {
    let (reading, writing) = full_pipe();
    let mut tool = server.dsync(arguments).0;
    tool.stdin(Stdio::null()).stderr(writing);
    (reading, Process(tool.spawn().unwrap()))
}

#[test]
fn status_is_told_although_stderr_is_closed() {
    let server = Server::start();
    let mut tool = server.dsync(&["info", "nothing"]).0;
    let (reading, writing) = nix::unistd::pipe().unwrap();
    drop(reading);
    tool.stdin(Stdio::null()).stderr(writing);
    assert_eq!(Process(tool.spawn().unwrap()).status(), 1);
}

#[test]
fn result_that_cannot_be_written_is_no_success() {
    let server = Server::start();
    server.ask("DONCE.BEGIN report TOKEN t");
    server.ask("DONCE.DONE report t RESULT 42");
    let mut tool = server.dsync(&["once", "get", "report"]).0;
    let full = File::options().write(true).open("/dev/full").unwrap();
    tool.stdin(Stdio::null())
        .stdout(full)
        .stderr(Stdio::piped());
    let (status, stderr) = Process(tool.spawn().unwrap()).end();
    assert_eq!(status, 71, "{stderr}");
}

#[test]
fn command_of_a_lost_hold_is_killed_although_nobody_reads_stderr() {
    let (server, folder) = (Server::start(), Folder::new());
    let script = format!(
        "trap '' TERM; echo $$ >'{}'; while :; do sleep 0.02; done",
        folder.text("pid")
    );
    let arguments = [
        "run", "-v", "--lock", "k", "--lease", "3s", "--", "sh", "-c", &script,
    ];
    let (_reading, mut run) = start(&server, &arguments);
    until("the command runs", || lives(&folder.read("pid")));
    server.ask("DEL k");
    until("the command is dead", || !lives(&folder.read("pid")));
    assert_eq!(run.status(), 79);
}

#[test]
fn sigterm_ends_a_wait_although_nobody_reads_stderr() {
    let server = Server::start();
    server.ask("DLOCK.ACQUIRE k PX 60000 TOKEN t");
    let (_reading, mut run) = start(&server, &["run", "-v", "--lock", "k", "--", "true"]);
    server.wait_for_waiters(1);
    run.signal(Signal::SIGTERM);
    assert_eq!(run.status(), 143);
    assert_eq!(server.info_number("dsync", "dsync_waiters"), 0);
}
