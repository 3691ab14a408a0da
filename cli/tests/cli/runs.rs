//! `dsync run` while the server serves.

use nix::sys::signal::Signal;

use crate::support::{Folder, Server, ToolFor, dsync, lives, until, wait_for};

#[test]
fn runs_of_one_lock_exclude_each_other() {
    let (server, folder) = (Server::start(), Folder::new());
    let script = format!(
        "mkdir '{inside}' || echo clash >>'{clashes}'; sleep 0.05; rmdir '{inside}'; echo done >>'{done}'",
        inside = folder.text("inside"),
        clashes = folder.text("clashes"),
        done = folder.text("done"),
    );
    let mut runs: Vec<_> = (0..6)
        .map(|_| {
            server
                .dsync(&["run", "--lock", "k", "--", "sh", "-c", &script])
                .start()
        })
        .collect();
    for run in &mut runs {
        assert_eq!(run.end().0, 0);
    }
    assert_eq!(folder.read("clashes"), "");
    assert_eq!(folder.read("done").lines().count(), 6);
}

#[test]
fn command_needs_no_dashes() {
    let server = Server::start();
    let tool = server.dsync(&["run", "--lock", "k", "echo", "-n", "--lock", "--", "x"]);
    assert_eq!(tool.stdout(), "--lock -- x");
}

#[test]
fn command_inherits_the_server_unless_it_is_hidden() {
    let server = Server::start();
    let script = "echo $REDIS_URL,$REDISCLI_AUTH,$DSYNC_SECRET,${DSYNC_FENCE:+fence}";
    let run = |options: &[&str]| {
        let arguments = [&["run", "--lock", "k"], options, &["sh", "-c", script]].concat();
        let tool = server.dsync(&arguments).with("DSYNC_SECRET", "x");
        tool.with("REDISCLI_AUTH", "").stdout()
    };
    assert_eq!(run(&[]), format!("{},,x,fence\n", server.url()));
    assert_eq!(run(&["--hide-server"]), ",,,fence\n");
}

#[test]
fn owner_is_the_effective_user_the_host_and_the_process() {
    let (server, folder) = (Server::start(), Folder::new());
    let script = wait_for(&folder.path("go"));
    let mut run = server
        .dsync(&["run", "--lock", "k", "--", "sh", "-c", &script])
        .start();
    until("it holds", || {
        server.info_number("dsync", "dsync_holds") == 1
    });
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap();
    let user = user.map_or(nix::unistd::geteuid().to_string(), |user| user.name);
    let host = nix::unistd::gethostname().unwrap();
    let owner = format!("{user}@{}:{}", host.to_string_lossy(), run.pid());
    let info = server.ask("DLOCK.INFO k");
    assert!(format!("{info:?}").contains(&owner), "{owner}: {info:?}");
    folder.touch("go");
    assert_eq!(run.end().0, 0);
}

#[test]
fn exit_status_of_the_command_is_passed_on() {
    let server = Server::start();
    let run = |script: &str| {
        server
            .dsync(&["run", "--lock", "k", "--", "sh", "-c", script])
            .output()
            .0
    };
    assert_eq!(run("exit 0"), 0);
    assert_eq!(run("exit 3"), 3);
    assert_eq!(run("kill -KILL $$"), 137);
    assert_eq!(run("kill -TERM $$"), 143);
    assert_eq!(
        server
            .dsync(&["run", "--lock", "k", "--", "/nonexistent"])
            .output()
            .0,
        127
    );
    assert_eq!(
        server
            .dsync(&["run", "--lock", "k", "--", "/dev/null"])
            .output()
            .0,
        126
    );
    assert_eq!(
        server.info_number("dsync", "dsync_holds"),
        0,
        "each run has released"
    );
}

