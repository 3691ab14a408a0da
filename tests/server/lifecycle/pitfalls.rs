//! The server's sharp edges, each provoked on purpose: propagation during pauses, failovers and shutdowns,
//! clients that vanish in the turn of their grant, values freed on another thread, changes of role.
//!
//! The promise: the server stays up, nobody panics, every waiter gets exactly one reply or its connection
//! closes, and afterwards there is never a grantable waiter that nobody serves.

use crate::support::steps::{Ended, assert_calm, assert_clean_log, ended};
use crate::support::*;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const SOON: Duration = Duration::from_secs(10);

#[track_caller]
fn granted(waiter: &mut Client) -> (String, u64) {
    waiter.recv(SOON).expect("the waiter is granted").grant()
}

/// Waits for nothing but time.
fn until(moment: Instant) {
    eventually("a moment to come", SOON * 2, || Instant::now() >= moment);
}

/// Many requests in one write; their replies are checked.
fn in_bulk(client: &mut Client, requests: impl Iterator<Item = String>, check: impl Fn(&Reply)) {
    let requests: Vec<String> = requests.collect();
    for some in requests.chunks(500) {
        let lines: String = some
            .iter()
            .map(|request| format!("{request}\r\n"))
            .collect();
        client.send_raw(lines.as_bytes());
        for _ in some {
            check(&client.recv(SOON).expect("a reply"));
        }
    }
}

/// Locks that lapse all through a while, each of the first `waited` with a waiter.
struct Wave {
    waiters: Vec<Client>,
}

impl Wave {
    const KEYS: usize = 2_000;

    fn start(server: &Server, waited: usize) -> Wave {
        let mut client = server.connect();
        let requests = (0..Wave::KEYS).map(|n| format!("DLOCK.ACQUIRE k{n} PX {}", 400 + n / 4));
        in_bulk(&mut client, requests, |reply| drop(reply.grant()));
        let mut waiters: Vec<_> = (0..waited).map(|_| server.connect()).collect();
        for (n, waiter) in waiters.iter_mut().enumerate() {
            // Spread over the whole of the wave.
            let key = n * (Wave::KEYS / waited);
            send!(
                waiter,
                "DLOCK.ACQUIRE",
                format!("k{key}"),
                "BLOCK",
                0,
                "PX",
                300,
                "TOKEN",
                format!("w{n}")
            );
        }
        Wave { waiters }
    }

    /// Waits for the middle of it.
    fn middle(&self, server: &Server) {
        eventually("the middle of the wave", SOON, || {
            call!(server.connect(), "DBSIZE").as_int() < Wave::KEYS as i64 * 2 / 3
        });
    }

    #[track_caller]
    fn assert_all_served(mut self, server: &Server) {
        for (n, waiter) in self.waiters.iter_mut().enumerate() {
            assert_eq!(granted(waiter).0, format!("w{n}"));
        }
        eventually("the end of the wave", SOON, || {
            call!(server.connect(), "DBSIZE") == 0
        });
    }
}

#[test]
fn a_pause_in_the_middle_of_a_wave_of_lapses() {
    for kind in ["WRITE", "ALL"] {
        let server = Server::builder().config("appendonly", "yes").start();
        let replica = Server::builder().replica_of(&server).start();
        let wave = Wave::start(&server, 100);
        wave.middle(&server);
        for _ in 0..3 {
            assert_eq!(call!(server.connect(), "CLIENT", "PAUSE", 200, kind), "OK");
            until(Instant::now() + Duration::from_millis(250));
        }
        wave.assert_all_served(&server);
        replica.wait_to_catch_up_with(&server);
        assert_eq!(call!(replica.connect(), "DBSIZE"), 0);
        assert_calm(&server);
        assert_calm(&replica);
    }
}

#[test]
fn a_pause_from_within_a_transaction_that_hands_on() {
    let server = Server::builder().config("appendonly", "yes").start();
    let _replica = Server::builder().replica_of(&server).start();
    let (mut client, mut waiter) = (server.connect(), server.connect());
    call!(client, "DLOCK.ACQUIRE", "k", "TOKEN", "t");
    call!(client, "DLOCK.ACQUIRE", "short", "PX", 100);
    send!(waiter, "DLOCK.ACQUIRE", "k", "BLOCK", 0, "TOKEN", "w");
    wait_for_blocked(&server, 1);
    call!(client, "MULTI");
    call!(client, "CLIENT", "PAUSE", 400, "WRITE");
    call!(client, "DLOCK.RELEASE", "k", "t");
    let done = call!(client, "EXEC");
    assert_eq!(done.as_array()[1], 1);
    assert_eq!(granted(&mut waiter).0, "w");
    eventually("a lapse after the pause", SOON, || {
        call!(client, "EXISTS", "short") == 0
    });
    assert_calm(&server);
}

