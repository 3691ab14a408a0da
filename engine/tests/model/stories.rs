//! Stories: what once went wrong, here or in another lock service, and how it ends now.
//!
//! Each opens with the loss. They are told through [`World`], so that the model watches them too; long queues are in `crowds`; the assertions here say what the story is about.

use crate::model::Name;
use crate::world::{Ask, Block, Step, World, ask, token};
use dsync_engine::answer::{Answer, Refusal};
use dsync_engine::change::Change;
use dsync_engine::effect::HandedOver;
use dsync_engine::types::{Claim, ClientId};
use dsync_engine::{Family, Settings};

pub const KEY: Name = (0, 0);
const OTHER: Name = (0, 1);
const MS: u64 = 1_000;

pub fn world() -> World {
    World::new(Settings::default())
}

pub fn exclusive(token: u8) -> Ask {
    ask(KEY, Claim::Exclusive, token)
}

fn shared(token: u8) -> Ask {
    ask(KEY, Claim::Shared, token)
}

pub fn permits(token: u8, n: u32) -> Ask {
    ask(KEY, Claim::Permits(n), token)
}

pub fn member(token: u8) -> Ask {
    ask(KEY, Claim::Member, token)
}

impl World {
    pub fn ask(&mut self, ask: Ask) -> Option<Answer> {
        self.step(&Step::Acquire(ask))
    }

    /// Everything that is due after this long; who was told what, as a sorted list.
    pub fn after_ms(&mut self, ms: u64) -> Vec<(usize, &'static str)> {
        self.steps(&[Step::Pass { us: ms * MS }, Step::Tick]);
        self.heard()
    }

    pub fn tick(&mut self) -> Vec<(usize, &'static str)> {
        self.after_ms(0)
    }

    /// What the last step told whom.
    pub fn heard(&self) -> Vec<(usize, &'static str)> {
        let mut heard: Vec<_> = self
            .told
            .iter()
            .map(|(conn, answer)| (*conn, word(answer)))
            .collect();
        heard.sort_unstable();
        heard
    }

    pub fn holders(&self, name: Name) -> usize {
        self.primary
            .state(name)
            .map_or(0, |state| state.body.holds().len())
    }
}

pub fn word(answer: &Answer) -> &'static str {
    match answer {
        Answer::Granted { .. } => "granted",
        Answer::Run { .. } => "run",
        Answer::Done { .. } => "done",
        Answer::GivenUp { .. } => "given up",
        Answer::NotGranted => "not granted",
        Answer::Finished { .. } => "finished",
        Answer::Refused(Refusal::NoLimit) => "no limit",
        Answer::Refused(Refusal::TooMany { .. }) => "too many",
        Answer::Refused(Refusal::Mismatch) => "mismatch",
        Answer::Refused(Refusal::QueueFull(_)) => "full",
        Answer::Superseded => "superseded",
        Answer::Withdrawn => "withdrawn",
        Answer::Removed => "removed",
        Answer::WrongType => "wrong type",
        Answer::Demoted => "demoted",
        other => panic!("{other:?} is no answer here"),
    }
}

fn fence(answer: Option<Answer>) -> u64 {
    match answer {
        Some(Answer::Granted { fence, .. }) => fence.0,
        other => panic!("not granted: {other:?}"),
    }
}

// The field's losses.

/// etcd #11456, found by Jepsen: a client queued for a lock, its session died while it waited, and when
/// the holder left it was told that it held the lock. Two clients were inside.
#[test]
fn a_waiter_whose_session_died_in_the_queue_never_holds() {
    for ephemeral in [false, true] {
        for away_ms in [0, 1_999, 2_000, 2_001, 60_000] {
            let case = format!("ephemeral: {ephemeral}, away for {away_ms} ms");
            let mut world = world();
            world.ask(exclusive(0).lease(1_000_000));
            let mut dying = exclusive(1).block();
            dying.ephemeral = ephemeral;
            world.ask(dying);
            world.ask(exclusive(2).block());
            world.step(&Step::Disconnect(1));
            world.after_ms(away_ms);
            world.step(&Step::Release(KEY, Family::Lock, 0));
            assert_eq!(world.heard(), [(2, "granted")], "{case}");
            assert_eq!(world.holders(KEY), 1, "{case}");
            // Nor does it hold later, when its turn would have come.
            world.step(&Step::Release(KEY, Family::Lock, 2));
            assert_eq!((world.heard(), world.holders(KEY)), (vec![], 0), "{case}");
            assert!(world.after_ms(100_000).is_empty(), "{case}");
        }
    }
}

