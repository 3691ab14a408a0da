//! Work-once keys in every state survive RDB and AOF files, DUMP, DEBUG RELOAD, replication and a promotion; and the
//! replication stream has exactly what happened.

use crate::commands::once_steps::*;
use crate::support::steps::*;
use crate::support::*;
use std::fs;
use std::time::Duration;

/// A key for each state of work-once; `add_fixtures` makes them, `assert_in_use` knows what each must still do.
const FIXTURES: [&str; 11] = [
    "running",
    "second",
    "failed",
    "delayed",
    "lapsed",
    "revoked",
    "given-up",
    "done",
    "done-without",
    "done-empty",
    "done-for-ever",
];

/// A result with every byte, and words that the packed form could mistake for its own.
fn binary() -> Vec<u8> {
    (0..=255).chain(*b"\r\n NONE 3:abc").collect()
}

fn add_fixtures(server: &Server) {
    let mut client = server.connect();
    client.ask("DONCE.BEGIN running TOKEN t EX 600 OWNER me");
    client.ask("DONCE.BEGIN second TOKEN a");
    let reason = call!(client, "DONCE.FAIL", "second", "a", "REASON", binary());
    assert_eq!(reason, 1);
    client.ask("DONCE.BEGIN second TOKEN t EX 600");
    for _ in 0..3 {
        client.ask("DONCE.BEGIN failed TOKEN t");
        assert_eq!(client.ask("DONCE.FAIL failed t REASON lapsed"), 1);
    }
    client.ask("DONCE.BEGIN delayed TOKEN t");
    let fail = "DONCE.FAIL delayed t REASON overload DELAY 86400000";
    assert_eq!(client.ask(fail), 1);
    for key in ["lapsed", "given-up"] {
        client.ask(format!("DONCE.BEGIN {key} TOKEN t PX 10"));
        wait_until_idle(&mut client, key);
    }
    assert_failed(&client.ask("DONCE.BEGIN given-up MAX 1"), "lapsed", 1);
    let fence = run(&client.ask("DONCE.BEGIN revoked TOKEN t")).fence;
    assert_eq!(client.ask(format!("DONCE.REVOKE revoked {fence}")), 1);
    for key in ["done", "done-without", "done-empty", "done-for-ever"] {
        client.ask(format!("DONCE.BEGIN {key} TOKEN t"));
    }
    let done = "DONCE.DONE done-for-ever t RESULT r PERSIST";
    assert_eq!(client.ask(done), 1);
    assert_eq!(
        call!(client, "DONCE.DONE", "done", "t", "RESULT", binary()),
        1
    );
    assert_eq!(client.ask("DONCE.DONE done-without t EX 700"), 1);
    assert_eq!(
        call!(client, "DONCE.DONE", "done-empty", "t", "RESULT", ""),
        1
    );
}

/// The digest of each fixture and of the whole data set.
fn digests(server: &Server) -> Vec<(&'static str, String)> {
    let each = FIXTURES.iter().map(|key| (*key, server.digest(key)));
    let whole = server.connect().ask("DEBUG DIGEST");
    each.chain([("all", whole.as_str().to_owned())]).collect()
}

/// Asserts that the fixtures still work: their runs, attempts, reasons and results, and whose DONE counts.
#[track_caller]
fn assert_in_use(server: &Server) {
    let mut client = server.connect();
    assert!(client.ask("DONCE.BEGIN running").is_nil());
    assert_eq!(attempt(&client.ask("DONCE.BEGIN running TOKEN t")), 1);
    assert_eq!(client.ask("DONCE.DONE running t RESULT r"), 1);
    assert_done(&client.ask("DONCE.BEGIN running"), Some(b"r"), 1);
    assert_eq!(about(&mut client, "second", "attempts"), 2);
    assert_eq!(
        about(&mut client, "second", "last-reason").as_bytes(),
        binary()
    );
    assert_eq!(client.ask("DONCE.FAIL second a"), 0);
    assert_eq!(client.ask("DONCE.FAIL second t REASON r"), 1);
    assert_failed(&client.ask("DONCE.BEGIN second MAX 2"), "r", 2);
    assert_failed(&client.ask("DONCE.BEGIN failed MAX 3"), "lapsed", 3);
    assert_eq!(attempt(&client.ask("DONCE.BEGIN failed MAX 4")), 4);
    assert_eq!(about(&mut client, "delayed", "state"), *"delayed");
    let left_ms = about(&mut client, "delayed", "delay-left-ms").as_int();
    assert!((1..=86_400_000).contains(&left_ms), "{left_ms}");
    assert!(client.ask("DONCE.BEGIN delayed TOKEN u").is_nil());
    assert_failed(&client.ask("DONCE.BEGIN delayed MAX 1"), "overload", 1);
    // DONE of a lapsed run counts, unless a request was answered FAILED since.
    assert_eq!(client.ask("DONCE.DONE lapsed t RESULT late"), 1);
    assert_done(&client.ask("DONCE.BEGIN lapsed"), Some(b"late"), 1);
    assert_eq!(client.ask("DONCE.DONE given-up t"), 0);
    assert_failed(&client.ask("DONCE.BEGIN revoked MAX 1"), "revoked", 1);
    assert_done(&client.ask("DONCE.BEGIN done"), Some(&binary()), 1);
    assert_done(&client.ask("DONCE.BEGIN done-without"), None, 1);
    assert_done(&client.ask("DONCE.BEGIN done-empty"), Some(b""), 1);
    assert_done(&client.ask("DONCE.GET done-for-ever"), Some(b"r"), 1);
    assert!(about(&mut client, "done-for-ever", "kept-until-unix-ms").is_nil());
    for key in ["done", "done-without", "done-empty", "done-for-ever"] {
        assert_eq!(client.ask(format!("DONCE.DONE {key} t")), 1, "{key}");
        assert_eq!(client.ask(format!("DONCE.DONE {key} u")), 0, "{key}");
    }
}

