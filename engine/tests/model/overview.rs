//! What operators see of all keys at once: who waits where and since when, and what was counted.

use crate::ask::ask;
use crate::fixture::*;
use crate::model::Name;
use crate::server::key_bytes;
use crate::steps::{Block, Step};
use crate::world::World;
use dsync_engine::Family;
use dsync_engine::change::End;
use dsync_engine::stats::Counters;
use dsync_engine::types::{Claim, UnixMs};

const THIRD: Name = (1, 2);

fn counters(world: &World, family: Family) -> &Counters {
    world.primary.engine.stats().counters(family)
}

#[test]
fn contended_keys_come_with_the_longest_wait_first() {
    let mut world = world();
    for name in [KEY, OTHER, THIRD] {
        world.ask(ask(name, Claim::Exclusive, 1));
    }
    world.ask(ask(OTHER, Claim::Exclusive, 2).block());
    world.after_ms(5);
    world.ask(exclusive(3).block());
    world.ask(exclusive(4).keep(60_000));
    world.after_ms(7);
    let seen = |world: &World, count| {
        let keys = world.primary.engine.contended(count, world.now);
        let row = |key: &dsync_engine::info::Contended<'_>| {
            assert_eq!((key.db.0, key.family), (0, Family::Lock));
            (key.name.to_vec(), key.waiters, key.longest_ms)
        };
        keys.iter().map(row).collect::<Vec<_>>()
    };
    let rows = [(key_bytes(OTHER), 1, 12), (key_bytes(KEY), 2, 7)];
    assert_eq!(seen(&world, 10), rows);
    assert_eq!(seen(&world, 1), rows[..1]);
    let engine = &world.primary.engine;
    assert_eq!(engine.waiting(Family::Lock), 3);
    assert_eq!(engine.waiting(Family::Semaphore), 0);
    assert_eq!(engine.longest_wait_ms(world.now), 12);
    world.step(&Step::Disconnect(2));
    assert_eq!(seen(&world, 10), rows[1..]);
    assert_eq!(world.primary.engine.longest_wait_ms(world.now), 7);
}

#[test]
fn nobody_waits_anywhere_at_first() {
    let world = world();
    assert!(world.primary.engine.contended(10, world.now).is_empty());
    assert_eq!(world.primary.engine.longest_wait_ms(world.now), 0);
}

#[test]
fn each_way_a_hold_ends_is_counted_by_itself() {
    let mut world = world();
    for token in 1..=5 {
        world.ask(permits(token, 1).limit(10).lease(1_000));
    }
    world.ask(permits(6, 1).limit(10).ephemeral());
    world.step(&Step::Release(KEY, Family::Semaphore, 1));
    world.step(&Step::Revoke(KEY, Family::Semaphore, 0));
    world.step(&Step::Disconnect(6));
    world.step(&Step::Renew(KEY, Family::Semaphore, 3, None));
    world.after_ms(1_500);
    let told = counters(&world, Family::Semaphore);
    assert_eq!(told.granted_at_once, 6);
    assert_eq!((told.released, told.revoked, told.disconnected), (1, 1, 1));
    assert_eq!((told.lapsed, told.lapsed_unrenewed), (3, 2));
    assert_eq!((told.granted_after_wait, told.undelivered), (0, 0));
    let others = counters(&world, Family::Lock);
    assert_eq!((others.granted_at_once, others.released), (0, 0));
}

#[test]
fn each_way_a_wait_ends_is_counted_by_itself() {
    let mut world = world();
    world.ask(exclusive(1));
    world.ask(exclusive(2).block_ms(50));
    world.ask(exclusive(3).keep(100));
    world.ask(exclusive(4).block());
    world.ask(exclusive(5).block());
    world.step(&Step::Disconnect(4));
    world.after_ms(200);
    world.step(&Step::Release(KEY, Family::Lock, 1));
    let told = counters(&world, Family::Lock);
    assert_eq!((told.granted_at_once, told.granted_after_wait), (1, 1));
    assert_eq!((told.wait_timeouts, told.wait_disconnects), (2, 1));
    let times = world.primary.engine.stats().wait_times;
    assert_eq!((times.classes[3], times.total_ms), (1, 200));
}