/// Redisson's fair lock waits five seconds for each waiter that died. A dead one costs nothing here.
#[test]
fn dead_waiters_cost_nothing() {
    let mut world = world();
    world.ask(exclusive(0));
    for dead in 1..=9 {
        world.ask(exclusive(dead).block());
    }
    world.ask(exclusive(10).block());
    (1..=9).for_each(|dead| {
        world.step(&Step::Disconnect(dead));
    });
    world.step(&Step::Release(KEY, Family::Lock, 0));
    assert_eq!(world.heard(), [(10, "granted")]);
}

/// A client library gave up on its socket and asked again, and both requests were counted: one client
/// held two permits, and the second was never released.
#[test]
fn a_request_sent_again_is_the_same_hold() {
    let mut world = world();
    let first = fence(world.ask(permits(0, 2).limit(3).lease(10)));
    world.step(&Step::Pass { us: 9 * MS });
    let again = fence(world.ask(permits(0, 2).limit(3).lease(10).conn(7)));
    assert_eq!(first, again, "the same fence");
    assert_eq!(
        word(&world.ask(permits(1, 2)).expect("a try")),
        "not granted",
        "2 of 3 are taken"
    );
    assert_eq!(word(&world.ask(permits(0, 1)).expect("a try")), "mismatch");
    assert!(world.after_ms(9).is_empty());
    assert_eq!(world.holders(KEY), 1, "its lease began anew");
    world.after_ms(2);
    assert_eq!(world.holders(KEY), 0);
}

/// The old connection of a retried request closed late, and its end took the hold from the new one.
#[test]
fn the_end_of_an_old_connection_does_not_matter() {
    let mut world = world();
    world.ask(exclusive(0).ephemeral());
    world.ask(exclusive(0).ephemeral().conn(5));
    world.step(&Step::Disconnect(0));
    assert_eq!(
        (world.tick(), world.holders(KEY)),
        (vec![], 1),
        "the new connection has it"
    );
    world.step(&Step::Disconnect(5));
    world.tick();
    assert_eq!(world.holders(KEY), 0);
    // Also when the end of the old one was noticed first.
    world.ask(exclusive(1).ephemeral());
    world.step(&Step::Disconnect(1));
    world.ask(exclusive(1).ephemeral().conn(6));
    world.tick();
    assert_eq!(world.holders(KEY), 1, "taken up before it was carried out");
    // And for good, where the new request is not ephemeral.
    world.ask(exclusive(1).conn(8));
    world.step(&Step::Disconnect(6));
    world.tick();
    assert_eq!(world.holders(KEY), 1, "no longer ephemeral");
}

/// A queued request was sent again over a new connection and went to the end of the queue; the old
/// connection, still open, was granted the lock that nobody read.
#[test]
fn a_queued_request_sent_again_takes_over_its_place() {
    let mut world = world();
    world.ask(exclusive(0));
    world.ask(exclusive(1).block());
    world.ask(exclusive(2).block());
    assert_eq!(
        word(&world.ask(exclusive(1).conn(5)).expect("a try")),
        "not granted"
    );
    assert!(world.heard().is_empty(), "a try changes nothing");
    assert_eq!(
        word(&world.ask(shared(1).conn(5).block()).expect("at once")),
        "mismatch"
    );
    let mut again = exclusive(1).conn(6).block_ms(50).lease(7);
    again.owner = Some("again");
    world.ask(again);
    assert_eq!(world.heard(), [(1, "superseded")]);
    world.step(&Step::Release(KEY, Family::Lock, 0));
    assert_eq!(world.heard(), [(6, "granted")], "ahead of the other");
    assert_eq!(world.after_ms(8), [(2, "granted")], "under its new lease");
}

// Order.

/// A semaphore served whoever fitted, and a request for all permits never got its turn.
#[test]
fn a_large_request_is_not_starved_by_small_ones() {
    let mut world = world();
    world.ask(permits(0, 1).limit(3));
    world.ask(permits(1, 1));
    world.ask(permits(2, 3).block());
    for small in 3..8 {
        world.ask(permits(small, 1).block());
        assert_eq!(
            word(&world.ask(permits(20, 1)).expect("a try")),
            "not granted",
            "no barging"
        );
    }
    world.step(&Step::Release(KEY, Family::Semaphore, 0));
    assert!(world.heard().is_empty(), "permits pile up for the head");
    world.step(&Step::Release(KEY, Family::Semaphore, 1));
    assert_eq!(world.heard(), [(2, "granted")]);
    world.step(&Step::Release(KEY, Family::Semaphore, 2));
    assert_eq!(
        world.heard(),
        [(3, "granted"), (4, "granted"), (5, "granted")]
    );
}

