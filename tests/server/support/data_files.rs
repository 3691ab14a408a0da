//! The AOF of a server: how to configure, rewrite, read and extend it.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::steps::unix_ms;
use crate::support::*;

/// Adds an AOF with these values of `appendfsync` and `aof-use-rdb-preamble`.
pub fn with_aof(builder: Builder, fsync: &str, preamble: &str) -> Builder {
    builder
        .config("appendonly", "yes")
        .config("appendfsync", fsync)
        .config("aof-use-rdb-preamble", preamble)
}

/// A server that syncs every write to the AOF before it replies.
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

/// Rewrites the AOF; returns when that is done.
#[track_caller]
pub fn rewrite_aof(server: &Server) {
    let reply = server.connect().ask("BGREWRITEAOF");
    assert!(!reply.is_error(), "{reply:?}");
    wait_for_rewrite(server);
}

/// Waits for the end of a rewrite that was started.
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

/// The file to which the server appends.
pub fn aof(server: &Server) -> PathBuf {
    let files = fs::read_dir(server.dir().join("appendonlydir")).expect("the AOF has a directory");
    let file = files
        .map(|file| file.expect("a file").path())
        .find(|path| path.to_string_lossy().ends_with(".incr.aof"));
    file.expect("an incremental AOF")
}

/// Appends changes of a key to the AOF of a stopped server, packed as this version packs them.
#[track_caller]
pub fn append_changes(server: &Server, key: &str, family: &str, changes: &[&str]) {
    append_packed(server, key, &packed(family, changes));
}

/// Appends a packed string for a key to the AOF of a stopped server.
pub fn append_packed(server: &Server, key: &str, packed: &[u8]) {
    append_to_aof(server, &[STREAM.as_bytes(), key.as_bytes(), packed]);
}

/// Appends a command to the AOF of a stopped server.
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

/// A GRANT change for a lock with the token `hand` and a lease of ten minutes from now, see [`packed`].
pub fn grant_by_hand(fence: u64) -> String {
    let now = unix_ms();
    format!(
        "GRANT {fence} exclusive 600000 {} {now} 0 4:hand 0:",
        now + 600_000
    )
}

/// The base file that the last rewrite of the AOF has made, without an RDB preamble.
#[track_caller]
pub fn rewritten(server: &Server) -> PathBuf {
    let files = fs::read_dir(server.dir().join("appendonlydir")).expect("the AOF has a directory");
    let file = files
        .map(|file| file.expect("a file").path())
        .find(|path| path.to_string_lossy().ends_with(".base.aof"));
    file.expect("a base without preamble")
}

/// The commands in an AOF without an RDB preamble.
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
