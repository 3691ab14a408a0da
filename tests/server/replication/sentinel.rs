//! A primary under three sentinels that is killed, or replaced on request.
//!
//! A client asks a sentinel for the primary and sends its request there again with its TOKEN. It then has the same hold
//! with the same fence, or a place in the queue. Later grants have higher fences than all earlier ones, and the old
//! primary, when it is back, holds what the new one holds.

use crate::support::steps::*;
use crate::support::*;

/// Asks a sentinel and connects to the server that it names, as a client library does.
#[track_caller]
fn connect_by(sentinels: &Sentinels, servers: &[&Server]) -> Client {
    let address = sentinels.address_by(0);
    match servers.iter().find(|s| (s.ip(), s.port()) == address) {
        Some(server) => server.connect(),
        None => panic!("the sentinel names {address:?}, which is no server of the test"),
    }
}

#[test]
fn killed_primary_is_replaced_and_tokens_keep_holds() {
    let mut first = Server::start();
    let second = Server::builder().replica_of(&first).start();
    let third = Server::builder().replica_of(&first).start();
    let sentinels = Sentinels::watch(&first, 2);

    let held = "DLOCK.ACQUIRE lock EX 60 TOKEN holder";
    let seats = "DSEM.ACQUIRE seats LIMIT 2 EX 60 TOKEN sitter";
    let run = "DONCE.BEGIN work EX 60 TOKEN worker";
    let mut client = connect_by(&sentinels, &[&first, &second, &third]);
    let fence = client.ask(held).grant().1;
    let seat = client.ask(seats).grant().1;
    let running = client.ask(run);
    let highest = client.ask("DLOCK.ACQUIRE other EX 60 TOKEN holder");
    let highest = highest.grant().1;
    let waits = [0, 1, 2].map(|n| format!("DLOCK.ACQUIRE lock BLOCK 0 EX 60 TOKEN w{n}"));
    let waiters = waits.each_ref().map(|wait| first.waiting(wait));
    let idle = first.waiting("DONCE.BEGIN work BLOCK 0 TOKEN idle");
    for replica in [&second, &third] {
        replica.wait_to_catch_up_with(&first);
    }

    first.kill9();
    for waiter in waiters.into_iter().chain([idle]) {
        assert_eq!(ended(waiter), Ended::Closed);
    }
    let new = sentinels.wait_for_failover(0, &first, &[&second, &third]);
    let other = if new.port() == second.port() {
        &third
    } else {
        &second
    };

    // The waiters come back in this order, behind the hold.
    let connect = || connect_by(&sentinels, &[&second, &third]);
    let mut client = connect();
    assert_eq!(client.ask("DLOCK.ACQUIRE lock TOKEN nobody"), Reply::Nil);
    let mut waiters = waits.map(|wait| {
        let mut waiter = connect();
        waiter.wait_on(new, wait);
        waiter
    });
    assert_eq!(client.ask(held).grant().1, fence);
    assert_eq!(client.ask(seats).grant().1, seat);
    assert_eq!(client.ask(run), running);
    let mut outranked = highest;
    let mut holder = "holder".to_owned();
    for waiter in &mut waiters {
        let release = format!("DLOCK.RELEASE lock {holder}");
        assert_eq!(client.ask(release), 1);
        let (token, next) = waiter.granted();
        assert!(next > outranked, "{next} after {outranked}");
        (holder, outranked) = (token, next);
    }
    assert_eq!(holder, "w2");

    // It starts without data, and takes itself for a primary until a sentinel makes it a replica.
    first.start_again();
    for replica in [other, &first] {
        sentinels.wait_until_it_follows(replica, new);
        for key in ["lock", "seats", "work", "other"] {
            assert_eq!(replica.digest(key), new.digest(key), "{key}");
        }
        assert_calm(replica);
    }
    let refused = first.connect().ask("DLOCK.ACQUIRE free");
    assert!(refused.error().starts_with("READONLY"), "{refused:?}");
    assert_calm(new);
}