#[test]
fn a_failover_in_the_middle_of_a_wave_of_lapses() {
    let old = Server::start();
    let new = Server::builder()
        .module_arg("takeover-grace-ms")
        .module_arg(200)
        .replica_of(&old)
        .start();
    let fence = call!(
        old.connect(),
        "DLOCK.ACQUIRE",
        "lasting",
        "EX",
        60,
        "TOKEN",
        "t"
    )
    .grant()
    .1;
    let wave = Wave::start(&old, 100);
    let mut waiter = old.connect();
    send!(waiter, "DLOCK.ACQUIRE", "lasting", "BLOCK", 0);
    wave.middle(&old);
    assert_eq!(
        call!(
            old.connect(),
            "FAILOVER",
            "TO",
            "127.0.0.1",
            new.port(),
            "TIMEOUT",
            8000
        ),
        "OK"
    );
    eventually("the change of roles", SOON, || {
        new.info("replication", "role") == "master" && old.info("replication", "role") == "slave"
    });
    // Whoever was not granted before is told, in words or by the end of the connection.
    let ends: Vec<Ended> = wave.waiters.into_iter().map(ended).collect();
    let answered =
        |end: &Ended| matches!(end, Ended::Granted(_) | Ended::Unblocked | Ended::Closed);
    assert!(ends.iter().all(answered), "{ends:?}");
    assert!(matches!(ended(waiter), Ended::Unblocked | Ended::Closed));

    // The new primary has all, lapses what is due and serves.
    let mut client = new.connect();
    assert!(call!(client, "DLOCK.CHECK", "lasting", "t").as_int() > 0);
    let mut heir = new.connect();
    send!(
        heir,
        "DLOCK.ACQUIRE",
        "lasting",
        "BLOCK",
        0,
        "TOKEN",
        "heir"
    );
    wait_for_blocked(&new, 1);
    assert_eq!(call!(client, "DLOCK.RELEASE", "lasting", "t"), 1);
    assert!(granted(&mut heir).1 > fence);
    eventually("the rest of the wave", SOON, || {
        call!(client, "DBSIZE") == 1
    });
    old.wait_for_sync();
    old.wait_to_catch_up_with(&new);
    eventually("the same on the old primary", SOON, || {
        digest(&old, "lasting") == digest(&new, "lasting")
    });
    assert_calm(&old);
    assert_calm(&new);
}

#[test]
fn a_failover_that_is_given_up_goes_on_where_it_was() {
    let server = Server::start();
    let replica = Server::builder().replica_of(&server).start();
    let wave = Wave::start(&server, 50);
    wave.middle(&server);
    // It cannot catch up, so the primary stays paused until the failover is aborted.
    replica.stop();
    let mut client = server.connect();
    call!(client, "SET", "x", 1);
    assert_eq!(
        call!(
            client,
            "FAILOVER",
            "TO",
            "127.0.0.1",
            replica.port(),
            "TIMEOUT",
            60_000
        ),
        "OK"
    );
    until(Instant::now() + Duration::from_millis(300));
    let aborted = call!(client, "FAILOVER", "ABORT");
    assert_eq!(aborted, "OK", "{aborted:?}");
    replica.cont();
    call!(client, "DEL", "x");
    wave.assert_all_served(&server);
    assert_calm(&server);
    assert_eq!(server.info("replication", "role"), "master");
}

