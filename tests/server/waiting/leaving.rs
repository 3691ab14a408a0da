//! Waiters that leave the queue: their connection closes, CLIENT KILL, CLIENT UNBLOCK, or their BLOCK times out. The
//! next waiter is served at once, every request gets exactly one reply, and nothing is left behind: also during busy
//! scripts, stalls and CLIENT PAUSE, and when the waiter leaves at the moment of its grant.

use crate::support::steps::*;
use crate::support::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::thread;
use std::time::{Duration, Instant};

/// The ways in which a waiter leaves.
#[derive(Clone, Copy, Debug)]
enum Way {
    Closes,
    IsKilled,
    IsUnblocked,
    IsUnblockedWithError,
    RunsOut,
}

const WAYS: [Way; 5] = [
    Way::Closes,
    Way::IsKilled,
    Way::IsUnblocked,
    Way::IsUnblockedWithError,
    Way::RunsOut,
];

/// A client that waits and will leave in a certain way.
struct Leaver {
    way: Way,
    client: Client,
    id: u64,
}

impl Leaver {
    fn waiting(server: &Server, way: Way, request: &str) -> Leaver {
        let mut client = server.connect();
        let id = client.id();
        // Long enough for other clients to queue behind it.
        let block_ms = if matches!(way, Way::RunsOut) {
            1_000
        } else {
            0
        };
        client.wait_on(server, format!("{request} BLOCK {block_ms}"));
        Leaver { way, client, id }
    }

    /// Makes the client leave. Returns when it got its one reply, or when its connection is closed.
    #[track_caller]
    fn leave(mut self, admin: &mut Client) {
        match self.way {
            Way::Closes => return self.client.close(),
            Way::IsKilled => {
                assert_eq!(admin.ask(format!("CLIENT KILL ID {}", self.id)), 1);
                return self.client.expect_closed(SOON);
            }
            Way::IsUnblocked => {
                assert_eq!(admin.ask(format!("CLIENT UNBLOCK {} TIMEOUT", self.id)), 1);
                assert!(self.client.reply().is_nil());
            }
            Way::IsUnblockedWithError => {
                assert_eq!(admin.ask(format!("CLIENT UNBLOCK {} ERROR", self.id)), 1);
                let error = self.client.reply();
                assert!(error.error().starts_with("UNBLOCKED "), "{error:?}");
            }
            Way::RunsOut => assert!(self.client.reply().is_nil()),
        }
        expect_no_more(&mut self.client);
    }
}

#[test]
fn exclusive_waiter_that_leaves_lets_shared_ones_in() {
    let server = Server::start();
    let mut admin = server.connect();
    for way in WAYS {
        let key = format!("lock:{way:?}");
        admin
            .ask(format!("DLOCK.ACQUIRE {key} SHARED TOKEN held"))
            .grant();
        let writer = Leaver::waiting(&server, way, &format!("DLOCK.ACQUIRE {key}"));
        let mut readers: Vec<_> = (0..3)
            .map(|_| server.waiting(format!("DLOCK.ACQUIRE {key} SHARED BLOCK 0")))
            .collect();
        let mut last = server.waiting(format!("DLOCK.ACQUIRE {key} BLOCK 0"));
        writer.leave(&mut admin);
        for reader in &mut readers {
            reader.granted();
        }
        assert_eq!(lock_holders(&mut admin, &key), 4, "{way:?}");
        assert_eq!(lock_waiters(&mut admin, &key), 1, "{way:?}");
        last.close();
        server.wait_for_blocked(0);
        last = server.connect();
        expect_no_more(&mut last);
    }
}

