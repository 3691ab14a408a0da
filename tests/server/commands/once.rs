//! Work-once: one run at a time, handed on until it is done, and the result for everybody.
//!
//! Every rule of the contract has its test: who is told to run and as which attempt, how an attempt ends
//! and what that makes of the next, when to give up, whose DONE is believed, how long what is known is
//! kept, and that all of it survives files, reloads and replication.

use crate::support::steps::*;
use crate::support::*;
use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What BEGIN answers to whoever is to do the work.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Run {
    token: String,
    fence: u64,
    attempt: i64,
}

#[track_caller]
fn run(reply: &Reply) -> Run {
    match reply {
        Reply::Array(items) => match items.as_slice() {
            [
                word,
                token @ Reply::Bulk(_),
                Reply::Int(fence),
                Reply::Int(attempt),
            ] if *word == "RUN" && *fence > 0 => Run {
                token: token.as_str().to_owned(),
                fence: fence.unsigned_abs(),
                attempt: *attempt,
            },
            _ => panic!("expected [RUN, token, fence, attempt], received {reply:?}"),
        },
        other => panic!("expected [RUN, token, fence, attempt], received {other:?}"),
    }
}

#[track_caller]
fn attempt(reply: &Reply) -> i64 {
    run(reply).attempt
}

/// Asserts `["DONE", result, attempt]`.
#[track_caller]
fn assert_done(reply: &Reply, result: Option<&[u8]>, attempt: i64) {
    let result = result.map_or(Reply::Nil, |result| Reply::Bulk(result.to_vec()));
    let done = [Reply::Bulk(b"DONE".to_vec()), result, Reply::Int(attempt)];
    assert_eq!(*reply, Reply::Array(done.to_vec()));
}

/// Asserts `["FAILED", reason, attempts]`.
#[track_caller]
fn assert_failed(reply: &Reply, reason: &str, attempts: i64) {
    let reason = Reply::Bulk(reason.as_bytes().to_vec());
    let failed = [
        Reply::Bulk(b"FAILED".to_vec()),
        reason,
        Reply::Int(attempts),
    ];
    assert_eq!(*reply, Reply::Array(failed.to_vec()));
}

fn about(client: &mut Client, key: &str, field: &str) -> Reply {
    ask(client, format!("DONCE.INFO {key}"))
        .field(field)
        .clone()
}

fn attempts(client: &mut Client, key: &str) -> i64 {
    count(client, "DONCE.INFO", key, "attempts")
}

/// Waits until nobody runs.
#[track_caller]
fn wait_until_idle(client: &mut Client, key: &str) {
    eventually(&format!("the end of the run of {key}"), SOON, || {
        about(client, key, "state") == "idle"
    });
}

fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(since.expect("the clock is past 1970").as_millis()).expect("small")
}

/// The four replies of BEGIN, in one protocol.
fn tell_all_replies(mut client: Client) {
    let first = run(&ask(&mut client, "DONCE.BEGIN job TOKEN t"));
    assert_eq!((first.token.as_str(), first.attempt), ("t", 1));
    assert!(ask(&mut client, "DONCE.BEGIN job").is_nil());
    assert_eq!(ask(&mut client, "DONCE.FAIL job t REASON broken"), 1);
    assert_failed(&ask(&mut client, "DONCE.BEGIN job MAX 1"), "broken", 1);
    let second = run(&ask(&mut client, "DONCE.BEGIN job MAX 2"));
    assert_eq!(second.token.len(), 36, "the server's own token: {second:?}");
    assert_eq!(second.attempt, 2);
    assert!(second.fence > first.fence);
    let line = format!("DONCE.DONE job {} RESULT 42", second.token);
    assert_eq!(ask(&mut client, line), 1);
    assert_done(&ask(&mut client, "DONCE.BEGIN job"), Some(b"42"), 2);

    // No RESULT is nil, and an empty one is not.
    ask(&mut client, "DONCE.BEGIN without TOKEN t");
    assert_eq!(ask(&mut client, "DONCE.DONE without t"), 1);
    assert_done(&ask(&mut client, "DONCE.BEGIN without"), None, 1);
    ask(&mut client, "DONCE.BEGIN empty TOKEN t");
    assert_eq!(call!(client, "DONCE.DONE", "empty", "t", "RESULT", ""), 1);
    assert_done(&ask(&mut client, "DONCE.BEGIN empty"), Some(b""), 1);
}

#[test]
fn the_replies_of_begin_are_run_done_failed_and_nil_in_both_protocols() {
    tell_all_replies(Server::start().connect());
    tell_all_replies(Server::start().connect_resp3());
}

#[test]
fn those_who_wait_are_told_in_the_protocol_they_speak() {
    let server = Server::start();
    let mut client = server.connect();
    ask(&mut client, "DONCE.BEGIN job TOKEN t");
    let mut waiters = [
        server.connect(),
        server.connect_resp3(),
        server.connect_resp3(),
        server.connect(),
        server.connect_resp3(),
    ];
    let [run_out, failed, runs, done, done_too] = &mut waiters;
    queue(&server, failed, "DONCE.BEGIN job MAX 1 BLOCK 0");
    queue(&server, runs, "DONCE.BEGIN job TOKEN u BLOCK 0");
    queue(&server, done, "DONCE.BEGIN job BLOCK 0");
    queue(&server, done_too, "DONCE.BEGIN job BLOCK 0");
    tell(run_out, "DONCE.BEGIN job BLOCK 30");
    assert!(reply(run_out).is_nil());
    assert_eq!(ask(&mut client, "DONCE.FAIL job t"), 1);
    assert_failed(&reply(failed), "failed", 1);
    assert_eq!(attempt(&reply(runs)), 2);
    assert_eq!(ask(&mut client, "DONCE.DONE job u RESULT r"), 1);
    assert_done(&reply(done), Some(b"r"), 2);
    assert_done(&reply(done_too), Some(b"r"), 2);
}

