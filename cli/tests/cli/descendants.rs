//! `dsync run` and the processes that its command starts: which ones are ended when the hold is lost, and for which
//! ones the hold lasts when the command has ended by itself.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;
use std::{fs, thread};

use nix::sys::signal::Signal;

use crate::support::{Folder, Process, Server, Tool, ToolFor, compile, lives, until, wait_for};

/// A shell command that works until it is killed, or the test has ended. Writes its process id into a file.
fn stubborn(folder: &Folder, name: &str) -> String {
    let (path, folder) = (folder.text(name), folder.text("."));
    format!("trap \"\" TERM HUP; echo $$ >{path}; while [ -d {folder} ]; do sleep 0.02; done")
}

/// Starts a command under a lock with a lease of 3 s, and returns once it holds. What escapes does not keep stderr
/// open.
fn start(server: &Server, script: &str) -> Process {
    let script = format!("exec 2>/dev/null; {script}");
    let arguments = [
        "run", "--lock", "k", "--lease", "3s", "--", "sh", "-c", &script,
    ];
    let run = server.dsync(&arguments).start();
    until("it holds", || {
        server.info_number("dsync", "dsync_holds") == 1
    });
    run
}

#[test]
fn lost_hold_ends_processes_in_groups_and_sessions_of_their_own() {
    let (server, folder) = (Server::start(), Folder::new());
    let script = format!(
        "timeout 600 sh -c '{in_timeout}' & setsid sh -c '{in_session}' & sh -c 'set -m; sh -c \"{in_job}\" & wait' & wait",
        in_timeout = stubborn(&folder, "timeout"),
        in_session = stubborn(&folder, "session"),
        in_job = stubborn(&folder, "job")
            .replace('"', "\\\"")
            .replace('$', "\\$"),
    );
    let mut run = start(&server, &script);
    let names = ["timeout", "session", "job"];
    until("all run", || {
        names.iter().all(|name| lives(&folder.read(name)))
    });
    server.ask("DEL k");
    let (status, stderr) = run.end();
    assert_eq!(status, 79, "{stderr}");
    for name in names {
        assert!(!lives(&folder.read(name)), "{name} works on");
    }
}

/// Returns the shell command of a process that starts its successor and ends, as long as `goes-on` is there.
fn chain(folder: &Folder) -> String {
    compile("chain.c", &[], &folder.path("chain"));
    folder.touch("goes-on");
    let name = |name| folder.text(name);
    format!("{} {} {}", name("chain"), name("goes-on"), name("trace"))
}

#[test]
fn process_that_starts_its_successor_all_the_time_does_not_escape() {
    let (server, folder) = (Server::start(), Folder::new());
    let script = format!("setsid {}; sleep 600", chain(&folder));
    let mut run = start(&server, &script);
    until("the chain runs", || folder.has("trace"));
    server.ask("DEL k");
    let (status, stderr) = run.end();
    assert_eq!(status, 79, "{stderr}");
    fs::remove_file(folder.path("trace")).unwrap();
    thread::sleep(Duration::from_millis(500));
    assert!(!folder.has("trace"), "it goes on");
}

#[test]
fn hold_lasts_for_a_process_that_starts_its_successor_all_the_time() {
    let (server, folder) = (Server::start(), Folder::new());
    let mut run = start(&server, &format!("{}; exit 6", chain(&folder)));
    until("the chain runs", || folder.has("trace"));
    let held = [(); 10].map(|()| {
        thread::sleep(Duration::from_millis(100));
        server.info_number("dsync", "dsync_holds")
    });
    assert_eq!(held, [1; 10]);
    fs::remove_file(folder.path("goes-on")).unwrap();
    assert_eq!(run.end().0, 6);
}

#[test]
fn hold_does_not_last_for_a_daemon() {
    let (server, folder) = (Server::start(), Folder::new());
    let daemon = stubborn(&folder, "pid");
    let script = format!(
        "setsid sh -c '{daemon}' </dev/null >/dev/null 2>&1 & {}; exit 6",
        wait_for(&folder.path("pid"))
    );
    let arguments = ["run", "--lock", "k", "--", "sh", "-c", &script];
    let (status, stderr) = server.dsync(&arguments).start().end();
    assert_eq!(status, 6, "{stderr}");
    assert!(lives(&folder.read("pid")));
    assert_eq!(server.info_number("dsync", "dsync_holds"), 0);
}

