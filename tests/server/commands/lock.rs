//! Locks: who gets them, in which order, for how long, and what ends a hold.
//!
//! Not here: retries with a token (`retries`), waiters that leave (`leaving`), keys that are removed
//! (`removal`), clocks and stalls beyond one slow command.

use crate::support::steps::*;
use crate::support::*;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn waiters(client: &mut Client, key: &str) -> i64 {
    count(client, "DLOCK.INFO", key, "waiters")
}

#[test]
fn a_lock_is_held_until_its_token_releases_it_and_the_key_is_then_gone() {
    let server = Server::start();
    let mut client = server.connect();
    let (token, fence) = ask(&mut client, "DLOCK.ACQUIRE lock").grant();
    assert_eq!(ask(&mut client, "EXISTS lock"), 1);
    let left = ask(&mut client, format!("DLOCK.CHECK lock {token}")).as_int();
    assert!(
        (20_000..=30_000).contains(&left),
        "the default lease is 30 s: {left}"
    );
    assert!(
        ask(&mut client, "DLOCK.ACQUIRE lock").is_nil(),
        "held, and no BLOCK"
    );
    assert!(ask(&mut client, "DLOCK.ACQUIRE lock SHARED").is_nil());

    assert_eq!(ask(&mut client, format!("DLOCK.RELEASE lock {token}")), 1);
    assert_eq!(ask(&mut client, "EXISTS lock"), 0);
    assert_eq!(ask(&mut client, format!("DLOCK.CHECK lock {token}")), 0);
    assert_eq!(ask(&mut client, format!("DLOCK.RELEASE lock {token}")), 0);

    let (again, later) = ask(&mut client, "DLOCK.ACQUIRE lock").grant();
    assert_ne!(again, token);
    assert!(later > fence, "fences rise: {fence}, then {later}");
}

#[test]
fn a_token_made_by_the_server_is_a_random_uuid_and_never_the_same_twice() {
    let server = Server::start();
    let mut client = server.connect();
    let lines: Vec<_> = (0..1_000)
        .map(|n| format!("DLOCK.ACQUIRE lock:{n}"))
        .collect();
    let replies = at_once(&mut client, &lines);
    let tokens: BTreeSet<_> = replies.iter().map(|reply| reply.grant().0).collect();
    assert_eq!(tokens.len(), 1_000);
    for token in &tokens {
        let bytes = token.as_bytes();
        assert_eq!(bytes.len(), 36, "{token}");
        for (at, byte) in bytes.iter().enumerate() {
            let fits = match at {
                8 | 13 | 18 | 23 => *byte == b'-',
                14 => *byte == b'4',
                19 => b"89ab".contains(byte),
                _ => b"0123456789abcdef".contains(byte),
            };
            assert!(fits, "byte {at} of {token}");
        }
    }
    // Random, and not counted up: every digit varies.
    for at in (0..36).filter(|at| ![8, 13, 14, 18, 23].contains(at)) {
        let seen: BTreeSet<_> = tokens.iter().map(|token| token.as_bytes()[at]).collect();
        assert!(seen.len() > 1, "digit {at} is always the same");
    }
}

#[test]
fn only_the_token_itself_releases_or_renews() {
    let server = Server::start();
    let mut client = server.connect();
    let token = "0c9b1f2e-33aa-4f00-8abc-d00dfeedbeef";
    let given = ask(
        &mut client,
        format!("DLOCK.ACQUIRE lock PX 60000 TOKEN {token}"),
    )
    .grant()
    .0;
    assert_eq!(given, token, "the client's own token is the one it gets");
    let others = [
        token.to_uppercase(),
        token.replace('-', ""),
        token[..35].to_owned(),
        format!("{token}0"),
        "0c9b1f2e-33aa-4f00-8abc-d00dfeedbeee".to_owned(),
        "*".to_owned(),
        "x".repeat(128),
    ];
    for other in &others {
        assert_eq!(
            ask(&mut client, format!("DLOCK.RELEASE lock {other}")),
            0,
            "{other}"
        );
        assert_eq!(
            ask(&mut client, format!("DLOCK.RENEW lock {other} PX 1")),
            0,
            "{other}"
        );
        assert_eq!(
            ask(&mut client, format!("DLOCK.CHECK lock {other}")),
            0,
            "{other}"
        );
    }
    for bad in ["".to_owned(), "x".repeat(129)] {
        for command in ["DLOCK.RELEASE", "DLOCK.RENEW", "DLOCK.CHECK"] {
            let error = call!(client, command, "lock", bad);
            assert!(error.error().starts_with("ERR "), "{error:?}");
            assert!(
                error.error().contains("128"),
                "it names the bound: {error:?}"
            );
        }
    }
    let left = ask(&mut client, format!("DLOCK.CHECK lock {token}")).as_int();
    assert!(left > 30_000, "untouched by all that: {left}");
    // Its upper-case form is another token, and comes back as it was given.
    let upper = token.to_uppercase();
    let shown = ask(&mut client, format!("DLOCK.ACQUIRE other TOKEN {upper}"))
        .grant()
        .0;
    assert_eq!(shown, upper);
    assert_eq!(ask(&mut client, format!("DLOCK.RELEASE other {token}")), 0);
    assert_eq!(ask(&mut client, format!("DLOCK.RELEASE lock {token}")), 1);
}