/// The head of a queue gave up, and nobody looked at the next one, who would have fitted all along.
#[test]
fn when_the_head_leaves_the_next_is_served() {
    for how in [
        "its wait runs out",
        "its connection closes",
        "the server answers it",
        "it is too many",
    ] {
        let mut world = world();
        world.ask(permits(0, 1).limit(3));
        world.ask(permits(1, 3).block_ms(50));
        world.ask(permits(2, 2).block());
        match how {
            "its wait runs out" => {
                assert_eq!(world.after_ms(50), [(1, "not granted"), (2, "granted")])
            }
            "its connection closes" => {
                world.step(&Step::Disconnect(1));
                assert_eq!(world.tick(), [(2, "granted")], "{how}");
            }
            "the server answers it" => {
                world.step(&Step::Unblock(1));
                assert_eq!(world.tick(), [(2, "granted")], "{how}");
            }
            _ => {
                // A limit of 2 leaves no room for the next yet, and none ever for the head.
                world.ask(permits(3, 1).limit(2).block());
                assert_eq!(world.heard(), [(1, "too many")], "{how}");
                world.step(&Step::Release(KEY, Family::Semaphore, 0));
                assert_eq!(world.heard(), [(2, "granted")], "{how}");
            }
        }
    }
}

/// Readers came one by one while a writer waited, and the writer waited for ever.
#[test]
fn readers_behind_a_writer_wait_and_enter_together() {
    let mut world = world();
    world.ask(shared(0));
    world.ask(exclusive(1).block());
    world.ask(shared(2).block());
    world.ask(shared(3).block());
    world.ask(exclusive(4).block());
    world.ask(shared(5).block());
    world.step(&Step::Release(KEY, Family::Lock, 0));
    assert_eq!(world.heard(), [(1, "granted")]);
    world.step(&Step::Release(KEY, Family::Lock, 1));
    assert_eq!(
        world.heard(),
        [(2, "granted"), (3, "granted")],
        "but not the one behind the writer"
    );
    world.step(&Step::Release(KEY, Family::Lock, 3));
    assert!(world.heard().is_empty());
    world.step(&Step::Release(KEY, Family::Lock, 2));
    assert_eq!(world.heard(), [(4, "granted")]);
}

/// Keeping a place for a client that had lost its connection held up everybody behind it.
#[test]
fn a_vacant_place_delays_nobody_and_keeps_its_rank() {
    let mut world = world();
    world.ask(exclusive(0));
    for waiter in 1..=4 {
        world.ask(exclusive(waiter).block());
    }
    world.step(&Step::Disconnect(1));
    world.step(&Step::Disconnect(3));
    world.step(&Step::Release(KEY, Family::Lock, 0));
    assert_eq!(world.heard(), [(2, "granted")], "1 is not there");
    // Back in time, the first is first again, and the third third.
    world.ask(exclusive(3).conn(9).block());
    world.ask(exclusive(1).conn(8).block());
    world.step(&Step::Release(KEY, Family::Lock, 2));
    assert_eq!(world.heard(), [(8, "granted")]);
    world.step(&Step::Release(KEY, Family::Lock, 1));
    assert_eq!(world.heard(), [(9, "granted")]);
    world.step(&Step::Release(KEY, Family::Lock, 3));
    assert_eq!(world.heard(), [(4, "granted")]);
}

#[test]
fn nobody_keeps_a_place_without_a_token_of_its_own_or_after_an_answer() {
    let mut world = world();
    world.ask(exclusive(0));
    world.ask(exclusive(1).without_token().block());
    world.step(&Step::Disconnect(1));
    assert!(world.model.seats(KEY).is_empty());
    world.ask(exclusive(2).block());
    world.step(&Step::Unblock(2));
    world.ask(exclusive(3).block());
    world.ask(exclusive(2).block());
    world.step(&Step::Release(KEY, Family::Lock, 0));
    assert_eq!(world.heard(), [(3, "granted")], "the second came anew");
}

/// Crashed clients' places filled the queue, and living ones were turned away.
#[test]
fn vacant_places_make_room_for_the_living() {
    let settings = Settings {
        max_waiters_per_key: 3,
        max_waiters: 4,
        ..Settings::default()
    };
    let mut world = World::new(settings);
    world.ask(exclusive(0));
    (1..=3).for_each(|waiter| drop(world.ask(exclusive(waiter).block())));
    assert_eq!(
        word(&world.ask(exclusive(4).block()).expect("at once")),
        "full"
    );
    world.step(&Step::Disconnect(2));
    world.step(&Step::Disconnect(1));
    assert_eq!(
        world.ask(exclusive(4).block()),
        None,
        "the oldest vacant place goes"
    );
    // The first lost its place, the second has it still.
    world.ask(exclusive(2).block());
    assert_eq!(
        word(&world.ask(exclusive(1).block()).expect("at once")),
        "full"
    );
    world.step(&Step::Release(KEY, Family::Lock, 0));
    assert_eq!(world.heard(), [(2, "granted")]);
}

