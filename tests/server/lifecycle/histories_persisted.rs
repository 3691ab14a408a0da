//! Random histories on a server that is then killed: its files have every state.
//!
//! The files are an AOF with and without RDB preamble, rewritten in the middle or not, synced at once or later, and an
//! RDB file. A reload while the server runs changes nothing.
//!
//! The server is killed while writes are paused, and starts again as a replica of a missing primary: it decides nothing
//! then, so what it holds is what was in its files. Afterwards it is promoted, and the history goes on.

use crate::fuzz::history::{self, History, assert_same, assert_untroubled, contents, seeds};
use crate::support::data_files::{wait_for_rewrite, with_aof};
use crate::support::steps::SOON;
use crate::support::*;

/// An address where no server listens: ports below 1024 are not assigned by chance.
const NOWHERE: &str = "127.0.0.1 1";

/// Kills the server, whose writes are paused, and asserts that it starts again with everything.
#[track_caller]
fn kill_and_compare(server: &mut Server, seed: u64, what: &str) {
    let before = contents(server);
    assert!(
        before.len() >= 5,
        "{what}: too little to compare: {before:?}"
    );
    let whole = server.connect().ask("DEBUG DIGEST");
    server.kill9();
    server.configure("replicaof", NOWHERE);
    server.start_again();
    assert_eq!(contents(server), before, "{what}");
    assert_eq!(server.connect().ask("DEBUG DIGEST"), whole, "{what}");
    assert_untroubled(server);
    assert_eq!(server.connect().ask("REPLICAOF NO ONE"), "OK");
    let mut history = History::new(server, seed + 1_000);
    history.steps(100);
    history.end();
    assert_untroubled(server);
}

/// Lets the history go on until there are keys to compare, and pauses writes.
fn stand_still(history: &mut History<'_>, server: &Server) {
    history.until("something to compare", || contents(server).len() >= 8);
    history.stand_still();
}

#[test]
fn aof_restores_a_random_history() {
    for seed in seeds(1) {
        for (preamble, fsync, rewritten) in [
            ("yes", "always", false),
            ("yes", "everysec", true),
            ("no", "always", true),
            ("no", "everysec", false),
            ("no", "no", true),
        ] {
            let what = format!("preamble {preamble}, fsync {fsync}, rewritten {rewritten}");
            let mut server = with_aof(history::builder(), fsync, preamble).start();
            let mut history = History::new(&server, seed);
            history.steps(250);
            if rewritten {
                let reply = server.connect().ask("BGREWRITEAOF");
                assert!(!reply.is_error(), "{reply:?}");
                history.steps(100);
                wait_for_rewrite(&server);
                history.steps(50);
            }
            stand_still(&mut history, &server);
            drop(history);
            eventually("the AOF has reached the file", SOON, || {
                server.info_number("persistence", "aof_buffer_length") == 0
            });
            kill_and_compare(&mut server, seed, &what);
        }
    }
}

#[test]
fn rdb_file_restores_a_random_history() {
    for seed in seeds(3) {
        let mut server = history::builder().start();
        let mut history = History::new(&server, seed);
        history.steps(200);
        // One save while the history goes on, and a later one while writes are paused.
        assert!(!server.connect().ask("BGSAVE").is_error());
        history.steps(100);
        eventually("the background save", SOON, || {
            server.info("persistence", "rdb_bgsave_in_progress") == "0"
        });
        stand_still(&mut history, &server);
        drop(history);
        assert_eq!(server.connect().ask("SAVE"), "OK");
        kill_and_compare(&mut server, seed, "RDB");
    }
}

#[test]
fn reload_in_a_random_history_changes_nothing() {
    for seed in seeds(2) {
        for preamble in ["yes", "no"] {
            let server = with_aof(history::builder(), "always", preamble).start();
            let replica = history::builder().replica_of(&server).start();
            let mut history = History::new(&server, seed).without_ttls();
            for reload in [
                ["DEBUG", "RELOAD"],
                ["DEBUG", "LOADAOF"],
                ["DEBUG", "RELOAD"],
            ] {
                history.steps(120);
                history.still(|server| {
                    let before = contents(server);
                    assert_eq!(server.connect().call(&reload), "OK");
                    assert_eq!(contents(server), before, "{reload:?}");
                });
                history.steps(40);
                // The replica, which was not reloaded, applies the changes that follow.
                history.still(|server| {
                    replica.wait_to_catch_up_with(server);
                    assert_same(server, &replica, "after a reload");
                });
            }
            assert_untroubled(&server);
            assert_untroubled(&replica);
        }
    }
}