#[test]
fn a_late_release_renewal_or_revocation_does_not_touch_the_next_holder() {
    let server = Server::start();
    let mut client = server.connect();
    let (late, fence) = ask(&mut client, "DLOCK.ACQUIRE lock PX 40").grant();
    let mut next = server.connect();
    tell(&mut next, "DLOCK.ACQUIRE lock PX 60000 BLOCK 0");
    let (token, later) = granted(&mut next);
    assert!(later > fence);
    assert_eq!(ask(&mut client, format!("DLOCK.RELEASE lock {late}")), 0);
    assert_eq!(ask(&mut client, format!("DLOCK.RENEW lock {late}")), 0);
    assert_eq!(ask(&mut client, format!("DLOCK.REVOKE lock {fence}")), 0);
    assert_eq!(ask(&mut client, format!("DLOCK.CHECK lock {late}")), 0);
    assert!(ask(&mut client, format!("DLOCK.CHECK lock {token}")).as_int() > 30_000);
    assert!(
        ask(&mut client, "DLOCK.ACQUIRE lock").is_nil(),
        "still the next one's"
    );
}

#[test]
fn fifty_clients_are_served_in_the_order_of_their_coming_one_at_a_time() {
    const CLIENTS: usize = 50;
    let server = Server::start();
    let mut holder = server.connect();
    let (token, first) = ask(&mut holder, "DLOCK.ACQUIRE lock").grant();
    let mut queue_of = Vec::new();
    for n in 1..=CLIENTS {
        let mut client = server.connect();
        tell(&mut client, "DLOCK.ACQUIRE lock BLOCK 0");
        eventually("one more in the queue", SOON, || {
            waiters(&mut holder, "lock") == n as i64
        });
        queue_of.push(client);
    }
    let inside = AtomicU32::new(0);
    let served = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for (n, mut client) in queue_of.into_iter().enumerate() {
            let (inside, served) = (&inside, &served);
            scope.spawn(move || {
                let (token, fence) = granted(&mut client);
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two inside");
                served.lock().expect("no holder panicked").push((n, fence));
                thread::yield_now();
                assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1, "two inside");
                assert_eq!(ask(&mut client, format!("DLOCK.RELEASE lock {token}")), 1);
            });
        }
        assert_eq!(ask(&mut holder, format!("DLOCK.RELEASE lock {token}")), 1);
    });
    let served = served.into_inner().expect("no holder panicked");
    let order: Vec<_> = served.iter().map(|(n, _)| *n).collect();
    assert_eq!(order, (0..CLIENTS).collect::<Vec<_>>());
    let mut last = first;
    for (n, fence) in served {
        assert!(
            fence > last,
            "the fence of waiter {n}: {last}, then {fence}"
        );
        last = fence;
    }
    assert_eq!(ask(&mut holder, "EXISTS lock"), 0);
}

#[test]
fn fifty_clients_that_come_again_and_again_never_meet_inside() {
    const CLIENTS: usize = 50;
    const ROUNDS: usize = 12;
    let server = Server::start();
    let inside = AtomicU32::new(0);
    let last_fence = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let mut client = server.connect();
            let (inside, last_fence) = (&inside, &last_fence);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let (token, fence) = ask(&mut client, "DLOCK.ACQUIRE lock BLOCK 0").grant();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two inside");
                    let before = last_fence.swap(fence, Ordering::SeqCst);
                    assert!(fence > before, "fences rise: {before}, then {fence}");
                    inside.fetch_sub(1, Ordering::SeqCst);
                    assert_eq!(ask(&mut client, format!("DLOCK.RELEASE lock {token}")), 1);
                }
            });
        }
    });
    assert_eq!(ask(&mut server.connect(), "EXISTS lock"), 0);
    wait_for_blocked(&server, 0);
}

