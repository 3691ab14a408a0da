//! The files in which a server keeps its data: how it is told to write them, and what stands in them.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::steps::unix_ms;
use crate::support::*;

/// With an AOF, synced and headed as said.
pub fn with_aof(builder: Builder, fsync: &str, preamble: &str) -> Builder {
    builder
        .config("appendonly", "yes")
        .config("appendfsync", fsync)
        .config("aof-use-rdb-preamble", preamble)
}

/// A server whose every write is on the disk before its reply.
pub fn with_safe_aof(preamble: bool) -> Builder {
    with_aof(
        Server::builder(),
        "always",
        if preamble { "yes" } else { "no" },
    )
}

pub fn kill_and_start(server: &mut Server) {
    server.kill9();
    server.start_again();
}

/// Has the AOF rewritten, and waits until it is.
#[track_caller]
pub fn rewrite_aof(server: &Server) {
    let reply = call!(server.connect(), "BGREWRITEAOF");
    assert!(!reply.is_error(), "{reply:?}");
    wait_for_rewrite(server);
}

/// Waits for the end of a rewriting that was asked for.
#[track_caller]
pub fn wait_for_rewrite(server: &Server) {
    eventually("a rewritten AOF", Duration::from_secs(30), || {
        let info = server.info_section("persistence");
        ["aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0"]
            .iter()
            .all(|line| info.contains(line))
    });
    assert_eq!(
        server.info("persistence", "aof_last_bgrewrite_status"),
        "ok"
    );
}

/// The file that the AOF is being appended to.
pub fn aof(server: &Server) -> PathBuf {
    let files = fs::read_dir(server.dir().join("appendonlydir")).expect("the AOF has a directory");
    let file = files
        .map(|file| file.expect("a file").path())
        .find(|path| path.to_string_lossy().ends_with(".incr.aof"));
    file.expect("an incremental AOF")
}

/// Writes changes to a key into the AOF of a stopped server, as this version packs them.
#[track_caller]
pub fn append_changes(server: &Server, key: &str, family: &str, changes: &[&str]) {
    append_packed(server, key, &packed(family, changes));
}

pub fn append_packed(server: &Server, key: &str, packed: &[u8]) {
    append_to_aof(server, &[STREAM.as_bytes(), key.as_bytes(), packed]);
}

/// Writes a command into the AOF of a stopped server, by hand.
pub fn append_to_aof(server: &Server, command: &[&[u8]]) {
    let mut file = fs::OpenOptions::new()
        .append(true)
        .open(aof(server))
        .expect("the AOF opens");
    write!(file, "*{}\r\n", command.len()).expect("it is written");
    for word in command {
        write!(file, "${}\r\n", word.len()).expect("it is written");
        file.write_all(word).expect("it is written");
        write!(file, "\r\n").expect("it is written");
    }
}

pub fn grant_by_hand(fence: u64) -> String {
    let now = unix_ms();
    format!(
        "GRANT {fence} exclusive 600000 {} {now} 0 4:hand 0:",
        now + 600_000
    )
}

/// The file that the last rewriting of the AOF has made.
#[track_caller]
pub fn rewritten(server: &Server) -> PathBuf {
    let files = fs::read_dir(server.dir().join("appendonlydir")).expect("the AOF has a directory");
    let file = files
        .map(|file| file.expect("a file").path())
        .find(|path| path.to_string_lossy().ends_with(".base.aof"));
    file.expect("a base without preamble")
}

/// The commands in a file without preamble.
#[track_caller]
pub fn commands_in(file: &Path) -> Vec<Vec<Vec<u8>>> {
    let mut left = fs::read(file).expect("the file is read");
    let mut commands = Vec::new();
    while let Some((command, used)) = parse_reply(&left) {
        let words = command
            .as_array()
            .iter()
            .map(|word| word.as_bytes().to_vec());
        commands.push(words.collect());
        left.drain(..used);
    }
    assert!(left.is_empty(), "the file ends within a command");
    commands
}