#[test]
fn hold_ends_when_what_was_left_behind_becomes_a_daemon() {
    let (server, folder) = (Server::start(), Folder::new());
    let daemon = stubborn(&folder, "pid");
    let script = format!(
        "({}; exec setsid sh -c '{daemon}') </dev/null >/dev/null 2>&1 & touch '{}'; exit 6",
        wait_for(&folder.path("go")),
        folder.text("left")
    );
    let mut run = server
        .dsync(&["run", "--lock", "k", "--", "sh", "-c", &script])
        .start();
    until("the command has ended", || folder.has("left"));
    let held = [(); 5].map(|()| {
        thread::sleep(Duration::from_millis(100));
        server.info_number("dsync", "dsync_holds")
    });
    assert_eq!(held, [1; 5], "what it left behind is in its session");
    folder.touch("go");
    assert_eq!(run.end().0, 6);
    until("the daemon runs", || lives(&folder.read("pid")));
}

#[test]
fn orphans_are_reaped() {
    let (server, folder) = (Server::start(), Folder::new());
    let script = format!(
        "(sh -c 'echo $$ >{pid}; {wait}' &); {run}",
        pid = folder.text("pid"),
        wait = wait_for(&folder.path("end")).replace('\'', ""),
        run = wait_for(&folder.path("go")),
    );
    let mut run = start(&server, &script);
    until("the orphan runs", || lives(&folder.read("pid")));
    let pid = folder.read("pid");
    folder.touch("end");
    until("the orphan is no zombie either", || {
        !fs::exists(format!("/proc/{}", pid.trim())).unwrap()
    });
    folder.touch("go");
    assert_eq!(run.end().0, 0);
}

#[test]
fn processes_that_were_there_before_are_left_alone() {
    let (server, folder) = (Server::start(), Folder::new());
    let bystander = stubborn(&folder, "pid");
    let script = format!(
        "sh -c '{bystander}' & exec '{}' -u {} run --lock k --lease 3s -- sleep 600",
        env!("CARGO_BIN_EXE_dsync"),
        server.url()
    );
    let mut command = Command::new("sh");
    command.arg("-c").arg(script);
    let mut shell = Tool(command).start();
    // The bystander has the pipe of stderr, which is not to be waited for.
    drop(shell.0.stderr.take());
    until("it holds", || {
        server.info_number("dsync", "dsync_holds") == 1
    });
    until("the bystander runs", || lives(&folder.read("pid")));
    server.ask("DEL k");
    assert_eq!(shell.status(), 79);
    assert!(lives(&folder.read("pid")));
}

/// Only root can make a program that becomes another user, so the tests of other users do not tell this story.
#[test]
fn process_that_became_another_user_is_told() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let (server, folder) = (Server::start(), Folder::new());
    // Written by this process, it could not be executed while another test's child still has the file open.
    let copy = |from: &str, to: &str, mode: &str| {
        let mut install = Command::new("install");
        let done = install.args(["-m", mode, from, &folder.text(to)]).status();
        assert!(done.unwrap().success());
    };
    fs::set_permissions(folder.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    // As sudo does: the real user becomes root too.
    copy("/usr/bin/setpriv", "become-root", "4755");
    copy(env!("CARGO_BIN_EXE_dsync"), "dsync", "755");
    let script = format!("echo $$ >'{}'; exec sleep 60", folder.text("pid"));
    let program = folder.text("become-root");
    let mut command = Command::new(folder.path("dsync"));
    command.env("REDIS_URL", server.url()).args([
        "run",
        "--lock",
        "k",
        "--lease",
        "3s",
        "--",
        &program,
        "--reuid=0",
        "--regid=0",
        "--clear-groups",
        "sh",
        "-c",
        &script,
    ]);
    command.uid(65_534).gid(65_534);
    let mut run = Tool(command).start();
    until("the process runs", || lives(&folder.read("pid")));
    server.ask("DEL k");
    let (status, pid) = (run.status(), folder.read("pid"));
    let worked = lives(&pid);
    let pid = nix::unistd::Pid::from_raw(pid.trim().parse().unwrap());
    nix::sys::signal::kill(pid, Signal::SIGKILL).unwrap();
    let stderr = run.end().1;
    assert_eq!(status, 77, "{stderr}");
    assert!(worked, "{stderr}");
    let told = format!("may not signal process {pid} (sleep), permission denied: it works on");
    assert_eq!(stderr.matches(&told).count(), 2, "{stderr}");
}