#[test]
fn shared_holds_are_together_and_consecutive_shared_requests_enter_together() {
    let server = Server::start();
    let mut admin = server.connect();
    let (one, first) = ask(&mut admin, "DLOCK.ACQUIRE lock SHARED").grant();
    let (two, second) = ask(&mut admin, "DLOCK.ACQUIRE lock SHARED").grant();
    assert!(second > first);
    assert_eq!(count(&mut admin, "DLOCK.INFO", "lock", "holders"), 2);

    let mut writer = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    let mut readers: Vec<_> = (0..5)
        .map(|_| queued(&server, "DLOCK.ACQUIRE lock SHARED BLOCK 0"))
        .collect();
    let mut last_writer = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");

    assert_eq!(ask(&mut admin, format!("DLOCK.RELEASE lock {one}")), 1);
    writer.expect_silence(A_WHILE);
    assert_eq!(ask(&mut admin, format!("DLOCK.RELEASE lock {two}")), 1);
    let (writing, _) = granted(&mut writer);
    readers[0].expect_silence(A_WHILE);
    assert_eq!(ask(&mut admin, format!("DLOCK.RELEASE lock {writing}")), 1);
    let reading: Vec<_> = readers.iter_mut().map(granted).collect();
    assert!(
        reading.is_sorted_by(|a, b| a.1 < b.1),
        "in the order of their coming: {reading:?}"
    );
    assert_eq!(count(&mut admin, "DLOCK.INFO", "lock", "holders"), 5);
    for (token, _) in &reading[1..] {
        assert_eq!(ask(&mut admin, format!("DLOCK.RELEASE lock {token}")), 1);
    }
    last_writer.expect_silence(A_WHILE);
    assert_eq!(
        ask(&mut admin, format!("DLOCK.RELEASE lock {}", reading[0].0)),
        1
    );
    granted(&mut last_writer);
}

#[test]
fn an_exclusive_request_is_not_starved_by_later_shared_ones() {
    let server = Server::start();
    let mut admin = server.connect();
    let (first, _) = ask(&mut admin, "DLOCK.ACQUIRE lock SHARED").grant();
    let mut writer = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    // They would fit beside the one that holds, and would pass the writer.
    let mut late: Vec<_> = (0..3)
        .map(|_| queued(&server, "DLOCK.ACQUIRE lock SHARED BLOCK 0"))
        .collect();
    late[2].expect_silence(A_WHILE);
    assert_eq!(count(&mut admin, "DLOCK.INFO", "lock", "holders"), 1);
    assert_eq!(ask(&mut admin, format!("DLOCK.RELEASE lock {first}")), 1);
    let (writing, fence) = granted(&mut writer);
    late[0].expect_silence(A_WHILE);
    assert_eq!(ask(&mut admin, format!("DLOCK.RELEASE lock {writing}")), 1);
    for reader in &mut late {
        assert!(granted(reader).1 > fence);
    }
}

#[test]
fn a_try_fails_while_anyone_waits() {
    let server = Server::start();
    let mut admin = server.connect();
    let (_, _) = ask(&mut admin, "DLOCK.ACQUIRE lock SHARED").grant();
    let writer = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    assert!(
        ask(&mut admin, "DLOCK.ACQUIRE lock SHARED").is_nil(),
        "it would pass the writer"
    );
    writer.close();
    wait_for_blocked(&server, 0);
    ask(&mut admin, "DLOCK.ACQUIRE lock SHARED").grant();
}

#[test]
fn a_try_in_the_very_turn_of_a_release_does_not_pass_those_who_wait() {
    let server = Server::start();
    let mut holder = server.connect();
    ask(&mut holder, "DLOCK.ACQUIRE lock TOKEN held").grant();
    let mut waiter = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    let replies = at_once(
        &mut holder,
        &["DLOCK.RELEASE lock held", "DLOCK.ACQUIRE lock"],
    );
    assert_eq!(replies[0], 1);
    assert!(replies[1].is_nil(), "{replies:?}");
    granted(&mut waiter);
    // Nor does a request that may wait.
    let mut third = server.connect();
    let (token, _) = {
        ask(&mut waiter, "DLOCK.ACQUIRE other TOKEN held").grant();
        let queued = queued(&server, "DLOCK.ACQUIRE other BLOCK 0");
        at_once(&mut waiter, &["DLOCK.RELEASE other held"]);
        tell(&mut third, "DLOCK.ACQUIRE other BLOCK 0");
        let mut queued = queued;
        granted(&mut queued)
    };
    third.expect_silence(A_WHILE);
    assert_eq!(ask(&mut waiter, format!("DLOCK.RELEASE other {token}")), 1);
    granted(&mut third);
}

