//! `dsync run` with several locks and semaphores: all are held, or none.

use crate::support::{Folder, Server, ToolFor, until, wait_for};

fn is_held(server: &Server, key: &str) -> bool {
    server.ask(format!("EXISTS {key}")) == 1
}

#[test]
fn all_are_held_while_the_command_runs_and_none_after() {
    let server = Server::start();
    server.ask("DSEM.ACQUIRE gpus TOKEN other LIMIT 3");
    let script = "echo $DSYNC_FENCE $DSYNC_INDEX; \
                  dsync_cli() { \"$0\" \"$@\"; }; dsync_cli ls --json";
    let (status, stdout, stderr) = server
        .dsync(&[
            "run",
            "--lock",
            "b",
            "--lock",
            "a",
            "--semaphore",
            "gpus",
            "--limit",
            "3",
            "--index",
            "--",
            "sh",
            "-c",
            script,
            env!("CARGO_BIN_EXE_dsync"),
        ])
        .output();
    assert_eq!((status, stderr.as_str()), (0, ""));
    let (first, holds) = stdout.split_once('\n').unwrap();
    let (fences, index) = first.split_once(' ').unwrap();
    let fences: Vec<u64> = fences
        .split(',')
        .map(|fence| fence.parse().unwrap())
        .collect();
    // In the order of the command line, and taken in the order of their names: a, b, gpus.
    assert!(fences[1] < fences[0] && fences[0] < fences[2], "{fences:?}");
    assert_eq!(index, "0");
    for key in ["\"a\"", "\"b\"", "\"gpus\""] {
        assert!(holds.contains(key), "{key}: {holds}");
    }
    assert!(!is_held(&server, "a") && !is_held(&server, "b"));
}

#[test]
fn runs_that_name_the_keys_in_other_orders_do_not_wait_for_each_other() {
    let (server, folder) = (Server::start(), Folder::new());
    let script = format!("echo done >>'{}'", folder.text("done"));
    let orders = [["a", "b"], ["b", "a"]];
    let mut runs: Vec<_> = (0..12)
        .map(|n| {
            let [one, other] = orders[n % 2];
            let keys = ["run", "--wait", "60s", "--lock", one, "--lock", other];
            server
                .dsync(&[&keys[..], &["--", "sh", "-c", &script]].concat())
                .start()
        })
        .collect();
    for run in &mut runs {
        let (status, stderr) = run.end();
        assert_eq!(status, 0, "{stderr}");
    }
    assert_eq!(folder.read("done").lines().count(), 12);
}

#[test]
fn one_that_is_busy_is_named_and_the_others_are_given_back() {
    let server = Server::start();
    server.ask("DLOCK.ACQUIRE b TOKEN other OWNER ann");
    for wait in [&["--try"][..], &["--wait", "300ms"]] {
        let arguments = [
            &["run", "--lock", "a", "--lock", "b"],
            wait,
            &["--", "true"],
        ]
        .concat();
        let (status, _, stderr) = server.dsync(&arguments).output();
        assert_eq!(status, 75, "{stderr}");
        assert!(stderr.contains("lock 'b' is busy: held by ann"), "{stderr}");
        assert!(!is_held(&server, "a"));
    }
}

#[test]
fn loss_of_one_stops_the_command_and_the_others_are_given_back() {
    let (server, folder) = (Server::start(), Folder::new());
    let script = wait_for(&folder.path("never"));
    let mut run = server
        .dsync(&[
            "run",
            "--lease",
            "20s",
            "--lock",
            "a",
            "--semaphore",
            "s",
            "--limit",
            "1",
            "--",
            "sh",
            "-c",
            &script,
        ])
        .start();
    until("it holds both", || {
        server.info_number("dsync", "dsync_holds") == 2
    });
    server.ask("DEL s");
    let (status, stderr) = run.end();
    assert_eq!(status, 79, "{stderr}");
    assert!(stderr.contains("semaphore 's' is lost"), "{stderr}");
    assert!(!is_held(&server, "a"), "before its lease is over");
}

#[test]
fn loss_of_one_while_the_next_is_waited_for_keeps_the_command_from_starting() {
    let (server, folder) = (Server::start(), Folder::new());
    server.ask("DLOCK.ACQUIRE b TOKEN other");
    let keys = ["run", "--lease", "1s", "--lock", "a", "--lock", "b"];
    let command = ["--", "touch", &folder.text("started")];
    let mut run = server.dsync(&[&keys[..], &command].concat()).start();
    until("it holds a and waits for b", || {
        server.info_number("dsync", "dsync_waiters") == 1
    });
    server.ask("DEL a");
    let renewals = || {
        let stats = server.info_section("commandstats").to_lowercase();
        let stats = stats.split_once("cmdstat_dlock.renew:calls=");
        stats.map_or(0, |(_, rest)| {
            rest.split(',').next().unwrap().parse::<u64>().unwrap()
        })
    };
    let before = renewals();
    until("it has asked for a", || renewals() > before);
    server.ask("DLOCK.RELEASE b other");
    let (status, stderr) = run.end();
    assert_eq!(status, 79, "{stderr}");
    assert!(stderr.contains("lock 'a' was lost before"), "{stderr}");
    assert!(!folder.path("started").exists());
    assert!(!is_held(&server, "b"), "before its lease is over");
}

#[test]
fn keys_and_options_that_do_not_go_together_are_refused() {
    let server = Server::start();
    for (arguments, words) in [
        ("--lock a --lock a", "--lock a is given twice"),
        ("--lock a --semaphore a", "a can be a lock or a semaphore"),
        (
            "--lock a --limit 5",
            "--limit is for --semaphore and --group",
        ),
        (
            "--semaphore a --semaphore b --permits 2",
            "--permits is for one semaphore",
        ),
        ("--lock a --once b", "cannot be used with"),
    ] {
        let words_of: Vec<&str> = arguments.split(' ').collect();
        let (status, _, stderr) = server
            .dsync(&[&["run"], &words_of[..], &["true"]].concat())
            .output();
        assert_eq!(status, 64, "{stderr}");
        assert!(stderr.contains(words), "{arguments}: {stderr}");
    }
}
