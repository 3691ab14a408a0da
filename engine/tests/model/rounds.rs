//! Rounds of a wait group: DONE, EXPECT, WAIT, and members that are still queued.

use crate::fixture::{KEY, MS, OTHER, member, word, world};
use crate::kept::KEEP_MS;
use crate::steps::{Block, Step};
use crate::world::World;
use dsync_engine::Family;
use dsync_engine::answer::Answer;

#[test]
fn done_twice_counts_once() {
    let mut world = world();
    world.step(&Step::Expect(KEY, 2));
    world.ask(member(0));
    world.ask(member(1));
    world.step(&Step::Done(KEY, vec![0, 0]));
    world.step(&Step::Done(KEY, vec![0]));
    let tally = world.model.content(KEY).expect("a group");
    assert_eq!((tally.done, tally.owed()), (1, 1));
    assert_eq!(
        word(&world.step(&Step::Wait(KEY, None, 5)).expect("a try")),
        "not granted"
    );
    world.step(&Step::Done(KEY, vec![1, 0]));
    let answer = world.step(&Step::Wait(KEY, None, 5));
    assert_eq!(answer, Some(Answer::Finished { done: 2, lapsed: 0 }));
}

/// WAIT came while the last ADD was still queued, and answered that the round had finished.
#[test]
fn round_goes_on_while_member_is_queued() {
    let mut world = world();
    world.ask(member(0).limit(1));
    world.ask(member(1).block_ms(50).lease(30_000));
    world.step(&Step::Wait(KEY, Some(Block::Forever), 5));
    world.step(&Step::Done(KEY, vec![0]));
    assert_eq!(world.heard(), [(1, "granted")]);
    // Without an expected total, a lost member leaves nothing owed.
    assert_eq!(world.after_ms(30_000), [(5, "finished")]);
    // The tally is kept, and the next ADD opens the next round.
    let answer = world.step(&Step::Wait(KEY, None, 5));
    assert_eq!(answer, Some(Answer::Finished { done: 1, lapsed: 1 }));
    world.ask(member(2));
    assert_eq!(
        word(&world.step(&Step::Wait(KEY, None, 5)).expect("a try")),
        "not granted"
    );
    world.step(&Step::Done(KEY, vec![2]));
    let answer = world.step(&Step::Wait(KEY, None, 5));
    assert_eq!(
        answer,
        Some(Answer::Finished { done: 1, lapsed: 0 }),
        "counted anew"
    );
}

/// The last queued ADD gave up after the last member had ended, and WAIT was never answered.
#[test]
fn round_is_over_when_last_queued_member_leaves() {
    for how in ["runs out", "closes", "is unblocked"] {
        let mut world = world();
        world.ask(member(0).limit(1));
        world.step(&Step::Wait(KEY, Some(Block::Forever), 5));
        world.ask(member(1).block_ms(50));
        world.step(&Step::MayWrite(false));
        match how {
            "runs out" => assert_eq!(world.after_ms(50), [(1, "not granted")]),
            "closes" => drop(world.step(&Step::Disconnect(1))),
            _ => drop(world.step(&Step::Unblock(1))),
        }
        world.step(&Step::MayWrite(true));
        world.step(&Step::Done(KEY, vec![0]));
        assert_eq!(
            world.told,
            [(5, Answer::Finished { done: 1, lapsed: 0 })],
            "{how}"
        );
    }
}

#[test]
fn expect_at_or_below_done_finishes_round() {
    let mut world = world();
    world.step(&Step::Expect(KEY, 3));
    world.ask(member(0));
    world.step(&Step::Wait(KEY, Some(Block::Forever), 5));
    world.step(&Step::Done(KEY, vec![0]));
    assert!(world.heard().is_empty());
    world.ask(member(1));
    world.step(&Step::Expect(KEY, 1));
    assert!(world.heard().is_empty(), "one lives");
    world.step(&Step::Release(KEY, Family::Group, 1));
    assert_eq!(world.told, [(5, Answer::Finished { done: 1, lapsed: 0 })]);
    assert_eq!(
        world.step(&Step::Wait(OTHER, Some(Block::Forever), 6)),
        Some(Answer::Finished { done: 0, lapsed: 0 }),
        "a group that does not exist"
    );
}

const OLD_TALLY: Answer = Answer::Finished { done: 1, lapsed: 1 };