#[test]
fn a_wait_that_runs_out_answers_nil_and_leaves_the_queue() {
    let server = Server::start();
    let mut holder = server.connect();
    let (token, _) = ask(&mut holder, "DLOCK.ACQUIRE lock").grant();
    let mut hasty = server.connect();
    let asked = Instant::now();
    tell(&mut hasty, "DLOCK.ACQUIRE lock BLOCK 80");
    let mut patient = server.connect();
    tell(&mut patient, "DLOCK.ACQUIRE lock BLOCK 60000");
    assert!(reply(&mut hasty).is_nil());
    assert!(
        asked.elapsed() >= Duration::from_millis(80),
        "{:?}",
        asked.elapsed()
    );
    wait_for_blocked(&server, 1);
    assert_eq!(waiters(&mut holder, "lock"), 1);
    assert_eq!(ask(&mut holder, format!("DLOCK.RELEASE lock {token}")), 1);
    granted(&mut patient);
    expect_no_more(&mut hasty);
}

#[test]
fn a_lease_lapses_never_early_and_hands_over() {
    let server = Server::start();
    let leases = [1, 5, 30, 100, 180, 250, 400];
    let mut holder = server.connect();
    let mut waiting: Vec<_> = leases.iter().map(|_| server.connect()).collect();
    let mut asked = Vec::new();
    for (lease, waiter) in leases.iter().zip(&mut waiting) {
        asked.push(Instant::now());
        ask(
            &mut holder,
            format!("DLOCK.ACQUIRE lock:{lease} PX {lease}"),
        )
        .grant();
        tell(
            waiter,
            format!("DLOCK.ACQUIRE lock:{lease} PX 60000 BLOCK 0"),
        );
    }
    thread::scope(|scope| {
        for ((lease, waiter), asked) in leases.iter().zip(&mut waiting).zip(asked) {
            scope.spawn(move || {
                granted(waiter);
                let held = asked.elapsed();
                assert!(
                    held >= Duration::from_millis(*lease),
                    "a lease of {lease}: {held:?}"
                );
            });
        }
    });
}

#[test]
fn a_lapse_without_waiters_removes_the_key() {
    let server = Server::start();
    let mut client = server.connect();
    let (token, _) = ask(&mut client, "DLOCK.ACQUIRE lock PX 30").grant();
    ask(&mut client, "DLOCK.ACQUIRE kept PX 60000").grant();
    // DBSIZE touches no key: it is the timer that ends the hold, not somebody's look.
    eventually("the key's end", SOON, || ask(&mut client, "DBSIZE") == 1);
    assert_eq!(ask(&mut client, format!("DLOCK.RELEASE lock {token}")), 0);
}

#[test]
fn each_shared_hold_lapses_by_itself() {
    let server = Server::start();
    let mut client = server.connect();
    let (long, _) = ask(&mut client, "DLOCK.ACQUIRE lock SHARED PX 60000").grant();
    let (short, _) = ask(&mut client, "DLOCK.ACQUIRE lock SHARED PX 30").grant();
    let mut writer = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    eventually("the shorter lease's end", SOON, || {
        count(&mut client, "DLOCK.INFO", "lock", "holders") == 1
    });
    assert_eq!(ask(&mut client, format!("DLOCK.RENEW lock {short}")), 0);
    writer.expect_silence(A_WHILE);
    assert_eq!(ask(&mut client, format!("DLOCK.RELEASE lock {long}")), 1);
    granted(&mut writer);
}