// Ends.

/// A holder that was late released the lock of the next one.
#[test]
fn a_late_release_does_not_touch_the_next_holder() {
    let mut world = world();
    let late = fence(world.ask(exclusive(0).lease(5)));
    world.ask(exclusive(1).block());
    assert_eq!(world.after_ms(6), [(1, "granted")]);
    world.step(&Step::Release(KEY, Family::Lock, 0));
    world.step(&Step::Renew(KEY, Family::Lock, 0, None));
    world.step(&Step::Revoke(KEY, Family::Lock, 7));
    assert_eq!(world.holders(KEY), 1, "the next one's");
    let held = world
        .primary
        .state(KEY)
        .expect("held")
        .body
        .holds()
        .first()
        .expect("held")
        .fence;
    assert!(held.0 > late);
    assert!(world.heard().is_empty());
}

/// All workers were killed at once, and their slots stayed taken until somebody deleted the key.
#[test]
fn all_slots_crash_at_once_and_recover() {
    for how in ["their leases run out", "their connections close"] {
        let mut world = world();
        for holder in 0..5 {
            let mut slot = permits(holder, 1).limit(5).lease(20);
            slot.ephemeral = how != "their leases run out";
            world.ask(slot);
        }
        for waiter in 5..15 {
            world.ask(permits(waiter, 1).block());
        }
        if how == "their leases run out" {
            world.step(&Step::Pass { us: 20 * MS });
        } else {
            (0..5).for_each(|holder| {
                world.step(&Step::Disconnect(holder));
            });
        }
        let granted: Vec<_> = (5..10).map(|conn| (conn, "granted")).collect();
        assert_eq!(world.tick(), granted, "{how}");
    }
}

/// A grant was written to a connection that had closed, and the lock stood unused for its lease.
#[test]
fn a_grant_that_cannot_be_delivered_goes_to_the_next() {
    for reported_first in [false, true] {
        for ephemeral in [false, true] {
            let case = format!("reported first: {reported_first}, ephemeral: {ephemeral}");
            let mut world = world();
            world.ask(member(0).limit(1));
            for waiter in 1..=2 {
                let mut waits = member(waiter).block();
                waits.ephemeral = ephemeral;
                world.ask(waits);
            }
            world.step(&Step::Wait(KEY, Some(Block::Forever), 9));
            world.step(&Step::Done(KEY, vec![0]));
            assert_eq!(world.heard(), [(1, "granted")], "{case}");
            world.step(&Step::FindGone { reported_first });
            assert_eq!(world.tick(), [(2, "granted")], "{case}");
            // Nobody ever knew of that membership, so nothing was lost.
            world.step(&Step::Done(KEY, vec![2]));
            assert_eq!(
                world.told,
                [(9, Answer::Finished { done: 2, lost: 0 })],
                "{case}"
            );
        }
    }
}

/// The hold was answered again over a second connection before the first was found closed.
#[test]
fn a_grant_that_was_answered_again_is_not_taken_back() {
    let mut world = world();
    world.ask(exclusive(0));
    world.ask(exclusive(1).block());
    world.step(&Step::Release(KEY, Family::Lock, 0));
    let (Some(state), granted) = (world.primary.keys.get(&KEY).copied(), world.told.clone()) else {
        panic!("it is held");
    };
    let crate::server::Stored::State(state) = state else {
        panic!("a state")
    };
    let [(1, Answer::Granted { fence, .. })] = granted[..] else {
        panic!("{granted:?}")
    };
    let client = world.client(1);
    world.ask(exclusive(1).conn(5));
    let grant = HandedOver {
        state,
        fence,
        former_place: None,
    };
    world
        .primary
        .engine
        .undelivered(grant, ClientId(client), true, world.now);
    assert!(world.tick().is_empty());
    assert_eq!(world.holders(KEY), 1);
}

// Limits.

/// A rolling deploy raised the limit, and nothing happened until somebody released.
#[test]
fn raising_a_limit_serves_at_once() {
    for how in ["a request", "an operator", "unpinning"] {
        let mut world = world();
        world.ask(permits(0, 2).limit(if how == "unpinning" { 5 } else { 2 }));
        if how == "unpinning" {
            world.step(&Step::Pin(KEY, Some(2)));
        }
        world.ask(permits(1, 1).block());
        world.ask(permits(2, 2).block());
        assert!(world.heard().is_empty(), "{how}");
        match how {
            "a request" => drop(world.ask(permits(3, 1).limit(5).block())),
            "an operator" => drop(world.step(&Step::Pin(KEY, Some(5)))),
            _ => drop(world.step(&Step::Pin(KEY, None))),
        }
        assert_eq!(world.heard(), [(1, "granted"), (2, "granted")], "{how}");
    }
}