#[test]
fn once_keys_survive_rdb_file_and_debug_reload() {
    let mut server = Server::start();
    add_fixtures(&server);
    let before = digests(&server);
    assert_eq!(server.connect().ask("DEBUG RELOAD"), "OK");
    assert_eq!(digests(&server), before);
    assert_eq!(server.connect().ask("SAVE"), "OK");
    server.kill9();
    server.start_again();
    assert_eq!(digests(&server), before);
    assert_in_use(&server);
}

#[test]
fn once_keys_survive_aof_rewritten_or_not() {
    for preamble in ["yes", "no"] {
        let mut server = Server::builder()
            .config("appendonly", "yes")
            .config("appendfsync", "always")
            .config("aof-use-rdb-preamble", preamble)
            .start();
        add_fixtures(&server);
        let before = digests(&server);
        server.kill9();
        server.start_again();
        assert_eq!(digests(&server), before, "as it was written");
        let rewriting = server.connect().ask("BGREWRITEAOF");
        assert!(!rewriting.is_error(), "{rewriting:?}");
        eventually("a rewritten AOF", Duration::from_secs(30), || {
            let info = server.info_section("persistence");
            ["in_progress:0", "scheduled:0"]
                .iter()
                .all(|state| info.contains(&format!("aof_rewrite_{state}")))
        });
        server.kill9();
        server.start_again();
        assert_eq!(digests(&server), before, "rewritten, preamble {preamble}");
        assert_in_use(&server);
    }
}

#[test]
fn once_keys_survive_dump_and_restore() {
    let server = Server::start();
    add_fixtures(&server);
    let mut client = server.connect();
    for key in FIXTURES {
        let payload = client.ask(format!("DUMP {key}"));
        let before = server.digest(key);
        assert_eq!(client.ask(format!("DEL {key}")), 1);
        assert_eq!(call!(client, "RESTORE", key, 0, payload.as_bytes()), "OK");
        assert_eq!(server.digest(key), before, "{key}");
    }
    assert_in_use(&server);
}

#[test]
fn once_keys_are_equal_on_replicas_and_work_after_promotion() {
    let primary = Server::start();
    let early = Server::builder().replica_of(&primary).start();
    add_fixtures(&primary);
    let late = Server::builder().replica_of(&primary).start();
    for replica in [&early, &late] {
        replica.wait_to_catch_up_with(&primary);
        assert_eq!(digests(replica), digests(&primary));
        let mut client = replica.connect();
        let refused = client.ask("DONCE.BEGIN job");
        assert!(refused.error().starts_with("READONLY "), "{refused:?}");
        assert_eq!(replica.info_number("dsync", "dsync_unapplied_changes"), 0);
    }
    drop(primary);
    assert_eq!(early.connect().ask("REPLICAOF NO ONE"), "OK");
    assert_in_use(&early);
}