#[test]
fn a_shutdown_that_waits_for_a_replica_in_the_middle_of_a_wave() {
    let mut server = Server::builder()
        .config("shutdown-timeout", 2)
        .config("appendonly", "yes")
        .start();
    let replica = Server::builder().replica_of(&server).start();
    let mut wave = Wave::start(&server, 50);
    wave.middle(&server);
    replica.stop();
    let mut client = server.connect();
    call!(client, "SET", "x", 1);
    // It pauses writes until the replica has caught up, which it cannot.
    let mut admin = server.connect();
    send!(admin, "SHUTDOWN");
    until(Instant::now() + Duration::from_millis(300));
    let aborted = call!(client, "SHUTDOWN", "ABORT");
    assert_eq!(aborted, "OK", "{aborted:?}");
    assert!(admin.recv(SOON).expect("SHUTDOWN is answered").is_error());
    for (n, waiter) in wave.waiters.iter_mut().enumerate() {
        assert_eq!(granted(waiter).0, format!("w{n}"));
    }
    call!(client, "DEL", "x");
    eventually("the end of the wave", SOON, || call!(client, "DBSIZE") == 0);
    assert_calm(&server);

    // And once more, to its end: with leases that run out meanwhile, and waiters whose connections close.
    let wave = Wave::start(&server, 50);
    wave.middle(&server);
    server.shutdown();
    let ends: Vec<Ended> = wave.waiters.into_iter().map(ended).collect();
    assert!(
        ends.iter()
            .all(|end| matches!(end, Ended::Granted(_) | Ended::Closed)),
        "{ends:?}"
    );
    assert_clean_log(&server);
    replica.cont();
    // What it says of the waves it had saved is sound.
    server.start_again();
    eventually("the rest of the wave", SOON * 2, || {
        call!(server.connect(), "DBSIZE").as_int() <= 1
    });
    assert_calm(&server);
}

#[test]
fn clients_that_are_killed_in_the_turn_of_their_grant_cost_nobody_anything() {
    let server = Server::builder().config("appendonly", "yes").start();
    let replica = Server::builder().replica_of(&server).start();
    let mut client = server.connect();
    for round in 0..30 {
        // Tokens of its own for each round: the place of a killed waiter is kept for its token.
        call!(client, "DLOCK.ACQUIRE", "k", "TOKEN", "t");
        let mut waiters: Vec<_> = (0..12).map(|_| server.connect()).collect();
        let ids: Vec<_> = waiters.iter_mut().map(Client::id).collect();
        for (n, waiter) in waiters.iter_mut().enumerate() {
            send!(
                waiter,
                "DLOCK.ACQUIRE",
                "k",
                "BLOCK",
                0,
                "TOKEN",
                format!("{round}:{n}")
            );
            wait_for_blocked(&server, n as u64 + 1);
        }
        // The head is granted and killed in one turn, and so is, in the next turn, who comes after; others
        // are killed before, while they only wait.
        let killed = 1 + round % 10;
        let mut lines = format!("CLIENT KILL ID {}\r\nDLOCK.RELEASE k t\r\n", ids[3]);
        for id in ids.iter().take(killed).filter(|id| **id != ids[3]) {
            lines.push_str(&format!("CLIENT KILL ID {id}\r\n"));
        }
        client.send_raw(lines.as_bytes());
        for _ in 0..lines.lines().count() {
            assert_eq!(client.recv(SOON).expect("a reply"), 1);
        }
        let survivors = (0..12).filter(|n| *n >= killed && *n != 3);
        let mut last = 0;
        for n in survivors {
            let Some(reply) = waiters[n].recv(SOON) else {
                let info = call!(client, "DLOCK.INFO", "k");
                panic!("round {round}: waiter {n} is not granted: {info:?}");
            };
            let (token, fence) = reply.grant();
            assert_eq!(token, format!("{round}:{n}"));
            assert!(fence > last);
            last = fence;
            assert_eq!(
                call!(client, "DLOCK.RELEASE", "k", &token),
                1,
                "round {round}"
            );
        }
        eventually("a free lock", SOON, || call!(client, "EXISTS", "k") == 0);
    }
    wait_for_blocked(&server, 0);
    replica.wait_to_catch_up_with(&server);
    assert_eq!(call!(replica.connect(), "DBSIZE"), 0);
    assert_calm(&server);
    assert_calm(&replica);
}

