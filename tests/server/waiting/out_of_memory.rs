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
    ask(&mut client, "DLOCK.ACQUIRE k TOKEN held").grant();
    let request = "DLOCK.ACQUIRE k PX 600000 TOKEN t QUEUE 60000";
    let waiting = ask(&mut client, request);
    assert_eq!(waiting.as_array()[0], "WAITING", "{waiting:?}");
    assert_eq!(ask(&mut client, FULL), "OK");
    assert_eq!(ask(&mut client, request), waiting, "the same place");
    assert_eq!(ask(&mut client, "DLOCK.RELEASE k held"), 1);
    assert_eq!(ask(&mut client, request).grant().0, "t");
    assert!(ask(&mut client, "DLOCK.CHECK k t").as_int() > 60_000);
    assert_eq!(ask(&mut client, "DLOCK.RENEW k t"), 1);
}

#[test]
fn without_memory_only_new_holds_and_places_are_refused() {
    for (take, name) in [
        ("DLOCK.ACQUIRE", "DLOCK"),
        ("DSEM.ACQUIRE", "DSEM"),
        ("DWG.ADD", "DWG"),
        ("DONCE.BEGIN", "DONCE"),
    ] {
        let server = Server::start();
        let mut client = server.connect();
        let options = match name {
            "DSEM" | "DWG" => "LIMIT 1 TOKEN",
            _ => "TOKEN",
        };
        let request = |token: &str| format!("{take} k {options} {token}");
        let (_, fence) = any_grant(&ask(&mut client, request("held")));
        let mut waiting = queued(&server, request("waiting") + " BLOCK 0");
        assert_eq!(ask(&mut client, FULL), "OK");
        let (_, again) = any_grant(&ask(&mut client, request("held")));
        assert_eq!(again, fence, "{name}: a repeat");
        assert!(ask(&mut client, request("new")).is_nil(), "{name}: a try");
        for form in [" BLOCK 0", " QUEUE 1000"] {
            expect_refused(&ask(&mut client, request("new") + form));
        }
        let mut elsewhere = server.connect();
        tell(&mut elsewhere, request("waiting") + " BLOCK 0");
        let superseded = reply(&mut waiting);
        assert!(superseded.error().starts_with("UNBLOCKED superseded"));
        assert_eq!(ask(&mut client, format!("{name}.RELEASE k held")), 1);
        any_grant(&reply(&mut elsewhere));
        assert_eq!(ask(&mut client, format!("{name}.RELEASE k waiting")), 1);
        for form in ["", " BLOCK 0", " QUEUE 1000"] {
            expect_refused(&ask(&mut client, request("new") + form));
        }
        assert_eq!(ask(&mut client, ROOMY), "OK");
        any_grant(&ask(&mut client, request("new")));
    }
}

#[test]
fn without_memory_finished_work_is_told() {
    let server = Server::start();
    let mut client = server.connect();
    ask(&mut client, "DONCE.BEGIN job TOKEN a");
    assert_eq!(ask(&mut client, "DONCE.DONE job a RESULT 42"), 1);
    assert_eq!(ask(&mut client, FULL), "OK");
    let done = ask(&mut client, "DONCE.BEGIN job TOKEN b BLOCK 0");
    assert_eq!(done.as_array()[0], "DONE", "{done:?}");
}

/// A transaction is carried out, and each request in it is answered for itself.
#[test]
fn without_memory_each_request_of_a_transaction_is_answered() {
    let server = Server::start();
    let mut client = server.connect();
    let mut operator = server.connect();
    ask(&mut client, "DLOCK.ACQUIRE k TOKEN held").grant();
    assert_eq!(ask(&mut client, "MULTI"), "OK");
    for request in ["DLOCK.ACQUIRE k TOKEN held", "DLOCK.ACQUIRE new TOKEN t"] {
        assert_eq!(ask(&mut client, request), "QUEUED");
    }
    assert_eq!(ask(&mut operator, FULL), "OK");
    let replies = ask(&mut client, "EXEC");
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
    ask(&mut client, "DLOCK.ACQUIRE k TOKEN held").grant();
    let script = "return redis.call('DLOCK.ACQUIRE', KEYS[1], 'TOKEN', ARGV[1])";
    assert_eq!(ask(&mut client, FULL), "OK");
    let repeat = call!(client, "EVAL", script, 1, "k", "held");
    assert_eq!(repeat.grant().0, "held");
    let new = call!(client, "EVAL", script, 1, "new", "t");
    assert!(new.error().starts_with("OOM "), "{new:?}");
    assert_eq!(ask(&mut client, ROOMY), "OK");
    let used = server.info_number("memory", "used_memory");
    let room = format!("CONFIG SET maxmemory {}", used + 4_000_000);
    assert_eq!(ask(&mut client, room), "OK");
    let fills = format!("redis.call('SET', 'big', string.rep('x', 16000000)) {script}");
    call!(client, "EVAL", &fills, 1, "new", "t").grant();
    let late = ask(&mut client, "DLOCK.ACQUIRE late");
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
        assert_eq!(ask(&mut client, line), "OK");
    }
    let text = "x".repeat(10_000);
    for n in 0..1_000 {
        assert_eq!(call!(client, "SET", n, &text, "EX", 1_000), "OK");
        ask(&mut client, format!("DLOCK.ACQUIRE lock:{n}")).grant();
    }
    assert!(server.info_number("stats", "evicted_keys") > 0);
}
