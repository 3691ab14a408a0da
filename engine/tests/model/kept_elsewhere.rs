//! Kept places that leave their server or come to it: slots that move, changes that a replica follows, values that are
//! saved and restored; and thousands of them.

use std::collections::VecDeque;

use crate::fixture::KEY;
use crate::kept::{KEEP_MS, client_token};
use crate::long_queues::OneKey;
use crate::server::{Server, Stored, key_bytes};
use dsync_engine::LaneName;
use dsync_engine::answer::{Answer, Refusal};
use dsync_engine::calls::follow::Unfollowed;
use dsync_engine::change::{Change, KeptPlace};
use dsync_engine::effect::HandedOver;
use dsync_engine::saved::Loaded;
use dsync_engine::types::{
    Claim, ClientId, Db, Fence, LeaseMs, LeaseUs, MonoUs, Now, Rank, Token, UnixMs, WaiterId,
};
use dsync_engine::{Body, Family, Misfit, Reply, Settings, Visit};

/// While another node has the slot, a place is neither dropped nor forgotten.
#[test]
fn kept_place_of_unwritable_key_is_put_off() {
    let mut one_key = OneKey::with_places(1..=1);
    one_key.later(u64::from(KEEP_MS) + 2);
    let mut now = one_key.now;
    now.may_write = false;
    let mut budget = 100;
    let task = one_key.server.engine.next_task(one_key.now, &mut budget);
    let (task, ..) = task.expect("its time is over");
    one_key.server.call(KEY, Family::Lock, now, |visit| {
        visit.perform(task);
    });
    one_key.check();
    let next = one_key.server.engine.next_task(one_key.now, &mut budget);
    assert!(next.is_none(), "put off");
    one_key.later(60);
    assert!(matches!(one_key.run_tasks()[..], [Change::Leave { .. }]));
}

/// Tries to do all tasks of a key that this server cannot write. Returns how many there were.
fn try_tasks(one_key: &mut OneKey) -> usize {
    let closed = Now {
        may_write: false,
        ..one_key.now
    };
    let mut tasks = 0;
    let mut budget = 1_000;
    while let Some((task, ..)) = one_key.server.engine.next_task(one_key.now, &mut budget) {
        tasks += 1;
        one_key
            .server
            .call(KEY, Family::Lock, closed, |visit| visit.perform(task));
        one_key.check();
    }
    assert!(budget > 0, "the tasks have an end");
    tasks
}

/// The target of a slot migration followed thousands of changes to one place. Each of them made the queue due, was put
/// off, and was tried again every 50 ms until the slot had moved.
#[test]
fn changes_to_place_of_unwritable_key_are_one_task() {
    let mut one_key = OneKey::new();
    one_key.acquire(Claim::Exclusive, None, None, 0);
    for n in 0..40 {
        let place = KeptPlace {
            lease: LeaseMs(1_000 + n),
            ..kept(1, "t")
        };
        assert_eq!(one_key.followed(&[Change::Place(place)]), Ok(()));
        assert!(try_tasks(&mut one_key) <= 2, "change {n}");
        one_key.later(1);
    }
    let mut tasks = 0;
    for _ in 0..1_000 {
        one_key.later(1);
        tasks += try_tasks(&mut one_key);
    }
    assert!((15..=20).contains(&tasks), "{tasks} tasks in a second");
    one_key.later(60);
    assert_eq!(one_key.run_tasks(), [], "nothing was to be done");
    assert_eq!(one_key.places().len(), 1);
}

/// A place ran out at the target of a slot migration, and then its token asked again at the source: the place is kept
/// from then on, and what was put off is forgotten.
#[test]
fn end_of_place_that_was_put_off_is_forgotten_when_its_token_asks_again() {
    let mut one_key = OneKey::new();
    one_key.acquire(Claim::Exclusive, None, None, 0);
    let place = [Change::Place(kept(1, "t"))];
    assert_eq!(one_key.followed(&place), Ok(()));
    one_key.run_tasks();
    for _ in 0..3 {
        one_key.later(u64::from(KEEP_MS) + 2);
        assert_eq!(try_tasks(&mut one_key), 1, "its time is over");
        assert_eq!(one_key.followed(&place), Ok(()));
        one_key.run_tasks();
        one_key.later(60);
        assert_eq!(try_tasks(&mut one_key), 0, "it has its time again");
    }
    one_key.later(u64::from(KEEP_MS));
    let left = one_key.run_tasks();
    assert!(matches!(left[..], [Change::Leave { .. }]), "{left:?}");
}

