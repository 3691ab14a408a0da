//! `dsync run` when its hold is lost: revoked, the server stopped, the network cut.

use std::time::{Duration, Instant};

use crate::support::{Folder, Proxy, Server, ToolFor, dsync, lives, until, wait_for};

/// A script whose background process ignores SIGTERM too.
fn stubborn(folder: &Folder) -> String {
    format!(
        "trap '' TERM; sh -c 'echo $$ >\"{grandchild}\"; while :; do sleep 0.02; done' & echo $$ >'{child}'; \
         while :; do sleep 0.02; done",
        grandchild = folder.text("grandchild"),
        child = folder.text("child"),
    )
}

fn both_live(folder: &Folder) -> bool {
    lives(&folder.read("child")) && lives(&folder.read("grandchild"))
}

#[test]
fn revoked_hold_stops_the_command() {
    let (server, folder) = (Server::start(), Folder::new());
    let script = format!(
        "trap 'touch \"{}\"; exit 0' TERM; while :; do sleep 0.02; done",
        folder.text("terminated")
    );
    let mut run = server
        .dsync(&[
            "run", "--lock", "k", "--lease", "3s", "--", "sh", "-c", &script,
        ])
        .start();
    until("it holds", || {
        server.info_number("dsync", "dsync_holds") == 1
    });
    server.ask("DEL k");
    let (status, stderr) = run.end();
    assert_eq!(status, 79, "{stderr}");
    assert!(
        stderr.contains("lock 'k' is lost: the server says that it has ended; SIGTERM now"),
        "{stderr}"
    );
    assert!(folder.has("terminated"));
}

#[test]
fn command_that_ignores_sigterm_is_dead_before_the_lease_of_a_stopped_server_is_over() {
    let (server, folder) = (Server::start(), Folder::new());
    let script = stubborn(&folder);
    let mut run = server
        .dsync(&[
            "run", "--lock", "k", "--lease", "10s", "--", "sh", "-c", &script,
        ])
        .start();
    until("both processes run", || both_live(&folder));
    server.stop();
    let stopped = Instant::now();
    let (child, grandchild) = (folder.read("child"), folder.read("grandchild"));
    until("both processes are dead", || {
        !lives(&child) && !lives(&grandchild)
    });
    // The last renewal was answered before the server was stopped, so the lease is over at most so long after.
    let after = stopped.elapsed();
    assert!(after < Duration::from_secs(10), "{after:?}");
    server.cont();
    let (status, stderr) = run.end();
    assert_eq!(status, 79, "{stderr}");
    assert!(
        stderr.contains("did not renew its lease in time; SIGTERM now, SIGKILL in"),
        "{stderr}"
    );
}

#[test]
fn next_holder_begins_after_a_command_behind_a_cut_network_is_dead() {
    let (server, folder) = (Server::start(), Folder::new());
    let proxy = Proxy::to(&server);
    let script = stubborn(&folder);
    let mut cut_off = dsync(
        &proxy.url(),
        &[
            "run", "--lock", "k", "--lease", "6s", "--", "sh", "-c", &script,
        ],
    )
    .start();
    until("both processes run", || both_live(&folder));
    let verdict = format!(
        "kill -0 {} || kill -0 {} || touch '{}'",
        folder.read("child").trim(),
        folder.read("grandchild").trim(),
        folder.text("alone")
    );
    let mut next = server
        .dsync(&["run", "--lock", "k", "--", "sh", "-c", &verdict])
        .start();
    server.wait_for_waiters(1);
    proxy.cut();
    assert_eq!(next.end().0, 0);
    assert!(folder.has("alone"), "the first command still ran");
    let (status, stderr) = cut_off.end();
    assert_eq!(status, 79, "{stderr}");
}

#[test]
fn short_outage_is_survived() {
    let (server, folder) = (Server::start(), Folder::new());
    let script = wait_for(&folder.path("go"));
    let mut run = server
        .dsync(&[
            "run", "--lock", "k", "--lease", "30s", "--", "sh", "-c", &script,
        ])
        .start();
    until("it holds", || {
        server.info_number("dsync", "dsync_holds") == 1
    });
    // A renewal comes each 10 s; closed connections are opened again.
    server.ask("CLIENT KILL TYPE normal SKIPME yes");
    folder.touch("go");
    let (status, stderr) = run.end();
    assert_eq!(status, 0, "{stderr}");
    assert_eq!(server.info_number("dsync", "dsync_holds"), 0);
}

#[test]
fn done_counts_although_the_hold_was_lost_when_nobody_else_has_begun() {
    let (server, folder) = (Server::start(), Folder::new());
    let script = format!(
        "trap 'touch \"{}\"; exit 0' TERM; touch '{}'; while :; do sleep 0.02; done",
        folder.text("terminated"),
        folder.text("ready")
    );
    let mut run = server
        .dsync(&[
            "run", "--once", "w", "--lease", "3s", "--", "sh", "-c", &script,
        ])
        .start();
    until("the command is ready", || folder.has("ready"));
    server.stop();
    until("the command was told", || folder.has("terminated"));
    server.cont();
    let (status, stderr) = run.end();
    assert_eq!(status, 0, "{stderr}");
    assert_eq!(
        server
            .dsync(&["run", "--once", "w", "--", "false"])
            .output()
            .0,
        0
    );
}

#[test]
fn success_that_cannot_be_recorded_is_told_as_lost() {
    let (server, folder) = (Server::start(), Folder::new());
    let script = format!(
        "trap 'exit 0' TERM; touch '{}'; while :; do sleep 0.02; done",
        folder.text("ready")
    );
    let mut run = server
        .dsync(&[
            "run", "--once", "w", "--lease", "3s", "--", "sh", "-c", &script,
        ])
        .start();
    until("the command is ready", || folder.has("ready"));
    server.ask("DEL w");
    let (status, stderr) = run.end();
    assert_eq!(status, 79, "{stderr}");
}

#[test]
fn unreachable_server_is_told() {
    let (status, _, stderr) = dsync(
        "redis://127.0.0.1:1",
        &["run", "--lock", "k", "--try", "--", "true"],
    )
    .output();
    assert_eq!(status, 69);
    assert!(
        stderr.contains("127.0.0.1:1") && stderr.contains("DSYNC_URL"),
        "{stderr}"
    );
    // With a wait it tries until then.
    let (status, _, stderr) = dsync(
        "redis://127.0.0.1:1",
        &["run", "--lock", "k", "--wait", "1200ms", "--", "true"],
    )
    .output();
    assert_eq!(status, 69);
    assert!(stderr.contains("trying for 1.2s"), "{stderr}");
}
