//! Work-once, results: whose DONE is accepted, who gets the result, how long it is kept, and how long it may be.

use crate::commands::once_steps::*;
use crate::support::steps::*;
use crate::support::*;
use std::time::Duration;

/// The wall clock in milliseconds, signed as the integers of replies are.
fn clock_ms() -> i64 {
    unix_ms().cast_signed()
}

#[test]
fn result_goes_to_waiters_and_late_requests_until_its_time_is_up() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DONCE.BEGIN job TOKEN t");
    let mut waiters: Vec<_> = (0..5)
        .map(|_| server.waiting("DONCE.BEGIN job BLOCK 0"))
        .collect();
    let binary: Vec<u8> = (0..=255).collect();
    let before = clock_ms();
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
    let after = clock_ms();
    for waiter in &mut waiters {
        assert_done(&waiter.reply(), Some(&binary), 1);
        // The waiter got one reply and is unblocked.
        assert_eq!(waiter.ask("PING"), "PONG");
    }
    let until = about(&mut client, "job", "kept-until-unix-ms").as_int();
    assert!((before + 1_500..=after + 1_500).contains(&until), "{until}");
    assert_eq!(about(&mut client, "job", "result-bytes"), 256);
    assert_eq!(about(&mut client, "job", "state"), *"done");
    // Requests that come late get the result too, until its time is up.
    loop {
        let reply = client.ask("DONCE.BEGIN job TOKEN late BLOCK 0 MAX 1");
        if clock_ms() < until {
            assert_done(&reply, Some(&binary), 1);
        } else {
            break;
        }
    }
    wait_until_run_again(&mut client, "job");
    assert!(clock_ms() >= until, "never before its time");
}

/// Waits until the result is forgotten: BEGIN runs again, as attempt 1.
#[track_caller]
fn wait_until_run_again(client: &mut Client, key: &str) {
    eventually(&format!("another run of {key}"), SOON, || {
        let reply = client.ask(format!("DONCE.BEGIN {key} TOKEN late"));
        reply.as_array()[0] == *"RUN" && attempt(&reply) == 1
    });
}

#[test]
fn results_attempts_and_reasons_are_kept_for_once_keep_ms() {
    let server = Server::start();
    let mut client = server.connect();
    let kept_for = |client: &mut Client, options: &str| {
        client.ask("DEL job");
        client.ask("DONCE.BEGIN job TOKEN t");
        let before = clock_ms();
        assert_eq!(client.ask(format!("DONCE.DONE job t {options}")), 1);
        let after = clock_ms();
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
    client.ask("CONFIG SET dsync.once-keep-ms 500");
    let (least, most) = kept_for(&mut client, "");
    assert!(least <= 500 && 500 <= most, "{least} to {most}");
    wait_until_gone(&mut client, "job");

    client.ask("DONCE.BEGIN job TOKEN t");
    let failed_at = clock_ms();
    assert_eq!(client.ask("DONCE.FAIL job t REASON r"), 1);
    assert_eq!(attempts(&mut client, "job"), 1, "kept for a while");
    wait_until_gone(&mut client, "job");
    assert!(clock_ms() >= failed_at + 500, "never before its time");
    assert_eq!(attempt(&client.ask("DONCE.BEGIN job MAX 1 TOKEN t")), 1);

    // Attempts are not forgotten while a run or a waiter is there, even past once-keep-ms.
    client.ask("DONCE.BEGIN other TOKEN a");
    client.ask("DONCE.FAIL other a REASON r");
    assert_eq!(attempt(&client.ask("DONCE.BEGIN other TOKEN b")), 2);
    let mut waiter = server.waiting("DONCE.BEGIN other BLOCK 0");
    waiter.expect_silence(Duration::from_millis(700));
    assert_eq!(client.ask("DONCE.FAIL other b REASON r"), 1);
    assert_eq!(attempt(&waiter.reply()), 3);
}

#[test]
fn done_repeated_by_winning_token_answers_1_and_changes_nothing() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DONCE.BEGIN job TOKEN t");
    assert_eq!(client.ask("DONCE.DONE job t RESULT first EX 100"), 1);
    let before = server.digest("job");
    assert_eq!(client.ask("DONCE.DONE job t RESULT second EX 9"), 1);
    assert_eq!(client.ask("DONCE.DONE job t"), 1);
    assert_done(&client.ask("DONCE.BEGIN job"), Some(b"first"), 1);
    assert_eq!(server.digest("job"), before);
    // Only DONE, and only with the winning token, answers 1.
    assert_eq!(client.ask("DONCE.DONE job u RESULT second"), 0);
    for line in [
        "DONCE.FAIL job t",
        "DONCE.RELEASE job t",
        "DONCE.RENEW job t",
        "DONCE.CHECK job t",
    ] {
        assert_eq!(client.ask(line), 0, "{line}");
    }
    assert_eq!(server.digest("job"), before);
}

