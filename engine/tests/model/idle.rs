//! How long a key is kept that nobody uses. The tables give the expected results, independently of the model.

use crate::bounds::{around, later};
use crate::exhaustive::{KEY, MS, settings};
use crate::steps::{Block, Step, ask};
use crate::world::World;
use dsync_engine::Settings;
use dsync_engine::answer::Answer;
use dsync_engine::types::Claim;

#[test]
fn group_is_kept_to_its_millisecond() {
    // How the group came to its state, and how long it is kept then.
    let finished: &[Step] = &[
        Step::Acquire(ask(KEY, Claim::Member, 0)),
        Step::Done(KEY, vec![0]),
    ];
    let idle: &[Step] = &[Step::Expect(KEY, 1)];
    let idle_after_a_member: &[Step] = &[
        Step::Expect(KEY, 2),
        Step::Acquire(ask(KEY, Claim::Member, 0)),
        Step::Pass { us: 7 * MS },
        Step::Done(KEY, vec![0]),
    ];
    for (label, before, kept_ms) in [
        ("finished", finished, 6),
        ("idle", idle, 40),
        ("idle again", idle_after_a_member, 40),
    ] {
        for (at_us, when) in around(kept_ms * MS) {
            for asked in [false, true] {
                let mut world = World::new(settings());
                world.steps(before);
                world.step(&Step::Pass { us: at_us });
                // A WAIT that comes before the timer must find the group gone too.
                world.step(&if asked {
                    Step::Wait(KEY, None, 1)
                } else {
                    Step::Tick
                });
                let gone = world.primary.state(KEY).is_none();
                assert_eq!(
                    gone,
                    at_us >= kept_ms * MS,
                    "{label}, {when}, asked: {asked}"
                );
            }
        }
    }
}

#[test]
fn group_with_watcher_is_not_idle() {
    for (at_us, when) in around(40 * MS) {
        let mut world = World::new(Settings {
            rejoin_ms: 0,
            ..settings()
        });
        world.step(&Step::Expect(KEY, 1));
        world.step(&Step::Pass { us: 10 * MS });
        world.step(&Step::Wait(KEY, Some(Block::Ms(100)), 1));
        world.steps(&later(100));
        assert_eq!(world.told, [(1, Answer::NotGranted)]);
        world.steps(&[Step::Pass { us: at_us }, Step::Tick]);
        let gone = world.primary.state(KEY).is_none();
        assert_eq!(
            gone,
            at_us >= 40 * MS,
            "{when} of the last wait's end plus 40 ms"
        );
    }
}

/// Until the server could write again, the request that had left counted as one that waits. A round that was over went
/// on with the next ADD.
#[test]
fn group_is_idle_while_nothing_can_be_written() {
    let wait = Step::Wait(KEY, Some(Block::Ms(10)), 1);
    let leaves: [&[Step]; 2] = [
        &[Step::Tick],
        &[Step::Disconnect(1), Step::Wait(KEY, None, 2)],
    ];
    for leaves in leaves {
        for (at_us, when) in around(40 * MS) {
            let mut world = World::new(settings());
            world.steps(&[Step::Expect(KEY, 1), wait.clone(), Step::MayWrite(false)]);
            world.step(&Step::Pass { us: 10 * MS });
            world.steps(leaves);
            world.steps(&[Step::MayWrite(true), Step::Pass { us: at_us }]);
            world.step(&Step::Wait(KEY, None, 1));
            let gone = world.primary.state(KEY).is_none();
            assert_eq!(gone, at_us >= 40 * MS, "{leaves:?}, {when}");
        }
    }
}

/// A vacant place is no waiter, but it kept the key.
#[test]
fn vacant_place_keeps_no_group() {
    for (at_us, when) in around(40 * MS) {
        for end in [Step::Tick, Step::Wait(KEY, None, 2)] {
            let mut world = World::new(Settings {
                rejoin_ms: 100,
                ..settings()
            });
            world.step(&Step::Expect(KEY, 2));
            world.step(&Step::Acquire(ask(KEY, Claim::Member, 0).limit(1)));
            world.step(&Step::Acquire(ask(KEY, Claim::Member, 1).block()));
            world.steps(&[Step::Disconnect(1), Step::Done(KEY, vec![0])]);
            world.steps(&[Step::Pass { us: at_us }, end]);
            let gone = world.primary.state(KEY).is_none();
            assert_eq!(gone, at_us >= 40 * MS, "{when}");
        }
    }
}
