//! Payloads at the bounds of commands, and one beyond each ([`expect_bound`]). A server that decides refuses what no command
//! would make; one that loads its own files or follows a primary believes it.

use crate::kept::KEEP_MS;
use crate::long_queues::{KEY, OneKey};
use crate::model::Name;
use crate::server::{Stored, key_bytes};
use crate::world::START_US;
use dsync_engine::LaneName;
use dsync_engine::answer::FullQueue;
use dsync_engine::calls::unfit::Unfit;
use dsync_engine::change::{Change, Displaced, FinishedRound, KeptPlace, Tally};
use dsync_engine::families::once::{Completion, Reason, Record};
use dsync_engine::hold::{Grant, Rest};
use dsync_engine::saved::Loaded;
use dsync_engine::types::{Claim, ClientId, Db, Fence, LeaseMs, MonoUs, Rank, Token, UnixMs};
use dsync_engine::{Body, Family, Visit};

pub const NOW: u64 = START_US / 1_000;
pub const DAY: u64 = 86_400_000;
const YEAR: u64 = 366 * DAY;
const TEN_YEARS: u64 = 3_650 * DAY;

fn loaded(family: Family, changes: Vec<Change>) -> Loaded {
    let mut body = Body::new(family);
    let mut places = Vec::new();
    for change in changes {
        body.apply(&change).expect("fits");
        if let Change::Place(place) = change {
            places.push(place);
        }
    }
    Loaded { body, places }
}

impl OneKey {
    fn restore(&mut self, name: Name, loaded: Loaded) -> Result<(), Unfit> {
        let now = self.now;
        let engine = &mut self.server.engine;
        let id = engine.adopt(loaded, Db(name.0), &key_bytes(name), now)?;
        self.server.keys.insert(name, Stored::State(id));
        self.server.engine.check_invariants(now);
        Ok(())
    }
}

fn token(text: &str) -> Token {
    Token::parse(text.as_bytes()).expect("legal")
}

fn grant() -> Grant {
    Grant {
        fence: Fence(START_US),
        token: token("t"),
        claim: Claim::Exclusive,
        index: None,
        rest: Rest::None,
        lease: LeaseMs(30_000),
        deadline: UnixMs(NOW + 30_000),
        granted: UnixMs(NOW),
        renewed: false,
        owner: None,
        lane: LaneName::default(),
    }
}

fn place(number: u64) -> KeptPlace {
    KeptPlace {
        rank: Rank(Fence(number)),
        token: token(&format!("place {number}")),
        claim: Claim::Exclusive,
        lease: LeaseMs(30_000),
        min_hold: None,
        keep_ms: KEEP_MS,
        bound: None,
        owner: None,
        lane: LaneName::default(),
        since: UnixMs(NOW),
    }
}

pub fn record() -> Record {
    Record {
        attempts: 1,
        reason: None,
        late: None,
        done: None,
        touched: UnixMs(NOW),
    }
}

fn done(keep_until: UnixMs, result_len: usize) -> Vec<Change> {
    let done = Some(Completion {
        token: token("t"),
        result: Some(vec![b'x'; result_len].into()),
        keep_until,
    });
    vec![Change::Record(Record { done, ..record() })]
}

fn tally(touched: u64, finished: Option<u64>) -> Vec<Change> {
    vec![Change::Tally(Tally {
        limit: None,
        limit_changes: 0,
        expected: None,
        done: 1,
        lapsed: 0,
        touched: UnixMs(touched),
        finished: finished.map(UnixMs),
    })]
}

type Changes = fn(u64) -> Vec<Change>;

