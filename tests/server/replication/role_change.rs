//! Roles that change hands by command: FAILOVER and REPLICAOF, with holders who hold and waiters who wait.
//!
//! The promise: whoever waited on the old primary gets one answer, or its connection closes, or it goes on
//! waiting and is served; nobody hangs. The new primary knows every hold by its token and its fence, grants
//! only higher fences, and lets a queue form at once. A change of role that is given up leaves a primary
//! that goes on.
//!
//! (Waves of lapses in the middle of all this are in `pitfalls`, a killed primary is in `sentinel`, one
//! that is cut off in `split_brain`.)

use crate::support::steps::*;
use crate::support::*;
use std::time::Duration;

/// A primary and its replica, which hears at once of what happens.
fn pair() -> (Server, Server) {
    pair_with_grace(5_000)
}

fn pair_with_grace(ms: u32) -> (Server, Server) {
    let builder = || {
        Server::builder()
            .module_arg("takeover-grace-ms")
            .module_arg(ms)
    };
    let old = builder().start();
    let new = builder().replica_of(&old).start();
    // Its link is up some time, often a second, before the primary sends it the first command.
    new.wait_to_catch_up_with(&old);
    ask(&mut old.connect(), "PUBLISH is-anybody there");
    new.wait_to_catch_up_with(&old);
    (old, new)
}

/// `FAILOVER` from one to the other; returns when both have changed their roles.
#[track_caller]
fn fail_over(from: &Server, to: &Server) {
    let failover = format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 30000", to.port());
    // A replica whose link has just come up may not be counted as online yet.
    eventually("a failover that begins", SOON, || {
        ask(&mut from.connect(), &failover) == "OK"
    });
    eventually("the change of roles", SOON * 2, || {
        role(to) == "master" && role(from) == "slave"
    });
    from.wait_for_sync();
}

#[track_caller]
fn role(server: &Server) -> String {
    server.info("replication", "role")
}

/// One request to hold something of each family, by its token.
const HOLDS: [(&str, &str); 5] = [
    ("lock", "DLOCK.ACQUIRE lock EX 60 TOKEN lock-holder"),
    ("room", "DLOCK.ACQUIRE room SHARED EX 60 TOKEN room-holder"),
    (
        "seats",
        "DSEM.ACQUIRE seats LIMIT 3 PERMITS 2 EX 60 TOKEN seats-holder",
    ),
    ("group", "DWG.ADD group EX 60 TOKEN group-holder"),
    (
        "bound",
        "DLOCK.ACQUIRE bound EX 60 EPHEMERAL TOKEN bound-holder",
    ),
];

const RUN: &str = "DONCE.BEGIN work EX 60 TOKEN worker";

/// Requests that have to wait for the holds above.
const WAITS: [&str; 6] = [
    "DLOCK.ACQUIRE lock BLOCK 0 TOKEN lock-next",
    "DLOCK.ACQUIRE room BLOCK 0 TOKEN room-next",
    "DSEM.ACQUIRE seats PERMITS 3 BLOCK 0 TOKEN seats-next",
    "DWG.WAIT group BLOCK 0",
    "DLOCK.ACQUIRE bound BLOCK 0 TOKEN bound-next",
    "DONCE.BEGIN work EX 60 BLOCK 0 TOKEN next-worker",
];

