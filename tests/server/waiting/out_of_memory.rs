//! The server has reached `maxmemory` and evicts nothing. A request that needs a new hold or a new place is refused, as
//! SET would be; what the token has already is answered, because it needs no memory.
//!
//! The server once refused all these requests before the module saw them. So nobody could ask for a kept place again,
//! nor fetch the grant of one, and holders lost what they waited for.

use crate::support::steps::*;
use crate::support::*;

const FULL: &str = "CONFIG SET maxmemory 1";
const ROOMY: &str = "CONFIG SET maxmemory 0";

#[track_caller]
fn expect_refused(reply: &Reply) {
    let text = "OOM command not allowed when used memory > 'maxmemory'.";
    assert_eq!(reply.error(), text, "the server's own words");
}

#[test]
fn without_memory_kept_place_is_asked_for_and_its_grant_is_fetched() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE k TOKEN held").grant();
    let request = "DLOCK.ACQUIRE k PX 600000 TOKEN t QUEUE 60000";
    let waiting = client.ask(request);
    assert_eq!(waiting.as_array()[0], "WAITING", "{waiting:?}");
    assert_eq!(client.ask(FULL), "OK");
    assert_eq!(client.ask(request), waiting, "the same place");
    assert_eq!(client.ask("DLOCK.RELEASE k held"), 1);
    assert_eq!(client.ask(request).grant().0, "t");
    assert!(client.ask("DLOCK.CHECK k t").as_int() > 60_000);
    assert_eq!(client.ask("DLOCK.RENEW k t"), 1);
}

#[test]
fn without_memory_only_new_holds_and_places_are_refused() {
    for family in Family::ALL {
        let server = Server::start();
        let mut client = server.connect();
        let name = family.prefix();
        let request = |token: &str| family.acquire("k", token, "");
        let (_, fence) = any_grant(&client.ask(request("held")));
        let mut waiting = server.waiting(request("waiting") + " BLOCK 0");
        assert_eq!(client.ask(FULL), "OK");
        let (_, again) = any_grant(&client.ask(request("held")));
        assert_eq!(again, fence, "{name}: a repeat");
        assert!(client.ask(request("new")).is_nil(), "{name}: a try");
        for form in [" BLOCK 0", " QUEUE 1000"] {
            expect_refused(&client.ask(request("new") + form));
        }
        let mut elsewhere = server.connect();
        elsewhere.begin(request("waiting") + " BLOCK 0");
        let superseded = waiting.reply();
        assert!(superseded.error().starts_with("UNBLOCKED superseded"));
        assert_eq!(client.ask(format!("{name}.RELEASE k held")), 1);
        any_grant(&elsewhere.reply());
        assert_eq!(client.ask(format!("{name}.RELEASE k waiting")), 1);
        for form in ["", " BLOCK 0", " QUEUE 1000"] {
            expect_refused(&client.ask(request("new") + form));
        }
        assert_eq!(client.ask(ROOMY), "OK");
        any_grant(&client.ask(request("new")));
    }
}

#[test]
fn without_memory_finished_work_is_told() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DONCE.BEGIN job TOKEN a");
    assert_eq!(client.ask("DONCE.DONE job a RESULT 42"), 1);
    assert_eq!(client.ask(FULL), "OK");
    let done = client.ask("DONCE.BEGIN job TOKEN b BLOCK 0");
    assert_eq!(done.as_array()[0], "DONE", "{done:?}");
}

