//! `dsync run` and a server that does not answer: how long the tool waits for it, and what it says.

use std::fs::File;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::{Folder, Process, Server, Tool, ToolFor, dsync, lives, until, wait_for};

/// Longer than any test: who waits so long for an answer fails it.
const ENDLESS: [&str; 2] = ["--timeout", "10m"];

fn patient(server: &Server, arguments: &[&str]) -> Tool {
    dsync(&server.url(), &[&ENDLESS, arguments].concat())
}

/// Starts a command of the tool whose stderr goes into a file.
fn start_with_log(mut tool: Tool, folder: &Folder) -> Process {
    let log = File::create(folder.path("log")).unwrap();
    let command = tool
        .0
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    Process(command.spawn().unwrap())
}

#[test]
fn try_and_short_wait_end_although_a_stopped_server_does_not_answer() {
    let server = Server::start();
    server.stop();
    for wait in [&["--try"][..], &["--wait", "1s"]] {
        let arguments = [&["run", "--lock", "k"], wait, &["--", "true"]].concat();
        let (status, stderr) = patient(&server, &arguments).start().end();
        assert_eq!(status, 69, "{stderr}");
        assert!(stderr.contains("no answer in time"), "{stderr}");
    }
}

#[test]
fn wait_that_a_stopped_server_outlasts_leaves_nothing_behind() {
    let server = Server::start();
    server.ask("DLOCK.ACQUIRE k PX 600000 TOKEN t");
    let arguments = ["run", "--lock", "k", "--wait", "2s", "--", "true"];
    let mut run = patient(&server, &arguments).start();
    server.wait_for_waiters(1);
    server.stop();
    let (status, stderr) = run.end();
    assert_eq!(status, 69, "{stderr}");
    server.cont();
    server.ask("DLOCK.RELEASE k t");
    // The server keeps the place for a moment, as of a process that was killed.
    until("nobody waits or holds", || {
        server.info_number("dsync", "dsync_waiters") + server.info_number("dsync", "dsync_holds")
            == 0
    });
}

#[test]
fn sigterm_ends_a_wait_although_the_server_does_not_answer() {
    let server = Server::start();
    server.ask("DLOCK.ACQUIRE k PX 600000 TOKEN t");
    let mut run = patient(&server, &["run", "--lock", "k", "--", "true"]).start();
    server.wait_for_waiters(1);
    server.stop();
    run.signal(Signal::SIGTERM);
    assert_eq!(run.end().0, 143);
}

#[test]
fn tool_ends_with_the_command_of_a_lost_hold_although_the_server_does_not_answer() {
    for family in ["--lock", "--once", "--group"] {
        let (server, folder) = (Server::start(), Folder::new());
        let script = format!(
            "trap 'exit 5' TERM; echo $$ >'{}'; while :; do sleep 0.02; done",
            folder.text("pid")
        );
        let arguments = [
            "run", family, "k", "--lease", "3s", "--", "sh", "-c", &script,
        ];
        let mut run = patient(&server, &arguments).start();
        until("the command runs", || lives(&folder.read("pid")));
        server.stop();
        let (status, stderr) = run.end();
        assert_eq!(status, 79, "{family}: {stderr}");
    }
}

#[test]
fn outage_and_its_end_are_told_while_the_command_runs() {
    let (server, folder) = (Server::start(), Folder::new());
    let script = wait_for(&folder.path("go"));
    let arguments = [
        "run", "-v", "--lock", "k", "--lease", "30s", "--", "sh", "-c", &script,
    ];
    let mut run = start_with_log(server.dsync(&arguments), &folder);
    until("it holds", || folder.read("log").contains("is ours"));
    server.stop();
    let lost = format!(
        "127.0.0.1:{} does not answer; it renewed lock 'k' ",
        server.port()
    );
    until("the outage is told", || folder.read("log").contains(&lost));
    server.cont();
    let back = format!(
        "127.0.0.1:{} answers again: lock 'k' is renewed, ",
        server.port()
    );
    until("its end is told", || folder.read("log").contains(&back));
    folder.touch("go");
    assert_eq!(run.status(), 0);
}

#[test]
fn outage_and_its_end_are_told_while_the_request_waits() {
    let (server, folder) = (Server::start(), Folder::new());
    server.ask("DLOCK.ACQUIRE k PX 600000 TOKEN t");
    let arguments = ["run", "-v", "--lock", "k", "--", "true"];
    let mut run = start_with_log(server.dsync(&arguments), &folder);
    server.wait_for_waiters(1);
    server.stop();
    let lost = format!("127.0.0.1:{} has not answered for 5.0s", server.port());
    until("the outage is told", || folder.read("log").contains(&lost));
    server.cont();
    let back = format!("127.0.0.1:{} answers again, after", server.port());
    until("its end is told", || folder.read("log").contains(&back));
    until("nobody is forgotten", || {
        let _ = server.try_ask("DLOCK.RELEASE k t");
        run.has_ended()
    });
    assert_eq!(run.status(), 0);
}

#[test]
fn signal_leaves_a_release_time_to_be_answered_and_no_more() {
    for answers in [true, false] {
        let (server, folder) = (Server::start(), Folder::new());
        let script = wait_for(&folder.path("go"));
        let arguments = ["run", "--lock", "k", "--", "sh", "-c", &script];
        let mut run = start_with_log(server.dsync(&arguments), &folder);
        until("it holds", || {
            server.info_number("dsync", "dsync_holds") == 1
        });
        server.stop();
        folder.touch("go");
        let silence = "telling it the end of lock 'k'";
        until("it releases", || folder.read("log").contains(silence));
        run.signal(Signal::SIGTERM);
        if answers {
            server.cont();
        }
        assert_eq!(run.status(), 0);
        let is_given_up = folder.read("log").contains("could not be released");
        assert_eq!(is_given_up, !answers, "{}", folder.read("log"));
        server.cont();
    }
}

#[test]
fn release_that_is_not_answered_is_told_and_repeated() {
    let (server, folder) = (Server::start(), Folder::new());
    let script = wait_for(&folder.path("go"));
    let arguments = [
        "run", "--lock", "k", "--lease", "60s", "--", "sh", "-c", &script,
    ];
    let mut run = start_with_log(server.dsync(&arguments), &folder);
    until("it holds", || {
        server.info_number("dsync", "dsync_holds") == 1
    });
    server.stop();
    folder.touch("go");
    until("the silence is told", || {
        folder
            .read("log")
            .contains("does not answer; telling it the end of lock 'k' for another")
    });
    thread::sleep(Duration::from_millis(100));
    assert!(!run.has_ended());
    server.cont();
    assert_eq!(run.status(), 0);
    assert_eq!(server.info_number("dsync", "dsync_holds"), 0);
}