#[test]
fn large_waiter_that_leaves_lets_fitting_ones_in() {
    let server = Server::start();
    let mut admin = server.connect();
    for way in WAYS {
        let key = format!("semaphore:{way:?}");
        admin
            .ask(format!("DSEM.ACQUIRE {key} LIMIT 4 PERMITS 2 TOKEN held"))
            .grant();
        let large = Leaver::waiting(&server, way, &format!("DSEM.ACQUIRE {key} PERMITS 4"));
        let mut small: Vec<_> = (0..3)
            .map(|_| server.waiting(format!("DSEM.ACQUIRE {key} BLOCK 0")))
            .collect();
        large.leave(&mut admin);
        small[0].granted();
        small[1].granted();
        small[2].expect_silence(A_WHILE);
        assert_eq!(
            count(&mut admin, "DSEM.INFO", &key, "available"),
            0,
            "{way:?}"
        );
        assert_eq!(admin.ask(format!("DSEM.RELEASE {key} held")), 1);
        small[2].granted();
        server.wait_for_blocked(0);
    }
}

#[test]
fn waiter_that_leaves_the_middle_changes_no_order() {
    let server = Server::start();
    let mut admin = server.connect();
    for way in WAYS {
        let key = format!("lock:{way:?}");
        admin.ask(format!("DLOCK.ACQUIRE {key} TOKEN held")).grant();
        let mut first = server.waiting(format!("DLOCK.ACQUIRE {key} TOKEN first BLOCK 0"));
        let middle = Leaver::waiting(&server, way, &format!("DLOCK.ACQUIRE {key}"));
        let mut last = server.waiting(format!("DLOCK.ACQUIRE {key} BLOCK 0"));
        middle.leave(&mut admin);
        server.wait_for_blocked(2);
        assert_eq!(lock_waiters(&mut admin, &key), 2, "{way:?}");
        first.expect_silence(A_WHILE);
        assert_eq!(admin.ask(format!("DLOCK.RELEASE {key} held")), 1);
        first.granted();
        last.expect_silence(A_WHILE);
        assert_eq!(admin.ask(format!("DLOCK.RELEASE {key} first")), 1);
        last.granted();
    }
}

#[test]
fn try_is_granted_after_the_last_waiter_left() {
    let server = Server::start();
    let mut admin = server.connect();
    for way in WAYS {
        let key = format!("lock:{way:?}");
        admin.ask(format!("DLOCK.ACQUIRE {key} SHARED")).grant();
        let writer = Leaver::waiting(&server, way, &format!("DLOCK.ACQUIRE {key}"));
        writer.leave(&mut admin);
        server.wait_for_blocked(0);
        admin.ask(format!("DLOCK.ACQUIRE {key} SHARED")).grant();
    }
}

#[test]
fn wait_for_a_group_can_be_left_in_every_way() {
    let server = Server::start();
    let mut admin = server.connect();
    for way in WAYS {
        let key = format!("group:{way:?}");
        admin.ask(format!("DWG.ADD {key} TOKEN member")).grant();
        let leaver = Leaver::waiting(&server, way, &format!("DWG.WAIT {key}"));
        let mut other = server.waiting(format!("DWG.WAIT {key} BLOCK 0"));
        leaver.leave(&mut admin);
        server.wait_for_blocked(1);
        other.expect_silence(A_WHILE);
        assert_eq!(admin.ask(format!("DWG.DONE {key} member")), 1);
        assert_eq!(other.reply().as_array()[0], 1);
    }
}

#[test]
fn unblock_in_the_turn_of_the_grant_gives_one_true_reply() {
    // With an AOF the server releases a waiter only after the command that served it.
    for appendonly in ["no", "yes"] {
        let server = Server::builder().config("appendonly", appendonly).start();
        assert_unblock_gives_one_true_reply(&server);
    }
}

