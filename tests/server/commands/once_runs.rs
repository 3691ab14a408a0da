//! Work-once, runs: one client runs at a time, and however its run ends, the next in the queue gets the work.
//!
//! Also here: a request that is sent again with its token finds its run or its place. When waiters give up is in
//! `once_give_up`; what becomes of a result is in `once_results`.

use crate::commands::once_steps::*;
use crate::support::steps::*;
use crate::support::*;
use std::time::Duration;

/// Checks the four replies of BEGIN on a connection, whichever protocol it speaks.
fn assert_all_replies(mut client: Client) {
    let first = run(&client.ask("DONCE.BEGIN job TOKEN t"));
    assert_eq!((first.token.as_str(), first.attempt), ("t", 1));
    assert!(client.ask("DONCE.BEGIN job").is_nil());
    assert_eq!(client.ask("DONCE.FAIL job t REASON broken"), 1);
    assert_failed(&client.ask("DONCE.BEGIN job MAX 1"), "broken", 1);
    let second = run(&client.ask("DONCE.BEGIN job MAX 2"));
    assert_eq!(second.token.len(), 36, "the server's own token: {second:?}");
    assert_eq!(second.attempt, 2);
    assert!(second.fence > first.fence);
    let line = format!("DONCE.DONE job {} RESULT 42", second.token);
    assert_eq!(client.ask(line), 1);
    assert_done(&client.ask("DONCE.BEGIN job"), Some(b"42"), 2);

    // Without RESULT the result is nil; an empty RESULT stays an empty string.
    client.ask("DONCE.BEGIN without TOKEN t");
    assert_eq!(client.ask("DONCE.DONE without t"), 1);
    assert_done(&client.ask("DONCE.BEGIN without"), None, 1);
    client.ask("DONCE.BEGIN empty TOKEN t");
    assert_eq!(call!(client, "DONCE.DONE", "empty", "t", "RESULT", ""), 1);
    assert_done(&client.ask("DONCE.BEGIN empty"), Some(b""), 1);
}

#[test]
fn begin_answers_run_done_failed_or_nil_in_both_protocols() {
    assert_all_replies(Server::start().connect());
    assert_all_replies(Server::start().connect_resp3());
}

#[test]
fn begin_waiters_get_replies_in_their_own_protocol() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DONCE.BEGIN job TOKEN t");
    let mut waiters = [
        server.connect(),
        server.connect_resp3(),
        server.connect_resp3(),
        server.connect(),
        server.connect_resp3(),
    ];
    let [run_out, failed, runs, done, done_too] = &mut waiters;
    failed.wait_on(&server, "DONCE.BEGIN job MAX 1 BLOCK 0");
    runs.wait_on(&server, "DONCE.BEGIN job TOKEN u BLOCK 0");
    done.wait_on(&server, "DONCE.BEGIN job BLOCK 0");
    done_too.wait_on(&server, "DONCE.BEGIN job BLOCK 0");
    run_out.begin("DONCE.BEGIN job BLOCK 30");
    assert!(run_out.reply().is_nil());
    assert_eq!(client.ask("DONCE.FAIL job t"), 1);
    assert_failed(&failed.reply(), "failed", 1);
    assert_eq!(attempt(&runs.reply()), 2);
    assert_eq!(client.ask("DONCE.DONE job u RESULT r"), 1);
    assert_done(&done.reply(), Some(b"r"), 2);
    assert_done(&done_too.reply(), Some(b"r"), 2);
}

#[test]
fn one_runs_and_others_wait_in_order() {
    let server = Server::start();
    let mut client = server.connect();
    let first = run(&client.ask("DONCE.BEGIN job TOKEN a"));
    let mut second = server.waiting("DONCE.BEGIN job TOKEN b BLOCK 0");
    let mut third = server.waiting("DONCE.BEGIN job TOKEN c BLOCK 0");
    assert!(
        client.ask("DONCE.BEGIN job").is_nil(),
        "a try answers at once"
    );
    second.expect_silence(A_WHILE);
    assert_eq!(client.ask("DONCE.FAIL job a REASON one"), 1);
    let next = run(&second.reply());
    assert_eq!((next.token.as_str(), next.attempt), ("b", 2));
    assert!(next.fence > first.fence);
    third.expect_silence(A_WHILE);
    assert_eq!(about(&mut client, "job", "state"), *"running");
    assert_eq!(about(&mut client, "job", "last-reason"), *"one");
    assert_eq!(client.ask("DONCE.FAIL job b"), 1);
    assert_eq!(attempt(&third.reply()), 3);
    assert_eq!(about(&mut client, "job", "last-reason"), *"failed");
}