#[test]
fn an_overdue_hold_is_still_its_tokens_to_renew_and_to_release() {
    let server = Server::start();
    let mut client = server.connect();
    // One turn of the event loop: no timer can end the hold meanwhile.
    let replies = at_once(
        &mut client,
        &[
            "DLOCK.ACQUIRE lock PX 40 TOKEN mine",
            "DEBUG SLEEP 0.15",
            "DLOCK.CHECK lock mine",
            "DLOCK.CHECK lock mine",
            "DLOCK.RENEW lock mine PX 50000",
            "DLOCK.CHECK lock mine",
        ],
    );
    let (_, fence) = replies[0].grant();
    assert_eq!(replies[2], 0, "overdue");
    assert_eq!(replies[3], 0, "and CHECK has changed nothing");
    assert_eq!(replies[4], 1, "overdue, not lost");
    assert!(replies[5].as_int() > 40_000, "{replies:?}");
    let replies = at_once(
        &mut client,
        &[
            "DLOCK.RENEW lock mine PX 40",
            "DEBUG SLEEP 0.15",
            "DLOCK.RELEASE lock mine",
            "DLOCK.ACQUIRE lock TOKEN next",
        ],
    );
    assert_eq!(replies[2], 1, "overdue, and given back");
    assert!(replies[3].grant().1 > fence);
}

#[test]
fn an_overdue_hold_ends_first_thing_in_a_competing_request_and_is_then_lost() {
    let server = Server::start();
    let mut client = server.connect();
    let replies = at_once(
        &mut client,
        &[
            "DLOCK.ACQUIRE lock PX 40 TOKEN mine",
            "DEBUG SLEEP 0.15",
            "DLOCK.ACQUIRE lock PX 60000 TOKEN theirs",
            "DLOCK.RENEW lock mine",
            "DLOCK.RELEASE lock mine",
            "DLOCK.CHECK lock theirs",
        ],
    );
    assert!(replies[2].grant().1 > replies[0].grant().1);
    assert_eq!(replies[3], 0, "lost");
    assert_eq!(replies[4], 0, "lost");
    assert!(replies[5].as_int() > 50_000);
}

#[test]
fn renew_of_a_lost_hold_answers_0_and_does_not_take_the_lock_again() {
    let server = Server::start();
    let mut client = server.connect();
    let (token, _) = ask(&mut client, "DLOCK.ACQUIRE lock PX 20").grant();
    wait_until_gone(&mut client, "lock");
    assert_eq!(ask(&mut client, format!("DLOCK.RENEW lock {token}")), 0);
    assert_eq!(
        ask(&mut client, format!("DLOCK.RENEW lock {token} EX 10")),
        0
    );
    assert_eq!(ask(&mut client, "EXISTS lock"), 0);
    ask(&mut client, "DLOCK.ACQUIRE lock").grant();
}

#[test]
fn renew_starts_the_last_lease_anew_or_the_one_it_is_given() {
    let server = Server::start();
    let mut client = server.connect();
    let (token, fence) = ask(&mut client, "DLOCK.ACQUIRE lock EX 100").grant();
    let mut renew = |options: &str, from: i64, to: i64| {
        assert_eq!(
            ask(&mut client, format!("DLOCK.RENEW lock {token}{options}")),
            1
        );
        let left = ask(&mut client, format!("DLOCK.CHECK lock {token}")).as_int();
        assert!((from..=to).contains(&left), "{options:?} left {left}");
    };
    renew("", 90_001, 100_000);
    renew(" EX 200", 190_001, 200_000);
    renew("", 190_001, 200_000);
    renew(" px 50000", 40_001, 50_000);
    renew("", 40_001, 50_000);
    let info = ask(&mut client, "DLOCK.INFO lock");
    let holder = &info.field("first-holders").as_array()[0];
    assert_eq!(
        *holder.field("fence"),
        i64::try_from(fence).expect("a fence fits")
    );

    for bad in [
        "PX",
        "PX 0",
        "EX -1",
        "PX 86400001",
        "EX 5 PX 5",
        "PX 5 PX 5",
        "BLOCK 5",
        "EX five",
    ] {
        let error = ask(&mut client, format!("DLOCK.RENEW lock {token} {bad}"));
        assert!(error.error().starts_with("ERR "), "{bad}: {error:?}");
    }
    let left = ask(&mut client, format!("DLOCK.CHECK lock {token}")).as_int();
    assert!(left > 40_000, "an error changes nothing: {left}");
}

#[test]
fn a_renewed_lease_does_not_lapse_at_its_old_moment() {
    let server = Server::start();
    let mut client = server.connect();
    let replies = at_once(
        &mut client,
        &[
            "DLOCK.ACQUIRE lock PX 50 TOKEN mine",
            "DLOCK.RENEW lock mine PX 60000",
        ],
    );
    replies[0].grant();
    let mut waiter = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    waiter.expect_silence(Duration::from_millis(150));
    // And a shortened one does at its new one.
    assert_eq!(ask(&mut client, "DLOCK.RENEW lock mine PX 20"), 1);
    granted(&mut waiter);
}