/// Its client waits here, for the server to redirect it, and comes back to no place.
#[test]
fn place_that_left_with_its_slot_while_its_client_waits_is_kept_no_more() {
    let mut one_key = OneKey::with_places(1..=2);
    one_key.acquire(Claim::Exclusive, None, Some(MonoUs::NEVER), 1);
    one_key.server.delete(KEY);
    let name = key_bytes(KEY);
    let key = one_key.server.key(KEY, &name);
    let engine = &mut one_key.server.engine;
    engine.forget_places(key, one_key.now);
    engine.effects.clear();
    assert_eq!(engine.waiting(Family::Lock), 1);
    assert!(one_key.places().is_empty());
    one_key.check();
}

#[test]
fn places_that_left_with_their_slot_are_dropped_in_slices() {
    let mut one_key = OneKey::with_places(1..=300);
    one_key.acquire(Claim::Exclusive, None, Some(MonoUs::NEVER), 301);
    one_key.server.delete(KEY);
    let now = one_key.now;
    let closed = Now {
        may_write: false,
        ..now
    };
    let name = key_bytes(KEY);
    let key = one_key.server.key(KEY, &name);
    let engine = &mut one_key.server.engine;
    engine.forget_places(key, closed);
    assert_eq!(engine.effects.changes, [], "not while it cannot write");
    let mut left = 0;
    for is_last in [false, false, true] {
        engine.forget_places(key, now);
        assert!(engine.effects.changes.len() <= 128);
        left += engine.effects.changes.len();
        engine.effects.clear();
        let is_due = engine.next_task(now, &mut 100).is_some();
        assert_eq!(is_due, !is_last, "{left} places are dropped");
    }
    assert_eq!(left, 300);
    assert!(one_key.places().is_empty());
    let waiting = one_key.server.engine.waiting(Family::Lock);
    assert_eq!(waiting, 1, "the server itself redirects the client");
}

fn follower() -> OneKey {
    let mut one_key = OneKey::new();
    one_key.server = Server::new(Settings::default());
    one_key
}

fn kept(number: u64, token: &str) -> KeptPlace {
    KeptPlace {
        rank: Rank(Fence(number)),
        token: Token::parse(token.as_bytes()).expect("legal"),
        claim: Claim::Exclusive,
        lease: LeaseMs(1_000),
        min_hold: None,
        keep_ms: KEEP_MS,
        bound: None,
        owner: None,
        since: UnixMs(1),
        lane: LaneName::default(),
    }
}

impl OneKey {
    fn followed(&mut self, changes: &[Change]) -> Result<(), Unfollowed> {
        let now = self.now;
        let (followed, done) = self.server.call(KEY, Family::Lock, now, |visit| {
            visit.follow(Family::Lock, changes)
        });
        assert!(done.changes.is_empty(), "a replica decides nothing");
        self.check();
        followed
    }
}

/// A place leaves a name whose value is gone, or is of another family by now; the value is not touched.
#[test]
fn followed_leave_concerns_no_value() {
    let leave = |rank| {
        [Change::Leave {
            rank: Rank(Fence(rank)),
        }]
    };
    let mut one_key = follower();
    let places = [kept(1, "t"), kept(2, "u")].map(Change::Place);
    assert_eq!(one_key.followed(&places), Ok(()));
    one_key.server.delete(KEY);
    assert_eq!(one_key.followed(&leave(1)), Ok(()));
    assert!(one_key.server.state(KEY).is_none());
    let now = one_key.now;
    let limit = [Change::Limit(1)];
    let follow = |visit: &mut Visit<'_>| visit.follow(Family::Semaphore, &limit);
    let (followed, _) = one_key.server.call(KEY, Family::Semaphore, now, follow);
    assert_eq!(followed, Ok(()));
    assert_eq!(one_key.followed(&leave(2)), Ok(()));
    let state = one_key.server.state(KEY).expect("it is there");
    assert_eq!(state.body.family(), Family::Semaphore);
}

