//! Queues and their places, without an engine.

use std::num::NonZeroU64;

use crate::change::KeptPlace;
use crate::queue::place::{Parked, Place, Presence};
use crate::queue::queues::Queues;
use crate::short_bytes::LaneName;
use crate::types::{
    Claim, ClientId, Db, Family, Fence, InUse, LeaseMs, LeaseUs, MonoUs, QueueId, Rank, Token,
    UnixMs, WaiterId,
};

fn rank(number: u64) -> Rank {
    Rank(Fence(number))
}

/// Returns a place of the token with this number, which is kept until the moment with this number.
fn place(number: u64, claim: Claim, lane: &str) -> Place {
    let kept = KeptPlace {
        rank: rank(number),
        token: Token::parse(format!("token {number}").as_bytes()).expect("legal"),
        claim,
        lease: LeaseMs(1_000),
        min_hold: None,
        keep_ms: 1_000,
        bound: None,
        owner: None,
        since: UnixMs(1),
        lane: LaneName::from(lane.as_bytes()),
    };
    Place::kept(kept, MonoUs(1), LeaseUs(number))
}

fn queues_of(names: &[&str]) -> (Queues, Vec<QueueId>) {
    let mut queues = Queues::default();
    let id = |name: &&str| queues.find_or_make(Db(0), name.as_bytes());
    let ids = names.iter().map(id).collect();
    (queues, ids)
}

#[test]
fn queue_that_is_due_keeps_its_turn() {
    let (mut queues, ids) = queues_of(&["first", "second"]);
    queues.set_due(QueueId(99));
    assert_eq!(queues.first_due(), None, "there is none");
    for id in [ids[1], ids[0], ids[1]] {
        queues.set_due(id);
    }
    for id in [ids[1], ids[0]] {
        assert_eq!(queues.first_due(), Some(id));
        queues.mark_visited(id);
    }
}

/// A server that drops all queues goes on with its connections, whose requests have numbers.
#[test]
fn number_of_a_request_comes_once() {
    let (mut queues, _) = queues_of(&["key"]);
    let before = queues.next_waiter();
    drop(queues.clear());
    assert!(queues.next_waiter() > before);
}

#[test]
fn server_that_no_longer_decides_has_no_moments_of_kept_places() {
    let (mut queues, ids) = queues_of(&["key"]);
    queues.join(ids[0], place(3, Claim::Exclusive, ""));
    assert!(queues.first_keep().is_some());
    assert_eq!(queues.take_keeps().len(), 1);
    assert_eq!(queues.first_keep(), None);
    assert!(
        queues.is_kept_until(LeaseUs(3), ids[0], rank(3)),
        "it stays"
    );
}

/// Returns a place that lasts as long as its client waits.
fn waits(number: u64, claim: Claim, lane: &str, may_return: bool) -> Place {
    let place = place(number, claim, lane);
    Place {
        standing: place.standing.with(None, None),
        presence: Presence::Parked(Parked {
            waiter: WaiterId(NonZeroU64::MIN),
            client: ClientId(1),
            ephemeral: false,
            may_return,
            until: MonoUs::NEVER,
        }),
        ..place
    }
}

/// Of a place whose token the client does not know nothing is left when it is gone.
#[test]
fn only_a_token_that_the_client_chose_comes_back() {
    for may_return in [true, false] {
        let place = waits(3, Claim::Exclusive, "", may_return);
        assert_eq!(place.vacated(MonoUs(9), None).is_some(), may_return);
    }
}

/// The holds of the lanes are gone, and the value that comes next may be found under the number of the last one.
#[test]
fn flush_has_lanes_sorted_anew() {
    for keeps in [false, true] {
        let (mut queues, ids) = queues_of(&["key", "kept"]);
        queues.join(ids[0], waits(1, Claim::Permits(1), "tenant", true));
        if keeps {
            queues.join(ids[1], place(2, Claim::Exclusive, ""));
        }
        let lanes = queues.lanes_of(ids[0], None).expect("lanes");
        assert!(lanes.sort(&mut 9, |_| InUse::default()));
        queues.flush(None);
        let lanes = queues.lanes_of(ids[0], None).expect("lanes");
        assert!(!lanes.is_sorted(), "a kept place elsewhere: {keeps}");
    }
}

