//! `dsync run` with `--lane`, `--min-hold` and `--index`.

use std::time::{Duration, Instant};

use crate::support::{Folder, Server, ToolFor, until, wait_for};

#[test]
fn index_is_the_lowest_that_is_free() {
    let (server, folder) = (Server::start(), Folder::new());
    let run = |script: &str| {
        let options = [
            "run",
            "--semaphore",
            "gpus",
            "--limit",
            "2",
            "--index",
            "-v",
        ];
        server.dsync(&[&options[..], &["sh", "-c", script]].concat())
    };
    let waits = |go: &str| {
        let wait = wait_for(&folder.path(go));
        run(&format!(
            "echo $DSYNC_INDEX >>'{}'; {wait}",
            folder.text("used")
        ))
    };
    let mut first = waits("first").start();
    until("it works", || folder.read("used") == "0\n");
    let mut second = waits("second").start();
    until("both work", || folder.read("used") == "0\n1\n");
    let third = waits("third");
    folder.touch("third");
    let mut third = third.start();
    server.wait_for_waiters(1);
    folder.touch("first");
    let (status, said) = first.end();
    assert!(
        status == 0 && said.contains("is ours: index 0, fence "),
        "{said}"
    );
    assert_eq!(third.end().0, 0);
    assert_eq!(folder.read("used"), "0\n1\n0\n");

    // The index is that of the inner run alone.
    let inner = format!(
        "{} run --semaphore other --limit 1 sh -c 'echo ${{DSYNC_INDEX-none}}'",
        env!("CARGO_BIN_EXE_dsync")
    );
    assert_eq!(run(&inner).stdout(), "none\n");
    folder.touch("second");
    assert_eq!(second.end().0, 0);
}

#[test]
fn what_ended_early_rests() {
    let server = Server::start();
    for hold in [
        &["--lock", "tick"][..],
        &["--semaphore", "pace", "--limit", "1"],
    ] {
        let run = |options: &[&str]| server.dsync(&[&["run"], hold, options, &["true"]].concat());
        assert_eq!(run(&["--min-hold", "1m", "--owner", "web-1"]).output().0, 0);
        let (status, _, said) = run(&["--try"]).output();
        assert_eq!(status, 75);
        let rests = "held by web-1, ended, rests for another ";
        assert!(said.contains(rests), "{said}");
        let mut waiting = run(&["--owner", "web-2"]).start();
        server.wait_for_waiters(1);
        let top = |options: &[&str]| {
            let once = ["top", "--once", "--interval", "100ms"];
            server.dsync(&[&once, options].concat()).stdout()
        };
        let table = top(&[]);
        assert!(table.contains("  rests "), "{table}");
        assert!(top(&["--json"]).contains("\"resting_ms\":"));
        assert_eq!(server.ask(format!("DEL {}", hold[1])), 1);
        assert_eq!(waiting.end().0, 0);

        let begun = Instant::now();
        for _ in 0..3 {
            assert_eq!(run(&["--min-hold", "500ms"]).output().0, 0);
        }
        assert!(begun.elapsed() >= Duration::from_secs(1));
    }
}

#[test]
fn lane_with_fewer_permits_is_next_and_has_its_limit() {
    let (server, folder) = (Server::start(), Folder::new());
    let holds = || server.info_number("dsync", "dsync_holds");
    let run = |lane: &str, options: &[&str], script: &str| {
        let hold = ["run", "--semaphore", "jobs", "--limit", "2", "--lane", lane];
        server.dsync(&[&hold[..], options, &["sh", "-c", script]].concat())
    };
    let mut first = run("flood", &[], &wait_for(&folder.path("first"))).start();
    until("one works", || holds() == 1);
    let limited = run("flood", &["--lane-limit", "1", "--try"], "true");
    assert_eq!(limited.output().0, 75);
    let mut other = run("other", &[], &wait_for(&folder.path("other"))).start();
    until("both work", || holds() == 2);
    let mut queued = Vec::new();
    for (number, lane) in (0..).zip(["flood", "flood", "third"]) {
        let script = format!("echo {number} >>'{}'", folder.text("served"));
        queued.push(run(lane, &["--lane-limit", "1"], &script).start());
        server.wait_for_waiters(number + 1);
    }
    folder.touch("first");
    for run in &mut queued {
        assert_eq!(run.end().0, 0);
    }
    assert_eq!(folder.read("served"), "2\n0\n1\n");
    folder.touch("other");
    assert_eq!((first.end().0, other.end().0), (0, 0));
}