#[test]
fn a_refused_try_changes_no_limit() {
    let mut world = world();
    world.ask(permits(0, 2).limit(2));
    assert_eq!(
        word(&world.ask(permits(1, 3).limit(4)).expect("a try")),
        "not granted"
    );
    assert_eq!(
        word(&world.ask(permits(1, 3).limit(1)).expect("a try")),
        "too many"
    );
    // Judged by its own, it may be granted, and then its limit is in force.
    assert_eq!(
        word(&world.ask(permits(1, 1).limit(3)).expect("a try")),
        "granted"
    );
    assert_eq!(world.model.content(KEY).and_then(|c| c.in_force()), Some(3));
    assert_eq!(
        word(&world.ask(ask(OTHER, Claim::Permits(1), 1)).expect("a try")),
        "no limit"
    );
    assert_eq!(
        world
            .ask(ask(OTHER, Claim::Permits(1), 1).block())
            .as_ref()
            .map(word),
        Some("no limit")
    );
}

/// A queued request's limit took force again each time its client reconnected.
#[test]
fn a_limit_takes_force_once() {
    let mut world = world();
    world.ask(permits(0, 1).limit(1));
    world.ask(permits(1, 1).limit(1).block());
    world.ask(permits(2, 1).limit(2).block());
    assert_eq!(world.heard(), [(1, "granted")], "raised to 2");
    world.step(&Step::Disconnect(2));
    world.ask(permits(3, 1).limit(3).block());
    assert!(
        world
            .model
            .content(KEY)
            .is_some_and(|c| c.in_force() == Some(3))
    );
    world.ask(permits(2, 1).limit(2).conn(8).block());
    assert!(
        world
            .model
            .content(KEY)
            .is_some_and(|c| c.in_force() == Some(3)),
        "not on its return"
    );
    world.step(&Step::Release(KEY, Family::Semaphore, 0));
    world.step(&Step::Release(KEY, Family::Semaphore, 1));
    assert_eq!(world.holders(KEY), 2, "granted, both");
    assert!(
        world
            .model
            .content(KEY)
            .is_some_and(|c| c.in_force() == Some(3)),
        "nor then"
    );
}

#[test]
fn a_pause_is_a_pinned_limit_of_nothing() {
    let mut world = world();
    world.ask(permits(0, 1).limit(2));
    world.step(&Step::Pin(KEY, Some(0)));
    world.ask(permits(1, 2).block());
    world.ask(permits(2, 9).block());
    world.step(&Step::Release(KEY, Family::Semaphore, 0));
    assert_eq!(
        world.after_ms(10_000),
        [],
        "paused, and kept with nobody in it"
    );
    world.step(&Step::Pin(KEY, None));
    assert_eq!(world.heard(), [(1, "granted"), (2, "too many")]);
    world.step(&Step::Release(KEY, Family::Semaphore, 1));
    assert!(
        world.primary.state(KEY).is_none(),
        "nothing is pinned, so it goes"
    );
}

/// The operator had paused a semaphore on which nobody had ever set a limit, and deleted it while
/// somebody waited: the waiter stayed, for ever, for a key that did not exist.
#[test]
fn a_paused_semaphore_that_is_deleted_leaves_nobody_waiting() {
    for leaves in [false, true] {
        let mut world = world();
        world.step(&Step::Pin(KEY, Some(0)));
        world.ask(permits(1, 1).block());
        if leaves {
            world.step(&Step::Disconnect(1));
        }
        world.step(&Step::Delete(KEY));
        if leaves {
            let answer = world.ask(permits(1, 1).limit(5).conn(8).block());
            assert_eq!(
                answer.as_ref().map(word),
                Some("no limit"),
                "its limit would not count"
            );
        } else {
            assert_eq!(world.tick(), [(1, "no limit")]);
        }
    }
}

// Rounds.

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