#[test]
fn trimmed_names_lose_their_kept_places() {
    let (mut queues, ids) = queues_of(&["gone", "stays"]);
    let elsewhere = queues.find_or_make(Db(1), b"gone");
    for (number, id) in [(1, ids[0]), (2, ids[0]), (3, ids[1]), (4, elsewhere)] {
        queues.join(id, place(number, Claim::Exclusive, ""));
    }
    queues.flush_names(Db(0), |_| false);
    assert_eq!(queues.first_due(), None, "nothing has happened");
    queues.flush_names(Db(0), |name| name == b"gone");
    assert_eq!(queues.kept(), 2);
    assert_eq!(queues.waiting(Family::Lock), 2);
    assert_eq!(queues.find(Db(0), b"gone"), None);
    for (db, name, number) in [(Db(0), &b"stays"[..], 3), (Db(1), b"gone", 4)] {
        let queue = queues.find_kept(db, name).expect("a queue");
        assert!(queue.has(rank(number)));
    }
}

/// More queues than are swept at once.
const MANY: u64 = 200;

/// Returns queues with a kept place each. Every other name begins with "gone".
fn many_queues() -> Queues {
    let mut queues = Queues::default();
    (1..=MANY).for_each(|number| keep(&mut queues, number));
    queues
}

fn name(number: u64) -> String {
    format!("{} {number}", ["stays", "gone"][number as usize % 2])
}

fn keep(queues: &mut Queues, number: u64) {
    let id = queues.find_or_make(Db(0), name(number).as_bytes());
    queues.join(id, place(number, Claim::Exclusive, ""));
}

fn is_gone(name: &[u8]) -> bool {
    name.starts_with(b"gone")
}

/// The flush asks no queue for its name at once. What is kept under such a name afterwards stays.
#[test]
fn many_names_are_flushed_in_slices() {
    let mut queues = many_queues();
    queues.flush_names(Db(0), is_gone);
    assert_eq!(queues.kept(), MANY, "not yet");
    assert_eq!(queues.with_kept().count() as u64, MANY / 2);
    for number in [1, MANY - 1] {
        assert!(queues.find_kept(Db(0), name(number).as_bytes()).is_none());
        queues.note_flush(Db(0), name(number).as_bytes());
        keep(&mut queues, number);
        assert!(queues.find_kept(Db(0), name(number).as_bytes()).is_some());
    }
    let mut slices = 0;
    while queues.is_sweeping() {
        queues.sweep(&mut { 10 });
        slices += 1;
    }
    assert!(slices >= MANY / 2 / 10, "{slices} slices");
    assert_eq!(queues.kept(), MANY / 2 + 2);
    assert!(queues.flushed_names.is_empty());
    queues.flush_names(Db(0), |_| true);
    assert!(queues.is_sweeping());
}

/// The client's queue outlives the flush, so its kept places do not tell by its number that they came later.
#[test]
fn place_that_comes_after_the_flush_stays_in_a_queue_that_was_there_before() {
    let mut queues = many_queues();
    let id = queues.find_or_make(Db(0), b"gone");
    queues.join(id, waits(MANY + 1, Claim::Exclusive, "", false));
    queues.join(id, place(MANY + 2, Claim::Exclusive, ""));
    queues.flush_names(Db(0), is_gone);
    queues.note_flush(Db(0), b"gone");
    queues.join(id, place(MANY + 3, Claim::Exclusive, ""));
    queues.sweep(&mut { u32::MAX });
    let queue = queues.get(id).expect("a queue");
    let has = [1, 2, 3].map(|nth| queue.has(rank(MANY + nth)));
    assert_eq!(has, [true, false, true]);
}

