//! Locks: one queue, served in the order of arrival; exclusive requests enter alone, consecutive shared ones together,
//! and no try passes a request that waits.

use crate::support::steps::*;
use crate::support::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn lock_serves_fifty_waiters_in_order_one_at_a_time() {
    const CLIENTS: usize = 50;
    let server = Server::start();
    let mut holder = server.connect();
    let (token, first) = holder.ask("DLOCK.ACQUIRE lock").grant();
    let mut queue_of = Vec::new();
    for n in 1..=CLIENTS {
        let mut client = server.connect();
        client.begin("DLOCK.ACQUIRE lock BLOCK 0");
        eventually("one more in the queue", SOON, || {
            lock_waiters(&mut holder, "lock") == n as i64
        });
        queue_of.push(client);
    }
    let inside = AtomicU32::new(0);
    let served = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for (n, mut client) in queue_of.into_iter().enumerate() {
            let (inside, served) = (&inside, &served);
            scope.spawn(move || {
                let (token, fence) = client.granted();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two inside");
                served.lock().expect("no holder panicked").push((n, fence));
                thread::yield_now();
                assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1, "two inside");
                assert_eq!(client.ask(format!("DLOCK.RELEASE lock {token}")), 1);
            });
        }
        assert_eq!(holder.ask(format!("DLOCK.RELEASE lock {token}")), 1);
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
    assert_eq!(holder.ask("EXISTS lock"), 0);
}

#[test]
fn lock_is_held_by_one_of_fifty_competing_clients_at_a_time() {
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
                    let (token, fence) = client.ask("DLOCK.ACQUIRE lock BLOCK 0").grant();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two inside");
                    let before = last_fence.swap(fence, Ordering::SeqCst);
                    assert!(fence > before, "fences rise: {before}, then {fence}");
                    inside.fetch_sub(1, Ordering::SeqCst);
                    assert_eq!(client.ask(format!("DLOCK.RELEASE lock {token}")), 1);
                }
            });
        }
    });
    assert_eq!(server.connect().ask("EXISTS lock"), 0);
    server.wait_for_blocked(0);
}

#[test]
fn consecutive_shared_requests_are_granted_together() {
    let server = Server::start();
    let mut admin = server.connect();
    let (one, first) = admin.ask("DLOCK.ACQUIRE lock SHARED").grant();
    let (two, second) = admin.ask("DLOCK.ACQUIRE lock SHARED").grant();
    assert!(second > first);
    assert_eq!(lock_holders(&mut admin, "lock"), 2);

    let mut writer = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    let mut readers: Vec<_> = (0..5)
        .map(|_| server.waiting("DLOCK.ACQUIRE lock SHARED BLOCK 0"))
        .collect();
    let mut last_writer = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");

    assert_eq!(admin.ask(format!("DLOCK.RELEASE lock {one}")), 1);
    writer.expect_silence(A_WHILE);
    assert_eq!(admin.ask(format!("DLOCK.RELEASE lock {two}")), 1);
    let (writing, _) = writer.granted();
    readers[0].expect_silence(A_WHILE);
    assert_eq!(admin.ask(format!("DLOCK.RELEASE lock {writing}")), 1);
    let reading: Vec<_> = readers.iter_mut().map(Client::granted).collect();
    assert!(
        reading.is_sorted_by(|a, b| a.1 < b.1),
        "in the order of their coming: {reading:?}"
    );
    assert_eq!(lock_holders(&mut admin, "lock"), 5);
    for (token, _) in &reading[1..] {
        assert_eq!(admin.ask(format!("DLOCK.RELEASE lock {token}")), 1);
    }
    last_writer.expect_silence(A_WHILE);
    assert_eq!(admin.ask(format!("DLOCK.RELEASE lock {}", reading[0].0)), 1);
    last_writer.granted();
}