#[test]
fn clients_that_are_unblocked_around_their_grant_get_one_reply_and_the_lock_goes_on() {
    let server = Server::start();
    let mut client = server.connect();
    for round in 0..30 {
        call!(client, "DLOCK.ACQUIRE", "k", "TOKEN", "t");
        let mut waiters: Vec<_> = (0..6).map(|_| server.connect()).collect();
        let ids: Vec<_> = waiters.iter_mut().map(Client::id).collect();
        for (n, waiter) in waiters.iter_mut().enumerate() {
            send!(
                waiter,
                "DLOCK.ACQUIRE",
                "k",
                "BLOCK",
                0,
                "TOKEN",
                format!("{round}:{n}")
            );
            wait_for_blocked(&server, n as u64 + 1);
        }
        // Before the grant by either way; after it, in its very turn, as if timed out. (As if by an error
        // in that turn is a defect of some servers.)
        let requests = [
            format!("CLIENT UNBLOCK {} ERROR", ids[0]),
            format!("CLIENT UNBLOCK {} TIMEOUT", ids[1]),
            "DLOCK.RELEASE k t".to_owned(),
            format!("CLIENT UNBLOCK {} TIMEOUT", ids[2]),
        ];
        client.send_raw((requests.join("\r\n") + "\r\n").as_bytes());
        let replies: Vec<_> = requests
            .iter()
            .map(|_| client.recv(SOON).expect("a reply").as_int())
            .collect();
        assert_eq!(replies[..3], [1, 1, 1]);
        let mut ends = Vec::new();
        for (n, waiter) in waiters.into_iter().enumerate() {
            let end = ended(waiter);
            if matches!(end, Ended::Granted(_)) {
                let token = format!("{round}:{n}");
                assert_eq!(
                    call!(client, "DLOCK.RELEASE", "k", token),
                    1,
                    "round {round}, waiter {n}"
                );
            }
            ends.push(end);
        }
        assert_eq!(
            ends[..2],
            [Ended::Unblocked, Ended::Nothing],
            "round {round}"
        );
        for end in &ends[3..] {
            assert!(matches!(end, Ended::Granted(_)), "round {round}: {ends:?}");
        }
        eventually("a free lock", SOON, || call!(client, "EXISTS", "k") == 0);
    }
    wait_for_blocked(&server, 0);
    assert_calm(&server);
}

#[test]
fn where_blocking_is_forbidden_a_request_is_a_try() {
    let server = Server::start();
    let mut client = server.connect();
    call!(client, "DLOCK.ACQUIRE", "k", "TOKEN", "t");
    call!(client, "DSEM.ACQUIRE", "s", "LIMIT", 1, "TOKEN", "t");
    call!(client, "DWG.ADD", "g", "LIMIT", 1, "TOKEN", "t");
    let library = "#!lua name=l\nredis.register_function('ask', function(keys, args) \
                   return redis.call(args[1], keys[1], 'BLOCK', '0') end)";
    call!(client, "FUNCTION", "LOAD", library);
    for (command, key) in [
        ("DLOCK.ACQUIRE", "k"),
        ("DSEM.ACQUIRE", "s"),
        ("DWG.ADD", "g"),
        ("DWG.WAIT", "g"),
    ] {
        let script = "return redis.call(ARGV[1], KEYS[1], 'BLOCK', '0')";
        assert!(
            call!(client, "EVAL", script, 1, key, command).is_nil(),
            "{command} in Lua"
        );
        assert!(
            call!(client, "FCALL", "ask", 1, key, command).is_nil(),
            "{command} in a function"
        );
        call!(client, "MULTI");
        call!(client, command, key, "BLOCK", 0);
        let done = call!(client, "EXEC");
        assert!(done.as_array()[0].is_nil(), "{command} in MULTI: {done:?}");
        call!(client, "CLIENT", "TRACKING", "OFF");
    }
    // In each of them a lock that is free is granted.
    let script = "return redis.call('DLOCK.ACQUIRE', KEYS[1], 'BLOCK', '0', 'TOKEN', 'lua')";
    assert_eq!(call!(client, "EVAL", script, 1, "free").grant().0, "lua");
    wait_for_blocked(&server, 0);
    // Nobody was left in a queue.
    for (info, key) in [("DLOCK.INFO", "k"), ("DSEM.INFO", "s"), ("DWG.INFO", "g")] {
        assert_eq!(*call!(client, info, key).field("waiters"), 0);
    }
    assert_calm(&server);
}

#[test]
fn a_resp3_client_with_a_subscription_waits_or_is_refused_and_never_hangs() {
    let server = Server::start();
    let (mut client, mut waiter) = (server.connect(), server.connect_resp3());
    call!(client, "DLOCK.ACQUIRE", "k", "TOKEN", "t");
    send!(waiter, "SUBSCRIBE", "channel");
    waiter.recv(SOON).expect("a subscription");
    send!(waiter, "DLOCK.ACQUIRE", "k", "BLOCK", 1500, "TOKEN", "w");
    // Some servers cannot park such a client: it is told at once.
    let at_once = waiter.recv(Duration::from_millis(150));
    call!(client, "DLOCK.RELEASE", "k", "t");
    match at_once {
        Some(reply) => assert!(reply.is_nil(), "{reply:?}"),
        None => assert_eq!(granted(&mut waiter).0, "w"),
    }
    assert_calm(&server);
}