/// With an AOF the grant is not on its way yet when the client is told something else.
#[test]
fn unblock_with_error_in_the_turn_of_the_grant_passes_it_on() {
    let server = Server::builder().config("appendonly", "yes").start();
    let mut admin = server.connect();
    admin.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    let mut waiter = server.connect();
    let id = waiter.id();
    waiter.wait_on(&server, "DLOCK.ACQUIRE lock TOKEN waiter BLOCK 0");
    let mut next = server.waiting("DLOCK.ACQUIRE lock TOKEN next BLOCK 0");
    let unblock = format!("CLIENT UNBLOCK {id} ERROR");
    admin.ask_all(["MULTI", "DLOCK.RELEASE lock held", &unblock, "EXEC"]);
    assert!(waiter.reply().is_error());
    next.granted();
    expect_no_more(&mut waiter);
}

#[track_caller]
fn assert_unblock_gives_one_true_reply(server: &Server) {
    let mut admin = server.connect();
    for (round, lines) in [
        ["DLOCK.RELEASE lock held", "CLIENT UNBLOCK {} TIMEOUT"],
        ["CLIENT UNBLOCK {} TIMEOUT", "DLOCK.RELEASE lock held"],
    ]
    .into_iter()
    .enumerate()
    {
        for multi in [false, true] {
            admin.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
            let mut waiter = server.connect();
            let id = waiter.id();
            waiter.wait_on(server, "DLOCK.ACQUIRE lock TOKEN waiter BLOCK 0");
            let mut next = server.waiting("DLOCK.ACQUIRE lock TOKEN next BLOCK 0");
            let mut lines: Vec<_> = lines
                .iter()
                .map(|line| line.replace("{}", &id.to_string()))
                .collect();
            if multi {
                lines.insert(0, "MULTI".to_owned());
                lines.push("EXEC".to_owned());
            }
            admin.ask_all(&lines);
            let reply = waiter.reply();
            let holds = admin.ask("DLOCK.CHECK lock waiter").as_int() > 0;
            assert_eq!(
                !reply.is_nil(),
                holds,
                "{round} {multi}: {reply:?}, and held: {holds}"
            );
            // The command that came first decides.
            assert_eq!(holds, round == 0, "{round} {multi}");
            expect_no_more(&mut waiter);
            if holds {
                reply.grant();
                next.expect_silence(A_WHILE);
                assert_eq!(admin.ask("DLOCK.RELEASE lock waiter"), 1);
            }
            next.granted();
            assert_eq!(admin.ask("DLOCK.RELEASE lock next"), 1);
        }
    }
}

#[test]
fn unblock_twice_in_one_turn_gives_one_reply() {
    let server = Server::start();
    let mut admin = server.connect();
    admin.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    for kinds in [
        ["TIMEOUT", "TIMEOUT"],
        ["ERROR", "TIMEOUT"],
        ["TIMEOUT", "ERROR"],
    ] {
        let mut waiter = server.connect();
        let id = waiter.id();
        waiter.wait_on(&server, "DLOCK.ACQUIRE lock BLOCK 0");
        let lines = kinds.map(|kind| format!("CLIENT UNBLOCK {id} {kind}"));
        let replies = admin.ask_all(&lines);
        assert_eq!(replies[0], 1);
        let first = waiter.reply();
        assert_eq!(
            first.is_error(),
            kinds[0] == "ERROR",
            "{kinds:?}: {first:?}"
        );
        expect_no_more(&mut waiter);
    }
    assert_eq!(admin.ask("DLOCK.RELEASE lock held"), 1);
    assert_eq!(admin.ask("EXISTS lock"), 0);
}

/// What a client of the next test does.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Stays,
    Closes { after_ms: u64 },
    RunsOut { block_ms: u64 },
    IsKilled { after_ms: u64 },
    IsUnblocked { after_ms: u64 },
    IsUnblockedWithError { after_ms: u64 },
}

