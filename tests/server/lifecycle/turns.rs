//! Work on thousands of holds at once, which the module does in slices, from its timer.
//!
//! The slices follow each other to the end, on primaries and on replicas, and leases end at the right time.

use std::time::{Duration, Instant};

use crate::support::steps::*;
use crate::support::*;

/// Takes a hold with each of these lines.
#[track_caller]
fn acquire_all(client: &mut Client, lines: impl IntoIterator<Item = String>) {
    for reply in client.ask_all(lines) {
        reply.grant();
    }
}

fn holds(server: &Server) -> u64 {
    server.info_number("dsync", "dsync_holds")
}

/// Demotes the server and promotes it again.
fn change_roles(client: &mut Client) {
    assert_eq!(client.ask("REPLICAOF 127.0.0.1 1"), "OK");
    assert_eq!(client.ask("REPLICAOF NO ONE"), "OK");
}

/// Leases run on a lease clock. A deadline of one term as primary was taken for one of the next term; or, in another
/// version, nothing lapsed until the longest lease of the earlier term had ended.
#[test]
fn leases_end_on_time_in_every_term_as_primary() {
    let server = Server::builder()
        .module_arg("takeover-grace-ms")
        .module_arg(0)
        .start();
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE long PX 86400000 TOKEN t").grant();
    for term in 0..4 {
        client.ask("DLOCK.ACQUIRE renewed PX 9000 TOKEN t").grant();
        let asked = Instant::now();
        client.ask("DLOCK.ACQUIRE short PX 400 TOKEN t").grant();
        change_roles(&mut client);
        let left = client.ask("DLOCK.CHECK short t").as_int();
        assert!((0..=400).contains(&left), "term {term}: {left}");
        assert_eq!(client.ask("DLOCK.RENEW renewed t EX 600"), 1);
        let left = client.ask("DLOCK.CHECK renewed t").as_int();
        assert!((590_000..=600_000).contains(&left), "term {term}: {left}");
        client.begin("DLOCK.ACQUIRE short BLOCK 0");
        client.granted();
        // The deadline passes from the lease clock to the wall clock and back, which may lose a millisecond.
        assert!(asked.elapsed() >= Duration::from_millis(399));
        let left = client.ask("DLOCK.CHECK renewed t").as_int();
        assert!((580_000..600_000).contains(&left), "term {term}: {left}");
        let left = client.ask("DLOCK.CHECK long t").as_int();
        assert!((86_000_000..=86_400_000).contains(&left), "{left}");
        client.ask("DEL renewed short");
    }
}

/// The walk over the loaded locks after the start takes many turns. All locks lapse, except those that were renewed
/// before the walk had reached them.
#[test]
fn fifty_thousand_locks_lapse_after_start_unless_renewed() {
    let mut server = Server::builder()
        .module_arg("takeover-grace-ms")
        .module_arg(1_000)
        .config("appendonly", "no")
        .start();
    let mut client = server.connect();
    let acquire = |n| format!("DLOCK.ACQUIRE k{n} PX 4000 TOKEN t{n}");
    acquire_all(&mut client, (0..50_000).map(acquire));
    let locks = holds(&server);
    client.ask("SAVE");
    server.kill9();
    server.start_again();
    let mut client = server.connect();
    let renew = |n| format!("DLOCK.RENEW k{} t{} EX 600", 49_999 - n, 49_999 - n);
    let answers = client.ask_all((0..500).map(renew).collect::<Vec<_>>());
    let renewed = answers.iter().filter(|reply| **reply == Reply::Int(1));
    let renewed = renewed.count() as u64;
    assert!(locks > 10_000, "{locks} of them were saved");
    eventually("the end of all others", SOON, || holds(&server) == renewed);
    assert_eq!(client.ask("DBSIZE").as_int() as u64, renewed);
}

/// A replica lapses nothing and serves nobody, so its timer was never armed, and a state that is dropped in slices was
/// never dropped.
#[test]
fn replica_gives_back_the_memory_of_a_large_semaphore() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    let mut client = primary.connect();
    let used = |server: &Server| server.info_number("memory", "used_memory");
    let before = used(&replica);
    let acquire = |_| "DSEM.ACQUIRE sem LIMIT 50000 EX 600 OWNER somebody".to_owned();
    acquire_all(&mut client, (0..50_000).map(acquire));
    replica.wait_to_catch_up_with(&primary);
    let full = used(&replica);
    assert!(full > before + 10_000_000, "{before} and then {full}");
    assert_eq!(client.ask("DEL sem"), 1);
    assert_eq!(holds(&primary), 0, "they leave the gauge at once");
    replica.wait_to_catch_up_with(&primary);
    assert_eq!(holds(&replica), 0);
    for server in [&primary, &replica] {
        eventually("memory that is given back", SOON, || {
            used(server) < before + (full - before) / 2
        });
    }
}

/// A database is flushed or swapped in which more keys are waited for than the module visits in one turn.
#[test]
fn waiters_of_300_keys_are_served_after_flush_and_swap() {
    for line in ["FLUSHALL ASYNC", "FLUSHDB", "SWAPDB 0 1"] {
        let server = Server::start();
        let mut client = server.connect();
        let acquire = |n| format!("DLOCK.ACQUIRE k{n} EX 600");
        acquire_all(&mut client, (0..300).map(acquire));
        let mut waiters: Vec<Client> = (0..300)
            .map(|n| {
                let mut waiter = server.connect();
                waiter.begin(format!("DLOCK.ACQUIRE k{n} EX 600 BLOCK 0"));
                waiter
            })
            .collect();
        server.wait_for_blocked(300);
        let listed = client.ask("DSYNC.CONTENDED COUNT 1000");
        assert_eq!(listed.as_array().len(), 300);
        // A request in the same turn does not overtake the waiters, whether their queues were visited or not.
        let replies = client.ask_all([line, "DLOCK.ACQUIRE k299"]);
        assert!(replies[1].is_nil(), "{line}: {replies:?}");
        waiters.iter_mut().for_each(|waiter| {
            waiter.granted();
        });
        let listed = client.ask("DSYNC.CONTENDED COUNT 1000");
        assert_eq!(listed.as_array().len(), 0, "{line}");
        assert_eq!(server.info_number("dsync", "dsync_longest_wait_ms"), 0);
    }
}

/// The holds of a closed connection end one by one; a token that asks again on another connection keeps its hold.
#[test]
fn ten_thousand_ephemeral_holds_end_unless_claimed_again() {
    let server = Server::start();
    let mut closing = server.connect();
    let acquire = |n| format!("DLOCK.ACQUIRE k{n} EX 600 EPHEMERAL TOKEN t{n}");
    acquire_all(&mut closing, (0..10_000).map(acquire));
    let mut client = server.connect();
    acquire_all(&mut client, (0..50).map(|n| acquire(n * 200)));
    closing.close();
    // Fifty more tokens ask while the others end: each has its old hold or a new one.
    acquire_all(&mut client, (0..50).map(|n| acquire(n * 200 + 100)));
    eventually("the end of the others", SOON, || holds(&server) == 100);
    let check = |n: u64| format!("DLOCK.CHECK k{} t{}", n * 100, n * 100);
    for (n, left) in client.ask_all((0..100).map(check)).iter().enumerate() {
        assert!(left.as_int() > 0, "{n}");
    }
    client.close();
    eventually("the end of these", SOON, || holds(&server) == 0);
}