/// For each way to end a run: the next waiter's attempt, and the reason that INFO shows. RELEASE counts no attempt.
#[test]
fn run_that_ends_unfinished_goes_to_next_waiter_with_its_attempt() {
    struct WayToEnd {
        /// For the messages of failures.
        name: &'static str,
        begin: &'static str,
        /// The command that ends the run; without one, the worker's connection is closed.
        line: Option<&'static str>,
        attempt: i64,
        reason: Option<&'static str>,
    }
    let end = |name, begin, line, attempt, reason| WayToEnd {
        name,
        begin,
        line,
        attempt,
        reason,
    };
    let long = "DONCE.BEGIN job TOKEN t PX 60000";
    let ends = [
        end(
            "fail",
            long,
            Some("DONCE.FAIL job t REASON oh"),
            2,
            Some("oh"),
        ),
        end(
            "lapse",
            long,
            Some("DONCE.RENEW job t PX 20"),
            2,
            Some("lapsed"),
        ),
        end(
            "revoke",
            long,
            Some("DONCE.REVOKE job FENCE"),
            2,
            Some("revoked"),
        ),
        end(
            "disconnect",
            "DONCE.BEGIN job TOKEN t PX 60000 EPHEMERAL",
            None,
            2,
            Some("lapsed"),
        ),
        end("release", long, Some("DONCE.RELEASE job t"), 1, None),
    ];
    for WayToEnd {
        name,
        begin,
        line,
        attempt,
        reason,
    } in ends
    {
        let server = Server::start();
        let mut admin = server.connect();
        let mut worker = server.connect();
        let first = run(&worker.ask(begin));
        let mut waiter = server.waiting("DONCE.BEGIN job TOKEN next PX 60000 BLOCK 0");
        let mut behind = server.waiting("DONCE.BEGIN job BLOCK 0");
        if let Some(line) = line {
            let line = line.replace("FENCE", &first.fence.to_string());
            assert_eq!(admin.ask(line), 1, "{name}");
        } else if begin.ends_with("EPHEMERAL") {
            worker.close();
        }
        let next = run(&waiter.reply());
        assert_eq!(next.attempt, attempt, "after {name}");
        assert!(next.fence > first.fence, "after {name}");
        let known = about(&mut admin, "job", "last-reason");
        match reason {
            Some(reason) => assert_eq!(known, *reason, "after {name}"),
            None => assert!(known.is_nil(), "after {name}: {known:?}"),
        }
        assert_eq!(attempts(&mut admin, "job"), attempt, "after {name}");
        // The token of the run that ended can no longer report on the work.
        for line in ["DONCE.DONE job t RESULT stale", "DONCE.FAIL job t"] {
            assert_eq!(admin.ask(line), 0, "{line} after {name}");
        }
        behind.expect_silence(Duration::from_millis(10));
        assert_eq!(admin.ask("DONCE.DONE job next"), 1);
        assert_done(&behind.reply(), None, attempt);
    }
}

#[test]
fn released_run_counts_no_attempt() {
    let server = Server::start();
    let mut client = server.connect();
    for _ in 0..3 {
        assert_eq!(attempt(&client.ask("DONCE.BEGIN job MAX 1 TOKEN t")), 1);
        assert_eq!(client.ask("DONCE.RELEASE job t"), 1);
    }
    assert_eq!(client.ask("EXISTS job"), 0, "no attempt, so no key");
    client.ask("DONCE.BEGIN job TOKEN a");
    assert_eq!(client.ask("DONCE.FAIL job a REASON first"), 1);
    for _ in 0..3 {
        assert_eq!(attempt(&client.ask("DONCE.BEGIN job MAX 2 TOKEN t")), 2);
        assert_eq!(client.ask("DONCE.RELEASE job t"), 1);
        assert_eq!(attempts(&mut client, "job"), 1);
    }
    assert_eq!(client.ask("DONCE.RELEASE job t"), 0);
    assert_eq!(about(&mut client, "job", "last-reason"), *"first");
    // The token of a released run cannot complete the work.
    assert_eq!(client.ask("DONCE.DONE job t"), 0);
}

