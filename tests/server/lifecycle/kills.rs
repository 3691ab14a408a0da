//! A server that is killed in the middle of traffic.
//!
//! Where every write reaches the disk before its reply, no acknowledged grant, release or result is lost. Where the end
//! of the file may be lost, only the newest grants are lost. A request that was not answered may have been carried out
//! or not. In every case later fences are higher than all earlier ones.
//!
//! `DSYNC_KILLS=n` kills each server n times instead of five.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng};

use crate::support::data_files::{aof, kill_and_start, wait_for_rewrite, with_aof, with_safe_aof};
use crate::support::*;

const WORKERS: usize = 6;

/// A hold whose grant was acknowledged and that was not given back.
struct AcknowledgedHold {
    acquire: String,
    check: String,
    fence: u64,
}

/// What the workers know for certain from the replies they read.
#[derive(Default)]
struct Known {
    held: Vec<AcknowledgedHold>,
    /// CHECK requests for holds that were given back: the reply must be 0.
    released: Vec<String>,
    /// Completed work-once keys and their results.
    done: Vec<(String, String)>,
}

impl Known {
    fn add(&mut self, other: Known) {
        self.held.extend(other.held);
        self.released.extend(other.released);
        self.done.extend(other.done);
    }

    fn last_fence(&self) -> u64 {
        self.held.iter().map(|held| held.fence).max().unwrap_or(0)
    }
}

fn fence_of(reply: &Reply) -> u64 {
    match reply.as_array() {
        [_, Reply::Int(fence)] | [_, _, Reply::Int(fence), _] => fence.unsigned_abs(),
        _ => panic!("expected a grant, received {reply:?}"),
    }
}

fn say(client: &mut Client, line: &str) -> Option<Reply> {
    client.try_call(&line.split(' ').collect::<Vec<_>>())
}

/// Acquires holds of every family until the server is gone, and gives two of three back.
fn work(server: &Server, name: &str, acknowledged: &AtomicUsize) -> Known {
    let mut known = Known::default();
    let mut client = server.connect();
    for n in 0.. {
        let token = format!("{name}:{n}");
        // In turn: a lock that all workers wait for, locks and runs of its own, and holds of shared keys.
        let (prefix, key, request) = match n % 5 {
            0 => ("DLOCK", "hot".to_owned(), "DLOCK.ACQUIRE hot".to_owned()),
            1 => (
                "DLOCK",
                format!("lock:{token}"),
                format!("DLOCK.ACQUIRE lock:{token}"),
            ),
            2 => (
                "DSEM",
                "sem".to_owned(),
                "DSEM.ACQUIRE sem LIMIT 1000000".to_owned(),
            ),
            3 => ("DWG", "group".to_owned(), "DWG.ADD group".to_owned()),
            _ => (
                "DONCE",
                format!("once:{token}"),
                format!("DONCE.BEGIN once:{token}"),
            ),
        };
        let acquire = format!("{request} EX 600 BLOCK 0 TOKEN {token}");
        let Some(reply) = say(&mut client, &acquire) else {
            return known;
        };
        let fence = fence_of(&reply);
        acknowledged.fetch_add(1, Ordering::Relaxed);
        let check = format!("{prefix}.CHECK {key} {token}");
        // The lock that others wait for must be given back.
        if n % 3 == 0 && key != "hot" {
            known.held.push(AcknowledgedHold {
                acquire,
                check,
                fence,
            });
            continue;
        }
        let end = match (prefix, n % 2) {
            ("DONCE", 0) => format!("DONCE.DONE {key} {token} RESULT {token} EX 600"),
            ("DWG", 0) => format!("DWG.DONE {key} {token}"),
            _ => format!("{prefix}.RELEASE {key} {token}"),
        };
        // Without a reply, it is unknown whether the hold has ended.
        if say(&mut client, &end).is_none() {
            return known;
        }
        if end.contains("RESULT") {
            known.done.push((key, token));
        } else {
            known.released.push(check);
        }
    }
    known
}

/// Lets the workers run until `enough` grants are acknowledged, and kills the server under them.
fn kill_under_traffic(server: &mut Server, round: u64, rewrite: bool, enough: usize) -> Known {
    let acknowledged = AtomicUsize::new(0);
    let mut known = Known::default();
    let wait_for = |count: usize| {
        eventually("traffic", Duration::from_secs(30), || {
            acknowledged.load(Ordering::Relaxed) >= count
        });
    };
    thread::scope(|threads| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let (server, acknowledged) = (&*server, &acknowledged);
                threads.spawn(move || work(server, &format!("{round}:{worker}"), acknowledged))
            })
            .collect();
        wait_for(enough / 2);
        if rewrite {
            assert!(!server.connect().ask("BGREWRITEAOF").is_error());
            // In other rounds the server may be killed while it rewrites the AOF.
            if round.is_multiple_of(4) {
                wait_for_rewrite(server);
            }
        }
        wait_for(enough);
        let pid = server.pid().to_string();
        let killed = Command::new("sh").args(["-c", "kill -9 $0", &pid]).status();
        assert!(killed.is_ok_and(|status| status.success()));
        for worker in workers {
            known.add(worker.join().expect("a worker ends"));
        }
    });
    server.kill9();
    known
}

fn kills() -> u64 {
    let said = std::env::var("DSYNC_KILLS").ok();
    said.and_then(|text| text.parse().ok()).unwrap_or(5)
}

