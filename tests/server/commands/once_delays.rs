//! Work-once, FAIL with DELAY: who is answered during a delay, and how it ends. Whoever carries the delay out, be it
//! the timer, a request, a restarted server or a promoted replica, nobody begins early, and the first in line begins
//! then.

use crate::commands::once_steps::*;
use crate::observing::listener::Listener;
use crate::replication::watched_primary::*;
use crate::support::steps::*;
use crate::support::*;
use std::thread;

/// Fails the first run of the key, and asks for this delay.
#[track_caller]
fn fail_with_delay(client: &mut Client, key: &str, ms: u64) {
    run(&client.ask(format!("DONCE.BEGIN {key} TOKEN first")));
    let fail = format!("DONCE.FAIL {key} first REASON overload DELAY {ms}");
    assert_eq!(client.ask(fail), 1);
}

#[track_caller]
fn wait_for_state(client: &mut Client, key: &str, state: &str) {
    eventually(&format!("{key} to be {state}"), SOON, || {
        about(client, key, "state") == *state
    });
}

#[test]
fn delay_makes_tries_fail_waiters_wait_and_exhausted_requests_fail_at_once() {
    let server = Server::start();
    let mut client = server.connect();
    run(&client.ask("DONCE.BEGIN job TOKEN first"));
    let mut first = server.waiting("DONCE.BEGIN job BLOCK 0 TOKEN w1");
    let mut exhausted = server.waiting("DONCE.BEGIN job BLOCK 0 MAX 1");
    let mut second = server.waiting("DONCE.BEGIN job BLOCK 0 MAX 2 TOKEN w2");
    let before = unix_ms();
    let fail = "DONCE.FAIL job first REASON overload DELAY 400";
    assert_eq!(client.ask(fail), 1);
    // In the queue too, nobody waits for an attempt that it does not allow.
    assert_failed(&exhausted.reply(), "overload", 1);
    let replies = client.ask_all([
        "DONCE.BEGIN job MAX 1",
        "DONCE.BEGIN job MAX 1 BLOCK 1",
        "DONCE.BEGIN job MAX 2",
        "DONCE.GET job",
    ]);
    if unix_ms() < before + 400 {
        assert_failed(&replies[0], "overload", 1);
        assert_failed(&replies[1], "overload", 1);
        assert!(replies[2].is_nil() && replies[3].is_nil(), "{replies:?}");
    }
    let next = run(&first.reply());
    assert!(unix_ms() >= before + 400, "nobody begins early");
    assert_eq!((next.token.as_str(), next.attempt), ("w1", 2));
    // Without DELAY, and with a delay of 0, the next one begins at once. This one allows two attempts.
    assert_eq!(client.ask("DONCE.FAIL job w1 DELAY 0"), 1);
    assert_failed(&second.reply(), "failed", 2);
    assert_eq!(attempt(&client.ask("DONCE.BEGIN job TOKEN w3")), 3);
}

#[test]
fn info_of_delayed_key_shows_state_and_time_left() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(client.ask("DONCE.BEGIN job TOKEN t").as_array().len(), 4);
    assert_eq!(about(&mut client, "job", "delay-left-ms"), 0);
    assert_eq!(client.ask("DONCE.FAIL job t DELAY 60000"), 1);
    assert_eq!(about(&mut client, "job", "state"), *"delayed");
    let left_ms = about(&mut client, "job", "delay-left-ms").as_int();
    assert!((1..=60_000).contains(&left_ms), "{left_ms}");
    // No token has anything to end, and DEL forgets the delay with everything else.
    for line in [
        "DONCE.DONE job t",
        "DONCE.FAIL job t DELAY 5",
        "DONCE.RELEASE job t",
        "DONCE.RENEW job t",
        "DONCE.CHECK job t",
    ] {
        assert_eq!(client.ask(line), 0, "{line}");
    }
    let mut waiter = server.waiting("DONCE.BEGIN job BLOCK 0");
    assert_eq!(client.ask("DEL job"), 1);
    assert_eq!(attempt(&waiter.reply()), 1);
}