#[test]
fn undelivered_run_counts_no_attempt() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DONCE.BEGIN job TOKEN a");
    let mut lost = server.connect();
    let id = lost.id();
    lost.wait_on(&server, "DONCE.BEGIN job BLOCK 0");
    let mut next = server.waiting("DONCE.BEGIN job TOKEN next MAX 2 BLOCK 0");
    let replies = client.ask_all([
        "DONCE.FAIL job a REASON first".to_owned(),
        format!("CLIENT KILL ID {id}"),
    ]);
    assert_eq!(replies, [Reply::Int(1), Reply::Int(1)]);
    lost.expect_closed(SOON);
    assert_eq!(attempt(&next.reply()), 2);
    assert_eq!(attempts(&mut client, "job"), 2);
    assert_eq!(about(&mut client, "job", "last-reason"), *"first");
    assert_eq!(server.info_number("dsync", "dsync_once_undelivered"), 1);
}

#[test]
fn overdue_run_can_still_be_ended_or_renewed_by_its_token() {
    let server = Server::start();
    let mut client = server.connect();
    for (line, state) in [
        ("DONCE.DONE job t RESULT r", "done"),
        ("DONCE.FAIL job t", "idle"),
        ("DONCE.RENEW job t", "running"),
    ] {
        let replies = client.ask_all([
            "DONCE.BEGIN job TOKEN t PX 20",
            "DEBUG SLEEP 0.06",
            "DONCE.CHECK job t",
            line,
            "DONCE.INFO job",
            "DEL job",
        ]);
        assert_eq!(replies[2], 0, "overdue before {line}");
        assert_eq!(replies[3], 1, "{line}");
        assert_eq!(*replies[4].field("state"), state, "{line}");
    }
}

#[test]
fn begin_by_running_token_answers_the_same_run() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DONCE.BEGIN job TOKEN before");
    client.ask("DONCE.FAIL job before");
    let first = run(&client.ask("DONCE.BEGIN job TOKEN t EX 10 MAX 2"));
    assert_eq!(first.attempt, 2);
    // Also on another connection, with BLOCK, with MAX reached, and while others wait.
    let mut waiter = server.waiting("DONCE.BEGIN job TOKEN w BLOCK 0");
    for line in [
        "DONCE.BEGIN job TOKEN t EX 1000",
        "DONCE.BEGIN job TOKEN t EX 1000 MAX 1 BLOCK 0",
    ] {
        assert_eq!(run(&server.connect().ask(line)), first, "{line}");
    }
    assert!(client.ask("DONCE.CHECK job t").as_int() > 900_000);
    assert_eq!(attempts(&mut client, "job"), 2);
    // An EPHEMERAL run ends with the connection that asked last, not with the one before.
    let mut old = server.connect();
    let mut new = server.connect();
    let ephemeral = "DONCE.BEGIN job TOKEN t EX 1000 EPHEMERAL";
    assert_eq!(run(&old.ask(ephemeral)), first);
    assert_eq!(run(&new.ask(ephemeral)), first);
    old.close();
    waiter.expect_silence(A_WHILE);
    new.close();
    assert_eq!(attempt(&waiter.reply()), 3);
    // The run is over, so a BEGIN with its token is a new request.
    assert!(client.ask("DONCE.BEGIN job TOKEN t").is_nil());
    assert_eq!(client.ask("DONCE.DONE job w RESULT r"), 1);
    for token in ["t", "w"] {
        let again = client.ask(format!("DONCE.BEGIN job TOKEN {token} BLOCK 0"));
        assert_done(&again, Some(b"r"), 3);
    }
}

#[test]
fn begin_by_queued_token_takes_over_its_place_with_the_new_max() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("CONFIG SET dsync.rejoin-ms 60000");
    client.ask("DONCE.BEGIN job TOKEN a");
    let mut old = server.waiting("DONCE.BEGIN job MAX 1 TOKEN t BLOCK 0");
    let mut behind = server.waiting("DONCE.BEGIN job TOKEN b BLOCK 0");
    assert!(
        client.ask("DONCE.BEGIN job MAX 9 TOKEN t").is_nil(),
        "a try changes nothing"
    );
    let mut new = server.connect();
    new.begin("DONCE.BEGIN job MAX 2 TOKEN t BLOCK 0");
    let superseded = old.reply();
    assert!(
        superseded.error().starts_with("UNBLOCKED superseded"),
        "{superseded:?}"
    );
    // The place can be taken over again after its connection closed.
    new.close();
    server.wait_for_blocked(1);
    let mut newest = server.waiting("DONCE.BEGIN job MAX 2 TOKEN t BLOCK 0");
    assert_eq!(client.ask("DONCE.FAIL job a"), 1);
    assert_eq!(attempt(&newest.reply()), 2);
    behind.expect_silence(A_WHILE);
    // A vacant place does not hold up DONE, and its token gets the result.
    client.ask("DONCE.BEGIN other TOKEN a");
    server.waiting("DONCE.BEGIN other TOKEN t BLOCK 0").close();
    server.wait_for_blocked(1);
    assert_eq!(client.ask("DONCE.DONE other a"), 1);
    assert_done(&client.ask("DONCE.BEGIN other TOKEN t BLOCK 0"), None, 1);
    assert_eq!(client.ask("DONCE.FAIL job t"), 1);
    assert_eq!(attempt(&behind.reply()), 3);
}

