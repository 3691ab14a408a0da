//! How `dsync run` waits for its turn, and what it says when it does not get it.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::support::{Folder, Server, ToolFor, until, wait_for};

#[test]
fn runs_are_served_in_the_order_of_their_requests() {
    let (server, folder) = (Server::start(), Folder::new());
    let mut first = server
        .dsync(&[
            "run",
            "--lock",
            "k",
            "--",
            "sh",
            "-c",
            &wait_for(&folder.path("go")),
        ])
        .start();
    until("the first holds", || {
        server.info_number("dsync", "dsync_holds") == 1
    });
    let mut others = Vec::new();
    for nth in 1..=3 {
        let script = format!("echo {nth} >>'{}'", folder.text("order"));
        others.push(
            server
                .dsync(&["run", "--lock", "k", "--", "sh", "-c", &script])
                .start(),
        );
        server.wait_for_waiters(nth);
    }
    folder.touch("go");
    assert_eq!(first.end().0, 0);
    for other in &mut others {
        assert_eq!(other.end().0, 0);
    }
    assert_eq!(folder.read("order"), "1\n2\n3\n");
}

#[test]
fn busy_lock_is_told_with_its_holder_and_a_status() {
    let server = Server::start();
    server.ask("DLOCK.ACQUIRE k PX 60000 TOKEN t OWNER web-1");
    let (status, _, stderr) = server
        .dsync(&["run", "--lock", "k", "--try", "--", "true"])
        .output();
    assert_eq!(status, 75);
    assert!(
        stderr.contains("lock 'k' is busy: held by web-1"),
        "{stderr}"
    );
    let (status, ..) = server
        .dsync(&["run", "--lock", "k", "--wait", "200ms", "--", "true"])
        .output();
    assert_eq!(status, 75);
    let (status, _, stderr) = server
        .dsync(&[
            "run", "--lock", "k", "--try", "-q", "-E", "0", "--", "false",
        ])
        .output();
    assert_eq!((status, stderr.as_str()), (0, ""));
    // A wait that ran out leaves nobody in the queue.
    assert_eq!(server.info_number("dsync", "dsync_waiters"), 0);
}

#[test]
fn paused_key_and_delayed_work_are_told_with_their_end() {
    let server = Server::start();
    server.ask("DLOCK.PAUSE k 300000");
    let busy = |arguments: &[&str]| {
        let (status, _, stderr) = server.dsync(arguments).output();
        assert_eq!(status, 75, "{stderr}");
        stderr
    };
    let stderr = busy(&["run", "--lock", "k", "--try", "--", "true"]);
    let paused = "lock 'k' is busy: paused by an operator for another 4m5";
    assert!(
        stderr.contains(paused) && stderr.contains("s, until 20"),
        "{stderr}"
    );
    let stderr = busy(&["run", "--lock", "k", "--wait", "200ms", "--", "true"]);
    assert!(stderr.contains(paused), "{stderr}");

    let once = ["run", "--once", "w", "--delay", "1h", "--try", "--"];
    assert_eq!(
        server.dsync(&[&once[..], &["false"]].concat()).output().0,
        1
    );
    let stderr = busy(&[&once[..], &["true"]].concat());
    let delayed = "work 'w' is busy: an attempt has failed, and nobody begins for another 59m5";
    assert!(stderr.contains(delayed), "{stderr}");
}

#[test]
fn control_characters_of_a_key_are_escaped() {
    let server = Server::start();
    server.ask("DLOCK.ACQUIRE \x1b[2J PX 60000 TOKEN t OWNER \x1b[2J");
    let arguments = ["run", "--lock", "\x1b[2J", "--try", "--", "true"];
    let (status, _, stderr) = server.dsync(&arguments).output();
    assert_eq!(status, 75);
    assert!(
        !stderr.contains('\x1b')
            && stderr.contains("lock $'\\x1b[2J' is busy: held by \\u{1b}[2J "),
        "{stderr}"
    );
}

#[test]
fn delay_keeps_others_from_trying_again() {
    let server = Server::start();
    let run = |command: &str| {
        server
            .dsync(&[
                "run", "--once", "w", "--delay", "1h", "--try", "--", command,
            ])
            .output()
    };
    assert_eq!(run("false").0, 1);
    assert_eq!(run("true").0, 75);
}

#[test]
fn interrupt_while_waiting_withdraws_the_request() {
    let (server, folder) = (Server::start(), Folder::new());
    server.ask("DLOCK.ACQUIRE k PX 60000 TOKEN t");
    for (signal, status) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let mut run = server
            .dsync(&["run", "--lock", "k", "--", "touch", &folder.text("ran")])
            .start();
        server.wait_for_waiters(1);
        run.signal(signal);
        assert_eq!(run.end().0, status);
        assert_eq!(server.info_number("dsync", "dsync_waiters"), 0);
    }
    server.ask("DLOCK.RELEASE k t");
    assert_eq!(
        server.info_number("dsync", "dsync_holds"),
        0,
        "nothing was granted behind its back"
    );
    assert!(!folder.has("ran"));
}

#[test]
fn second_signal_does_not_keep_the_request_in_the_queue() {
    let server = Server::start();
    server.ask("DLOCK.ACQUIRE k PX 60000 TOKEN t");
    let mut run = server.dsync(&["run", "--lock", "k", "--", "true"]).start();
    server.wait_for_waiters(1);
    // It gets both at the same time, as timeout(1) sends two.
    for signal in [
        Signal::SIGSTOP,
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGCONT,
    ] {
        run.signal(signal);
    }
    let (status, stderr) = run.end();
    assert!([130, 143].contains(&status), "{status}: {stderr}");
    assert_eq!(server.info_number("dsync", "dsync_waiters"), 0);
}

#[test]
fn waiter_that_is_killed_costs_the_next_in_line_five_seconds_at_most() {
    let server = Server::start();
    server.ask("DLOCK.ACQUIRE k PX 60000 TOKEN t");
    let mut waiters: Vec<_> = (1..=2)
        .map(|nth| {
            let waiter = server.dsync(&["run", "--lock", "k", "--", "true"]).start();
            server.wait_for_waiters(nth);
            waiter
        })
        .collect();
    waiters[0].signal(Signal::SIGKILL);
    assert_eq!(waiters[0].status(), 137);
    server.ask("DLOCK.RELEASE k t");
    let released = Instant::now();
    assert_eq!(waiters[1].status(), 0);
    // With a margin for a busy machine.
    let waited = released.elapsed();
    assert!(waited < Duration::from_secs(12), "{waited:?}");
}