#[test]
fn once_changes_in_replication_stream_are_exact() {
    let server = Server::start();
    let mut stream = ReplicationStream::attach(&server);
    let mut client = server.connect();
    let mut replicated = || -> Vec<Vec<String>> {
        let commands = stream.take_so_far(&server);
        commands.iter().map(|command| words(command)).collect()
    };
    let apply = |changes: &[String]| -> Vec<String> {
        let head = ["DSYN", "job", "once"].map(str::to_owned);
        head.into_iter().chain(changes.iter().cloned()).collect()
    };
    let number = |change: &str, at: usize| -> u64 {
        let field = change.split(' ').nth(at).expect("a field");
        field.parse().expect("a number")
    };
    let grant = |change: &str, run: &RunGrant, owner: &str| {
        let granted = number(change, 5);
        let RunGrant { token, fence, .. } = run;
        assert!(granted.abs_diff(unix_ms()) < 60_000);
        format!(
            "GRANT {fence} run 30000 {} {granted} 0 {}:{token} {}:{owner}",
            granted + 30_000,
            token.len(),
            owner.len()
        )
    };

    let first = run(&client.ask("DONCE.BEGIN job TOKEN a OWNER me MAX 7"));
    let commands = replicated();
    let change = commands[0].last().expect("a change").clone();
    assert_eq!(commands, [apply(&[grant(&change, &first, "me")])]);

    // A request that waits, a refused try and a refused FAIL replicate nothing.
    let mut waiter = server.waiting("DONCE.BEGIN job TOKEN b BLOCK 0");
    assert!(client.ask("DONCE.BEGIN job").is_nil());
    assert_eq!(client.ask("DONCE.FAIL job x"), 0);
    assert!(replicated().is_empty());

    // One command has the failure and the grant to the next waiter.
    assert_eq!(client.ask("DONCE.FAIL job a REASON oh"), 1);
    let second = run(&waiter.reply());
    let commands = replicated();
    let (at, change) = (number(&commands[0][3], 2), commands[0][4].clone());
    let fail = format!("FAIL {} {at} 2:oh", first.fence);
    assert_eq!(commands, [apply(&[fail, grant(&change, &second, "")])]);

    assert_eq!(client.ask("DONCE.RELEASE job b"), 1);
    let commands = replicated();
    let at = number(&commands[0][3], 3);
    let end = format!("END {} released {at}", second.fence);
    assert_eq!(commands, [apply(&[end])]);

    // FAILED after a FAIL replicates nothing: no lapsed run is left whose DONE it would rule out.
    assert_failed(&client.ask("DONCE.BEGIN job MAX 1"), "oh", 1);
    assert!(replicated().is_empty());

    let third = run(&client.ask("DONCE.BEGIN job TOKEN c PX 20"));
    wait_until_idle(&mut client, "job");
    let commands = replicated();
    assert_eq!(commands.len(), 2, "{commands:?}");
    let at = number(&commands[1][3], 3);
    let lapse = format!("END {} lapsed {at}", third.fence);
    assert_eq!(commands[1], apply(&[lapse]));
    for _ in 0..2 {
        assert_failed(&client.ask("DONCE.BEGIN job MAX 1"), "lapsed", 2);
    }
    assert_eq!(
        replicated(),
        [apply(&["GIVEUP".to_owned()])],
        "replicated once"
    );

    let fourth = run(&client.ask("DONCE.BEGIN job TOKEN d"));
    replicated();
    assert_eq!(client.ask("DONCE.DONE job d RESULT re EX 9"), 1);
    assert_eq!(client.ask("DONCE.DONE job d RESULT xx"), 1);
    assert_done(&client.ask("DONCE.BEGIN job"), Some(b"re"), 3);
    let until = about(&mut client, "job", "kept-until-unix-ms").as_int();
    let done = format!("COMPLETE {} {until} 1:d 2:re", fourth.fence);
    assert_eq!(replicated(), [apply(&[done])]);

    // DONE of a lapsed run has no fence in the change. The primary also replicates the end of the retention.
    assert_eq!(client.ask("DEL job"), 1);
    client.ask("DONCE.BEGIN job TOKEN e PX 20");
    wait_until_idle(&mut client, "job");
    replicated();
    assert_eq!(client.ask("DONCE.DONE job e PX 50"), 1);
    let commands = replicated();
    let until = number(&commands[0][3], 2);
    let done = format!("COMPLETE NONE {until} 1:e NONE");
    assert_eq!(commands[0], apply(&[done]));
    wait_until_gone(&mut client, "job");
    let rest: Vec<_> = commands.into_iter().skip(1).chain(replicated()).collect();
    assert_eq!(rest, [apply(&["VANISH".to_owned()])]);
}

/// docs/acl.md warns that an AOF contains tokens and results.
#[test]
fn results_and_tokens_are_readable_in_the_aof() {
    let server = Server::builder()
        .config("appendonly", "yes")
        .config("appendfsync", "always")
        .start();
    let mut client = server.connect();
    client.ask("DONCE.BEGIN job TOKEN the-token");
    assert_eq!(client.ask("DONCE.DONE job the-token RESULT the-result"), 1);
    let files = fs::read_dir(server.dir().join("appendonlydir")).expect("the AOF's directory");
    let text: Vec<u8> = files
        .flat_map(|file| fs::read(file.expect("a file").path()).expect("it is read"))
        .collect();
    let text = String::from_utf8_lossy(&text);
    for word in ["the-token", "the-result"] {
        assert!(text.contains(word), "{word}");
    }
}