#[test]
fn many_waiters_leaving_at_random_leave_nothing_behind() {
    const CLIENTS: u64 = 300;
    const LIMIT: u32 = 4;
    let seed = 20_261_121;
    let mut rng = StdRng::seed_from_u64(seed);
    let server = Server::start();
    let mut admin = server.connect();
    let line = format!("DSEM.ACQUIRE semaphore LIMIT {LIMIT} PERMITS {LIMIT} TOKEN first");
    admin.ask(line).grant();

    let mut clients = Vec::new();
    let mut acts = Vec::new();
    for n in 0..CLIENTS {
        let mut client = server.connect();
        let id = client.id();
        let ms = rng.random_range(0..600);
        let fate = match n % 6 {
            0 => Fate::Stays,
            1 => Fate::Closes { after_ms: ms },
            2 => Fate::RunsOut { block_ms: ms + 1 },
            3 => Fate::IsKilled { after_ms: ms },
            4 => Fate::IsUnblocked { after_ms: ms },
            _ => Fate::IsUnblockedWithError { after_ms: ms },
        };
        match fate {
            Fate::IsKilled { after_ms } => acts.push((after_ms, format!("CLIENT KILL ID {id}"))),
            Fate::IsUnblocked { after_ms } => acts.push((after_ms, format!("CLIENT UNBLOCK {id}"))),
            Fate::IsUnblockedWithError { after_ms } => {
                acts.push((after_ms, format!("CLIENT UNBLOCK {id} ERROR")));
            }
            Fate::Stays | Fate::Closes { .. } | Fate::RunsOut { .. } => {}
        }
        clients.push((client, fate, rng.random_range(1..=LIMIT)));
    }
    // The permits come free while clients leave.
    acts.push((150, "DSEM.RELEASE semaphore first".to_owned()));
    acts.sort();

    let grants: Vec<bool> = thread::scope(|scope| {
        let started = Instant::now();
        let threads: Vec<_> = clients
            .into_iter()
            .map(|(client, fate, permits)| {
                scope.spawn(move || live_out(client, fate, permits, started))
            })
            .collect();
        for (after_ms, line) in acts {
            at(started + Duration::from_millis(after_ms));
            let reply = admin.ask(&line);
            assert!(!reply.is_error(), "{line}: {reply:?}");
        }
        threads
            .into_iter()
            .map(|client| client.join().expect("no client panics"))
            .collect()
    });

    server.wait_for_blocked(0);
    wait_until_gone(&mut admin, "semaphore");
    let granted = grants.iter().filter(|granted| **granted).count();
    assert!(
        granted >= 50,
        "at least those that stay are granted: {granted}, seed {seed}"
    );
    assert!(granted < 300, "some left: {granted}, seed {seed}");
    // The queue is empty, so a try is granted.
    admin
        .ask(format!(
            "DSEM.ACQUIRE semaphore LIMIT {LIMIT} PERMITS {LIMIT}"
        ))
        .grant();
    assert_eq!(server.info_number("dsync", "dsync_waiters"), 0);
}