/// What is restored, so much beyond its bound, and why it is refused one beyond. Those of an option that has its own file of
/// stories stand there: `pauses`, `delays`.
const BOUNDS: [(&str, Family, Changes, Unfit); 17] = {
    use Family::{Group, Lock, Once};
    const MAX_LEASE: Unfit = Unfit::Lease(DAY + 1, DAY);
    const MAX_MIN_HOLD: Unfit = Unfit::MinHold(DAY + 1, DAY);
    const MAX_TEXT: Unfit = Unfit::Text(65_537, 65_536);
    const MAX_KEPT: Unfit = Unfit::Place(60_001);
    const MAX_TALLY: Unfit = Unfit::Kept(31 * DAY + 1, 30 * DAY);
    #[rustfmt::skip]
    let bounds: [(&str, Family, Changes, Unfit); 17] = [
        ("lease", Lock, |more| vec![Change::Grant(Grant { lease: lease(more), ..grant() })], MAX_LEASE),
        ("MINHOLD", Lock, |more| {
            vec![Change::Grant(Grant { rest: Rest::After(lease(more)), ..grant() })]
        }, MAX_MIN_HOLD),
        ("rest", Lock, |more| {
            vec![Change::Grant(Grant { rest: Rest::Now, lease: lease(more), ..grant() })]
        }, MAX_LEASE),
        ("place's MINHOLD", Lock, |more| {
            vec![Change::Place(KeptPlace { min_hold: Some(lease(more)), ..place(1) })]
        }, MAX_MIN_HOLD),
        ("granted", Lock, |more| vec![Change::Grant(Grant { granted: year(more), ..grant() })], Unfit::MomentAhead),
        ("deadline", Lock, |more| vec![Change::Grant(Grant { deadline: year(more), ..grant() })], Unfit::MomentAhead),
        ("unheard", Lock, |more| {
            vec![Change::Grant(grant()), Change::Unheard { fence: Fence(START_US), keep_ms: kept_ms(more) }]
        }, MAX_KEPT),
        ("place's lease", Lock, |more| vec![Change::Place(KeptPlace { lease: lease(more), ..place(1) })], MAX_LEASE),
        ("place kept for", Lock, |more| vec![Change::Place(KeptPlace { keep_ms: kept_ms(more), ..place(1) })], MAX_KEPT),
        ("place kept too short", Lock, |more| {
            vec![Change::Place(KeptPlace { keep_ms: 1_000 - more as u32, ..place(1) })]
        }, Unfit::Place(999)),
        ("place since", Lock, |more| vec![Change::Place(KeptPlace { since: year(more), ..place(1) })], Unfit::MomentAhead),
        ("result kept for", Once, |more| {
            done(UnixMs(NOW + TEN_YEARS + DAY + more), 1)
        }, Unfit::Kept(TEN_YEARS + DAY + 1, TEN_YEARS)),
        ("result", Once, |more| done(UnixMs::NEVER, 65_536 + more as usize), MAX_TEXT),
        ("reason", Once, |more| {
            let reason = Some(Reason::Given(vec![b'x'; 65_536 + more as usize].into()));
            vec![Change::Record(Record { reason, ..record() })]
        }, MAX_TEXT),
        ("group touched", Group, |more| tally(year(more).0, None), Unfit::MomentAhead),
        ("tally kept for", Group, |more| {
            tally(NOW, Some(NOW + 31 * DAY + more))
        }, MAX_TALLY),
        ("displaced tally kept for", Group, |more| {
            let round = FinishedRound { expected: None, done: 1, lapsed: 0, keep_until: UnixMs(NOW + 31 * DAY + more) };
            let member = Change::Grant(Grant { claim: Claim::Member, ..grant() });
            let unheard = Change::Unheard { fence: Fence(START_US), keep_ms: KEEP_MS };
            vec![member, unheard, Change::Displaced(Displaced::Round(round))]
        }, MAX_TALLY),
    ];
    bounds
};

fn lease(more: u64) -> LeaseMs {
    LeaseMs((DAY + more) as u32)
}

fn year(more: u64) -> UnixMs {
    UnixMs(NOW + YEAR + more)
}

fn kept_ms(more: u64) -> u32 {
    60_000 + more as u32
}

/// Asserts that a primary takes what these changes make if it is at its bound, with 0, and refuses it one beyond, with 1. A
/// server that follows believes both. `why`: what the log says of the refusal.
#[track_caller]
pub fn expect_bound(what: &str, family: Family, changes: Changes, why: &str) {
    let mut primary = OneKey::new();
    let at_bound = loaded(family, changes(0));
    assert_eq!(primary.restore(KEY, at_bound), Ok(()), "{what}");

    let mut primary = OneKey::new();
    let last = primary.server.engine.fences().last();
    let beyond = || loaded(family, changes(1));
    let refused = primary
        .restore(KEY, beyond())
        .map_err(|unfit| unfit.to_string());
    assert_eq!(refused, Err(why.to_owned()), "{what}");
    let engine = &primary.server.engine;
    assert_eq!(engine.fences().last(), last, "{what}: nothing has changed");
    assert_eq!(engine.waiting(family), 0, "{what}");

    let mut follower = OneKey::new();
    follower.server.engine.stand_down();
    assert_eq!(follower.restore(KEY, beyond()), Ok(()), "{what}: believed");
}