#[test]
fn signals_are_passed_on_to_the_command() {
    let (server, folder) = (Server::start(), Folder::new());
    let script = format!(
        "trap 'echo usr1 >>\"{got}\"' USR1; trap 'exit 7' TERM; touch '{ready}'; while :; do sleep 0.02; done",
        got = folder.text("got"),
        ready = folder.text("ready")
    );
    let mut run = server
        .dsync(&["run", "--lock", "k", "--", "sh", "-c", &script])
        .start();
    until("the command is ready", || folder.has("ready"));
    run.signal(Signal::SIGUSR1);
    until("the command got it", || folder.read("got") == "usr1\n");
    run.signal(Signal::SIGTERM);
    assert_eq!(run.end().0, 7);
    assert_eq!(server.info_number("dsync", "dsync_holds"), 0);
}

#[test]
fn ignored_signals_stay_ignored() {
    let (server, folder) = (Server::start(), Folder::new());
    let tool = env!("CARGO_BIN_EXE_dsync");
    let script = format!(
        "trap '' HUP; exec '{tool}' -u {} run --lock k -- sh -c \"touch '{}'; {}; exit 5\"",
        server.url(),
        folder.text("ready"),
        wait_for(&folder.path("go"))
    );
    let mut command = std::process::Command::new("sh");
    command.arg("-c").arg(script);
    let mut run = crate::support::Tool(command).start();
    until("the command is ready", || folder.has("ready"));
    run.signal(Signal::SIGHUP);
    folder.touch("go");
    assert_eq!(run.end().0, 5);
}