#[test]
fn after_a_failover_every_token_has_its_hold_and_every_waiter_is_served_where_it_asks_again() {
    let (old, new) = pair();
    let mut client = old.connect();
    let fences = HOLDS.map(|(_, request)| ask(&mut client, request).grant().1);
    let run = ask(&mut client, RUN);
    let run_fence = run.as_array()[2].as_int();
    let highest = fences.iter().copied().max().expect("a fence");
    let mut waiters: Vec<Client> = WAITS.iter().map(|wait| queued(&old, wait)).collect();
    // A request without BLOCK that is in the middle of it is answered like any other.
    waiters.push(queued(&old, "DLOCK.ACQUIRE lock BLOCK 0"));
    new.wait_to_catch_up_with(&old);
    let before = HOLDS.map(|(key, _)| digest(&old, key));

    fail_over(&old, &new);
    for waiter in waiters {
        let end = ended(waiter);
        assert!(matches!(end, Ended::Unblocked | Ended::Closed), "{end:?}");
    }
    wait_for_blocked(&old, 0);
    assert_eq!(HOLDS.map(|(key, _)| digest(&new, key)), before);

    // Waiters who come back first do not get past the holders, who come back to what they had.
    let mut waiters: Vec<Client> = WAITS.iter().map(|wait| queued(&new, wait)).collect();
    let mut client = new.connect();
    let mut bound = new.connect();
    for ((key, request), fence) in HOLDS.iter().zip(fences) {
        let connection = if *key == "bound" {
            &mut bound
        } else {
            &mut client
        };
        assert_eq!(ask(connection, request).grant().1, fence, "{request}");
    }
    let again = ask(&mut client, RUN);
    assert_eq!(again, run, "the same run, the same attempt: {run_fence}");

    for release in [
        "DLOCK.RELEASE lock lock-holder",
        "DLOCK.RELEASE room room-holder",
        "DSEM.RELEASE seats seats-holder",
        "DWG.DONE group group-holder",
        "DONCE.FAIL work worker REASON tired",
    ] {
        assert_eq!(ask(&mut client, release), 1, "{release}");
    }
    // The promoted node saw no connection of the holder's but the one that came back to it.
    bound.close();
    for (wait, waiter) in WAITS.iter().zip(&mut waiters) {
        let answer = reply(waiter);
        match *wait {
            "DWG.WAIT group BLOCK 0" => {
                assert_eq!(answer.as_array(), [Reply::Int(1), Reply::Int(0)]);
            }
            wait if wait.starts_with("DONCE") => {
                let run = answer.as_array();
                assert_eq!(
                    (&run[0], &run[3]),
                    (&Reply::Bulk(b"RUN".to_vec()), &Reply::Int(2))
                );
                assert!(run[2].as_int().unsigned_abs() > highest);
            }
            _ => assert!(answer.grant().1 > highest, "{wait}: {answer:?}"),
        }
        expect_no_more(waiter);
    }
    old.wait_to_catch_up_with(&new);
    for key in ["lock", "room", "seats", "bound", "work"] {
        assert_eq!(digest(&old, key), digest(&new, key), "{key}");
    }
    assert_calm(&old);
    assert_calm(&new);
}

#[test]
fn fences_rise_and_holds_last_through_one_failover_after_another() {
    let servers = pair();
    let (mut primary, mut replica) = (&servers.0, &servers.1);
    let held = ask(&mut primary.connect(), "DLOCK.ACQUIRE held EX 600 TOKEN t");
    let (mut highest, mut granted_so_far) = (held.grant().1, 1);
    for round in 0..4 {
        for n in 0..3 {
            let fence = ask(
                &mut primary.connect(),
                format!("DLOCK.ACQUIRE k{round}-{n}"),
            );
            let fence = fence.grant().1;
            assert!(fence > highest, "round {round}: {fence} after {highest}");
            highest = fence;
            granted_so_far += 1;
        }
        // Nobody waits: there is nobody to tell.
        fail_over(primary, replica);
        std::mem::swap(&mut primary, &mut replica);
        let mut client = primary.connect();
        assert_eq!(ask(&mut client, "DBSIZE"), granted_so_far);
        let again = ask(&mut client, "DLOCK.ACQUIRE held EX 600 TOKEN t");
        assert_eq!(again, held);
        replica.wait_to_catch_up_with(primary);
        assert_eq!(digest(primary, "held"), digest(replica, "held"));
    }
    assert_calm(primary);
    assert_calm(replica);
}

#[test]
fn a_promoted_node_lapses_after_the_grace_and_not_before() {
    let (old, new) = pair_with_grace(600);
    let mut client = old.connect();
    ask(&mut client, "DLOCK.ACQUIRE due EX 2 TOKEN t");
    ask(&mut client, "DLOCK.ACQUIRE renewed EX 2 TOKEN t");
    new.wait_to_catch_up_with(&old);
    // Both come due while neither node can do anything about it.
    old.stop();
    eventually("an overdue hold on the replica", SOON, || {
        ask(&mut new.connect(), "DLOCK.CHECK due t") == 0
    });
    let mut client = new.connect();
    // In one turn, so that the grace cannot be over.
    let promoted = at_once(
        &mut client,
        &[
            "REPLICAOF NO ONE",
            "DLOCK.CHECK due t",
            "DLOCK.RENEW renewed t EX 60",
        ],
    );
    assert_eq!(promoted[0], "OK");
    let left = promoted[1].as_int();
    assert!((1..=600).contains(&left), "{left}");
    assert_eq!(promoted[2], 1, "its token may still renew it");
    let mut waiter = new.connect();
    tell(&mut waiter, "DLOCK.ACQUIRE due BLOCK 0 TOKEN w");
    assert_eq!(granted(&mut waiter).0, "w");
    assert!(ask(&mut client, "DLOCK.CHECK renewed t").as_int() > 50_000);
    old.cont();
    assert_calm(&new);
}