#[test]
fn options_come_in_any_order_and_any_case() {
    let server = Server::start();
    let mut client = server.connect();
    let options = [
        "Shared",
        "pX 50000",
        "block 0",
        "ToKeN my-token",
        "ephemeral",
        "OWNER somebody",
    ];
    // Every option takes every place once.
    for turn in 0..options.len() {
        let mut words = options;
        words.rotate_left(turn);
        let line = format!("dlock.acquire lock {}", words.join(" "));
        let (token, _) = ask(&mut client, &line).grant();
        assert_eq!(token, "my-token", "{line}");
        let info = ask(&mut client, "dlock.info lock");
        let holder = &info.field("first-holders").as_array()[0];
        assert_eq!(*holder.field("owner"), "somebody", "{line}");
        assert_eq!(*holder.field("mode"), "shared", "{line}");
        let left = holder.field("lease-left-ms").as_int();
        assert!((40_001..=50_000).contains(&left), "{line}: {left}");
        assert!(
            !format!("{info:?}").contains("my-token"),
            "INFO never tells a token: {info:?}"
        );
        assert_eq!(ask(&mut client, "DLOCK.RELEASE lock my-token"), 1, "{line}");
    }
}

#[test]
fn an_unknown_repeated_or_contradictory_option_is_an_error_and_nothing_happens() {
    let server = Server::start();
    let mut client = server.connect();
    for bad in [
        "NOW",
        "LIMIT 3",
        "PERMITS 1",
        "EX 5 EX 5",
        "EX 5 PX 5000",
        "SHARED SHARED",
        "EPHEMERAL EPHEMERAL",
        "BLOCK 0 BLOCK 0",
        "TOKEN a TOKEN a",
        "OWNER a OWNER b",
        "EX",
        "PX",
        "BLOCK",
        "TOKEN",
        "OWNER",
        "EX 0",
        "PX 0",
        "PX -5",
        "EX 1.5",
        "PX 1e3",
        "EX 86401",
        "PX 86400001",
        "EX 9223372036854775807",
        "EX 18446744073709551617",
        "PX 99999999999999999999999",
        "BLOCK -1",
        "BLOCK x",
        "BLOCK 9223372036854775808",
    ] {
        let error = ask(&mut client, format!("DLOCK.ACQUIRE lock {bad}"));
        assert!(error.error().starts_with("ERR "), "{bad}: {error:?}");
        assert_eq!(ask(&mut client, "EXISTS lock"), 0, "{bad}");
    }
    // The option, the value and the bound.
    let error = ask(&mut client, "DLOCK.ACQUIRE lock PX 86400001");
    for part in ["PX", "86400001", "86400000"] {
        assert!(error.error().contains(part), "{part} in {error:?}");
    }
    let owner = "o".repeat(129);
    for bad in [["TOKEN", ""], ["OWNER", &owner], ["TOKEN", &owner]] {
        let error = call!(client, "DLOCK.ACQUIRE", "lock", bad[0], bad[1]);
        assert!(error.error().starts_with("ERR "), "{error:?}");
    }
    for line in [
        "DLOCK.ACQUIRE",
        "DLOCK.RELEASE lock",
        "DLOCK.RENEW lock",
        "DLOCK.CHECK lock a b",
        "DLOCK.RELEASE lock a b",
        "DLOCK.REVOKE lock",
        "DLOCK.REVOKE lock x",
        "DLOCK.REVOKE lock -1",
        "DLOCK.INFO",
        "DLOCK.INFO lock COUNT",
        "DLOCK.INFO lock COUNT 0",
        "DLOCK.INFO lock COUNT 1001",
    ] {
        let error = ask(&mut client, line);
        assert!(error.error().starts_with("ERR "), "{line}: {error:?}");
    }
    assert_eq!(ask(&mut client, "DBSIZE"), 0);
}