#[test]
fn connections_that_close_while_a_script_is_busy_are_seen_to_afterwards() {
    let server = Server::builder()
        .config("busy-reply-threshold", 30)
        .config("appendonly", "yes")
        .start();
    let _replica = Server::builder().replica_of(&server).start();
    let (mut slow, mut client) = (server.connect(), server.connect());
    for _ in 0..3 {
        let (mut ephemeral, mut leaving, mut heir) =
            (server.connect(), server.connect(), server.connect());
        call!(ephemeral, "DLOCK.ACQUIRE", "bound", "EPHEMERAL", "EX", 60);
        send!(leaving, "DLOCK.ACQUIRE", "bound", "BLOCK", 0);
        wait_for_blocked(&server, 1);
        send!(heir, "DLOCK.ACQUIRE", "bound", "BLOCK", 0, "TOKEN", "heir");
        wait_for_blocked(&server, 2);
        let script = format!(
            "redis.call('SET', KEYS[1], 1) {} return 'done'",
            busy_for(500)
        );
        send!(slow, "EVAL", script, 1, "x");
        eventually("a busy server", SOON, || call!(client, "PING").is_error());
        ephemeral.close();
        leaving.close();
        assert_eq!(slow.recv(SOON).expect("the script ends"), "done");
        assert_eq!(granted(&mut heir).0, "heir");
        assert_eq!(call!(client, "DLOCK.RELEASE", "bound", "heir"), 1);
    }
    assert_calm(&server);
}

#[test]
fn names_that_no_hash_tag_can_express_are_waited_for_like_any_other() {
    let server = Server::start();
    let mut client = server.connect();
    for key in [
        "}",
        "a}b",
        "{}",
        "{}a",
        "",
        "{tag}k",
        "\0dsync:waiting:{k}",
        "k",
    ] {
        let mut waiters: Vec<_> = (0..3).map(|_| server.connect()).collect();
        call!(client, "DLOCK.ACQUIRE", key, "TOKEN", "t");
        for (n, waiter) in waiters.iter_mut().enumerate() {
            send!(
                waiter,
                "DLOCK.ACQUIRE",
                key,
                "BLOCK",
                0,
                "TOKEN",
                format!("w{n}")
            );
            wait_for_blocked(&server, n as u64 + 1);
        }
        // Removed and made again under their eyes: the first is granted, the others stay.
        assert_eq!(call!(client, "DEL", key), 1);
        assert_eq!(granted(&mut waiters[0]).0, "w0", "{key:?}");
        waiters[1].expect_silence(Duration::from_millis(30));
        assert_eq!(call!(client, "DLOCK.RELEASE", key, "w0"), 1);
        assert_eq!(granted(&mut waiters[1]).0, "w1", "{key:?}");
        // Taken by a value of the server's own.
        assert_eq!(call!(client, "SET", key, "other"), "OK");
        let told = waiters[2].recv(SOON).expect("the last is told");
        assert!(told.error().starts_with("WRONGTYPE"), "{key:?}: {told:?}");
        call!(client, "FLUSHALL");
    }
    assert_calm(&server);
}

#[test]
fn a_save_in_the_background_leaves_a_thousand_waiters_alone() {
    let server = Server::builder().config("appendonly", "yes").start();
    let mut client = server.connect();
    call!(client, "DLOCK.ACQUIRE", "k", "TOKEN", "t");
    let mut waiters: Vec<_> = (0..1_000).map(|_| server.connect()).collect();
    for (n, waiter) in waiters.iter_mut().enumerate() {
        send!(
            waiter,
            "DLOCK.ACQUIRE",
            "k",
            "SHARED",
            "BLOCK",
            0,
            "TOKEN",
            format!("w{n}")
        );
    }
    wait_for_blocked(&server, 1_000);
    for save in ["BGSAVE", "BGREWRITEAOF"] {
        let reply = call!(client, save);
        assert!(!reply.is_error(), "{reply:?}");
        eventually("the end of the save", SOON * 2, || {
            let info = server.info_section("persistence");
            [
                "rdb_bgsave_in_progress:0",
                "aof_rewrite_in_progress:0",
                "rdb_last_bgsave_status:ok",
                "aof_last_bgrewrite_status:ok",
            ]
            .iter()
            .all(|line| info.contains(line))
        });
        assert_eq!(blocked_clients(&server), 1_000);
    }
    assert_eq!(
        call!(client, "BGSAVE").as_str(),
        "Background saving started"
    );
    assert_eq!(call!(client, "DLOCK.RELEASE", "k", "t"), 1);
    for (n, waiter) in waiters.iter_mut().enumerate() {
        assert_eq!(granted(waiter).0, format!("w{n}"));
    }
    assert_eq!(*call!(client, "DLOCK.INFO", "k").field("holders"), 1_000);
    assert_calm(&server);
}

