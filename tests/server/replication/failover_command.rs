//! FAILOVER: a primary hands its role over to its replica while clients hold and wait.
//!
//! A waiter on the old primary gets one answer or its connection closes; if the failover is given up, it goes on
//! waiting and is served. The new primary has every hold with its token and fence, grants only higher fences, and
//! queues requests at once.
//!
//! Not here: REPLICAOF (`role_change`), a killed primary (`sentinel`), a partition (`split_brain`), what is replicated
//! while a failover waits (`paused`).

use super::role_change::{pair, pair_with_grace, role};
use crate::lifecycle::lapse_wave::{LapseWave, keys};
use crate::support::steps::*;
use crate::support::*;
use std::time::Duration;

/// Sends FAILOVER to `from`; returns when both servers have changed their roles and `from` is in sync.
#[track_caller]
fn fail_over(from: &Server, to: &Server) {
    let failover = format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 30000", to.port());
    // The primary may not yet count a replica as online whose link has just come up.
    eventually("a failover that begins", SOON, || {
        from.connect().ask(&failover) == "OK"
    });
    eventually("the change of roles", SOON * 2, || {
        role(to) == "master" && role(from) == "slave"
    });
    from.wait_for_sync();
}

/// A key, and a request by which its token holds it.
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
fn failover_keeps_holds_and_serves_waiters_that_ask_again() {
    let (old, new) = pair();
    let mut client = old.connect();
    let fences = HOLDS.map(|(_, request)| client.ask(request).grant().1);
    let run = client.ask(RUN);
    let run_fence = run.as_array()[2].as_int();
    let highest = fences.iter().copied().max().expect("a fence");
    let mut waiters: Vec<Client> = WAITS.iter().map(|wait| old.waiting(wait)).collect();
    // A waiter without a token.
    waiters.push(old.waiting("DLOCK.ACQUIRE lock BLOCK 0"));
    new.wait_to_catch_up_with(&old);
    let before = HOLDS.map(|(key, _)| old.digest(key));

    fail_over(&old, &new);
    for waiter in waiters {
        let end = ended(waiter);
        assert!(matches!(end, Ended::Unblocked | Ended::Closed), "{end:?}");
    }
    old.wait_for_blocked(0);
    assert_eq!(HOLDS.map(|(key, _)| new.digest(key)), before);

    // Waiters that come back before the holders do not overtake them: the holders still have their holds.
    let mut waiters: Vec<Client> = WAITS.iter().map(|wait| new.waiting(wait)).collect();
    let mut client = new.connect();
    let mut bound = new.connect();
    for ((key, request), fence) in HOLDS.iter().zip(fences) {
        let connection = if *key == "bound" {
            &mut bound
        } else {
            &mut client
        };
        assert_eq!(connection.ask(request).grant().1, fence, "{request}");
    }
    let again = client.ask(RUN);
    assert_eq!(again, run, "the same run, the same attempt: {run_fence}");

    for release in [
        "DLOCK.RELEASE lock lock-holder",
        "DLOCK.RELEASE room room-holder",
        "DSEM.RELEASE seats seats-holder",
        "DWG.DONE group group-holder",
        "DONCE.FAIL work worker REASON tired",
    ] {
        assert_eq!(client.ask(release), 1, "{release}");
    }
    // The promoted node binds the EPHEMERAL hold to the connection on which its token came back.
    bound.close();
    for (wait, waiter) in WAITS.iter().zip(&mut waiters) {
        let answer = waiter.reply();
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
        assert_eq!(old.digest(key), new.digest(key), "{key}");
    }
    assert_calm(&old);
    assert_calm(&new);
}

#[test]
fn fences_rise_and_holds_last_over_repeated_failovers() {
    let servers = pair();
    let (mut primary, mut replica) = (&servers.0, &servers.1);
    let held = primary.connect().ask("DLOCK.ACQUIRE held EX 600 TOKEN t");
    let (mut highest, mut granted_so_far) = (held.grant().1, 1);
    for round in 0..4 {
        for n in 0..3 {
            let fence = primary.connect().ask(format!("DLOCK.ACQUIRE k{round}-{n}"));
            let fence = fence.grant().1;
            assert!(fence > highest, "round {round}: {fence} after {highest}");
            highest = fence;
            granted_so_far += 1;
        }
        // Nobody waits during these failovers.
        fail_over(primary, replica);
        std::mem::swap(&mut primary, &mut replica);
        let mut client = primary.connect();
        assert_eq!(client.ask("DBSIZE"), granted_so_far);
        let again = client.ask("DLOCK.ACQUIRE held EX 600 TOKEN t");
        assert_eq!(again, held);
        replica.wait_to_catch_up_with(primary);
        assert_eq!(primary.digest("held"), replica.digest("held"));
    }
    assert_calm(primary);
    assert_calm(replica);
}

