//! The rules of the replication stream: what stays out of it, which commands are wrapped in MULTI and EXEC, and that no
//! client can send its internal commands.
//!
//! What each change looks like in the stream is asserted in `replication_effects` and `family_effects`.

use super::watched_primary::WatchedPrimary;
use crate::support::steps::{SOON, unix_ms};
use crate::support::*;

/// All commands that were replicated by now, as text.
fn so_far(stream: &mut ReplicationStream, primary: &Server) -> Vec<Vec<String>> {
    let commands = stream.take_so_far(primary);
    commands.iter().map(|command| words(command)).collect()
}

/// Waits for the next command, as text.
#[track_caller]
fn next(stream: &mut ReplicationStream) -> Vec<String> {
    match stream.next(SOON) {
        Some(command) => words(&command),
        None => panic!("nothing was replicated within {SOON:?}"),
    }
}

/// Asserts that the command is a DSYN of this key and family; returns its changes.
#[track_caller]
fn changes_of<const N: usize>(command: &[String], key: &str, kind: &str) -> [String; N] {
    match command {
        [name, of, family, changes @ ..] if name == "DSYN" && of == key && family == kind => {
            let changes = changes.to_vec();
            changes
                .try_into()
                .unwrap_or_else(|changes| panic!("expected {N} changes: {changes:?}"))
        }
        _ => panic!("expected DSYN {key} of {kind}, the primary replicated {command:?}"),
    }
}

#[test]
fn request_without_effect_replicates_nothing() {
    let WatchedPrimary {
        server,
        mut stream,
        mut client,
        ..
    } = WatchedPrimary::start();
    client.ask("DLOCK.ACQUIRE k TOKEN t");
    client.ask("DSEM.ACQUIRE s LIMIT 2 PERMITS 2 TOKEN t");
    client.ask("DWG.ADD g TOKEN t LIMIT 1");
    client.ask("SET string 1");
    so_far(&mut stream, &server);

    let mut waiters: Vec<_> = (0..4).map(|_| server.connect()).collect();
    waiters[0].begin("DLOCK.ACQUIRE k BLOCK 0 TOKEN w");
    waiters[1].begin("DSEM.ACQUIRE s BLOCK 0");
    waiters[2].begin("DWG.ADD g BLOCK 0");
    waiters[3].begin("DWG.WAIT g BLOCK 0");
    server.wait_for_blocked(4);
    let requests: &[&[&str]] = &[
        &["DLOCK.ACQUIRE", "k"],
        &["DLOCK.ACQUIRE", "k", "BLOCK", "20"],
        &["DLOCK.ACQUIRE", "k", "SHARED", "TOKEN", "t"],
        &["DLOCK.ACQUIRE", "k", "TOKEN", "w"],
        &["DLOCK.ACQUIRE", "s"],
        &["DLOCK.ACQUIRE", "string"],
        &["DLOCK.ACQUIRE", "k", "PX", "0"],
        &["DLOCK.RELEASE", "k", "other"],
        &["DLOCK.RELEASE", "absent", "t"],
        &["DLOCK.RENEW", "k", "other"],
        &["DLOCK.RENEW", "absent", "t"],
        &["DLOCK.REVOKE", "k", "1"],
        &["DLOCK.CHECK", "k", "t"],
        &["DLOCK.INFO", "k"],
        &["DLOCK.INFO", "absent"],
        &["DSEM.ACQUIRE", "s"],
        &["DSEM.ACQUIRE", "s", "LIMIT", "9"],
        &["DSEM.ACQUIRE", "s", "PERMITS", "9", "BLOCK", "20"],
        &["DSEM.ACQUIRE", "none"],
        &["DSEM.RELEASE", "s", "other"],
        &["DSEM.LIMIT", "none", "NONE"],
        &["DSEM.INFO", "s"],
        &["DWG.ADD", "g"],
        &["DWG.WAIT", "g"],
        &["DWG.WAIT", "g", "BLOCK", "20"],
        &["DWG.WAIT", "absent"],
        &["DWG.DONE", "g", "other", "another"],
        &["DWG.INFO", "g"],
    ];
    for request in requests {
        let reply = client.call(request);
        let seen = so_far(&mut stream, &server);
        assert!(
            seen.is_empty(),
            "{request:?} answered {reply:?} and replicated {seen:?}"
        );
    }
    let superseded = waiters.remove(0);
    client.begin("DLOCK.ACQUIRE k TOKEN w BLOCK 60000");
    let mut superseded = superseded;
    assert!(superseded.reply().error().starts_with("UNBLOCKED"));
    assert!(
        so_far(&mut stream, &server).is_empty(),
        "a place that was taken over"
    );
    client.close();
    server.wait_for_blocked(3);
    assert!(
        so_far(&mut stream, &server).is_empty(),
        "a waiter that left"
    );
}