#[test]
fn exclusive_request_is_not_starved_by_later_shared_ones() {
    let server = Server::start();
    let mut admin = server.connect();
    let (first, _) = admin.ask("DLOCK.ACQUIRE lock SHARED").grant();
    let mut writer = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    // These would fit beside the shared hold, but would pass the exclusive request that waits.
    let mut late: Vec<_> = (0..3)
        .map(|_| server.waiting("DLOCK.ACQUIRE lock SHARED BLOCK 0"))
        .collect();
    late[2].expect_silence(A_WHILE);
    assert_eq!(lock_holders(&mut admin, "lock"), 1);
    assert_eq!(admin.ask(format!("DLOCK.RELEASE lock {first}")), 1);
    let (writing, fence) = writer.granted();
    late[0].expect_silence(A_WHILE);
    assert_eq!(admin.ask(format!("DLOCK.RELEASE lock {writing}")), 1);
    for reader in &mut late {
        assert!(reader.granted().1 > fence);
    }
}

#[test]
fn try_passes_none_of_300_readers_that_are_granted_in_slices() {
    const READERS: usize = 300;
    let server = Server::start();
    let mut holder = server.connect();
    holder.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    let mut readers: Vec<_> = (0..READERS).map(|_| server.connect()).collect();
    for reader in &mut readers {
        reader.begin("DLOCK.ACQUIRE lock SHARED PX 60000 BLOCK 0");
    }
    server.wait_for_blocked(READERS as u64);
    // The server answers so many waiters in slices. A try that comes between two slices must fail.
    let replies = holder.ask_all(["DLOCK.RELEASE lock held", "DLOCK.ACQUIRE lock SHARED"]);
    assert_eq!(replies[0], 1);
    assert!(replies[1].is_nil(), "{replies:?}");
    for reader in &mut readers {
        reader.granted();
    }
    assert_eq!(lock_holders(&mut holder, "lock"), READERS as i64);
    holder.ask("DLOCK.ACQUIRE lock SHARED").grant();
}

#[test]
fn try_fails_while_anyone_waits() {
    let server = Server::start();
    let mut admin = server.connect();
    let (_, _) = admin.ask("DLOCK.ACQUIRE lock SHARED").grant();
    let writer = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    assert!(
        admin.ask("DLOCK.ACQUIRE lock SHARED").is_nil(),
        "a grant would pass the exclusive request"
    );
    writer.close();
    server.wait_for_blocked(0);
    admin.ask("DLOCK.ACQUIRE lock SHARED").grant();
}

#[test]
fn try_in_the_turn_of_a_release_passes_no_waiter() {
    let server = Server::start();
    let mut holder = server.connect();
    holder.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    let mut waiter = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    let replies = holder.ask_all(["DLOCK.RELEASE lock held", "DLOCK.ACQUIRE lock"]);
    assert_eq!(replies[0], 1);
    assert!(replies[1].is_nil(), "{replies:?}");
    waiter.granted();
    // Neither does a request with BLOCK.
    let mut third = server.connect();
    let (token, _) = {
        waiter.ask("DLOCK.ACQUIRE other TOKEN held").grant();
        let queued = server.waiting("DLOCK.ACQUIRE other BLOCK 0");
        waiter.ask_all(["DLOCK.RELEASE other held"]);
        third.begin("DLOCK.ACQUIRE other BLOCK 0");
        let mut queued = queued;
        queued.granted()
    };
    third.expect_silence(A_WHILE);
    assert_eq!(waiter.ask(format!("DLOCK.RELEASE other {token}")), 1);
    third.granted();
}

#[test]
fn wait_that_times_out_answers_nil_and_leaves_the_queue() {
    let server = Server::start();
    let mut holder = server.connect();
    let (token, _) = holder.ask("DLOCK.ACQUIRE lock").grant();
    let mut hasty = server.connect();
    let asked = Instant::now();
    hasty.begin("DLOCK.ACQUIRE lock BLOCK 80");
    let mut patient = server.connect();
    patient.begin("DLOCK.ACQUIRE lock BLOCK 60000");
    assert!(hasty.reply().is_nil());
    assert!(
        asked.elapsed() >= Duration::from_millis(80),
        "{:?}",
        asked.elapsed()
    );
    server.wait_for_blocked(1);
    assert_eq!(lock_waiters(&mut holder, "lock"), 1);
    assert_eq!(holder.ask(format!("DLOCK.RELEASE lock {token}")), 1);
    patient.granted();
    expect_no_more(&mut hasty);
}