/// Waits and leaves as its fate says, and releases what it was granted. Returns whether it was granted.
fn live_out(mut client: Client, fate: Fate, permits: u32, started: Instant) -> bool {
    // EPHEMERAL ends what a killed connection holds; the other leases are longer than the test.
    let (block_ms, more) = match fate {
        Fate::RunsOut { block_ms } => (block_ms, "PX 60000"),
        Fate::IsKilled { .. } | Fate::Closes { .. } => (0, "PX 60000 EPHEMERAL"),
        Fate::Stays | Fate::IsUnblocked { .. } => (0, "PX 60000"),
        // On some servers UNBLOCK … ERROR in the turn of the grant replaces the grant: the lease must end such a hold.
        Fate::IsUnblockedWithError { .. } => (0, "PX 1000"),
    };
    let line = format!("DSEM.ACQUIRE semaphore LIMIT 4 PERMITS {permits} BLOCK {block_ms} {more}");
    let words: Vec<_> = line.split(' ').collect();
    let reply = match fate {
        Fate::Closes { after_ms } => {
            client.begin(&line);
            let left = Duration::from_millis(after_ms).saturating_sub(started.elapsed());
            match client.recv(left) {
                Some(reply) => reply,
                None => {
                    client.close();
                    return false;
                }
            }
        }
        Fate::IsKilled { .. } => match client.try_call(&words) {
            Some(reply) => reply,
            None => return false,
        },
        _ => client.call(&words),
    };
    match (&reply, fate) {
        (Reply::Nil, Fate::RunsOut { .. } | Fate::IsUnblocked { .. }) => {}
        (Reply::Error(text), Fate::IsUnblockedWithError { .. }) => {
            assert!(text.starts_with("UNBLOCKED "), "{text}");
        }
        (granted, _) => {
            let (token, _) = granted.grant();
            let Some(released) = client.try_call(&["DSEM.RELEASE", "semaphore", token.as_str()])
            else {
                assert!(matches!(fate, Fate::IsKilled { .. }), "{fate:?} was closed");
                return true;
            };
            // On Redis 7.0 and 7.2, UNBLOCK … ERROR in the turn of the grant sends a second reply.
            if released.is_error() && matches!(fate, Fate::IsUnblockedWithError { .. }) {
                return true;
            }
            assert_eq!(released, 1, "{fate:?}");
        }
    }
    match client.try_call(&["PING"]) {
        Some(pong) => assert_eq!(pong, "PONG", "{fate:?}: one reply too many"),
        None => assert!(matches!(fate, Fate::IsKilled { .. }), "{fate:?} was closed"),
    }
    matches!(reply, Reply::Array(_))
}

#[test]
fn waiter_that_closes_during_a_busy_script_lets_the_next_in() {
    let server = Server::start();
    let (mut holder, mut busy) = (server.connect(), server.connect());
    holder.ask("DLOCK.ACQUIRE lock SHARED TOKEN held").grant();
    let first = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    let mut second = server.waiting("DLOCK.ACQUIRE lock SHARED BLOCK 0");
    let mut runs_out = server.waiting("DLOCK.ACQUIRE lock BLOCK 1500");
    let third = server.waiting("DLOCK.ACQUIRE lock TOKEN third BLOCK 0");
    keep_busy(&mut busy, &mut holder);
    first.close();
    // Nobody may be granted while the script runs.
    second.expect_silence(Duration::from_millis(300));
    assert_eq!(holder.ask("SCRIPT KILL"), "OK");
    assert!(busy.reply().is_error());
    second.granted();
    assert!(runs_out.reply().is_nil());
    third.close();
    server.wait_for_blocked(0);
    holder.ask("DLOCK.ACQUIRE lock SHARED").grant();
}

#[test]
fn waiter_granted_by_a_busy_script_and_closed_passes_on() {
    let server = Server::start();
    let (mut holder, mut other) = (server.connect(), server.connect());
    holder.ask("CONFIG SET busy-reply-threshold 10");
    holder.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    // EPHEMERAL, so that the hold ends with the connection whether the grant was delivered or not.
    let first = server.waiting("DLOCK.ACQUIRE lock TOKEN first EPHEMERAL BLOCK 0");
    let mut second = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    let script = format!(
        "redis.call('DLOCK.RELEASE', KEYS[1], 'held') {}",
        busy_for(300)
    );
    send!(holder, "EVAL", script, 1, "lock");
    wait_until_busy(&mut other);
    first.close();
    assert!(holder.reply().is_nil());
    second.granted();
    assert_eq!(other.ask("DLOCK.CHECK lock first"), 0);
    server.wait_for_blocked(0);
}