#[track_caller]
fn assert_all_there(server: &Server, known: &Known) {
    let mut client = server.connect();
    for AcknowledgedHold {
        acquire,
        check,
        fence,
    } in &known.held
    {
        assert!(client.ask(check).as_int() > 0, "lost: {check}");
        // The same request again is answered the same hold.
        assert_eq!(fence_of(&client.ask(acquire)), *fence, "{acquire}");
    }
    for check in &known.released {
        assert_eq!(client.ask(check), 0, "came back: {check}");
    }
    for (key, result) in &known.done {
        let reply = client.ask(format!("DONCE.BEGIN {key}"));
        assert_eq!(reply.as_array()[0], *"DONE", "{key}: {reply:?}");
        assert_eq!(reply.as_array()[1], *result.as_str(), "{key}");
    }
}

#[track_caller]
fn assert_fences_rise(server: &Server, known: &Known) {
    let fence = fence_of(&server.connect().ask("DLOCK.ACQUIRE fence PX 1"));
    assert!(fence > known.last_fence(), "{fence}");
}

#[test]
fn kill_loses_nothing_acknowledged_with_fsync_always() {
    for preamble in [true, false] {
        let mut server = with_safe_aof(preamble).start();
        let mut known = Known::default();
        for round in 0..kills() {
            known.add(kill_under_traffic(&mut server, round, round % 2 == 0, 300));
            assert!(known.held.len() >= 50, "{} holds", known.held.len());
            server.start_again();
            assert_all_there(&server, &known);
            assert_fences_rise(&server, &known);
            // The worker that held this lock is gone and never releases it.
            server.connect().ask("DEL hot");
        }
    }
}

/// Asserts that every lost hold was granted after every kept one; returns how many are lost.
#[track_caller]
fn assert_only_the_newest_lost(server: &Server, known: &Known) -> usize {
    let mut client = server.connect();
    let (kept, lost): (Vec<_>, Vec<_>) = known
        .held
        .iter()
        .partition(|held| client.ask(&held.check).as_int() > 0);
    let newest_kept = kept.iter().map(|held| held.fence).max();
    let oldest_lost = lost.iter().map(|held| held.fence).min();
    if let (Some(kept), Some(lost)) = (newest_kept, oldest_lost) {
        assert!(kept < lost, "{lost} is lost, and {kept} is kept");
    }
    lost.len()
}

#[test]
fn kill_loses_only_the_newest_without_fsync_always() {
    for (fsync, preamble) in [("everysec", "yes"), ("everysec", "no"), ("no", "no")] {
        let mut server = with_aof(Server::builder(), fsync, preamble).start();
        for round in 0..kills().min(2) {
            let known = kill_under_traffic(&mut server, round, round % 2 == 0, 600);
            server.start_again();
            assert_only_the_newest_lost(&server, &known);
            assert_fences_rise(&server, &known);
            // A token whose hold is lost is granted a new one; any other token has the same hold.
            let mut client = server.connect();
            for held in &known.held {
                let fence = fence_of(&client.ask(&held.acquire));
                assert!(fence >= held.fence, "{}", held.acquire);
            }
            assert_eq!(client.ask("FLUSHALL"), "OK");
        }
    }
}

#[test]
fn aof_cut_anywhere_keeps_everything_before_the_cut() {
    let mut rng = StdRng::seed_from_u64(7);
    let mut server = with_safe_aof(false).start();
    let known = kill_under_traffic(&mut server, 1, false, 400);
    let whole = fs::read(aof(&server)).expect("the AOF is read");
    let mut last_lost = 0;
    // Cuts ever more off the end.
    for nth in 1..6 {
        let from = whole.len() - nth * whole.len() / 6;
        let cut = rng.random_range(from..from + whole.len() / 6);
        fs::write(aof(&server), &whole[..cut]).expect("the AOF is cut");
        server.start_again();
        let lost = assert_only_the_newest_lost(&server, &known);
        assert!(lost >= last_lost && lost < known.held.len(), "{lost} lost");
        last_lost = lost;
        assert_fences_rise(&server, &known);
        server.kill9();
    }
    assert!(last_lost > 0);
    fs::write(aof(&server), &whole).expect("the AOF is whole again");
    server.start_again();
    assert_all_there(&server, &known);
}

#[test]
fn kill_without_aof_loses_what_came_after_the_last_save() {
    let mut server = Server::start();
    let mut client = server.connect();
    let mut fences = Vec::new();
    for n in 0..50 {
        if n == 25 {
            assert_eq!(client.ask("SAVE"), "OK");
        }
        let reply = client.ask(format!("DSEM.ACQUIRE s LIMIT 99 TOKEN t{n} EX 600"));
        fences.push(fence_of(&reply));
    }
    kill_and_start(&mut server);
    let mut client = server.connect();
    for (n, fence) in fences.iter().enumerate() {
        let left = client.ask(format!("DSEM.CHECK s t{n}")).as_int();
        assert_eq!(left > 0, n < 25, "t{n}: {left}");
        let again = client.ask(format!("DSEM.ACQUIRE s LIMIT 99 TOKEN t{n} EX 600"));
        // A lost hold is granted anew, with a higher fence than all before.
        let is_new = fence_of(&again) > fences[49];
        assert_eq!(is_new, n >= 25, "t{n}: {fence}");
    }
}
