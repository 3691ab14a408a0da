//! Work-once keys as keys of the server: removed, renamed, of another type, and mistyped requests.
//!
//! `grammar` has what is the same for all commands.

use crate::commands::once_steps::*;
use crate::support::steps::*;
use crate::support::*;

#[test]
fn del_forgets_attempts_and_waiters_run_as_first_attempt() {
    let server = Server::start();
    let mut client = server.connect();
    ask(&mut client, "DONCE.BEGIN job TOKEN a");
    ask(&mut client, "DONCE.FAIL job a REASON r");
    let before = run(&ask(&mut client, "DONCE.BEGIN job TOKEN b"));
    assert_eq!(before.attempt, 2);
    let mut first = queued(&server, "DONCE.BEGIN job MAX 1 TOKEN c BLOCK 0");
    let mut second = queued(&server, "DONCE.BEGIN job BLOCK 0");
    assert_eq!(ask(&mut client, "DEL job"), 1);
    let afresh = run(&reply(&mut first));
    assert_eq!(afresh.attempt, 1);
    assert!(afresh.fence > before.fence);
    second.expect_silence(A_WHILE);
    assert!(about(&mut client, "job", "last-reason").is_nil());
    for line in ["DONCE.DONE job b", "DONCE.FAIL job b", "DONCE.RENEW job b"] {
        assert_eq!(ask(&mut client, line), 0, "{line}");
    }
    assert_eq!(ask(&mut client, "DONCE.DONE job c RESULT r"), 1);
    assert_done(&reply(&mut second), Some(b"r"), 1);
    // A key that is removed after DONE forgets the result: the work may run again.
    assert_eq!(ask(&mut client, "UNLINK job"), 1);
    assert_eq!(ask(&mut client, "DONCE.DONE job c"), 0, "forgotten");
    assert_eq!(attempt(&ask(&mut client, "DONCE.BEGIN job TOKEN d")), 1);
    ask(&mut client, "FLUSHALL");
    assert_eq!(attempt(&ask(&mut client, "DONCE.BEGIN job TOKEN e")), 1);
}

#[test]
fn rename_moves_attempts_and_leaves_waiters() {
    let server = Server::start();
    let mut client = server.connect();
    ask(&mut client, "DONCE.BEGIN job TOKEN a");
    ask(&mut client, "DONCE.FAIL job a");
    ask(&mut client, "DONCE.BEGIN job TOKEN b");
    let mut waiter = queued(&server, "DONCE.BEGIN job BLOCK 0");
    assert_eq!(ask(&mut client, "RENAME job elsewhere"), "OK");
    assert_eq!(attempt(&reply(&mut waiter)), 1);
    assert_eq!(attempts(&mut client, "elsewhere"), 2);
    assert_eq!(ask(&mut client, "DONCE.DONE elsewhere b RESULT r"), 1);
    assert_done(&ask(&mut client, "DONCE.BEGIN elsewhere"), Some(b"r"), 2);
}

#[test]
fn once_commands_and_other_types_refuse_each_others_keys() {
    let server = Server::start();
    let mut client = server.connect();
    ask(&mut client, "SET string x");
    ask(&mut client, "DLOCK.ACQUIRE lock TOKEN t");
    for key in ["string", "lock"] {
        for line in [
            "DONCE.BEGIN KEY",
            "DONCE.BEGIN KEY BLOCK 0",
            "DONCE.DONE KEY t",
            "DONCE.FAIL KEY t",
            "DONCE.RELEASE KEY t",
            "DONCE.RENEW KEY t",
            "DONCE.CHECK KEY t",
            "DONCE.REVOKE KEY 1",
            "DONCE.INFO KEY",
        ] {
            let reply = ask(&mut client, line.replace("KEY", key));
            assert!(reply.error().starts_with("WRONGTYPE "), "{line} {key}");
        }
    }
    ask(&mut client, "DONCE.BEGIN job TOKEN t");
    for line in [
        "DLOCK.ACQUIRE job",
        "DSEM.ACQUIRE job LIMIT 1",
        "DWG.ADD job",
        "GET job",
    ] {
        let reply = ask(&mut client, line);
        assert!(reply.error().starts_with("WRONGTYPE "), "{line}: {reply:?}");
    }
    // A key that is overwritten by another type answers its waiters.
    let mut waiter = queued(&server, "DONCE.BEGIN job BLOCK 0");
    assert_eq!(ask(&mut client, "SET job x"), "OK");
    assert!(reply(&mut waiter).error().starts_with("WRONGTYPE "));
}

/// Asserts that the line is refused with `ERR`, and returns the error.
#[track_caller]
fn refused(client: &mut Client, line: &str) -> String {
    let reply = ask(client, line);
    let words = reply.error().to_owned();
    assert!(words.starts_with("ERR "), "{line}: {words}");
    words
}