#[test]
fn failover_answers_redirectable_and_reading_waiters() {
    let (old, new) = pair();
    // Redis redirects clients in a cluster only.
    if old.flavour().product == Product::Redis {
        return;
    }
    let mut client = old.connect();
    client.ask("DLOCK.ACQUIRE lock EX 60 TOKEN t");
    client.ask("DWG.ADD group EX 60 TOKEN t");
    let mut waiters = [
        ("CLIENT CAPA redirect", "DLOCK.ACQUIRE lock BLOCK 0 TOKEN w"),
        ("CLIENT CAPA redirect", "DWG.WAIT group BLOCK 0"),
        // A failover leaves clients alone that only read. DWG.WAIT does not count as a read here.
        ("READONLY", "DWG.WAIT group BLOCK 0"),
    ]
    .map(|(first, wait)| {
        let mut waiter = old.connect();
        assert_eq!(waiter.ask(first), "OK");
        waiter.wait_on(&old, wait);
        waiter
    });
    fail_over(&old, &new);
    for waiter in &mut waiters {
        // A client that is redirected stays connected; the others may be disconnected.
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
    old.wait_for_blocked(0);
    assert_calm(&old);
    assert_calm(&new);
}

#[test]
fn failover_that_times_out_keeps_every_waiter() {
    let (old, deaf) = pair();
    let mut client = old.connect();
    client.ask("DLOCK.ACQUIRE lapsing PX 1500 TOKEN t");
    client.ask("DLOCK.ACQUIRE held EX 60 TOKEN t");
    let mut lapse = old.waiting("DLOCK.ACQUIRE lapsing BLOCK 0 TOKEN w");
    let mut release = old.waiting("DLOCK.ACQUIRE held BLOCK 0 TOKEN w");
    deaf.wait_to_catch_up_with(&old);
    // The replica cannot acknowledge the next command.
    deaf.stop();
    client.ask("SET x 1");
    let timeout = format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 3000", deaf.port());
    assert_eq!(client.ask(&timeout), "OK");
    let state = || old.info("replication", "master_failover_state");
    assert_eq!(state(), "waiting-for-sync");
    // The paused primary postpones a new request, and does not refuse it.
    let mut late = old.connect();
    late.begin("DLOCK.ACQUIRE held BLOCK 0 TOKEN late");
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
    assert_eq!(lapse.granted().0, "w");
    assert_eq!(client.ask("DLOCK.RELEASE held t"), 1);
    assert_eq!(release.granted().0, "w");
    assert_eq!(client.ask("DLOCK.RELEASE held w"), 1);
    assert_eq!(late.granted().0, "late");
    deaf.cont();
    deaf.wait_to_catch_up_with(&old);
    assert_eq!(deaf.digest("held"), old.digest("held"));
    assert_calm(&old);
}

#[test]
fn forced_failover_to_stopped_replica_can_be_aborted() {
    let (old, deaf) = pair_with_grace(300);
    let mut client = old.connect();
    client.ask("DLOCK.ACQUIRE lapsing PX 1500 TOKEN t");
    let fence = client.ask("DLOCK.ACQUIRE held EX 60 TOKEN t").grant().1;
    let waits = ["lapsing", "held"].map(|key| {
        let request = format!("DLOCK.ACQUIRE {key} BLOCK 0 TOKEN w");
        (key, old.waiting(request))
    });
    deaf.wait_to_catch_up_with(&old);
    deaf.stop();
    client.ask("SET x 1");
    // After 100 ms the primary makes itself a replica of the stopped server.
    let force = format!("FAILOVER TO 127.0.0.1 {} FORCE TIMEOUT 100", deaf.port());
    assert_eq!(client.ask(force), "OK");
    eventually("the node to be a replica", SOON, || role(&old) == "slave");
    let mut client = old.connect();
    let aborted = client.ask("FAILOVER ABORT");
    assert_eq!(aborted, "OK");
    assert_eq!(role(&old), "master");

    // A waiter that still waits is served; one that was answered or closed asks again and is served.
    let highest = client.ask("DLOCK.ACQUIRE new").grant().1;
    assert!(highest > fence);
    assert_eq!(client.ask("DLOCK.RELEASE held t"), 1);
    for (key, waiter) in waits {
        match ended(waiter) {
            Ended::Granted(later) => assert!(later > fence),
            Ended::Unblocked | Ended::Closed => {
                let mut again = old.connect();
                again.begin(format!("DLOCK.ACQUIRE {key} BLOCK 0 TOKEN w"));
                assert!(again.granted().1 > highest, "{key}");
            }
            Ended::Nothing => panic!("a wait without limit for {key} ran out"),
        }
    }
    deaf.cont();
    eventually("the replica back in its place", SOON * 2, || {
        deaf.info("replication", "master_link_status") == "up"
            && deaf.digest("held") == old.digest("held")
    });
    assert_calm(&old);
    assert_calm(&deaf);
}

#[test]
fn failover_in_wave_of_lapses_answers_all_and_goes_on() {
    let (old, new) = pair_with_grace(200);
    let mut client = old.connect();
    let (_, fence) = client.ask("DLOCK.ACQUIRE lasting EX 60 TOKEN t").grant();
    let wave = LapseWave::start(&old, 100);
    let mut waiter = old.connect();
    waiter.begin("DLOCK.ACQUIRE lasting BLOCK 0");
    LapseWave::wait_for_middle(&old);
    fail_over(&old, &new);
    let ends: Vec<Ended> = wave.waiters.into_iter().map(ended).collect();
    let answered =
        |end: &Ended| matches!(end, Ended::Granted(_) | Ended::Unblocked | Ended::Closed);
    assert!(ends.iter().all(answered), "{ends:?}");
    assert!(matches!(ended(waiter), Ended::Unblocked | Ended::Closed));

    // The new primary has every hold, lapses the overdue ones, and serves its own queue.
    let mut client = new.connect();
    assert!(client.ask("DLOCK.CHECK lasting t").as_int() > 0);
    let mut heir = new.waiting("DLOCK.ACQUIRE lasting BLOCK 0 TOKEN heir");
    assert_eq!(client.ask("DLOCK.RELEASE lasting t"), 1);
    assert!(heir.granted().1 > fence);
    eventually("the rest of the wave", SOON, || keys(&new) == 1);
    old.wait_to_catch_up_with(&new);
    eventually("the same on the old primary", SOON, || {
        old.digest("lasting") == new.digest("lasting")
    });
    assert_calm(&old);
    assert_calm(&new);
}