/// A replica chooses no lane, so it sorted none, and kept each lane whose last place had left as long as the queue.
#[test]
fn followed_lanes_are_gone_with_their_places() {
    let mut one_key = follower();
    let mut bytes_with = |number: u64| {
        let place = Change::Place(KeptPlace {
            claim: Claim::Permits(1),
            lane: LaneName::from(number.to_string().as_bytes()),
            ..kept(number, &format!("t{number}"))
        });
        let leave = Change::Leave {
            rank: Rank(Fence(number)),
        };
        let changes = [place, leave];
        let changes = &changes[..if number == 1 { 1 } else { 2 }];
        let (now, family) = (one_key.now, Family::Semaphore);
        let follow = |visit: &mut Visit<'_>| visit.follow(family, changes);
        let (followed, _) = one_key.server.call(KEY, family, now, follow);
        assert_eq!(followed, Ok(()));
        let (db, name) = (Db(KEY.0), key_bytes(KEY));
        one_key.server.engine.memory_of_places(db, &name)
    };
    let first = bytes_with(1);
    assert_eq!((2..100).map(bytes_with).last(), Some(first));
}

#[test]
fn change_of_places_that_does_not_fit_changes_nothing() {
    let place = |number, token| Change::Place(kept(number, token));
    let leave = |number| Change::Leave {
        rank: Rank(Fence(number)),
    };
    let grant = |number, token: &str| {
        Change::Grant(dsync_engine::hold::Grant {
            fence: Fence(number),
            token: Token::parse(token.as_bytes()).expect("legal"),
            claim: Claim::Exclusive,
            index: None,
            rest: dsync_engine::hold::Rest::None,
            lease: LeaseMs(1),
            deadline: UnixMs(2),
            granted: UnixMs(1),
            renewed: false,
            owner: None,
            lane: LaneName::default(),
        })
    };
    let cases = [
        (vec![place(1, "u")], 0, Misfit::PlaceTaken),
        (vec![place(2, "t")], 0, Misfit::PlaceTaken),
        (vec![place(2, "u"), place(2, "v")], 1, Misfit::PlaceTaken),
        (vec![place(2, "u"), place(3, "u")], 1, Misfit::PlaceTaken),
        (vec![leave(2)], 0, Misfit::NoPlace),
        (vec![leave(1), leave(1)], 1, Misfit::NoPlace),
        (vec![grant(9, "t"), leave(1)], 1, Misfit::NoPlace),
        (
            vec![place(2, "u"), leave(1), grant(9, "v"), grant(10, "w")],
            3,
            Misfit::Taken,
        ),
        (
            vec![
                place(2, "u"),
                Change::Unheard {
                    fence: Fence(9),
                    keep_ms: 1,
                },
            ],
            1,
            Misfit::NoHold,
        ),
    ];
    for (changes, at, misfit) in cases {
        let mut one_key = follower();
        assert_eq!(one_key.followed(&[place(1, "t")]), Ok(()));
        assert!(one_key.server.state(KEY).is_some(), "a value for the place");
        let refused = one_key.followed(&changes);
        assert_eq!(refused, Err(Unfollowed { at, misfit }), "{changes:?}");
        assert_eq!(one_key.places(), [kept(1, "t")], "{changes:?}");
    }
    let mut one_key = follower();
    let renewed = KeptPlace {
        lease: LeaseMs(9),
        ..kept(1, "t")
    };
    let fits = [place(1, "t"), place(2, "u"), Change::Place(renewed.clone())];
    assert_eq!(one_key.followed(&fits), Ok(()));
    assert_eq!(one_key.places(), [renewed, kept(2, "u")]);
    let fits = [leave(1), place(3, "t"), grant(9, "u")];
    assert_eq!(one_key.followed(&fits), Ok(()));
    assert_eq!(
        one_key.places(),
        [kept(3, "t")],
        "the grant takes its place"
    );
    assert_eq!(one_key.server.engine.fences().last(), Fence(9));
}