/// A finished round with one member done and one lost, and token 1 granted in a kept place that nobody asks for.
fn with_dead_member() -> World {
    let mut world = world();
    world.steps(&[Step::Expect(KEY, 1), Step::Acquire(member(0))]);
    world.steps(&[Step::Acquire(member(6)), Step::Done(KEY, vec![0])]);
    world.step(&Step::Revoke(KEY, Family::Group, 0));
    world.step(&Step::Pause(KEY, Family::Group, 200));
    world.ask(member(1).keep(KEEP_MS));
    assert_eq!(world.after_ms(200), []);
    assert_eq!(world.holders(KEY), 1, "the place has its turn");
    world
}

/// An ADD was queued in a PAUSE and its client died. Its turn began a new round, and the tally of the finished one was
/// wiped.
#[test]
fn finished_round_comes_back_after_members_that_nobody_heard_of() {
    let nobody_asks = [Step::Pass { us: 15_000 * MS }, Step::Tick];
    let another = [Step::Acquire(member(2).keep(KEEP_MS))];
    let two_more = [
        Step::Pause(KEY, Family::Group, 200),
        Step::Acquire(member(2).keep(KEEP_MS)),
        Step::Acquire(member(3).keep(KEEP_MS)),
        Step::Pass { us: 6_000 * MS },
        Step::Tick,
    ];
    let one_gone = [
        Step::Acquire(member(2).limit(1).block()),
        Step::Pass { us: 5_000 * MS },
        Step::Tick,
        Step::FindGone {
            reported_first: false,
        },
        Step::Tick,
    ];
    let [released, renewed, asked, expected, revoked, finished] = [
        Step::Release(KEY, Family::Group, 1),
        Step::Renew(KEY, Family::Group, 1, None),
        Step::Acquire(member(1).keep(KEEP_MS)),
        Step::Expect(KEY, 1),
        Step::Revoke(KEY, Family::Group, 0),
        Step::Done(KEY, vec![1]),
    ]
    .map(|step| [step]);
    let limited = [Step::Acquire(member(4).limit(1))];
    let restarted = |as_changes| [Step::Restart { as_changes, ms: 3 }];
    let failed_over = [Step::Failover { ms: 3 }];
    let demoted = [Step::Demote { ms: 3 }];
    let released_beside = [&two_more[..], &[Step::Release(KEY, Family::Group, 2)]].concat();
    let back: [&[Step]; 8] = [
        &[],
        &two_more,
        &one_gone,
        &limited,
        &restarted(false),
        &restarted(true),
        &failed_over,
        &demoted,
    ];
    let gone: [&[Step]; 8] = [
        &another,
        &released,
        &renewed,
        &asked,
        &expected,
        &revoked,
        &finished,
        &released_beside,
    ];
    let cases = back.map(|since| (since, true));
    for (since, comes_back) in cases.into_iter().chain(gone.map(|since| (since, false))) {
        let mut world = with_dead_member();
        world.steps(since);
        world.steps(&nobody_asks);
        let answer = world.step(&Step::Wait(KEY, None, 5));
        assert_eq!(
            answer == Some(OLD_TALLY),
            comes_back,
            "{since:?}: {answer:?}"
        );
    }
}

#[test]
fn wait_during_unheard_member_is_answered_with_the_old_tally() {
    let mut world = with_dead_member();
    let waits = world.step(&Step::Wait(KEY, Some(Block::Forever), 5));
    assert_eq!(waits, None, "a member lives");
    world.after_ms(u64::from(KEEP_MS) + 1);
    assert_eq!(world.told, [(5, OLD_TALLY)]);
}

/// The time of a tally goes on while a dead client has its turn.
#[test]
fn finished_round_that_comes_back_too_late_is_forgotten() {
    let settings = dsync_engine::Settings {
        group_keep_ms: 300,
        ..dsync_engine::Settings::default()
    };
    let mut world = World::new(settings);
    world.ask(member(0));
    world.step(&Step::Done(KEY, vec![0]));
    world.step(&Step::Pause(KEY, Family::Group, 200));
    world.ask(member(1).keep(KEEP_MS));
    world.after_ms(200);
    world.after_ms(u64::from(KEEP_MS) + 1);
    assert!(world.primary.state(KEY).is_none());
}