#[test]
fn waiters_that_understand_redirects_or_only_read_are_told_like_any_other() {
    let (old, new) = pair();
    // Redis knows no redirects but a cluster's.
    if old.flavour().product == Product::Redis {
        return;
    }
    let mut client = old.connect();
    ask(&mut client, "DLOCK.ACQUIRE lock EX 60 TOKEN t");
    ask(&mut client, "DWG.ADD group EX 60 TOKEN t");
    let mut waiters = [
        ("CLIENT CAPA redirect", "DLOCK.ACQUIRE lock BLOCK 0 TOKEN w"),
        ("CLIENT CAPA redirect", "DWG.WAIT group BLOCK 0"),
        // The server leaves alone whoever only reads here; a WAIT is not taken for that.
        ("READONLY", "DWG.WAIT group BLOCK 0"),
    ]
    .map(|(first, wait)| {
        let mut waiter = old.connect();
        assert_eq!(ask(&mut waiter, first), "OK");
        queue(&old, &mut waiter, wait);
        waiter
    });
    fail_over(&old, &new);
    for waiter in &mut waiters {
        // Where it is redirected it stays connected.
        let Some(reply) = waiter.try_call(&["ECHO", "next"]) else {
            continue;
        };
        let told = reply.error();
        let redirected = format!("REDIRECT 127.0.0.1:{}", new.port());
        assert!(
            told.starts_with("UNBLOCKED") || told == redirected,
            "{told}"
        );
        if let Some(next) = waiter.try_call(&["PING"]) {
            assert_eq!(next, "next", "a second reply");
        }
    }
    wait_for_blocked(&old, 0);
    assert_calm(&old);
    assert_calm(&new);
}

#[test]
fn a_failover_that_times_out_leaves_everybody_where_they_were() {
    let (old, deaf) = pair();
    let mut client = old.connect();
    ask(&mut client, "DLOCK.ACQUIRE lapsing PX 1500 TOKEN t");
    ask(&mut client, "DLOCK.ACQUIRE held EX 60 TOKEN t");
    let mut lapse = queued(&old, "DLOCK.ACQUIRE lapsing BLOCK 0 TOKEN w");
    let mut release = queued(&old, "DLOCK.ACQUIRE held BLOCK 0 TOKEN w");
    deaf.wait_to_catch_up_with(&old);
    // It cannot catch up with what comes now.
    deaf.stop();
    ask(&mut client, "SET x 1");
    let timeout = format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 3000", deaf.port());
    assert_eq!(ask(&mut client, &timeout), "OK");
    let state = || old.info("replication", "master_failover_state");
    assert_eq!(state(), "waiting-for-sync");
    // A request that comes now is put off, not refused.
    let mut late = old.connect();
    tell(&mut late, "DLOCK.ACQUIRE held BLOCK 0 TOKEN late");
    for waiter in [&mut lapse, &mut release, &mut late] {
        waiter.expect_silence(A_WHILE);
    }
    eventually("the failover given up", SOON, || {
        let waits = [&mut lapse, &mut release, &mut late];
        let gone_on = state() == "no-failover";
        if !gone_on {
            waits
                .into_iter()
                .for_each(|w| w.expect_silence(Duration::ZERO));
        }
        gone_on
    });
    assert_eq!(role(&old), "master");
    assert_eq!(granted(&mut lapse).0, "w");
    assert_eq!(ask(&mut client, "DLOCK.RELEASE held t"), 1);
    assert_eq!(granted(&mut release).0, "w");
    assert_eq!(ask(&mut client, "DLOCK.RELEASE held w"), 1);
    assert_eq!(granted(&mut late).0, "late");
    deaf.cont();
    deaf.wait_to_catch_up_with(&old);
    assert_eq!(digest(&deaf, "held"), digest(&old, "held"));
    assert_calm(&old);
}