/// A payload kept a place for 30 days where QUEUE allows a minute.
#[test]
fn payload_beyond_a_bound_of_commands_is_refused_by_primary_only() {
    for (what, family, changes, unfit) in BOUNDS {
        expect_bound(what, family, changes, &unfit.to_string());
    }
}

/// The clock of the server was set back by two years. Its own values can still be restored.
#[test]
fn payload_is_compared_with_the_last_fence_where_that_is_ahead_of_the_clock() {
    let ahead = START_US + 2 * YEAR * 1_000;
    let mut one_key = OneKey::new();
    one_key.server.engine.stand_down();
    let now = one_key.now;
    one_key.server.engine.fences_mut().adopt(Fence(ahead), now);
    one_key.take_over();
    let own = Grant {
        fence: Fence(ahead),
        granted: UnixMs(ahead / 1_000),
        deadline: UnixMs(ahead / 1_000 + 30_000),
        ..grant()
    };
    let own = loaded(Family::Lock, vec![Change::Grant(own)]);
    assert_eq!(one_key.restore(KEY, own), Ok(()));
}

/// The moment of a hold that comes by RESTORE, or with the changes of a slot, is counted from then on, and not from the
/// take-over of this server an hour ago.
#[test]
fn hold_that_comes_later_rests_from_the_moment_at_which_it_came() {
    for follows in [false, true] {
        let mut one_key = OneKey::new();
        one_key.pass(3_600_000);
        let granted = one_key.now.unix();
        let paced = Change::Grant(Grant {
            rest: Rest::After(LeaseMs(20_000)),
            granted,
            deadline: granted.after_ms(30_000),
            ..grant()
        });
        let now = one_key.now;
        if follows {
            let follow = |visit: &mut Visit<'_>| visit.follow(Family::Lock, &[paced]);
            let (followed, _) = one_key.server.call(KEY, Family::Lock, now, follow);
            assert_eq!(followed, Ok(()));
        } else {
            let restored = one_key.restore(KEY, loaded(Family::Lock, vec![paced]));
            assert_eq!(restored, Ok(()));
        }
        let release = |visit: &mut Visit<'_>| visit.release(Family::Lock, &token("t"));
        let (released, _) = one_key.server.call(KEY, Family::Lock, now, release);
        assert_eq!(released, Ok(true));
        one_key.pass(19_990);
        one_key.run_tasks();
        assert_eq!(one_key.server.engine.resting(), 1, "follows: {follows}");
        one_key.pass(10);
        one_key.run_tasks();
        assert_eq!(one_key.server.engine.resting(), 0, "follows: {follows}");
    }
}

fn places(numbers: std::ops::RangeInclusive<u64>) -> Loaded {
    let places = numbers.map(|number| Change::Place(place(number)));
    loaded(Family::Lock, places.collect())
}

/// A primary that allows ten places for a key and 24 in all.
fn narrow() -> OneKey {
    let mut one_key = OneKey::new();
    let settings = &mut one_key.server.engine.settings;
    (settings.max_waiters_per_key, settings.max_waiters) = (10, 24);
    one_key
}