/// A timer that is late makes nobody wait: the next BEGIN carries out the end of the delay itself.
#[test]
fn begin_after_delay_runs_although_timer_is_late() {
    let server = Server::start();
    let mut client = server.connect();
    let replies = client.ask_all([
        "DONCE.BEGIN job TOKEN t",
        "DONCE.FAIL job t DELAY 20",
        "DEBUG SLEEP 0.05",
        "DONCE.INFO job",
        "DONCE.BEGIN job TOKEN u",
    ]);
    assert_eq!(*replies[3].field("state"), "idle", "as of the clock");
    assert_eq!(attempt(&replies[4]), 2);
}

/// A job that always fails at once is retried by its worker in a loop: 5,000 times without a delay, and with a delay
/// of a second as often as seconds have passed.
#[test]
fn job_that_fails_at_once_is_retried_once_a_second() {
    const HOT: i64 = 5_000;
    let server = Server::start();
    let mut client = server.connect();
    let started = unix_ms();
    thread::scope(|scope| {
        let worker = |key: &'static str, delay: &'static [&'static str]| {
            let mut client = server.connect();
            scope.spawn(move || {
                while let Some(begun) = client.try_call(&["DONCE.BEGIN", key, "BLOCK", "0"]) {
                    let fail = ["DONCE.FAIL", key, &run(&begun).token];
                    if client.try_call(&[&fail, delay].concat()).is_none() {
                        return;
                    }
                }
            });
        };
        worker("hot", &[]);
        worker("slow", &["DELAY", "1000"]);
        eventually("thousands of attempts", 3 * SOON, || {
            attempts(&mut client, "hot") >= HOT
        });
        let made = attempts(&mut client, "slow");
        let seconds = (unix_ms() - started) / 1_000;
        assert!(
            (1..=seconds.cast_signed() + 1).contains(&made),
            "{made} attempts in {seconds} s"
        );
        // The workers end with their connections.
        assert_eq!(client.ask("CLIENT KILL TYPE normal"), 2);
    });
}

#[test]
fn free_event_comes_at_the_end_of_the_delay() {
    let server = Server::builder()
        .config("notify-keyspace-events", "Ed")
        .start();
    let mut client = server.connect();
    run(&client.ask("DONCE.BEGIN job TOKEN t"));
    let mut listener = Listener::to_events(&server);
    let before = unix_ms();
    assert_eq!(client.ask("DONCE.FAIL job t DELAY 150"), 1);
    assert!(listener.hears_free(SOON), "no event at the end");
    assert!(unix_ms() >= before + 150, "not before");
    assert_eq!(attempt(&client.ask("DONCE.BEGIN job TOKEN u")), 2);
    // A client that waits is served instead, and without a delay the event comes at once.
    let mut waiter = server.waiting("DONCE.BEGIN job BLOCK 0 TOKEN w");
    assert_eq!(client.ask("DONCE.FAIL job u DELAY 1"), 1);
    assert_eq!(attempt(&waiter.reply()), 3);
    let heard = listener.so_far(&mut client);
    assert_eq!(heard, ["donce.fail job", "donce.run job", "donce.run job"]);
    assert_eq!(client.ask("DONCE.FAIL job w"), 1);
    let heard = listener.so_far(&mut client);
    assert_eq!(heard, ["donce.fail job", "donce.free job"]);
}