/// A rewrite of the AOF that began in the turn of a RENAME wrote none of the places of the old name, and what followed
/// removed one of them: no server could load that AOF.
#[test]
fn absent_place_leaves_aof_and_its_command_is_applied_otherwise() {
    let place = |number, token| Change::Place(kept(number, token));
    let leave = |number| Change::Leave {
        rank: Rank(Fence(number)),
    };
    let pause = Change::Pause {
        until: Some(UnixMs(9)),
    };
    let cases = [
        (vec![leave(7)], vec![]),
        (vec![leave(7), pause.clone()], vec![pause.clone()]),
        (vec![leave(1), leave(1)], vec![leave(1)]),
        (
            vec![place(2, "u"), leave(2), leave(2), leave(3)],
            vec![place(2, "u"), leave(2)],
        ),
        (vec![leave(1), pause.clone()], vec![leave(1), pause]),
    ];
    for (changes, fitting) in cases {
        let mut one_key = follower();
        assert_eq!(one_key.followed(&[place(1, "t")]), Ok(()));
        let mut left = changes.clone();
        let now = one_key.now;
        let absent = one_key.server.leave_out_absent(KEY, &mut left);
        let (followed, _) = one_key.server.call(KEY, Family::Lock, now, |visit| {
            visit.follow(Family::Lock, &left)
        });
        assert_eq!(followed, Ok(()), "{changes:?}");
        one_key.check();
        assert_eq!(left, fitting, "{changes:?}");
        assert_eq!(absent, changes.len() - fitting.len(), "{changes:?}");
    }
    // A request that waits with BLOCK has a rank too, but no place that could leave.
    let mut one_key = OneKey::new();
    one_key.acquire(Claim::Exclusive, None, None, 0);
    let before = one_key.server.engine.fences().last();
    one_key.acquire(Claim::Exclusive, None, Some(MonoUs::NEVER), 1);
    let rank = one_key.server.engine.fences().last();
    assert!(rank > before, "its rank was drawn");
    let mut left = vec![leave(rank.0)];
    assert_eq!(one_key.server.leave_out_absent(KEY, &mut left), 1);
    one_key.check();
}

/// RESTORE brings kept places to a name that has none. A request that waits there with the same token gets its place.
#[test]
fn restored_places_come_to_name_without_kept_places() {
    let loaded = || Loaded {
        body: Body::new(Family::Lock),
        places: vec![kept(3, "client 1"), kept(4, "t")],
    };
    let adopt = |one_key: &mut OneKey| {
        let now = one_key.now;
        let engine = &mut one_key.server.engine;
        let id = engine.adopt(loaded(), Db(KEY.0), &key_bytes(KEY), now);
        let stored = Stored::State(id.expect("fits"));
        one_key.server.keys.insert(KEY, stored);
        one_key.check();
    };
    let mut one_key = OneKey::with_places(9..=9);
    let before = one_key.places();
    one_key.server.delete(KEY);
    adopt(&mut one_key);
    assert_eq!(one_key.places(), before, "the name has places");

    let mut one_key = OneKey::new();
    one_key.acquire(Claim::Exclusive, None, None, 0);
    one_key.acquire(Claim::Exclusive, None, Some(MonoUs::NEVER), 1);
    one_key.server.engine.disconnected(ClientId(1), one_key.now);
    one_key.server.delete(KEY);
    adopt(&mut one_key);
    assert_eq!(one_key.places(), loaded().places, "one was vacant");

    let mut one_key = OneKey::new();
    one_key.acquire(Claim::Exclusive, None, None, 0);
    let waiter = one_key.acquire(Claim::Exclusive, None, Some(MonoUs::NEVER), 1);
    one_key.server.delete(KEY);
    adopt(&mut one_key);
    assert_eq!(one_key.places(), loaded().places);
    let now = one_key.now;
    assert_eq!(one_key.server.engine.waiting(Family::Lock), 2);
    assert!(one_key.server.engine.fences().last() > Fence(now.unix_us));
    for done in one_key.server.run_tasks(now) {
        one_key.take(done.wakes);
    }
    let Reply::Queued(id) = waiter else {
        panic!("it waits");
    };
    assert!(matches!(one_key.told[..], [(told, Answer::Granted { .. })] if told == id));
}