/// A helper that asks again, in slices of BLOCK, waits on: each slice was counted as a wait that had run out.
#[test]
fn wait_with_a_kept_place_ends_once_however_often_its_client_asks() {
    let mut world = world();
    let asks = || exclusive(2).keep(1_000);
    let ends = |world: &World| {
        let told = counters(world, Family::Lock);
        (told.wait_timeouts, told.wait_disconnects)
    };
    world.ask(exclusive(1));
    for _ in 0..3 {
        world.ask(asks());
        world.ask(exclusive(2).block_ms(50));
        assert_eq!(world.after_ms(100), [(2, "not granted")]);
    }
    world.ask(exclusive(2).block());
    world.step(&Step::Disconnect(2));
    assert_eq!(ends(&world), (0, 0), "its place is kept");
    world.after_ms(1_000);
    assert_eq!(ends(&world), (1, 0), "nobody has asked for it");

    world.ask(exclusive(2).keep(1_000).conn(3));
    world.ask(exclusive(2).block().conn(3));
    world.after_ms(500);
    world.step(&Step::Release(KEY, Family::Lock, 1));
    let told = counters(&world, Family::Lock);
    assert_eq!((told.granted_after_wait, ends(&world)), (1, (1, 0)));
    assert_eq!(world.primary.engine.stats().wait_times.total_ms, 500);
}

#[test]
fn lanes_are_counted_while_somebody_waits_in_them() {
    let mut world = world();
    let lanes = |world: &World| world.primary.engine.lanes();
    world.ask(permits(1, 1).limit(1));
    for lane in 1..=3 {
        world.ask(permits(lane + 1, 1).limit(1).lane(lane).block());
    }
    assert_eq!(lanes(&world), 3);
    world.step(&Step::Disconnect(2));
    world.tick();
    assert_eq!(lanes(&world), 2);
}

#[test]
fn moment_of_a_key_is_told_as_what_is_left_until_it() {
    let mut world = world();
    world.ask(exclusive(1));
    let UnixMs(now) = world.now.unix();
    let left = world.primary.look(KEY, world.now, |look| {
        let info = look.info(Family::Lock, 1).expect("a lock");
        let info = info.expect("it is held");
        [None, Some(now), Some(now + 7)].map(|until| info.left_ms(until.map(UnixMs)))
    });
    assert_eq!(left, [0, 0, 7]);
}

#[test]
fn watchers_are_listed_behind_those_in_line() {
    let mut world = world();
    world.ask(member(0).limit(1));
    world.ask(member(1).block());
    world.step(&Step::Wait(KEY, Some(Block::Forever), 2));
    world.after_ms(5);
    let clients = [1, 2].map(|conn| world.client(conn));
    let (listed, count) = world.primary.look(KEY, world.now, |look| {
        let info = look.info(Family::Group, 10).expect("a group");
        let waiters = info.expect("it has a member").waiters;
        let listed = waiters.first.iter();
        let listed = listed.map(|waiter| (waiter.client.0, waiter.age_ms));
        (listed.collect::<Vec<_>>(), waiters.count)
    });
    assert_eq!(listed, clients.map(|client| (client, 5)));
    assert_eq!(count, 2);
}

#[test]
fn ends_of_runs_and_changes_of_limits_are_counted() {
    let mut world = world();
    let run = |token| ask(KEY, Claim::Run, token);
    world.ask(run(1));
    world.step(&Step::Fail(KEY, 1, "no disk", 0));
    world.ask(run(2));
    world.step(&Step::Complete(KEY, 2, None, None));
    assert_eq!(counters(&world, Family::Once).released, 2);
    let permit = |token, limit| ask(OTHER, Claim::Permits(1), token).limit(limit);
    world.ask(permit(3, 3));
    let before = counters(&world, Family::Semaphore).limit_changes;
    world.ask(permit(4, 4));
    world.ask(permit(5, 4));
    world.ask(permit(6, 5));
    let changes = counters(&world, Family::Semaphore).limit_changes;
    assert_eq!(changes, before + 2);
}

#[test]
fn ends_have_the_words_of_the_event_log() {
    let ends = [
        (End::Released, "released"),
        (End::Done, "done"),
        (End::Lapsed, "lapsed"),
        (End::Revoked, "revoked"),
        (End::Disconnected, "disconnected"),
        (End::Undelivered, "undelivered"),
        (End::Rested, "rested"),
    ];
    for (end, word) in ends {
        assert_eq!(end.word(), word);
    }
}