/// Timeouts and releases at the same moment, many times: a waiter is answered nil or holds the lock, never both.
#[test]
fn timeout_racing_with_release_gives_one_true_reply() {
    const ROUNDS: u64 = 40;
    const KEYS: u64 = 20;
    let seed = 11_211_926;
    let mut rng = StdRng::seed_from_u64(seed);
    let server = Server::start();
    let mut holder = server.connect();
    let mut waiters: Vec<_> = (0..KEYS).map(|_| server.connect()).collect();
    let (mut granted, mut nil) = (0, 0);
    for round in 0..ROUNDS {
        let lines: Vec<_> = (0..KEYS)
            .map(|key| format!("DLOCK.ACQUIRE lock:{key} TOKEN held PX 60000"))
            .collect();
        for reply in holder.ask_all(&lines) {
            reply.grant();
        }
        let block_ms = rng.random_range(8..16);
        let asked = Instant::now();
        for (key, waiter) in waiters.iter_mut().enumerate() {
            waiter.begin(format!(
                "DLOCK.ACQUIRE lock:{key} TOKEN w{round} PX 60000 BLOCK {block_ms}"
            ));
        }
        for key in 0..KEYS {
            // Releases from 1 ms before the timeout to 1.5 ms after it.
            let about = block_ms * 1_000 - 1_000 + key * 2_500 / KEYS + rng.random_range(0..200);
            at(asked + Duration::from_micros(about));
            holder.begin(format!("DLOCK.RELEASE lock:{key} held"));
        }
        for _ in 0..KEYS {
            assert_eq!(holder.reply(), 1);
        }
        for (key, waiter) in waiters.iter_mut().enumerate() {
            let reply = waiter.reply();
            let left = holder
                .ask(format!("DLOCK.CHECK lock:{key} w{round}"))
                .as_int();
            if reply.is_nil() {
                nil += 1;
                assert_eq!(
                    left, 0,
                    "answered nil but holds: round {round}, key {key}, seed {seed}"
                );
                assert_eq!(holder.ask(format!("EXISTS lock:{key}")), 0);
            } else {
                granted += 1;
                reply.grant();
                assert!(
                    left > 0,
                    "granted but holds nothing: round {round}, seed {seed}"
                );
                assert_eq!(holder.ask(format!("DLOCK.RELEASE lock:{key} w{round}")), 1);
            }
            expect_no_more(waiter);
        }
    }
    assert!(
        granted > 0 && nil > 0,
        "no race: {granted} granted, {nil} nil"
    );
    server.wait_for_blocked(0);
}

#[test]
fn grant_wins_over_timeout_after_a_stall() {
    let server = Server::start();
    let mut holder = server.connect();
    holder.ask("DLOCK.ACQUIRE lock TOKEN held PX 60000").grant();
    let mut waiter = server.waiting("DLOCK.ACQUIRE lock PX 60000 BLOCK 1000");
    // The lease and the wait run out in one turn of the event loop.
    let replies = holder.ask_all(["DLOCK.ACQUIRE lock TOKEN held PX 50", "DEBUG SLEEP 1.2"]);
    replies[0].grant();
    waiter.granted();
    assert_eq!(holder.ask("DLOCK.RENEW lock held"), 0);
}

#[test]
fn client_pause_lets_waiters_leave_but_grants_later() {
    let server = Server::start();
    let mut admin = server.connect();
    admin.ask("DLOCK.ACQUIRE lock SHARED").grant();
    let mut unblocked = server.connect();
    let id = unblocked.id();
    unblocked.wait_on(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    let closed = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    let mut runs_out = server.waiting("DLOCK.ACQUIRE lock BLOCK 1500");
    let mut reader = server.waiting("DLOCK.ACQUIRE lock SHARED BLOCK 0");
    assert_eq!(admin.ask("CLIENT PAUSE 60000 WRITE"), "OK");
    closed.close();
    assert_eq!(admin.ask(format!("CLIENT UNBLOCK {id}")), 1);
    assert!(unblocked.reply().is_nil());
    assert!(runs_out.reply().is_nil());
    // No waiter is ahead of the shared request, but a grant would be a write.
    reader.expect_silence(Duration::from_millis(150));
    assert_eq!(admin.ask("CLIENT UNPAUSE"), "OK");
    reader.granted();
    server.wait_for_blocked(0);
}