#[test]
fn fifty_thousand_holds_that_are_freed_on_another_thread_and_their_names_used_again() {
    let server = Server::start();
    let mut client = server.connect();
    let acquire =
        |generation: usize| move |n| format!("DLOCK.ACQUIRE k{n} PX 60000 TOKEN g{generation}");
    let mut used = Vec::new();
    for generation in 0..4 {
        in_bulk(&mut client, (0..50_000).map(acquire(generation)), |reply| {
            drop(reply.grant())
        });
        used.push(server.info_number("memory", "used_memory"));
        let mut waiter = server.connect();
        send!(waiter, "DLOCK.ACQUIRE", "k7", "BLOCK", 0, "TOKEN", "waiter");
        wait_for_blocked(&server, 1);
        let flush = ["FLUSHALL", "FLUSHDB", "FLUSHALL", "FLUSHDB"][generation];
        assert_eq!(call!(client, flush, "ASYNC"), "OK");
        // At once, while the old ones are still being freed elsewhere.
        in_bulk(
            &mut client,
            (0..2_000).map(|n| format!("DLOCK.ACQUIRE new{n} PX 60000 TOKEN new")),
            |reply| drop(reply.grant()),
        );
        assert_eq!(granted(&mut waiter).0, "waiter");
        in_bulk(
            &mut client,
            (0..2_000).map(|n| format!("DLOCK.CHECK new{n} new")),
            |left| {
                assert!(left.as_int() > 0);
            },
        );
        assert_eq!(
            call!(client, "DLOCK.CHECK", "k1", format!("g{generation}")),
            0
        );
        assert_eq!(call!(client, "DBSIZE"), 2_001);
        assert_eq!(call!(client, "FLUSHALL", "SYNC"), "OK");
    }
    // Numbers of freed values are used again: what three generations leave is not three times as much.
    assert!(
        used[3] < used[0] + used[0] / 2,
        "used_memory by generation: {used:?}"
    );
    assert_calm(&server);
}

#[test]
fn a_wave_of_lapses_and_a_flush_in_the_middle_of_it() {
    let server = Server::start();
    for flush in [
        &["FLUSHALL", "ASYNC"][..],
        &["FLUSHDB", "SYNC"],
        &["SWAPDB", "0", "1"],
    ] {
        let mut wave = Wave::start(&server, 40);
        wave.middle(&server);
        assert_eq!(server.connect().call(flush), "OK");
        for (n, waiter) in wave.waiters.iter_mut().enumerate() {
            assert_eq!(granted(waiter).0, format!("w{n}"), "{flush:?}");
        }
        let mut client = server.connect();
        for db in 0..2 {
            call!(client, "SELECT", db);
            eventually("the end of the wave", SOON, || call!(client, "DBSIZE") == 0);
        }
    }
    assert_calm(&server);
}