#[test]
fn delay_is_replicated_when_it_begins_and_when_it_ends() {
    let mut primary = WatchedPrimary::start();
    let first = primary.fence("DONCE.BEGIN job TOKEN t");
    let mut waiter = primary.server.waiting("DONCE.BEGIN job BLOCK 0 TOKEN w");
    primary.forget();
    assert_eq!(primary.ask("DONCE.FAIL job t REASON oh DELAY 150"), 1);
    // What a replica of 0.2.0 does not know has a command of its own, in the same transaction.
    let commands = primary.next_commands(2);
    assert_replicated(
        &format!("job once | FAIL {first} @ 2:oh"),
        &commands[0],
        primary.since,
    );
    assert_replicated("job once | DELAY @+150", &commands[1], primary.since);
    // Requests during the delay replicate nothing.
    assert!(primary.ask("DONCE.GET job").is_nil());
    let second = fence_of(&waiter.reply());
    let grant = format!("GRANT {second} run 30000 @+30000 @ 0 1:w 0:");
    primary.expect(&[
        "job once | DELAY NONE".to_owned(),
        format!("job once | {grant}"),
    ]);

    // Nobody waits: the timer ends the delay all the same.
    primary.forget();
    assert_eq!(primary.ask("DONCE.FAIL job w DELAY 20"), 1);
    primary.expect(&[
        &format!("job once | FAIL {second} @ 6:failed"),
        "job once | DELAY @+20",
        "job once | DELAY NONE",
    ]);

    // FAIL with a delay of 0 is FAIL without one.
    let third = primary.fence("DONCE.BEGIN job TOKEN x");
    primary.forget();
    assert_eq!(primary.ask("DONCE.FAIL job x DELAY 0"), 1);
    primary.expect_bare(&[format!("job once | FAIL {third} @ 6:failed")]);
}

/// A delay goes on by the clock, and its end is carried out by whoever decides then.
#[test]
fn delay_goes_on_after_restart_and_failover() {
    for way in ["aof", "rdb", "failover"] {
        let builder = match way {
            "aof" => Server::builder()
                .config("appendonly", "yes")
                .config("appendfsync", "always"),
            _ => Server::builder(),
        };
        let mut server = builder.start();
        let replica = Server::builder().replica_of(&server).start();
        let mut client = server.connect();
        let before = unix_ms();
        fail_with_delay(&mut client, "long", 86_400_000);
        fail_with_delay(&mut client, "short", 1_500);
        replica.wait_to_catch_up_with(&server);
        assert_eq!(replica.digest("long"), server.digest("long"));
        let server = match way {
            "failover" => {
                drop(server);
                assert_eq!(replica.connect().ask("REPLICAOF NO ONE"), "OK");
                replica
            }
            _ => {
                if way == "rdb" {
                    // The snapshot for the replica may not be written yet.
                    eventually("a save", SOON, || client.ask("SAVE") == "OK");
                }
                server.kill9();
                server.start_again();
                server
            }
        };
        let mut client = server.connect();
        let mut waiter = server.connect();
        waiter.begin("DONCE.BEGIN short BLOCK 0");
        assert_eq!(attempt(&waiter.reply()), 2, "{way}");
        assert!(unix_ms() >= before + 1_500, "{way}: nobody begins early");
        assert!(client.ask("DONCE.BEGIN long").is_nil(), "{way}");
        assert_eq!(about(&mut client, "long", "state"), *"delayed", "{way}");
        assert_failed(&client.ask("DONCE.BEGIN long MAX 1"), "overload", 1);
    }
}

/// A replica ends nothing, but it knows by its clock when a delay is over.
#[test]
fn replica_shows_end_of_delay_by_its_clock() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    // The first change after a synchronisation takes up to a second to arrive.
    assert_eq!(primary.connect().ask("SET first 1"), "OK");
    replica.wait_to_catch_up_with(&primary);
    fail_with_delay(&mut primary.connect(), "job", 2_000);
    replica.wait_to_catch_up_with(&primary);
    primary.stop();
    let before = replica.digest("job");
    let mut looker = replica.connect();
    wait_for_state(&mut looker, "job", "idle");
    assert_eq!(about(&mut looker, "job", "delay-left-ms"), 0);
    assert_eq!(replica.digest("job"), before, "nothing was decided");
    primary.cont();
    eventually("the end of the delay on both", SOON, || {
        replica.digest("job") != before && replica.digest("job") == primary.digest("job")
    });
}
