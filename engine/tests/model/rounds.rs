//! Rounds of a wait group: DONE, EXPECT, WAIT, and members that are still queued.

use crate::fixture::{KEY, OTHER, member, word, world};
use crate::steps::{Block, Step};
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
    assert_eq!(answer, Some(Answer::Finished { done: 2, lost: 0 }));
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
    assert_eq!(answer, Some(Answer::Finished { done: 1, lost: 1 }));
    world.ask(member(2));
    assert_eq!(
        word(&world.step(&Step::Wait(KEY, None, 5)).expect("a try")),
        "not granted"
    );
    world.step(&Step::Done(KEY, vec![2]));
    let answer = world.step(&Step::Wait(KEY, None, 5));
    assert_eq!(
        answer,
        Some(Answer::Finished { done: 1, lost: 0 }),
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
            [(5, Answer::Finished { done: 1, lost: 0 })],
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
    assert_eq!(world.told, [(5, Answer::Finished { done: 1, lost: 0 })]);
    assert_eq!(
        world.step(&Step::Wait(OTHER, Some(Block::Forever), 6)),
        Some(Answer::Finished { done: 0, lost: 0 }),
        "a group that does not exist"
    );
}