#[test]
fn a_promoted_replica_lapses_what_is_due_serves_at_once_and_outranks_the_old_primary() {
    let mut primary = Server::start();
    let replica = Server::builder()
        .module_arg("takeover-grace-ms")
        .module_arg(300)
        .replica_of(&primary)
        .start();
    let mut client = primary.connect();
    let fence = call!(client, "DLOCK.ACQUIRE", "lasting", "EX", 60, "TOKEN", "t")
        .grant()
        .1;
    call!(client, "DLOCK.ACQUIRE", "due", "PX", 900, "TOKEN", "t");
    call!(client, "DLOCK.ACQUIRE", "free", "TOKEN", "t");
    call!(client, "DLOCK.RELEASE", "free", "t");
    call!(
        client,
        "DSEM.ACQUIRE",
        "s",
        "LIMIT",
        2,
        "EX",
        60,
        "TOKEN",
        "t"
    );
    call!(client, "DWG.ADD", "g", "EX", 60, "TOKEN", "t");
    replica.wait_to_catch_up_with(&primary);
    // Grants that the replica never hears of.
    replica.stop();
    let mut lost = 0;
    for n in 0..100 {
        lost = call!(client, "DLOCK.ACQUIRE", format!("lost{n}")).grant().1;
    }
    let since = Instant::now();
    primary.kill9();
    until(since + Duration::from_millis(1_000));
    replica.cont();

    let mut client = replica.connect();
    assert_eq!(call!(client, "REPLICAOF", "NO", "ONE"), "OK");
    let mut waiter = replica.connect();
    send!(waiter, "DLOCK.ACQUIRE", "due", "BLOCK", 0, "TOKEN", "w");
    let new = call!(client, "DLOCK.ACQUIRE", "free").grant().1;
    assert!(
        new > lost && lost > fence,
        "{new} outranks what was lost, {lost}"
    );
    let unix_us = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("the clock is past 1970")
        .as_micros() as u64;
    assert!(
        new > unix_us + 3_590_000_000,
        "and whatever a cut-off primary still gives out: {new}"
    );
    assert_eq!(granted(&mut waiter).0, "w");
    assert!(call!(client, "DLOCK.CHECK", "lasting", "t").as_int() > 50_000);
    assert!(call!(client, "DSEM.ACQUIRE", "s", "TOKEN", "u").grant().1 > new);
    assert!(call!(client, "DSEM.ACQUIRE", "s", "TOKEN", "v").is_nil());
    let mut watcher = replica.connect();
    send!(watcher, "DWG.WAIT", "g", "BLOCK", 0);
    wait_for_blocked(&replica, 1);
    assert_eq!(call!(client, "DWG.DONE", "g", "t"), 1);
    let finished = watcher.recv(SOON).expect("the round finishes");
    assert_eq!(finished.as_array(), [Reply::Int(1), Reply::Int(0)]);
    assert_calm(&replica);
}

#[test]
fn a_demoted_primary_tells_its_waiters_and_follows_and_may_be_promoted_again() {
    let first = Server::builder()
        .module_arg("takeover-grace-ms")
        .module_arg(0)
        .start();
    let second = Server::builder().replica_of(&first).start();
    for round in 0..3 {
        let mut client = first.connect();
        let token = format!("t{round}");
        call!(client, "DLOCK.ACQUIRE", "k", "PX", 2500, "TOKEN", &token);
        call!(client, "DSEM.ACQUIRE", "s", "LIMIT", 1, "TOKEN", &token);
        call!(client, "DWG.ADD", "g", "TOKEN", &token);
        let mut waiters: Vec<_> = (0..6).map(|_| first.connect()).collect();
        for (n, waiter) in waiters.iter_mut().enumerate() {
            match n % 3 {
                0 => send!(waiter, "DLOCK.ACQUIRE", "k", "BLOCK", 0, "TOKEN", n),
                1 => send!(waiter, "DSEM.ACQUIRE", "s", "BLOCK", 0),
                _ => send!(waiter, "DWG.WAIT", "g", "BLOCK", 30_000),
            }
        }
        wait_for_blocked(&first, 6);
        second.wait_to_catch_up_with(&first);
        assert_eq!(call!(second.connect(), "REPLICAOF", "NO", "ONE"), "OK");
        assert_eq!(call!(client, "REPLICAOF", "127.0.0.1", second.port()), "OK");
        let ends: Vec<Ended> = waiters.into_iter().map(ended).collect();
        assert!(
            ends.iter()
                .all(|end| matches!(end, Ended::Unblocked | Ended::Closed)),
            "{ends:?}"
        );
        wait_for_blocked(&first, 0);
        first.wait_for_sync();
        assert_eq!(digest(&first, "k"), digest(&second, "k"));
        // Nobody is left in a queue there, and nothing lapses there.
        let mut client = first.connect();
        assert_eq!(
            call!(client, "DLOCK.INFO", "k").field("waiters"),
            &"unknown on a replica"
        );
        assert_eq!(call!(second.connect(), "DLOCK.RELEASE", "k", &token), 1);
        first.wait_to_catch_up_with(&second);
        assert_eq!(call!(client, "EXISTS", "k"), 0);
        // Back again.
        assert_eq!(call!(client, "REPLICAOF", "NO", "ONE"), "OK");
        assert_eq!(
            call!(second.connect(), "REPLICAOF", "127.0.0.1", first.port()),
            "OK"
        );
        second.wait_for_sync();
        assert_eq!(*call!(client, "DSEM.INFO", "s").field("waiters"), 0);
        let (_, fence) = call!(client, "DLOCK.ACQUIRE", "k", "PX", 50, "TOKEN", "again").grant();
        let mut waiter = first.connect();
        send!(waiter, "DLOCK.ACQUIRE", "k", "BLOCK", 0, "TOKEN", "next");
        assert!(
            granted(&mut waiter).1 > fence,
            "the promoted one lapses and serves"
        );
        call!(client, "FLUSHALL");
    }
    assert_calm(&first);
    assert_calm(&second);
}