#[test]
fn once_command_mistyped_is_refused_and_changes_nothing() {
    let server = Server::start();
    let mut client = server.connect();
    ask(&mut client, "DONCE.BEGIN job TOKEN t EX 1000");
    let before = digest(&server, "job");
    let cases: &[(&str, &[&str])] = &[
        ("DONCE.BEGIN", &["wrong number"]),
        ("DONCE.BEGIN job MAX", &["MAX has no value"]),
        ("DONCE.BEGIN job MAX 0", &["MAX", "1 to 1000000", "'0'"]),
        (
            "DONCE.BEGIN job MAX 1000001",
            &["MAX", "1 to 1000000", "'1000001'"],
        ),
        ("DONCE.BEGIN job MAX -1", &["MAX", "'-1'"]),
        ("DONCE.BEGIN job MAX x", &["MAX", "'x'"]),
        ("DONCE.BEGIN job MAX 1 MAX 1", &["MAX is given twice"]),
        ("DONCE.BEGIN job EX 1 PX 1", &["EX or PX is given twice"]),
        (
            "DONCE.BEGIN job EX 86401",
            &["EX", "1 to 86400", "dsync.max-lease-ms", "'86401'"],
        ),
        ("DONCE.BEGIN job PX 0", &["PX", "1 to 86400000", "'0'"]),
        ("DONCE.BEGIN job BLOCK -1", &["BLOCK", "'-1'"]),
        ("DONCE.BEGIN job SHARED", &["'SHARED'"]),
        ("DONCE.BEGIN job LIMIT 1", &["'LIMIT'"]),
        ("DONCE.BEGIN job PERMITS 1", &["'PERMITS'"]),
        ("DONCE.BEGIN job RESULT r", &["'RESULT'"]),
        ("DLOCK.ACQUIRE job MAX 1", &["'MAX'"]),
        ("DONCE.DONE", &["wrong number"]),
        ("DONCE.DONE job", &["wrong number"]),
        ("DONCE.DONE job t RESULT", &["RESULT has no value"]),
        (
            "DONCE.DONE job t RESULT a RESULT b",
            &["RESULT is given twice"],
        ),
        ("DONCE.DONE job t EX 1 PX 1", &["EX or PX is given twice"]),
        ("DONCE.DONE job t EX 0", &["EX", "1 to 315360000", "'0'"]),
        (
            "DONCE.DONE job t EX 315360001",
            &["EX", "1 to 315360000", "'315360001'"],
        ),
        ("DONCE.DONE job t PX 0", &["PX", "1 to 315360000000", "'0'"]),
        (
            "DONCE.DONE job t PX 315360000001",
            &["PX", "1 to 315360000000"],
        ),
        ("DONCE.DONE job t PX 9223372036854775808", &["PX"]),
        ("DONCE.DONE job t EX 9223372036854775807", &["EX"]),
        ("DONCE.DONE job t EX", &["EX has no value"]),
        ("DONCE.DONE job t REASON r", &["'REASON'"]),
        ("DONCE.FAIL", &["wrong number"]),
        ("DONCE.FAIL job", &["wrong number"]),
        ("DONCE.FAIL job t REASON", &["REASON has no value"]),
        (
            "DONCE.FAIL job t REASON a REASON b",
            &["REASON is given twice"],
        ),
        ("DONCE.FAIL job t RESULT r", &["'RESULT'"]),
        ("DONCE.FAIL job t REASON a EX 1", &["'EX'"]),
        ("DONCE.RELEASE job", &["wrong number"]),
        ("DONCE.RELEASE job t x", &["wrong number"]),
    ];
    for (line, words) in cases {
        let error = refused(&mut client, line);
        for word in *words {
            assert!(error.contains(word), "{line}: {word:?} is not in {error:?}");
        }
    }
    let long = "x".repeat(129);
    for line in [
        format!("DONCE.BEGIN job TOKEN {long}"),
        format!("DONCE.DONE job {long}"),
        format!("DONCE.FAIL job {long}"),
    ] {
        let error = refused(&mut client, &line);
        assert!(error.contains("1 to 128 bytes, not 129"), "{error}");
        assert!(!error.contains("xxx"), "{error}");
    }
    assert_eq!(digest(&server, "job"), before, "nothing has changed");

    // Accepted: options in another order and in lower case, and values at their bounds.
    ask(&mut client, "donce.fail job t");
    let line = "donce.begin job owner o max 1000000 block 0 px 86400000 token t ephemeral";
    assert_eq!(attempt(&ask(&mut client, line)), 2);
    assert_eq!(ask(&mut client, "donce.done job t ex 1 result r"), 1);
}
