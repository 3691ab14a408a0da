//! Watchers whose answer is decided but not sent.

use std::num::NonZeroU64;

use crate::answer::Answer;
use crate::queue::place::{Parked, Watcher};
use crate::queue::queues::Queues;
use crate::types::{ClientId, Db, Family, Fence, MonoUs, Rank, WaiterId};

fn watcher(number: u64) -> Watcher {
    Watcher {
        parked: Parked {
            waiter: WaiterId(NonZeroU64::new(number).expect("not 0")),
            client: ClientId(number),
            ephemeral: false,
            may_return: false,
            until: MonoUs::NEVER,
        },
        since: MonoUs(1),
    }
}

/// A visit sends a bounded number of answers, so a queue may have watchers that are answered and not told yet. Until the
/// last of them has left, the key is waited for, and the queue stays.
#[test]
fn queue_is_waited_in_until_its_last_answered_watcher_has_left() {
    for size in 1..4 {
        let mut queues = Queues::default();
        let id = queues.find_or_make(Db(0), b"jobs");
        for number in 1..=size {
            queues.watch(id, Rank(Fence(number)), watcher(number), None);
        }
        let answer = Answer::Finished { done: 1, lapsed: 0 };
        queues.answer_watchers(id, answer);
        for number in 1..=size {
            let queue = queues.get(id).expect("the queue of those that wait");
            let case = format!("{size} watchers, {} have left", number - 1);
            assert!(queue.has_waiters() && queue.is_waited_in(), "{case}");
            assert!(!queue.is_empty(), "{case}");
            assert_eq!(queue.family(), Some(Family::Group), "{case}");
            queues.drop_if_empty(id);
            assert!(queues.leave(id, Rank(Fence(number))).is_some(), "{case}");
        }
        let queue = queues.get(id).expect("a queue that was not dropped yet");
        assert!(!queue.has_waiters() && queue.is_empty(), "{size} watchers");
    }
}