#[test]
fn done_after_lapse_counts_until_next_begin_or_failed() {
    let server = Server::start();
    let mut client = server.connect();
    let mut lapse = |key: &str| {
        client.ask(format!("DONCE.BEGIN {key} TOKEN t PX 10"));
        wait_until_idle(&mut client, key);
    };
    for key in [
        "accepted", "begun", "tried", "answered", "failed", "deleted",
    ] {
        lapse(key);
    }
    assert_eq!(client.ask("DONCE.DONE accepted u"), 0, "another token");
    assert_eq!(client.ask("DONCE.DONE accepted t RESULT r"), 1);
    assert_done(&client.ask("DONCE.BEGIN accepted"), Some(b"r"), 1);
    assert_eq!(client.ask("DONCE.DONE accepted t"), 1, "and again");

    assert_eq!(attempt(&client.ask("DONCE.BEGIN begun TOKEN u")), 2);
    assert_eq!(client.ask("DONCE.DONE begun t"), 0);
    assert_eq!(client.ask("DONCE.FAIL begun u"), 1);
    assert_eq!(client.ask("DONCE.DONE begun t"), 0, "a newer one began");

    // RENEW, FAIL and INFO begin no attempt, so DONE still counts.
    assert_eq!(client.ask("DONCE.RENEW tried t"), 0);
    assert_eq!(client.ask("DONCE.FAIL tried t"), 0, "the run has lapsed");
    about(&mut client, "tried", "state");
    assert_eq!(client.ask("DONCE.DONE tried t"), 1);

    assert_failed(&client.ask("DONCE.BEGIN answered MAX 1"), "lapsed", 1);
    assert_eq!(
        client.ask("DONCE.DONE answered t"),
        0,
        "a request was answered FAILED"
    );
    assert_eq!(attempt(&client.ask("DONCE.BEGIN answered MAX 2")), 2);

    assert_eq!(client.ask("DEL deleted"), 1);
    assert_eq!(client.ask("DONCE.DONE deleted t"), 0);

    // A run that ended by FAIL has not lapsed: its DONE does not count.
    client.ask("DONCE.BEGIN said TOKEN t");
    client.ask("DONCE.FAIL said t");
    assert_eq!(client.ask("DONCE.DONE said t"), 0);

    // After a waiter was answered FAILED, DONE of the lapsed run does not count.
    client.ask("DONCE.BEGIN queued TOKEN t EX 600");
    let mut waiter = server.waiting("DONCE.BEGIN queued MAX 1 BLOCK 0");
    assert_eq!(client.ask("DONCE.RENEW queued t PX 20"), 1);
    assert_failed(&waiter.reply(), "lapsed", 1);
    assert_eq!(client.ask("DONCE.DONE queued t"), 0);

    // An EPHEMERAL run whose connection closed has lapsed: its DONE counts.
    let mut worker = server.connect();
    worker.ask("DONCE.BEGIN ephemeral TOKEN t EPHEMERAL");
    worker.close();
    wait_until_idle(&mut client, "ephemeral");
    assert_eq!(client.ask("DONCE.DONE ephemeral t"), 1);
}

/// A run lapsed, and its worker finished late. In between a client that had died in the queue had its turn: the DONE
/// was refused, and the work was done again.
#[test]
fn done_after_lapse_counts_after_the_turn_of_a_dead_place() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DONCE.BEGIN job TOKEN worker");
    client.ask("DONCE.BEGIN job TOKEN dead QUEUE 1000");
    assert_eq!(client.ask("DONCE.RENEW job worker PX 1"), 1);
    eventually("the turn of the dead client", SOON, || {
        server.info_number("dsync", "dsync_once_undelivered") == 1
    });
    assert_eq!(about(&mut client, "job", "state"), *"idle");
    assert_eq!(about(&mut client, "job", "last-reason"), *"lapsed");
    assert_eq!(attempts(&mut client, "job"), 1, "as before its turn");
    assert_eq!(client.ask("DONCE.DONE job worker RESULT r"), 1);
    assert_done(&client.ask("DONCE.BEGIN job"), Some(b"r"), 1);
}