#[test]
fn environment_has_fence_and_attempt() {
    let server = Server::start();
    let script = "echo $DSYNC_FENCE,$DSYNC_ATTEMPT";
    let lock = || {
        server
            .dsync(&["run", "--lock", "k", "--", "sh", "-c", script])
            .with("DSYNC_ATTEMPT", "9")
            .stdout()
    };
    let fence = |line: String| {
        line.trim()
            .strip_suffix(',')
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    let (first, second) = (fence(lock()), fence(lock()));
    assert!(first < second);
    let once = server
        .dsync(&["run", "--once", "w", "--", "sh", "-c", script])
        .stdout();
    assert!(once.trim().ends_with(",1"), "{once}");
}

#[test]
fn shared_locks_are_held_together_and_semaphores_up_to_their_limit() {
    let (server, folder) = (Server::start(), Folder::new());
    let hold = |options: &[&str]| {
        let script = wait_for(&folder.path("go"));
        let mut arguments = vec!["run"];
        arguments.extend(options);
        arguments.extend(["--", "sh", "-c", &script]);
        server.dsync(&arguments).start()
    };
    let mut runs = vec![
        hold(&["--lock", "k", "--shared"]),
        hold(&["--lock", "k", "--shared"]),
    ];
    runs.extend([hold(&[
        "--semaphore",
        "s",
        "--limit",
        "3",
        "--permits",
        "2",
    ])]);
    until("all hold", || {
        server.info_number("dsync", "dsync_holds") == 3
    });
    assert_eq!(
        server
            .dsync(&["run", "--lock", "k", "--try", "--", "true"])
            .output()
            .0,
        75
    );
    assert_eq!(
        server
            .dsync(&[
                "run",
                "--semaphore",
                "s",
                "--permits",
                "2",
                "--try",
                "--",
                "true"
            ])
            .output()
            .0,
        75
    );
    assert_eq!(
        server
            .dsync(&["run", "--semaphore", "s", "--try", "--", "true"])
            .output()
            .0,
        0
    );
    folder.touch("go");
    for run in &mut runs {
        assert_eq!(run.end().0, 0);
    }
}

#[test]
fn work_is_done_once() {
    let (server, folder) = (Server::start(), Folder::new());
    let run = |script: &str| {
        server
            .dsync(&[
                "run", "--once", "w", "--max", "2", "--delay", "1ms", "--", "sh", "-c", script,
            ])
            .output()
    };
    assert_eq!(run("exit 4").0, 4);
    let info = server.ask("DONCE.INFO w");
    assert!(format!("{info:?}").contains("exit status 4"), "{info:?}");
    assert_eq!(run("kill -TERM $$").0, 143);
    let (status, _, stderr) = run("exit 0");
    assert_eq!(status, 80);
    assert!(
        stderr.contains("given up after 2 attempts; the last failed with: signal 15 (SIGTERM)"),
        "{stderr}"
    );

    let one = ["run", "--once", "one", "--max", "1", "--", "false"];
    assert_eq!(server.dsync(&one).output().0, 1);
    let (status, _, stderr) = server.dsync(&one).output();
    assert_eq!(status, 80);
    assert!(stderr.contains("given up after 1 attempt; the"), "{stderr}");

    let script = format!("echo ran >>'{}'", folder.text("ran"));
    let again = || {
        server
            .dsync(&[
                "run",
                "-v",
                "--once",
                "w",
                "--forever",
                "--",
                "sh",
                "-c",
                &script,
            ])
            .output()
    };
    assert_eq!(again().0, 0);
    let (status, _, stderr) = again();
    assert_eq!(status, 0);
    assert!(stderr.contains("done already, by attempt 3"), "{stderr}");
    assert_eq!(folder.read("ran"), "ran\n");
    assert_eq!(server.info_number("dsync", "dsync_holds"), 0);
}

#[test]
fn result_is_kept_as_long_as_asked() {
    let server = Server::start();
    let left = |options: &[&str], key: &str| {
        let mut arguments = vec!["run", "--once", key];
        arguments.extend(options);
        arguments.extend(["--", "true"]);
        assert_eq!(server.dsync(&arguments).output().0, 0);
        let info = server.ask(format!("DONCE.INFO {key}"));
        let until = info.field("kept-until-unix-ms");
        (!until.is_nil()).then(|| until.as_int().cast_unsigned())
    };
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_millis() as u64;
    assert_eq!(left(&["--forever"], "a"), None);
    let week = left(&["--keep", "7d"], "b").unwrap() - now;
    assert!((604_800_000..604_900_000).contains(&week), "{week}");
}

#[test]
fn group_counts_success_only() {
    let server = Server::start();
    server.ask("DWG.EXPECT g 3");
    let run = |command: &str| {
        server
            .dsync(&["run", "--group", "g", "--", command])
            .output()
            .0
    };
    assert_eq!((run("true"), run("false"), run("true")), (0, 1, 0));
    let owed = server.ask("DWG.EXPECT g 3").as_int();
    assert_eq!(owed, 1);
}

#[test]
fn hold_lasts_until_what_the_command_left_behind_in_its_session_has_ended() {
    let (server, folder) = (Server::start(), Folder::new());
    let script = format!(
        "sh -c 'echo $$ >\"{pid}\"; {wait}' & exit 6",
        pid = folder.text("pid"),
        wait = wait_for(&folder.path("go")).replace('\'', "\"")
    );
    let mut run = server
        .dsync(&["run", "--lock", "k", "--", "sh", "-c", &script])
        .start();
    until("the background process runs", || lives(&folder.read("pid")));
    assert_eq!(
        server
            .dsync(&["run", "--lock", "k", "--try", "--", "true"])
            .output()
            .0,
        75
    );
    assert!(!run.has_ended());
    folder.touch("go");
    assert_eq!(run.end().0, 6);
    assert_eq!(server.info_number("dsync", "dsync_holds"), 0);
}

#[test]
fn command_is_killed_when_the_tool_is() {
    let (server, folder) = (Server::start(), Folder::new());
    let script = format!("echo $$ >'{}'; exec sleep 600", folder.text("pid"));
    let mut run = server
        .dsync(&["run", "--lock", "k", "--", "sh", "-c", &script])
        .start();
    until("the command runs", || lives(&folder.read("pid")));
    run.signal(Signal::SIGKILL);
    assert_eq!(run.end().0, 137);
    until("the command is dead", || !lives(&folder.read("pid")));
}

#[test]
fn grace_that_does_not_fit_is_a_usage_error() {
    let (status, _, stderr) = dsync(
        "redis://127.0.0.1:1",
        &[
            "run", "--lock", "k", "--lease", "10s", "--grace", "5s", "--", "true",
        ],
    )
    .output();
    assert_eq!(status, 64);
    assert!(stderr.contains("at most 4.0s"), "{stderr}");
    assert_eq!(
        dsync("redis://127.0.0.1:1", &["run", "--lock", "k"])
            .output()
            .0,
        64
    );
}