/// WAIT came between the ADD of the last worker and its turn, and said that all was done.
#[test]
fn a_round_is_not_over_while_somebody_is_queued_to_be_added() {
    let mut world = world();
    world.ask(member(0).limit(1));
    world.ask(member(1).block_ms(50).lease(30_000));
    world.step(&Step::Wait(KEY, Some(Block::Forever), 5));
    world.step(&Step::Done(KEY, vec![0]));
    assert_eq!(world.heard(), [(1, "granted")]);
    // A lost member's job is owed no more where no total is expected.
    assert_eq!(world.after_ms(30_000), [(5, "finished")]);
    // The tally stays, and the next ADD opens the next round.
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

/// The one who was queued to be added gave up, the last member had long gone, and WAIT never heard.
#[test]
fn a_round_is_over_when_the_last_in_the_queue_gives_up() {
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
fn expecting_no_more_than_is_done_finishes_the_round() {
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

// Keys that go and come.

/// DEL, and every other way in which a key goes: waiters are granted afresh, each under the limit that
/// was in force; those who wait for a group are told that it is gone.
#[test]
fn waiters_of_a_removed_key_begin_afresh() {
    let ways = [
        Step::Delete(KEY),
        Step::Flush(None),
        Step::Flush(Some(0)),
        Step::Rename(KEY, (1, 1)),
        Step::Swap(0, 1),
    ];
    for way in ways {
        let case = format!("{way:?}");
        let mut world = world();
        world.ask(permits(0, 2).limit(2));
        (1..=3).for_each(|waiter| drop(world.ask(permits(waiter, 1).block())));
        world.step(&way);
        assert_eq!(
            world.tick(),
            [(1, "granted"), (2, "granted")],
            "{case}: two of two"
        );
        world.step(&Step::Release(KEY, Family::Semaphore, 0));
        assert!(
            world.heard().is_empty(),
            "{case}: the old hold is of no account here"
        );

        let mut world = World::new(Settings::default());
        world.ask(member(0).limit(1));
        (1..=2).for_each(|waiter| drop(world.ask(member(waiter).block())));
        world.step(&Step::Wait(KEY, Some(Block::Forever), 5));
        world.step(&way);
        world.step(&Step::Free);
        assert_eq!(world.tick(), [(1, "granted"), (5, "removed")], "{case}");
    }
}

/// MULTI, DEL g, EXPECT g, EXEC: those who waited for the old group waited for the new one from then on,
/// and its gate had forgotten its limit, so that all who queued entered at once.
#[test]
fn a_key_removed_and_made_again_in_one_turn_is_another_key() {
    let again = |next: Step| {
        let mut world = world();
        world.ask(member(0).limit(1));
        (1..=3).for_each(|waiter| drop(world.ask(member(waiter).block())));
        world.step(&Step::Wait(KEY, Some(Block::Forever), 5));
        world.step(&Step::Delete(KEY));
        let answer = world.step(&next);
        (world, answer)
    };
    let (world, _) = again(Step::Expect(KEY, 4));
    assert_eq!(world.heard(), [(1, "granted"), (5, "removed")]);
    let (world, answer) = again(Step::Wait(KEY, None, 6));
    assert_eq!(world.heard(), [(1, "granted"), (5, "removed")]);
    assert_eq!(
        answer,
        Some(Answer::NotGranted),
        "it is not over: one was granted, two are queued"
    );
    let (world, answer) = again(Step::Acquire(member(7)));
    assert_eq!(world.heard(), [(1, "granted"), (5, "removed")]);
    assert_eq!(answer, Some(Answer::NotGranted));
}

/// DEL and, in the same turn, a request of another family: the waiter was granted the lock, and the
/// other request wrote a limit into it.
#[test]
fn a_key_removed_and_asked_for_as_another_family_is_its_waiters() {
    let others = [
        Step::Acquire(permits(7, 1).limit(1).block()),
        Step::Acquire(permits(7, 1).limit(1)),
        Step::Acquire(member(7).limit(2).block()),
        Step::Expect(KEY, 1),
        Step::Pin(KEY, Some(3)),
        Step::Wait(KEY, Some(Block::Forever), 7),
    ];
    for other in others {
        let mut world = world();
        world.ask(exclusive(0));
        world.ask(exclusive(1).block());
        world.step(&Step::Delete(KEY));
        let answer = world.step(&other);
        assert_eq!(world.heard(), [(1, "granted")], "{other:?}");
        assert_eq!(answer.as_ref().map(word), Some("wrong type"), "{other:?}");
    }
}

#[test]
fn waiters_of_an_overwritten_key_are_told() {
    for wrong in ["a string", "a lock"] {
        let mut world = world();
        world.ask(member(0).limit(1));
        world.ask(member(1).block());
        world.step(&Step::Wait(KEY, Some(Block::Forever), 5));
        if wrong == "a string" {
            world.step(&Step::Overwrite(KEY));
            assert_eq!(world.tick(), [(1, "wrong type"), (5, "wrong type")]);
        } else {
            world.ask(ask(OTHER, Claim::Exclusive, 0));
            world.step(&Step::Rename(OTHER, KEY));
            assert_eq!(world.tick(), [(1, "wrong type"), (5, "wrong type")]);
        }
    }
    // Semaphores' waiters are not judged by a group's limit.
    let mut world = world();
    world.ask(permits(0, 2).limit(2));
    world.ask(permits(1, 2).block());
    world.ask(ask(OTHER, Claim::Member, 0).limit(1));
    world.step(&Step::Rename(OTHER, KEY));
    assert_eq!(world.tick(), [(1, "wrong type")]);
}

/// A place had been left vacant, its key was overwritten, and when the place ran out the timer fired
/// again and again, for as long as the string was there.
#[test]
fn a_vacant_place_of_an_overwritten_key_goes() {
    for overwritten_first in [false, true] {
        let mut world = world();
        world.ask(exclusive(0));
        world.ask(exclusive(1).block());
        if overwritten_first {
            world.steps(&[Step::Overwrite(KEY), Step::Disconnect(1)]);
        } else {
            world.steps(&[Step::Disconnect(1), Step::Tick, Step::Overwrite(KEY)]);
        }
        assert!(
            world.after_ms(3_000).is_empty(),
            "overwritten first: {overwritten_first}"
        );
        let wake = world.primary.engine.next_wake(world.now);
        assert_eq!(wake, None, "overwritten first: {overwritten_first}");
    }
}

#[test]
fn a_held_key_keeps_its_holds_wherever_it_goes() {
    for way in [
        Step::Rename(KEY, OTHER),
        Step::Rename(KEY, (1, 0)),
        Step::Swap(0, 1),
    ] {
        let mut world = world();
        world.ask(exclusive(0).lease(50).ephemeral());
        world.ask(exclusive(1).block());
        // Somebody waits where it goes, too.
        let there = match way {
            Step::Rename(_, to) => to,
            _ => (1, 0),
        };
        world.ask(ask(there, Claim::Exclusive, 2));
        world.ask(ask(there, Claim::Exclusive, 3).block());
        world.step(&way);
        world.step(&Step::Free);
        let swapped = matches!(way, Step::Swap(..));
        let here: &[_] = if swapped { &[] } else { &[(1, "granted")] };
        assert_eq!(world.tick(), here, "{way:?}: waiters stay with the name");
        world.step(&Step::Check(there, Family::Lock, 0));
        let answer = world.ask(ask(there, Claim::Exclusive, 4));
        assert_eq!(answer, Some(Answer::NotGranted), "{way:?}: held there");
        // Its lease runs on, its connection's end counts, and its waiters there are served.
        if swapped {
            world.step(&Step::Disconnect(0));
            assert_eq!(world.tick(), [(3, "granted")], "{way:?}");
        } else {
            assert_eq!(world.after_ms(50), [(3, "granted")], "{way:?}");
        }
    }
}

/// A held key was renamed away, its client asked again and queued behind the next holder; then the key
/// came back, and the client was granted what it held already: a hold that did not exist, and a change
/// that no replica and no AOF could apply.
#[test]
fn a_waiter_whose_hold_comes_back_has_it_again() {
    for way in [Step::Rename(OTHER, KEY), Step::Swap(0, 1)] {
        let away = if matches!(way, Step::Swap(..)) {
            way.clone()
        } else {
            Step::Rename(KEY, OTHER)
        };
        let mut world = world();
        let first = fence(world.ask(shared(0)));
        world.step(&away);
        world.ask(exclusive(1));
        world.ask(shared(0).conn(5).block());
        world.ask(shared(2).block());
        world.step(&way);
        assert_eq!(world.tick(), [(2, "granted"), (5, "granted")], "{way:?}");
        let again = world
            .told
            .iter()
            .find(|(conn, _)| *conn == 5)
            .map(|(_, answer)| answer.clone());
        assert_eq!(fence(again), first, "{way:?}: its own");
        assert_eq!(world.holders(KEY), 2, "{way:?}");
    }
    // In another mode it is told so.
    let mut world = world();
    world.ask(shared(0));
    world.step(&Step::Rename(KEY, OTHER));
    world.ask(exclusive(1));
    world.ask(exclusive(0).conn(5).block());
    world.step(&Step::Rename(OTHER, KEY));
    assert_eq!(world.tick(), [(5, "mismatch")]);
}

/// A finished group took the place of one that somebody waited for, and the wait never ended.
#[test]
fn whoever_waits_where_a_finished_group_arrives_is_told() {
    for way in [Step::Rename(OTHER, KEY), Step::Swap(0, 1)] {
        let mut world = world();
        let elsewhere = if matches!(way, Step::Swap(..)) {
            (1, 0)
        } else {
            OTHER
        };
        world.ask(ask(elsewhere, Claim::Member, 0));
        world.step(&Step::Done(elsewhere, vec![0]));
        world.step(&Step::Expect(KEY, 2));
        world.step(&Step::Wait(KEY, Some(Block::Forever), 5));
        world.step(&way);
        world.tick();
        assert_eq!(
            world.told,
            [(5, Answer::Finished { done: 1, lost: 0 })],
            "{way:?}"
        );
        assert!(world.after_ms(100_000).is_empty(), "{way:?}");
    }
}

/// SWAPDB took a group from those who waited for it; where it was then nobody ever came, and it stayed
/// for good.
#[test]
fn an_idle_group_that_was_swapped_away_from_its_waiters_goes() {
    let mut world = World::new(Settings {
        group_idle_ms: 40,
        ..Settings::default()
    });
    world.step(&Step::Expect(KEY, 1));
    world.step(&Step::Wait(KEY, Some(Block::Forever), 5));
    world.step(&Step::Swap(0, 1));
    assert_eq!(world.tick(), [(5, "removed")]);
    assert!(world.primary.state((1, 0)).is_some());
    let wake = world.primary.engine.next_wake(world.now);
    assert!(
        wake.is_some_and(|us| us <= 40 * MS),
        "somebody will look: {wake:?}"
    );
    world.after_ms(80);
    assert!(world.primary.state((1, 0)).is_none());
}

// Servers that change.

/// A replica that was a moment behind, or whose clock was, dated new groups by itself: the digests
/// differed from then on.
#[test]
fn a_replica_dates_nothing_itself() {
    for skew_ms in [0, 1, 3_600_000] {
        for opening in [Step::Acquire(member(0).limit(2)), Step::Expect(KEY, 3)] {
            let mut world = world();
            world.skew_ms = skew_ms;
            world.step(&opening);
            let saved = world.primary.saved(KEY);
            assert_eq!(
                world.replica.saved(KEY),
                saved,
                "{opening:?}, {skew_ms} ms behind"
            );
        }
    }
}

#[test]
fn a_demoted_server_sends_everybody_away_and_keeps_the_holds() {
    let mut world = world();
    world.ask(exclusive(0).lease(100));
    world.ask(exclusive(1).block());
    world.step(&Step::Demote { ms: 10 });
    assert_eq!(world.holders(KEY), 1);
    assert!(world.model.seats(KEY).is_empty());
    world.ask(exclusive(1).block());
    assert_eq!(
        world.after_ms(101),
        [(1, "granted")],
        "90 ms and some grace, at most the lease"
    );
}

#[test]
fn while_the_server_cannot_write_nothing_begins_or_ends_but_waits() {
    let mut world = world();
    world.ask(exclusive(0).lease(5).ephemeral());
    world.ask(exclusive(1).block_ms(10));
    world.ask(exclusive(2).block());
    world.steps(&[Step::MayWrite(false), Step::Disconnect(0)]);
    assert!(world.primary.engine.is_held_up(world.now));
    assert_eq!(world.after_ms(9), []);
    assert_eq!(world.after_ms(1), [(1, "not granted")]);
    assert_eq!(world.after_ms(100_000), []);
    assert_eq!(world.holders(KEY), 1, "no lease runs");
    world.step(&Step::MayWrite(true));
    assert_eq!(world.primary.engine.next_wake(world.now), Some(0));
    assert_eq!(world.tick(), [(2, "granted")]);
}

#[test]
fn renewals_and_queues_are_no_modification() {
    let mut world = world();
    world.ask(exclusive(0));
    let now = world.now;
    let (_, done) = world.primary.call(KEY, Family::Lock, |engine, key| {
        engine.renew(key, Family::Lock, &token(0), None, now)
    });
    assert!(
        matches!(done.changes[..], [Change::Renew { .. }]),
        "and Server::call saw no modification"
    );
}

/// FLUSHALL, with queues on many keys: each is served afresh, and nothing of the old is left.
#[test]
fn flushall_serves_every_queue() {
    let mut world = world();
    for number in 0..20 {
        let name = (i32::from(number % 2), number);
        let holder = usize::from(number) * 3;
        world.ask(ask(name, Claim::Exclusive, number).conn(holder).lease(40));
        world.ask(
            ask(name, Claim::Exclusive, 100 + number)
                .conn(holder + 1)
                .block(),
        );
        world.ask(
            ask(name, Claim::Exclusive, 200 + number)
                .conn(holder + 2)
                .block(),
        );
    }
    world.step(&Step::Flush(None));
    let expected: Vec<_> = (0..20).map(|number| (number * 3 + 1, "granted")).collect();
    assert_eq!(world.tick(), expected);
    world.step(&Step::Free);
    assert!(world.after_ms(41).is_empty(), "the old leases mean nothing");
    assert_eq!(world.model.values.len(), 20);
}