#[test]
fn ex_counts_seconds_px_milliseconds_and_the_settings_bound_and_default_them() {
    let server = Server::start();
    let mut client = server.connect();
    let mut lease = |options: &str, from: i64, to: i64| {
        let (token, _) = ask(&mut client, format!("DLOCK.ACQUIRE lock{options}")).grant();
        let left = ask(&mut client, format!("DLOCK.CHECK lock {token}")).as_int();
        assert!((from..=to).contains(&left), "{options:?} left {left}");
        assert_eq!(ask(&mut client, format!("DLOCK.RELEASE lock {token}")), 1);
    };
    lease(" EX 100", 90_001, 100_000);
    lease(" PX 100000", 90_001, 100_000);
    lease(" EX 86400", 86_390_001, 86_400_000);
    lease(" PX 86400000", 86_390_001, 86_400_000);
    lease("", 20_001, 30_000);

    assert_eq!(
        ask(
            &mut server.connect(),
            "CONFIG SET dsync.default-lease-ms 90000"
        ),
        "OK"
    );
    lease("", 80_001, 90_000);
    assert_eq!(
        ask(&mut server.connect(), "CONFIG SET dsync.max-lease-ms 60000"),
        "OK"
    );
    lease("", 50_001, 60_000);
    lease(" PX 60000", 50_001, 60_000);
    lease(" EX 60", 50_001, 60_000);
    for bad in ["PX 60001", "EX 61"] {
        let error = ask(&mut client, format!("DLOCK.ACQUIRE lock {bad}"));
        assert!(
            error.error().contains("60"),
            "the bound in force: {error:?}"
        );
    }
    let (token, _) = ask(&mut client, "DLOCK.ACQUIRE lock").grant();
    assert!(ask(&mut client, format!("DLOCK.RENEW lock {token} PX 60001")).is_error());
    assert_eq!(
        ask(&mut client, format!("DLOCK.RENEW lock {token} PX 60000")),
        1
    );
}

#[test]
fn check_rounds_up_and_tells_nothing_once_overdue() {
    let server = Server::start();
    let mut client = server.connect();
    // Rounded down, a lease would show less than all of it in the microsecond after its grant.
    let mut whole = false;
    for _ in 0..200 {
        let lines = [
            "DLOCK.ACQUIRE lock PX 50 TOKEN t",
            "DLOCK.CHECK lock t",
            "DLOCK.RELEASE lock t",
        ];
        let left = at_once(&mut client, &lines)[1].as_int();
        assert!((0..=50).contains(&left), "{left}");
        whole |= left == 50;
    }
    assert!(whole, "never all 50 ms in 200 grants");
    let lines = [
        "DLOCK.ACQUIRE lock PX 5 TOKEN t",
        "DEBUG SLEEP 0.02",
        "DLOCK.CHECK lock t",
    ];
    assert_eq!(at_once(&mut client, &lines)[2], 0);
    assert_eq!(ask(&mut client, "DLOCK.CHECK absent t"), 0);
}

#[test]
fn revoke_ends_the_hold_with_the_fence_and_passes_on() {
    let server = Server::start();
    let mut admin = server.connect();
    let (token, fence) = ask(&mut admin, "DLOCK.ACQUIRE lock").grant();
    let mut waiter = queued(&server, "DLOCK.ACQUIRE lock SHARED BLOCK 0");
    for wrong in [fence - 1, fence + 1, 1] {
        assert_eq!(ask(&mut admin, format!("DLOCK.REVOKE lock {wrong}")), 0);
    }
    assert_eq!(ask(&mut admin, format!("DLOCK.REVOKE lock {fence}")), 1);
    let (_, next) = granted(&mut waiter);
    assert_eq!(ask(&mut admin, format!("DLOCK.REVOKE lock {fence}")), 0);
    assert_eq!(ask(&mut admin, format!("DLOCK.RELEASE lock {token}")), 0);
    assert_eq!(ask(&mut admin, format!("DLOCK.RENEW lock {token}")), 0);
    // Of several shared holds, the one.
    let (other, _) = ask(&mut admin, "DLOCK.ACQUIRE lock SHARED").grant();
    assert_eq!(ask(&mut admin, format!("DLOCK.REVOKE lock {next}")), 1);
    assert!(ask(&mut admin, format!("DLOCK.CHECK lock {other}")).as_int() > 0);
    assert_eq!(count(&mut admin, "DLOCK.INFO", "lock", "holders"), 1);
    assert_eq!(ask(&mut admin, "DLOCK.REVOKE absent 5"), 0);
}

#[test]
fn a_key_of_another_kind_is_refused_by_every_command() {
    let server = Server::start();
    let mut client = server.connect();
    call!(client, "SET", "text", "x");
    ask(&mut client, "DSEM.ACQUIRE semaphore LIMIT 1").grant();
    ask(&mut client, "DWG.ADD group").grant();
    for key in ["text", "semaphore", "group"] {
        for command in [
            "ACQUIRE {}",
            "ACQUIRE {} BLOCK 0",
            "RELEASE {} t",
            "RENEW {} t",
            "CHECK {} t",
            "REVOKE {} 1",
            "INFO {}",
        ] {
            let line = format!("DLOCK.{}", command.replace("{}", key));
            let error = ask(&mut client, &line);
            assert!(error.error().starts_with("WRONGTYPE "), "{line}: {error:?}");
        }
    }
    assert_eq!(blocked_clients(&server), 0);
}