/// All these were refused once: a run that had ended was begun again when its lease was over, and an operator could not
/// resume what they had paused.
#[test]
fn without_memory_work_ends_and_orders_are_changed() {
    let server = Server::start();
    let mut client = server.connect();
    let short = "x".repeat(1_000);
    let long = "x".repeat(1_001);
    for key in [
        "bare",
        "short",
        "long",
        "failed",
        "failed-short",
        "failed-long",
    ] {
        client.ask(format!("DONCE.BEGIN {key} TOKEN t"));
    }
    for setup in ["DSEM.LIMIT s 2", "DWG.EXPECT g 3", "DLOCK.PAUSE p 60000"] {
        client.ask(setup);
    }
    assert_eq!(client.ask(FULL), "OK");
    for end in [
        "DONCE.DONE bare t",
        &format!("DONCE.DONE short t RESULT {short}"),
        "DONCE.FAIL failed t",
        &format!("DONCE.FAIL failed-short t REASON {short}"),
    ] {
        assert_eq!(client.ask(end), 1, "{end}");
    }
    for end in [
        format!("DONCE.DONE long t RESULT {long}"),
        format!("DONCE.FAIL failed-long t REASON {long}"),
    ] {
        expect_refused(&client.ask(end));
    }
    assert_eq!(client.ask("DSEM.LIMIT s 0"), 2);
    assert_eq!(client.ask("DSEM.LIMIT s NONE"), 0);
    assert_eq!(client.ask("DWG.EXPECT g 2"), 2);
    assert!(client.ask("DLOCK.PAUSE p 90000").as_int() > 0);
    assert!(client.ask("DLOCK.PAUSE p 0").as_int() > 60_000);
    for makes_a_key in ["DSEM.LIMIT new 2", "DWG.EXPECT new 2", "DLOCK.PAUSE new 1"] {
        expect_refused(&client.ask(makes_a_key));
    }
    assert_eq!(client.ask("DSEM.LIMIT new NONE"), -1);
    assert_eq!(client.ask("DLOCK.PAUSE new 0"), 0);
    assert_eq!(client.ask("EXISTS new"), 0);
}

/// A transaction is carried out, and each request in it is answered for itself.
#[test]
fn without_memory_each_request_of_a_transaction_is_answered() {
    let server = Server::start();
    let mut client = server.connect();
    let mut operator = server.connect();
    client.ask("DLOCK.ACQUIRE k TOKEN held").grant();
    assert_eq!(client.ask("MULTI"), "OK");
    for request in ["DLOCK.ACQUIRE k TOKEN held", "DLOCK.ACQUIRE new TOKEN t"] {
        assert_eq!(client.ask(request), "QUEUED");
    }
    assert_eq!(operator.ask(FULL), "OK");
    let replies = client.ask("EXEC");
    let [repeat, new] = replies.as_array() else {
        panic!("{replies:?}");
    };
    assert_eq!(repeat.grant().0, "held");
    expect_refused(new);
}

/// What counts is the memory at the start of the script: it must not be stopped half-way because of its own writes.
#[test]
fn without_memory_scripts_are_refused_from_their_start_only() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE k TOKEN held").grant();
    let script = "return redis.call('DLOCK.ACQUIRE', KEYS[1], 'TOKEN', ARGV[1])";
    assert_eq!(client.ask(FULL), "OK");
    let repeat = call!(client, "EVAL", script, 1, "k", "held");
    assert_eq!(repeat.grant().0, "held");
    let new = call!(client, "EVAL", script, 1, "new", "t");
    assert!(new.error().starts_with("OOM "), "{new:?}");
    assert_eq!(client.ask(ROOMY), "OK");
    let used = server.info_number("memory", "used_memory");
    let room = format!("CONFIG SET maxmemory {}", used + 4_000_000);
    assert_eq!(client.ask(room), "OK");
    client.ask("DONCE.BEGIN job TOKEN t");
    let done = "redis.call('DONCE.DONE', 'job', 't', 'RESULT', string.rep('x', 1001))";
    let fills = format!("redis.call('SET', 'big', string.rep('x', 16000000)) {done} {script}");
    call!(client, "EVAL", &fills, 1, "new", "t").grant();
    let late = client.ask("DLOCK.ACQUIRE late");
    expect_refused(&late);
}

/// With a policy that evicts other keys, memory is always nearly full, and requests are granted.
#[test]
fn memory_that_eviction_makes_room_in_refuses_nothing() {
    let server = Server::start();
    let mut client = server.connect();
    let used = server.info_number("memory", "used_memory");
    let room = format!("CONFIG SET maxmemory {}", used + 4_000_000);
    for line in [&room, "CONFIG SET maxmemory-policy volatile-lru"] {
        assert_eq!(client.ask(line), "OK");
    }
    let text = "x".repeat(10_000);
    for n in 0..1_000 {
        assert_eq!(client.ask(format!("SET {n} {text} EX 1000")), "OK");
        client.ask(format!("DLOCK.ACQUIRE lock:{n}")).grant();
    }
    assert!(server.info_number("stats", "evicted_keys") > 0);
}