#[test]
fn removals_from_within_scripts_and_transactions_hand_on() {
    let server = Server::builder().config("appendonly", "yes").start();
    let replica = Server::builder().replica_of(&server).start();
    let mut client = server.connect();
    for round in 0..10 {
        for step in 0..4 {
            call!(client, "DLOCK.ACQUIRE", "k", "TOKEN", "t");
            let mut waiter = server.connect();
            let token = format!("{round}:{step}");
            send!(waiter, "DLOCK.ACQUIRE", "k", "BLOCK", 0, "TOKEN", &token);
            wait_for_blocked(&server, 1);
            match step {
                0 => drop(call!(
                    client,
                    "EVAL",
                    "return redis.call('DEL', KEYS[1])",
                    1,
                    "k"
                )),
                1 => {
                    call!(client, "MULTI");
                    call!(client, "DEL", "k");
                    call!(client, "SET", "x", 1);
                    call!(client, "EXEC");
                }
                2 => drop(call!(client, "PEXPIRE", "k", 20)),
                _ => drop(call!(client, "EVAL", "redis.call('FLUSHALL')", 0)),
            }
            assert_eq!(granted(&mut waiter).0, token);
            replica.wait_to_catch_up_with(&server);
            assert!(
                call!(replica.connect(), "DLOCK.CHECK", "k", &token).as_int() > 0,
                "step {step}"
            );
            assert_eq!(call!(client, "DLOCK.RELEASE", "k", &token), 1);
        }
    }
    assert_calm(&server);
    assert_calm(&replica);
}

#[test]
fn a_storm_of_everything_leaves_no_waiter_behind() {
    let server = Server::builder().config("appendonly", "yes").start();
    let replica = Server::builder().replica_of(&server).start();
    let end = Instant::now() + Duration::from_secs(3);
    thread::scope(|scope| {
        for worker in 0..6u64 {
            let server = &server;
            scope.spawn(move || {
                let mut n = worker;
                let mut client = server.connect();
                while Instant::now() < end {
                    n = n
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let pick = (n >> 33) % 6;
                    let key = ["a", "b"][(n >> 40) as usize % 2];
                    let request: Vec<String> = match pick {
                        0 => format!("DLOCK.ACQUIRE {key} PX 30 BLOCK 50 EPHEMERAL"),
                        1 => {
                            format!("DLOCK.ACQUIRE {key} SHARED PX 30 BLOCK 50 TOKEN w{worker}:{n}")
                        }
                        2 => format!("DLOCK.ACQUIRE {key} PX 20 BLOCK 0"),
                        3 => format!("DEL {key}"),
                        4 => "CLIENT PAUSE 5 WRITE".to_owned(),
                        _ => "CLIENT KILL TYPE normal SKIPME yes".to_owned(),
                    }
                    .split(' ')
                    .map(str::to_owned)
                    .collect();
                    // Killed by another, as likely as not.
                    if client.try_call(&request).is_none() {
                        client = server.connect();
                    }
                }
            });
        }
    });
    wait_for_blocked(&server, 0);
    let mut client = server.connect();
    for key in ["a", "b"] {
        let reply = call!(
            client,
            "DLOCK.ACQUIRE",
            key,
            "BLOCK",
            5_000,
            "TOKEN",
            "last"
        );
        assert_eq!(reply.grant().0, "last");
        assert_eq!(call!(client, "DLOCK.RELEASE", key, "last"), 1);
        assert_eq!(call!(client, "EXISTS", key), 0);
    }
    replica.wait_to_catch_up_with(&server);
    assert_eq!(call!(replica.connect(), "DBSIZE"), 0);
    assert_calm(&server);
    assert_calm(&replica);
}