#[test]
fn one_runs_and_the_others_wait_in_line() {
    let server = Server::start();
    let mut client = server.connect();
    let first = run(&ask(&mut client, "DONCE.BEGIN job TOKEN a"));
    let mut second = queued(&server, "DONCE.BEGIN job TOKEN b BLOCK 0");
    let mut third = queued(&server, "DONCE.BEGIN job TOKEN c BLOCK 0");
    assert!(
        ask(&mut client, "DONCE.BEGIN job").is_nil(),
        "a try is at once"
    );
    second.expect_silence(A_WHILE);
    assert_eq!(ask(&mut client, "DONCE.FAIL job a REASON one"), 1);
    let next = run(&reply(&mut second));
    assert_eq!((next.token.as_str(), next.attempt), ("b", 2));
    assert!(next.fence > first.fence);
    third.expect_silence(A_WHILE);
    assert_eq!(about(&mut client, "job", "state"), *"running");
    assert_eq!(about(&mut client, "job", "last-reason"), *"one");
    assert_eq!(ask(&mut client, "DONCE.FAIL job b"), 1);
    assert_eq!(attempt(&reply(&mut third)), 3);
    assert_eq!(about(&mut client, "job", "last-reason"), *"failed");
}

/// How an attempt comes to nothing, or is not made: what the waiter in line and the record are told.
#[test]
fn however_a_run_ends_unfinished_the_next_in_line_has_it_at_once_with_its_number() {
    struct End {
        name: &'static str,
        begin: &'static str,
        line: Option<&'static str>,
        attempt: i64,
        reason: Option<&'static str>,
    }
    let end = |name, begin, line, attempt, reason| End {
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
    for End {
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
        let first = run(&ask(&mut worker, begin));
        let mut waiter = queued(&server, "DONCE.BEGIN job TOKEN next PX 60000 BLOCK 0");
        let mut behind = queued(&server, "DONCE.BEGIN job BLOCK 0");
        if let Some(line) = line {
            let line = line.replace("FENCE", &first.fence.to_string());
            assert_eq!(ask(&mut admin, line), 1, "{name}");
        } else if begin.ends_with("EPHEMERAL") {
            worker.close();
        }
        let next = run(&reply(&mut waiter));
        assert_eq!(next.attempt, attempt, "after {name}");
        assert!(next.fence > first.fence, "after {name}");
        let known = about(&mut admin, "job", "last-reason");
        match reason {
            Some(reason) => assert_eq!(known, *reason, "after {name}"),
            None => assert!(known.is_nil(), "after {name}: {known:?}"),
        }
        assert_eq!(attempts(&mut admin, "job"), attempt, "after {name}");
        // Whoever ran before has no say any more.
        for line in ["DONCE.DONE job t RESULT stale", "DONCE.FAIL job t"] {
            assert_eq!(ask(&mut admin, line), 0, "{line} after {name}");
        }
        behind.expect_silence(Duration::from_millis(10));
        assert_eq!(ask(&mut admin, "DONCE.DONE job next"), 1);
        assert_done(&reply(&mut behind), None, attempt);
    }
}

#[test]
fn a_release_hands_back_without_counting_however_often() {
    let server = Server::start();
    let mut client = server.connect();
    for _ in 0..3 {
        assert_eq!(
            attempt(&ask(&mut client, "DONCE.BEGIN job MAX 1 TOKEN t")),
            1
        );
        assert_eq!(ask(&mut client, "DONCE.RELEASE job t"), 1);
    }
    assert_eq!(ask(&mut client, "EXISTS job"), 0, "nothing is known of it");
    ask(&mut client, "DONCE.BEGIN job TOKEN a");
    assert_eq!(ask(&mut client, "DONCE.FAIL job a REASON first"), 1);
    for _ in 0..3 {
        assert_eq!(
            attempt(&ask(&mut client, "DONCE.BEGIN job MAX 2 TOKEN t")),
            2
        );
        assert_eq!(ask(&mut client, "DONCE.RELEASE job t"), 1);
        assert_eq!(attempts(&mut client, "job"), 1);
    }
    assert_eq!(ask(&mut client, "DONCE.RELEASE job t"), 0);
    assert_eq!(about(&mut client, "job", "last-reason"), *"first");
    // Handed back is not done: its token does not run.
    assert_eq!(ask(&mut client, "DONCE.DONE job t"), 0);
}

#[test]
fn a_run_that_could_not_be_delivered_is_not_counted() {
    let server = Server::start();
    let mut client = server.connect();
    ask(&mut client, "DONCE.BEGIN job TOKEN a");
    let mut lost = server.connect();
    let id = lost.id();
    queue(&server, &mut lost, "DONCE.BEGIN job BLOCK 0");
    let mut next = queued(&server, "DONCE.BEGIN job TOKEN next MAX 2 BLOCK 0");
    let replies = at_once(
        &mut client,
        &[
            "DONCE.FAIL job a REASON first".to_owned(),
            format!("CLIENT KILL ID {id}"),
        ],
    );
    assert_eq!(replies, [Reply::Int(1), Reply::Int(1)]);
    lost.expect_closed(SOON);
    assert_eq!(attempt(&reply(&mut next)), 2);
    assert_eq!(attempts(&mut client, "job"), 2);
    assert_eq!(about(&mut client, "job", "last-reason"), *"first");
    assert_eq!(server.info_number("dsync", "dsync_once_undelivered"), 1);
}

#[test]
fn a_request_gives_up_when_its_own_max_is_reached() {
    let server = Server::start();
    let mut client = server.connect();
    for (n, reason) in ["one", "two", "three"].iter().enumerate() {
        let begun = ask(&mut client, "DONCE.BEGIN job MAX 3 TOKEN t");
        assert_eq!(attempt(&begun), n as i64 + 1);
        // While somebody runs nobody knows yet.
        assert!(ask(&mut client, "DONCE.BEGIN job MAX 1").is_nil());
        assert_eq!(
            ask(&mut client, format!("DONCE.FAIL job t REASON {reason}")),
            1
        );
    }
    for max in 1..=3 {
        for block in ["", "BLOCK 0"] {
            let line = format!("DONCE.BEGIN job MAX {max} {block}");
            assert_failed(&ask(&mut client, line), "three", 3);
        }
    }
    assert_eq!(
        attempt(&ask(&mut client, "DONCE.BEGIN job MAX 4 TOKEN t")),
        4
    );
    assert_eq!(ask(&mut client, "DONCE.FAIL job t"), 1);
    assert_failed(&ask(&mut client, "DONCE.BEGIN job MAX 4"), "failed", 4);
    // Without MAX there is no giving up.
    assert_eq!(attempt(&ask(&mut client, "DONCE.BEGIN job TOKEN t")), 5);
    assert_eq!(ask(&mut client, "DONCE.DONE job t"), 1);
    assert_done(&ask(&mut client, "DONCE.BEGIN job MAX 1"), None, 5);
}

#[test]
fn in_the_queue_too_each_gives_up_by_its_own_max() {
    let server = Server::start();
    let mut client = server.connect();
    ask(&mut client, "DONCE.BEGIN job TOKEN a");
    let mut one = queued(&server, "DONCE.BEGIN job MAX 1 BLOCK 0");
    let mut one_too = queued(&server, "DONCE.BEGIN job MAX 1 BLOCK 0");
    let mut two = queued(&server, "DONCE.BEGIN job MAX 2 TOKEN b BLOCK 0");
    let mut two_too = queued(&server, "DONCE.BEGIN job MAX 2 BLOCK 0");
    let mut any = queued(&server, "DONCE.BEGIN job TOKEN c BLOCK 0");
    assert_eq!(ask(&mut client, "DONCE.FAIL job a REASON first"), 1);
    assert_failed(&reply(&mut one), "first", 1);
    assert_failed(&reply(&mut one_too), "first", 1);
    assert_eq!(attempt(&reply(&mut two)), 2);
    two_too.expect_silence(A_WHILE);
    assert_eq!(ask(&mut client, "DONCE.FAIL job b REASON second"), 1);
    assert_failed(&reply(&mut two_too), "second", 2);
    assert_eq!(attempt(&reply(&mut any)), 3);
}

#[test]
fn the_reason_of_attempts_that_said_none_is_how_they_ended() {
    let server = Server::start();
    let mut client = server.connect();
    ask(&mut client, "DONCE.BEGIN lapsing PX 20");
    wait_until_idle(&mut client, "lapsing");
    assert_failed(&ask(&mut client, "DONCE.BEGIN lapsing MAX 1"), "lapsed", 1);

    let fence = run(&ask(&mut client, "DONCE.BEGIN revoked")).fence;
    assert_eq!(ask(&mut client, format!("DONCE.REVOKE revoked {fence}")), 1);
    assert_failed(&ask(&mut client, "DONCE.BEGIN revoked MAX 1"), "revoked", 1);

    let mut worker = server.connect();
    ask(&mut worker, "DONCE.BEGIN ephemeral EPHEMERAL");
    worker.close();
    wait_until_idle(&mut client, "ephemeral");
    assert_failed(
        &ask(&mut client, "DONCE.BEGIN ephemeral MAX 1"),
        "lapsed",
        1,
    );

    // An overdue run lapses first thing in a competing request.
    let replies = at_once(
        &mut client,
        &[
            "DONCE.BEGIN overdue PX 20",
            "DEBUG SLEEP 0.06",
            "DONCE.BEGIN overdue MAX 1",
            "DONCE.BEGIN overdue MAX 2 TOKEN t",
        ],
    );
    assert_failed(&replies[2], "lapsed", 1);
    assert_eq!(attempt(&replies[3]), 2);
}

#[test]
fn the_result_goes_to_everybody_waiting_and_to_late_comers_until_it_runs_out() {
    let server = Server::start();
    let mut client = server.connect();
    ask(&mut client, "DONCE.BEGIN job TOKEN t");
    let mut waiters: Vec<_> = (0..5)
        .map(|_| queued(&server, "DONCE.BEGIN job BLOCK 0"))
        .collect();
    let binary: Vec<u8> = (0..=255).collect();
    let before = unix_ms();
    let done = call!(
        client,
        "DONCE.DONE",
        "job",
        "t",
        "PX",
        1500,
        "RESULT",
        binary
    );
    assert_eq!(done, 1);
    let after = unix_ms();
    for waiter in &mut waiters {
        assert_done(&reply(waiter), Some(&binary), 1);
        // It had nobody to wait for any more.
        assert_eq!(ask(waiter, "PING"), "PONG");
    }
    let until = about(&mut client, "job", "kept-until-unix-ms").as_int();
    assert!((before + 1_500..=after + 1_500).contains(&until), "{until}");
    assert_eq!(about(&mut client, "job", "result-bytes"), 256);
    assert_eq!(about(&mut client, "job", "state"), *"done");
    // Late comers, waiting or not, as long as it is there.
    loop {
        let reply = ask(&mut client, "DONCE.BEGIN job TOKEN late BLOCK 0 MAX 1");
        if unix_ms() < until {
            assert_done(&reply, Some(&binary), 1);
        } else {
            break;
        }
    }
    wait_until_gone_or_run(&mut client, "job");
    assert!(unix_ms() >= until, "never before its time");
}

/// The result has run out: its key is gone, or has begun anew.
#[track_caller]
fn wait_until_gone_or_run(client: &mut Client, key: &str) {
    eventually(&format!("another run of {key}"), SOON, || {
        let reply = ask(client, format!("DONCE.BEGIN {key} TOKEN late"));
        reply.as_array()[0] == *"RUN" && attempt(&reply) == 1
    });
}

#[test]
fn results_attempts_and_reasons_are_kept_for_once_keep_ms_unless_said_otherwise() {
    let server = Server::start();
    let mut client = server.connect();
    let kept_for = |client: &mut Client, options: &str| {
        ask(client, "DEL job");
        ask(client, "DONCE.BEGIN job TOKEN t");
        let before = unix_ms();
        assert_eq!(ask(client, format!("DONCE.DONE job t {options}")), 1);
        let after = unix_ms();
        let until = about(client, "job", "kept-until-unix-ms").as_int();
        (until - after, until - before)
    };
    for (options, keep) in [
        ("", 86_400_000),
        ("EX 1", 1_000),
        ("RESULT r EX 315360000", 315_360_000_000),
        ("PX 315360000000 RESULT r", 315_360_000_000),
    ] {
        let (least, most) = kept_for(&mut client, options);
        assert!(
            least <= keep && keep <= most,
            "{options}: {least} to {most}"
        );
    }
    ask(&mut client, "CONFIG SET dsync.once-keep-ms 500");
    let (least, most) = kept_for(&mut client, "");
    assert!(least <= 500 && 500 <= most, "{least} to {most}");
    wait_until_gone(&mut client, "job");

    ask(&mut client, "DONCE.BEGIN job TOKEN t");
    let failed_at = unix_ms();
    assert_eq!(ask(&mut client, "DONCE.FAIL job t REASON r"), 1);
    assert_eq!(attempts(&mut client, "job"), 1, "kept for a while");
    wait_until_gone(&mut client, "job");
    assert!(unix_ms() >= failed_at + 500, "never before its time");
    assert_eq!(
        attempt(&ask(&mut client, "DONCE.BEGIN job MAX 1 TOKEN t")),
        1
    );

    // What is going on is not forgotten, however long it takes.
    ask(&mut client, "DONCE.BEGIN other TOKEN a");
    ask(&mut client, "DONCE.FAIL other a REASON r");
    assert_eq!(attempt(&ask(&mut client, "DONCE.BEGIN other TOKEN b")), 2);
    let mut waiter = queued(&server, "DONCE.BEGIN other BLOCK 0");
    waiter.expect_silence(Duration::from_millis(700));
    assert_eq!(ask(&mut client, "DONCE.FAIL other b REASON r"), 1);
    assert_eq!(attempt(&reply(&mut waiter)), 3);
}

#[test]
fn done_again_with_the_winning_token_is_believed_again_and_changes_nothing() {
    let server = Server::start();
    let mut client = server.connect();
    ask(&mut client, "DONCE.BEGIN job TOKEN t");
    assert_eq!(ask(&mut client, "DONCE.DONE job t RESULT first EX 100"), 1);
    let before = digest(&server, "job");
    assert_eq!(ask(&mut client, "DONCE.DONE job t RESULT second EX 9"), 1);
    assert_eq!(ask(&mut client, "DONCE.DONE job t"), 1);
    assert_done(&ask(&mut client, "DONCE.BEGIN job"), Some(b"first"), 1);
    assert_eq!(digest(&server, "job"), before);
    // Nobody else's, and no other way to have ended it.
    assert_eq!(ask(&mut client, "DONCE.DONE job u RESULT second"), 0);
    for line in [
        "DONCE.FAIL job t",
        "DONCE.RELEASE job t",
        "DONCE.RENEW job t",
        "DONCE.CHECK job t",
    ] {
        assert_eq!(ask(&mut client, line), 0, "{line}");
    }
    assert_eq!(digest(&server, "job"), before);
}

#[test]
fn a_stranger_ends_nothing() {
    let server = Server::start();
    let mut client = server.connect();
    for line in [
        "DONCE.DONE job t",
        "DONCE.FAIL job t",
        "DONCE.RELEASE job t",
    ] {
        assert_eq!(ask(&mut client, line), 0, "{line} of no key");
    }
    assert_eq!(ask(&mut client, "EXISTS job"), 0);
    ask(&mut client, "DONCE.BEGIN job TOKEN t EX 1000");
    let mut waiter = queued(&server, "DONCE.BEGIN job TOKEN w BLOCK 0");
    let before = digest(&server, "job");
    for token in ["u", "w", "T"] {
        for line in ["DONE", "FAIL", "RENEW", "CHECK"] {
            assert_eq!(ask(&mut client, format!("DONCE.{line} job {token}")), 0);
        }
    }
    for token in ["u", "T"] {
        assert_eq!(ask(&mut client, format!("DONCE.RELEASE job {token}")), 0);
    }
    assert_eq!(digest(&server, "job"), before);
    waiter.expect_silence(A_WHILE);
    assert!(ask(&mut client, "DONCE.CHECK job t").as_int() > 900_000);
    assert_eq!(ask(&mut client, "DONCE.RENEW job t EX 2000"), 1);
    assert!(ask(&mut client, "DONCE.CHECK job t").as_int() > 1_900_000);
}

#[test]
fn done_after_a_lapse_is_believed_as_long_as_nobody_began_and_nobody_was_told() {
    let server = Server::start();
    let mut client = server.connect();
    let mut lapse = |key: &str| {
        ask(&mut client, format!("DONCE.BEGIN {key} TOKEN t PX 10"));
        wait_until_idle(&mut client, key);
    };
    for key in ["believed", "begun", "tried", "told", "failed", "deleted"] {
        lapse(key);
    }
    assert_eq!(
        ask(&mut client, "DONCE.DONE believed u"),
        0,
        "not of another"
    );
    assert_eq!(ask(&mut client, "DONCE.DONE believed t RESULT r"), 1);
    assert_done(&ask(&mut client, "DONCE.BEGIN believed"), Some(b"r"), 1);
    assert_eq!(ask(&mut client, "DONCE.DONE believed t"), 1, "and again");

    assert_eq!(attempt(&ask(&mut client, "DONCE.BEGIN begun TOKEN u")), 2);
    assert_eq!(ask(&mut client, "DONCE.DONE begun t"), 0);
    assert_eq!(ask(&mut client, "DONCE.FAIL begun u"), 1);
    assert_eq!(
        ask(&mut client, "DONCE.DONE begun t"),
        0,
        "a newer one began"
    );

    // Who renews, checks or looks has not begun.
    assert_eq!(ask(&mut client, "DONCE.RENEW tried t"), 0);
    assert_eq!(
        ask(&mut client, "DONCE.FAIL tried t"),
        0,
        "a lapse is no run"
    );
    about(&mut client, "tried", "state");
    assert_eq!(ask(&mut client, "DONCE.DONE tried t"), 1);

    assert_failed(&ask(&mut client, "DONCE.BEGIN told MAX 1"), "lapsed", 1);
    assert_eq!(
        ask(&mut client, "DONCE.DONE told t"),
        0,
        "somebody was told"
    );
    assert_eq!(attempt(&ask(&mut client, "DONCE.BEGIN told MAX 2")), 2);

    assert_eq!(ask(&mut client, "DEL deleted"), 1);
    assert_eq!(ask(&mut client, "DONCE.DONE deleted t"), 0);

    // One that said itself that it had failed was not silent.
    ask(&mut client, "DONCE.BEGIN said TOKEN t");
    ask(&mut client, "DONCE.FAIL said t");
    assert_eq!(ask(&mut client, "DONCE.DONE said t"), 0);

    // Neither began whoever was told FAILED in the queue.
    ask(&mut client, "DONCE.BEGIN queued TOKEN t EX 600");
    let mut waiter = queued(&server, "DONCE.BEGIN queued MAX 1 BLOCK 0");
    assert_eq!(ask(&mut client, "DONCE.RENEW queued t PX 20"), 1);
    assert_failed(&reply(&mut waiter), "lapsed", 1);
    assert_eq!(ask(&mut client, "DONCE.DONE queued t"), 0);

    // Nor is an ephemeral one that lost its connection refused.
    let mut worker = server.connect();
    ask(&mut worker, "DONCE.BEGIN ephemeral TOKEN t EPHEMERAL");
    worker.close();
    wait_until_idle(&mut client, "ephemeral");
    assert_eq!(ask(&mut client, "DONCE.DONE ephemeral t"), 1);
}

#[test]
fn a_run_that_is_overdue_is_still_its_tokens() {
    let server = Server::start();
    let mut client = server.connect();
    for (line, state) in [
        ("DONCE.DONE job t RESULT r", "done"),
        ("DONCE.FAIL job t", "idle"),
        ("DONCE.RENEW job t", "running"),
    ] {
        let replies = at_once(
            &mut client,
            &[
                "DONCE.BEGIN job TOKEN t PX 20",
                "DEBUG SLEEP 0.06",
                "DONCE.CHECK job t",
                line,
                "DONCE.INFO job",
                "DEL job",
            ],
        );
        assert_eq!(replies[2], 0, "overdue before {line}");
        assert_eq!(replies[3], 1, "{line}");
        assert_eq!(*replies[4].field("state"), state, "{line}");
    }
}

#[test]
fn the_token_that_runs_is_told_the_same_run_again() {
    let server = Server::start();
    let mut client = server.connect();
    ask(&mut client, "DONCE.BEGIN job TOKEN before");
    ask(&mut client, "DONCE.FAIL job before");
    let first = run(&ask(&mut client, "DONCE.BEGIN job TOKEN t EX 10 MAX 2"));
    assert_eq!(first.attempt, 2);
    // Also with its MAX reached, with BLOCK, while others wait, and from elsewhere.
    let mut waiter = queued(&server, "DONCE.BEGIN job TOKEN w BLOCK 0");
    for line in [
        "DONCE.BEGIN job TOKEN t EX 1000",
        "DONCE.BEGIN job TOKEN t EX 1000 MAX 1 BLOCK 0",
    ] {
        assert_eq!(run(&ask(&mut server.connect(), line)), first, "{line}");
    }
    assert!(ask(&mut client, "DONCE.CHECK job t").as_int() > 900_000);
    assert_eq!(attempts(&mut client, "job"), 2);
    // It is bound to the connection that asked last.
    let mut old = server.connect();
    let mut new = server.connect();
    let ephemeral = "DONCE.BEGIN job TOKEN t EX 1000 EPHEMERAL";
    assert_eq!(run(&ask(&mut old, ephemeral)), first);
    assert_eq!(run(&ask(&mut new, ephemeral)), first);
    old.close();
    waiter.expect_silence(A_WHILE);
    new.close();
    assert_eq!(attempt(&reply(&mut waiter)), 3);
    // What it began is over: the token asks like anybody.
    assert!(ask(&mut client, "DONCE.BEGIN job TOKEN t").is_nil());
    assert_eq!(ask(&mut client, "DONCE.DONE job w RESULT r"), 1);
    for token in ["t", "w"] {
        let again = ask(
            &mut client,
            format!("DONCE.BEGIN job TOKEN {token} BLOCK 0"),
        );
        assert_done(&again, Some(b"r"), 3);
    }
}

#[test]
fn a_queued_token_takes_over_its_place_and_its_max() {
    let server = Server::start();
    let mut client = server.connect();
    ask(&mut client, "CONFIG SET dsync.rejoin-ms 60000");
    ask(&mut client, "DONCE.BEGIN job TOKEN a");
    let mut old = queued(&server, "DONCE.BEGIN job MAX 1 TOKEN t BLOCK 0");
    let mut behind = queued(&server, "DONCE.BEGIN job TOKEN b BLOCK 0");
    assert!(
        ask(&mut client, "DONCE.BEGIN job MAX 9 TOKEN t").is_nil(),
        "a try changes nothing"
    );
    let mut new = server.connect();
    tell(&mut new, "DONCE.BEGIN job MAX 2 TOKEN t BLOCK 0");
    let superseded = reply(&mut old);
    assert!(
        superseded.error().starts_with("UNBLOCKED superseded"),
        "{superseded:?}"
    );
    // And once more, after its connection was lost.
    new.close();
    wait_for_blocked(&server, 1);
    let mut newest = queued(&server, "DONCE.BEGIN job MAX 2 TOKEN t BLOCK 0");
    assert_eq!(ask(&mut client, "DONCE.FAIL job a"), 1);
    assert_eq!(attempt(&reply(&mut newest)), 2);
    behind.expect_silence(A_WHILE);
    // A vacant place delays nobody, also not the DONE.
    ask(&mut client, "DONCE.BEGIN other TOKEN a");
    queued(&server, "DONCE.BEGIN other TOKEN t BLOCK 0").close();
    wait_for_blocked(&server, 1);
    assert_eq!(ask(&mut client, "DONCE.DONE other a"), 1);
    assert_done(
        &ask(&mut client, "DONCE.BEGIN other TOKEN t BLOCK 0"),
        None,
        1,
    );
    assert_eq!(ask(&mut client, "DONCE.FAIL job t"), 1);
    assert_eq!(attempt(&reply(&mut behind)), 3);
}

#[test]
fn there_is_no_way_to_a_mismatch() {
    let server = Server::start();
    let mut client = server.connect();
    let requests = [
        "EX 5",
        "PX 7000 MAX 3",
        "MAX 1 OWNER other",
        "EPHEMERAL",
        "MAX 1000000 EX 100 OWNER x EPHEMERAL",
    ];
    let first = run(&ask(&mut client, "DONCE.BEGIN job TOKEN t OWNER me MAX 2"));
    for options in requests {
        let again = ask(&mut client, format!("DONCE.BEGIN job TOKEN t {options}"));
        assert_eq!(run(&again), first, "{options}");
    }
    let mut waiter = queued(&server, "DONCE.BEGIN job TOKEN w OWNER me MAX 2 BLOCK 0");
    for options in requests {
        let again = ask(&mut client, format!("DONCE.BEGIN job TOKEN w {options}"));
        assert!(again.is_nil(), "{options}: {again:?}");
        let mut retry = server.connect();
        tell(
            &mut retry,
            format!("DONCE.BEGIN job TOKEN w BLOCK 0 {options}"),
        );
        let old = reply(&mut waiter);
        assert!(
            old.error().starts_with("UNBLOCKED superseded"),
            "{options}: {old:?}"
        );
        waiter = retry;
    }
    assert_eq!(ask(&mut client, "DONCE.DONE job t"), 1);
    assert_done(&reply(&mut waiter), None, 1);
}

#[test]
fn del_forgets_and_those_who_wait_run_afresh() {
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
    // What was done may be done again, by whoever comes late.
    assert_eq!(ask(&mut client, "UNLINK job"), 1);
    assert_eq!(ask(&mut client, "DONCE.DONE job c"), 0, "forgotten");
    assert_eq!(attempt(&ask(&mut client, "DONCE.BEGIN job TOKEN d")), 1);
    ask(&mut client, "FLUSHALL");
    assert_eq!(attempt(&ask(&mut client, "DONCE.BEGIN job TOKEN e")), 1);
}

#[test]
fn what_is_known_travels_with_a_rename_and_those_who_wait_stay() {
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
fn a_thousand_who_wait_are_all_told_the_result() {
    let server = Server::start();
    let mut client = server.connect();
    ask(&mut client, "DONCE.BEGIN job TOKEN t");
    let mut waiters: Vec<_> = (0..1_000).map(|_| server.connect()).collect();
    for waiter in &mut waiters {
        tell(waiter, "DONCE.BEGIN job MAX 1 BLOCK 0");
    }
    wait_for_blocked(&server, 1_000);
    assert_eq!(count(&mut client, "DONCE.INFO", "job", "waiters"), 1_000);
    assert_eq!(ask(&mut client, "DONCE.DONE job t RESULT r"), 1);
    // While they are being told, a late comer is told too, or waits a moment for its turn.
    assert_done(&ask(&mut client, "DONCE.BEGIN job BLOCK 0"), Some(b"r"), 1);
    for waiter in &mut waiters {
        assert_done(&reply(waiter), Some(b"r"), 1);
        expect_no_more(waiter);
    }
    wait_for_blocked(&server, 0);
    assert_eq!(server.info_number("dsync", "dsync_waiters"), 0);
    assert_eq!(server.info_number("dsync", "dsync_once_granted_at_once"), 1);
    assert_eq!(
        server.info_number("dsync", "dsync_once_granted_after_wait"),
        0
    );
}

#[test]
fn a_thousand_who_wait_are_all_told_that_there_is_no_hope() {
    let server = Server::start();
    let mut client = server.connect();
    ask(&mut client, "DONCE.BEGIN job TOKEN t");
    let mut waiters: Vec<_> = (0..1_000).map(|_| server.connect()).collect();
    for waiter in &mut waiters {
        tell(waiter, "DONCE.BEGIN job MAX 1 BLOCK 0");
    }
    wait_for_blocked(&server, 1_000);
    let mut last = queued(&server, "DONCE.BEGIN job MAX 2 BLOCK 0");
    assert_eq!(ask(&mut client, "DONCE.FAIL job t REASON r"), 1);
    for waiter in &mut waiters {
        assert_failed(&reply(waiter), "r", 1);
    }
    assert_eq!(attempt(&reply(&mut last)), 2);
}

/// Keys in every state of work-once, with what must be known of them.
const FIXTURES: [&str; 9] = [
    "running",
    "second",
    "failed",
    "lapsed",
    "revoked",
    "given-up",
    "done",
    "done-without",
    "done-empty",
];

fn binary() -> Vec<u8> {
    (0..=255).chain(*b"\r\n NONE 3:abc").collect()
}

fn add_fixtures(server: &Server) {
    let mut client = server.connect();
    ask(&mut client, "DONCE.BEGIN running TOKEN t EX 600 OWNER me");
    ask(&mut client, "DONCE.BEGIN second TOKEN a");
    let reason = call!(client, "DONCE.FAIL", "second", "a", "REASON", binary());
    assert_eq!(reason, 1);
    ask(&mut client, "DONCE.BEGIN second TOKEN t EX 600");
    for _ in 0..3 {
        ask(&mut client, "DONCE.BEGIN failed TOKEN t");
        assert_eq!(ask(&mut client, "DONCE.FAIL failed t REASON lapsed"), 1);
    }
    for key in ["lapsed", "given-up"] {
        ask(&mut client, format!("DONCE.BEGIN {key} TOKEN t PX 10"));
        wait_until_idle(&mut client, key);
    }
    assert_failed(&ask(&mut client, "DONCE.BEGIN given-up MAX 1"), "lapsed", 1);
    let fence = run(&ask(&mut client, "DONCE.BEGIN revoked TOKEN t")).fence;
    assert_eq!(ask(&mut client, format!("DONCE.REVOKE revoked {fence}")), 1);
    for key in ["done", "done-without", "done-empty"] {
        ask(&mut client, format!("DONCE.BEGIN {key} TOKEN t"));
    }
    assert_eq!(
        call!(client, "DONCE.DONE", "done", "t", "RESULT", binary()),
        1
    );
    assert_eq!(ask(&mut client, "DONCE.DONE done-without t EX 700"), 1);
    assert_eq!(
        call!(client, "DONCE.DONE", "done-empty", "t", "RESULT", ""),
        1
    );
}

fn digests(server: &Server) -> Vec<(&'static str, String)> {
    let each = FIXTURES.iter().map(|key| (*key, digest(server, key)));
    let whole = call!(server.connect(), "DEBUG", "DIGEST");
    each.chain([("all", whole.as_str().to_owned())]).collect()
}

/// Asserts that the furniture does what it did, down to who is believed.
#[track_caller]
fn assert_in_use(server: &Server) {
    let mut client = server.connect();
    assert!(ask(&mut client, "DONCE.BEGIN running").is_nil());
    assert_eq!(attempt(&ask(&mut client, "DONCE.BEGIN running TOKEN t")), 1);
    assert_eq!(ask(&mut client, "DONCE.DONE running t RESULT r"), 1);
    assert_done(&ask(&mut client, "DONCE.BEGIN running"), Some(b"r"), 1);
    assert_eq!(about(&mut client, "second", "attempts"), 2);
    assert_eq!(
        about(&mut client, "second", "last-reason").as_bytes(),
        binary()
    );
    assert_eq!(ask(&mut client, "DONCE.FAIL second a"), 0);
    assert_eq!(ask(&mut client, "DONCE.FAIL second t REASON r"), 1);
    assert_failed(&ask(&mut client, "DONCE.BEGIN second MAX 2"), "r", 2);
    assert_failed(&ask(&mut client, "DONCE.BEGIN failed MAX 3"), "lapsed", 3);
    assert_eq!(attempt(&ask(&mut client, "DONCE.BEGIN failed MAX 4")), 4);
    // Silent, and nobody began since: believed. Given up: not.
    assert_eq!(ask(&mut client, "DONCE.DONE lapsed t RESULT late"), 1);
    assert_done(&ask(&mut client, "DONCE.BEGIN lapsed"), Some(b"late"), 1);
    assert_eq!(ask(&mut client, "DONCE.DONE given-up t"), 0);
    assert_failed(&ask(&mut client, "DONCE.BEGIN revoked MAX 1"), "revoked", 1);
    assert_done(&ask(&mut client, "DONCE.BEGIN done"), Some(&binary()), 1);
    assert_done(&ask(&mut client, "DONCE.BEGIN done-without"), None, 1);
    assert_done(&ask(&mut client, "DONCE.BEGIN done-empty"), Some(b""), 1);
    for key in ["done", "done-without", "done-empty"] {
        assert_eq!(ask(&mut client, format!("DONCE.DONE {key} t")), 1, "{key}");
        assert_eq!(ask(&mut client, format!("DONCE.DONE {key} u")), 0, "{key}");
    }
}

#[test]
fn everything_known_survives_a_save_and_a_reload() {
    let mut server = Server::start();
    add_fixtures(&server);
    let before = digests(&server);
    assert_eq!(call!(server.connect(), "DEBUG", "RELOAD"), "OK");
    assert_eq!(digests(&server), before);
    assert_eq!(call!(server.connect(), "SAVE"), "OK");
    server.kill9();
    server.start_again();
    assert_eq!(digests(&server), before);
    assert_in_use(&server);
}

#[test]
fn everything_known_survives_in_the_aof_rewritten_or_not() {
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
        let rewriting = call!(server.connect(), "BGREWRITEAOF");
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
fn everything_known_travels_in_a_dump() {
    let server = Server::start();
    add_fixtures(&server);
    let mut client = server.connect();
    for key in FIXTURES {
        let payload = call!(client, "DUMP", key);
        let before = digest(&server, key);
        assert_eq!(ask(&mut client, format!("DEL {key}")), 1);
        assert_eq!(call!(client, "RESTORE", key, 0, payload.as_bytes()), "OK");
        assert_eq!(digest(&server, key), before, "{key}");
    }
    assert_in_use(&server);
}

#[test]
fn a_replica_knows_everything_and_goes_on_with_it_when_promoted() {
    let primary = Server::start();
    let early = Server::builder().replica_of(&primary).start();
    add_fixtures(&primary);
    let late = Server::builder().replica_of(&primary).start();
    for replica in [&early, &late] {
        replica.wait_to_catch_up_with(&primary);
        assert_eq!(digests(replica), digests(&primary));
        let mut client = replica.connect();
        let refused = ask(&mut client, "DONCE.BEGIN job");
        assert!(refused.error().starts_with("READONLY "), "{refused:?}");
        assert_eq!(replica.info_number("dsync", "dsync_unapplied_changes"), 0);
    }
    drop(primary);
    assert_eq!(ask(&mut early.connect(), "REPLICAOF NO ONE"), "OK");
    assert_in_use(&early);
}

#[test]
fn the_primary_says_exactly_what_became_of_the_work() {
    let server = Server::start();
    let mut stream = ReplicationStream::attach(&server);
    let mut client = server.connect();
    let mut told = || -> Vec<Vec<String>> {
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
    let grant = |change: &str, run: &Run, owner: &str| {
        let granted = number(change, 5);
        let Run { token, fence, .. } = run;
        assert!(granted.abs_diff(unix_ms().unsigned_abs()) < 60_000);
        format!(
            "GRANT {fence} run 30000 {} {granted} 0 {}:{token} {}:{owner}",
            granted + 30_000,
            token.len(),
            owner.len()
        )
    };

    let first = run(&ask(&mut client, "DONCE.BEGIN job TOKEN a OWNER me MAX 7"));
    let commands = told();
    let change = commands[0].last().expect("a change").clone();
    assert_eq!(commands, [apply(&[grant(&change, &first, "me")])]);

    // Waiting says nothing, and so does giving it up.
    let mut waiter = queued(&server, "DONCE.BEGIN job TOKEN b BLOCK 0");
    assert!(ask(&mut client, "DONCE.BEGIN job").is_nil());
    assert_eq!(ask(&mut client, "DONCE.FAIL job x"), 0);
    assert!(told().is_empty());

    // A failure hands on in the same command.
    assert_eq!(ask(&mut client, "DONCE.FAIL job a REASON oh"), 1);
    let second = run(&reply(&mut waiter));
    let commands = told();
    let (at, change) = (number(&commands[0][3], 2), commands[0][4].clone());
    let fail = format!("FAIL {} {at} 2:oh", first.fence);
    assert_eq!(commands, [apply(&[fail, grant(&change, &second, "")])]);

    assert_eq!(ask(&mut client, "DONCE.RELEASE job b"), 1);
    let commands = told();
    let at = number(&commands[0][3], 3);
    let end = format!("END {} released {at}", second.fence);
    assert_eq!(commands, [apply(&[end])]);

    // Told that there is no hope: nothing was there that anybody could still have hoped for.
    assert_failed(&ask(&mut client, "DONCE.BEGIN job MAX 1"), "oh", 1);
    assert!(told().is_empty());

    let third = run(&ask(&mut client, "DONCE.BEGIN job TOKEN c PX 20"));
    wait_until_idle(&mut client, "job");
    let commands = told();
    assert_eq!(commands.len(), 2, "{commands:?}");
    let at = number(&commands[1][3], 3);
    let lapse = format!("END {} lapsed {at}", third.fence);
    assert_eq!(commands[1], apply(&[lapse]));
    for _ in 0..2 {
        assert_failed(&ask(&mut client, "DONCE.BEGIN job MAX 1"), "lapsed", 2);
    }
    assert_eq!(told(), [apply(&["GIVEUP".to_owned()])], "said once");

    let fourth = run(&ask(&mut client, "DONCE.BEGIN job TOKEN d"));
    told();
    assert_eq!(ask(&mut client, "DONCE.DONE job d RESULT re EX 9"), 1);
    assert_eq!(ask(&mut client, "DONCE.DONE job d RESULT xx"), 1);
    assert_done(&ask(&mut client, "DONCE.BEGIN job"), Some(b"re"), 3);
    let until = about(&mut client, "job", "kept-until-unix-ms").as_int();
    let done = format!("COMPLETE {} {until} 1:d 2:re", fourth.fence);
    assert_eq!(told(), [apply(&[done])]);

    // A late DONE names no run; the end of the retention is the primary's decision too.
    assert_eq!(ask(&mut client, "DEL job"), 1);
    ask(&mut client, "DONCE.BEGIN job TOKEN e PX 20");
    wait_until_idle(&mut client, "job");
    told();
    assert_eq!(ask(&mut client, "DONCE.DONE job e PX 50"), 1);
    let commands = told();
    let until = number(&commands[0][3], 2);
    let done = format!("COMPLETE NONE {until} 1:e NONE");
    assert_eq!(commands[0], apply(&[done]));
    wait_until_gone(&mut client, "job");
    let rest: Vec<_> = commands.into_iter().skip(1).chain(told()).collect();
    assert_eq!(rest, [apply(&["VANISH".to_owned()])]);
}

#[test]
fn the_key_of_work_once_is_of_its_own_type() {
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
    // Overwritten, those who wait are told.
    let mut waiter = queued(&server, "DONCE.BEGIN job BLOCK 0");
    assert_eq!(ask(&mut client, "SET job x"), "OK");
    assert!(reply(&mut waiter).error().starts_with("WRONGTYPE "));
}

/// Asks for what must be refused, and returns the words of the refusal.
#[track_caller]
fn refused(client: &mut Client, line: &str) -> String {
    let reply = ask(client, line);
    let words = reply.error().to_owned();
    assert!(words.starts_with("ERR "), "{line}: {words}");
    words
}

#[test]
fn what_is_typed_wrong_is_refused_with_the_option_the_value_and_the_bound() {
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

    // Any order, any case, and the bounds themselves.
    ask(&mut client, "donce.fail job t");
    let line = "donce.begin job owner o max 1000000 block 0 px 86400000 token t ephemeral";
    assert_eq!(attempt(&ask(&mut client, line)), 2);
    assert_eq!(ask(&mut client, "donce.done job t ex 1 result r"), 1);
}

#[test]
fn results_and_reasons_have_a_bound_that_the_error_names() {
    let server = Server::start();
    let mut client = server.connect();
    ask(&mut client, "DONCE.BEGIN job TOKEN t");
    let before = digest(&server, "job");
    for most in [65_536, 5, 0] {
        ask(
            &mut client,
            format!("CONFIG SET dsync.max-result-bytes {most}"),
        );
        for (command, option) in [("DONCE.DONE", "RESULT"), ("DONCE.FAIL", "REASON")] {
            let text = "x".repeat(most + 1);
            let reply = call!(client, command, "job", "t", option, text);
            let error = reply.error();
            for word in [
                option,
                "dsync.max-result-bytes",
                &most.to_string(),
                &(most + 1).to_string(),
            ] {
                assert!(error.contains(word), "{word} is not in {error}");
            }
            assert_eq!(digest(&server, "job"), before, "nothing has changed");
        }
    }
    // The bound itself, and raised.
    for (n, most) in [5, 65_536, 1 << 20].into_iter().enumerate() {
        ask(
            &mut client,
            format!("CONFIG SET dsync.max-result-bytes {most}"),
        );
        let text = vec![b'r'; most];
        assert_eq!(call!(client, "DONCE.FAIL", "job", "t", "REASON", text), 1);
        let known = about(&mut client, "job", "last-reason");
        assert_eq!(known.as_bytes().len(), most);
        let begun = ask(&mut client, "DONCE.BEGIN job TOKEN t");
        assert_eq!(attempt(&begun), n as i64 + 2);
    }
    let text = vec![b'r'; 1 << 20];
    assert_eq!(call!(client, "DONCE.DONE", "job", "t", "RESULT", text), 1);
    let done = ask(&mut client, "DONCE.BEGIN job");
    assert_eq!(done.as_array()[1].as_bytes(), text);
    // What is kept stays readable under a lower bound.
    ask(&mut client, "CONFIG SET dsync.max-result-bytes 10");
    assert_eq!(call!(client, "DEBUG", "RELOAD"), "OK");
    let done = ask(&mut client, "DONCE.BEGIN job");
    assert_eq!(done.as_array()[1].as_bytes(), text);
}

#[test]
fn begin_is_a_try_where_the_server_forbids_blocking() {
    let server = Server::start();
    let mut client = server.connect();
    ask(&mut client, "DONCE.BEGIN job TOKEN t");
    let replies = at_once(
        &mut client,
        &[
            "MULTI",
            "DONCE.BEGIN job BLOCK 0",
            "DONCE.BEGIN other BLOCK 0 TOKEN u",
            "EXEC",
        ],
    );
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
    assert_eq!(ask(&mut client, "EXISTS third"), 0);
}

/// The AOF of a server that was not asked to rewrite it holds every attempt, token and result: whoever
/// reads one of these files reads what the README says he does.
#[test]
fn results_and_tokens_stand_in_the_aof() {
    let server = Server::builder()
        .config("appendonly", "yes")
        .config("appendfsync", "always")
        .start();
    let mut client = server.connect();
    ask(&mut client, "DONCE.BEGIN job TOKEN the-token");
    assert_eq!(
        ask(&mut client, "DONCE.DONE job the-token RESULT the-result"),
        1
    );
    let files = fs::read_dir(server.dir().join("appendonlydir")).expect("the AOF's directory");
    let text: Vec<u8> = files
        .flat_map(|file| fs::read(file.expect("a file").path()).expect("it is read"))
        .collect();
    let text = String::from_utf8_lossy(&text);
    for word in ["the-token", "the-result"] {
        assert!(text.contains(word), "{word}");
    }
}
