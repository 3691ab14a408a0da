//! Whole jobs done with locks, semaphores and groups, by threads that crash, stall, retry and come too late.
//!
//! [`Room`] counts outside of the server who holds at the same time: a client enters when it has read its grant, and
//! leaves before it releases or crashes. A worker that stalls past its lease holds nothing by contract, so it leaves
//! the room before it stalls, and what it sends afterwards must be refused.

use crate::support::steps::SOON;
use crate::support::*;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Counts the holders as the clients see them.
#[derive(Default)]
struct Room {
    inside: Mutex<Occupancy>,
}

#[derive(Default)]
struct Occupancy {
    /// The weight inside at present, and its maximum so far.
    now: u64,
    most: u64,
    entries: u64,
}

impl Room {
    /// `weight` is the number of permits of the hold.
    fn enter(&self, weight: u64) {
        let mut inside = self.inside.lock().expect("no worker panics inside");
        inside.now += weight;
        inside.most = inside.most.max(inside.now);
        inside.entries += 1;
    }

    fn leave(&self, weight: u64) {
        self.inside.lock().expect("no worker panics inside").now -= weight;
    }

    fn most(&self) -> u64 {
        self.inside.lock().expect("no worker panicked").most
    }

    fn entries(&self) -> u64 {
        self.inside.lock().expect("no worker panicked").entries
    }
}

/// A little work: long enough that others run meanwhile.
fn work() {
    thread::sleep(Duration::from_micros(500));
}

/// A random generator with a fixed seed: every run of a test makes the same choices.
struct Choices(u64);