/// One sweep does for both. It makes all queues due if one of those that asked for it wants that.
#[test]
fn events_during_a_sweep_of_names_are_swept_with_it() {
    type Event = fn(&mut Queues);
    let flush_others: Event = |queues| queues.flush_names(Db(0), |_| false);
    let set_all_due: Event = |queues| queues.set_all_due(Some(Db(0)));
    for (event, are_due) in [(flush_others, false), (set_all_due, true)] {
        let mut queues = many_queues();
        queues.flush_names(Db(0), is_gone);
        queues.sweep(&mut { 10 });
        event(&mut queues);
        queues.sweep(&mut { u32::MAX });
        assert!(!queues.is_sweeping());
        for number in (2..=MANY).step_by(2) {
            let id = queues.find(Db(0), name(number).as_bytes());
            assert_eq!(id.map(|id| queues.is_due(id)), Some(are_due), "{number}");
        }
    }
}

#[test]
fn flush_of_names_without_queues_leaves_nothing_to_do() {
    let mut queues = Queues::default();
    queues.flush_names(Db(0), |_| true);
    assert!(queues.flushed_names.is_empty() && !queues.is_sweeping());
}

/// A request whose client waits on a trimmed place goes on waiting, for the server to redirect it.
#[test]
fn client_that_waits_stays_where_places_are_trimmed() {
    let (mut queues, ids) = queues_of(&["gone"]);
    queues.join(ids[0], waits(1, Claim::Exclusive, "", false));
    queues.join(ids[0], place(2, Claim::Exclusive, ""));
    queues.flush_names(Db(0), |name| name == b"gone");
    let queue = queues.get(ids[0]).expect("a queue");
    assert_eq!([1, 2].map(|number| queue.has(rank(number))), [true, false]);
    assert!(queues.is_due(ids[0]));
}

/// The key was a semaphore, and is a lock by now: who waits for the lock is in no lane.
#[test]
fn request_of_another_family_is_in_no_lane_and_holds_up_all() {
    let (mut queues, ids) = queues_of(&["key"]);
    queues.join(ids[0], place(1, Claim::Permits(2), "tenant"));
    let all_stand_aside = |queues: &mut Queues| {
        let queue = queues.get_mut(ids[0]).expect("a queue");
        let lanes = queue.lanes.get_mut().expect("lanes");
        assert!(lanes.sort(&mut 9, |_| InUse::default()));
        queue.all_stand_aside(1)
    };
    assert!(all_stand_aside(&mut queues), "it asks for two");
    queues.join(ids[0], place(2, Claim::Exclusive, ""));
    assert!(!all_stand_aside(&mut queues));
    let queue = queues.get(ids[0]).expect("a queue");
    assert_eq!(queue.position(rank(1), 100), 1);
    assert_eq!(queue.position(rank(2), 100), 2);
    let has = [1, 2, 3].map(|number| queue.has(rank(number)));
    assert_eq!(has, [true, true, false]);
}

#[test]
fn queue_is_taken_apart_in_pieces() {
    let (mut queues, ids) = queues_of(&["key"]);
    for number in 1..=5 {
        queues.join(ids[0], place(number, Claim::Exclusive, ""));
    }
    // Of each a place, its token and its moment; then the queue's name, and the moment of its longest wait.
    assert_eq!(queues.into_pieces().count(), 3 * 5 + 2);
}

#[test]
fn queue_ceases_to_keep_lanes_when_no_place_names_one() {
    let (mut queues, ids) = queues_of(&["key"]);
    queues.join(ids[0], place(1, Claim::Permits(1), ""));
    assert!(queues.begin_lanes(ids[0]) && !queues.begin_lanes(ids[0]));
    queues.join(ids[0], place(2, Claim::Permits(1), "tenant"));
    for keeps in [true, false] {
        queues.finish_visit(ids[0]);
        assert_eq!(queues.keep_any_lanes(), keeps);
        queues.leave(ids[0], rank(2));
    }
    assert!(queues.get(ids[0]).expect("a queue").lanes().is_none());
}

#[test]
fn server_that_takes_over_sorts_its_lanes() {
    let (mut queues, ids) = queues_of(&["key"]);
    queues.join(ids[0], place(1, Claim::Permits(1), "tenant"));
    let lanes = queues.lanes_of(ids[0], None).expect("lanes");
    assert!(lanes.sort(&mut 9, |_| InUse::default()));
    queues.begin_turns();
    let lanes = queues.lanes_of(ids[0], None).expect("lanes");
    assert!(!lanes.is_sorted());
}