#[test]
fn a_forced_failover_to_a_deaf_replica_makes_a_replica_that_becomes_the_primary_again() {
    let (old, deaf) = pair_with_grace(300);
    let mut client = old.connect();
    ask(&mut client, "DLOCK.ACQUIRE lapsing PX 1500 TOKEN t");
    let fence = ask(&mut client, "DLOCK.ACQUIRE held EX 60 TOKEN t")
        .grant()
        .1;
    let waits = ["lapsing", "held"].map(|key| {
        let request = format!("DLOCK.ACQUIRE {key} BLOCK 0 TOKEN w");
        (key, queued(&old, request))
    });
    deaf.wait_to_catch_up_with(&old);
    deaf.stop();
    ask(&mut client, "SET x 1");
    // After a tenth of a second the node makes itself a replica of one that does not answer.
    let force = format!("FAILOVER TO 127.0.0.1 {} FORCE TIMEOUT 100", deaf.port());
    assert_eq!(ask(&mut client, force), "OK");
    eventually("the node to be a replica", SOON, || role(&old) == "slave");
    let mut client = old.connect();
    let aborted = ask(&mut client, "FAILOVER ABORT");
    assert_eq!(aborted, "OK");
    assert_eq!(role(&old), "master");

    // Whoever still waits is served; whoever was told asks again, and is.
    let highest = ask(&mut client, "DLOCK.ACQUIRE new").grant().1;
    assert!(highest > fence);
    assert_eq!(ask(&mut client, "DLOCK.RELEASE held t"), 1);
    for (key, waiter) in waits {
        match ended(waiter) {
            Ended::Granted(later) => assert!(later > fence),
            Ended::Unblocked | Ended::Closed => {
                let mut again = old.connect();
                tell(&mut again, format!("DLOCK.ACQUIRE {key} BLOCK 0 TOKEN w"));
                assert!(granted(&mut again).1 > highest, "{key}");
            }
            Ended::Nothing => panic!("a wait without limit for {key} ran out"),
        }
    }
    deaf.cont();
    eventually("the replica back in its place", SOON * 2, || {
        deaf.info("replication", "master_link_status") == "up"
            && digest(&deaf, "held") == digest(&old, "held")
    });
    assert_calm(&old);
    assert_calm(&deaf);
}

#[test]
fn a_primary_that_is_told_to_follow_nobody_goes_on_as_it_was() {
    let server = Server::start();
    let mut client = server.connect();
    let fence = ask(&mut client, "DLOCK.ACQUIRE k PX 700 TOKEN t").grant().1;
    let mut waiter = queued(&server, "DLOCK.ACQUIRE k BLOCK 0 TOKEN w");
    assert_eq!(ask(&mut client, "REPLICAOF NO ONE"), "OK");
    let next = granted(&mut waiter).1;
    // It was no promotion: the fences go on where they were.
    assert!((fence + 1..fence + 1_000_000).contains(&next), "{next}");
    assert_calm(&server);
}

#[test]
fn a_primary_told_to_follow_one_that_is_not_there_refuses_and_comes_back_with_its_holds() {
    let mut gone = Server::start();
    gone.shutdown();
    let server = Server::builder()
        .module_arg("takeover-grace-ms")
        .module_arg(300)
        .start();
    let mut client = server.connect();
    let fence = ask(&mut client, "DLOCK.ACQUIRE k PX 400 TOKEN t").grant().1;
    ask(&mut client, "DLOCK.ACQUIRE held EX 60 TOKEN t");
    let waiter = queued(&server, "DLOCK.ACQUIRE k BLOCK 0 TOKEN w");
    let follow = format!("REPLICAOF 127.0.0.1 {}", gone.port());
    assert_eq!(ask(&mut client, follow), "OK");
    let end = ended(waiter);
    assert!(matches!(end, Ended::Unblocked | Ended::Closed), "{end:?}");

    let mut client = server.connect();
    let refused = ask(&mut client, "DLOCK.ACQUIRE k BLOCK 0 TOKEN w");
    assert!(refused.error().starts_with("READONLY"), "{refused:?}");
    assert!(ask(&mut client, "DLOCK.CHECK held t").as_int() > 50_000);
    eventually("an overdue hold", SOON, || {
        ask(&mut client, "DLOCK.CHECK k t") == 0
    });
    assert_eq!(ask(&mut client, "EXISTS k"), 1, "a replica lapses nothing");

    assert_eq!(ask(&mut client, "REPLICAOF NO ONE"), "OK");
    let mut waiter = server.connect();
    tell(&mut waiter, "DLOCK.ACQUIRE k BLOCK 0 TOKEN w");
    let next = granted(&mut waiter).1;
    assert!(next > fence + 1_000_000, "a promotion leaps: {next}");
    assert_eq!(ask(&mut client, "DLOCK.RELEASE held t"), 1);
    assert_calm(&server);
}