#[test]
fn sentinel_failover_ends_waits_and_keeps_holds() {
    let first = Server::start();
    let second = Server::builder().replica_of(&first).start();
    let sentinels = Sentinels::watch(&first, 1);
    let held = "DLOCK.ACQUIRE lock EX 60 TOKEN holder";
    let mut client = first.connect();
    let fence = client.ask(held).grant().1;
    let waiter = first.waiting("DLOCK.ACQUIRE lock BLOCK 0 TOKEN w");
    second.wait_to_catch_up_with(&first);

    // A sentinel refuses as long as it has not heard from the replica lately.
    eventually("a switch that begins", SOON, || {
        let mut sentinel = sentinels.nth(0).connect();
        sentinel.ask(format!("SENTINEL FAILOVER {}", sentinels.master())) == "OK"
    });
    let new = sentinels.wait_for_another(0, &first, &[&second]);
    // The sentinels make the old primary a replica only now.
    sentinels.wait_until_it_follows(&first, new);
    let end = ended(waiter);
    assert!(matches!(end, Ended::Unblocked | Ended::Closed), "{end:?}");

    let mut client = connect_by(&sentinels, &[&first, &second]);
    assert_eq!(client.ask(held).grant().1, fence);
    let mut waiter = connect_by(&sentinels, &[&first, &second]);
    waiter.wait_on(new, "DLOCK.ACQUIRE lock BLOCK 0 TOKEN w");
    assert_eq!(client.ask("DLOCK.RELEASE lock holder"), 1);
    assert!(waiter.granted().1 > fence);
    first.wait_to_catch_up_with(new);
    assert_eq!(first.digest("lock"), new.digest("lock"));
    assert_calm(&first);
    assert_calm(new);
}

/// The settings that docs/sentinel.md shows for each of three servers, and for the sentinels.
const EVERY_SERVER: [(&str, &str); 5] = [
    ("appendonly", "yes"),
    ("appendfsync", "everysec"),
    ("min-replicas-to-write", "1"),
    ("min-replicas-max-lag", "2"),
    ("repl-diskless-sync-delay", "0"),
];
const EVERY_SENTINEL: [(&str, u32); 3] = [
    ("down-after-milliseconds", 2_000),
    ("failover-timeout", 3_000),
    ("parallel-syncs", 1),
];

fn builder_of_the_documents() -> Builder {
    EVERY_SERVER
        .iter()
        .fold(Server::builder(), |builder, (name, value)| {
            builder.config(name, value)
        })
}

/// Repeats a request while it is answered NOREPLICAS, because the replicas have yet to connect or a machine under load
/// makes one late; returns its reply.
#[track_caller]
fn ask_until_accepted(client: &mut Client, request: &str) -> Reply {
    let mut reply = Reply::Nil;
    eventually(request, SOON * 3, || {
        reply = client.ask(request);
        match &reply {
            Reply::Error(text) => {
                assert!(text.starts_with("NOREPLICAS"), "{text}");
                false
            }
            _ => true,
        }
    });
    reply
}

#[test]
fn returning_primary_with_documented_settings_grants_nothing() {
    let mut first = builder_of_the_documents().start();
    let second = builder_of_the_documents().replica_of(&first).start();
    let third = builder_of_the_documents().replica_of(&first).start();
    let sentinels = Sentinels::watch_with(&EVERY_SENTINEL, &first, 2);
    let mut client = first.connect();
    let held = "DLOCK.ACQUIRE lock EX 60 TOKEN holder";
    let fence = ask_until_accepted(&mut client, held).grant().1;
    // Both replicas have the hold, so whichever is promoted has it.
    assert_eq!(client.ask("WAIT 2 8000"), 2);

    first.kill9();
    let new = sentinels.wait_for_another(0, &first, &[&second, &third]);
    let mut client = connect_by(&sentinels, &[&second, &third]);
    // With one server lost, the other replica is enough as soon as it follows.
    assert_eq!(ask_until_accepted(&mut client, held).grant().1, fence);
    assert_eq!(
        ask_until_accepted(&mut client, "DLOCK.RELEASE lock holder"),
        1
    );

    // The old primary loads the lock from its AOF and takes itself for a primary until a sentinel makes it a replica.
    // It has no replicas, so it refuses every write.
    first.start_again();
    eventually("the old primary to be a replica", SOON * 3, || {
        let Some(reply) = first
            .try_connect()
            .ok()
            .and_then(|mut old| old.try_call(&["DLOCK.ACQUIRE", "other"]))
        else {
            return false;
        };
        // LOADING and MASTERDOWN are refusals too.
        assert!(
            reply.is_error(),
            "granted by a primary that was replaced: {reply:?}"
        );
        reply.error().starts_with("READONLY")
    });
    sentinels.wait_until_it_follows(&first, new);
    assert_eq!(first.connect().ask("EXISTS lock"), 0);
    assert!(
        ask_until_accepted(&mut client, "DLOCK.ACQUIRE lock")
            .grant()
            .1
            > fence
    );
    for server in [&first, &second, &third] {
        assert_calm(server);
    }
}