/// A request for permits waited with a token for which a payload had a place of a work-once key. It was taken for the
/// owner of that place, and told to do the work.
#[test]
fn request_is_told_that_restored_place_of_its_token_is_for_something_else() {
    let mismatch = Answer::Refused(Refusal::Mismatch);
    for (family, waits_for, told) in [
        (Family::Lock, Claim::Shared, mismatch),
        (Family::Once, Claim::Run, Answer::WrongType),
    ] {
        let mut one_key = OneKey::new();
        let first = match family {
            Family::Lock => Claim::Exclusive,
            _ => waits_for,
        };
        one_key.acquire(first, None, None, 0);
        let waiter = one_key.acquire(waits_for, None, Some(MonoUs::NEVER), 1);
        one_key.server.delete(KEY);
        let (now, places) = (one_key.now, vec![kept(3, "client 1")]);
        let loaded = Loaded {
            body: Body::new(Family::Lock),
            places: places.clone(),
        };
        let engine = &mut one_key.server.engine;
        let id = engine.adopt(loaded, Db(KEY.0), &key_bytes(KEY), now);
        let stored = Stored::State(id.expect("fits"));
        one_key.server.keys.insert(KEY, stored);
        one_key.check();
        assert_eq!(one_key.places(), places);
        for done in one_key.server.run_tasks(now) {
            one_key.take(done.wakes);
        }
        let Reply::Queued(id) = waiter else {
            panic!("it waits");
        };
        assert_eq!(one_key.told, [(id, told)], "{waits_for:?}");
        assert_eq!(one_key.server.engine.waiting(family), 0);
    }
}

/// No two places of a name have the same rank: whoever waits there under that of a restored one goes on waiting.
#[test]
fn restored_place_does_not_come_to_a_rank_that_is_taken() {
    for is_vacant in [false, true] {
        let mut one_key = OneKey::new();
        one_key.acquire(Claim::Exclusive, None, None, 0);
        one_key.acquire(Claim::Exclusive, None, Some(MonoUs::NEVER), 1);
        let taken = one_key.server.engine.fences().last();
        let now = one_key.now;
        if is_vacant {
            one_key.server.engine.disconnected(ClientId(1), now);
        }
        one_key.server.delete(KEY);
        let loaded = Loaded {
            body: Body::new(Family::Lock),
            places: vec![kept(taken.0, "other")],
        };
        let engine = &mut one_key.server.engine;
        let id = engine.adopt(loaded, Db(KEY.0), &key_bytes(KEY), now);
        let stored = Stored::State(id.expect("fits"));
        one_key.server.keys.insert(KEY, stored);
        one_key.check();
        assert_eq!(one_key.places(), [], "{is_vacant}");
    }
}

/// Between RENAME and the next turn a snapshot was made. The places were in no value, and would have been lost.
#[test]
fn places_without_value_are_saved_apart() {
    let mut one_key = OneKey::with_places(1..=3);
    let unheld = |one_key: &OneKey| one_key.server.engine.unheld_places().len();
    assert_eq!(unheld(&one_key), 0, "they are saved with the value");
    one_key.server.rename(KEY, (0, 2));
    assert_eq!(unheld(&one_key), 1);
    let mut loaded = one_key.server.reloaded(false, one_key.now, one_key.now);
    assert_eq!(loaded.places(KEY), one_key.places());
    loaded.engine.take_over(one_key.now);
    loaded.run_tasks(one_key.now);
    let state = loaded.state(KEY).expect("it has a value again");
    assert_eq!(state.body.holds().len(), 1, "the first in line holds");
    assert_eq!(loaded.places(KEY).len(), 2);
    one_key.run_tasks();
    assert_eq!(unheld(&one_key), 0);
    one_key.server.flush(None);
    assert_eq!(unheld(&one_key), 0, "flushed places are not saved");
}