#[test]
fn changes_of_several_keys_are_grouped_as_the_server_groups_them() {
    let WatchedPrimary {
        server,
        mut stream,
        mut client,
        ..
    } = WatchedPrimary::start();
    client.ask("MULTI");
    client.ask("DLOCK.ACQUIRE a TOKEN t");
    client.ask("DLOCK.ACQUIRE a TOKEN u");
    client.ask("DLOCK.ACQUIRE b TOKEN t BLOCK 0");
    client.ask("EXEC");
    let seen = so_far(&mut stream, &server);
    let names: Vec<_> = seen.iter().map(|command| command[0].as_str()).collect();
    assert_eq!(names, ["MULTI", "DSYN", "DSYN", "EXEC"]);
    let [_] = changes_of(&seen[1], "a", "lock");
    let [_] = changes_of(&seen[2], "b", "lock");

    let script = "redis.call('DLOCK.RELEASE', 'a', 't') redis.call('DLOCK.RELEASE', 'b', 't')";
    call!(client, "EVAL", script, 2, "a", "b");
    let seen = so_far(&mut stream, &server);
    let names: Vec<_> = seen.iter().map(|command| command[0].as_str()).collect();
    assert_eq!(names, ["MULTI", "DLOCK.RELEASE", "DLOCK.RELEASE", "EXEC"]);
    assert_eq!(seen[1][1..], ["a", "t"]);
    assert_eq!(seen[2][1..], ["b", "t"]);

    // However the server groups 200 lapses, MULTI and EXEC match and every key ends once.
    for n in 0..200 {
        client.ask(format!("DLOCK.ACQUIRE wave:{n} PX 300"));
    }
    let (mut ended, mut inside) = (Vec::new(), false);
    while ended.len() < 200 || inside {
        let command = next(&mut stream);
        match command[0].as_str() {
            "MULTI" if !inside => inside = true,
            "EXEC" if inside => inside = false,
            // On a slow machine the first lock lapses before the last is granted.
            "DSYN" if command[3].starts_with("GRANT ") => {}
            "DSYN" => {
                let [end, vanish] = changes_of(&command, &command[1].clone(), "lock");
                assert!(
                    end.contains(" lapsed ") && vanish == "VANISH",
                    "{command:?}"
                );
                ended.push(command[1].clone());
            }
            _ => panic!("inside {inside}: {command:?}"),
        }
    }
    ended.sort();
    ended.dedup();
    assert_eq!(ended.len(), 200);
}

#[test]
fn internal_commands_are_refused_to_clients() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    let writable = Server::builder()
        .config("replica-read-only", "no")
        .replica_of(&primary)
        .start();
    let now = unix_ms();
    let grant = format!("GRANT 9 exclusive 30000 {} {now} 0 1:t 0:", now + 30_000);
    let packed = packed("lock", &[&grant]);
    for (command, argument) in [(STREAM, &packed[..]), ("DSYNC.APPLY", b"lock:1")] {
        let words = [command.as_bytes(), b"k", argument];
        for server in [&primary, &replica, &writable] {
            let mut client = server.connect();
            let refusal = client.call(&words);
            let why = match server.flavour() {
                it if it.product == Product::Redis && it.version >= (8, 0, 0) => "unknown command",
                _ if std::ptr::eq(server, &replica) => "READONLY",
                _ => "is the server's own way to replicate and cannot be called",
            };
            assert!(refusal.error().contains(why), "from a client: {refusal:?}");
            client.ask("MULTI");
            client.call(&words);
            let done = client.ask("EXEC");
            let refused = match &done {
                Reply::Error(_) => true,
                other => other.as_array().iter().all(Reply::is_error),
            };
            assert!(refused, "in MULTI: {done:?}");
            let script = "return redis.call(ARGV[1], KEYS[1], ARGV[2])";
            assert!(
                call!(client, "EVAL", script, 1, "k", command, argument).is_error(),
                "in Lua"
            );
            let library = "#!lua name=l\nredis.register_function('f', function(keys, args) \
                           return redis.call(args[1], keys[1], args[2]) end)";
            if std::ptr::eq(server, &primary) {
                call!(client, "FUNCTION", "LOAD", "REPLACE", library);
                replica.wait_to_catch_up_with(&primary);
                writable.wait_to_catch_up_with(&primary);
            }
            assert!(
                call!(client, "FCALL", "f", 1, "k", command, argument).is_error(),
                "in a function"
            );
            assert_eq!(client.ask("EXISTS k"), 0);
            assert_eq!(server.info_number("dsync", "dsync_unapplied_changes"), 0);
        }
    }
}