/// One payload brought 100,000 places, and from then on every tenant was told QUEUEFULL.
#[test]
fn payload_with_more_places_than_there_is_room_for_is_refused() {
    let many = |places, full| Err(Unfit::ManyPlaces { places, full });
    let mut one_key = narrow();
    let refused = one_key.restore(KEY, places(1..=6));
    assert_eq!(refused, many(6, FullQueue::HalfOfKey(5)));
    assert_eq!(one_key.restore(KEY, places(1..=5)), Ok(()));
    assert_eq!(one_key.restore((0, 1), places(11..=15)), Ok(()));
    let refused = one_key.restore((0, 2), places(21..=23));
    assert_eq!(refused, many(3, FullQueue::HalfOfServer(12)));
    assert_eq!(one_key.restore((0, 2), places(21..=22)), Ok(()));
    assert_eq!(
        one_key.restore((0, 3), loaded(Family::Lock, Vec::new())),
        Ok(()),
        "it has none"
    );
    // A name with kept places ignores those of the payload, so their number does not matter.
    assert_eq!(one_key.restore(KEY, places(1..=6)), Ok(()));
    assert_eq!(one_key.server.engine.waiting(Family::Lock), 12);
}

#[test]
fn restored_places_need_room_beside_waiters_and_take_that_of_vacant_places() {
    for are_vacant in [false, true] {
        let mut one_key = narrow();
        one_key.acquire(Claim::Exclusive, None, None, 0);
        one_key.queue_requests(Claim::Exclusive, 6, MonoUs::NEVER);
        if are_vacant {
            for client in 1..=6 {
                let now = one_key.now;
                one_key.server.engine.disconnected(ClientId(client), now);
            }
        }
        one_key.server.delete(KEY);
        let restored = one_key.restore(KEY, places(1..=5));
        let full = FullQueue::Key(10);
        let expected = match are_vacant {
            true => Ok(()),
            false => Err(Unfit::ManyPlaces { places: 5, full }),
        };
        assert_eq!(restored, expected, "vacant: {are_vacant}");
        let kept = one_key.server.places(KEY).len();
        assert_eq!(kept, if are_vacant { 5 } else { 0 });
    }
}

/// An operator who cannot move a slot must learn from the log which setting to raise.
#[test]
fn refusal_names_setting_value_and_bound() {
    let full = FullQueue::HalfOfKey(5);
    for (unfit, words) in [
        (
            BOUNDS[0].3,
            "it has a lease of 86400001 ms, and dsync.max-lease-ms is 86400000",
        ),
        (
            Unfit::Kept(2, 1),
            "its result or tally is kept for 2 ms more, and 1 is the longest, and a day more for the clock of another server",
        ),
        (
            Unfit::Text(2, 1),
            "its result or reason has 2 bytes, and dsync.max-result-bytes is 1",
        ),
        (
            Unfit::ManyPlaces { places: 6, full },
            "there is no room for its 6 kept places: half of dsync.max-waiters-per-key is 5",
        ),
    ] {
        assert_eq!(unfit.to_string(), words);
    }
}

/// RESTORE replaced a semaphore by a group whose first in line is a kept place. Behind it waits a request for permits,
/// which the group's limit does not concern.
#[test]
fn limit_of_restored_group_refuses_no_permits() {
    let mut one_key = OneKey::new();
    one_key.acquire(Claim::Permits(5), Some(5), None, 0);
    one_key.acquire(Claim::Permits(5), Some(5), Some(MonoUs::NEVER), 1);
    one_key.server.delete(KEY);
    let claim = Claim::Member;
    let member = Change::Grant(Grant { claim, ..grant() });
    let queued = Change::Place(KeptPlace { claim, ..place(1) });
    let changes = vec![Change::Limit(1), member, queued];
    let restored = one_key.restore(KEY, loaded(Family::Group, changes));
    assert_eq!(restored, Ok(()));
    while one_key.one_task() {}
    assert_eq!(one_key.told, [], "it waits for its turn");
}

/// No command delays work that was never begun, but a payload can. It was to be forgotten at once, and a request that
/// waited kept it, so the timer had no rest until the end of the delay.
#[test]
fn delay_of_restored_work_without_attempts_keeps_it() {
    let mut one_key = OneKey::new();
    let until = Some(UnixMs(NOW + 60_000));
    let delayed = loaded(Family::Once, vec![Change::Delay { until }]);
    assert_eq!(one_key.restore(KEY, delayed), Ok(()));
    one_key.acquire(Claim::Run, None, Some(MonoUs::NEVER), 1);
    for _ in 0..10 {
        one_key.one_task();
    }
    let next = one_key.server.engine.next_wake(one_key.now);
    assert_eq!(
        next,
        Some(60_000_000),
        "nothing comes due before the end of the delay"
    );
}