impl Choices {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Sends a request with BLOCK and returns its reply.
#[track_caller]
fn blocked<A: AsRef<[u8]>>(client: &mut Client, request: &[A]) -> Reply {
    client.send(request);
    client
        .recv(SOON)
        .expect("every request that waits is answered")
}

#[test]
fn group_of_crashing_workers_keeps_its_limit_and_counts_the_lost() {
    const LIMIT: u64 = 4;
    const WORKERS: u64 = 12;
    const JOBS: u64 = 25;
    let server = Server::start();
    let room = Room::default();
    let (done, lost) = (AtomicU64::new(0), AtomicU64::new(0));
    // A total that no worker reaches, so that the round cannot finish before all workers have come.
    let mut client = server.connect();
    assert_eq!(client.ask("DWG.EXPECT jobs 1000000"), 1_000_000);
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (server, room, done, lost) = (&server, &room, &done, &lost);
            scope.spawn(move || {
                let mut choices = Choices(worker);
                let mut client = server.connect();
                for _ in 0..JOBS {
                    // The server learns of a crash by the lease or by the connection. Only a worker that will
                    // crash has a short lease: a slow machine must not make a healthy worker lapse.
                    let crash = choices.below(6) == 0;
                    let by_lease = !crash || choices.below(3) == 0;
                    let lease = if crash { "800" } else { "60000" };
                    let mut add = vec!["DWG.ADD", "jobs", "LIMIT", "4", "BLOCK", "0"];
                    if by_lease {
                        add.extend(["PX", lease]);
                    } else {
                        add.push("EPHEMERAL");
                    }
                    let (token, _) = blocked(&mut client, &add).grant();
                    room.enter(1);
                    work();
                    room.leave(1);
                    if crash {
                        lost.fetch_add(1, Ordering::Relaxed);
                        std::mem::replace(&mut client, server.connect()).close();
                    } else if client.ask(format!("DWG.DONE jobs {token}")) == 1 {
                        done.fetch_add(1, Ordering::Relaxed);
                    } else {
                        // The machine was so slow that the lease ran out: this job is lost.
                        lost.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert!(room.most() <= LIMIT, "{} inside", room.most());
    assert_eq!(room.entries(), WORKERS * JOBS);
    let (done, lost) = (done.load(Ordering::Relaxed), lost.load(Ordering::Relaxed));
    assert!(lost > 20, "many did crash: {lost}");
    eventually("the end of the last who crashed", SOON, || {
        *client.ask("DWG.INFO jobs").field("holders") == 0
    });
    assert_eq!(client.ask(format!("DWG.EXPECT jobs {done}")), 0);
    let tally = blocked(&mut client, &["DWG.WAIT", "jobs", "BLOCK", "0"]);
    assert_eq!(
        tally,
        Reply::Array(vec![
            Reply::Int(done.cast_signed()),
            Reply::Int(lost.cast_signed())
        ])
    );
}

#[test]
fn group_whose_members_all_crash_serves_its_waiters() {
    const LIMIT: usize = 5;
    let server = Server::start();
    let mut client = server.connect();
    for by in ["PX", "EPHEMERAL"] {
        client.ask("DEL jobs");
        let mut slots: Vec<_> = (0..LIMIT)
            .map(|_| {
                let mut worker = server.connect();
                let mut add = vec!["DWG.ADD", "jobs", "LIMIT", "5"];
                add.extend(if by == "PX" {
                    ["PX", "1500"].as_slice()
                } else {
                    &["EPHEMERAL"]
                });
                worker.call(&add).grant();
                worker
            })
            .collect();
        let mut next: Vec<_> = (0..LIMIT)
            .map(|_| {
                let mut worker = server.connect();
                worker.begin("DWG.ADD jobs LIMIT 5 BLOCK 0");
                worker
            })
            .collect();
        server.wait_for_blocked(LIMIT as u64);
        let mut watcher = server.connect();
        watcher.begin("DWG.WAIT jobs BLOCK 0");
        // All members crash; none is left that could release.
        slots.drain(..).for_each(Client::close);
        for worker in &mut next {
            let (token, _) = worker.recv(SOON).expect("a slot comes free").grant();
            assert_eq!(worker.ask(format!("DWG.DONE jobs {token}")), 1);
        }
        let tally = watcher.recv(SOON).expect("the round finishes");
        assert_eq!(
            tally,
            Reply::Array(vec![Reply::Int(5), Reply::Int(5)]),
            "{by}"
        );
    }
}

/// A resource that checks fences: it remembers the largest and refuses a write with a smaller one.
#[derive(Default)]
struct FencedStore {
    last_fence: u64,
    writes: Vec<(u64, &'static str)>,
    refused: u64,
}

impl FencedStore {
    fn write(&mut self, fence: u64, what: &'static str) -> bool {
        let accepted = fence >= self.last_fence;
        if accepted {
            self.last_fence = fence;
            self.writes.push((fence, what));
        } else {
            self.refused += 1;
        }
        accepted
    }
}

#[test]
fn lock_excludes_two_writers_and_fence_refuses_the_stale_one() {
    const BILLS: u64 = 100;
    let server = Server::start();
    let (room, store) = (Room::default(), Mutex::new(FencedStore::default()));
    let crashes = AtomicU64::new(0);
    thread::scope(|scope| {
        for process in 0..2 {
            let (server, room, store, crashes) = (&server, &room, &store, &crashes);
            scope.spawn(move || {
                let mut choices = Choices(40 + process);
                let mut client = server.connect();
                for _ in 0..BILLS {
                    let crash = choices.below(25) == 0;
                    let lease = if crash { "500" } else { "60000" };
                    let (token, fence) = blocked(
                        &mut client,
                        &["DLOCK.ACQUIRE", "user:1", "PX", lease, "BLOCK", "0"],
                    )
                    .grant();
                    room.enter(1);
                    assert!(
                        store.lock().expect("unpoisoned").write(fence, "begin"),
                        "a holder is never stale"
                    );
                    work();
                    if crash {
                        // A crash between begin and end. The other process is granted after the lease. When it
                        // or this one has written with a later fence, the write with the old fence must fail.
                        crashes.fetch_add(1, Ordering::Relaxed);
                        room.leave(1);
                        client.close();
                        client = server.connect();
                        let (token, later) =
                            blocked(&mut client, &["DLOCK.ACQUIRE", "user:1", "BLOCK", "0"])
                                .grant();
                        room.enter(1);
                        let mut store = store.lock().expect("unpoisoned");
                        assert!(later > fence && store.write(later, "begin"));
                        assert!(!store.write(fence, "end"), "a stale writer is refused");
                        assert!(store.write(later, "end"));
                        drop(store);
                        room.leave(1);
                        assert_eq!(client.ask(format!("DLOCK.RELEASE user:1 {token}")), 1);
                        continue;
                    }
                    assert!(store.lock().expect("unpoisoned").write(fence, "end"));
                    room.leave(1);
                    assert_eq!(client.ask(format!("DLOCK.RELEASE user:1 {token}")), 1);
                    assert_eq!(client.ask(format!("DLOCK.RELEASE user:1 {token}")), 0);
                }
            });
        }
    });
    assert_eq!(room.most(), 1, "one bill at a time");
    let store = store.into_inner().expect("unpoisoned");
    assert!(
        store.writes.is_sorted_by_key(|(fence, _)| *fence),
        "fences never fall"
    );
    let crashes = crashes.load(Ordering::Relaxed);
    assert!(
        crashes > 2 && store.refused == crashes,
        "{crashes} crashes, {} stale writes",
        store.refused
    );
    // Each fence has a begin and an end, but for the holders that crashed in between.
    let mut began: BTreeMap<u64, u64> = BTreeMap::new();
    store
        .writes
        .iter()
        .for_each(|(fence, _)| *began.entry(*fence).or_default() += 1);
    assert_eq!(
        began.values().filter(|writes| **writes == 1).count() as u64,
        crashes
    );
}

#[test]
fn semaphore_of_crashing_holders_keeps_its_limit_and_its_permits() {
    const LIMIT: u64 = 6;
    const CLIENTS: u64 = 10;
    const ROUNDS: u64 = 30;
    let server = Server::start();
    let room = Room::default();
    let timeouts = AtomicU64::new(0);
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (server, room, timeouts) = (&server, &room, &timeouts);
            scope.spawn(move || {
                let mut choices = Choices(70 + number);
                let mut client = server.connect();
                for round in 0..ROUNDS {
                    let permits = 1 + choices.below(3);
                    let token = format!("{number}:{round}");
                    // Of twelve, two close their connection without a release, and one lets its lease run out.
                    let death = choices.below(12);
                    let lease = if death == 0 { "800" } else { "60000" };
                    let mut acquire = [
                        "DSEM.ACQUIRE",
                        "pool",
                        "LIMIT",
                        "6",
                        "PX",
                        lease,
                        "EPHEMERAL",
                        "TOKEN",
                    ]
                    .map(str::to_owned)
                    .to_vec();
                    acquire.extend([token.clone(), "PERMITS".to_owned(), permits.to_string()]);
                    if death == 0 {
                        acquire.retain(|word| word != "EPHEMERAL");
                    }
                    // As client libraries do: wait, time out, drop the connection, connect and send again.
                    let patience = Duration::from_millis(4 + choices.below(20));
                    let grant = loop {
                        let mut request = acquire.clone();
                        request.extend(["BLOCK".to_owned(), "0".to_owned()]);
                        client.send(&request);
                        let deadline = Instant::now() + SOON;
                        if let Some(reply) = client.recv(patience) {
                            break reply;
                        }
                        assert!(Instant::now() < deadline);
                        timeouts.fetch_add(1, Ordering::Relaxed);
                        if choices.below(2) == 0 {
                            std::mem::replace(&mut client, server.connect()).close();
                        } else {
                            // Or the new connection sends while the old one is still open.
                            let old = std::mem::replace(&mut client, server.connect());
                            client.send(&request);
                            old.close();
                            break client.recv(SOON).expect("answered");
                        }
                    };
                    assert_eq!(grant.grant().0, token);
                    room.enter(permits);
                    work();
                    room.leave(permits);
                    match death {
                        0..=2 => std::mem::replace(&mut client, server.connect()).close(),
                        _ => {
                            assert_eq!(client.ask(format!("DSEM.RELEASE pool {token}")), 1);
                        }
                    }
                }
            });
        }
    });
    assert!(room.most() <= LIMIT, "{} permits inside", room.most());
    assert_eq!(room.entries(), CLIENTS * ROUNDS);
    assert!(timeouts.load(Ordering::Relaxed) > 10, "some timed out");
    let mut client = server.connect();
    // All permits in one request: it is granted when the last lease of a crashed client has run out.
    let reply = blocked(
        &mut client,
        &[
            "DSEM.ACQUIRE",
            "pool",
            "LIMIT",
            "6",
            "PERMITS",
            "6",
            "BLOCK",
            "0",
        ],
    );
    let (token, _) = reply.grant();
    assert_eq!(client.ask(format!("DSEM.RELEASE pool {token}")), 1);
    eventually("places left vacant to be given up", SOON, || {
        client.ask("EXISTS pool") == 0
    });
    server.wait_for_blocked(0);
}

#[test]
fn one_of_ten_machines_runs_each_tick_and_a_dead_one_is_replaced() {
    const MACHINES: u64 = 10;
    const TICKS: u64 = 12;
    let server = Server::start();
    let room = Room::default();
    // By tick: how often it was run to its end, and how often it was begun.
    let ran: Mutex<BTreeMap<u64, u64>> = Mutex::default();
    let begun: Mutex<BTreeMap<u64, u64>> = Mutex::default();
    let dead = AtomicU64::new(0);
    thread::scope(|scope| {
        for machine in 0..MACHINES {
            let (server, room, ran, begun, dead) = (&server, &room, &ran, &begun, &dead);
            scope.spawn(move || {
                let mut client = server.connect();
                for tick in 0..TICKS {
                    let key = format!("job:{tick}");
                    let is_done = || ran.lock().expect("unpoisoned").contains_key(&tick);
                    eventually("the tick to be run", SOON, || {
                        if is_done() {
                            return true;
                        }
                        // Only a machine that will die has a short lease: a slow one must not lapse.
                        let is_doomed = || tick % 4 == 3 && dead.load(Ordering::SeqCst) <= tick / 4;
                        let lease = if is_doomed() { 500 } else { 60_000 };
                        let reply =
                            client.ask(format!("DLOCK.ACQUIRE {key} PX {lease} OWNER {machine}"));
                        if reply.is_nil() {
                            return false;
                        }
                        let (token, _) = reply.grant();
                        room.enter(1);
                        // Another machine held the lock before and ran the tick to its end.
                        if is_done() {
                            room.leave(1);
                            client.ask(format!("DLOCK.RELEASE {key} {token}"));
                            return true;
                        }
                        *begun.lock().expect("unpoisoned").entry(tick).or_default() += 1;
                        work();
                        if is_doomed() {
                            // The first runner of every fourth tick dies: it does not finish and does not release.
                            dead.fetch_add(1, Ordering::SeqCst);
                            room.leave(1);
                            std::mem::replace(&mut client, server.connect()).close();
                            return false;
                        }
                        *ran.lock().expect("unpoisoned").entry(tick).or_default() += 1;
                        room.leave(1);
                        assert_eq!(client.ask(format!("DLOCK.RELEASE {key} {token}")), 1);
                        true
                    });
                }
            });
        }
    });
    let (ran, begun) = (
        ran.into_inner().expect("unpoisoned"),
        begun.into_inner().expect("unpoisoned"),
    );
    for tick in 0..TICKS {
        assert_eq!(ran[&tick], 1, "tick {tick} ran once");
        assert_eq!(
            begun[&tick],
            1 + u64::from(tick % 4 == 3),
            "tick {tick} began once, or again after a death"
        );
    }
    assert_eq!(dead.load(Ordering::Relaxed), TICKS / 4);
}

#[test]
fn lock_that_is_renewed_stays_and_a_lapsed_one_is_lost() {
    let server = Server::start();
    let mut runner = server.connect();
    let (token, fence) = runner.ask("DLOCK.ACQUIRE job PX 1000").grant();
    let running = AtomicBool::new(true);
    let overtaken = AtomicU64::new(0);
    let next = thread::scope(|scope| {
        let standby = scope.spawn(|| {
            let mut client = server.connect();
            // Tries of the standby neither harm the runner nor succeed while it renews.
            eventually("the runner to end", SOON, || {
                if !running.load(Ordering::SeqCst) {
                    return true;
                }
                let reply = client.ask("DLOCK.ACQUIRE job PX 10000");
                let granted = !reply.is_nil();
                if granted && running.load(Ordering::SeqCst) {
                    overtaken.fetch_add(1, Ordering::SeqCst);
                }
                granted
            });
            blocked(
                &mut client,
                &["DLOCK.ACQUIRE", "job", "BLOCK", "0", "PX", "10000"],
            )
            .grant()
        });
        // The runner works for more than three leases and renews.
        let until = Instant::now() + Duration::from_millis(3_500);
        eventually("the slow run's end", SOON, || {
            assert_eq!(
                runner.ask(format!("DLOCK.RENEW job {token}")),
                1,
                "still the runner"
            );
            Instant::now() >= until
        });
        // Then it stops renewing for longer than its lease.
        running.store(false, Ordering::SeqCst);
        standby.join().expect("the standby takes over")
    });
    assert_eq!(overtaken.load(Ordering::SeqCst), 0);
    assert!(next.1 > fence);
    assert_eq!(runner.ask(format!("DLOCK.RENEW job {token}")), 0, "lost");
    assert_eq!(runner.ask(format!("DLOCK.CHECK job {token}")), 0);
    assert_eq!(runner.ask(format!("DLOCK.RELEASE job {token}")), 0);
    // What the old runner sent has not touched the next holder.
    assert!(runner.ask(format!("DLOCK.CHECK job {}", next.0)).as_int() > 0);
    let info = runner.ask("DLOCK.INFO job");
    let fence = info.field("first-holders").as_array()[0]
        .field("fence")
        .as_int();
    assert_eq!(fence, next.1.cast_signed());
}

#[test]
fn sixteen_workers_on_one_lock_get_nearly_equal_shares() {
    const WORKERS: usize = 16;
    const GRANTS: u64 = 8_000;
    let server = Server::start();
    let room = Room::default();
    let granted = AtomicU64::new(0);
    // All start together: the first to connect must not count grants while the others still connect.
    let start = std::sync::Barrier::new(WORKERS);
    let shares: Vec<u64> = thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| {
                let (server, room, granted, start) = (&server, &room, &granted, &start);
                scope.spawn(move || {
                    let mut client = server.connect();
                    let mut mine = 0;
                    start.wait();
                    while granted.load(Ordering::Relaxed) < GRANTS {
                        let (token, _) =
                            blocked(&mut client, &["DLOCK.ACQUIRE", "lock", "BLOCK", "0"]).grant();
                        room.enter(1);
                        mine += 1;
                        granted.fetch_add(1, Ordering::Relaxed);
                        room.leave(1);
                        assert_eq!(client.ask(format!("DLOCK.RELEASE lock {token}")), 1);
                    }
                    mine
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().expect("no worker panics"))
            .collect()
    });
    assert_eq!(room.most(), 1);
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), share| {
        (sum + *share as f64, squares + (*share as f64).powi(2))
    });
    let jain = sum * sum / (WORKERS as f64 * squares);
    assert!(jain >= 0.99, "Jain {jain:.4}: {shares:?}");
    assert!(server.connect().ask("DLOCK.INFO lock").is_nil());
}