/// A replica makes snapshots too, and forgets a queue that is empty.
#[test]
fn replica_saves_followed_places_with_their_value_or_apart() {
    let mut one_key = follower();
    let place = KeptPlace {
        claim: Claim::Permits(1),
        ..kept(3, "t")
    };
    let changes = [Change::Limit(2), Change::Place(place)];
    let (family, now) = (Family::Semaphore, one_key.now);
    let followed = one_key
        .server
        .call(KEY, family, now, |visit| visit.follow(family, &changes));
    assert_eq!(followed.0, Ok(()));
    let unheld = |one_key: &OneKey| one_key.server.engine.unheld_places();
    assert!(unheld(&one_key).is_empty(), "they are saved with the value");
    one_key.server.rename(KEY, (0, 2));
    assert_eq!(unheld(&one_key)[0].changes, changes, "they need the limit");
    let rank = Rank(Fence(3));
    let databases = |one_key: &OneKey| -> Vec<i32> {
        let databases = one_key.server.engine.queued_databases();
        databases.map(|Db(number)| number).collect()
    };
    assert_eq!(databases(&one_key), [KEY.0]);
    assert_eq!(one_key.followed(&[Change::Leave { rank }]), Ok(()));
    assert_eq!(databases(&one_key), []);
}

/// A slot moves here as a whole. Its old owner had not yet granted the lock to the first in line.
#[test]
fn followed_place_that_can_be_granted_is_served_by_the_new_owner() {
    let mut one_key = OneKey::new();
    let place = Change::Place(kept(3, "t"));
    assert_eq!(one_key.followed(&[place]), Ok(()));
    assert_eq!(try_tasks(&mut one_key), 1, "the slot is not its own yet");
    one_key.later(60);
    let changes = one_key.run_tasks();
    assert!(matches!(
        changes[..],
        [Change::Grant(_), Change::Unheard { .. }]
    ));
}

const MANY: u64 = 5_000;

#[test]
fn many_kept_places_get_their_moments_in_slices() {
    let mut one_key = OneKey::with_places(1..=MANY);
    one_key.server.engine.stand_down();
    one_key.server.engine.dismiss_all();
    one_key.check();
    assert_eq!(one_key.places().len() as u64, MANY);
    one_key.server.finish_background();
    assert_eq!(one_key.server.engine.next_wake(one_key.now), None);
    one_key.later(60_000);
    let latest = one_key.server.engine.latest_due();
    one_key.now.lease = one_key.now.lease.max(LeaseUs(latest.0 + 1));
    one_key.server.engine.fences_mut().promote(one_key.now);
    one_key.server.engine.take_over(one_key.now);
    let mut steps = 0;
    while one_key.server.engine.has_background() {
        let mut budget = 100;
        one_key.server.engine.background(&mut budget);
        steps += 100 - budget;
        one_key.check();
    }
    assert!(u64::from(steps) >= MANY, "{steps} steps");
    one_key.later(4_990);
    assert!(one_key.run_tasks().is_empty());
    one_key.later(20);
    let left = one_key.run_tasks();
    let is_leave = |change: &&Change| matches!(change, Change::Leave { .. });
    // The holder's lease has run out too, so the first place is granted.
    assert_eq!(left.iter().filter(is_leave).count() as u64, MANY - 1);
}

/// Does all background work. Returns how many steps it took.
fn background_steps(one_key: &mut OneKey) -> u64 {
    let mut steps = 0;
    while one_key.server.engine.has_background() {
        let mut budget = 100;
        one_key.server.engine.background(&mut budget);
        steps += u64::from(100 - budget);
    }
    one_key.check();
    steps
}