#[test]
fn done_after_lapse_counts_while_the_next_run_is_unheard() {
    let server = Server::start();
    let mut client = server.connect();
    let begin_unheard = |client: &mut Client, key: &str| {
        client.ask(format!("DONCE.BEGIN {key} TOKEN worker"));
        let next = format!("DONCE.BEGIN {key} TOKEN next QUEUE 60000");
        client.ask(&next);
        let renewed = client.ask(format!("DONCE.RENEW {key} worker PX 1"));
        assert_eq!(renewed, 1);
        eventually("the turn of the next", SOON, || {
            about(client, key, "state") == "running" && attempts(client, key) == 2
        });
        next
    };
    let next = begin_unheard(&mut client, "job");
    let mut waiter = server.waiting("DONCE.BEGIN job TOKEN behind BLOCK 0");
    assert_eq!(client.ask("DONCE.DONE job stranger"), 0);
    assert_eq!(client.ask("DONCE.DONE job worker RESULT r"), 1);
    assert_done(&waiter.reply(), Some(b"r"), 1);
    // The client of the run that nobody heard of asks for its turn, and has nothing to do.
    assert_done(&client.ask(next), Some(b"r"), 1);
    assert_eq!(client.ask("DONCE.DONE job next"), 0);
    assert_eq!(server.info_number("dsync", "dsync_once_holds"), 0);
    let log = client.ask("DSYNC.LOG");
    let rows = log.as_array().iter();
    let ends: Vec<_> = rows.map(|row| row.as_array()[2].as_str()).collect();
    assert_eq!(ends, ["undelivered", "lapse"]);

    // From the first word of the next worker on, it is the next worker's.
    let next = begin_unheard(&mut client, "heard");
    assert_eq!(attempt(&client.ask(next)), 2);
    assert_eq!(client.ask("DONCE.DONE heard worker"), 0);
    assert_eq!(client.ask("DONCE.DONE heard next"), 1);
    begin_unheard(&mut client, "renewed");
    assert_eq!(client.ask("DONCE.RENEW renewed next"), 1);
    assert_eq!(client.ask("DONCE.DONE renewed worker"), 0);
}

#[test]
fn thousand_waiters_all_get_the_result() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DONCE.BEGIN job TOKEN t");
    let mut waiters: Vec<_> = (0..1_000).map(|_| server.connect()).collect();
    for waiter in &mut waiters {
        waiter.begin("DONCE.BEGIN job MAX 1 BLOCK 0");
    }
    server.wait_for_blocked(1_000);
    assert_eq!(count(&mut client, "DONCE.INFO", "job", "waiters"), 1_000);
    assert_eq!(client.ask("DONCE.DONE job t RESULT r"), 1);
    // The waiters are answered in slices. A BEGIN that comes in between gets the result too, perhaps after a wait.
    assert_done(&client.ask("DONCE.BEGIN job BLOCK 0"), Some(b"r"), 1);
    for waiter in &mut waiters {
        assert_done(&waiter.reply(), Some(b"r"), 1);
        expect_no_more(waiter);
    }
    server.wait_for_blocked(0);
    assert_eq!(server.info_number("dsync", "dsync_waiters"), 0);
    assert_eq!(server.info_number("dsync", "dsync_once_granted_at_once"), 1);
    assert_eq!(
        server.info_number("dsync", "dsync_once_granted_after_wait"),
        0
    );
}

#[test]
fn result_or_reason_too_long_is_refused_with_the_bound() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DONCE.BEGIN job TOKEN t");
    let before = server.digest("job");
    for most in [65_536, 5, 0] {
        client.ask(format!("CONFIG SET dsync.max-result-bytes {most}"));
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
            assert_eq!(server.digest("job"), before, "nothing has changed");
        }
    }
    // A text of exactly the bound is accepted, also after the bound was raised.
    for (n, most) in [5, 65_536, 1 << 20].into_iter().enumerate() {
        client.ask(format!("CONFIG SET dsync.max-result-bytes {most}"));
        let text = vec![b'r'; most];
        assert_eq!(call!(client, "DONCE.FAIL", "job", "t", "REASON", text), 1);
        let known = about(&mut client, "job", "last-reason");
        assert_eq!(known.as_bytes().len(), most);
        let begun = client.ask("DONCE.BEGIN job TOKEN t");
        assert_eq!(attempt(&begun), n as i64 + 2);
    }
    let text = vec![b'r'; 1 << 20];
    assert_eq!(call!(client, "DONCE.DONE", "job", "t", "RESULT", text), 1);
    let done = client.ask("DONCE.BEGIN job");
    assert_eq!(done.as_array()[1].as_bytes(), text);
    // A result that is kept already is not touched when the bound is lowered.
    client.ask("CONFIG SET dsync.max-result-bytes 10");
    assert_eq!(client.ask("DEBUG RELOAD"), "OK");
    let done = client.ask("DONCE.BEGIN job");
    assert_eq!(done.as_array()[1].as_bytes(), text);
}
