//! `dsync log --follow`: nothing is lost, and nothing comes twice.

use std::fs::File;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Folder, Process, Server, Tool, ToolFor, dsync, until, watch};

/// A `dsync log --follow` whose output goes to files.
struct Follower {
    _process: Process,
    folder: Folder,
}

impl Follower {
    fn start(mut tool: Tool) -> Follower {
        let folder = Folder::new();
        tool.0.stdout(File::create(folder.path("stdout")).unwrap());
        tool.0.stderr(File::create(folder.path("stderr")).unwrap());
        Follower {
            _process: Process(tool.0.spawn().unwrap()),
            folder,
        }
    }

    /// Returns the keys of the rows, in their order.
    fn keys(&self) -> Vec<String> {
        let text = self.folder.read("stdout");
        let key = |line: &str| {
            let (_, rest) = line.split_once(" key=")?;
            Some(rest.split(' ').next()?.to_owned())
        };
        text.lines().filter_map(key).collect()
    }

    #[track_caller]
    fn until_it_says(&self, text: &str) {
        until(text, || self.folder.read("stderr").contains(text));
    }

    #[track_caller]
    fn until_keys(&self, keys: &[&str]) {
        let start = Instant::now();
        until("the rows are shown", || {
            let shown = self.keys().len() >= keys.len();
            shown || start.elapsed() > Duration::from_secs(20)
        });
        assert_eq!(self.keys(), keys, "{}", self.folder.read("stderr"));
    }
}

/// Makes a row of the log.
fn remove(server: &Server, key: &str) {
    server.ask(format!("DLOCK.ACQUIRE {key}"));
    server.ask(format!("DEL {key}"));
}

/// Waits until the server was asked for its log.
fn until_asked(server: &Server) {
    until("the log was asked for", || {
        let stats = server.ask("INFO commandstats").as_str().to_owned();
        stats.to_lowercase().contains("dsync.log")
    });
}

#[test]
fn first_row_of_an_empty_log_is_shown() {
    let server = Server::start();
    let follower = Follower::start(server.dsync(&["log", "--follow"]));
    until_asked(&server);
    remove(&server, "a");
    follower.until_keys(&["a"]);
    remove(&server, "b");
    follower.until_keys(&["a", "b"]);
}

#[test]
fn following_begins_with_the_newest_rows_and_shows_each_once() {
    let server = Server::start();
    server.ask("CONFIG SET dsync.log-max-len 1000");
    for key in ["a", "b", "c"] {
        remove(&server, key);
    }
    let follower = Follower::start(server.dsync(&["log", "-f", "--count", "2"]));
    follower.until_keys(&["b", "c"]);
    // More than are asked for at once.
    let many: Vec<String> = (0..150).map(|nth| format!("k{nth}")).collect();
    for key in &many {
        remove(&server, key);
    }
    let mut all = vec!["b", "c"];
    all.extend(many.iter().map(String::as_str));
    follower.until_keys(&all);
    server.ask("DSYNC.LOG RESET");
    remove(&server, "after");
    all.push("after");
    follower.until_keys(&all);
}

#[test]
fn following_goes_on_after_a_restart_of_the_server() {
    let mut server = Server::start();
    for key in ["a", "b"] {
        remove(&server, key);
    }
    let follower = Follower::start(server.dsync(&["log", "-f"]));
    follower.until_keys(&["a", "b"]);
    server.kill9();
    follower.until_it_says("trying again");
    server.start_again();
    // The ids begin anew: these rows have those of the rows before.
    for key in ["c", "d", "e"] {
        remove(&server, key);
    }
    follower.until_it_says("answers again");
    follower.until_keys(&["a", "b", "c", "d", "e"]);
    remove(&server, "f");
    follower.until_keys(&["a", "b", "c", "d", "e", "f"]);
    assert_eq!(follower.folder.read("stderr").lines().count(), 2);
}

#[test]
fn following_goes_over_to_the_primary_that_sentinel_promotes() {
    let mut primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    let sentinel = watch(&primary, 1);
    // The replica lists the same end at a later moment.
    replica.stop();
    remove(&primary, "a");
    thread::sleep(Duration::from_millis(50));
    replica.cont();
    until("the replica has the row too", || {
        let rows = replica.ask("DSYNC.LOG");
        rows.as_array()
            .iter()
            .any(|row| row.as_array()[2] == "removed")
    });
    let address = format!("127.0.0.1:{}", sentinel.nth(0).port());
    let tool = ["--sentinel", &address, "--master", "locks", "log", "-f"];
    let follower = Follower::start(dsync("redis://127.0.0.1:1", &tool));
    follower.until_keys(&["a"]);
    primary.kill9();
    follower.until_it_says(&format!("127.0.0.1:{} is a primary now", replica.port()));
    remove(&replica, "b");
    follower.until_keys(&["a", "b"]);
}