/// FLUSHALL took the kept places of a name out of its queue one by one, in one turn: 200,000 of them took 136 ms. Now
/// the flush drops the queue as a whole, and yet no place stands before a request that comes next.
#[test]
fn many_kept_places_are_flushed_in_slices() {
    for asks in [true, false] {
        let mut one_key = OneKey::with_places(1..=MANY);
        one_key.server.flush(None);
        one_key.check();
        assert!(one_key.places().is_empty(), "none of them counts");
        assert_eq!(one_key.server.engine.waiting(Family::Lock), 0);
        assert!(one_key.server.engine.contended(10, one_key.now).is_empty());
        if asks {
            let reply = one_key.acquire(Claim::Exclusive, None, None, MANY + 1);
            assert!(matches!(reply, Reply::Now(Answer::Granted { .. })));
        }
        let steps = background_steps(&mut one_key);
        assert_eq!(steps, 2 * MANY, "a place and its token each");
        assert_eq!(one_key.run_tasks(), []);
    }
}

/// Clients that wait on kept places, or beside them, go on waiting in their order after a flush, whether they or the
/// dropped places are more.
#[test]
fn flush_drops_kept_places_and_leaves_clients_in_order() {
    for (places, parked, plain) in [(MANY, 20, 20), (MANY, 20, 0), (3, 20, 20), (20, 3, 0)] {
        let case = format!("{places} places, {parked} clients on them, {plain} beside them");
        let mut one_key = OneKey::with_places(1..=places);
        let forever = Some(MonoUs::NEVER);
        // Every other place from the first on.
        let on_places: Vec<u64> = (0..parked)
            .map(|n| 1 + 2 * n)
            .take_while(|n| *n <= places)
            .collect();
        let beside: Vec<u64> = (places + 1..=places + plain).collect();
        let mut waiters = Vec::new();
        for client in on_places.iter().chain(&beside) {
            match one_key.acquire(Claim::Exclusive, None, forever, *client) {
                Reply::Queued(id) => waiters.push((*client, id)),
                Reply::Now(answer) => panic!("{case}: {answer:?}"),
            }
        }
        // The last one closes its connection, and its place is vacant for a while.
        let (gone, _) = waiters.pop().expect("a client");
        let was_kept = gone <= places;
        one_key
            .server
            .engine
            .disconnected(ClientId(gone), one_key.now);
        one_key.told.clear();
        one_key.server.flush(None);
        one_key.check();
        assert!(one_key.places().is_empty(), "{case}");
        let waiting = one_key.server.engine.waiting(Family::Lock);
        assert_eq!(waiting, waiters.len() as u64, "{case}");
        let dropped = places - on_places.len() as u64 + u64::from(was_kept);
        let steps = background_steps(&mut one_key);
        assert!(steps >= dropped, "{case}: {steps} steps");
        if !was_kept {
            // Its token comes back to its place, behind the others.
            let back = one_key.acquire(Claim::Exclusive, None, forever, gone);
            let Reply::Queued(id) = back else {
                panic!("{case}: {back:?}");
            };
            waiters.push((gone, id));
        }
        for (nth, (client, id)) in waiters.iter().enumerate() {
            for done in one_key.server.run_tasks(one_key.now) {
                one_key.take(done.wakes);
            }
            one_key.check();
            let told = one_key.told.last();
            assert!(
                matches!(told, Some((told, Answer::Granted { .. })) if told == id),
                "{case}: {nth}, client {client}: {told:?}"
            );
            let now = one_key.now;
            let (_, done) = one_key.server.call(KEY, Family::Lock, now, |visit| {
                visit.release(Family::Lock, &client_token(*client))
            });
            one_key.take(done.wakes);
        }
        assert_eq!(one_key.told.len(), waiters.len(), "{case}");
    }
}