#[test]
fn keys_and_tokens_of_any_bytes_do() {
    let server = Server::start();
    let mut client = server.connect();
    let keys: [&[u8]; 6] = [
        b"",
        b"\0\r\n\xff",
        b"a}b",
        b"{}",
        b"{tag}rest",
        &[b'k'; 3_000],
    ];
    for key in keys {
        let token = b"\xff\0 token\r\n";
        let reply = call!(client, "DLOCK.ACQUIRE", key, "TOKEN", token);
        assert_eq!(reply.as_array()[0].as_bytes(), token);
        let mut waiter = server.connect();
        send!(waiter, "DLOCK.ACQUIRE", key, "BLOCK", 0);
        wait_for_blocked(&server, 1);
        assert_eq!(call!(client, "DLOCK.RELEASE", key, token), 1);
        let (next, _) = granted(&mut waiter);
        assert_eq!(call!(client, "DLOCK.RELEASE", key, next), 1);
        assert_eq!(call!(client, "EXISTS", key), 0);
    }
}

#[test]
fn three_hundred_readers_enter_together_and_a_try_among_them_does_not_pass_one() {
    const READERS: usize = 300;
    let server = Server::start();
    let mut holder = server.connect();
    ask(&mut holder, "DLOCK.ACQUIRE lock TOKEN held").grant();
    let mut readers: Vec<_> = (0..READERS).map(|_| server.connect()).collect();
    for reader in &mut readers {
        tell(reader, "DLOCK.ACQUIRE lock SHARED PX 60000 BLOCK 0");
    }
    wait_for_blocked(&server, READERS as u64);
    // So many are answered in slices; between two of them it is nobody else's turn.
    let replies = at_once(
        &mut holder,
        &["DLOCK.RELEASE lock held", "DLOCK.ACQUIRE lock SHARED"],
    );
    assert_eq!(replies[0], 1);
    assert!(replies[1].is_nil(), "{replies:?}");
    for reader in &mut readers {
        granted(reader);
    }
    assert_eq!(
        count(&mut holder, "DLOCK.INFO", "lock", "holders"),
        READERS as i64
    );
    ask(&mut holder, "DLOCK.ACQUIRE lock SHARED").grant();
}

#[test]
fn a_pipeline_behind_a_request_that_waits_goes_on_when_it_is_granted() {
    let server = Server::start();
    let mut holder = server.connect();
    ask(&mut holder, "DLOCK.ACQUIRE lock TOKEN held").grant();
    let mut client = server.connect();
    client.send_raw(
        b"DLOCK.ACQUIRE lock TOKEN mine BLOCK 0\r\nPING inside\r\nDLOCK.RELEASE lock mine\r\n",
    );
    wait_for_blocked(&server, 1);
    client.expect_silence(A_WHILE);
    assert_eq!(ask(&mut holder, "DLOCK.RELEASE lock held"), 1);
    granted(&mut client);
    assert_eq!(reply(&mut client), "inside");
    assert_eq!(reply(&mut client), 1);
    assert_eq!(ask(&mut holder, "EXISTS lock"), 0);
}

#[test]
fn the_longest_wait_and_resp3_do_as_well() {
    let server = Server::start();
    let mut holder = server.connect_resp3();
    let (token, _) = ask(&mut holder, "DLOCK.ACQUIRE lock").grant();
    assert!(ask(&mut holder, "DLOCK.ACQUIRE lock").is_nil());
    let mut waiter = server.connect_resp3();
    queue(
        &server,
        &mut waiter,
        "DLOCK.ACQUIRE lock BLOCK 9007199254740991",
    );
    let mut hasty = server.connect_resp3();
    tell(&mut hasty, "DLOCK.ACQUIRE lock BLOCK 20");
    assert!(reply(&mut hasty).is_nil());
    waiter.expect_silence(A_WHILE);
    assert_eq!(ask(&mut holder, format!("DLOCK.RELEASE lock {token}")), 1);
    granted(&mut waiter);
    let info = ask(&mut holder, "DLOCK.INFO lock");
    assert!(matches!(info, Reply::Map(_)), "{info:?}");
}