#[test]
fn begin_by_same_token_with_other_options_is_no_mismatch() {
    let server = Server::start();
    let mut client = server.connect();
    let requests = [
        "EX 5",
        "PX 7000 MAX 3",
        "MAX 1 OWNER other",
        "EPHEMERAL",
        "MAX 1000000 EX 100 OWNER x EPHEMERAL",
    ];
    let first = run(&client.ask("DONCE.BEGIN job TOKEN t OWNER me MAX 2"));
    for options in requests {
        let again = client.ask(format!("DONCE.BEGIN job TOKEN t {options}"));
        assert_eq!(run(&again), first, "{options}");
    }
    let mut waiter = server.waiting("DONCE.BEGIN job TOKEN w OWNER me MAX 2 BLOCK 0");
    for options in requests {
        let again = client.ask(format!("DONCE.BEGIN job TOKEN w {options}"));
        assert!(again.is_nil(), "{options}: {again:?}");
        let mut retry = server.connect();
        retry.begin(format!("DONCE.BEGIN job TOKEN w BLOCK 0 {options}"));
        let old = waiter.reply();
        assert!(
            old.error().starts_with("UNBLOCKED superseded"),
            "{options}: {old:?}"
        );
        waiter = retry;
    }
    assert_eq!(client.ask("DONCE.DONE job t"), 1);
    assert_done(&waiter.reply(), None, 1);
}

#[test]
fn run_is_untouched_by_other_tokens() {
    let server = Server::start();
    let mut client = server.connect();
    for line in [
        "DONCE.DONE job t",
        "DONCE.FAIL job t",
        "DONCE.RELEASE job t",
    ] {
        assert_eq!(client.ask(line), 0, "{line} of no key");
    }
    assert_eq!(client.ask("EXISTS job"), 0);
    client.ask("DONCE.BEGIN job TOKEN t EX 1000");
    let mut waiter = server.waiting("DONCE.BEGIN job TOKEN w BLOCK 0");
    let before = server.digest("job");
    for token in ["u", "w", "T"] {
        for line in ["DONE", "FAIL", "RENEW", "CHECK"] {
            assert_eq!(client.ask(format!("DONCE.{line} job {token}")), 0);
        }
    }
    for token in ["u", "T"] {
        assert_eq!(client.ask(format!("DONCE.RELEASE job {token}")), 0);
    }
    assert_eq!(server.digest("job"), before);
    waiter.expect_silence(A_WHILE);
    assert!(client.ask("DONCE.CHECK job t").as_int() > 900_000);
    assert_eq!(client.ask("DONCE.RENEW job t EX 2000"), 1);
    assert!(client.ask("DONCE.CHECK job t").as_int() > 1_900_000);
}

#[test]
fn begin_in_transaction_or_script_is_a_try() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DONCE.BEGIN job TOKEN t");
    let replies = client.ask_all([
        "MULTI",
        "DONCE.BEGIN job BLOCK 0",
        "DONCE.BEGIN other BLOCK 0 TOKEN u",
        "EXEC",
    ]);
    let results = replies[3].as_array();
    assert!(results[0].is_nil());
    assert_eq!(attempt(&results[1]), 1);
    let script = "return redis.call('DONCE.BEGIN', KEYS[1], 'BLOCK', 0)";
    assert!(call!(client, "EVAL", script, 1, "job").is_nil());
    let script = "return redis.call('DONCE.DONE', KEYS[1], ARGV[1], 'RESULT', 'r')";
    assert_eq!(call!(client, "EVAL", script, 1, "job", "t"), 1);
    let script = "return redis.call('DONCE.BEGIN', KEYS[1])";
    let done = call!(client, "EVAL", script, 1, "job");
    assert_done(&done, Some(b"r"), 1);
    let ephemeral = "return redis.pcall('DONCE.BEGIN', 'third', 'EPHEMERAL')";
    assert!(call!(client, "EVAL", ephemeral, 0).is_error());
    assert_eq!(client.ask("EXISTS third"), 0);
}