/// RESTORE brought a place back to its queue in the very moment of the flush. The slices that take the dropped place
/// apart must not take the moment at which the new one runs out.
#[test]
fn place_restored_right_after_flush_runs_out() {
    let mut one_key = OneKey::with_places(1..=1);
    let places = one_key.places();
    let gone = one_key.acquire(Claim::Exclusive, None, Some(MonoUs::NEVER), 2);
    one_key.server.flush(None);
    let loaded = Loaded {
        body: Body::new(Family::Lock),
        places: places.clone(),
    };
    let now = one_key.now;
    let engine = &mut one_key.server.engine;
    let id = engine
        .adopt(loaded, Db(KEY.0), &key_bytes(KEY), now)
        .expect("fits");
    one_key.server.keys.insert(KEY, Stored::State(id));
    assert_eq!(one_key.places(), places);
    assert!(background_steps(&mut one_key) > 0);
    assert_eq!(one_key.places(), places);
    assert!(matches!(gone, Reply::Queued(_)));
}

/// A slot had left, and Redis removed all its keys at once. When the slot came back, a place that had been withdrawn
/// meanwhile came back, too.
#[test]
fn place_of_trimmed_slot_does_not_come_back() {
    let mut one_key = OneKey::with_places(1..=2);
    let mut places = one_key.places();
    let (name, now) = (key_bytes(KEY), one_key.now);
    let server = &mut one_key.server;
    let Some(Stored::State(gone)) = server.keys.remove(&KEY) else {
        panic!("a value of dsync");
    };
    let key = name.to_vec();
    server
        .engine
        .trimmed(Db(KEY.0), move |trimmed| trimmed == key);
    assert_eq!(server.engine.waiting(Family::Lock), 0);
    places.pop();
    let loaded = Loaded {
        body: Body::new(Family::Lock),
        places: places.clone(),
    };
    let engine = &mut server.engine;
    let id = engine.adopt(loaded, Db(KEY.0), &name, now).expect("fits");
    engine.freed_elsewhere(VecDeque::from([vec![gone]]));
    server.keys.insert(KEY, Stored::State(id));
    server.finish_background();
    one_key.check();
    assert_eq!(one_key.places(), places);
}

/// A replica dropped its data, and then loaded its primary's. The places that it loaded for a name were taken for those
/// that the flush had dropped.
#[test]
fn places_loaded_after_flush_stay() {
    for is_held in [true, false] {
        let mut one_key = OneKey::with_places(1..=MANY);
        one_key.server.flush(None);
        let (name, now) = (key_bytes(KEY), one_key.now);
        let engine = &mut one_key.server.engine;
        let place = kept(now.unix_us + 9_000_000, "loaded");
        if is_held {
            let loaded = Loaded {
                body: Body::new(Family::Lock),
                places: vec![place.clone()],
            };
            let id = engine.adopt(loaded, Db(KEY.0), &name, now).expect("fits");
            let stored = Stored::State(id);
            one_key.server.keys.insert(KEY, stored);
        } else {
            let changes = [Change::Place(place.clone())];
            engine.adopt_places(Db(KEY.0), &name, Family::Lock, &changes, now);
        }
        one_key.server.finish_background();
        one_key.check();
        assert_eq!(one_key.places(), [place], "with a value: {is_held}");
    }
}

/// A request was granted while its place was kept and its client waited; CLIENT UNBLOCK told the client otherwise in
/// the same turn.
#[test]
fn kept_place_outlives_grant_that_its_live_client_was_not_told_of() {
    let mut one_key = OneKey::with_places(1..=1);
    one_key.acquire(Claim::Exclusive, None, Some(MonoUs::NEVER), 1);
    let now = one_key.now;
    let (_, done) = one_key.server.call(KEY, Family::Lock, now, |visit| {
        visit.release(Family::Lock, &client_token(0))
    });
    let granted: Vec<(WaiterId, Option<HandedOver>)> =
        done.wakes.iter().map(|w| (w.waiter, w.grant)).collect();
    let [(_, Some(grant))] = granted[..] else {
        panic!("{:?}", done.wakes);
    };
    let engine = &mut one_key.server.engine;
    engine.undelivered(grant, ClientId(1), false, now);
    let changes = one_key.run_tasks();
    assert!(
        matches!(
            changes[..],
            [
                Change::End { .. },
                Change::Place(_),
                Change::Grant(_),
                Change::Unheard { .. }
            ]
        ),
        "{changes:?}"
    );
}
